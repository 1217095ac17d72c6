"""Random conversations, as steps that Hypothesis draws: runs that fork, stay open, end late, fail, are recovered, and worse.

A step is taken in a conversation as it is by then, so numbers stand for messages and runs; any list of steps can be
taken. Each says beforehand what the ledger has to do, by the model of the log.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

import pytest
from hypothesis import strategies as st

from ledger import Ledger, RunExists, RunLost, RunOpen, UnknownMessage
from tests.talk import finished, give_unasked, new, said, started
from tests.tree_model import Questions, TreeModel, ask, told_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledger import Run
    from projector.events import Action, Outcome
    from stream import Event, NewEvent

T = TypeVar("T")
How = Literal["user", "text", "empty", "result"]
RawEnd = Literal["completed", "incomplete", "cancelled", "failed", "commit", "fail", "cancel"]
OUTCOMES: Final[list[Outcome]] = ["completed", "completed", "incomplete", "cancelled", "failed"]
ENDS: Final[list[RawEnd]] = [*OUTCOMES, "commit", "fail", "cancel"]
RAW_RUNS: Final = ("x", 'y"', "z\\", "é'\n", "\U0001f468 %")
"""Ids of hand-made runs; their messages are `{run}.0` to `{run}.2`, so that parents can be named before they are there."""


class Step(Protocol):
    """Something that is done in a conversation."""

    async def take(self, talk: Talk) -> None: ...


@dataclass(frozen=True)
class Look:
    """Everything is compared; and so the ledger has caught up here."""

    seed: int

    async def take(self, talk: Talk) -> None:
        await talk.compare(random.Random(self.seed))


@dataclass(frozen=True)
class Begin:
    """A run begins behind the leaf, a committed message, or as a root, and says something."""

    where: Literal["leaf", "message", "root", "nowhere"]
    pick: int
    says: tuple[How, ...]
    ends: Outcome | None

    async def take(self, talk: Talk) -> None:
        run = await talk.begin(self.where, self.pick)
        if run is not None:
            for how in self.says:
                await talk.say(run, how)
            if self.ends is not None:
                await talk.finish(run, self.ends)


@dataclass(frozen=True)
class Say:
    """An open run says more."""

    pick: int
    how: How

    async def take(self, talk: Talk) -> None:
        if talk.writers:
            await talk.say(_pick([*talk.writers.values()], self.pick), self.how)


@dataclass(frozen=True)
class End:
    """An open run ends, or its writer is lost."""

    pick: int
    how: Outcome | None

    async def take(self, talk: Talk) -> None:
        if talk.writers:
            run = _pick([*talk.writers.values()], self.pick)
            if self.how is None:
                del talk.writers[run.run_id]
                await run.close()
            else:
                await talk.finish(run, self.how)


@dataclass(frozen=True)
class Recover:
    """A run is recovered, mostly one that is open; its writer may go on and hear of it."""

    pick: int
    is_open: bool
    action: Action
    select: bool

    async def take(self, talk: Talk) -> None:
        model = await talk.model()
        run_ids = [*(model.open if self.is_open and model.open else model.runs)]
        if run_ids:
            await talk.recover(model, _pick(run_ids, self.pick), self.action, select=self.select)


@dataclass(frozen=True)
class Amend:
    """A message is selected or annotated, or a run is asked to stop."""

    what: Literal["select", "annotate", "cancel"]
    pick: int

    async def take(self, talk: Talk) -> None:
        model = await talk.model()
        if self.what == "cancel" and model.runs:
            await talk.ledger.cancel(talk.conversation, _pick([*model.runs], self.pick))
        elif self.what == "annotate" and model.kept:
            await talk.ledger.annotate(talk.conversation, _pick([*model.kept], self.pick), {"n": self.pick})
        elif self.what == "select" and model.nodes:
            await talk.ledger.select(talk.conversation, _pick(model.on_paths, self.pick))


@dataclass(frozen=True)
class Raw:
    """A hand-made run, as a whole or in part, behind any id: its own, one that comes later or never, one of an open run.

    Parts of what others have begun may come of it: its messages and its end are events of their own.
    """

    run: int
    parent: int
    messages: tuple[tuple[int, int], ...]
    end: RawEnd | None
    is_started: bool = True

    async def take(self, talk: Talk) -> None:
        run_id = RAW_RUNS[self.run]
        ids = await talk.ids()
        events = [started(run_id, _pick([None, *ids], self.parent))] if self.is_started else []
        for number, pieces in self.messages:
            message_id = f"{run_id}.{number}" if number < 3 else _pick(ids, number)  # also one that is taken
            events += said(run_id, message_id, "some", "text")[:pieces]
        if self.end is not None:
            events.append(_end(run_id, self.end))
        await talk.record(*events)


@dataclass(frozen=True)
class RawLast:
    """An end that somebody wrote, of any run: the first counts."""

    pick: int
    how: RawEnd

    async def take(self, talk: Talk) -> None:
        model = await talk.model()
        await talk.record(_end(_pick([*model.open] or [*RAW_RUNS], self.pick), self.how))


class Talk:
    """A conversation under way in a ledger."""

    def __init__(self, ledger: Ledger, conversation: str) -> None:
        self.ledger = ledger
        self.conversation = conversation
        self.writers: dict[str, Run] = {}
        self._begun = 0

    async def model(self) -> TreeModel:
        """What the log says now, whatever the ledger has taken in."""
        return TreeModel(await self.ledger.store.read(self.conversation))

    async def ids(self) -> list[str]:
        """What a hand-made run may name as its parent."""
        model = await self.model()
        raw = [f"{run_id}.{number}" for run_id in RAW_RUNS for number in range(3)]
        return [*raw, "nobody", *model.kept, *(message_id for run in model.open.values() for message_id in run.said)]

    async def begin(self, where: str, pick: int) -> Run | None:
        model = await self.model()
        self._begun += 1
        run_id = f"r{self._begun}"
        if where == "nowhere":
            strange = [message_id for message_id in await self.ids() if message_id not in model.on_paths]
            with pytest.raises(UnknownMessage):
                await self.ledger.begin_run(self.conversation, run_id=run_id, parent=_pick(strange, pick))
            return None
        if model.runs:
            with pytest.raises(RunExists):
                await self.ledger.begin_run(self.conversation, run_id=_pick([*model.runs], pick), parent=None)
        if where == "leaf" or (where == "message" and not model.nodes):
            parent = model.leaf
            if model.barring:
                with pytest.raises(RunOpen) as refusal:
                    await self.ledger.begin_run(self.conversation, run_id=run_id)
                assert refusal.value.run_id in model.barring
                run = await self.ledger.begin_run(self.conversation, run_id=run_id, parent=parent, flush_ms=0)
            else:
                run = await self.ledger.begin_run(self.conversation, run_id=run_id, flush_ms=0)
        else:
            parent = None if where == "root" else _pick(model.on_paths, pick)
            run = await self.ledger.begin_run(self.conversation, run_id=run_id, parent=parent, flush_ms=0)
        self.writers[run_id] = run
        assert (await self.model()).open[run_id].parent == parent
        return run

    async def say(self, run: Run, how: str) -> None:
        with suppress(RunLost):
            if how == "result":
                await give_unasked(run, "call", "done")
            elif how == "text":
                await run.text("some")
            else:
                await run.message("user", "" if how == "empty" else "words")
            await run.flush()

    async def finish(self, run: Run, outcome: Outcome) -> None:
        with suppress(RunLost):
            await run.finish(outcome)
        self.writers.pop(run.run_id, None)

    async def recover(self, model: TreeModel, run_id: str, action: Action, *, select: bool) -> None:
        before = model.head
        told = await self.ledger.recover(self.conversation, run_id, action, select=select)
        events = await self.ledger.store.read(self.conversation, after=before)
        ended = [("run.recovered", run_id)] if run_id in model.open else []
        is_first = bool(ended) and model.runs[run_id].status == "open"  # of its id: a second one leaves nothing to select
        if is_first:
            assert told.recovered == action
        model = await self.model()
        left = [kept.id for kept in model.everything if kept.run == run_id and kept.on_path]
        chosen = [("branch.selected", left[-1])] if select and left and is_first else []
        assert [(event.type, _about(event)) for event in events] == [*ended, *chosen]

    async def record(self, *events: NewEvent) -> None:
        await self.ledger.record(self.conversation, events)

    async def compare(self, chance: random.Random) -> tuple[Questions, dict[str, Any]]:
        """What the ledger tells is what the log says; gives what was asked, and the answers."""
        model = await self.model()
        questions = ask(model, chance)
        answers = model.told(questions)
        assert await told_by(self.ledger, self.conversation, questions) == answers
        return questions, answers


says = st.sampled_from(["user", "text", "user", "text", "result", "empty"])
picks = st.integers(0, 60)
begins = st.builds(
    Begin,
    st.sampled_from(["leaf", "message", "message", "root", "nowhere"]),
    picks,
    st.lists(says, min_size=1, max_size=3).map(tuple),
    st.sampled_from([*OUTCOMES, None, None]),
)
raws = st.builds(
    Raw,
    st.integers(0, len(RAW_RUNS) - 1),
    picks,
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 0, 1, 2, 3, 17, 40]), st.sampled_from([6, 6, 6, 3, 1])), max_size=3).map(
        tuple
    ),
    st.sampled_from([*ENDS, *ENDS, None, None]),
    st.sampled_from([True, True, False]),
)
kinds = {
    "look": st.builds(Look, st.integers(0, 2**16)),
    "begin": begins,
    "raw": raws,
    "amend": st.builds(Amend, st.sampled_from(["select", "select", "select", "annotate", "cancel"]), picks),
    "say": st.builds(Say, picks, says),
    "end": st.builds(End, picks, st.sampled_from([*OUTCOMES, None])),
    "recover": st.builds(Recover, picks, st.booleans(), st.sampled_from(["commit", "fail", "cancel"]), st.booleans()),
    "end of any": st.builds(RawLast, picks, st.sampled_from(ENDS)),
}
often = {"begin": 6, "raw": 4, "amend": 3}
steps = st.sampled_from([kind for kind in kinds for _ in range(often.get(kind, 1))]).flatmap(kinds.__getitem__)
conversations = st.lists(steps, min_size=8, max_size=40)


@st.composite
def hand_made_logs(draw: st.DrawFn) -> list[NewEvent]:
    """A few runs behind any of each other's messages, in any order, and selections between."""
    run_ids = RAW_RUNS[: draw(st.integers(3, len(RAW_RUNS)))]
    sizes = {run_id: draw(st.integers(1, 2)) for run_id in run_ids}
    ids = [f"{run_id}.{number}" for run_id in run_ids for number in range(sizes[run_id])]
    parents = st.sampled_from([None, *ids, "nobody", "nobody"])
    ends: dict[str, NewEvent] = {}
    waiting: dict[str, Iterator[list[NewEvent]]] = {}
    for run_id in run_ids:
        says = [said(run_id, f"{run_id}.{number}", "text") for number in range(sizes[run_id])]
        ends[run_id] = finished(run_id, draw(st.sampled_from(["completed", "cancelled", "failed"])))
        waiting[run_id] = iter([[started(run_id, draw(parents))], *says, [ends[run_id]]])
    order = draw(st.permutations([run_id for run_id in run_ids for _ in range(sizes[run_id] + 2)]))
    log = [event for run_id in order for event in next(waiting[run_id])]
    for message_id in draw(st.lists(st.sampled_from(ids), max_size=5)):  # some time after its run has ended
        ended = log.index(ends[message_id[:-2]])
        log.insert(ended + 1 + draw(st.integers(0, 12)), new("branch.selected", message_id=message_id))
    return log


def _pick(items: Sequence[T], pick: int) -> T:
    return items[pick % len(items)]


def _end(run_id: str, how: RawEnd) -> NewEvent:
    if how in ("commit", "fail", "cancel"):
        return new("run.recovered", run_id=run_id, action=how, last_seq=1)
    return finished(run_id, how)


def _about(event: Event) -> str:
    body = json.loads(event.data)
    return str(body.get("run_id") or body["message_id"])
