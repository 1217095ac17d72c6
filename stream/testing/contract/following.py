"""Cases of followers: each seq once, in order, whatever happens between catching up and going live."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio
import pytest

from stream import Diverged, NewEvent, Truncated, follow
from stream.testing.case import case
from stream.testing.faults import disturb, lost_wakeups

if TYPE_CHECKING:
    from stream import EventStore


async def seen_by_follower(store: EventStore, last: int, *, pause_every: int = 0) -> list[int]:
    """The seqs that a follower sees until `last`."""
    seen: list[int] = []
    with anyio.fail_after(20):
        async with aclosing(follow(store, "s")) as events:  # type: ignore[type-var]
            async for event in events:
                seen.append(event.seq)
                if pause_every and len(seen) % pause_every == 0:
                    await asyncio.sleep(0)
                if event.seq >= last:
                    break
    return seen


async def seen_or_told(store: EventStore, last: int) -> dict[int, bytes]:
    """What a follower sees until `last` that goes on at the floor each time it is told that it was overtaken."""
    seen: dict[int, bytes] = {}
    after = 0
    while after < last:
        try:
            async with aclosing(follow(store, "s", after=after)) as events:  # type: ignore[type-var]
                async for event in events:
                    assert event.seq == after + 1
                    after, seen[event.seq] = event.seq, event.data
                    if after == last:
                        break
        except Truncated as told:
            assert told.after == after < told.floor
            after = told.floor
    return seen


@case(9, each={"late": [0.0, 0.5, 0.9], "losing": [False, True]})
async def a_follower_beside_a_writer_misses_and_repeats_nothing(store: EventStore, *, late: float, losing: bool) -> None:
    """Known faults K22, K23, K48: every call of the follower and the writer is held up at random."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    disturbed = disturb(store, random.Random(seed), late=late)

    async def write() -> None:
        for _ in range(60):
            await disturbed.append("s", [NewEvent("n", b"")] * 3)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        if losing:
            with lost_wakeups(wait_s=0.01):
                seen = await seen_by_follower(disturbed, 180, pause_every=7)
        else:
            seen = await seen_by_follower(disturbed, 180, pause_every=7)
    assert seen == list(range(1, 181))


@case(9)
async def several_followers_see_the_same(store: EventStore) -> None:
    """Known fault K50: a late one sees what came before it, and what comes."""
    results: dict[int, list[int]] = {}

    async def watch(number: int) -> None:
        for _ in range(number * 3):
            await asyncio.sleep(0)
        results[number] = await seen_by_follower(store, 100)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(watch, number)
        for _ in range(50):
            await store.append("s", [NewEvent("n", b"")] * 2)
    assert list(results.values()) == [list(range(1, 101))] * 5


@case(9, 13)
async def a_follower_that_stalls_goes_on_where_it_was(store: EventStore) -> None:
    """Known fault K24."""
    await store.append("s", [NewEvent("n", b"")])
    async with aclosing(follow(store, "s")) as events:  # type: ignore[type-var]
        seen = [(await anext(events)).seq]
        for _ in range(40):
            await store.append("s", [NewEvent("n", b"")] * 50)
        async for event in events:
            seen.append(event.seq)
            if event.seq == 2001:
                break
    assert seen == list(range(1, 2002))


@case(8)
async def a_position_of_another_life_of_the_store_is_told(store: EventStore) -> None:
    await store.append("s", [NewEvent("n", b"")] * 3)
    assert (await anext(follow(store, "s", after=1, incarnation=store.incarnation))).seq == 2
    with pytest.raises(Diverged):
        await anext(follow(store, "s", after=1, incarnation="another"))


@case(8, 9, each={"seed": list(range(8))})
async def followers_skip_only_what_they_are_told_is_gone(store: EventStore, seed: int) -> None:
    """Known faults K23, K49: beside writers, truncations and deletions, every call held up at random."""
    chance = random.Random(seed)
    late = disturb(store, chance, late=0.5)
    stored: dict[int, bytes] = {}

    async def write(name: str) -> None:
        for n in range(20):
            texts = [b"%s %d" % (name.encode(), 2 * n + part) for part in range(2)]
            answer = await late.append("s", [NewEvent("n", text) for text in texts])
            stored.update(zip(range(answer.first_seq, answer.last_seq + 1), texts, strict=True))

    async def let_go() -> None:
        for _ in range(8):
            bounds = await late.bounds("s")
            if chance.random() < 0.3:
                await late.delete("s")
            else:
                await late.truncate("s", through=chance.randint(bounds.floor, bounds.head))

    watching = [seen_or_told(late, 80) for _ in range(3)]
    with anyio.fail_after(20):
        *views, _, _, _ = await asyncio.gather(*watching, write("a"), write("b"), let_go())
    assert sorted(stored) == list(range(1, 81))
    for seen in views:
        assert seen is not None
        assert seen.items() <= stored.items()


@case(9)
async def who_listens_is_told_of_each_way_a_stream_can_change(store: EventStore) -> None:
    """Also while he is looking; and who listens to another stream is left alone."""
    with store.listen("s") as signal, store.listen("other") as other:
        await asyncio.sleep(0.1)  # a store may begin with a look of its own
        for change in (
            lambda: store.append("s", [NewEvent("n", b"")] * 3),
            lambda: store.truncate("s", through=1),
            lambda: store.delete("s"),
        ):
            signal.clear()
            other.clear()
            await change()
            with anyio.fail_after(5):
                await signal.wait()
            assert not other.is_set()
