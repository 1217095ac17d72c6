"""A file has one name and stays in its place: whole paths, links, what lies beside it, what happens to it while it is open."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ledger import open_ledger
from ledger.upkeep.verify import verify
from stream import NewEvent, StoreUnusable, StreamError, open_store
from stream.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
EVENT = [NewEvent("t", b"x")]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def fill(path: Path) -> None:
    async with open_store(str(path)) as store:
        await store.append("s", EVENT)


async def refusal(path: Path | str) -> str:
    with pytest.raises(StoreUnusable) as refused:
        await open_store(str(path))
    return refused.value.why


async def test_a_path_is_whole_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    async with open_ledger("c.db") as ledger:
        async with ledger.run("mine") as run:
            await run.message("user", "hi")
        monkeypatch.chdir(tmp_path / "two")
        assert [finding.what async for finding in verify(ledger) if not finding.is_note] == []
        assert names(tmp_path / "two") == []
        async with open_ledger("c.db") as other, other.run("another's") as run:
            await run.message("user", "hi")
        await ledger.backup("copy.db")
    async with open_ledger(str(tmp_path / "two" / "copy.db"), create=False) as copy:
        assert [info.conversation async for info in copy.conversations()] == ["mine"]


async def test_a_program_without_a_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "whole path" in await refusal("c.db")
    monkeypatch.chdir(tmp_path)


async def test_symbolic_links_are_one_file(tmp_path: Path) -> None:
    path, link = tmp_path / "a.db", tmp_path / "b.db"
    link.symlink_to(path)
    async with open_store(str(link)) as one, open_store(str(path)) as two:
        assert (await one.append("s", EVENT)).last_seq == 1
        assert (await two.append("s", EVENT)).last_seq == 2
        assert isinstance(one, SqliteStore)
        assert one.database.path == str(path)
    assert names(tmp_path) == ["a.db", "b.db"]


@pytest.mark.parametrize("folder", [".", "elsewhere"])
async def test_of_two_hard_links_the_first_name_counts(tmp_path: Path, folder: str) -> None:
    path, link = tmp_path / "b.db", tmp_path / folder / "a.db"
    link.parent.mkdir(exist_ok=True)
    await fill(path)
    os.link(path, link)
    assert "hard links" in await refusal(link)
    async with open_store(str(path)) as store:
        assert (await store.append("s", EVENT)).last_seq == 2
        assert "hard links" in await refusal(link)
    path.unlink()  # one name is left
    async with open_store(str(link)) as store:
        assert (await store.bounds("s")).head == 2


async def test_a_file_that_was_moved_at_rest_is_no_other(tmp_path: Path) -> None:
    await fill(tmp_path / "a.db")
    (tmp_path / "a.db").rename(tmp_path / "b.db")
    await fill(tmp_path / "b.db")
    os.link(tmp_path / "b.db", tmp_path / "a.db")
    assert "hard links" in await refusal(tmp_path / "a.db")
    await fill(tmp_path / "b.db")


async def test_the_draft_of_a_maker_that_was_killed_is_no_second_name(tmp_path: Path) -> None:
    await fill(tmp_path / "a.db")
    (tmp_path / "a.db").rename(tmp_path / "b.db")  # so that the name is not that of its first opening
    os.link(tmp_path / "b.db", tmp_path / "b.db.partial")
    await fill(tmp_path / "b.db")
    assert names(tmp_path) == ["b.db"]


@pytest.mark.parametrize("fate", ["deleted", "moved", "replaced", "folder moved", "wal deleted", "shm deleted"])
async def test_a_file_that_is_gone_while_it_is_open_takes_nothing(tmp_path: Path, fate: str) -> None:
    path, moved = tmp_path / "in" / "a.db", tmp_path / "in" / "b.db"
    path.parent.mkdir()
    async with open_store(str(path)) as store:
        assert isinstance(store, SqliteStore)
        await store.append("s", EVENT)
        if fate == "deleted":
            path.unlink()
        elif fate == "folder moved":
            path.parent.rename(tmp_path / "out")
        elif fate == "wal deleted":
            Path(f"{path}-wal").unlink()
        elif fate == "shm deleted":
            Path(f"{path}-shm").unlink()
        else:
            path.rename(moved)
        if fate == "replaced":
            shutil.copy(moved, path)
        for _ in range(2):
            with pytest.raises(StoreUnusable, match="while it was open"):
                await store.append("s", EVENT)
        with pytest.raises(StoreUnusable, match="while it was open"):
            await store.read("s")
        if fate == "moved":
            moved.rename(path)  # too late: somebody may have opened it under the other name
            with pytest.raises(StoreUnusable, match="while it was open"):
                await store.append("s", EVENT)
    if fate == "moved":
        await fill(path)


async def test_a_new_file_in_the_place_of_an_open_one_keeps_what_it_takes(tmp_path: Path) -> None:
    """Whoever closes the old one leaves the write-ahead log of the new one alone."""
    path = tmp_path / "a.db"
    async with open_store(str(path)) as old:
        await old.append("s", EVENT)
        for side in ("", "-wal", "-shm"):
            path.with_name(f"a.db{side}").rename(tmp_path / f"old.db{side}")
        async with open_store(str(path)) as new:
            for _ in range(3):
                await new.append("new", EVENT)
            with pytest.raises(StreamError):
                await old.append("s", EVENT)
            await old.close()
            shutil.copytree(tmp_path, tmp_path.with_name("killed"), copy_function=shutil.copyfile)
    async with open_store(str(tmp_path.with_name("killed") / "a.db")) as store:
        assert (await store.bounds("new")).head == 3


async def leave_wal(path: Path) -> None:
    """As a kill leaves it."""
    busy = path.with_name("busy.db")
    async with open_store(str(busy)) as store:
        await store.append("s", EVENT)
        for side in ("", "-wal"):
            shutil.copyfile(f"{busy}{side}", f"{path}{side}")


@pytest.mark.parametrize("database", ["missing", "empty"])
async def test_a_log_without_its_database_is_kept_and_named(tmp_path: Path, database: str) -> None:
    path = tmp_path / "a.db"
    await leave_wal(path)
    held = Path(f"{path}-wal").read_bytes()
    path.unlink()
    if database == "empty":
        path.touch()
    assert "a.db-wal beside it" in await refusal(path)
    assert Path(f"{path}-wal").read_bytes() == held


async def test_a_log_of_another_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await leave_wal(path)
    async with open_store(str(tmp_path / "old.db")) as store:
        await store.append("s", EVENT)
    with closing(sqlite3.connect(tmp_path / "old.db")) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        raw.execute("PRAGMA page_size = 8192")
        raw.execute("VACUUM")
    shutil.copyfile(tmp_path / "old.db", path)
    before = path.read_bytes()
    assert "of another database" in await refusal(path)
    assert path.read_bytes() == before


async def test_a_log_that_a_kill_left_is_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await leave_wal(path)
    async with open_store(str(path)) as store:
        assert (await store.bounds("s")).head == 1


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:c.db", "URI"),
        ("file:c.db?mode=memory", "URI"),
        ("sqlite:///c.db?mode=ro", "no options"),
        ("sqlite:///c.db#x", "no options"),
        ("a\udc80b.db", "UTF-8"),
        ("a\0b.db", "NUL"),
        ("sqlite:///", "empty"),
        ("x" * 300, "can't be reached"),
    ],
)
async def test_a_path_that_says_something_else_is_refused(
    url: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert why in await refusal(url)
    assert names(tmp_path) == []


async def test_odd_names_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("./file:c.db", "a?b#c%20d.db", "sqlite:///e%3Ff.db"):
        async with open_store(url) as store:
            await store.append("s", EVENT)
    assert names(tmp_path) == ["a?b#c%20d.db", "e?f.db", "file:c.db"]


async def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in await refusal(tmp_path / "pipe")
