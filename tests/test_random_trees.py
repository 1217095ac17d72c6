"""Random conversations through real ledgers: the tree is what a plain model says of their log (DESIGN §4, *The tree*).

The same log gives the same answers however it is taken in: as it grows, after reopening, by another ledger in one go
or in any slices. Hypothesis prints the steps that fail, and how to take them again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import tempfile
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import Ledger, RunOpen, open_ledger
from ledger.tables.bodies import move_bodies
from ledger.tables.tables import LedgerTables
from ledger.upkeep.repair import rebuild_tree
from ledger.upkeep.verify import verify
from stream import Bounds
from stream.sqlite import MEMORY, open_database
from tests.faults.sizes import size
from tests.random_talks import Talk, conversations, hand_made_logs
from tests.talk import finished, new, said, started
from tests.tree_model import Questions, TreeModel, ask, told_by

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from stream import Event, EventStore, NewEvent
    from tests.random_talks import Step

SEEDS: Final = st.integers(0, 2**16)


class Ledgers(NamedTuple):
    """Ledgers over one log: the one that conversations grow in, and two that take them in later."""

    growing: Ledger
    in_one_go: Ledger
    in_slices: Ledger


class Shared(NamedTuple):
    """What the examples of a test share, each with a conversation of its own: opening ledgers is most of their time."""

    runner: asyncio.Runner
    ledgers: Ledgers
    names: Iterator[str]


class UpTo:
    """A log of which only the beginning is seen."""

    def __init__(self, store: EventStore, head: int) -> None:
        self._store = store
        self.head = head

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        return [event for event in await self._store.read(stream_id, after=after, limit=limit) if event.seq <= self.head]

    async def bounds(self, stream_id: str) -> Bounds:
        bounds = await self._store.bounds(stream_id)
        return Bounds(bounds.floor, self.head, bounds.origin)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Hand-made logs make many warnings."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def shared(quiet: None) -> Iterator[Shared]:
    del quiet
    with asyncio.Runner() as runner:
        opened = in_memory()
        ledgers = runner.run(opened.__aenter__())
        yield Shared(runner, ledgers, (f"c{number}" for number in itertools.count()))
        runner.run(opened.__aexit__(None, None, None))


@asynccontextmanager
async def in_memory() -> AsyncIterator[Ledgers]:
    async with open_ledger("memory:") as growing:
        databases = [await open_database(MEMORY, create=True) for _ in range(2)]
        others = [Ledger(growing.store, await LedgerTables.attach(database)) for database in databases]
        try:
            yield Ledgers(growing, *others)
        finally:
            for database in databases:
                await database.close()


@asynccontextmanager
async def in_files(folder: Path) -> AsyncIterator[Ledgers]:
    log = str(folder / "log.db")
    async with (
        open_ledger(log, durability="normal") as growing,
        open_ledger(str(folder / "one_go.db"), log=log, durability="normal") as in_one_go,
        open_ledger(str(folder / "slices.db"), log=log, durability="normal") as in_slices,
    ):
        yield Ledgers(growing, in_one_go, in_slices)


async def grow(ledger: Ledger, conversation: str, steps: list[Step], chance: random.Random) -> tuple[Questions, dict[str, Any]]:
    """Takes the steps; gives questions about what came of them, and the answers."""
    await ledger.record(conversation, [new("raw", provider="p", event={})])
    talk = Talk(ledger, conversation)
    for step in steps:
        await step.take(talk)
    for run in talk.writers.values():
        await run.close()
    return await talk.compare(chance)


async def agree(
    ledgers: Ledgers, conversation: str, questions: Questions, answers: dict[str, Any], chance: random.Random
) -> None:
    """However the log is taken in, the answers are these, also when the tree is worked out anew, and without the log.

    Nothing is found wrong but lost parents, and a next run continues the leaf.
    """
    ledger = ledgers.growing
    assert await told_by(ledgers.in_one_go, conversation, questions) == answers
    await rebuild_tree(ledgers.in_one_go.tables, conversation)
    assert await told_by(ledgers.in_one_go, conversation, questions) == answers
    assert {finding.kind async for finding in verify(ledger, conversation) if not finding.is_note} <= {"orphan"}
    await take_in_slices(ledgers.in_slices, conversation, chance)
    model = TreeModel(await ledger.store.read(conversation))
    await ledger.compact(conversation)
    assert await told_by(ledger, conversation, questions) == answers
    if model.barring:
        with pytest.raises(RunOpen):
            await ledger.begin_run(conversation)
    else:
        async with ledger.run(conversation, run_id="next") as run:
            message_id = await run.message("user", "next")
        message = (await ledger.transcript(conversation, branch="all", limit=1))[0]
        assert (message.id, message.parent_id) == (message_id, model.leaf)


async def take_in_slices(ledger: Ledger, conversation: str, chance: random.Random) -> None:
    """The ledger sees the log grow, now and then as a process that remembers nothing; each time it tells what there is."""
    events = await ledger.store.read(conversation)
    cuts = sorted({*(chance.randint(1, len(events)) for _ in range(2)), len(events)})
    log = UpTo(ledger.store, 0)
    reader = Ledger(cast("EventStore", log), ledger.tables)
    for cut in cuts:
        log.head = cut
        if chance.random() < 0.5:
            reader = Ledger(cast("EventStore", log), ledger.tables)
        model = TreeModel(events[:cut])
        questions = ask(model, chance)
        assert await told_by(reader, conversation, questions) == model.told(questions)
        if chance.random() < 0.5:  # what comes then changes what lies in pages
            await ledger.tables.transact(partial(move_bodies, conversation=conversation))
            reader = Ledger(cast("EventStore", log), ledger.tables)
            assert await told_by(reader, conversation, questions) == model.told(questions)


@settings(max_examples=size(smoke=25, full=60), deadline=None, print_blob=True)
@given(steps=conversations, seed=SEEDS)
@pytest.mark.heavy
def test_a_tree_in_memory_is_what_its_log_says_however_it_is_taken_in(shared: Shared, steps: list[Step], seed: int) -> None:
    async def live(conversation: str, chance: random.Random) -> None:
        questions, answers = await grow(shared.ledgers.growing, conversation, steps, chance)
        await agree(shared.ledgers, conversation, questions, answers, chance)

    shared.runner.run(live(next(shared.names), random.Random(seed)))


@pytest.mark.heavy
@settings(max_examples=size(smoke=8, full=15), deadline=None, print_blob=True)
@given(steps=conversations, seed=SEEDS)
def test_a_tree_in_files_is_the_same_when_they_are_opened_again(steps: list[Step], seed: int) -> None:
    async def live(folder: Path, chance: random.Random) -> None:
        async with open_ledger(str(folder / "log.db"), durability="normal") as ledger:
            questions, answers = await grow(ledger, "c", steps, chance)
        async with in_files(folder) as ledgers:
            assert await told_by(ledgers.growing, "c", questions) == answers
            await agree(ledgers, "c", questions, answers, chance)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder), random.Random(seed)))


@pytest.mark.heavy
@settings(max_examples=size(smoke=80, full=200), deadline=None, print_blob=True)
@given(log=hand_made_logs(), seed=SEEDS)
def test_runs_with_odd_parents_that_end_in_any_order_are_where_the_log_puts_them(
    shared: Shared, log: list[NewEvent], seed: int
) -> None:
    async def look(conversation: str) -> None:
        await shared.ledgers.in_slices.record(conversation, log)
        await take_in_slices(shared.ledgers.in_slices, conversation, random.Random(seed))

    shared.runner.run(look(next(shared.names)))


def whole(run_id: str, parent: str | None, outcome: str = "completed") -> list[NewEvent]:
    """A run with one message."""
    return [started(run_id, parent), *said(run_id, f"{run_id}.0", "text"), finished(run_id, outcome)]


def selected(message_id: str) -> NewEvent:
    return new("branch.selected", message_id=message_id)


CHOSEN: Final = {
    "an only child, before a run beside it failed, too": (
        [*whole("p", None), *whole("a", "p.0", "failed"), selected("a.0"), *whole("b", "p.0", "failed")],
        ["p.0", "a.0"],
    ),
    "before the run that brings its parent went on beside it": (
        [
            *whole("x", "late.0"), started("late", None), selected("x.0"),
            *said("late", "late.0", "text"), *said("late", "late.1", "text"), finished("late"),
        ],
        ["late.0", "x.0"],
    ),
    "without a parent, before a sibling came that has none either": (
        [*whole("x", "never"), started("late", "never"), selected("x.0"), *said("late", "late.0", "text"), finished("late")],
        ["x.0"],
    ),
    "before the way to it came": (
        [
            *whole("p", None), started("late", "p.0"), started("sib", "p.0"), *whole("x", "late.0"), selected("x.0"),
            *said("late", "late.0", "text"), finished("late"), *said("sib", "sib.0", "text"), finished("sib"),
        ],
        ["p.0", "late.0", "x.0"],
    ),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("case", CHOSEN)
async def test_a_message_stays_chosen_that_was_chosen(case: str) -> None:
    log, path = CHOSEN[case]
    async with open_ledger("memory:") as ledger:
        for event in log:
            await ledger.record("c", [event])
            await ledger.catch_up("c")
        assert [message.id for message in await ledger.transcript("c")] == path
