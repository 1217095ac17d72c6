"""Cases of stores that are open at once over one place, each with what it last knew."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio
import pytest

from stream import AppendResult, Bounds, NewEvent, Producer, ProducerFenced, SeqConflict, Snapshot, follow
from stream.testing.case import case

if TYPE_CHECKING:
    from stream import EventStore
    from stream.testing.backend import Backend


@case(1, 2, needs={"share"})
async def stores_that_take_turns_lose_nothing(backend: Backend) -> None:
    """Known faults K14, K16, K19."""
    one, two = await backend.open(), await backend.open()
    assert one.incarnation == two.incarnation
    for n in range(10):  # the head that each remembers is always out of date
        assert (await one.append("s", [NewEvent("t", b"one")])).first_seq == 2 * n + 1
        assert (await two.append("s", [NewEvent("t", b"two")])).first_seq == 2 * n + 2
        assert len(await one.read("s")) == 2 * n + 2


@case(1, 2, needs={"share"})
async def stores_that_append_at_once_lose_nothing(backend: Backend) -> None:
    """Known faults K16, K36."""
    stores = [await backend.open() for _ in range(3)]

    async def write(store: EventStore, name: str) -> list[int]:
        first = []
        for n in range(40):
            expected = (await store.bounds("s")).head if n % 4 == 0 else None
            try:
                result = await store.append("s", [NewEvent(name, b"%d" % n)] * 2, expected_seq=expected)
            except SeqConflict as conflict:
                assert conflict.head > (expected or 0)
            else:
                first.append(result.first_seq)
        return first

    answers = await asyncio.gather(*(write(store, f"w{number}") for number, store in enumerate(stores)))
    events = await stores[0].read("s")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len(events) == 2 * sum(map(len, answers))
    for number, firsts in enumerate(answers):
        assert {events[first - 1].type for first in firsts} <= {f"w{number}"}
        assert firsts == sorted(firsts)


@case(3, needs={"share"})
async def of_two_stores_with_one_expectation_one_wins(backend: Backend) -> None:
    """Known fault K65."""
    stores = [await backend.open() for _ in range(2)]
    tries = [store.append("s", [NewEvent("t", b"x")], expected_seq=0) for store in stores]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert [result for result in results if not isinstance(result, BaseException)] == [AppendResult(1, 1)]
    assert [result.head for result in results if isinstance(result, SeqConflict)] == [1]


@case(3, 11, needs={"share"})
async def a_writer_that_was_replaced_is_fenced(backend: Backend) -> None:
    """Known fault K19."""
    old, new = await backend.open(), await backend.open()
    await old.append("s", [NewEvent("t", b"a")], producer=Producer("run", 0, 0))
    await new.append("s", [NewEvent("t", b"b")], producer=Producer("run", 1, 0))
    with pytest.raises(ProducerFenced):
        await old.append("s", [NewEvent("t", b"c")], producer=Producer("run", 0, 1))
    assert [event.data for event in await old.read("s")] == [b"a", b"b"]


@case(9, needs={"share"})
async def a_follower_sees_what_another_store_appends(backend: Backend) -> None:
    writer, reader = await backend.open(), await backend.open()

    async def write() -> None:
        for n in range(30):
            await writer.append("s", [NewEvent("n", b"%d" % n)])

    seen: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        with anyio.fail_after(20):
            async with aclosing(follow(reader, "s")) as events:  # type: ignore[type-var]
                async for event in events:
                    seen.append(event.seq)
                    if event.seq == 30:
                        break
    assert seen == list(range(1, 31))


@case(2, 6, needs={"share"})
async def what_one_store_lets_go_is_gone_for_the_other(backend: Backend) -> None:
    one, two = await backend.open(), await backend.open()
    await one.append("s", [NewEvent("t", b"x")] * 5)
    assert await two.append("s", [NewEvent("t", b"x")]) == AppendResult(6, 6)
    await one.snapshots.save(Snapshot("s", "p", 1, 6, 0, b"state"))
    await one.truncate("s", through=4)
    assert await two.bounds("s") == Bounds(4, 6)
    await two.delete("s")
    assert await one.snapshots.list("s") == []
    assert await one.append("s", [NewEvent("t", b"y")]) == AppendResult(7, 7)
    assert await two.bounds("s") == Bounds(6, 7, 6)
