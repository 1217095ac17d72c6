"""A backup is whole or absent, whatever writes meanwhile; a restore makes a store of it and touches nothing else."""

from __future__ import annotations

import asyncio
import gzip
import os
import resource
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger import open_ledger
from ledger.upkeep.backup import known_scripts
from stream import NewEvent, Producer, Snapshot, StoreFull, StoreUnusable, StreamError, open_store
from stream.sqlite import SqliteStore
from stream.sqlite.backup import back_up, restore
from tests.raw_bytes import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Store

pytestmark = pytest.mark.anyio
KNOWN = known_scripts()


async def fill(path: Path, count: int = 3, size: int = 10) -> None:
    async with open_store(str(path)) as store:
        for number in range(count):
            await store.append("s", [NewEvent("t", os.urandom(size))], producer=Producer("p", 0, number))
        await store.append("gone", [NewEvent("t", b"x")])
        await store.truncate("s", through=1)
        await store.snapshots.save(Snapshot("s", "p", 1, count, 0, b"state"))
        await store.delete("gone")


async def contents(path: Path | str) -> list[object]:
    """All that a reader of the store can see."""
    async with open_store(str(path), create=False) as store:
        infos = [info async for info in store.streams()]
        events = [await store.read(info.stream_id, after=info.floor) for info in infos]
        return [infos, events, await store.producer("s", "p"), await store.snapshots.load("s", "p")]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_a_backup_is_restored_as_what_it_was(tmp_path: Path) -> None:
    path, copy, again = tmp_path / "log.db", tmp_path / "copy.db", tmp_path / "again.db"
    await fill(path)
    assert await back_up(str(path), str(copy)) == copy.stat().st_size
    before = copy.read_bytes()
    await restore(str(copy), str(again), KNOWN)
    assert copy.read_bytes() == before
    assert names(tmp_path) == {"log.db", "copy.db", "again.db"}
    assert await contents(again) == await contents(path)
    async with open_store(str(again)) as store:
        assert (await store.append("s", [NewEvent("t", b"next")], producer=Producer("p", 0, 3))).first_seq == 4
        assert (await store.append("gone", [NewEvent("t", b"next")])).first_seq == 2


async def test_a_backup_made_while_others_write_holds_one_moment(tmp_path: Path) -> None:
    """Two streams are always appended to in turn, so at no moment do their heads differ by more than one."""
    path = tmp_path / "log.db"
    await fill(path, size=200_000)
    stop = asyncio.Event()
    appended = during = 0

    async def write(store: Store) -> None:
        nonlocal appended
        while not stop.is_set():
            for stream_id in ("left", "right"):
                await store.append(stream_id, [NewEvent("t", b"x" * 100)])
                appended += 1

    async with open_store(str(path)) as store:
        writing = asyncio.create_task(write(store))
        for number in range(5):
            before, appended_before = (await store.bounds("right")).head, appended
            await back_up(str(path), str(tmp_path / f"{number}.db"))
            during += appended - appended_before
            async with open_store(str(tmp_path / f"{number}.db"), create=False) as copy:
                left, right = (await copy.bounds("left")).head, (await copy.bounds("right")).head
                assert before <= right <= left <= right + 1
                assert len(await copy.read("left", limit=10_000)) == left
        stop.set()
        await writing
    assert during > 0


async def test_a_backup_holds_no_byte_of_what_was_deleted(tmp_path: Path) -> None:
    path, canary = tmp_path / "log.db", os.urandom(64)
    async with open_store(str(path)) as store:
        assert isinstance(store, SqliteStore)
        await store.append("s", [NewEvent("t", canary)] * 50)
        await store.delete("s")
        await store.settle()
        await store.append("s", [NewEvent("t", b"x")])
        await back_up(str(path), str(tmp_path / "copy.db"))
    assert canary not in readable(tmp_path / "copy.db")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
async def test_a_copy_is_no_more_open_than_what_it_was_made_of(tmp_path: Path, mode: int) -> None:
    await fill(tmp_path / "log.db")
    (tmp_path / "log.db").chmod(mode | 0o600)
    await back_up(str(tmp_path / "log.db"), str(tmp_path / "copy.db"))
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == mode | 0o600
    (tmp_path / "copy.db").chmod(mode)
    await restore(str(tmp_path / "copy.db"), str(tmp_path / "again.db"), KNOWN)
    assert stat.S_IMODE((tmp_path / "again.db").stat().st_mode) == mode | 0o600


async def refused(job: object, *, kind: type[StreamError] = StoreUnusable) -> str:
    with pytest.raises(kind) as why:
        await job  # type: ignore[misc]
    return str(why.value)


async def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    await fill(path)
    await back_up(str(path), str(copy))
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "note").write_bytes(b"mine")
    before = {name: (tmp_path / name).read_bytes() for name in ("log.db", "copy.db", "note")}
    for name in ("log.db", "copy.db", "note", "link", "."):
        told = "there is something of this name"
        assert told in await refused(back_up(str(path), str(tmp_path / name)))
        assert told in await refused(restore(str(copy), str(tmp_path / name), KNOWN))
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert names(tmp_path) == {"log.db", "copy.db", "link", "note"}


async def test_an_empty_file_is_room_enough(tmp_path: Path) -> None:
    await fill(tmp_path / "log.db")
    for name in ("copy.db", "again.db"):
        (tmp_path / name).touch()
    await back_up(str(tmp_path / "log.db"), str(tmp_path / "copy.db"))
    await restore(str(tmp_path / "copy.db"), str(tmp_path / "again.db"), KNOWN)
    assert await contents(tmp_path / "again.db") == await contents(tmp_path / "log.db")


@pytest.mark.parametrize("side", ["-wal", "-journal", "-shm"])
async def test_the_log_of_another_database_is_never_taken_in(tmp_path: Path, side: str) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    await fill(path)
    await back_up(str(path), str(copy))
    (tmp_path / f"new.db{side}").write_bytes(b"of a store that is gone")
    for job in (back_up(str(path), str(tmp_path / "new.db")), restore(str(copy), str(tmp_path / "new.db"), KNOWN)):
        assert f"new.db{side} of another database lies beside it" in await refused(job)
    assert names(tmp_path) == {"log.db", "copy.db", f"new.db{side}"}


async def test_a_store_is_not_restored_under_a_process_that_has_it_open(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    async with open_store(str(path)) as store:
        await store.append("s", [NewEvent("t", b"x")])
        await back_up(str(path), str(copy))
        assert "there is something" in await refused(restore(str(copy), str(path), KNOWN))
        path.rename(tmp_path / "aside.db")
        assert "may be in use" in await refused(restore(str(copy), str(path), KNOWN))
        (tmp_path / "aside.db").rename(path)
        await store.append("s", [NewEvent("t", b"y")])
    assert len((await contents(path))[1][0]) == 2  # type: ignore[index]


async def test_a_store_that_is_in_use_is_no_backup(tmp_path: Path) -> None:
    await fill(tmp_path / "log.db")
    async with open_store(str(tmp_path / "log.db")):
        told = await refused(restore(str(tmp_path / "log.db"), str(tmp_path / "again.db"), KNOWN))
    assert "in use or was not closed" in told
    assert not (tmp_path / "again.db").exists()
    await restore(str(tmp_path / "log.db"), str(tmp_path / "again.db"), KNOWN)  # closed, it is as good as one


async def test_places_that_can_not_be_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path)
    for target, why in (
        ("no/copy.db", "folder does not exist"),
        ("x" * 300, "can't be written"),
        ("a\0b", "no NUL"),
    ):
        assert why in await refused(back_up(str(path), str(tmp_path / target)))
        assert why in await refused(restore(str(path), str(tmp_path / target), KNOWN))
    for backup, why in (("missing.db", "no such file"), (".", "no file"), ("a\0b", "no NUL")):
        assert why in await refused(restore(str(tmp_path / backup), str(tmp_path / "again.db"), KNOWN))
    for job in (back_up(str(path), ""), restore("", str(tmp_path / "again.db"), KNOWN), restore(str(path), "", KNOWN)):
        assert "''" in await refused(job)
    assert names(tmp_path) == {"log.db"}


def damage(path: Path) -> Iterator[tuple[str, bytes]]:
    """Ways a backup can be wrong, and how it looks then."""
    whole = path.read_bytes()
    yield "empty", b""
    yield "no Tailfold database", b"my diary\n" * 1000
    yield "damaged", whole[: len(whole) // 2]
    yield "damaged", whole[:4096] + bytes(4096) + whole[8192:]

    def changed(*statements: str) -> bytes:
        other = path.with_name("other.db")
        other.write_bytes(whole)
        with closing(sqlite3.connect(other)) as raw, raw:
            for statement in statements:
                raw.execute(statement)
        data = other.read_bytes()
        other.unlink()
        return data

    yield "no backup of a Tailfold database", changed("PRAGMA application_id = 1234")
    yield "upgrade Tailfold", changed("UPDATE components SET version = 99")
    yield "upgrade Tailfold", changed("INSERT INTO components VALUES ('media', 1)")
    yield "trigger events_never_change is missing", changed("DROP TRIGGER events_never_change")
    yield "trigger odd is none of ours", changed("CREATE TRIGGER odd AFTER INSERT ON chunks BEGIN SELECT 1; END")
    yield "fails its checksum", changed("UPDATE snapshots SET envelope = zeroblob(length(envelope))")
    yield "lies outside its events", changed("UPDATE snapshots SET last_seq = 99")
    yield "which incarnation", changed("DELETE FROM store")
    flip = "UPDATE appends SET data = zeroblob(length(data)) WHERE last = 2"
    with closing(sqlite3.connect(path)) as raw:
        [(sql,)] = raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'events_never_change'")
    yield "the checksum of events 2 to 2", changed("DROP TRIGGER events_never_change", flip, sql)


async def test_a_backup_that_is_damaged_makes_nothing(tmp_path: Path) -> None:
    path, bad = tmp_path / "log.db", tmp_path / "bad.db"
    await fill(path)
    count = 0
    for why, data in damage(path):
        bad.write_bytes(data)
        told = await refused(restore(str(bad), str(tmp_path / "again.db"), KNOWN))
        assert why in told
        assert str(bad) in told
        assert bad.read_bytes() == data
        assert names(tmp_path) == {"log.db", "bad.db"}
        count += 1
    assert count == 13


async def test_a_store_that_is_damaged_gives_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path, count=100, size=2000)
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as raw:
        [(root,)] = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'snapshots'")
    data[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    assert str(path) in await refused(back_up(str(path), str(tmp_path / "copy.db")))
    assert names(tmp_path) == {"log.db"}


async def test_a_backup_in_another_journal_mode_or_of_a_file_nobody_may_write_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    path.chmod(0o444)
    await restore(str(path), str(tmp_path / "again.db"), KNOWN)
    assert names(tmp_path) == {"log.db", "again.db"}
    path.chmod(0o644)
    assert await contents(tmp_path / "again.db") == await contents(path)


async def test_the_backup_of_an_older_version_is_restored_as_it_is(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    old.write_bytes(gzip.decompress((Path(__file__).parent / "fixtures" / "version_1.db.gz").read_bytes()))
    await restore(str(old), str(tmp_path / "again.db"), KNOWN)
    with closing(sqlite3.connect(tmp_path / "again.db")) as raw:
        assert dict(raw.execute("SELECT name, version FROM components")) == {"stream": 1, "ledger": 1}
    async with open_store(str(tmp_path / "again.db")) as store:
        assert (await store.bounds("whole")).head == 24


async def test_no_room_at_the_target_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    await fill(path, count=10, size=100_000)
    await back_up(str(path), str(copy))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 5000, 300_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        try:
            made = await refused(back_up(str(path), str(tmp_path / "new.db")), kind=StoreFull)
            restored = await refused(restore(str(copy), str(tmp_path / "new.db"), KNOWN), kind=StoreFull)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert f"{tmp_path / 'new.db'}: there is no room" in made
        assert f"{tmp_path / 'new.db'}: there is no room" in restored
        assert not [name for name in names(tmp_path) if name.startswith("new.db")]
    await back_up(str(path), str(tmp_path / "new.db"))


async def test_a_ledger_copies_and_counts_what_lies_in_one_file_and_no_other(tmp_path: Path) -> None:
    async with open_ledger(str(tmp_path / "chat.db")) as ledger:
        async with ledger.run("c") as run:
            await run.text("hello")
        assert await ledger.backup(str(tmp_path / "copy.db")) > 0
        assert (await ledger.statistics()).streams == 1
    async with open_ledger(str(tmp_path / "copy.db")) as copy:
        assert [message.text for message in await copy.transcript("c")] == ["hello"]
    async with open_ledger("memory:") as ledger:
        assert "has no file" in await refused(ledger.backup(str(tmp_path / "new.db")))
        assert "has no file" in await refused(ledger.statistics())
    async with open_ledger(str(tmp_path / "own.db"), log=str(tmp_path / "log.db")) as ledger:
        assert "a file of its own" in await refused(ledger.backup(str(tmp_path / "new.db")))
    assert not (tmp_path / "new.db").exists()
