"""What a long history costs those who only need its end: the last 100 events, and the next run's beginning.

The same work on a stream of a million events and on one of 1,000, in one file and in turns; both end in 1,000 appends
of one event. The warm start opens the ledger anew each time, from a snapshot and the 100 events behind it, until
`begin_run` has returned.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.logs import LONG, RUN_EVENTS, SHORT, long_log
from benchmarks.measuring import compare, interleave, timed
from benchmarks.talk import run_of
from ledger import open_ledger
from projector import open_runs
from projector.compaction import keep
from stream import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure


class Sizes(NamedTuple):
    """How many events, reads a round, rounds."""

    events: int
    reads: int
    rounds: int


FULL: Final = Sizes(1_000_000, 100, 11)
SMOKE: Final = Sizes(20_000, 20, 3)
_TAIL: Final = 100


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of times: `tail.read`, `tail.warm_start`."""
    path = bench.run(long_log(bench.folder, sizes.events))
    per = f"behind {RUN_EVENTS:,}"
    figures = []
    for name, what, times in (
        ("read", f"tail of {_TAIL} behind {sizes.events:,} events", bench.run(_read_tails(path, sizes))),
        ("warm_start", f"warm start behind {sizes.events:,} events", bench.run(_start(path, sizes))),
    ):
        beside = {f"{stream}_ms": 1000 * statistics.median(found) for stream, found in times.items()}
        figures.append(compare(f"tail.{name}", f"{what}: time", per, times[LONG], times[SHORT], beside))
    return figures


async def _read_tails(path: Path, sizes: Sizes) -> dict[str, list[float]]:
    """Median seconds of a read, by stream and round."""
    async with open_store(str(path), create=False) as store:

        async def read(stream: str) -> float:
            after = (await store.bounds(stream)).head - _TAIL
            return statistics.median([await timed(store.read(stream, after=after)) for _ in range(sizes.reads)])

        sides = {stream: functools.partial(read, stream) for stream in (SHORT, LONG)}
        await interleave(sides, 1)
        return await interleave(sides, sizes.rounds)


async def _start(path: Path, sizes: Sizes) -> dict[str, list[float]]:
    """Seconds until a run has begun, by stream and round."""
    async with open_ledger(str(path)) as ledger:
        for stream in (SHORT, LONG):
            caught = await ledger.catch_up(stream)
            await keep(open_runs, ledger.store.snapshots, stream, caught.state, caught.state.last_seq)
            number = 10_000_000 + caught.state.last_seq
            await ledger.record(stream, run_of(number, _TAIL, caught.leaf))

    async def start(stream: str) -> float:
        began = time.perf_counter()
        ledger = await open_ledger(str(path), create=False)
        run = await ledger.begin_run(stream)
        took = time.perf_counter() - began
        await run.finish("cancelled")
        await ledger.close()
        return took

    sides = {stream: functools.partial(start, stream) for stream in (SHORT, LONG)}
    await interleave(sides, 1)
    return await interleave(sides, sizes.rounds)
