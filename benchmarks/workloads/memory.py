"""The memory of a replay: a process of its own reads a million events by pages, another one reads 10,000 of them.

Its peak is `VmHWM` of `/proc/self/status`, the most its memory ever was, the interpreter and its libraries included.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.logs import LONG, long_log
from benchmarks.measuring import compare, interleave, loop_factory
from stream import open_store

if TYPE_CHECKING:
    from benchmarks.measuring import Bench, Figure, Side


class Sizes(NamedTuple):
    """How many events, against how many, how often."""

    events: int
    few: int
    rounds: int


FULL: Final = Sizes(1_000_000, 10_000, 3)
SMOKE: Final = Sizes(20_000, 2_000, 1)
_STATUS: Final = Path("/proc/self/status")
_PATIENCE_S: Final = 300


class _Peaks(NamedTuple):
    """Kilobytes when the store was open, and when all was read."""

    before: int
    after: int


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """A ratio of peaks: `memory.replay`. None where the system does not tell them."""
    if not _STATUS.exists():
        return []
    path = bench.run(long_log(bench.folder, sizes.events))
    growth: dict[int, list[float]] = {sizes.few: [], sizes.events: []}

    def side(events: int) -> Side:
        async def replay() -> float:
            peaks = _run(path, events, bench.loops[0])
            growth[events].append((peaks.after - peaks.before) / 1024)
            return peaks.after

        return replay

    found = bench.run(interleave({"few": side(sizes.few), "all": side(sizes.events)}, sizes.rounds))
    beside = {"growth_mb": statistics.median(growth[sizes.events]), "growth_of_few_mb": statistics.median(growth[sizes.few])}
    what = f"replay of {sizes.events:,} events: peak memory"
    return [compare("memory.replay", what, f"a replay of {sizes.few:,}", found["all"], found["few"], beside)]


def _run(path: Path, events: int, loop: str) -> _Peaks:
    context = multiprocessing.get_context("spawn")
    result = context.SimpleQueue()
    child = context.Process(target=_replay, args=(str(path), events, loop, result))
    child.start()
    child.join(_PATIENCE_S)
    if child.exitcode != 0:
        child.kill()
        raise RuntimeError(f"the process that replays ended with {child.exitcode}")
    return _Peaks(*result.get())


def _replay(path: str, events: int, loop: str, result: Any) -> None:
    async def main() -> tuple[int, int]:
        async with open_store(path, create=False) as store:
            before, after = _peak_kb(), 0
            while after < events and (page := await store.read(LONG, after=after)):
                after = page[-1].seq
            return before, _peak_kb()

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        result.put(runner.run(main()))


def _peak_kb() -> int:
    """`ru_maxrss` would begin with the peak of the process that started this one."""
    fields = dict(line.split(":", 1) for line in _STATUS.read_text(encoding="ascii").splitlines())
    return int(fields["VmHWM"].split()[0])
