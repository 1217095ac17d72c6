"""The log in one schema of a PostgreSQL database: a row an append, and one statement for appends of many streams."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from stream.clock import now_ms
from stream.postgres.appender import Appender
from stream.postgres.page_rows import ask
from stream.postgres.sweeper import Sweeper
from stream.sqlite.scripts import read_scripts
from stream.tables.feed import FeedTexts
from stream.tables.store import Dialect, TableStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from stream.admission import Append
    from stream.database import Sql
    from stream.postgres.database import PostgresDatabase
    from stream.records import AppendResult

_FEED: Final = FeedTexts("SELECT number FROM feed")
_UNSWEPT: Final = """
SELECT count(*) FROM streams AS s JOIN appends AS a ON a.stream = s.id AND a.last <= s.floor WHERE s.name = ?"""


class PostgresStore(TableStore):
    """An `EventStore` over a `PostgresDatabase`. Made by `open_store`, or by `attach` over a database that is open."""

    database: PostgresDatabase

    def __init__(self, database: PostgresDatabase, incarnation: str, clock_ms: Callable[[], int]) -> None:
        super().__init__(database, incarnation, clock_ms, Dialect(database.server.move, _FEED, ask))
        self._appender = Appender(database, clock_ms, self._wakeups.wake)
        self._sweeper = Sweeper(database)

    @classmethod
    async def attach(cls, database: PostgresDatabase, *, clock_ms: Callable[[], int] = now_ms) -> PostgresStore:
        """Brings the log's tables to their newest form. The store closes the database when it is closed."""
        await database.install("stream", read_scripts("stream.postgres"))
        minted = secrets.token_hex(16)

        async def identify(sql: Sql) -> str:
            await sql("INSERT INTO store (incarnation) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM store)", (minted,))
            [(incarnation,)] = await sql("SELECT incarnation FROM store LIMIT 1")
            return str(incarnation)

        known = await database.read("SELECT incarnation FROM store")
        database.gate = database.server.gate
        store = cls(database, known[0][0] if known else await database.transact(identify), clock_ms)
        store._sweeper.resume()
        return store

    async def settle(self) -> None:
        """Waits until rows below the floors are swept; nothing but the room they take depends on it."""
        self.database.home.check()
        await self._sweeper.settled()

    async def count_unswept(self, stream_id: str) -> int:
        """See `TableStore.count_unswept`."""
        [(count,)] = await self.database.read(_UNSWEPT, (stream_id,))
        return int(count)

    async def _store(self, append: Append) -> AppendResult:
        ongoing = self.database.ongoing
        await ongoing.pass_left()
        answer = self._appender.append(append)
        try:
            return await answer
        except asyncio.CancelledError:
            ongoing.leave(ongoing.begin(self._appender.landed()))
            raise

    def _went(self, stream_id: str) -> None:
        self._sweeper.sweep(stream_id)
        self._wakeups.wake(stream_id)

    async def _close(self) -> None:
        if not self.database.home.has_ended():
            await self._sweeper.close()
            await self._appender.close()
        await self.database.close()
        self._wakeups.wake_all()
