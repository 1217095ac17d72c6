"""A reader that stalls while very much is written costs neither disk nor memory, and then gets all of it (law 13)."""

from __future__ import annotations

import asyncio
import resource
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from stream import NewEvent, follow, open_store
from tests.faults.children import Child, Parent
from tests.faults.sizes import size

pytestmark = pytest.mark.anyio
EVENTS = size(smoke=20_000, full=100_000)
MAX_LOG_BYTES = 16 * 1024 * 1024
MAX_GROWTH_BYTES = 48 * 1024 * 1024
DATA = b"x" * 500


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def write(path: str, events: int) -> int:
    """Twenty events an append; the largest the write-ahead log became."""
    largest = 0
    async with open_store(path) as store:

        async def one(writer: int) -> None:
            nonlocal largest
            for _ in range(events // 20 // 10):
                await store.append("s", [NewEvent(str(writer), DATA)] * 20)
                largest = max(largest, Path(f"{path}-wal").stat().st_size)

        await asyncio.gather(*(one(writer) for writer in range(10)))
    return largest


async def stall(parent: Parent, path: str, events: int) -> dict[str, Any]:
    """Takes one event and stalls until told to go on; then takes all the others."""
    async with open_store(path) as store, aclosing(follow(store, "s")) as following:  # type: ignore[type-var]
        await store.append("s", [NewEvent("first", DATA)])
        last = (await anext(following)).seq
        before = peak_bytes()
        parent.say("stalled")
        await parent.hear()
        stalled = peak_bytes()
        async for event in following:
            assert event.seq == last + 1
            last = event.seq
            if last == events + 1:
                break
        return {"while stalled": stalled - before, "after": peak_bytes() - before, "last": last}


async def test_a_reader_that_stalls_bounds_neither_log_nor_memory(tmp_path: Path) -> None:
    """Known faults K24, K28, K39."""
    path = str(tmp_path / "log.db")
    child = Child(stall, path, EVENTS)
    try:
        child.say("go")
        assert child.hear() == "stalled"
        largest = await write(path, EVENTS)
        child.say("go on")
        grown = child.result()
    finally:
        child.end()
    print(f"{EVENTS} events, {EVENTS * len(DATA)} bytes: log at most {largest} bytes, the reader grew by {grown}")
    assert grown["last"] == EVENTS + 1
    assert largest < MAX_LOG_BYTES
    assert grown["while stalled"] < MAX_GROWTH_BYTES
    assert grown["after"] < MAX_GROWTH_BYTES


async def test_a_follower_in_the_writers_own_process_that_stalls_bounds_the_log(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    async with open_store(path) as store:
        await store.append("s", [NewEvent("first", DATA)])
        async with aclosing(follow(store, "s")) as following:  # type: ignore[type-var]
            seen = [(await anext(following)).seq]
            assert await write(path, EVENTS // 4) < MAX_LOG_BYTES
            async for event in following:
                seen.append(event.seq)
                if event.seq == EVENTS // 4 + 1:
                    break
    assert seen == list(range(1, EVENTS // 4 + 2))
