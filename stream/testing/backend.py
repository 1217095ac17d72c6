"""The hook between the kit and a store: how it is opened, opened again, damaged and closed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, Literal, Protocol

from stream.clock import now_ms
from stream.memory import MemoryStore
from stream.sqlite import SqliteStore, open_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stream.store import EventStore

Flag = Literal["damage", "large", "share"]
"""What not every store can do: flip a bit of a stored snapshot, take the largest events and appends that
`stream.limits` allows (one that takes less says so in `EventStore.limits`), be opened several times over one place."""


class Backend(Protocol):
    """Opens stores over one place, which is empty at first."""

    flags: frozenset[Flag]

    async def open(self, *, clock_ms: Callable[[], int] = now_ms) -> EventStore:
        """A store over the place, beside those that are open; without the flag `share`, over a place of its own."""
        ...

    async def reopen(self, store: EventStore) -> EventStore:
        """Closes and opens the same place again; gives the same store where a store has no place."""
        ...

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> None:
        """Flips one bit of what is stored; needs the flag `damage`."""
        ...

    async def close(self) -> None:
        """Closes whatever is open."""
        ...


class MemoryBackend:
    """The reference, and the model of `stream.testing.machine`."""

    flags: frozenset[Flag] = frozenset({"damage", "large"})

    def __init__(self) -> None:
        self.stores: list[MemoryStore] = []

    async def open(self, *, clock_ms: Callable[[], int] = now_ms) -> EventStore:
        """See `Backend.open`."""
        self.stores.append(self.make(clock_ms))
        return self.stores[-1]

    def make(self, clock_ms: Callable[[], int]) -> MemoryStore:
        """The store itself; a canary is made here."""
        return MemoryStore(clock_ms=clock_ms)

    async def reopen(self, store: EventStore) -> EventStore:
        """See `Backend.reopen`."""
        return store

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> None:
        """See `Backend.damage_snapshot`."""
        envelopes = self.stores[-1].stream(stream_id).envelopes
        envelopes[projector, last_seq] = flip(envelopes[projector, last_seq])

    async def close(self) -> None:
        """See `Backend.close`."""
        for store in self.stores:
            await store.close()


_PLACE: Final = "stream = (SELECT id FROM streams WHERE name = ?) AND projector = ? AND last_seq = ?"


class SqliteBackend:
    """One file in a folder."""

    flags: frozenset[Flag] = frozenset({"damage", "large", "share"})

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"
        self._stores: list[EventStore] = []
        self._clock_ms: Callable[[], int] = now_ms

    async def open(self, *, clock_ms: Callable[[], int] = now_ms) -> EventStore:
        """See `Backend.open`."""
        self._clock_ms = clock_ms
        database = await open_database(str(self.path), create=True)
        self._stores.append(await SqliteStore.attach(database, clock_ms=clock_ms))
        return self._stores[-1]

    async def reopen(self, store: EventStore) -> EventStore:
        """See `Backend.reopen`."""
        await store.close()
        return await self.open(clock_ms=self._clock_ms)

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> None:
        """See `Backend.damage_snapshot`."""
        place = (stream_id, projector, last_seq)
        with closing(sqlite3.connect(self.path)) as raw, raw:
            [(envelope,)] = raw.execute(f"SELECT envelope FROM snapshots WHERE {_PLACE}", place)  # noqa: S608 - constant
            raw.execute(f"UPDATE snapshots SET envelope = ? WHERE {_PLACE}", (flip(envelope), *place))  # noqa: S608

    async def close(self) -> None:
        """See `Backend.close`."""
        for store in self._stores:
            await store.close()


def flip(data: bytes) -> bytes:
    """The same bytes with one bit of the last one turned over."""
    return data[:-1] + bytes([data[-1] ^ 1])
