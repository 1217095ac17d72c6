"""Two or more sides take turns; a figure is the median of their ratios, round by round, with its spread."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")
Side = Callable[[], Awaitable[float]]
"""One round of one side; returns a rate, a time, or whatever is compared."""
SizedSide = Callable[[int], Awaitable[float]]
"""One round of about so many units; returns units a second."""
LOOPS = ("uvloop", "asyncio")


class Figure(msgspec.Struct, frozen=True):
    """A ratio: the median of its rounds, and the lowest and highest of them.

    `per` names what it is a ratio of. `beside` are absolute numbers of the same run: information, no claim.
    """

    id: str
    what: str
    per: str
    value: float
    low: float
    high: float
    rounds: int
    beside: dict[str, float] = {}


class Bench(NamedTuple):
    """What every workload is given. `data` is a folder of recorded sessions, if there is one."""

    folder: Path
    loops: tuple[str, ...]
    data: Path | None = None

    def run(self, main: Coroutine[object, object, T], *, loop: str | None = None) -> T:
        """Runs a coroutine in a fresh event loop, of the first kind if none is named."""
        with asyncio.Runner(loop_factory=loop_factory(loop or self.loops[0])) as runner:
            return runner.run(main)


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes event loops of this kind."""
    return uvloop.new_event_loop if name == "uvloop" else asyncio.new_event_loop


async def sized(side: SizedSide, *, seconds: float, warm_up: int) -> Side:
    """Warms a side up with so many units, and fixes the size of its rounds so that one takes about `seconds`."""
    amount = max(1, int(await side(warm_up) * seconds))

    async def one_round() -> float:
        return await side(amount)

    return one_round


async def interleave(sides: Mapping[str, Side], rounds: int) -> dict[str, list[float]]:
    """Every side once, then every side once more, and so on; what each returned, by side."""
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            measured[name].append(await side())
    return measured


def compare(
    figure: str, what: str, per: str, ours: Sequence[float], theirs: Sequence[float], beside: dict[str, float] | None = None
) -> Figure:
    """Ours over theirs, round by round."""
    return summarize(figure, what, per, [mine / other for mine, other in zip(ours, theirs, strict=True)], beside)


def summarize(figure: str, what: str, per: str, ratios: Sequence[float], beside: dict[str, float] | None = None) -> Figure:
    """The figure of ratios that were taken round by round."""
    return Figure(figure, what, per, statistics.median(ratios), min(ratios), max(ratios), len(ratios), beside or {})


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of a hundred values do not exceed. Raises `ValueError` for none."""
    if not values:
        raise ValueError("there is no percentile of nothing")
    ordered = sorted(values)
    rank = -int(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(rank, 1) - 1]


async def timed(work: Awaitable[object]) -> float:
    """How many seconds it takes."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began
