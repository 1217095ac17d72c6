"""Agents at work: conversations that stream 50 text deltas a second each, paced, through the ledger's runs.

`open_ledger`, `ledger.runs.run`, `run.text`, default flush (100 ms or 1 kB), deltas as long as recorded ones. A delta's
latency is the time from its `text` call until the append that holds it was acknowledged as durable. CPU is that of the
whole process, pacing included. Bytes are `write_bytes` of `/proc/self/io`: pages handed to the disk, those of the WAL
and those of its checkpoints, from the first run's beginning until the file is closed. Raw stores the very appends that
carried text, each as one row and one commit, without pacing, and closes its file too.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from benchmarks.measuring import compare, percentile, summarize
from benchmarks.raw import RawLog
from benchmarks.talk import texts
from ledger import open_ledger
from projector.events import BlockDelta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.measuring import Bench, Figure
    from ledger import Ledger
    from stream import AppendResult, NewEvent

_DELTAS_PER_S: Final = 50
_FLUSH_S: Final = 0.1
_RAW: Final = "raw, a commit a flush"
_IO: Final = Path("/proc/self/io")
_DELTA: Final = msgspec.json.Decoder(BlockDelta)


class Sizes(NamedTuple):
    """How many conversations, for how long, how often."""

    conversations: int
    seconds: float
    rounds: int


FULL: Final = Sizes(100, 20.0, 3)
SMOKE: Final = Sizes(10, 2.0, 1)


class _Cost(NamedTuple):
    cpu_s: float
    wall_s: float
    written: int


class _Answer(NamedTuple):
    conversation: str
    at: float
    events: Sequence[NewEvent]


class _Round(NamedTuple):
    ours: _Cost
    raw: _Cost
    latencies: list[float]
    late: list[float]
    text_bytes: int


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Shares and ratios: `agent.cpu`, `agent.cpu.raw`, `agent.bytes`, `agent.bytes.raw`, `agent.p50`, `agent.p99`."""
    rounds = []
    for number in range(sizes.rounds):
        place = bench.folder / f"agent-{number}"
        place.mkdir()
        rounds.append(bench.run(_round(place, sizes)))
    ours, raw = [one.ours for one in rounds], [one.raw for one in rounds]
    pacing = bench.run(_pace(sizes))
    name = f"{sizes.conversations} agents, {_DELTAS_PER_S} deltas/s"
    figures = [_latency(f"{name}: p{percent} said to durable", percent, rounds) for percent in (50, 99)]
    shares = [cost.cpu_s / cost.wall_s for cost in ours]
    figures += [
        summarize("agent.cpu", f"{name}: CPU", "one core", shares, {"pacing_alone": pacing.cpu_s / pacing.wall_s}),
        compare("agent.cpu.raw", f"{name}: CPU", _RAW, [cost.cpu_s for cost in ours], [cost.cpu_s for cost in raw]),
    ]
    if _IO.exists():
        written = [cost.written for cost in ours]
        what = f"{name}: bytes written"
        beside = {"text_kb": rounds[0].text_bytes / 1024}
        figures += [
            compare("agent.bytes", what, "its text", written, [one.text_bytes for one in rounds], beside),
            compare("agent.bytes.raw", what, _RAW, written, [cost.written for cost in raw]),
        ]
    return figures


def _latency(what: str, percent: int, rounds: list[_Round]) -> Figure:
    found = [percentile(one.latencies, percent) for one in rounds]
    beside = {"ms": 1000 * statistics.median(found), "fed_late_ms": 1000 * percentile(rounds[0].late, percent)}
    per = f"the flush interval, {_FLUSH_S * 1000:.0f} ms"
    return summarize(f"agent.p{percent}", what, per, [seconds / _FLUSH_S for seconds in found], beside)


async def _round(place: Path, sizes: Sizes) -> _Round:
    said = _script(sizes)
    fed: dict[str, list[float]] = {conversation: [] for conversation in said}
    late: list[float] = []
    ledger = await open_ledger(str(place / "tailfold.db"))
    answers = _note_answers(ledger)
    before = _spent()

    async def talk(conversation: str, begin: float) -> None:
        async with ledger.run(conversation) as run:
            await _say(run.text, said[conversation], max(begin, time.perf_counter()), fed[conversation], late)

    await _together(talk, list(said))
    await ledger.close()
    ours = _since(before)
    latencies = []
    for conversation, pieces in said.items():
        latencies += _latencies(pieces, fed[conversation], answers[conversation])
    raw = _store_raw(place / "raw.db", answers)
    return _Round(ours, raw, latencies, late, sum(len(piece) for pieces in said.values() for piece in pieces))


async def _pace(sizes: Sizes) -> _Cost:
    """What the pacing alone costs: the same for nobody, for a quarter of the time."""
    said = _script(sizes._replace(seconds=sizes.seconds / 4))

    async def nobody(piece: str) -> None:
        pass

    async def talk(conversation: str, begin: float) -> None:
        await _say(nobody, said[conversation], begin, [], [])

    before = _spent()
    await _together(talk, list(said))
    return _since(before)


def _script(sizes: Sizes) -> dict[str, list[str]]:
    count = int(sizes.seconds * _DELTAS_PER_S)
    return {f"conversation-{number}": texts(count, seed=number) for number in range(sizes.conversations)}


async def _together(talk: Callable[[str, float], Awaitable[None]], conversations: list[str]) -> None:
    """All at once, their beginnings spread over the time between two deltas."""
    first = time.perf_counter() + 0.1
    gap_s = 1 / _DELTAS_PER_S / len(conversations)
    await asyncio.gather(*(talk(conversation, first + number * gap_s) for number, conversation in enumerate(conversations)))


async def _say(
    take: Callable[[str], Awaitable[None]], pieces: list[str], begin: float, fed: list[float], late: list[float]
) -> None:
    for number, piece in enumerate(pieces):
        due = begin + number / _DELTAS_PER_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        now = time.perf_counter()
        late.append(now - due)
        fed.append(now)
        await take(piece)


def _note_answers(ledger: Ledger) -> dict[str, list[_Answer]]:
    """Notes when each append was acknowledged; nothing public tells it of a run that is not flushed by hand."""
    answers: dict[str, list[_Answer]] = {}
    append = ledger.store.append

    async def noted(stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        result = await append(stream_id, events, **options)
        answers.setdefault(stream_id, []).append(_Answer(stream_id, time.perf_counter(), events))
        return result

    ledger.store.append = noted  # type: ignore[method-assign]
    return answers


def _latencies(said: list[str], fed: list[float], answers: list[_Answer]) -> list[float]:
    """A delta is durable when all text up to its end is. Raises `ValueError` if some text never was."""
    found = []
    durable = iter(
        (answer.at, length)
        for answer, length in zip(answers, itertools.accumulate(_text_length(one.events) for one in answers), strict=True)
    )
    at, length = next(durable)
    for end, began in zip(itertools.accumulate(map(len, said)), fed, strict=True):
        while length < end:
            at, length = next(durable, (at, -1))
            if length < 0:
                raise ValueError("some text was never acknowledged")
        found.append(at - began)
    return found


def _text_length(events: Sequence[NewEvent]) -> int:
    return sum(len(_DELTA.decode(event.data).text) for event in events if event.type == BlockDelta.TYPE)


def _store_raw(path: Path, answers: dict[str, list[_Answer]]) -> _Cost:
    raw = RawLog(path)
    flushes = sorted((answer for found in answers.values() for answer in found), key=lambda answer: answer.at)
    pieces = [event for flush in flushes for event in flush.events if event.type == BlockDelta.TYPE]
    transactions = raw.prepare(pieces, len(pieces), streams=len(answers), rows=1)
    before = _spent()
    raw.store(transactions)
    raw.close()
    return _since(before)


def _spent() -> _Cost:
    return _Cost(time.process_time(), time.perf_counter(), _written())


def _since(before: _Cost) -> _Cost:
    now = _spent()
    return _Cost(now.cpu_s - before.cpu_s, now.wall_s - before.wall_s, now.written - before.written)


def _written() -> int:
    if not _IO.exists():
        return 0
    fields = dict(line.split(": ") for line in _IO.read_text(encoding="ascii").splitlines())
    return int(fields["write_bytes"])
