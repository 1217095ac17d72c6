"""Several processes work on the same conversations: each run is committed once, the tree is what the log says (laws 10-12)."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from ledger import ACTIVE_LEAF, Ledger, RunInfo, RunLost, RunOpen, open_ledger
from ledger.upkeep.verify import Finding, verify
from stream import NewEvent, open_store
from tests.faults.children import Child, together
from tests.postgres_server import Shared
from tests.talk import finished, new, said, started
from tests.tree_model import TreeModel, ask, told_by

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from ledger.runs.start import Parent as Place
    from projector.events import Action
    from stream import Event
    from tests.faults.children import Parent

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
CONVERSATIONS: Final = ("one", "two", "three")
ACTIONS: Final[tuple[Action, ...]] = ("commit", "fail", "cancel")
LIMIT_S: Final = 60


@pytest.fixture(params=["sqlite", "postgres"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "c.db") if request.param == "sqlite" else Shared.url()


async def test_four_processes_grow_the_same_trees_and_each_run_is_committed_once(path: str) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    async with open_ledger(path, durability="normal") as ledger:
        for conversation in CONVERSATIONS:
            await ledger.record(conversation, [new("custom")])
    results = await anyio.to_thread.run_sync(together, work, [(path, f"p{n}", seed + n, 25) for n in range(4)])
    begun = {run_id: conversation for result in results for run_id, conversation in result["begun"].items()}
    notes = [note for result in results for note in result["notes"]]
    chance = random.Random(seed)
    async with open_ledger(path, durability="normal") as ledger:
        assert await findings(ledger) == []
        assert {run.run_id: run.conversation async for run in ledger.runs()} == begun
        for conversation in CONVERSATIONS:
            await hold_against_log(ledger, conversation, chance)
            messages = {message.id: message for message in await ledger.transcript(conversation, branch="all")}
            for message_id, key in (note[1:] for note in notes if note[0] == conversation):
                assert key in messages[message_id].metadata_text
            for run in await ledger.open_runs(conversation):
                await ledger.recover(conversation, run.run_id, chance.choice(ACTIONS))
            await hold_against_log(ledger, conversation, chance)
            assert await ledger.open_runs(conversation) == []
            ends = ends_of(await ledger.store.read(conversation))
            told = {run.run_id: run async for run in ledger.runs(conversation)}
            assert ends.keys() == told.keys()
            assert {run_id: run.end_seq for run_id, run in told.items()} == {run_id: seqs[0] for run_id, seqs in ends.items()}
            for result in results:
                for run_id in result["ended"].keys() & told.keys():
                    assert told[run_id].outcome == result["ended"][run_id]
                for run_id in result["lost"].keys() & told.keys():
                    assert told[run_id].recovered is not None
        assert await findings(ledger) == []


async def hold_against_log(ledger: Ledger, conversation: str, chance: random.Random) -> None:
    """The tree is what the model says, and no id is used twice."""
    model = TreeModel(await ledger.store.read(conversation, limit=100_000))
    questions = ask(model, chance)
    assert await told_by(ledger, conversation, questions) == model.told(questions)
    ids = Counter(message.id for message in await ledger.transcript(conversation, branch="all"))
    assert set(ids.values()) <= {1}


async def findings(ledger: Ledger) -> list[Finding]:
    """What is wrong. A recovery that came after another end is worth a note, and nothing else is."""
    found = [finding async for finding in verify(ledger)]
    for finding in found:
        if finding.kind == "anomaly" and finding.is_note:
            [event] = await ledger.store.read(finding.conversation, after=_number(finding.what) - 1, limit=1)
            ends = ends_of(await ledger.store.read(finding.conversation, limit=100_000))
            assert event.type == "run.recovered"
            assert event.seq in ends[json.loads(event.data)["run_id"]][1:]
    return [finding for finding in found if not finding.is_note]


def ends_of(events: Iterable[Event]) -> dict[str, list[int]]:
    """The seqs of the events that ended each run."""
    ends: dict[str, list[int]] = {}
    for event in events:
        if event.type in ("run.finished", "run.recovered"):
            ends.setdefault(json.loads(event.data)["run_id"], []).append(event.seq)
    return ends


async def work(parent: Parent, path: str, name: str, seed: int, count: int) -> dict[str, Any]:
    """Does this and that in conversations that others work on, too; tells what it has done."""
    del parent
    worker = Worker(name, random.Random(seed))
    async with open_ledger(path, durability="normal") as ledger:
        for number in range(count):
            await worker.do_something(ledger, number)
        await ledger.catch_up_all()
    return vars(worker)


class Worker:
    """What one process has done: runs begun, how those ended that it ended, those it lost, and its annotations."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.begun: dict[str, str] = {}
        self.ended: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        self.notes: list[tuple[str, str, str]] = []

    async def do_something(self, ledger: Ledger, number: int) -> None:
        chance, conversation = self.chance, self.chance.choice(CONVERSATIONS)
        nodes = (await ledger.tree(conversation)).nodes
        what = chance.choice(["go on", "go on", "fork", "fork", "select", "annotate", "recover"])
        if what == "recover":
            for run in (await ledger.open_runs(conversation))[:1]:
                await ledger.recover(conversation, run.run_id, chance.choice(ACTIONS), select=chance.random() < 0.3)
        elif not nodes or what == "go on":
            await self.go_on(ledger, conversation, f"{self.name}-{number}")
        elif what == "fork":
            await self.say(ledger, conversation, f"{self.name}-{number}", parent=chance.choice(nodes).id)
        elif what == "select":
            await ledger.select(conversation, chance.choice(nodes).id)
        else:
            message_id = chance.choice(nodes).id
            await ledger.annotate(conversation, message_id, {f"{self.name}-{number}": 1})
            self.notes.append((conversation, message_id, f"{self.name}-{number}"))

    async def go_on(self, ledger: Ledger, conversation: str, run_id: str) -> None:
        """Begins behind the leaf; what is open there is recovered first, whosever it is."""
        while True:
            try:
                await self.say(ledger, conversation, run_id)
            except RunOpen as refusal:
                await ledger.recover(conversation, refusal.run_id, self.chance.choice(ACTIONS))
            else:
                return

    async def say(self, ledger: Ledger, conversation: str, run_id: str, parent: str | Place = ACTIVE_LEAF) -> None:
        """A run that ends in one of many ways, or not at all."""
        run = await ledger.begin_run(conversation, run_id=run_id, parent=parent)
        self.begun[run_id] = conversation
        outcome = self.chance.choice(["completed", "completed", "incomplete", "cancelled", "failed", None])
        try:
            await run.message("user", f"q of {run_id}")
            await run.text("a")
            await run.flush()
            await anyio.sleep(self.chance.random() * 0.03)  # others come in between
            await run.text("nswer")
            if outcome is None:
                await run.close()
            else:
                await run.finish(outcome)  # type: ignore[arg-type]
                self.ended[run_id] = outcome
        except RunLost:
            self.lost[run_id] = conversation


async def test_two_processes_that_commit_the_same_run_at_once_commit_it_once(path: str) -> None:
    rounds = 30
    async with open_store(path, durability="normal") as store:
        for number in range(rounds):
            await store.append(f"c{number}", [started("r"), *said("r", "r.1", "q", role="user"), *said("r", "r.2", "a")])
            await store.append(f"c{number}", [new("message.annotated", message_id="r.1", patch={"n": 1}), finished("r")])
    barrier = multiprocessing.get_context("forkserver").Barrier(2)
    one, two = await anyio.to_thread.run_sync(together, commit, [(path, barrier, rounds)] * 2)
    assert one == two == [["r.1", "r.2"]] * rounds
    async with open_ledger(path, durability="normal") as ledger:
        assert await findings(ledger) == []
        assert [(run.run_id, run.status, run.messages) async for run in ledger.runs()] == [("r", "committed", 2)] * rounds
        assert {info.messages async for info in ledger.conversations()} == {2}


async def commit(parent: Parent, path: str, barrier: Barrier, rounds: int) -> list[list[str]]:
    del parent
    seen = []
    async with open_ledger(path, durability="normal") as ledger:
        for number in range(rounds):
            barrier.wait(LIMIT_S)
            await ledger.catch_up(f"c{number}")
            seen.append([message.id for message in await ledger.transcript(f"c{number}")])
    return seen


async def test_of_an_end_and_two_recoveries_at_once_one_counts_and_all_are_told_which(path: str) -> None:
    rounds = 20
    barrier = multiprocessing.get_context("forkserver").Barrier(3)
    jobs = [(path, barrier, rounds, job) for job in ("finish", "commit", "cancel")]
    answers = await anyio.to_thread.run_sync(together, end, jobs)
    async with open_ledger(path, durability="normal") as ledger:
        assert await findings(ledger) == []
        for number, (owner, *others) in enumerate(zip(*answers, strict=True)):
            conversation = f"c{number}"
            [run] = [run async for run in ledger.runs(conversation)]
            how = (run.outcome, run.recovered)
            assert others == [how, how]
            assert owner == (how if run.recovered is None else "lost")
            assert len(await ledger.transcript(conversation)) == (0 if run.recovered == "cancel" else 2)
            assert len(ends_of(await ledger.store.read(conversation))["r"]) <= 2  # two recoveries are one event


async def end(parent: Parent, path: str, barrier: Barrier, rounds: int, job: str) -> list[Any]:
    """Ends a run in each of many conversations, as its writer or as somebody who recovers it; tells how it ended."""
    del parent
    told: list[Any] = []
    async with open_ledger(path, durability="normal") as ledger:
        for number in range(rounds):
            conversation = f"c{number}"
            if job == "finish":
                run = await ledger.begin_run(conversation, run_id="r")
                await run.message("user", "q")
                await run.message("assistant", "a")
                await run.flush()
            barrier.wait(LIMIT_S)
            info: RunInfo | None = None
            if job == "finish":
                with suppress(RunLost):
                    await run.finish()
                    info = await ledger.tables.run(conversation, "r")
            else:
                info = await ledger.recover(conversation, "r", "commit" if job == "commit" else "cancel")
            told.append("lost" if info is None else (info.outcome, info.recovered))
    return told


async def test_a_cancel_request_reaches_the_writer_in_another_process_within_a_second(path: str) -> None:
    async with open_ledger(path, durability="normal") as ledger:
        await ledger.record("c", [NewEvent("custom", b"{}")])
        child = await anyio.to_thread.run_sync(Child, write_until_cancelled, path)
        try:
            child.say("go")
            assert await anyio.to_thread.run_sync(child.hear) == "begun"
            await anyio.sleep(0.5)  # it waits by now
            asked = time.monotonic()
            await ledger.cancel("c", "r", by="user")
            by, seen = await anyio.to_thread.run_sync(child.result)
        finally:
            child.end()
        assert by == "user"
        assert 0 < seen - asked < 1
        assert [(message.text, message.status) for message in await ledger.transcript("c")] == [("so far", "partial")]
        assert [run.status async for run in ledger.runs("c")] == ["cancelled"]


async def write_until_cancelled(parent: Parent, path: str) -> tuple[str | None, float]:
    async with open_ledger(path, durability="normal") as ledger:
        run = await ledger.begin_run("c", run_id="r")
        await run.text("so far")
        await run.flush()
        parent.say("begun")
        by = await run.wait_for_cancel_request()
        seen = time.monotonic()  # one clock for all processes
        await run.finish("cancelled")
    return by, seen


def _number(what: str) -> int:
    """The seq in "event 253: …"."""
    return int(what.split()[1].rstrip(":"))
