"""Erasing beside processes that erase, talk, or die: each conversation has one life after the other (law 15)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger import LedgerError, erasure
from stream import StoreBusy, StreamError
from stream.sqlite import SqliteStore, vacuum
from tests.faults.children import Child, Parent, together
from tests.needles import PLACES, everything, fill, found, open_at, say, texts, wrong
from tests.talk import new

if TYPE_CHECKING:
    from pathlib import Path

    from stream import Event
    from stream.sqlite import Database

pytestmark = pytest.mark.anyio


async def erase_all(_: Parent, folder: str, place: str, conversations: list[str]) -> list[Any]:
    async with open_at(folder, place) as ledger:
        return [await ledger.erase(conversation) for conversation in conversations]


@pytest.mark.parametrize("place", PLACES)
async def test_processes_that_erase_at_once_tell_the_same_and_do_it_once(tmp_path: Path, place: str) -> None:
    conversations = [f"c{number}" for number in range(2)]
    async with open_at(tmp_path, place) as ledger:
        for conversation in (*conversations, "other"):
            await fill(ledger, conversation)
        kept = await everything(ledger, "other")
    told = await asyncio.to_thread(together, erase_all, [(str(tmp_path), place, conversations)] * 3)
    assert {(each.messages, each.runs) for of_one in told for each in of_one} == {(8, 5)}
    async with open_at(tmp_path, place) as ledger:
        assert await everything(ledger, "other") == kept
        for conversation in conversations:
            assert await texts(ledger, conversation) == []
            await say(ledger, "again", conversation)
            assert await texts(ledger, conversation) == ["again"]
            assert found(tmp_path, conversation) == set()
        assert await wrong(ledger) == []


async def talk_on(parent: Parent, folder: str, place: str, runs: int) -> dict[str, Any]:
    """Begins, forks and ends runs, here and in another conversation; when each began and ended, and what was refused."""
    ended: dict[str, tuple[float, float]] = {}
    refused: list[str] = []
    last = None
    async with open_at(folder, place) as ledger:
        parent.say("begun")
        for number in range(runs):
            began = time.monotonic()
            try:
                last = await say(ledger, f"text {number}", parent=None if last is None or number % 3 == 0 else last)
                ended[f"text {number}"] = (began, time.monotonic())
            except (LedgerError, StreamError) as error:
                refused.append(type(error).__name__)
                last = None
            await say(ledger, f"text {number}", "other")
    return {"ended": ended, "refused": refused}


@pytest.mark.parametrize("place", PLACES)
async def test_runs_that_begin_and_fork_beside_an_erase_are_refused_or_belong_to_the_new_life(
    tmp_path: Path, place: str
) -> None:
    runs, erased = 60, (0.0, 0.0)
    async with open_at(tmp_path, place) as ledger:
        await fill(ledger, "c")
        child = Child(talk_on, str(tmp_path), place, runs)
        try:
            child.say("go")
            assert await asyncio.to_thread(child.hear) == "begun"
            for number in range(6):
                await asyncio.sleep(number % 3 * 0.05)  # so that some runs come to an end between two of them
                began = time.monotonic()
                await ledger.erase("c")
                erased = (began, time.monotonic())
            told = await asyncio.to_thread(child.result)
        finally:
            child.end()
        there = {message.text for message in await ledger.transcript("c", branch="all")}
        ended = told["ended"]
        print(f"{len(ended)} runs ended, refused: {told['refused']}, there: {len(there)}")
        assert there >= {text for text, (begun, _) in ended.items() if begun > erased[1]}
        assert there <= {text for text, (_, done) in ended.items() if done > erased[0]}
        assert set(told["refused"]) <= {"RunLost", "UnknownMessage"}
        assert await texts(ledger, "other") == [f"text {number}" for number in range(runs)]
        assert await wrong(ledger) == []
        assert found(tmp_path, "c") == set()


async def busy(*_: object) -> bool:
    raise StoreBusy("held by another process")


@pytest.mark.parametrize("place", PLACES)
async def test_an_erase_that_died_before_the_files_were_clean_is_finished_by_a_process_that_was_open_then(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(tmp_path, place) as open_before:
        await fill(open_before, "c")
        async with open_at(tmp_path, place) as dying:
            assert isinstance(dying.store, SqliteStore)
            with monkeypatch.context() as patched:
                patched.setattr(erasure, "_CLAIM_MS", 0)
                patched.setattr(erasure, "_clean_files", busy)
                patched.setattr(dying.store._sweeper, "_sweep_slice", busy)
                with pytest.raises(StoreBusy):
                    await dying.erase("c")
            assert found(tmp_path, "c") != set()
            await open_before.record("c", [new("custom", kept=True)])
            assert await open_before.transcript("c") == []
            assert found(tmp_path, "c") == set()
            assert [event.type for event in await dying.store.read("c", after=(await dying.store.bounds("c")).floor)] == [
                "conversation.erased",
                "custom",
            ]


async def test_files_that_take_longer_to_clean_than_a_claim_lasts_are_cleaned_by_some_and_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean, times = vacuum.clean_file, 0

    async def clean_slowly(database: Database) -> str | None:
        nonlocal times
        times += 1
        await asyncio.sleep(0.3)
        return await clean(database)

    monkeypatch.setattr(erasure, "_CLAIM_MS", 50)
    monkeypatch.setattr(erasure, "clean_file", clean_slowly)
    async with open_at(tmp_path) as one, open_at(tmp_path) as two, open_at(tmp_path) as three:
        await fill(one, "c")
        with anyio.fail_after(30):
            erasing = asyncio.create_task(one.erase("c"))
            while not erasure.is_pending((await two.tables.position("c")).erased):
                await asyncio.sleep(0)
            assert list(await asyncio.gather(two.transcript("c"), three.transcript("c"))) == [[], []]
            assert (await erasing).is_proven
        assert times <= 3
        assert found(tmp_path, "c") == set()


async def test_a_run_that_begins_while_an_erase_shuts_writers_out_belongs_to_the_new_life(tmp_path: Path) -> None:
    async with open_at(tmp_path, "two files") as ledger, open_at(tmp_path, "two files") as other:
        await say(ledger, "old")
        store, tables = ledger.store, other.engine.tables
        read = store.read

        async def shut_out(*asked: Any, **more: Any) -> list[Event]:
            """The ledger's position was looked at before, and is older than this page of the log."""
            monkeypatch.undo()
            await erasure.begin_erasure(tables, "c", 1)
            assert await erasure._shut_out_writers(other.store, tables, "c")
            return await read(*asked, **more)

        monkeypatch = pytest.MonkeyPatch()
        monkeypatch.setattr(store, "read", shut_out)
        run = await ledger.begin_run("c")
        await erasure.finish_erasure(other.store, tables, "c")
        await run.message("user", "new")
        await run.finish()
        assert await texts(ledger, "c") == ["new"]
