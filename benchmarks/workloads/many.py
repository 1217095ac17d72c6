"""What a file of many conversations costs whoever lists a few of them.

Files of 1,000, 10,000 and 50,000 conversations of one turn, 20 of them with an open run, each open in a ledger that has
listed it once. In turns, each behind a new message in one conversation: the 20 conversations that were active last, the
home of a run, and all open runs. Times are CPU of the process, SQLite's threads included. Beside them is what the first
listing after opening takes, which compares all heads once.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.measuring import compare, interleave
from ledger import open_ledger
from projector import events as ev
from projector.events import to_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure, Side
    from ledger import Ledger


class Sizes(NamedTuple):
    """Conversations of each file, calls a round, rounds."""

    conversations: tuple[int, ...]
    calls: int
    rounds: int


FULL: Final = Sizes((1_000, 10_000, 50_000), 20, 11)
SMOKE: Final = Sizes((30, 90), 2, 2)
_OPEN: Final = 20
_WHAT: Final = {"conversations": "20 conversations listed", "find_run": "a run found", "runs": "open runs listed"}


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of CPU times to those of the smallest file: `many.conversations`, `many.find_run`, `many.runs`."""
    times, first = bench.run(_run(bench.folder, sizes))
    few, *others = sizes.conversations
    figures = []
    for name, many in itertools.product(_WHAT, others):
        ours, theirs = times[f"{name} {many}"], times[f"{name} {few}"]
        beside = {
            "few_ms": 1000 * statistics.median(theirs),
            "many_ms": 1000 * statistics.median(ours),
            "first_few_ms": 1000 * first[few],
            "first_many_ms": 1000 * first[many],
        }
        what = f"{_WHAT[name]} in a file of {many:,} conversations: CPU"
        figure = f"many.{name}" if many == others[-1] else f"many.{name}.{many}"
        figures.append(compare(figure, what, f"in one of {few:,}", ours, theirs, beside))
    return figures


async def _run(folder: Path, sizes: Sizes) -> tuple[dict[str, list[float]], dict[int, float]]:
    """Median CPU seconds of a call by what is asked, file and round; and those of the first listing by file."""
    first: dict[int, float] = {}
    sides: dict[str, Side] = {}
    async with contextlib.AsyncExitStack() as stack:
        for count in sizes.conversations:
            path = str(folder / f"many-{count}.db")
            async with open_ledger(path) as ledger:
                await _fill(ledger, count)
            ledger = await stack.enter_async_context(open_ledger(path))
            began = time.process_time()
            await _list(ledger)
            first[count] = time.process_time() - began
            for name, ask in _ASKED.items():
                sides[f"{name} {count}"] = functools.partial(_time, ledger, ask, sizes.calls)
        await interleave(sides, 1)  # warms up
        return await interleave(sides, sizes.rounds), first


async def _time(ledger: Ledger, ask: Callable[[Ledger], Awaitable[None]], calls: int) -> float:
    took = []
    for _ in range(calls):
        async with ledger.run("0") as run:
            await run.text("one more")
        began = time.process_time()
        await ask(ledger)
        took.append(time.process_time() - began)
    return statistics.median(took)


async def _list(ledger: Ledger) -> None:
    found = [info.conversation async for info in ledger.conversations(limit=20)]
    assert len(found) == 20


async def _find(ledger: Ledger) -> None:
    assert await ledger.find_run("25-run") == "25"


async def _list_open(ledger: Ledger) -> None:
    assert len([run async for run in ledger.runs(status="open")]) == _OPEN


_ASKED: Final = {"conversations": _list, "find_run": _find, "runs": _list_open}


async def _fill(ledger: Ledger, count: int) -> None:
    for number in range(count):
        run_id = f"{number}-run"
        bodies: list[ev.Body] = [
            ev.RunStarted(run_id, None, "submit", run_id),
            ev.MessageStarted(run_id, f"{run_id}.1", "user"),
            ev.BlockStarted(f"{run_id}.1", 0, "text"),
            ev.BlockDelta(f"{run_id}.1", 0, f"what of {number}?"),
            ev.BlockSealed(f"{run_id}.1", 0),
            ev.MessageFinished(f"{run_id}.1", "complete"),
        ]
        if not 0 < number <= _OPEN:
            bodies.append(ev.RunFinished(run_id, "completed"))
        await ledger.store.append(str(number), [to_event(body) for body in bodies])
    await ledger.catch_up_all()
