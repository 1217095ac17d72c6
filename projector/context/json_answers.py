"""What a model answered, read with patience: JSON objects wherever they stand, with words, fences and braces around them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCAN: Final = json.JSONDecoder(strict=False).raw_decode  # models break lines within texts
_MOST_WORK: Final = 10_000_000
"""So many characters are looked at in vain at most: an answer may be made to be slow to read."""


class Found(NamedTuple):
    """An object of an answer, and where it stands."""

    value: dict[str, Any]
    start: int
    end: int


def objects_in(answer: str) -> Iterator[Found]:
    """The JSON objects in an answer that stand in no other one, in order. What is none is passed over."""
    work, start = 0, answer.find("{")
    while start >= 0 and work < _MOST_WORK:
        end = start + 1
        try:
            value, end = _SCAN(answer, start)
        except json.JSONDecodeError as error:
            work += max(1, error.pos - start)
        except (ValueError, RecursionError):  # a number of thousands of digits, or nested too deeply
            work += len(answer) - start
        else:
            yield Found(value, start, end)
        start = answer.find("{", end)


def whole_number(value: object) -> int | None:
    """A whole number, also where it was given as a text; None for anything else."""
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal() and len(value) < _LONGEST_NUMBER:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_LONGEST_NUMBER: Final = 20
