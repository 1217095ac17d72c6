"""A fault that is asked for does happen: otherwise a case that survives it would prove nothing."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import pytest

from stream import NewEvent, Snapshot, retain
from stream.memory import MemoryStore
from stream.testing import InjectedFault, backwards_clock, cancel_after, disturb, lost_wakeups

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from stream import EventStore

pytestmark = pytest.mark.anyio
EVENT = [NewEvent("t", b"x")]


async def filled() -> MemoryStore:
    """Three events and two snapshots."""
    store = MemoryStore()
    await store.append("s", EVENT * 3)
    for last_seq in (1, 2):
        await store.snapshots.save(Snapshot("s", "p", 1, last_seq, 0, b""))
    return store


CALLS: dict[str, Callable[[EventStore], Coroutine[object, object, object]]] = {
    "append": lambda store: store.append("s", EVENT),
    "adopt": lambda store: store.adopt("new", [], floor=1),
    "read": lambda store: store.read("s"),
    "bounds": lambda store: store.bounds("s"),
    "producer": lambda store: store.producer("s", "p"),
    "truncate": lambda store: store.truncate("s", through=1),
    "delete": lambda store: store.delete("s"),
    "wait": lambda store: store.wait("s", after=0),
    "save": lambda store: store.snapshots.save(Snapshot("s", "p", 1, 3, 0, b"")),
    "load": lambda store: store.snapshots.load("s", "p"),
    "list": lambda store: store.snapshots.list("s"),
    "delete of a snapshot": lambda store: store.snapshots.delete("s", "p"),
    "retain": lambda store: retain(store.snapshots, "s", "p", keep=1),
}


@pytest.mark.parametrize("name", CALLS)
async def test_every_call_can_be_made_to_fail_and_to_come_late(name: str) -> None:
    with pytest.raises(InjectedFault):
        await CALLS[name](disturb(await filled(), random.Random(0), failing=1.0))
    turns = 0
    task = asyncio.ensure_future(CALLS[name](disturb(await filled(), random.Random(1), late=0.9)))
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    await task


async def test_a_failure_comes_before_or_after_the_effect() -> None:
    stored = set()
    for seed in range(20):
        store = MemoryStore()
        with pytest.raises(InjectedFault):
            await disturb(store, random.Random(seed), failing=1.0).append("s", EVENT)
        stored.add(len(await store.read("s")))
    assert stored == {0, 1}


async def test_an_undisturbed_store_is_the_store() -> None:
    store = await filled()
    calm = disturb(store, random.Random(0))
    assert calm.incarnation == store.incarnation
    assert await calm.read("s") == await store.read("s")
    assert [info.stream_id async for info in calm.streams()] == ["s"]


async def test_a_call_is_cancelled_at_every_one_of_its_awaits() -> None:
    reached = []

    async def call(awaits: int) -> str:
        for number in range(awaits):
            reached.append(number)
            await asyncio.sleep(0)
        return "done"

    furthest = []
    for steps in range(7):
        reached.clear()
        answer = await cancel_after(steps, call(4))
        furthest.append(len(reached))
        assert answer == ("done" if steps > 4 else None)
    assert furthest == [0, 1, 2, 3, 4, 4, 4]


async def test_an_error_before_the_cancel_is_raised() -> None:
    with pytest.raises(ValueError, match="whole number"):
        await cancel_after(3, MemoryStore().read("s", after=-1))


async def test_lost_wakeups_are_lost_and_come_back() -> None:
    store = MemoryStore()

    async def waited_s() -> float:
        begun = time.monotonic()
        waiting = asyncio.ensure_future(store.wait("s", after=(await store.bounds("s")).head))
        await asyncio.sleep(0)
        await store.append("s", EVENT)
        await waiting
        return time.monotonic() - begun

    with lost_wakeups(wait_s=0.2):
        assert await waited_s() >= 0.19
    assert await waited_s() < 0.9  # it did not sit out the second it may wait


async def test_a_backwards_clock_falls_at_each_look() -> None:
    store = MemoryStore(clock_ms=backwards_clock())
    for _ in range(3):
        await store.append("s", EVENT)
    times = [event.at for event in await store.read("s")]
    assert times == sorted(set(times), reverse=True)
    assert len(times) == 3
