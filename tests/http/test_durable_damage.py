"""Durable Streams that can't be read any more: there is a way out of each, and none of them takes another one along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stream import CorruptEvent, NewEvent
from stream.http.durable.paths import stream_id
from stream.memory import MemoryStore
from tests.http.durable_workers import Clock, Worker

if TYPE_CHECKING:
    from stream import Event

pytestmark = pytest.mark.anyio


class Damaged:
    """A store in which one event of a stream can't be read."""

    def __init__(self, store: MemoryStore, path: str, seq: int) -> None:
        self._store = store
        self._stream = stream_id(path, 1)
        self._seq = seq

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        events = await self._store.read(stream, after=after, limit=limit)
        if stream == self._stream and any(event.seq == self._seq for event in events):
            raise CorruptEvent(stream, self._seq, "a bit is wrong")
        return events


@pytest.mark.parametrize("seq", [1, 2, 3])
async def test_a_damaged_stream_says_how_its_path_gets_free_and_it_does(seq: int) -> None:
    store = MemoryStore()
    async with Worker(store) as before:
        await before.make("a", content=b"old")
        await before.add("a", b"more")
    async with Worker(Damaged(store, "a", seq)) as worker:
        for answer in (await worker.get("a"), await worker.add("a", b"x"), await worker.make("a")):
            assert (answer.status_code, answer.json()["error"]) == (500, "damaged")
            assert "DELETE" in answer.json()["detail"]
        assert (await worker.delete("a")).status_code == 204
        assert (await worker.get("a")).status_code == (await worker.delete("a")).status_code == 404
        assert (await worker.make("a", content=b"new")).status_code == 201
        assert await worker.text("a") == "new"
    bounds = await store.bounds(stream_id("a", 1))
    assert bounds.origin == bounds.head > 0, "nothing of it is left"


async def test_what_is_no_stream_of_the_protocol_gets_out_of_the_way_too() -> None:
    store = MemoryStore()
    await store.append(stream_id("a", 1), [NewEvent("open", b"no JSON")])
    async with Worker(store) as worker:
        assert (await worker.get("a")).status_code == 500
        assert (await worker.delete("a")).status_code == 204
        assert (await worker.make("a")).status_code == 201


@pytest.mark.parametrize("seq", [1, 2, 4])
async def test_a_damaged_source_is_not_taken_from_under_its_forks(seq: int) -> None:
    """The event that told of the fork is the third."""
    store = MemoryStore()
    async with Worker(store) as before:
        await before.make("source", content=b"text")
        await before.make("fork", content=b" and more", Stream_Forked_From="source")
        await before.add("source", b"later")
        assert (await store.read(stream_id("source", 1), after=2, limit=1))[0].type == "fork"
    async with Worker(Damaged(store, "source", seq)) as worker:
        answer = await worker.delete("source")
        assert (answer.status_code, answer.json()["error"]) == (409, "damaged")
        assert not (await store.bounds(stream_id("source", 1))).origin
        assert (await worker.delete("fork")).status_code == 204
        assert (await worker.get("fork")).status_code == 404
        assert (await worker.make("fork")).status_code == 201
        assert (await worker.delete("source")).status_code == 204
        assert (await worker.get("source")).status_code == 404


@pytest.mark.parametrize("seq", [1, 2])
async def test_a_source_of_a_damaged_fork_is_deleted_as_any_other_and_goes_with_the_fork(seq: int) -> None:
    store = MemoryStore()
    async with Worker(store) as before:
        await before.make("source", content=b"secret")
        await before.make("fork", content=b"more", Stream_Forked_From="source")
    async with Worker(Damaged(store, "fork", seq)) as worker:
        assert (await worker.delete("source")).status_code == 204
        for _ in range(2):
            assert (await worker.get("source")).status_code == 410, "the fork may be restored"
        assert (await worker.delete("fork")).status_code == 204
        assert (await worker.get("source")).status_code == 404
        assert (await store.bounds(stream_id("source", 1))).origin > 0


async def test_a_source_that_was_kept_for_a_damaged_fork_keeps_no_expiry() -> None:
    clock = Clock()
    store = MemoryStore(clock_ms=clock)
    async with Worker(store, clock) as before:
        await before.make("source", content=b"text", Stream_TTL="1")
        await before.make("fork", Stream_Forked_From="source")
        await before.make("other", Stream_TTL="1")
    async with Worker(Damaged(store, "fork", 1), clock) as worker:
        await worker.endpoint.expiry.look()
        clock.pass_s(5)
        await worker.endpoint.expiry.expire()
        assert (await worker.get("source")).status_code == 410
        assert (await store.bounds(stream_id("other", 1))).origin > 0
