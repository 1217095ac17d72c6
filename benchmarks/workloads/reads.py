"""What reading a long conversation costs: its transcript and what the model is sent of it, behind a new turn.

A conversation as that of `context`, in a file that is warm. Before each round a turn is added: what is timed is the read
that comes next. `cold` is the transcript of a ledger that was just opened, and has read nothing of the conversation yet,
`pages` the same where the conversation is compacted, so that its messages lie in pages. All of it is compared with one
JSON encoding of the messages (`msgspec.json.encode` of the list), in CPU seconds of the process, SQLite's threads among
them: there is nothing to wait for.
"""

from __future__ import annotations

import functools
import gc
import shutil
import statistics
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from benchmarks.measuring import compare, interleave
from benchmarks.workloads import sessions
from benchmarks.workloads.context import TIMED
from ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure, Side
    from ledger import Ledger
    from projector import Message
    from projector.context.pipeline import Pipeline


class Sizes(NamedTuple):
    """Messages of the conversation, and rounds."""

    messages: int
    rounds: int


FULL: Final = Sizes(10_000, 11)
SMOKE: Final = Sizes(80, 2)
_CONVERSATION: Final = "reads"
_STAGES: Final = ("nothing", "near-duplicates", "all")
_ENCODE: Final = ".encode"  # is timed right before each side


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of CPU times: `reads.transcript.{cold,pages,turn}`, `reads.context.STAGE`."""
    return bench.run(_measure(bench.folder, sizes))


async def _measure(folder: Path, sizes: Sizes) -> list[Figure]:
    first = folder / "reads.db"
    async with open_ledger(str(first)) as ledger:
        await ledger.take_in(_CONVERSATION, sessions.make(sizes.messages // sessions.TURN))
    sides: dict[str, Side] = {}
    async with AsyncExitStack() as stack:

        async def open_copy(name: str) -> Ledger:
            copy = folder / f"reads-{name}.db"
            shutil.copyfile(first, copy)
            return await stack.enter_async_context(open_ledger(str(copy), create=False))

        ledger = await open_copy("transcript")
        encode = functools.partial(_encode, await ledger.transcript(_CONVERSATION))
        sides |= {f"transcript.cold{_ENCODE}": encode, "transcript.cold": functools.partial(_cold, first)}
        paged = await open_copy("pages")
        await paged.compact(_CONVERSATION)
        sides |= {
            f"transcript.pages{_ENCODE}": encode,
            "transcript.pages": functools.partial(_cold, folder / "reads-pages.db"),
        }
        sides |= {f"transcript.turn{_ENCODE}": encode, "transcript.turn": functools.partial(_transcript, ledger)}
        for stage in _STAGES:
            ledger = await open_copy(stage)
            await ledger.context(_CONVERSATION, pipeline=TIMED[stage])  # what it has to record
            sides |= {
                f"context.{stage}{_ENCODE}": encode,
                f"context.{stage}": functools.partial(_context, ledger, TIMED[stage]),
            }
        await interleave(sides, 1)  # warms up
        gc.collect()
        gc.freeze()  # no program holds that many conversations: the collector is not to walk through them
        times = await interleave(sides, sizes.rounds)
        gc.unfreeze()
    return [_figure(side, sizes.messages, times) for side in sides if not side.endswith(_ENCODE)]


def _figure(side: str, messages: int, times: dict[str, list[float]]) -> Figure:
    way, _, how = side.partition(".")
    told = {"cold": "cold", "pages": "cold, in pages", "turn": "behind a new turn"}.get(how, f"behind a new turn: {how}")
    ours, encoding = times[side], times[side + _ENCODE]
    beside = {"ms": 1000 * statistics.median(ours), "encode_ms": 1000 * statistics.median(encoding)}
    return compare(f"reads.{side}", f"{messages:,} messages, {way} {told}", "one JSON encoding, CPU", ours, encoding, beside)


async def _encode(messages: Sequence[Message]) -> float:
    async def once() -> None:
        msgspec.json.encode(messages)

    return await _cpu(once)


async def _cold(path: Path) -> float:
    async with open_ledger(str(path), create=False) as ledger:
        await ledger.catch_up(_CONVERSATION)
        return await _cpu(lambda: ledger.transcript(_CONVERSATION))


async def _transcript(ledger: Ledger) -> float:
    await _say(ledger)
    return await _cpu(lambda: ledger.transcript(_CONVERSATION))


async def _context(ledger: Ledger, pipeline: Pipeline) -> float:
    await _say(ledger)
    return await _cpu(lambda: ledger.context(_CONVERSATION, pipeline=pipeline))


async def _say(ledger: Ledger) -> None:
    """A turn."""
    async with ledger.run(_CONVERSATION) as run:
        await run.message("user", "and what came of it?")
        await run.text("nothing that was not said before")


async def _cpu(work: Callable[[], Awaitable[object]]) -> float:
    """How many CPU seconds it takes."""
    began = time.process_time()
    await work()
    return time.process_time() - began
