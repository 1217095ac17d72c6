"""The stores under test, each with the one hook that differs: how it is opened again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from stream import MemoryStore
from stream.memory import now_ms
from stream.sqlite import SqliteStore, open_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Store = MemoryStore | SqliteStore


class Backend(Protocol):
    """Opens stores over one place, and closes whatever a test left open."""

    async def open(self, *, clock_ms: Callable[[], int] = now_ms) -> Store: ...

    async def reopen(self, store: Store) -> Store:
        """Closes and opens the same place again; nothing for a store that has no place."""
        ...

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> None:
        """Flips one byte of what is stored."""
        ...

    async def close(self) -> None: ...


class Memory:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stores: list[MemoryStore] = []

    async def open(self, *, clock_ms: Callable[[], int] = now_ms) -> Store:
        self._stores.append(MemoryStore(clock_ms=clock_ms))
        return self._stores[-1]

    async def reopen(self, store: Store) -> Store:
        return store

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> None:
        envelopes = self._stores[-1]._streams[stream_id].envelopes
        envelopes[projector, last_seq] = flip(envelopes[projector, last_seq])

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


class Sqlite:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"
        self._stores: list[Store] = []
        self._clock_ms: Callable[[], int] = now_ms

    async def open(self, *, clock_ms: Callable[[], int] = now_ms) -> Store:
        self._clock_ms = clock_ms
        database = await open_database(str(self.path), create=True)
        self._stores.append(await SqliteStore.attach(database, clock_ms=clock_ms))
        return self._stores[-1]

    async def reopen(self, store: Store) -> Store:
        await store.close()
        return await self.open(clock_ms=self._clock_ms)

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> None:
        where = "stream = (SELECT id FROM streams WHERE name = ?) AND projector = ? AND last_seq = ?"
        place = (stream_id, projector, last_seq)
        with closing(sqlite3.connect(self.path)) as raw, raw:
            [(envelope,)] = raw.execute(f"SELECT envelope FROM snapshots WHERE {where}", place)
            raw.execute(f"UPDATE snapshots SET envelope = ? WHERE {where}", (flip(envelope), *place))

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


BACKENDS: dict[str, Callable[[Path], Backend]] = {"memory": Memory, "sqlite": Sqlite}


def flip(data: bytes) -> bytes:
    """The same bytes with one bit of the last one turned over."""
    return data[:-1] + bytes([data[-1] ^ 1])
