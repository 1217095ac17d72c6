"""The stores under test; what a backend is, is in the kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream import EventStore
from stream.clock import now_ms
from stream.postgres import PostgresStore, open_postgres
from stream.testing import Backend, Flag, MemoryBackend, SqliteBackend, flip
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["BACKENDS", "Backend", "Memory", "Sqlite", "Store", "flip"]

Store = EventStore


class Memory(MemoryBackend):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


Sqlite = SqliteBackend


class Postgres:
    """A schema of the server of this process's tests."""

    flags: frozenset[Flag] = frozenset({"damage", "large", "share"})

    def __init__(self, folder: Path | None = None) -> None:
        del folder
        self.url = Shared.url()
        self._stores: list[EventStore] = []
        self._clock_ms: Callable[[], int] = now_ms

    async def open(self, *, clock_ms: Callable[[], int] = now_ms) -> EventStore:
        """See `Backend.open`."""
        self._clock_ms = clock_ms
        self._stores.append(await PostgresStore.attach(await open_postgres(self.url, create=True), clock_ms=clock_ms))
        return self._stores[-1]

    async def reopen(self, store: EventStore) -> EventStore:
        """See `Backend.reopen`."""
        await store.close()
        return await self.open(clock_ms=self._clock_ms)

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> None:
        """See `Backend.damage_snapshot`."""
        database = await open_postgres(self.url, create=False)
        place = (stream_id, projector, last_seq)
        where = "stream = (SELECT id FROM streams WHERE name = ?) AND projector = ? AND last_seq = ?"
        [(envelope,)] = await database.read(f"SELECT envelope FROM snapshots WHERE {where}", place)
        text = f"UPDATE snapshots SET envelope = ?4 WHERE {where.replace('= ?', '= ?{}').format(1, 2, 3)}"
        await database.write(lambda sql: sql(text, (*place, flip(envelope))))
        await database.close()

    async def close(self) -> None:
        """See `Backend.close`."""
        for store in self._stores:
            await store.close()


BACKENDS: dict[str, type[Memory | Sqlite | Postgres]] = {"memory": Memory, "sqlite": Sqlite, "postgres": Postgres}
