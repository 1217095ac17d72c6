"""Cases of reading: `read`, `bounds`, `wait`, `follow`, `streams`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio
import pytest

from stream import Bounds, Diverged, Event, InvalidId, NewEvent, StoreClosed, StreamInfo, Truncated, follow
from stream.limits import MAX_PAGE_BYTES
from stream.testing.case import case
from stream.testing.faults import lost_wakeups

if TYPE_CHECKING:
    from stream import EventStore


def numbered(first: int, last: int) -> list[NewEvent]:
    return [NewEvent("n", str(seq).encode()) for seq in range(first, last + 1)]


def seqs(events: list[Event]) -> list[int]:
    assert all(event.data == str(event.seq).encode() for event in events)
    return [event.seq for event in events]


@case(14)
async def what_is_read_is_what_was_appended(store: EventStore) -> None:
    await store.append("s", [NewEvent("kind", b"\x00\xff")])
    [event] = await store.read("s")
    assert (event.stream_id, event.seq, event.type, event.data) == ("s", 1, "kind", b"\x00\xff")
    assert event.at > 1_600_000_000_000


@case(8, 13, each={"limit": [1, 10, 1000], "size": [1, 7, 100]})
async def pages_of_any_size_give_each_event_once_above_the_floor(store: EventStore, limit: int, size: int) -> None:
    """Known faults K10, K29, K49."""
    for first in range(1, 101, size):
        await store.append("s", numbered(first, min(first + size - 1, 100)))
    await store.truncate("s", through=80)
    for after in (0, 50, 79):
        with pytest.raises(Truncated) as refused:
            await store.read("s", after=after, limit=limit)
        assert (refused.value.stream_id, refused.value.after, refused.value.floor) == ("s", after, 80)
    for after in (80, 81, 99):
        found, last = [], after
        while page := seqs(await store.read("s", after=last, limit=limit)):
            assert len(page) <= limit
            found += page
            last = page[-1]
        assert found == list(range(after + 1, 101))


@case(8, 13, needs={"large"})
async def large_events_above_the_floor_are_read_page_by_page(store: EventStore) -> None:
    """Known fault K10: a page that ends early, for its size, is not the end."""
    for seq in range(1, 8):
        await store.append("s", [NewEvent("n", bytes([seq]) * (MAX_PAGE_BYTES // 3 + 1))])
    await store.truncate("s", through=2)
    with pytest.raises(Truncated):
        await store.read("s", after=1)
    found, last = [], 2
    while page := await store.read("s", after=last):
        assert len(page) <= 3
        found += [(event.seq, event.data[0]) for event in page]
        last = page[-1].seq
    assert found == [(seq, seq) for seq in range(3, 8)]


@case(13)
async def more_chunks_than_one_page_holds_are_read_through(store: EventStore) -> None:
    for seq in range(1, 601):
        await store.append("s", numbered(seq, seq))
    assert seqs(await store.read("s")) == list(range(1, 601))
    assert seqs(await store.read("s", after=3, limit=300)) == list(range(4, 304))


@case(8)
async def at_and_beyond_the_head_there_is_nothing(store: EventStore) -> None:
    await store.append("s", numbered(1, 3))
    for after in (3, 4, 99, 2**63 - 1):
        assert await store.read("s", after=after) == []
    assert await store.read("s", limit=0) == []
    assert await store.read("unknown", after=5) == []
    assert await store.bounds("unknown") == Bounds(0, 0)


@case(8, each={"bad": [-1, -(2**70), 2**63, True, 1.5, "1", None]})
async def a_position_that_is_none_is_refused(store: EventStore, bad: int) -> None:
    with pytest.raises(ValueError, match="whole number"):
        await store.read("s", after=bad)
    with pytest.raises(ValueError, match="whole number"):
        await store.read("s", limit=bad)
    with pytest.raises(ValueError, match="whole number"):
        await store.wait("s", after=bad)
    with pytest.raises(ValueError, match="whole number"):
        await store.truncate("s", through=bad)


@case(9)
async def waiting_returns_at_once_where_there_is_something(store: EventStore) -> None:
    await store.append("s", numbered(1, 1))
    with anyio.fail_after(0.5):
        await store.wait("s", after=0)


@case(9)
async def waiting_ends_with_an_append(store: EventStore) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: store.append("s", numbered(1, 1)))
        with anyio.fail_after(5):
            while not await store.read("s"):
                await store.wait("s", after=0)


@case(9)
async def a_follower_sees_each_event_once_while_a_writer_appends(store: EventStore) -> None:
    async def write() -> None:
        for first in range(1, 301, 3):
            await store.append("s", numbered(first, first + 2))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        seen: list[Event] = []
        with anyio.fail_after(20):
            async with aclosing(follow(store, "s")) as events:  # type: ignore[type-var]
                async for event in events:
                    seen.append(event)
                    if len(seen) % 7 == 0:
                        await anyio.lowlevel.checkpoint()
                    if event.seq == 300:
                        break
    assert seqs(seen) == list(range(1, 301))


@case(9)
async def a_lost_wakeup_costs_time_and_no_event(store: EventStore) -> None:
    """Known fault K25."""
    with lost_wakeups():
        first = asyncio.ensure_future(anext(follow(store, "s")))
        await anyio.lowlevel.checkpoint()
        await store.append("s", numbered(1, 1))
        with anyio.fail_after(5):
            assert (await first).seq == 1


@case(8)
async def a_follower_beyond_the_head_is_told_so(store: EventStore) -> None:
    await store.append("s", numbered(1, 3))
    with pytest.raises(Diverged) as refused:
        await anext(follow(store, "s", after=4))
    assert (refused.value.after, refused.value.head) == (4, 3)
    with pytest.raises(Diverged):
        await anext(follow(store, "unknown", after=1))


@case(8)
async def a_slow_follower_is_told_when_the_floor_overtakes_it(store: EventStore) -> None:
    """Known fault K49."""
    await store.append("s", numbered(1, 1000))
    await store.append("s", numbered(1001, 2000))
    following = follow(store, "s")
    seen = [await anext(following)]
    await store.truncate("s", through=1500)

    async def go_on() -> None:
        async for event in following:
            seen.append(event)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(Truncated) as refused:
        await go_on()
    assert seqs(seen) == list(range(1, len(seen) + 1))  # no jump
    assert (refused.value.after, refused.value.floor) == (len(seen), 1500)


@case(1)
async def closing_the_store_ends_its_followers(store: EventStore) -> None:
    following = follow(store, "s")
    waiting = asyncio.ensure_future(anext(following))
    await anyio.lowlevel.checkpoint()
    await store.close()
    with anyio.fail_after(5), pytest.raises(StoreClosed):
        await waiting


@case(2)
async def streams_are_listed_by_id_and_prefix(store: EventStore) -> None:
    names = [f"a{n:03}" for n in range(300)] + ["b", "b%", "b_c", "bß", "c", "B"]
    for name in reversed(names):
        await store.append(name, numbered(1, 1))
    await store.truncate("b", through=1)
    await store.delete("c")
    listed = [info async for info in store.streams()]
    assert [info.stream_id for info in listed] == sorted(names)
    assert await anext(store.streams(prefix="b")) == StreamInfo("b", 1, 1, 0)
    assert [info async for info in store.streams(prefix="c")] == [StreamInfo("c", 1, 1, 1)]
    for prefix, expected in {"b_": ["b_c"], "b%": ["b%"], "a29": names[290:300], "x": []}.items():
        assert [info.stream_id async for info in store.streams(prefix=prefix)] == expected


@case(2)
async def an_append_that_was_refused_makes_no_stream(store: EventStore) -> None:
    with pytest.raises(InvalidId):
        await store.append("", numbered(1, 1))
    await store.append("empty", [])
    assert [info async for info in store.streams()] == []


@case(14)
async def every_method_of_a_closed_store_says_so(store: EventStore) -> None:
    await store.append("s", numbered(1, 1))
    await store.close()
    await store.close()
    for call in (
        lambda: store.append("s", numbered(2, 2)),
        lambda: store.append("s", []),
        lambda: store.read("s"),
        lambda: store.bounds("s"),
        lambda: store.producer("s", "p"),
        lambda: store.wait("s", after=1),
        lambda: store.truncate("s", through=1),
        lambda: store.delete("s"),
        lambda: store.snapshots.load("s", "p"),
        lambda: store.snapshots.list("s"),
        lambda: store.snapshots.delete("s", "p"),
        lambda: anext(store.streams()),
    ):
        with pytest.raises(StoreClosed):
            await call()


@case(1)
async def closing_finishes_what_was_handed_over(store: EventStore) -> None:
    appends = [asyncio.ensure_future(store.append("s", numbered(n, n))) for n in range(1, 51)]
    await anyio.lowlevel.checkpoint()
    await store.close()
    with anyio.fail_after(5):
        results = await asyncio.gather(*appends, return_exceptions=True)
    assert not [result for result in results if isinstance(result, BaseException) and not isinstance(result, StoreClosed)]
