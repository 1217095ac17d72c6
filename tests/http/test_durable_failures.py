"""Durable Streams where something fails beside what is asked for: what was stored is acknowledged, and others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stream import CorruptEvent, NewEvent, StoreClosed, StoreFull
from stream.http.durable import streams
from stream.http.durable.paths import stream_id
from stream.memory import MemoryStore
from tests.http.durable_workers import Clock, Meddler, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream import AppendResult

pytestmark = pytest.mark.anyio


class Full:
    """A store without room for anything of some kind: for snapshots, or for events of a type."""

    def __init__(self, store: MemoryStore, kind: str, failure: Exception | None = None) -> None:
        self._store = store
        self.kind = kind
        self.failure = failure or StoreFull("no room")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def snapshots(self) -> Any:
        return self if self.kind == "snapshot" else self._store.snapshots

    async def save(self, *_: Any) -> bool:
        raise self.failure

    async def load(self, *given: Any) -> Any:
        return await self._store.snapshots.load(*given)

    async def append(self, stream: str, events: Sequence[NewEvent], **more: Any) -> AppendResult:
        if any(event.type == self.kind for event in events):
            raise StoreFull("no room")
        return await self._store.append(stream, events, **more)


@pytest.mark.parametrize("failure", [StoreFull("no room"), StoreClosed("closing"), CorruptEvent("ds:a#1", 0, "damaged")])
async def test_what_was_stored_is_acknowledged_though_no_snapshot_can_be_saved(failure: Exception) -> None:
    """Who is told otherwise sends it again."""
    many = b"[" + b"1," * 1500 + b"1]"
    async with Worker(Full(MemoryStore(), "snapshot", failure)) as worker:
        assert (await worker.make("a", "application/json", many)).status_code == 201
        assert (await worker.add("a", many, "application/json")).status_code == 204
        assert len((await worker.get("a")).json()) == 3002


async def test_a_stream_with_a_time_to_live_can_be_read_though_there_is_no_room_to_say_so() -> None:
    clock = Clock()
    async with Worker(Full(MemoryStore(clock_ms=clock), "touch"), clock) as worker:
        await worker.make("a", content=b"text", Stream_TTL="100")
        for _ in range(5):
            clock.pass_s(90)
            assert await worker.text("a") == "text"


async def test_a_stream_that_cannot_be_read_keeps_no_other_from_being_served() -> None:
    clock = Clock()
    store = MemoryStore(clock_ms=clock)
    for n, event in enumerate((NewEvent("open", b"no JSON"), NewEvent("open", b'{"media":1}'), NewEvent("data", b""))):
        await store.append(stream_id(f"wrong{n}", 1), [event])
    await store.append(stream_id("wrong3", 1), [NewEvent("open", b'{"media":"text/plain"}'), NewEvent("fork", b"\xff")])
    async with Worker(store, clock) as worker:
        await worker.make("a", Stream_TTL="1")
        await worker.endpoint.expiry.look()
        clock.pass_s(3)
        await worker.endpoint.expiry.expire()
        assert (await store.bounds(stream_id("a", 1))).origin
        for n in range(4):
            answer = await worker.get(f"wrong{n}")
            assert (answer.status_code, answer.json()["error"]) == (500, "damaged")


async def test_a_repeat_of_what_another_process_has_closed_says_so() -> None:
    store = MemoryStore()
    told = {"Producer_Id": "p", "Producer_Epoch": "0", "Producer_Seq": "0", "Stream_Closed": "true"}
    async with Worker(store) as other:
        await other.make("a")
        async with Worker(Meddler(store, "(watermark)", lambda: other.add("a", b"all", **told))) as worker:
            answer = await worker.add("a", b"all", **told)
            assert (answer.status_code, answer.headers.get("Stream-Closed")) == (204, "true")
            assert answer.headers["Stream-Next-Offset"] == (await other.head("a")).headers["Stream-Next-Offset"]


async def test_no_more_streams_are_known_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_KNOWN", 8)
    async with Worker(MemoryStore()) as worker:
        for n in range(40):
            await worker.make(f"s{n}", content=b"%d" % n)
        known = worker.endpoint._streams
        assert len(known._known) <= 8
        assert len(known._numbers) <= 8
        for n in range(40):
            assert await worker.text(f"s{n}") == str(n)
