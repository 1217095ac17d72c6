"""The stores under test; what a backend is, is in the kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from stream import EventStore
from stream.clock import now_ms
from stream.nats import open_nats
from stream.postgres import PostgresStore, open_postgres
from stream.testing import Backend, Flag, MemoryBackend, SqliteBackend, flip
from tests.faults.sizes import FULL
from tests.nats_server import SharedCluster, SharedNats
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stream.nats import NatsStore

__all__ = ["BACKENDS", "PLACES", "SERVERS", "Backend", "Memory", "Sqlite", "Store", "flip"]

Store = EventStore


class Memory(MemoryBackend):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


Sqlite = SqliteBackend


class Postgres:
    """A schema of the server of this process's tests."""

    flags: frozenset[Flag] = frozenset({"damage", "large", "share"})

    def __init__(self, folder: Path | None = None, *options: str) -> None:
        del folder
        self.url = Shared.url(*options)
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


class PortablePostgres(Postgres):
    """The same without anything that only PostgreSQL has: no trigger, no function, no `NOTIFY`."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder, "dialect=portable")


class Nats:
    """JetStream streams of the server of this process's tests."""

    flags: frozenset[Flag] = frozenset({"damage", "share"})

    def __init__(self, folder: Path | None = None, *options: str) -> None:
        del folder
        self.url = self.place(*options)
        self._stores: list[NatsStore] = []
        self._clock_ms: Callable[[], int] = now_ms

    @staticmethod
    def place(*options: str) -> str:
        """Where nothing is yet."""
        return SharedNats.url(*options)

    async def open(self, *, clock_ms: Callable[[], int] = now_ms) -> EventStore:
        """See `Backend.open`."""
        self._clock_ms = clock_ms
        self._stores.append(await open_nats(self.url, clock_ms=clock_ms))
        return self._stores[-1]

    async def reopen(self, store: EventStore) -> EventStore:
        """See `Backend.reopen`."""
        await store.close()
        return await self.open(clock_ms=self._clock_ms)

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> None:
        """Puts a damaged body in the place of the one that is listed. See `Backend.damage_snapshot`."""
        store = await open_nats(self.url, create=False)
        snapshots, client, layout = store.snapshots, store._client, store._log.layout
        kept = await snapshots._read_list(stream_id, projector)
        [entry] = [each for each in kept.entries if each.last_seq == last_seq]
        raw = await client.last(layout.home(stream_id), layout.body(stream_id, entry.name))
        assert raw is not None
        js = await client.send(raw.subject, flip(raw.data), {})
        damaged = [replace(each, first=js, last=js) if each == entry else each for each in kept.entries]
        await snapshots._put_list(stream_id, projector, kept, damaged)
        await store.close()

    async def close(self) -> None:
        """See `Backend.close`."""
        for store in self._stores:
            await store.close()


class ShardedNats(Nats):
    """The same over several JetStream streams."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder, "shards=3")


class ReplicatedNats(Nats):
    """The same on three servers, each of which has all of it."""

    @staticmethod
    def place(*options: str) -> str:
        """Where nothing is yet."""
        return SharedCluster.url(*options)

    async def close(self) -> None:
        """See `Backend.close`. Three servers have work with each stream that is there."""
        if self._stores:
            other = await open_nats(self.url, create=False)
            for shard in range(other._log.layout.shards):
                await other._client.ask(f"STREAM.DELETE.{other._log.layout.stream(shard)}")
            await other.close()
        await super().close()


BACKENDS: dict[str, type[Memory | Sqlite | Postgres | Nats]] = {
    "memory": Memory,
    "sqlite": Sqlite,
    "postgres": Postgres,
    "postgres, portable": PortablePostgres,
    "nats": Nats,
    "nats-shards": ShardedNats,
}
if FULL:
    BACKENDS["nats-three"] = ReplicatedNats
SERVERS: Final = ("postgres", "postgres, portable", "nats", "nats-shards", "nats-three")
"""Those of them that are asked only a part by default: all of it when there is time."""
PLACES: Final = [pytest.param(name, marks=pytest.mark.heavy if name in SERVERS else ()) for name in BACKENDS]
