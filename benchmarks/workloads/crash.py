"""From a crash to the next run: how long whoever comes back needs, with a large file and with a small one, in turns.

A process of its own opens the file, begins twenty runs in twenty conversations and streams text into them, 50 deltas a
second each, until it is killed (SIGKILL) in the middle of that. A fresh process then opens the ledger, recovers one of
those runs with `commit` and begins the next one behind it; the clock runs from before `open_ledger` until `begin_run`
has returned, without the start of the interpreter. Its write-ahead log is what the dead one left; the file itself lies
in the system's cache. The large file has conversations of 32 turns with tool results of 150 kB, all of it in log and
ledger; the small one has conversations of two short turns. The writers are the same. Beside: how long the same process
then takes to list the open runs of all conversations.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import multiprocessing
import signal
import statistics
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from benchmarks.measuring import compare, interleave, loop_factory
from benchmarks.talk import texts
from benchmarks.workloads.turns import RESULT_BYTES, recorded, turn
from ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure, Side
    from ledger import Ledger, Run


class Past(NamedTuple):
    """What is in a file before the crash."""

    conversations: int
    turns: int
    result_bytes: int


class Sizes(NamedTuple):
    """The large file and the small one, for how long the writer streams before it is killed, how often."""

    large: Past
    small: Past
    streams_s: float
    rounds: int


FULL: Final = Sizes(Past(100, 32, 150_000), Past(20, 2, RESULT_BYTES), 1.0, 7)
SMOKE: Final = Sizes(Past(20, 4, 120_000), Past(20, 2, RESULT_BYTES), 0.1, 1)
_OPEN_RUNS: Final = 20
_DELTAS_PER_S: Final = 50
_DIFFERENT_TURNS: Final = 16
_PATIENCE_S: Final = 120


class _Back(NamedTuple):
    """Seconds until the next run had begun, and those to list open runs afterwards."""

    ready_s: float
    list_s: float


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """A ratio of times: `crash.ready`."""
    sides: dict[str, Side] = {}
    listed: dict[str, list[float]] = {}
    paths = {name: bench.folder / f"crash-{name}.db" for name in ("small", "large")}
    for (name, path), past in zip(paths.items(), (sizes.small, sizes.large), strict=True):
        bench.run(_fill(path, past))
        listed[name] = []
        sides[name] = functools.partial(_crash, path, bench.loops[0], sizes.streams_s, listed[name], itertools.count())
    megabytes = {name: path.stat().st_size / 1e6 for name, path in paths.items()}
    found = bench.run(interleave(sides, sizes.rounds))
    for path in paths.values():
        path.unlink()
    beside = {f"{name}_ms": 1000 * statistics.median(times) for name, times in found.items()}
    beside |= {f"{name}_list_ms": 1000 * statistics.median(times) for name, times in listed.items()}
    what = f"killed with {_OPEN_RUNS} open runs in {megabytes['large']:,.0f} MB: time to the next run"
    return [compare("crash.ready", what, f"in {megabytes['small']:,.1f} MB", found["large"], found["small"], beside)]


async def _fill(path: Path, past: Past) -> None:
    """Conversations as their runs would have left them, taken into the ledger."""
    spoken = [turn(number, result_bytes=past.result_bytes) for number in range(_DIFFERENT_TURNS)]
    async with open_ledger(str(path)) as ledger:
        for conversation in range(past.conversations):
            parent = None
            for number in range(past.turns):
                run_id = f"run-{conversation:05}-{number:05}"
                events, parent = recorded(run_id, number, spoken[number % len(spoken)], parent)
                await ledger.record(_name(conversation), events)
            await ledger.catch_up(_name(conversation))


async def _crash(path: Path, loop: str, streams_s: float, listed: list[float], rounds: Iterator[int]) -> float:
    """Seconds from nothing to the next run, after one that was killed."""
    context = multiprocessing.get_context("spawn")
    number = next(rounds)
    begun, tell_begun = context.Pipe(duplex=False)
    writer = context.Process(target=_write, args=(str(path), loop, number, tell_begun))
    writer.start()
    tell_begun.close()  # so that the end of the process is heard of, too
    try:
        if await asyncio.to_thread(begun.poll, _PATIENCE_S):
            await asyncio.sleep(streams_s)
    finally:
        writer.kill()
        writer.join()
    if writer.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"the process that was to be killed while it writes ended with {writer.exitcode}")
    result = context.SimpleQueue()
    reader = context.Process(target=_come_back, args=(str(path), loop, number, result))
    reader.start()
    await asyncio.to_thread(reader.join, _PATIENCE_S)
    if reader.exitcode != 0:
        reader.kill()
        raise RuntimeError(f"the process that recovers ended with {reader.exitcode}")
    back = _Back(*result.get())
    listed.append(back.list_s)
    return back.ready_s


def _write(path: str, loop: str, number: int, tell_begun: Connection) -> None:
    async def main() -> None:
        ledger = await open_ledger(path, create=False)
        runs = [await _begin(ledger, number, conversation) for conversation in range(_OPEN_RUNS)]
        for run in runs:
            await run.text("Going")
            await run.flush()  # on a busy machine nothing else may come before the kill
        tell_begun.send(None)
        await asyncio.gather(*(_stream(run) for run in runs))

    _say_warnings_only()
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(main())


async def _begin(ledger: Ledger, number: int, conversation: int) -> Run:
    run = await ledger.begin_run(_name(conversation), run_id=_run_id(number, conversation))
    await run.message("user", "Go on.")
    await run.flush()
    return run


async def _stream(run: Run) -> None:
    for piece in itertools.cycle(texts(1000)):
        await run.text(piece)
        await asyncio.sleep(1 / _DELTAS_PER_S)


def _come_back(path: str, loop: str, number: int, result: Any) -> None:
    async def main() -> _Back:
        began = time.perf_counter()
        ledger = await open_ledger(path, create=False)
        await ledger.recover(_name(0), _run_id(number, 0), "commit")
        run = await ledger.begin_run(_name(0))
        ready_s = time.perf_counter() - began
        await run.finish("cancelled")
        [last] = await ledger.transcript(_name(0), limit=1)
        assert (last.run_id, last.status) == (_run_id(number, 0), "partial")
        began = time.perf_counter()
        still_open = [run async for run in ledger.runs(status="open")]
        list_s = time.perf_counter() - began
        assert len(still_open) == _OPEN_RUNS - 1
        for other in still_open:
            await ledger.recover(other.conversation, other.run_id, "cancel")
        await ledger.close()
        return _Back(ready_s, list_s)

    _say_warnings_only()
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        result.put(runner.run(main()))


def _say_warnings_only() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def _name(conversation: int) -> str:
    return f"conversation-{conversation:05}"


def _run_id(number: int, conversation: int) -> str:
    return f"killed-{number}-{conversation}"
