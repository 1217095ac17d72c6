"""Several workers over one schema: one that is killed leaves runs that another takes over, and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from ledger import Ledger, RunLost, RunOpen, open_ledger
from ledger.upkeep.verify import verify
from stream.errors import StreamError
from tests.faults.children import Child, together
from tests.faults.sizes import size
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from tests.faults.children import Parent

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.heavy]
CONVERSATIONS: Final = ("one", "two")
ROUNDS: Final = size(smoke=4, full=60)
LIMIT_S: Final = 60


async def talk_on(parent: Parent, url: str, name: str) -> None:
    """Says that a turn is acknowledged when it is, until it is killed; what is open where it wants to go on, it takes over."""
    async with open_ledger(url) as ledger:
        for number in range(1_000_000):
            run_id = f"{name}-{number}"
            with suppress(RunLost, RunOpen):
                run = await begin(ledger, CONVERSATIONS[number % 2], run_id)
                await run.message("user", f"q of {run_id}")
                await run.text("a")
                await run.flush()
                await run.text("nswer")
                await run.finish()
                parent.say(run_id)


async def begin(ledger: Ledger, conversation: str, run_id: str) -> Any:
    try:
        return await ledger.begin_run(conversation, run_id=run_id)
    except RunOpen as refusal:
        await ledger.recover(conversation, refusal.run_id, "commit")
        return await ledger.begin_run(conversation, run_id=run_id)


async def test_whoever_is_killed_the_others_take_over_and_nothing_is_lost_or_doubled() -> None:
    url, chance = Shared.url(), random.Random(4)
    async with open_ledger(url) as ledger:
        children = [await anyio.to_thread.run_sync(Child, talk_on, url, f"w{number}") for number in range(2)]
        told: list[str] = []
        try:
            for child in children:
                child.say("go")
            for number in range(ROUNDS):
                victim = chance.randrange(2)
                told += [await anyio.to_thread.run_sync(children[victim].hear) for _ in range(2)]
                await anyio.sleep(chance.random() * 0.05)
                os.kill(children[victim].pid, signal.SIGKILL)
                told += heard(children[victim])
                children[victim] = await anyio.to_thread.run_sync(Child, talk_on, url, f"w{victim}-{number}")
                children[victim].say("go")
            for child in children:
                os.kill(child.pid, signal.SIGKILL)
                told += heard(child)
        finally:
            for child in children:
                child.end()
        assert all(isinstance(run_id, str) for run_id in told), told
        await settle(ledger)
        await check(ledger, told)
    async with open_ledger(url) as ledger:
        await check(ledger, told)


def heard(child: Child) -> list[Any]:
    """What it said before it was killed."""
    said: list[Any] = []
    with suppress(EOFError, OSError):
        while child._pipe.poll(5):
            said.append(child._pipe.recv())
    return said


async def settle(ledger: Ledger) -> None:
    for conversation in CONVERSATIONS:
        for run in await ledger.open_runs(conversation):
            await ledger.recover(conversation, run.run_id, "commit")


async def check(ledger: Ledger, told: list[str]) -> None:
    """All that was acknowledged is there, once, whole; nothing is wrong."""
    assert [finding async for finding in verify(ledger) if not finding.is_note] == []
    texts: dict[str, list[str]] = {}
    ids: Counter[str] = Counter()
    for conversation in CONVERSATIONS:
        for message in await ledger.transcript(conversation, branch="all"):
            texts.setdefault(message.run_id, []).append(message.text)
            ids[message.id] += 1
    assert set(ids.values()) == {1}
    assert len(set(told)) == len(told) >= 2 * ROUNDS
    for run_id in told:
        assert texts[run_id] == [f"q of {run_id}", "answer"]
    assert {len(said) for said in texts.values()} <= {1, 2}
    ended = {run.run_id: run async for run in ledger.runs()}
    assert all(run.outcome is not None for run in ended.values())


async def test_a_writer_that_slept_while_its_run_was_taken_over_is_told_so_and_adds_nothing() -> None:
    url = Shared.url()
    async with open_ledger(url) as ledger:
        child = await anyio.to_thread.run_sync(Child, write_in_two_halves, url)
        try:
            child.say("go")
            assert await anyio.to_thread.run_sync(child.hear) == "half"
            os.kill(child.pid, signal.SIGSTOP)
            told = await ledger.recover("c", "r", "commit")
            assert (told.recovered, told.messages) == ("commit", 1)
            head = (await ledger.store.bounds("c")).head
            os.kill(child.pid, signal.SIGCONT)
            child.say("go on")
            assert await anyio.to_thread.run_sync(child.result) == "RunLost"
        finally:
            child.end()
        assert [(message.text, message.status) for message in await ledger.transcript("c")] == [("half", "partial")]
        assert (await ledger.store.bounds("c")).head == head
        assert [finding async for finding in verify(ledger) if not finding.is_note] == []


async def write_in_two_halves(parent: Parent, url: str) -> str:
    async with open_ledger(url) as ledger:
        run = await ledger.begin_run("c", run_id="r")
        await run.text("half")
        await run.flush()
        parent.say("half")
        await parent.hear()
        try:
            await run.text(" and half")
            await run.finish()
        except RunLost as error:
            return type(error).__name__
    return "finished"


async def test_of_many_that_begin_a_run_at_once_one_does_and_the_others_are_told_whose_it_is() -> None:
    url, rounds = Shared.url(), 15
    answers = await anyio.to_thread.run_sync(together, race, [(url, f"p{number}", rounds) for number in range(3)])
    async with open_ledger(url) as ledger:
        for number in range(rounds):
            [run] = [run async for run in ledger.runs(f"c{number}")]
            told = [each[number] for each in answers]
            assert told.count("mine") == 1
            assert set(told) == {"mine", run.run_id}
            assert told[int(run.run_id[1:])] == "mine"


async def race(parent: Parent, url: str, name: str, rounds: int) -> list[str]:
    """Begins a run in each of many conversations, as others do; tells whose it was. No other error is one of a race."""
    del parent
    told = []
    async with open_ledger(url) as ledger:
        for number in range(rounds):
            try:
                await ledger.begin_run(f"c{number}", run_id=name)
            except RunOpen as refusal:
                told.append(refusal.run_id)
            except StreamError as error:
                raise AssertionError(f"round {number}: {error}") from error
            else:
                told.append("mine")
    return told
