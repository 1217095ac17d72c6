"""Durable Streams that are forks: no place that is told skips anything, whatever was dropped, deleted and created again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stream import NewEvent
from stream.http.durable import truncate
from stream.http.durable.paths import stream_id
from tests.http.durable_workers import Worker

if TYPE_CHECKING:
    from stream import EventStore

pytestmark = pytest.mark.anyio


async def add(worker: Worker, path: str, count: int) -> list[str]:
    """The places behind messages that are added one by one."""
    return [(await worker.add(path, b"%d" % n)).headers["Stream-Next-Offset"] for n in range(count)]


async def test_a_fork_whose_beginning_was_dropped_is_told_to_begin_at_its_own_first_message(
    store: EventStore, worker: Worker
) -> None:
    await worker.make("source")
    places = await add(worker, "source", 10)
    await worker.make("fork", Stream_Forked_From="source", Stream_Fork_Offset=places[2])
    await worker.make("later", Stream_Forked_From="source", Stream_Fork_Offset=places[8])
    for path in ("fork", "later"):
        for word in (b"a", b"b", b"c", b"d", b"e", b"f"):
            await worker.add(path, word)
    await truncate(store, "source", before=places[6])
    for path, left in (("fork", "abcdef"), ("later", "78abcdef")):
        for place in ("-1", places[0]):
            answer = await worker.get(path, params={"offset": place})
            assert answer.status_code == 410
            assert await worker.text(path, answer.json()["offset"]) == left


async def test_a_place_in_an_earlier_life_is_refused_though_the_source_had_lived_before_too(worker: Worker) -> None:
    for _ in range(3):
        await worker.make("source", content=b"x")
        await worker.delete("source")
    await worker.make("source", content=b"x")
    await worker.make("fork", Stream_Forked_From="source")
    old = (await add(worker, "fork", 3))[-1]
    told = [old]
    for _ in range(5):
        await worker.delete("fork")
        await worker.make("fork")
        places = await add(worker, "fork", 9)
        for place in told:
            answer = await worker.get("fork", params={"offset": place})
            assert (answer.status_code, answer.json()["error"]) == (410, "gone"), place
        assert places == sorted(places)
        told.append(places[3])
    assert len({place.partition("_")[0] for place in told}) == len(told)


async def test_a_fork_goes_on_behind_its_source_whatever_number_of_lives_both_had(worker: Worker) -> None:
    for path, lives in (("a", 4), ("b", 2), ("c", 7)):
        for _ in range(lives):
            await worker.make(path)
            await worker.delete(path)
    await worker.make("a", content=b"a")
    await worker.make("b", content=b"b", Stream_Forked_From="a")
    await worker.make("c", content=b"c", Stream_Forked_From="b")
    await worker.make("d", content=b"d", Stream_Forked_From="c")
    places = [(await worker.head(path)).headers["Stream-Next-Offset"] for path in "abcd"]
    assert places == sorted(set(places))
    for n, place in enumerate(places):
        assert await worker.text("d", place) == "abcd"[n + 1 :]
    assert await worker.text("d") == "abcd"


async def test_a_source_that_was_kept_for_a_fork_goes_though_its_deletion_broke_off_and_nobody_asks(
    store: EventStore, worker: Worker
) -> None:
    await worker.make("source", content=b"secret")
    await worker.make("fork", Stream_Forked_From="source")
    await worker.delete("source")
    for path, kind, data in (("fork", "delete", b""), ("source", "unfork", stream_id("fork", 1).encode())):
        await store.append(stream_id(path, 1), [NewEvent(kind, data)])
    await store.delete(stream_id("fork", 1))  # and then it was killed
    async with Worker(store) as restarted:
        await restarted.endpoint.expiry.look()
    bounds = await store.bounds(stream_id("source", 1))
    assert bounds.origin == bounds.head > 0
