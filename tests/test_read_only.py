"""A ledger that is opened only to be looked at: all that was committed is there, and nothing is written anywhere."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import open_ledger
from ledger.erasure import begin_erasure
from ledger.upkeep.verify import verify
from stream import Snapshot, StoreBusy, StoreUnusable, follow
from stream.sqlite.statistics import StoreStatistics
from stream.sqlite.untouched import open_untouched
from tests.talk import finished, said, started

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger import Ledger

pytestmark = pytest.mark.anyio
FIXTURES: Final = Path(__file__).parent / "fixtures"


def state_of(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file of a folder by its content and the time of its last change, and when its list of names last changed."""
    files = {path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    return {".": ("", folder.stat().st_mtime_ns)} | files


async def leave(live: Path, folder: Path) -> None:
    """A folder as a program leaves it that is killed: a log that is in use, an open run, and more than was taken in."""
    live.mkdir()
    async with open_ledger(str(live / "chat.db"), durability="normal") as ledger:
        async with ledger.run("c", run_id="r1") as run:
            await run.message("user", "hello")
            await run.message("assistant", "hi")
        await ledger.store.append("c", [started("r2", "r1.2"), *said("r2", "r2.1", "behind"), finished("r2")])
        await ledger.store.append("c", [started("r3", "r2.1"), *said("r3", "r3.1", "half")])
        shutil.copytree(live, folder)


@pytest.fixture(scope="session")
def once_left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once")
    asyncio.run(leave(folder / "live", folder / "left"))
    return folder / "left"


@pytest.fixture
def left(once_left: Path, tmp_path: Path) -> Path:
    shutil.copytree(once_left, tmp_path / "left")
    return tmp_path / "left"


async def look(ledger: Ledger) -> tuple[list[str], list[str]]:
    path = [message.id for message in await ledger.transcript("c")]
    return path, [run.run_id for run in await ledger.open_runs("c")]


ALL: Final = (["r1.1", "r1.2", "r2.1"], ["r3"])


@pytest.mark.parametrize("gone", [(), ("chat.db-shm",)], ids=["with the index of its log", "with its log alone"])
async def test_what_lies_in_the_log_beside_it_is_read_and_nothing_is_written(left: Path, gone: tuple[str, ...]) -> None:
    for name in gone:
        (left / name).unlink()
    before = state_of(left)
    assert "chat.db-wal" in before
    async with open_ledger(str(left / "chat.db"), read_only=True) as ledger:
        assert [finding.kind async for finding in ledger.reconcile()] == ["behind"]
        assert await look(ledger) == ALL
        assert [run.run_id async for run in ledger.runs()] == ["r1", "r2", "r3"]
        assert len(await ledger.store.read("c")) == (await ledger.store.bounds("c")).head
        assert [finding async for finding in verify(ledger)] == []
        counted = await ledger.statistics()
        assert isinstance(counted, StoreStatistics)
        assert counted.wal_bytes > 0
        assert (await ledger.context("c")).view.messages
        assert (await ledger.compact("c", dry_run=True)).floor > 0
        await ledger.backup(str(left.parent / "copy.db"))
    assert state_of(left) == before
    async with open_ledger(str(left.parent / "copy.db")) as ledger:
        assert await look(ledger) == ALL


async def test_a_file_that_was_closed_is_read_alone(left: Path) -> None:
    async with open_ledger(str(left / "chat.db")):
        pass
    before = state_of(left)
    assert set(before) == {".", "chat.db"}
    async with open_ledger(str(left / "chat.db"), read_only=True) as ledger:
        assert await look(ledger) == ALL
    assert state_of(left) == before


async def test_what_a_killed_transaction_has_half_written_is_not_shown(left: Path) -> None:
    """A journal beside the file undoes it: here in the copy, as the next writer does it in the file."""
    async with open_ledger(str(left / "chat.db")):
        pass
    path, torn = left / "chat.db", left.parent / "torn"
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        raw.execute("PRAGMA cache_size = 1")
        raw.execute("BEGIN")
        raw.execute("PRAGMA cache_spill = 1")
        raw.execute("CREATE TABLE noise (text)")
        raw.executemany("INSERT INTO noise VALUES (?)", [("x" * 3000,) for _ in range(200)])
        raw.execute("UPDATE conversations SET title = 'half done'")
        raw.executemany("INSERT INTO noise VALUES (?)", [("x" * 3000,) for _ in range(200)])
        shutil.copytree(left, torn)
        raw.execute("ROLLBACK")
    before = state_of(torn)
    assert "chat.db-journal" in before
    async with open_ledger(str(torn / "chat.db"), read_only=True) as ledger:
        assert await look(ledger) == ALL
        assert [info.title async for info in ledger.conversations()] == [None]
    assert state_of(torn) == before


async def test_a_log_that_can_not_be_read_is_named_and_not_passed_over(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: not str(name).endswith("-wal") and access(name, mode))
    with pytest.raises(StoreUnusable, match=r"chat\.db-wal can't be read: give this user access"):
        await open_ledger(str(left / "chat.db"), read_only=True)


async def test_whatever_would_change_something_is_refused_by_name(left: Path) -> None:
    before = state_of(left)
    (left.parent / "in.json").write_text('[{"role": "user", "content": "x"}]')
    async with open_ledger(str(left / "chat.db"), read_only=True) as ledger:
        context = await ledger.context("c")
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: ledger.begin_run("c"),
            lambda: ledger.begin_run("new"),
            lambda: ledger.fork("c", "r1.1").__aenter__(),
            lambda: ledger.record("c", [finished("r3")]),
            lambda: ledger.import_file(left.parent / "in.json"),
            lambda: ledger.select("c", "r1.1"),
            lambda: ledger.annotate("c", "r1.1", {}),
            lambda: ledger.redact("c", "r1.1"),
            lambda: ledger.describe("c", title="x"),
            lambda: ledger.add_media("c", b"x", "image/png"),
            lambda: ledger.expand(context, "r1.1"),
            lambda: ledger.recover("c", "r3", "commit"),
            lambda: ledger.cancel("c", "r3"),
            lambda: ledger.compact("c"),
            lambda: ledger.erase("c"),
            lambda: anext(aiter(ledger.reconcile(repair=True))),
            lambda: ledger.hold("c").__aenter__(),
            lambda: ledger.store.append("c", [finished("r3")]),
            lambda: ledger.store.snapshots.save(Snapshot("c", "mine", 1, 1, 0, b"x")),
            lambda: ledger.store.snapshots.delete("c", "mine"),
            lambda: ledger.store.adopt("new", []),
            lambda: ledger.store.truncate("c", through=1),
            lambda: ledger.store.delete("c"),
        ]
        for number, call in enumerate(calls):
            with pytest.raises(StoreUnusable, match=r"only to be looked at \(read_only\)"):
                await call()
            assert await look(ledger) == ALL, number
    assert state_of(left) == before


async def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="there is no such file"):
        await open_ledger(str(tmp_path / "none.db"), read_only=True)
    with pytest.raises(ValueError, match="begins empty"):
        open_ledger("memory:", read_only=True)
    (tmp_path / "other.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(StoreUnusable):
        await open_ledger(str(tmp_path / "other.db"), read_only=True)
    assert {path.name for path in tmp_path.iterdir()} == {"other.db"}


async def test_a_ledger_and_its_log_in_two_files_are_looked_at_together(tmp_path: Path) -> None:
    place, log = tmp_path / "ledger.db", tmp_path / "log.db"
    async with open_ledger(str(place), log=str(log)) as ledger, ledger.run("c", run_id="r1") as run:
        await run.message("user", "hello")
    before = state_of(tmp_path)
    async with open_ledger(str(place), log=str(log), read_only=True) as ledger:
        assert await look(ledger) == (["r1.1"], [])
        with pytest.raises(StoreUnusable, match="only to be looked at"):
            await ledger.begin_run("c")
    assert state_of(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["version_1", *(pytest.param(each, marks=pytest.mark.heavy) for each in ("version_3", "version_6"))]
)
async def test_an_older_file_is_read_and_stays_old(tmp_path: Path, name: str) -> None:
    path = tmp_path / "in" / "chat.db"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress((FIXTURES / f"{name}.db.gz").read_bytes()))
    before = state_of(path.parent)
    async with open_ledger(str(path), read_only=True) as ledger:
        seen = [(info, await ledger.transcript(info.conversation)) async for info in ledger.conversations()]
    assert state_of(path.parent) == before
    async with open_ledger(str(path)) as ledger:
        assert seen == [(info, await ledger.transcript(info.conversation)) async for info in ledger.conversations()]
    assert seen


async def test_a_newer_file_is_refused_by_name(left: Path) -> None:
    with closing(sqlite3.connect(left / "chat.db")) as raw, raw:
        raw.execute("UPDATE components SET version = 99 WHERE name = 'ledger'")
    with pytest.raises(StoreUnusable, match="upgrade Tailfold"):
        await open_ledger(str(left / "chat.db"), read_only=True)


async def test_who_follows_is_told_of_what_others_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "chat.db")
    async with open_ledger(path, durability="normal") as writer:
        await writer.store.append("c", [started("r1")])
        async with open_ledger(path, read_only=True) as ledger, asyncio.timeout(20):
            events = follow(ledger.store, "c", after=0)
            assert (await anext(events)).seq == 1
            coming = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            assert not coming.done()
            await writer.store.append("c", [finished("r1")])
            assert (await coming).type == "run.finished"
            assert [run.outcome async for run in ledger.runs()] == ["completed"]


async def test_a_file_that_is_written_while_it_is_read_is_read_again(left: Path) -> None:
    """Without a log beside it nothing keeps others from writing; so what was read half is not taken for whole."""
    async with open_ledger(str(left / "chat.db")):
        pass
    place = str(left / "chat.db")
    with ExitStack() as stack:
        connection = stack.enter_context(open_untouched(place))
        assert connection.execute("SELECT count(*) FROM streams").fetchone() == (1,)
        async with open_ledger(place) as ledger:
            await ledger.store.append("d", [started("r9")])
        with pytest.raises(StoreBusy, match="try again"):
            stack.close()
    with open_untouched(place) as connection:
        assert connection.execute("SELECT count(*) FROM streams").fetchone() == (2,)


async def test_a_large_file_is_copied_to_one_without_a_name(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.sqlite.private_copy._MOST_IN_MEMORY_BYTES", 0)
    async with open_ledger(str(left / "chat.db"), read_only=True) as ledger:
        assert await look(ledger) == ALL
        [(file,)] = await ledger.tables.database.read("SELECT file FROM pragma_database_list WHERE name = 'main'")
        assert file == ""


async def test_an_erasure_that_was_begun_is_seen_as_done_and_is_left_to_others(left: Path) -> None:
    async with open_ledger(str(left / "chat.db")) as ledger:
        await ledger.catch_up("c")
        await begin_erasure(ledger.tables, "c", await ledger.store.bounds("c"), None)
    before = state_of(left)
    async with open_ledger(str(left / "chat.db"), read_only=True) as ledger:
        assert await look(ledger) == ([], [])
        assert [run.status async for run in ledger.runs("c")] == []
    assert state_of(left) == before
