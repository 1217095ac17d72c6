"""Erase against begins: whoever writes to a conversation that is erased is told, or lives whole in the new life."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import anyio
import pytest

from ledger import Ledger, RunEnded, erasure
from stream.sqlite import SqliteStore
from tests.faults.children import Parent, together
from tests.faults.history import Diary, read_diaries, watched
from tests.faults.sizes import size
from tests.faults.told import Told
from tests.faults.writers import REFUSALS, Writers, check_all, open_at

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.anyio
ROUNDS: Final = size(smoke=40, full=2000)
LIMIT_S: Final = 60
STORE: Final = ("append", "bounds", "delete", "producer", "read", "truncate")
DATABASE: Final = ("look", "read", "transact")
WRITERS: Final = ("begin", "flush", "talk", "talk", "talk", "fork", "annotate", "redact", "describe", "record")


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


async def clean(*_: object) -> None:
    """The files are; that is another test's."""


async def intend_and_die(ledger: Ledger, diary: Diary, conversation: str) -> None:
    """What is left of an erasure whose process was killed when it had said what it wants."""
    bounds = await ledger.store.bounds(conversation)
    seen = (await ledger.tables.position(conversation)).erased
    await diary.call("intend", conversation, erasure.begin_erasure(ledger.tables, conversation, bounds, seen))


@pytest.mark.parametrize("place", ["one file", "two files"])
@pytest.mark.heavy
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


@pytest.mark.heavy
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
