"""What appends feel while a million events are swept: one appender, idle, and then beside the sweep.

The swept stream was appended 20 events at a time. The appender waits for each append before the next, so every one of
them may meet a slice. Both parts are of the same round; the file and its freed pages are used again by the next.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.logs import append_all, batches
from benchmarks.measuring import compare, percentile, timed
from benchmarks.talk import deltas
from stream import open_store
from stream.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure
    from stream import EventStore


class Sizes(NamedTuple):
    """How many events are swept, for how long it is idle before, how often."""

    events: int
    idle_s: float
    rounds: int


FULL: Final = Sizes(1_000_000, 1.5, 3)
SMOKE: Final = Sizes(20_000, 0.2, 2)
_K: Final = 20


class _Round(NamedTuple):
    idle: list[float]
    swept: list[float]
    sweep_s: float


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of latencies: `sweep.p50`, `sweep.p99`."""
    rounds = bench.run(_measure(bench.folder / "sweep.db", sizes))
    figures = []
    for percent in (50, 99):
        idle = [percentile(one.idle, percent) for one in rounds]
        swept = [percentile(one.swept, percent) for one in rounds]
        beside = {
            "idle_ms": 1000 * statistics.median(idle),
            "swept_ms": 1000 * statistics.median(swept),
            "appends": min(len(one.swept) for one in rounds),
            "sweep_s": statistics.median(one.sweep_s for one in rounds),
        }
        what = f"append p{percent} while {sizes.events:,} events are swept"
        figures.append(compare(f"sweep.p{percent}", what, "idle", swept, idle, beside))
    return figures


async def _measure(path: Path, sizes: Sizes) -> list[_Round]:
    rounds = []
    async with open_store(str(path)) as store:
        assert isinstance(store, SqliteStore)
        for number in range(sizes.rounds):
            stream = f"swept-{number}"
            events = deltas(_K * 500)
            for _ in range(sizes.events // len(events)):
                await append_all(store, stream, batches(events, _K))
            idle = await _append_beside(store, asyncio.create_task(asyncio.sleep(sizes.idle_s)))
            began = time.perf_counter()
            await store.truncate(stream, through=(await store.bounds(stream)).head)
            swept = await _append_beside(store, asyncio.create_task(store.settle()))
            rounds.append(_Round(idle, swept, time.perf_counter() - began))
    return rounds


async def _append_beside(store: EventStore, task: asyncio.Task[None]) -> list[float]:
    """Appends one by one until the task is done; seconds of each."""
    latencies: list[float] = []
    event = deltas(1)
    while not latencies or not task.done():
        latencies.append(await timed(store.append("live", event)))
    await task
    return latencies
