"""Statements as PostgreSQL takes them: numbered parameters with the type of what is given."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_CASTS: Final = {int: "::bigint", bool: "::bigint", str: "::text", bytes: "::bytea", float: "::double precision"}
_ESCAPE: Final = "\U0010ffff"  # no character, but a text may have it
_NUL: Final = str.maketrans({"\0": _ESCAPE + "0", _ESCAPE: _ESCAPE + "1"})
_KEPT_LETTERS: Final = 8192  # longer ones are of many rows, each time others
_MARK: Final = re.compile(r"\?(\d*)")


def translate(text: str, parameters: Sequence[Any], collation: str) -> tuple[str, list[Any]]:
    """`?` and `?1` as `$1`, each with its type: a number that is compared with a constant would else be a small one.

    NULL has no type, and is written where it stands; NUL is no text for PostgreSQL, and is written as two that are. Texts are
    compared by `collation`: byte by byte, whatever the language of the database.
    """
    casts = tuple(
        None if value is None else _CASTS.get(type(value), "") + (collation if isinstance(value, str) else "")
        for value in parameters
    )
    make = _translate if len(text) <= _KEPT_LETTERS else _translate.__wrapped__
    return make(text, casts), [_given(value) for value in parameters if value is not None]


def told(row: Collection[Any]) -> tuple[Any, ...]:
    """A row as it was given."""
    for value in row:  # hardly any needs more than a look
        if value.__class__ is str and _ESCAPE in value:
            return tuple(_restore(value) if isinstance(value, str) else value for value in row)
    return tuple(row)


def _given(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return value.translate(_NUL) if isinstance(value, str) and ("\0" in value or _ESCAPE in value) else value


def _restore(value: str) -> str:
    return value.replace(_ESCAPE + "0", "\0").replace(_ESCAPE + "1", _ESCAPE)


@lru_cache(maxsize=4096)
def _translate(text: str, casts: tuple[str | None, ...]) -> str:
    count = 0
    places = list(itertools.accumulate(casts, lambda place, cast: place + (cast is not None), initial=0))[1:]

    def mark(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        number = int(found[1] or count)
        cast = casts[number - 1]
        return "NULL" if cast is None else f"${places[number - 1]}{cast}"

    return _MARK.sub(mark, text)
