"""Durable Streams whose time is over go by themselves, and what looks after that costs little, however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from stream import NewEvent
from stream.http.durable import expiring, truncate
from stream.http.durable.expiring import Expiry
from stream.http.durable.paths import stream_id
from stream.http.durable.streams import Streams
from stream.memory import MemoryStore
from tests.http.durable_workers import Clock, Worker

if TYPE_CHECKING:
    from stream import Event

pytestmark = pytest.mark.anyio


class Counting:
    """A store that counts the events that are read of it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.events = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        found = await self._store.read(stream, after=after, limit=limit)
        self.events += len(found)
        return found


async def test_at_the_start_of_a_stream_without_an_end_two_events_are_read_and_nothing_is_kept() -> None:
    store = MemoryStore()
    async with Worker(store) as worker:
        for n in range(5):
            await worker.make(f"s{n}", "application/json", content=b"[" + b"1," * 900 + b"1]")
    counting = Counting(store)
    streams = Streams(counting)
    await Expiry(counting, streams).look()
    assert counting.events <= 2 * 5
    assert not streams._known


async def test_whatever_has_an_end_is_found_at_the_start_also_where_only_its_snapshot_tells() -> None:
    clock = Clock()
    store = MemoryStore(clock_ms=clock)
    async with Worker(store, clock) as worker:
        await worker.make("never", content=b"text")
        await worker.make("later", Stream_Expires_At="2023-11-14T22:20:00Z")
        await worker.make("short", Stream_TTL="1000000000")
        places = [(await worker.add("short", b"x")).headers["Stream-Next-Offset"] for _ in range(3)]
        await worker.make("gone", content=b"text")
        await worker.delete("gone")
        await store.append(stream_id("half", 1), [NewEvent("open", b'{"media":"text/plain"}'), NewEvent("delete", b"")])
    await truncate(store, "short", before=places[-1])
    async with Worker(store, clock) as worker:
        expiry = worker.endpoint.expiry
        await expiry.look()
        assert sorted(path for _, path in expiry._ends) == [stream_id(path, 1) for path in ("later", "short")]
        assert (await store.bounds(stream_id("half", 1))).origin > 0
        clock.pass_s(2_000_000_000)
        await expiry.expire()
        for path in ("later", "short"):
            assert (await store.bounds(stream_id(path, 1))).origin > 0
        assert await worker.text("never") == "text"


async def test_what_looks_at_the_start_rests_between_so_that_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring, "_PAGE", 10)
    store = MemoryStore()
    async with Worker(store) as worker:
        for n in range(50):
            await worker.make(f"s{n}")
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(anyio, "sleep", rest)
    await Expiry(store, Streams(store)).look()
    assert len(rests) == 5
    assert all(seconds > 0 for seconds in rests)
