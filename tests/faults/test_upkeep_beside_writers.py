"""Who verifies and repairs beside processes that write finds nothing, changes nothing, and takes nothing back."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest

from ledger import Ledger, LedgerError, open_ledger
from ledger.upkeep import repair
from ledger.upkeep.verify import verify
from tests.faults.children import Child, Parent
from tests.faults.sizes import FULL, size
from tests.talk import new

if TYPE_CHECKING:
    from pathlib import Path

    from stream import Opening

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
WRITERS: Final = 4
ROUNDS: Final = size(smoke=30, full=2500)  # with a redaction each
SHARED: Final = ("c", "d")
STEPS: Final = ("rewind", "skip_hole", "rewrite", "rebuild_tree", "end_lost_run")
Told = tuple[dict[str, dict[str, int]], list[tuple[str, str]], Counter[str]]


def open_at(folder: str, place: str) -> Opening[Ledger]:
    log = f"{folder}/log.db" if place == "two files" else None
    return open_ledger(f"{folder}/ledger.db", log=log, durability="normal")


class Writer:
    """Does one thing after the other to conversations that others write to as well, and knows what was acknowledged."""

    def __init__(self, ledger: Ledger, number: int, messages: dict[str, list[str]]) -> None:
        self.annotated: dict[str, dict[str, int]] = {name: {} for name in SHARED}
        self.redacted: list[tuple[str, str]] = []
        self.done: Counter[str] = Counter()
        self._ledger, self._number, self._messages = ledger, number, messages
        self._chance = random.Random(number)

    async def take_round(self, number: int) -> None:
        conversation = self._chance.choice(SHARED)
        secret = await self._say(conversation, self._chance.choice([None, *self._messages[conversation]]))
        for message_id in self._chance.sample(self._messages[conversation], 3):
            await self._ledger.annotate(conversation, message_id, {f"by {self._number}": number})
            self.annotated[conversation][message_id] = number
            self.done["annotate"] += 1
        await self._ledger.redact(conversation, secret)
        self.redacted.append((conversation, secret))
        self.done["redact"] += 1
        for what, often in (("fork", 4), ("select", 4), ("describe", 4), ("compact", 6), ("erase", 10)):
            if self._chance.randrange(often) == 0:
                with suppress(LedgerError):  # another one has erased it, or its head has moved
                    await getattr(self, f"_{what}")(conversation)
                    self.done[what] += 1

    async def _say(self, conversation: str, parent: str | None) -> str:
        async with self._ledger.run(conversation, parent=parent) as run:
            await run.text("half ")
            await run.flush()
            secret = await run.message("user", "SECRET")
        await self._ledger.record(conversation, [new("run.usage", run_id=run.run_id, request_id="q", input=1)])
        return secret

    async def _fork(self, conversation: str) -> None:
        async with self._ledger.fork(conversation, self._chance.choice(self._messages[conversation])) as run:
            await run.message("user", "another turn")

    async def _select(self, conversation: str) -> None:
        await self._ledger.select(conversation, self._chance.choice(self._messages[conversation]))

    async def _describe(self, conversation: str) -> None:
        await self._ledger.describe(conversation, title=f"{self._number}", labels=[f"{self._chance.random()}"])

    async def _compact(self, conversation: str) -> None:
        await self._ledger.compact(conversation, replay_window=self._chance.choice([0, 50]))

    async def _erase(self, _: str) -> None:
        name = f"gone {self._chance.randrange(2)}"
        await self._say(name, None)
        await self._ledger.erase(name)


async def write(parent: Parent, folder: str, place: str, number: int, messages: dict[str, list[str]]) -> Told:
    async with open_at(folder, place) as ledger:
        writer = Writer(ledger, number, messages)
        for at in range(ROUNDS):
            await writer.take_round(at)
            if at % 20 == 0:
                parent.say(("writes", at))
    return writer.annotated, writer.redacted, writer.done


async def look_after(parent: Parent, folder: str, place: str) -> tuple[int, list[Any], list[str]]:
    """Verifies and repairs until it is told to stop: how often, what it found, and which steps it took."""
    stopped = asyncio.ensure_future(parent.hear())
    found: list[Any] = []
    steps: list[str] = []
    rounds = 0

    def counting(name: str) -> Any:
        plain = getattr(repair, name)

        async def counted(*words: Any) -> Any:
            steps.append(f"{name} {words[1:]}")
            return await plain(*words)

        return counted

    for name in STEPS:
        patch.object(repair, name, counting(name)).start()
    async with open_at(folder, place) as ledger:
        while not stopped.done():
            found += [finding async for finding in verify(ledger) if not finding.is_note]
            found += [finding async for finding in ledger.reconcile(repair=True) if not finding.is_note]
            rounds += 1
            parent.say(("looks", rounds))
    return rounds, found, steps


def result(child: Child) -> Any:
    """What a child returns that says how far it is meanwhile."""
    while True:
        what, value = child.hear()
        if what in ("returned", "raised"):
            assert what == "returned", f"a child failed:\n{value}"
            return value


async def prepare(folder: str, place: str) -> dict[str, list[str]]:
    messages: dict[str, list[str]] = {}
    async with open_at(folder, place) as ledger:
        for name in SHARED:
            messages[name] = []
            for number in range(12):
                async with ledger.run(name) as run:
                    messages[name].append(await run.message("user", f"message {number}"))
    return messages


@pytest.mark.parametrize("place", ["one file", "two files"])
async def test_nothing_is_found_nothing_changed_and_nothing_taken_back_beside_writers(tmp_path: Path, place: str) -> None:
    folder = str(tmp_path)
    messages = await prepare(folder, place)
    upkeep = [Child(look_after, folder, place) for _ in range(2 if FULL else 1)]
    writers = [Child(write, folder, place, number, messages) for number in range(WRITERS)]
    try:
        for child in (*writers, *upkeep):
            child.say("go")
        told: list[Told] = [await asyncio.to_thread(result, child) for child in writers]
        for child in upkeep:
            child.say("stop")
        looked = [await asyncio.to_thread(result, child) for child in upkeep]
    finally:
        for child in (*writers, *upkeep):
            child.end()
    done: Counter[str] = sum((each for _, _, each in told), Counter())
    print(f"{place}: {dict(done)}, looked after {[rounds for rounds, _, _ in looked]} times")
    assert [(found, steps) for _, found, steps in looked] == [([], [])] * len(looked)
    assert all(rounds for rounds, _, _ in looked)
    assert done["redact"] == WRITERS * ROUNDS
    async with open_at(folder, place) as ledger:
        assert [finding async for finding in verify(ledger) if not finding.is_note] == []
        for number, (annotated, redacted, _) in enumerate(told):
            for conversation, values in annotated.items():
                for message_id, value in values.items():
                    message = await ledger.tables.message(conversation, message_id)
                    assert message is not None
                    assert json.loads(message.metadata_text[f"by {number}"]) == value
            for conversation, message_id in redacted:
                message = await ledger.tables.message(conversation, message_id)
                assert message is not None
                assert message.text == ""
