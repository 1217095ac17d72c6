"""Erase is real: nothing of a conversation is left in the raw bytes of any file, and all others are whole (law 15)."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ledger import (
    Ledger,
    RunExists,
    RunLost,
    UnknownConversation,
    UnknownMedia,
    UnknownMessage,
    erasure,
    open_ledger,
)
from stream import NewEvent, StoreBusy, StoreFull
from stream.sqlite import SqliteStore, vacuum
from tests.faults.children import Child, Parent
from tests.needles import (
    KINDS,
    PATTERN,
    PLACES,
    PROJECTORS,
    everything,
    fill,
    found,
    media_id_of,
    media_of,
    needle,
    open_at,
    say,
    texts,
    wrong,
)
from tests.raw_bytes import readable
from tests.sqlite_files import database_of
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from pathlib import Path

    from stream.sqlite import Database

pytestmark = pytest.mark.anyio


async def count_chunks(ledger: Ledger) -> int:
    assert isinstance(ledger.store, SqliteStore)
    text = "SELECT count(*) FROM chunks WHERE stream = (SELECT id FROM streams WHERE name = 'c')"
    return int((await ledger.store.database.read(text))[0][0])


async def empty_wal_only(database: Database) -> None:
    """Instead of writing a file anew."""
    assert await vacuum._empty_wal(database, 2)


async def test_a_single_page_that_is_left_is_found_though_it_is_compressed(tmp_path: Path) -> None:
    """Or all that is proven below would be proven of what nobody sees."""
    async with open_at(tmp_path) as ledger:
        await fill(ledger, "c", deltas=300)
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as raw:
        [(page_bytes,)] = raw.execute("PRAGMA page_size")
        [(chunk,)] = raw.execute("SELECT data FROM chunks WHERE substr(data, 1, 1) = x'78' LIMIT 1")
    held = path.read_bytes()
    begin = held.index(chunk[:256]) // page_bytes * page_bytes
    (tmp_path / "left").write_bytes(held[begin : begin + page_bytes])
    assert not PATTERN.findall((tmp_path / "left").read_bytes())
    assert "answer" in found(tmp_path, "c", "left")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("deltas", [3, 300], ids=["unpacked", "packed"])
@pytest.mark.parametrize("log", ["whole", "compacted"])
@pytest.mark.heavy
async def test_nothing_of_an_erased_conversation_is_left_in_any_file_and_the_others_are_whole(
    tmp_path: Path, place: str, deltas: int, log: str
) -> None:
    others = [f"other{number}" for number in range(3)]
    async with open_at(tmp_path, place) as ledger:
        for conversation in ("c", *others):
            await fill(ledger, conversation, deltas=deltas if conversation == "c" else 3)
        assert bool(await count_chunks(ledger)) == (deltas == 300)
        assert found(tmp_path, "c") == KINDS | {"digest"}  # it could be found, before
        if log == "compacted":
            for conversation in ("c", "other0"):
                assert (await ledger.compact(conversation)).floor > 0
            assert "snapshot" in found(tmp_path, "c")
        [before, *kept] = [await everything(ledger, conversation) for conversation in ("c", *others)]
        head = (await ledger.store.bounds("c")).head

        told = await ledger.erase("c")

        assert found(tmp_path, "c") == set()
        assert (told.is_proven, told.why, told.events) == (True, None, head)
        info = await ledger.tables.conversation("c")
        assert info is not None
        assert info.erased is not None
        assert (told.messages, told.runs) == (info.erased["messages"], info.erased["runs"]) == (8, 5)
        assert (info.title, info.metadata_text, info.leaf, info.messages, info.runs) == (None, {}, None, 0, 0)
        assert (before[-1].messages, before[-1].runs) == (8, 5)
        assert await ledger.transcript("c", branch="all") == []
        assert [run async for run in ledger.runs("c")] == []
        assert await ledger.open_runs("c") == []
        assert [await everything(ledger, conversation) for conversation in others] == kept
        assert (await ledger.media(media_id_of(others[0]))).data == media_of(others[0])
        assert await wrong(ledger) == []
    assert found(tmp_path, "c") == set()
    async with open_at(tmp_path, place) as ledger:
        assert [await everything(ledger, conversation) for conversation in others] == kept


@pytest.mark.parametrize("place", ["memory", *PLACES])
async def test_a_conversation_goes_on_after_an_erase_behind_its_old_numbers_and_a_second_erase_is_harmless(
    tmp_path: Path, place: str
) -> None:
    async with open_ledger("memory:", projectors=PROJECTORS) if place == "memory" else open_at(tmp_path, place) as ledger:
        await fill(ledger, "c")
        head = (await ledger.store.bounds("c")).head
        first = await ledger.erase("c")
        assert (first.messages, first.runs, first.is_proven) == (8, 5, True)
        with pytest.raises(RunExists):
            await ledger.begin_run("c", run_id="turn0")
        with pytest.raises(UnknownMessage):
            await ledger.fork("c", "turn0.1")
        async with ledger.run("c") as run:
            assert run.acknowledged_seq > head
            message_id = await run.message("user", needle("c", "second"))
        await ledger.describe("c", title="a new life")
        [message] = await ledger.transcript("c")
        assert (message.id, message.parent_id) == (message_id, None)
        assert [info.title async for info in ledger.conversations()] == ["a new life"]
        again = [await ledger.erase("c") for _ in range(3)]
        assert {(told.messages, told.runs, told.is_proven) for told in again} == {(9, 6, True)}
        assert await texts(ledger) == []
        if place != "memory":
            assert found(tmp_path, "c") == set()
        await say(ledger, "still here")
        assert await texts(ledger) == ["still here"]
        assert await wrong(ledger) == []


async def test_what_is_not_known_is_not_erased(tmp_path: Path) -> None:
    async with open_at(tmp_path) as ledger:
        await say(ledger, "hello")
        with pytest.raises(UnknownConversation):
            await ledger.erase("nobody")
        assert [info.conversation async for info in ledger.conversations()] == ["c"]
        assert await texts(ledger) == ["hello"]


@pytest.mark.parametrize("place", PLACES)
async def test_media_stay_until_the_last_conversation_that_has_them_is_erased(tmp_path: Path, place: str) -> None:
    async with open_at(tmp_path, place) as ledger:
        ids = [await ledger.add_media(conversation, media_of("shared"), "image/png") for conversation in ("c", "d")]
        own = await ledger.add_media("c", media_of("c"), "image/png")
        await ledger.erase("c")
        with pytest.raises(UnknownMedia):
            await ledger.media(own)
        assert (await ledger.media(ids[0])).data == media_of("shared")
        assert (found(tmp_path, "c"), found(tmp_path, "shared")) == (set(), {"media", "digest"})
        await ledger.erase("d")
        assert found(tmp_path, "shared") == set()
        assert await ledger.add_media("d", media_of("shared"), "image/png") == ids[1]


@pytest.mark.parametrize("place", PLACES)
async def test_a_writer_under_way_is_told_so_and_nothing_of_what_it_says_later_is_kept(tmp_path: Path, place: str) -> None:
    async with open_at(tmp_path, place) as ledger, open_at(tmp_path, place) as elsewhere:
        run = await ledger.begin_run("c", run_id="r", flush_ms=10_000)
        await run.message("user", needle("c", "question"))
        await run.flush()
        await run.text(needle("c", "waiting"))
        assert (await elsewhere.erase("c")).is_proven
        await run.text(needle("c", "late"))
        with pytest.raises(RunLost, match="erased"):
            await run.flush()
        with pytest.raises(RunLost):
            await run.finish()
        assert found(tmp_path, "c") == set()
        await say(ledger, "next")
        assert [await texts(each) for each in (ledger, elsewhere)] == [["next"], ["next"]]


async def hold_a_read(parent: Parent, path: str) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("BEGIN")
        raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        parent.say("reading")
        await parent.hear()


@pytest.mark.parametrize(("place", "held"), [("one file", "ledger"), ("two files", "ledger"), ("two files", "log")])
async def test_while_another_process_reads_old_pages_an_erase_is_not_proven_and_says_why(
    tmp_path: Path, place: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "_CHECKPOINT_S", 0.2)
    path = tmp_path / f"{held}.db"
    async with open_at(tmp_path, place) as ledger:
        await fill(ledger, "c")
        await say(ledger, "kept", "other")
        child = Child(hold_a_read, str(path))
        try:
            child.say("go")
            assert await asyncio.to_thread(child.hear) == "reading"
            told = await ledger.erase("c")
            assert not told.is_proven
            assert str(path) in (told.why or "")
            assert await ledger.transcript("c", branch="all") == []
            assert found(tmp_path, "c") != set()
            if place == "two files":  # what nobody holds is clean at once
                (clean,) = {"ledger", "log"} - {held}
                assert found(tmp_path, "c", f"{clean}.db*") == set()
            await say(ledger, "goes on", "other")
        finally:
            child.say("enough")
            child.result()
        if place == "one file":
            assert isinstance(ledger.store, SqliteStore)
            await vacuum.vacuum(ledger.store)
            assert found(tmp_path, "c") == set()
        assert (await ledger.erase("c")).is_proven
        assert found(tmp_path, "c") == set()
        assert await texts(ledger, "other") == ["kept", "goes on"]


async def test_an_erase_without_room_to_write_the_file_anew_says_so_and_is_proven_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(tmp_path) as ledger:
        await fill(ledger, "c")
        plain = database_of(ledger)._execute

        def full(connection: Any, text: str, parameters: Any = ()) -> list[Any]:
            if text == "VACUUM":
                raise StoreFull("no room")
            return plain(connection, text, parameters)

        with monkeypatch.context() as patched:
            patched.setattr(database_of(ledger), "_execute", full)
            told = await ledger.erase("c")
        assert not told.is_proven
        assert "no room" in (told.why or "")
        assert await texts(ledger) == []
        assert (await ledger.erase("c")).is_proven
        assert found(tmp_path, "c") == set()


async def test_an_erase_whose_sweep_has_stopped_is_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_at(tmp_path) as ledger:
        await fill(ledger, "c")
        assert isinstance(ledger.store, SqliteStore)
        with monkeypatch.context() as patched:
            patched.setattr(ledger.store._sweeper, "_sweep_slice", busy)
            told = await ledger.erase("c")
        assert (told.is_proven, found(tmp_path, "c") != set()) == (False, True)
        assert "swept" in (told.why or "")
        assert (await ledger.erase("c")).is_proven
        assert found(tmp_path, "c") == set()


async def busy(*_: object) -> bool:
    raise StoreBusy("held by another process")


async def interleave(ledger: Ledger, seed: int) -> None:
    """Turns of three conversations side by side on the same pages, of sizes that make SQLite move rows between them."""
    sizes = random.Random(seed)
    say = {name: [needle(name, "record") * sizes.choice((1, 3, 10, 30, 60)) for _ in range(12)] for name in ("a", "b", "c")}
    for turn in range(12):
        for conversation, pieces in say.items():
            run, message = f"r{turn}", f"r{turn}.1"
            begun = new("message.started", run_id=run, message_id=message, role="user", created_at=0)
            events = [started(run), begun, *said(run, message, pieces[turn])[1:], finished(run)]
            await ledger.record(conversation, events)
            await ledger.catch_up(conversation)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.heavy
async def test_copies_that_sqlite_left_in_the_free_room_of_pages_are_gone_too(tmp_path: Path, place: str) -> None:
    """What is deleted is overwritten, but not the copies a page keeps of rows that were moved to its neighbour."""
    for seed in (42, 43, 69, 77):
        folder = tmp_path / str(seed)
        folder.mkdir()
        async with open_at(folder, place) as ledger:
            await interleave(ledger, seed)
            for conversation in ("b", "c"):
                assert (await ledger.erase(conversation)).is_proven
                assert found(folder, conversation) == set()
            assert len(await ledger.transcript("a", branch="all")) == 12


@pytest.mark.heavy
async def test_canary_copies_in_the_free_room_of_pages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "clean_file", empty_wal_only)
    left: set[str] = set()
    for seed in (42, 43, 69, 77):
        folder = tmp_path / str(seed)
        folder.mkdir()
        async with open_at(folder) as ledger:
            await interleave(ledger, seed)
            for conversation in ("b", "c"):
                await ledger.erase(conversation)
                left |= found(folder, conversation)
    assert left != set()


async def test_canary_what_is_deleted_and_not_overwritten_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "clean_file", empty_wal_only)
    async with open_at(tmp_path) as ledger:
        await fill(ledger, "c")
        await ledger.tables.database.write(lambda sql: sql("PRAGMA secure_delete = OFF"))
        assert (await ledger.erase("c")).is_proven
        assert found(tmp_path, "c") != set()


async def test_what_is_recorded_while_the_tombstone_is_set_belongs_to_the_new_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_CLAIM_MS", 50)  # who records waits for an erase that waits for him
    async with open_at(tmp_path) as ledger:
        await say(ledger, "old")
        delete = ledger.store.delete

        async def delete_and_record(conversation: str, *, expected_head: int) -> None:
            await delete(conversation, expected_head=expected_head)
            await ledger.record(conversation, [started("raw"), *said("raw", "raw.1", "new"), finished("raw")])

        monkeypatch.setattr(ledger.store, "delete", delete_and_record)
        await ledger.erase("c")
        assert await texts(ledger) == ["new"]
        assert await wrong(ledger) == []


async def test_a_conversation_whose_log_is_damaged_can_be_erased(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with open_ledger(str(path)) as ledger:
        async with ledger.run("c") as run:
            await run.message("user", "needle")
        await ledger.begin_run("c", run_id="open")
        await ledger.store.append("other", [NewEvent("t", b"{}")])
        damage = "UPDATE appends SET crc = crc + 1 WHERE stream = (SELECT id FROM streams WHERE name = 'c')"
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("DROP TRIGGER events_never_change")
            raw.execute(damage)
            raw.commit()
        ledger.forget("c")
        done = await ledger.erase("c")
        assert (done.is_proven, done.messages) == (True, 1)
        assert await ledger.transcript("c") == []
    assert b"needle" not in readable(path)


async def test_pages_ahead_of_a_message_off_the_path_are_its_own_branch_also_where_roots_are_lost() -> None:
    async with open_ledger("memory:") as ledger:
        for run_id, parent in (("p", None), ("a", "p.1"), ("a2", "a.1"), ("b", "p.1"), ("lost", "nowhere")):
            await ledger.record("c", [started(run_id, parent), *said(run_id, f"{run_id}.1", run_id), finished(run_id)])
        assert [message.id for message in await ledger.transcript("c")] == ["p.1", "b.1", "lost.1"]
        assert [message.id for message in await ledger.transcript("c", before="a2.1")] == ["p.1", "a.1"]
        assert [message.id for message in await ledger.transcript("c", before="lost.1")] == ["p.1", "b.1"]
