"""Python's driver of SQLite, which binds numbered parameters alike on every Python."""

from __future__ import annotations

import sqlite3
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

C = TypeVar("C", bound=sqlite3.Connection)
_IS_TAKEN_FOR_A_NAME: Final = (3, 12) <= sys.version_info[:3] < (3, 12, 4)
"""These warn of a sequence for `?1`, as if it were a name; those before and after know it for a number."""
_NAMES: Final = tuple(map(str, range(1, 1000)))


def connect(place: str, **options: Any) -> sqlite3.Connection:
    """A connection in autocommit, with the options of `sqlite3.connect`."""
    return connect_as(sqlite3.Connection, ByName, place, **options)


def connect_as(plain: type[C], by_name: type[C], place: str, **options: Any) -> C:
    """As `connect`, of one of these kinds; the second where values are to be given by their names."""
    return sqlite3.connect(place, isolation_level=None, factory=by_name if _IS_TAKEN_FOR_A_NAME else plain, **options)


class ByName(sqlite3.Connection):
    """Gives the values of `?1`, `?2`, … by their names, so that no Python warns of them."""

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
        """As the driver's own."""
        return super().execute(text, dict(zip(_NAMES, parameters, strict=False)) if _is_numbered(text) else parameters)


@lru_cache(maxsize=512)
def _is_numbered(text: str) -> bool:
    """A statement numbers all of its parameters or none."""
    return "?1" in text
