"""Cases of `adopt`: a stream of another store is taken in as a whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stream import Bounds, Event, InvalidEvent, InvalidId, NewEvent, Producer, SeqConflict
from stream.testing.case import case

if TYPE_CHECKING:
    from stream import EventStore
    from stream.testing.backend import Backend


def made(first: int, last: int, *, at: int = 7) -> list[Event]:
    return [Event("elsewhere", seq, "t", str(seq).encode() * 3, at + seq // 700) for seq in range(first, last + 1)]


@case(2)
async def a_long_stream_keeps_numbers_times_floor_and_goes_on(store: EventStore, backend: Backend) -> None:
    await store.adopt("s", made(6, 3000), floor=5, origin=2, producers=[Producer("p", 3, 9)])
    store = await backend.reopen(store)
    assert await store.bounds("s") == Bounds(5, 3000, 2)
    assert await store.producers("s") == [Producer("p", 3, 9)]
    events = await store.read("s", after=5, limit=5000)
    assert [(event.seq, event.at, event.data) for event in events] == [(e.seq, e.at, e.data) for e in made(6, 3000)]
    assert (await store.append("s", [NewEvent("t", b"")], producer=Producer("p", 3, 10))).first_seq == 3001
    assert (await store.append("s", [NewEvent("t", b"")], producer=Producer("p", 3, 9))).duplicate
    await store.append("s", [NewEvent("t", b"")], producer=Producer("a", 0, 0))
    assert await store.producers("s") == [Producer("a", 0, 0), Producer("p", 3, 10)]
    assert await store.producers("t") == []


@case(2)
async def a_stream_that_is_gone_altogether_keeps_its_numbers(store: EventStore) -> None:
    await store.adopt("s", [], floor=5, origin=5)
    assert (await store.append("s", [NewEvent("t", b"")])).first_seq == 6


@case(2)
async def a_known_stream_is_left_as_it_is(store: EventStore) -> None:
    await store.append("s", [NewEvent("t", b"mine")])
    with pytest.raises(SeqConflict):
        await store.adopt("s", made(1, 3))
    assert [event.data for event in await store.read("s")] == [b"mine"]


@case(2)
async def what_is_wrong_is_refused_and_leaves_no_trace(store: EventStore) -> None:
    with pytest.raises(InvalidEvent) as gap:
        await store.adopt("s", [*made(1, 3), *made(5, 6)])
    assert gap.value.index == 3
    with pytest.raises(InvalidEvent):
        await store.adopt("s", made(2, 3))
    with pytest.raises(InvalidEvent):
        await store.adopt("s", [Event("s", 1, "", b"", 0)])
    with pytest.raises(InvalidId):
        await store.adopt("", made(1, 1))
    with pytest.raises(ValueError, match="origin"):
        await store.adopt("s", made(6, 7), floor=5, origin=6)
    with pytest.raises(ValueError, match="nothing to adopt"):
        await store.adopt("s", [])
    assert await store.bounds("s") == Bounds(0, 0)


@case(2)
async def an_adopted_stream_wakes_its_followers_writer_and_all(store: EventStore) -> None:
    with pytest.raises(SeqConflict):
        await store.append("s", [NewEvent("t", b"")], expected_seq=4)  # the writer now knows the stream, at 0
    await store.adopt("s", made(1, 4))
    assert (await store.append("s", [NewEvent("t", b"")])).first_seq == 5
