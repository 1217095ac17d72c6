"""What other branches and a long past cost whoever switches branches, or begins.

Two conversations in one file, in turns: both have two branches of 100 messages behind a trunk of ten, one has 100 other
messages beside them, the other 20,000, in branches that leave the trunk at every message; a run has up to 20 of them. A
switch is `Ledger.select` of the other branch's end and its last 50 messages; a view is the same 50 by `selections`, while
the first branch is active. The warm start opens the ledger anew each time, with 1,000 and 100,000 messages committed,
from a snapshot and the 100 events behind it, until `begin_run` has returned.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.logs import batches
from benchmarks.measuring import compare, interleave, timed
from benchmarks.talk import run_of, texts
from ledger import open_ledger
from projector import events as ev
from projector import open_runs
from projector.compaction import keep
from projector.events import to_event

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure, Side
    from ledger import Ledger
    from stream import NewEvent


class Sizes(NamedTuple):
    """Messages of other branches, few and many; messages behind a start, few and many; switches a round, rounds."""

    others: tuple[int, int]
    behind: tuple[int, int]
    switches: int
    rounds: int


FULL: Final = Sizes((100, 20_000), (1_000, 100_000), 20, 11)
SMOKE: Final = Sizes((100, 600), (200, 800), 3, 2)
_TRUNK: Final = 10
_BRANCH: Final = 100
_PAGE: Final = 50
_RUN: Final = 20
_SAID: Final = "".join(texts(10))
_TAIL_EVENTS: Final = 100
_APPEND_EVENTS: Final = 1000


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of times: `branches.select`, `branches.selections`, `branches.warm_start`."""
    switched, viewed = bench.run(_switch(bench.folder / "branches.db", sizes))
    started = bench.run(_start(bench.folder / "branches-behind.db", sizes))
    others, behind = sizes.others, sizes.behind
    beside_few, behind_few = f"beside {others[0]:,}", f"behind {behind[0]:,}"
    beside_many = f"beside {others[1]:,} messages of other branches: time"
    return [
        _figure("select", f"branch switch and {_PAGE} messages {beside_many}", beside_few, switched, others),
        _figure("selections", f"view by selections of {_PAGE} messages {beside_many}", beside_few, viewed, others),
        _figure("warm_start", f"warm start behind {behind[1]:,} messages: time", behind_few, started, behind),
    ]


def _figure(name: str, what: str, per: str, times: dict[str, list[float]], sizes: tuple[int, int]) -> Figure:
    few, many = (times[str(size)] for size in sizes)
    beside = {"few_ms": 1000 * statistics.median(few), "many_ms": 1000 * statistics.median(many)}
    return compare(f"branches.{name}", what, per, many, few, beside)


async def _switch(path: Path, sizes: Sizes) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Median seconds of a switch, and of a view, by conversation and round."""
    async with open_ledger(str(path)) as ledger:
        trees = {str(others): await _grow(ledger, str(others), others) for others in sizes.others}

        async def switch(conversation: str) -> float:
            targets = itertools.cycle(reversed(trees[conversation].ends))

            async def once() -> None:
                target = next(targets)
                await ledger.select(conversation, target)
                page = await ledger.transcript(conversation, limit=_PAGE)
                assert (len(page), page[-1].id) == (_PAGE, target)

            return statistics.median([await timed(once()) for _ in range(sizes.switches)])

        async def view(conversation: str) -> float:
            tree = trees[conversation]

            async def once() -> None:
                page = await ledger.transcript(conversation, selections={tree.fork: tree.second}, limit=_PAGE)
                assert (len(page), page[-1].id) == (_PAGE, tree.ends[1])

            return statistics.median([await timed(once()) for _ in range(sizes.switches)])

        switches = await _in_turns({name: functools.partial(switch, name) for name in trees}, sizes.rounds)
        for name, tree in trees.items():
            await ledger.select(name, tree.ends[0])
        return switches, await _in_turns({name: functools.partial(view, name) for name in trees}, sizes.rounds)


async def _start(path: Path, sizes: Sizes) -> dict[str, list[float]]:
    """Seconds until a run has begun, by conversation and round."""
    names = {str(behind): behind for behind in sizes.behind}
    async with open_ledger(str(path)) as ledger:
        for conversation, behind in names.items():
            await _record(ledger, conversation, _branch(conversation, behind, None))
            caught = await ledger.catch_up(conversation)
            await keep(open_runs, ledger.store.snapshots, conversation, caught.state, caught.state.last_seq)
            await ledger.record(conversation, run_of(1, _TAIL_EVENTS, caught.leaf))

    async def start(conversation: str) -> float:
        began = time.perf_counter()
        ledger = await open_ledger(str(path), create=False)
        run = await ledger.begin_run(conversation)
        took = time.perf_counter() - began
        await run.finish("cancelled")
        await ledger.close()
        return took

    return await _in_turns({name: functools.partial(start, name) for name in names}, sizes.rounds)


async def _in_turns(sides: dict[str, Side], rounds: int) -> dict[str, list[float]]:
    await interleave(sides, 1)  # warms up
    return await interleave(sides, rounds)


class _Tree(NamedTuple):
    """The trunk's end, the first message of the second branch behind it, and the ends of both branches."""

    fork: str
    second: str
    ends: tuple[str, str]


async def _grow(ledger: Ledger, conversation: str, others: int) -> _Tree:
    """A trunk, other branches that leave it at every message but the last, and two branches behind that."""
    trunk = _branch("trunk", _TRUNK, None)
    await _record(ledger, conversation, trunk)
    leaves = [message_id for run in trunk for message_id in run.messages][:-1]
    for number in range(count := 2 * len(leaves)):
        length = others // count + (number < others % count)
        await _record(ledger, conversation, _branch(f"other-{number}", length, leaves[number % len(leaves)]))
    fork = trunk[-1].messages[-1]
    first, second = (_branch(name, _BRANCH, fork) for name in ("first", "second"))
    await _record(ledger, conversation, [*first, *second])
    await ledger.catch_up(conversation)
    tree = await ledger.tree(conversation)
    assert len(tree.nodes) == _TRUNK + others + 2 * _BRANCH
    return _Tree(fork, second[0].messages[0], (first[-1].messages[-1], second[-1].messages[-1]))


class _Recorded(NamedTuple):
    events: list[NewEvent]
    messages: list[str]


def _branch(name: str, messages: int, parent: str | None) -> list[_Recorded]:
    """Runs one behind the other."""
    runs = []
    for start in range(0, messages, _RUN):
        run = _run(f"{name}-{start:06}", min(_RUN, messages - start), parent)
        parent = run.messages[-1]
        runs.append(run)
    return runs


def _run(run_id: str, messages: int, parent: str | None) -> _Recorded:
    """A question and what an agent says to it, step by step."""
    ids = [f"{run_id}.{number}" for number in range(1, messages + 1)]
    bodies: list[ev.Body] = [ev.RunStarted(run_id, parent, "submit", run_id)]
    for number, message_id in enumerate(ids):
        bodies += [
            ev.MessageStarted(run_id, message_id, "assistant" if number else "user"),
            ev.BlockStarted(message_id, 0, "text"),
            ev.BlockDelta(message_id, 0, _SAID),
            ev.BlockSealed(message_id, 0),
            ev.MessageFinished(message_id, "complete"),
        ]
    bodies.append(ev.RunFinished(run_id, "completed"))
    return _Recorded([to_event(body) for body in bodies], ids)


async def _record(ledger: Ledger, conversation: str, runs: Iterable[_Recorded]) -> None:
    for batch in batches([event for run in runs for event in run.events], _APPEND_EVENTS):
        await ledger.record(conversation, batch)
