"""Statements as PostgreSQL takes them: numbered parameters with the type of what is given."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_CASTS: Final = {int: "::bigint", bool: "::bigint", str: "::text", bytes: "::bytea", float: "::double precision"}
_MARK: Final = re.compile(r"\?(\d*)")


def translate(text: str, parameters: Sequence[Any]) -> tuple[str, list[Any]]:
    """`?` and `?1` as `$1`, each with its type: a number that is compared with a constant would else be a small one.

    NULL has no type, and is written where it stands.
    """
    casts = tuple(None if value is None else _CASTS.get(type(value), "") for value in parameters)
    given = [int(value) if isinstance(value, bool) else value for value in parameters if value is not None]
    return _translate(text, casts), given


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
