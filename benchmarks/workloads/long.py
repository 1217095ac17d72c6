"""A conversation of a thousand turns with tools, through the ledger's runs: its bytes on disk, and the time of a turn.

`benchmarks.workloads.turns` says what a turn is. Every delta stays an event of its own (`flush_ms=0`). A turn is timed
from `begin_run` until `finish` has returned, unpaced: the last 100 take turns with turns 11 to 110 of a second
conversation in a file of its own. Bytes are those of the file and its write-ahead log after `vacuum`, first with every
event kept and then after `Ledger.compact`. Text is what was said in UTF-8, with the arguments and results of the tools.

The other libraries are told the same, step by step (asked, call, result, answer), in the forms they are made for:
`SQLiteSession.add_items` of `openai-agents`, and a checkpoint of all messages a step with `AsyncSqliteSaver.aput` of
`langgraph-checkpoint-sqlite`. The latter grows with the square of the turns, so it has only 200 of them.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks import peers
from benchmarks.measuring import compare, percentile, summarize
from benchmarks.workloads.turns import play, turn
from benchmarks.workloads.turns_of_peers import FILLERS
from ledger import open_ledger
from stream.sqlite import SqliteStore
from stream.sqlite.vacuum import vacuum

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure
    from ledger import Ledger


class Sizes(NamedTuple):
    """How many turns, how many of them are timed early and late, how many langgraph has, how often all of it."""

    turns: int
    timed: int
    langgraph_turns: int
    rounds: int


FULL: Final = Sizes(1_000, 100, 200, 3)
SMOKE: Final = Sizes(24, 6, 5, 1)
_BEFORE_EARLY: Final = 10
_CONVERSATION: Final = "long"


class _Round(NamedTuple):
    """Seconds of early and of late turns; bytes with every event, and compacted."""

    early: list[float]
    late: list[float]
    kept: int
    compacted: int


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of bytes to text: `long.kept`, `long.compacted`, `long.PEER`; of times of a turn: `long.p50`, `long.p95`."""
    rounds = []
    for number in range(sizes.rounds):
        place = bench.folder / f"long-{number}"
        place.mkdir()
        rounds.append(bench.run(_round(place, sizes)))
        _remove(place)
    name = f"{sizes.turns:,} turns with tools"
    figures = [
        _of_text("compacted", f"{name}: file, compacted", [one.compacted for one in rounds], sizes.turns),
        _of_text("kept", f"{name}: file, every event kept", [one.kept for one in rounds], sizes.turns),
    ]
    turns_of = {"openai-agents": sizes.turns, "langgraph-checkpoint-sqlite": sizes.langgraph_turns}
    for peer, turns in turns_of.items():
        if peers.versions()[peer]:
            place = bench.folder / f"long-{peer}"
            place.mkdir()
            bench.run(FILLERS[peer](place / "peer.db", turns))
            figures.append(_of_text(peer, f"{peer}, {turns:,} turns: file", [_bytes_in(place)], turns))
            _remove(place)
    return figures + [_times(f"{name}: p{percent} of a turn at the end", percent, rounds) for percent in (50, 95)]


def _of_text(name: str, what: str, found: list[int], turns: int) -> Figure:
    text = sum(turn(number).text_bytes for number in range(turns))
    beside = {"mb": statistics.median(found) / 1e6, "text_mb": text / 1e6, "turns": turns}
    return summarize(f"long.{name}", what, "its text", [size / text for size in found], beside)


def _times(what: str, percent: int, rounds: list[_Round]) -> Figure:
    early = [percentile(one.early, percent) for one in rounds]
    late = [percentile(one.late, percent) for one in rounds]
    beside = {"early_ms": 1000 * statistics.median(early), "late_ms": 1000 * statistics.median(late)}
    return compare(f"long.p{percent}", what, f"behind {_BEFORE_EARLY} turns", late, early, beside)


async def _round(place: Path, sizes: Sizes) -> _Round:
    early, late = [], []
    async with open_ledger(str(place / "long.db")) as ledger, open_ledger(str(place / "short.db")) as short:
        for number in range(sizes.turns - sizes.timed):
            await _take_turn(ledger, number)
        for number in range(_BEFORE_EARLY):
            await _take_turn(short, number)
        for number in range(sizes.timed):
            early.append(await _take_turn(short, _BEFORE_EARLY + number))
            late.append(await _take_turn(ledger, sizes.turns - sizes.timed + number))
        store: Any = ledger.store
        assert isinstance(store, SqliteStore)
        kept = (await vacuum(store)).after_bytes
        compaction = await ledger.compact(_CONVERSATION)
        assert compaction.floor == compaction.head
        return _Round(early, late, kept, (await vacuum(store)).after_bytes)


async def _take_turn(ledger: Ledger, number: int) -> float:
    """Seconds of one run, from its beginning until it is committed."""
    spoken = turn(number)
    began = time.perf_counter()
    run = await ledger.begin_run(_CONVERSATION, format="anthropic", flush_ms=0)
    await play(run, number, spoken)
    await run.finish()
    return time.perf_counter() - began


def _bytes_in(place: Path) -> int:
    return sum(path.stat().st_size for path in place.iterdir())


def _remove(place: Path) -> None:
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
