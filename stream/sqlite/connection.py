"""A connection to SQLite with a thread of its own, to which whole functions are handed: each is one trip."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import aiosqlite

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_ITER_ROWS: Final = 64
_CACHED_STATEMENTS: Final = 256


class Connection(aiosqlite.Connection):
    """In autocommit. It never waits for a lock: that is done with jitter in the event loop, not asleep in the thread."""

    def __init__(self, path: str) -> None:
        options = {"isolation_level": None, "timeout": 0, "cached_statements": _CACHED_STATEMENTS}
        super().__init__(partial(sqlite3.connect, path, **options), _ITER_ROWS)

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a function in SQLite's thread, after what was handed over before; a cancelled caller does not cut it."""
        return await self._execute(function, self._conn)  # type: ignore[no-any-return, no-untyped-call]
