"""Erase against begins: whoever writes to a conversation that is erased is told, or lives whole in the new life."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import anyio
import pytest

from ledger import Ledger, LedgerError, RunEnded, erasure, open_ledger
from projector import Block
from stream import StreamError
from stream.sqlite import SqliteStore
from tests.faults.children import Parent, together
from tests.faults.history import Diary, Told, read_diaries, watched
from tests.faults.sizes import size
from tests.needles import wrong
from tests.talk import new

if TYPE_CHECKING:
    from pathlib import Path

    from stream import Event, Opening

pytestmark = pytest.mark.anyio
ROUNDS: Final = size(smoke=40, full=2000)
LIMIT_S: Final = 60
STORE: Final = ("append", "bounds", "delete", "producer", "read", "truncate")
DATABASE: Final = ("look", "read", "transact")
WRITERS: Final = ("begin", "flush", "talk", "talk", "talk", "fork", "annotate", "redact", "describe", "record")
REFUSALS: Final = ("RunLost", "RunOpen", "UnknownMessage", "UnknownConversation", "RunEnded")


def open_at(folder: Path | str, place: str) -> Opening[Ledger]:
    log = f"{folder}/log.db" if place == "two files" else None
    return open_ledger(f"{folder}/ledger.db", log=log, durability="normal")


def shuffle(ledger: Ledger, chance: random.Random) -> None:
    """Lets others have their turn, or several, before and after whatever this ledger asks of its files."""
    store = ledger.store
    assert isinstance(store, SqliteStore)
    for names, each in ((STORE, store), (DATABASE, store.database), (DATABASE, ledger.tables.database)):
        for name in names:
            plain = getattr(each, name)

            async def shuffled(*words: Any, plain: Any = plain, **options: Any) -> Any:
                await _wait(chance)
                answer = await plain(*words, **options)
                await _wait(chance)
                return answer

            setattr(each, name, shuffled)


async def _wait(chance: random.Random) -> None:
    while chance.random() < 0.4:
        await asyncio.sleep(0.001 if chance.random() < 0.1 else 0)


class Writers:
    """Does what is asked for over a ledger, and writes down what it was told."""

    def __init__(self, ledger: Ledger, diary: Diary, chance: random.Random, name: str) -> None:
        self._ledger, self._diary, self._chance, self._name = ledger, diary, chance, name
        self._numbers = 0

    async def do(self, what: str, conversation: str, message_id: str | None) -> None:
        """A refusal is an answer, too."""
        self._numbers += 1
        word = f"{self._name}.{self._numbers}"
        with suppress(LedgerError):
            await self._do(what, conversation, message_id, word)

    async def _do(self, what: str, conversation: str, message_id: str | None, word: str) -> None:
        ledger, call = self._ledger, self._diary.call
        if what == "erase":
            await call("erase", conversation, ledger.erase(conversation))
        elif what == "describe":
            await call("describe", conversation, ledger.describe(conversation, title=word), title=word)
        elif what == "record":
            event = new("custom", name=word)
            await call("record", conversation, self._record(conversation, event), data=event.data.decode())
        elif what == "annotate" and message_id:
            await call("annotate", conversation, ledger.annotate(conversation, message_id, {word: 1}), message=message_id)
        elif what == "redact" and message_id:
            text = f"redacted {word}"
            redacting = ledger.redact(conversation, message_id, [Block("text", text=text)])
            await call("redact", conversation, redacting, message=message_id, text=text)
        elif what in {"begin", "flush", "talk", "fork"}:
            await self._talk(what, conversation, message_id, word)

    async def _record(self, conversation: str, event: Any) -> int:
        return (await self._ledger.record(conversation, [event])).last_seq

    async def _talk(self, what: str, conversation: str, message_id: str | None, run_id: str) -> None:
        call = self._diary.call
        options: Any = {"parent": message_id} if what == "fork" else self._chance.choice([{}, {"parent": None}])
        run = await call("begin", conversation, self._ledger.begin_run(conversation, run_id=run_id, **options), run=run_id)
        try:
            for number in range(0 if what == "begin" else 2):
                text = f"{run_id} says {number}"
                await call("message", conversation, run.message("user", text), run=run_id, text=text)
                if what == "flush" or self._chance.random() < 0.5:
                    await call("flush", conversation, run.flush(), run=run_id)
            if what in {"talk", "fork"}:
                await call("finish", conversation, run.finish(), run=run_id)
        finally:
            with suppress(LedgerError, StreamError):
                await run.close()


async def read_all(ledger: Ledger, conversation: str, floor: int) -> list[Event]:
    events: list[Event] = []
    while page := await ledger.store.read(conversation, after=events[-1].seq if events else floor):
        events += page
    return events


async def check_all(ledger: Ledger, folder: Path, conversations: list[str]) -> int:
    """How many runs were acknowledged; fails where one is lost, or something is left of what was erased."""
    calls, acknowledged = read_diaries(folder), 0
    odd = [call for call in calls if call.error and not call.error.startswith(REFUSALS)]
    assert odd == []
    for conversation in conversations:
        told = Told(conversation, calls)
        transcript = await ledger.transcript(conversation, branch="all")
        floor = (await ledger.store.bounds(conversation)).floor
        events = await read_all(ledger, conversation, floor)
        run_ids = {run.run_id async for run in ledger.runs(conversation)}
        info = await ledger.tables.conversation(conversation)
        assert info is not None
        assert told.check_runs(transcript) == []
        assert told.check_known(run_ids) == []
        assert told.check_recorded(events, floor) == []
        assert told.check_described(info.title) == []
        assert await wrong(ledger, conversation) == []
        acknowledged += sum(fate.lives for fate in told.fates())
    return acknowledged


async def clean(*_: object) -> None:
    """The files are; that is another test's."""


async def intend_and_die(ledger: Ledger, diary: Diary, conversation: str) -> None:
    """What is left of an erasure whose process was killed when it had said what it wants."""
    bounds = await ledger.store.bounds(conversation)
    seen = (await ledger.tables.position(conversation)).erased
    await diary.call("intend", conversation, erasure.begin_erasure(ledger.tables, conversation, bounds, seen))


@pytest.mark.parametrize("place", ["one file", "two files"])
async def test_who_writes_beside_an_erase_is_told_or_lives_whole(
    tmp_path: Path, chance: random.Random, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_clean_files", clean)
    monkeypatch.setattr(erasure, "_POLL_S", 0.001)
    acknowledged = 0
    async with open_at(tmp_path, place) as one, open_at(tmp_path, place) as two:
        for ledger in (one, two):
            shuffle(ledger, chance)
        for number in range(ROUNDS // 2):
            conversation, folder = f"c{number}", tmp_path / f"{number}"
            folder.mkdir()
            monkeypatch.setattr(erasure, "_CLAIM_MS", chance.choice([0, 5, 5000]))
            with watched(diary := Diary(folder / "one.diary")):
                first, second = Writers(one, diary, chance, "one"), Writers(two, diary, chance, "two")
                message_id = None
                async with one.run(conversation) as run:
                    message_id = await run.message("user", "old")
                if chance.random() < 0.5:
                    await first.do("talk", conversation, None)
                erases = chance.choice([0, 1, 1, 2])
                if erases == 0 or chance.random() < 0.3:
                    await intend_and_die(one, diary, conversation)
                jobs = [(chance.choice([first, second]), "erase") for _ in range(erases)]
                jobs += [(chance.choice([first, second]), chance.choice(WRITERS)) for _ in range(chance.randint(1, 4))]
                with anyio.fail_after(LIMIT_S):
                    await asyncio.gather(*(_later(chance, each.do(what, conversation, message_id)) for each, what in jobs))
            try:
                acknowledged += await check_all(chance.choice([one, two]), folder, [conversation])
            except BaseException as error:
                error.add_note(f"round {number}: {[what for _, what in jobs]}")
                raise
    print(f"{ROUNDS // 2} rounds in {place}, {acknowledged} runs acknowledged that live")
    assert acknowledged > 0


async def _later(chance: random.Random, work: Any) -> None:
    for _ in range(chance.choice([0, 0, 5, 20, 60])):
        await asyncio.sleep(0)
    await work


async def write_beside(_parent: Parent, folder: str, seed: int, rounds: int, erases: bool) -> None:  # noqa: FBT001 - an argument of a process
    chance, diary = random.Random(seed), Diary(f"{folder}/{seed}.diary")
    with watched(diary), patch.object(erasure, "_clean_files", clean):
        async with open_at(folder, "one file") as ledger:
            writers = Writers(ledger, diary, chance, f"{seed}")
            for _ in range(rounds):
                message_ids = [message.id for message in await ledger.transcript("c")] if chance.random() < 0.5 else []
                what = "erase" if erases else chance.choice([*WRITERS[2:]])
                await writers.do(what, "c", chance.choice(message_ids) if message_ids else None)


async def test_processes_that_write_beside_processes_that_erase_are_told_or_live_whole(
    tmp_path: Path, chance: random.Random
) -> None:
    async with open_at(tmp_path, "one file") as ledger:
        await ledger.describe("c", title=None, archived=False)
    rounds = size(smoke=15, full=250)
    seeds = [chance.randrange(10**6) for _ in range(3)]
    lives = [(str(tmp_path), seed, rounds, number == 0) for number, seed in enumerate(seeds)]
    await asyncio.to_thread(together, write_beside, lives)
    async with open_at(tmp_path, "one file") as ledger:
        print(f"{await check_all(ledger, tmp_path, ['c'])} runs acknowledged that live")


def test_canary_a_model_that_is_told_of_a_run_that_is_gone_says_so(tmp_path: Path) -> None:
    async def finish() -> None:
        diary = Diary(tmp_path / "one.diary")
        await diary.call("begin", "c", asyncio.sleep(0), run="r")
        await diary.call("message", "c", asyncio.sleep(0, "r.1"), run="r", text="said")
        await diary.call("finish", "c", asyncio.sleep(0), run="r")

    asyncio.run(finish())
    told = Told("c", read_diaries(tmp_path))
    assert len(told.check_runs([])) == len(told.check_known(set())) == 1
    assert RunEnded.__name__ in REFUSALS
