"""Erasing beside processes that erase, talk, or die: each conversation has one life after the other (law 15)."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger import LedgerError, RunLost, UnknownMessage, catchup, erasure
from ledger.engine import Engine
from stream import StoreBusy, StreamError
from stream.sqlite import SqliteStore, vacuum
from tests.faults.children import Child, Parent, together
from tests.faults.sizes import FULL
from tests.needles import PLACES, everything, fill, found, open_at, say, texts, wrong
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from stream import Event
    from stream.sqlite import Database

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


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


async def test_a_run_that_begins_while_an_erase_shuts_writers_out_belongs_to_the_new_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_CLAIM_MS", 50)  # one that claims it here does no more
    async with open_at(tmp_path, "two files") as ledger, open_at(tmp_path, "two files") as other:
        await say(ledger, "old")
        store, tables = ledger.store, other.engine.tables
        read = store.read

        async def shut_out(*asked: Any, **more: Any) -> list[Event]:
            """The ledger's position was looked at before, and is older than this page of the log."""
            reading.undo()
            await erasure.begin_erasure(tables, "c", await other.store.bounds("c"), None)
            assert (await erasure._claim(tables, "c", "claim")).claim == "claim"
            assert await erasure._shut_out_writers(other.store, tables, "c", "claim")
            return await read(*asked, **more)

        reading = pytest.MonkeyPatch()
        reading.setattr(store, "read", shut_out)
        run = await ledger.begin_run("c")
        await erasure.finish_erasure(other.store, tables, "c")
        await run.message("user", "new")
        await run.finish()
        assert await texts(ledger, "c") == ["new"]


class Stopping:
    """A store or tables whose n-th call, counted over all that share `calls`, waits until it is told to go on."""

    def __init__(self, wrapped: Any, calls: Calls) -> None:
        self._wrapped, self._calls = wrapped, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if name not in {"append", "bounds", "delete", "producer", "read", "transact", "truncate"}:
            return found

        async def stopping(*words: Any, **options: Any) -> Any:
            await self._calls.come()
            return await found(*words, **options)

        return stopping


class Calls:
    def __init__(self, stop_at: int) -> None:
        self._left = stop_at
        self.stopped, self.go_on = asyncio.Event(), asyncio.Event()

    async def come(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.stopped.set()
            await self.go_on.wait()


@pytest.mark.parametrize("place", PLACES)
async def test_who_was_stopped_anywhere_in_an_erase_and_goes_on_in_the_new_life_harms_nothing(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_CLAIM_MS", 0)
    monkeypatch.setattr(erasure, "_clean_files", done_before)
    stops = 0 if FULL else -random.randrange(3)
    async with open_at(tmp_path, place) as stopped, open_at(tmp_path, place) as other:
        while True:
            stops += 1 if FULL else 3
            conversation, calls = f"c{stops}", Calls(stops)
            await say(stopped, "old", conversation)
            left_open = await stopped.begin_run(conversation, parent=None)
            await left_open.message("user", "old")
            await left_open.flush()
            bounds = await stopped.store.bounds(conversation)
            await erasure.begin_erasure(stopped.tables, conversation, bounds, None)
            store: Any = Stopping(stopped.store, calls)
            tables: Any = Stopping(stopped.tables, calls)
            erasing = asyncio.create_task(erasure.finish_erasure(store, tables, conversation))
            waiting = asyncio.create_task(calls.stopped.wait())
            with anyio.fail_after(30):
                await asyncio.wait([erasing, waiting], return_when=asyncio.FIRST_COMPLETED)
            if erasing.done():
                waiting.cancel()
                break
            await erasure.finish_erasure(other.store, other.tables, conversation)
            other.forget(conversation)
            await say(other, "new", conversation)
            run = await other.begin_run(conversation, run_id="open")
            await run.message("user", "acknowledged")
            await run.flush()
            await other.compact(conversation)  # what was committed is in the ledger only
            floor = (await other.store.bounds(conversation)).floor
            there = await other.store.read(conversation, after=floor)
            calls.go_on.set()
            with anyio.fail_after(30):
                await erasing
            await run.finish()
            then = await other.store.read(conversation, after=floor)
            assert then[: len(there)] == there
            assert [event.type for event in then[len(there) :]] == ["run.finished"]
            assert await texts(other, conversation) == ["new", "acknowledged"]
            assert await wrong(other) == []
    assert stops > 10


@pytest.mark.parametrize("place", PLACES)
async def test_what_is_recorded_behind_a_deletion_stays_when_another_finishes_the_erase(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_CLAIM_MS", 0)
    async with open_at(tmp_path, place) as dying, open_at(tmp_path, place) as other:
        await say(dying, "old")
        with monkeypatch.context() as patched:
            patched.setattr(erasure, "_set_tombstone", busy)
            with pytest.raises(StoreBusy):
                await dying.erase("c")
        await other.record("c", [started("raw"), *said("raw", "raw.1", "new"), finished("raw")])
        assert await texts(other) == ["new"]
        assert await wrong(other) == []
        assert found(tmp_path, "c") == set()


async def test_a_writer_that_ends_is_told_when_its_conversation_was_erased_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(tmp_path) as ledger, open_at(tmp_path) as other:
        await say(ledger, "old")
        run = await ledger.begin_run("c")
        await run.message("user", "new")
        catch_up = Engine.catch_up

        async def erase_before(engine: Engine, conversation: str) -> Any:
            """Its end is in the log already, so the writer is not fenced."""
            monkeypatch.undo()
            await other.erase("c")
            return await catch_up(engine, conversation)

        monkeypatch.setattr(Engine, "catch_up", erase_before)
        with pytest.raises(RunLost, match="erased"):
            await run.finish()
        assert await texts(ledger) == []


async def done_before(*_: object) -> None:
    """The files are clean."""


async def test_what_is_said_after_an_erase_that_died_was_asked_for_stays(tmp_path: Path) -> None:
    async with open_at(tmp_path) as ledger:
        for number, say_it in enumerate((describe, archive, record, add_media)):
            conversation = f"c{number}"
            await say(ledger, "old", conversation)
            await erasure.begin_erasure(ledger.tables, conversation, await ledger.store.bounds(conversation), None)
            await say_it(ledger, conversation)
            assert await texts(ledger, conversation) == []
        for conversation in ("c0", "c1"):
            info = await ledger.tables.conversation(conversation)
            assert info is not None
            assert (info.title, info.archived) == (("new", False) if conversation == "c0" else (None, True))
        bounds = await ledger.store.bounds("c2")
        assert [event.type for event in await ledger.store.read("c2", after=bounds.floor)][-1] == "custom"
        assert (await ledger.media(hashlib.sha256(b"new").hexdigest())).data == b"new"
        with pytest.raises(UnknownMessage):
            await annotate_beside_an_erase(ledger)


async def describe(ledger: Ledger, conversation: str) -> None:
    await ledger.describe(conversation, title="new")


async def archive(ledger: Ledger, conversation: str) -> None:
    await ledger.describe(conversation, archived=True)


async def record(ledger: Ledger, conversation: str) -> None:
    await ledger.record(conversation, [new("custom", name="new")])
    assert await ledger.record(conversation, []) == await ledger.store.append(conversation, [])


async def add_media(ledger: Ledger, conversation: str) -> None:
    await ledger.add_media(conversation, b"new", "image/png")


async def annotate_beside_an_erase(ledger: Ledger) -> None:
    message_id = await say(ledger, "old", "beside")
    bounds, append = await ledger.store.bounds("beside"), ledger.store.append

    async def append_when_it_was_asked_for(*words: Any, **options: Any) -> Any:
        patched.undo()
        await erasure.begin_erasure(ledger.tables, "beside", bounds, None)
        return await append(*words, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ledger.store, "append", append_when_it_was_asked_for)
        await ledger.annotate("beside", message_id, {"rating": 1})


@pytest.mark.parametrize("moment", ["before it is saved", "before it is read back"])
async def test_a_catch_up_whose_conversation_is_erased_while_it_saves_its_snapshot_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(catchup, "_SNAPSHOT_EVERY_EVENTS", 1)
    async with open_at(tmp_path) as ledger, open_at(tmp_path) as other:
        snapshots = ledger.store.snapshots
        save = snapshots.save

        async def erase_meanwhile(snapshot: Any) -> bool:
            monkeypatch.undo()
            if moment == "before it is saved":
                await other.erase("c")
                return await save(snapshot)
            await save(snapshot)
            await other.erase("c")
            return True

        await ledger.record("c", [started("raw"), *said("raw", "raw.1", "old"), finished("raw")])
        monkeypatch.setattr(snapshots, "save", erase_meanwhile)
        await ledger.catch_up("c")
        assert await texts(ledger) == []
        await say(ledger, "new")
        assert await texts(ledger) == ["new"]
        assert await wrong(ledger) == []
