"""A database that is only looked at: what is done to it is done to a copy that nobody else sees, and is gone at the end."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from stream.errors import StoreBusy, StoreClosed, StoreUnusable, StreamError
from stream.sqlite.connection import Connections
from stream.sqlite.database import Database, wait_until_open
from stream.sqlite.driver import connect
from stream.sqlite.errors import FAILURES, translate
from stream.sqlite.feed import LAST
from stream.sqlite.handles import MEMORY, NAMELESS
from stream.sqlite.migrations import check_owner, migrate
from stream.sqlite.place import Presence, find_place
from stream.sqlite.trips import as_transaction
from stream.sqlite.untouched import ask_shared, open_untouched, see

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from stream.database import Row, Sql
    from stream.sqlite.untouched import Seen

_MOST_IN_MEMORY_BYTES: Final = 64 * 1024 * 1024
_BUSY_LIMIT_S: Final = 10.0
_REST: Final = 3  # of a large file that others write all the time: three parts of the time it is not copied
_PAGES_AT_ONCE: Final = 4096
_TICK_NS: Final = 20_000_000  # in such steps a file's time moves: what comes in the same one may look as before
_FIRST_DOUBT_S: Final = 0.025  # after a copy was made; then after twice as long, and so on: seldom is anything amiss
_LONGEST_DOUBT_S: Final = 1.0
_LOOK: Final = "SELECT count(*) FROM sqlite_schema"


class PrivateCopy(Database):
    """A `Database` that holds what the file at `path` held when it was opened, with the log beside it.

    In memory, or in a file without a name where that is much. Nothing is ever written to the file, nor beside it. Whoever
    waits for others is told of what they commit: then the copy is made anew, and what was done to it is gone. That is soon
    where the file's time moves with it, and within a second where it does not: a commit is written first, and counts
    when the disk has it. An older file stays as it is, its copy is brought to the newest form.
    """

    is_private_copy = True

    def __init__(self, path: str) -> None:
        self._seen, self._may_have_missed = see(path), False
        self._last: list[Row] | None = None
        super().__init__(path, "normal")
        self._kind = MEMORY if self._seen.file[2] <= _MOST_IN_MEMORY_BYTES else NAMELESS
        self._connections = Connections(self._kind)
        self._rests_until = 0.0
        self._doubts_at = self._doubt_s = 0.0
        self._telling: set[asyncio.Task[None]] = set()
        self._installing: list[Callable[[Sql], Awaitable[object]]] = []

    async def install(
        self, component: str, scripts: Sequence[str], fill: Mapping[int, Callable[[Sql], Awaitable[None]]] | None = None
    ) -> None:
        """See `Database.install`."""
        installing = as_transaction(lambda sql: migrate(sql, self.path, component, scripts, self._copying, fill))
        await self.submit(installing)
        self._installing.append(installing)

    async def _open(self, connections: Connections) -> None:
        self._writer = await connections.connect()
        self._believe(await self._writer.run(self._fill))
        await self._change(self._prepare)

    async def _prepare(self, sql: Sql) -> None:
        await check_owner(sql, self.path)
        await sql("PRAGMA foreign_keys = ON")

    async def _look_for_others(self) -> None:
        try:
            seen = see(self.path)
            is_gone = seen.file[:2] != self._seen.file[:2]
        except StoreUnusable:
            is_gone = True
        if is_gone:
            self._presence = _Gone(self.path)
        elif time.monotonic() >= self._rests_until and (
            seen != self._seen or self._may_have_missed or await self._has_missed()
        ):
            began_at = time.monotonic()
            filled = await self._writer.run(self._fill_anew)
            for installing in self._installing:
                await self._change(installing)
            self._believe(filled)
            self._rests_until = time.monotonic() + _REST * (time.monotonic() - began_at)
        else:
            return
        for watcher in list(self._watchers):  # beside the writer, whom they ask: there are no readers of a copy
            self._telling.add(task := asyncio.create_task(_tell(watcher)))
            task.add_done_callback(self._telling.discard)

    def _believe(self, filled: _Filled) -> None:
        """Only when the copy is whole: what failed half way is done again."""
        self._seen, self._may_have_missed, self._last = filled
        self._doubt_s = _FIRST_DOUBT_S
        self._doubts_at = time.monotonic() + self._doubt_s

    async def _has_missed(self) -> bool:
        """Who commits writes first, waits for the disk, and only then tells others: no file's time moves with that."""
        if time.monotonic() < self._doubts_at:
            return False
        last = await self._writer.run(lambda _: ask_shared(self.path, LAST))
        self._doubt_s = min(2 * self._doubt_s, _LONGEST_DOUBT_S)
        self._doubts_at = time.monotonic() + self._doubt_s
        return last not in (None, self._last)

    def _fill_anew(self, handle: sqlite3.Connection) -> _Filled:
        """What the copy held stays where the file can't be read right now."""
        with closing(connect(self._kind)) as between:
            filled = self._fill(between)
            between.backup(handle)
        return filled

    def _fill(self, handle: sqlite3.Connection) -> _Filled:
        """In SQLite's thread. Again and again while somebody writes, but not for ever."""
        deadline = time.monotonic() + _BUSY_LIMIT_S
        while True:
            try:
                seen = see(self.path)
                may_have_missed = seen.is_younger_than(_TICK_NS)
                with open_untouched(self.path) as source:
                    source.execute("BEGIN")  # of one moment, however many steps it takes
                    source.execute(_LOOK).fetchone()
                    last = _ask_last(source)
                    source.backup(handle, pages=_PAGES_AT_ONCE, progress=self._check_wanted)
            except StoreBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - jitter, no secret
            except FAILURES as error:
                raise translate(error, self.path) from error
            else:
                return _Filled(seen, may_have_missed, last)

    def _check_wanted(self, *_: int) -> None:
        if self._abandoned:
            raise StoreClosed(f"{self.path} was closed while it was read")


class _Filled(NamedTuple):
    """What a copy was made of: the files as they were seen before it, and the last change that it holds."""

    seen: Seen
    may_have_missed: bool
    last: list[Row] | None


def _ask_last(source: sqlite3.Connection) -> list[Row] | None:
    """None for an older file, and for one without a log."""
    try:
        return source.execute(LAST).fetchall()
    except sqlite3.OperationalError:
        return None


async def _tell(watcher: Callable[[], Awaitable[None]]) -> None:
    with suppress(StreamError):  # who waits is told so by his own look
        await watcher()


class _Gone(Presence):
    """Says so, whatever is asked."""

    def check(self) -> NoReturn:
        raise StoreUnusable(self._path, "it was moved, deleted or replaced while it was looked at: open it again")

    def look(self) -> NoReturn:
        self.check()


async def open_private_copy(path: str) -> PrivateCopy:
    """Opens a copy of the file at `path`, to be looked at. Raises `StoreUnusable`, and `StoreBusy` where others never pause."""
    return await wait_until_open(PrivateCopy(find_place(path, create=False, is_touched=False)))
