"""Four processes append to one file: together against one alone, and the slowest against the fastest.

Each process appends single events to streams of its own, with one appender or with 50, closed loop, for a fixed time
that begins at a barrier.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.measuring import compare, interleave, loop_factory, summarize
from benchmarks.talk import deltas
from stream import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure
    from stream import EventStore


class Sizes(NamedTuple):
    """How many processes, appenders in each, seconds and rounds."""

    processes: int
    appenders: tuple[int, ...]
    seconds: float
    rounds: int


FULL: Final = Sizes(4, (1, 50), 2.0, 3)
SMOKE: Final = Sizes(2, (1, 50), 0.2, 1)
_WARM_UP_S: Final = 0.1
_PATIENCE_S: Final = 60


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """`processes.aAPPENDERS.throughput` of one process alone, and `.fairness`."""
    figures = []
    for appenders in sizes.appenders:
        path = bench.folder / f"processes-{appenders}.db"
        bench.run(_create(path))
        fairness: list[float] = []

        async def alone(path: Path = path, appenders: int = appenders) -> float:
            return sum(_run(path, 1, appenders, sizes.seconds, bench.loops[0]))

        async def together(path: Path = path, appenders: int = appenders, fairness: list[float] = fairness) -> float:
            rates = _run(path, sizes.processes, appenders, sizes.seconds, bench.loops[0])
            fairness.append(min(rates) / max(rates))
            return sum(rates)

        found = bench.run(interleave({"alone": alone, "together": together}, sizes.rounds))
        what, name = f"{sizes.processes} processes x {appenders} appenders", f"processes.a{appenders}"
        beside = {"events_per_s": statistics.median(found["together"]), "alone_per_s": statistics.median(found["alone"])}
        figures += [
            compare(f"{name}.throughput", f"{what}: together", "one alone", found["together"], found["alone"], beside),
            summarize(f"{name}.fairness", f"{what}: slowest", "the fastest", fairness),
        ]
    return figures


async def _create(path: Path) -> None:
    await (await open_store(str(path))).close()


def _run(path: Path, processes: int, appenders: int, seconds: float, loop: str) -> list[float]:
    """Events a second of each process."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.SimpleQueue()
    children = [
        context.Process(target=_child, args=(str(path), f"process-{number}", appenders, seconds, loop, barrier, results))
        for number in range(processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(_PATIENCE_S)
        if child.exitcode != 0:
            for other in children:
                other.kill()
            raise RuntimeError(f"a process that appends ended with {child.exitcode}")
    return [results.get() for _ in children]


def _child(path: str, name: str, appenders: int, seconds: float, loop: str, barrier: Any, results: Any) -> None:
    async def main() -> float:
        async with open_store(path, create=False) as store:
            await _append_for(store, name, appenders, _WARM_UP_S)
            await asyncio.to_thread(barrier.wait, _PATIENCE_S)
            return await _append_for(store, name, appenders, seconds)

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        results.put(runner.run(main()))


async def _append_for(store: EventStore, name: str, appenders: int, seconds: float) -> float:
    events = deltas(100)
    count = 0
    began = time.perf_counter()

    async def append(number: int) -> None:
        nonlocal count
        while time.perf_counter() < began + seconds:
            await store.append(f"{name}-{number}", [events[count % len(events)]])
            count += 1

    await asyncio.gather(*(append(number) for number in range(appenders)))
    return count / (time.perf_counter() - began)
