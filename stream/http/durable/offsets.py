"""Offsets: places between the messages of a stream, in the order of their bytes; and the cursor against loops in caches."""

from __future__ import annotations

import random
import re
import time
from typing import Final, NamedTuple

from stream.http.problems import Problem

_OFFSET: Final = re.compile(r"([0-9]{16})_([0-9]{16})", re.ASCII)
_EPOCH_S: Final = 1_728_432_000  # 2024-10-09T00:00:00Z
_INTERVAL_S: Final = 20
_MAX_JITTER_S: Final = 3600
_MAX_CURSOR_DIGITS: Final = 15
_LIVES: Final = 1_000_000  # of a path, which are told apart


class Offset(NamedTuple):
    """`generation` tells the lives of a path apart, so that a place in an earlier one is not taken for one in this."""

    generation: int
    position: int

    def __str__(self) -> str:
        return f"{self.generation:016d}_{self.position:016d}"


BEGINNING: Final = Offset(0, 0)


def read_offset(text: str) -> Offset:
    """The offset that is written so; `-1` is the beginning. Raises `Problem` 400."""
    if text == "-1":
        return BEGINNING
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise Problem(400, "invalid_offset", f"an offset is -1, now, or one that this server gave, not {text[:40]!r}")
    return Offset(int(found[1]), int(found[2]))


def generation_of(number: int, inherited: int = 0) -> int:
    """The generation of a path's life by its number: not below that of its source, and never that of another life of it."""
    own = number - 1
    return own if own >= inherited else inherited + (own - inherited) % _LIVES


def next_cursor(given: str | None, *, now_s: float | None = None) -> str:
    """The cursor of an answer (protocol 2.8): of the present interval of 20 s, or beyond what the client has already."""
    present = int(((time.time() if now_s is None else now_s) - _EPOCH_S) // _INTERVAL_S)
    if given and given.isascii() and given.isdecimal() and len(given) <= _MAX_CURSOR_DIGITS and int(given) >= present:
        jitter_s = random.randint(1, _MAX_JITTER_S)  # noqa: S311 - chance, no secret
        return str(int(given) + max(1, jitter_s // _INTERVAL_S))
    return str(present)
