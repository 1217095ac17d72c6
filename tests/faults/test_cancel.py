"""Cancel at every await: each call whole or absent, no transaction left open, nothing leaked (laws 1 and 3)."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from stream import Event, NewEvent, Producer, SeqConflict, Snapshot, open_store
from stream.testing import cancel_after
from tests.faults.sizes import size

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from stream import EventStore

pytestmark = pytest.mark.anyio
SEEDS = size(smoke=40, full=1000)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return "asyncio", {"use_uvloop": request.param}


def batch(name: str) -> list[NewEvent]:
    return [NewEvent(str(part), name.encode()) for part in range(3)]


class History:
    """What a run of cancelled calls may have done, and what it must have done."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.acknowledged: set[str] = set()
        self.seen: set[str] = set()
        self.tried: list[str] = []
        self.producer_seq = 0
        self.floor = self.adopted = 0

    def calls(self, chance: random.Random) -> list[Callable[[], Coroutine[object, object, object]]]:
        store, head = self.store, chance.randrange(4)
        self.adopted += 1
        other = [Event("x", seq, "t", b"", 0) for seq in range(1, 4)]
        return [
            partial(self._append, f"plain {len(self.tried)}"),
            partial(self._append, f"produced {self.producer_seq}", producer=Producer("p", 0, self.producer_seq)),
            partial(store.truncate, "s", through=self.floor + head),
            partial(store.snapshots.save, Snapshot("s", "p", 1, self.floor + head + 1, 0, b"state")),
            partial(store.snapshots.delete, "s", "p"),
            partial(store.adopt, f"adopted {self.adopted}", other),
            partial(store.delete, "deleted"),
            partial(store.append, "deleted", batch("x")),
            partial(store.read, "s", after=self.floor),
            partial(store.wait, "s", after=10**9),
        ]

    async def _append(self, name: str, *, producer: Producer | None = None) -> None:
        self.tried.append(name)
        await self.store.append("s", batch(name), producer=producer)
        self.acknowledged.add(name)

    async def check(self) -> None:
        """Asked behind whatever was begun."""
        await self.store.append("behind", batch("x"))
        bounds = await self.store.bounds("s")
        self.floor = bounds.floor
        events = await self.store.read("s", after=bounds.floor)
        assert [event.seq for event in events] == list(range(bounds.floor + 1, bounds.head + 1))
        whole = events[-(len(events) // 3) * 3 :] if len(events) >= 3 else []
        assert [event.type for event in whole] == ["0", "1", "2"] * (len(whole) // 3)
        names = [event.data.decode() for event in whole[::3]]
        assert [event.data.decode() for event in whole] == [name for name in names for _ in range(3)]
        assert len(set(names)) == len(names)
        self.seen |= set(names)
        assert self.acknowledged <= self.seen
        watermark = await self.store.producer("s", "p")
        self.producer_seq = 0 if watermark is None else watermark.seq + 1
        async for info in self.store.streams(prefix="adopted"):
            assert (info.floor, info.head) == (0, 3)
            assert len(await self.store.read(info.stream_id)) == 3


async def test_calls_cancelled_anywhere_are_whole_or_absent(tmp_path: Path, chance: random.Random) -> None:
    """Known faults K37, K52."""
    first = chance.randrange(2**32)
    async with open_store(str(tmp_path / "log.db"), durability="normal") as store:
        history = History(store)
        for seed in range(first, first + SEEDS):
            print(f"seed {seed}")
            own = random.Random(seed)
            call = own.choice(history.calls(own))
            with suppress(SeqConflict, ValueError):  # a snapshot or a floor beyond the head
                await cancel_after(own.choice([own.randrange(25), own.randrange(25), 2000]), call())
            await history.check()
        await history._append("not cancelled")
        await history.check()
        assert "not cancelled" in history.seen


async def test_a_cancelled_opening_leaks_nothing(tmp_path: Path) -> None:
    """Known fault K38."""
    async with open_store(str(tmp_path / "log.db")) as store:
        await store.append("s", batch("x"))
    gc.collect()
    threads, descriptors = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    async def open_it() -> None:
        async with open_store(str(tmp_path / "log.db")):
            pass

    for steps in range(100):
        await cancel_after(steps % 50, open_it())
    with anyio.fail_after(10):  # a thread that was told to end may take a moment
        while threading.active_count() > threads or len(list(Path("/proc/self/fd").iterdir())) > descriptors:
            gc.collect()
            await asyncio.sleep(0.01)
    async with open_store(str(tmp_path / "log.db")) as store:
        assert [event.data for event in await store.read("s")] == [b"x"] * 3
