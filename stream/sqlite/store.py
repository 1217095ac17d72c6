"""The log in one SQLite file: rows hold what was appended, the schema holds the rules."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from stream.clock import now_ms
from stream.sqlite.appender import Appender
from stream.sqlite.feed import FEED, move
from stream.sqlite.page_rows import ask
from stream.sqlite.scripts import read_scripts
from stream.sqlite.sweeping import Sweeper
from stream.tables.store import Dialect, TableStore

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from stream.admission import Append
    from stream.database import Sql
    from stream.records import AppendResult
    from stream.sqlite.database import Database

_DIALECT: Final = Dialect(move, FEED, ask)


class SqliteStore(TableStore):
    """An `EventStore` over a `Database`. Made by `open_store`, or by `attach` over a database that is open."""

    database: Database

    def __init__(self, database: Database, incarnation: str, clock_ms: Callable[[], int], batches: int) -> None:
        super().__init__(database, incarnation, clock_ms, _DIALECT)
        self._appender = Appender(database, clock_ms, self._wakeups.wake, batches)
        self._sweeper = Sweeper(database)

    @classmethod
    async def attach(cls, database: Database, *, clock_ms: Callable[[], int] = now_ms) -> SqliteStore:
        """Brings the log's tables to their newest form. The store closes the database when it is closed."""
        await database.install("stream", read_scripts("stream.sqlite"))
        minted = secrets.token_hex(16)

        async def identify(sql: Sql) -> tuple[str, int]:
            await sql("INSERT INTO store SELECT ? WHERE NOT EXISTS (SELECT 1 FROM store)", (minted,))
            [(incarnation, batches)] = await sql("SELECT incarnation, (SELECT count(*) FROM batches) FROM store LIMIT 1")
            return str(incarnation), int(batches)

        incarnation, batches = await database.transact(identify)
        store = cls(database, incarnation, clock_ms, batches)
        store._sweeper.resume()
        return store

    async def settle(self) -> None:
        """Waits until rows below the floors are swept; nothing but the file's size depends on it."""
        self.database.home.check()
        await self._sweeper.settled()

    async def count_unswept(self, stream_id: str) -> int:
        """See `TableStore.count_unswept`."""
        from stream.sqlite.statistics import stream_statistics  # noqa: PLC0415 - only an erasure asks

        counted = await stream_statistics(self.database, stream_id)
        return 0 if counted is None else counted.unswept_rows

    def _store(self, append: Append) -> asyncio.Future[AppendResult]:
        return self._appender.append(append)

    def _went(self, stream_id: str) -> None:
        self._sweeper.sweep(stream_id)
        self._wakeups.wake(stream_id)

    async def _close(self) -> None:
        if not self.database.home.has_ended():
            await self._sweeper.close()
            await self._appender.close()
        await self.database.close()
        self._wakeups.wake_all()
