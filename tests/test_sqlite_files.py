"""What can't be a store is refused with its path, and stays as it was; opening and dying leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import anyio
import pytest

from stream import NewEvent, StoreUnusable, open_store

pytestmark = pytest.mark.anyio
ROOT: Final = Path(__file__).parents[1]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def refusal(path: Path | str, *, create: bool = True) -> str:
    with pytest.raises(StoreUnusable) as refused:
        await open_store(str(path), create=create)
    assert str(path) in str(refused.value)
    assert refused.value.place == str(path)
    return refused.value.why


async def test_a_file_of_another_kind_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but somebody's notes")
    assert "no Tailfold database" in await refusal(path)
    assert path.read_text() == "not a database, but somebody's notes"
    assert names(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("tail", [b"", b"\0" * 84, b"garbage" * 1000])
async def test_a_header_with_garbage_behind_it_is_refused_and_stays(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(b"SQLite format 3\0" + tail)
    assert await refusal(path)
    assert path.read_bytes() == b"SQLite format 3\0" + tail


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("owner", [0, 1234])
async def test_another_programs_database_stays_as_it_is(tmp_path: Path, mode: str, owner: int) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"PRAGMA journal_mode = {mode}")
        raw.execute(f"PRAGMA application_id = {owner}")
        raw.execute("CREATE TABLE streams (id INTEGER PRIMARY KEY, body TEXT)")
    before = path.read_bytes()
    for _ in range(2):
        assert "another program" in await refusal(path)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["other.db"]
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == (mode,)


async def test_a_newer_version_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await store.append("s", [NewEvent("t", b"x")])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE components SET version = version + 1 WHERE name = 'stream'")
    assert "upgrade Tailfold" in await refusal(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        assert raw.execute("SELECT count(*) FROM appends").fetchone() == (1,)
        raw.execute("UPDATE components SET version = version - 1 WHERE name = 'stream'")
    async with open_store(str(path)) as store:
        assert len(await store.read("s")) == 1


async def test_a_place_without_a_file_is_named(tmp_path: Path) -> None:
    assert "no such file" in await refusal(tmp_path / "missing.db", create=False)
    assert "folder" in await refusal(tmp_path)
    assert "folder does not exist" in await refusal(tmp_path / "no" / "log.db")
    (tmp_path / "empty.db").touch()
    assert "empty" in await refusal(tmp_path / "empty.db", create=False)
    assert "can't be reached" in await refusal(tmp_path / ("x" * 300))
    assert "can't be reached" in await refusal(tmp_path / "empty.db" / "log.db")
    assert names(tmp_path) == ["empty.db"]


@pytest.mark.parametrize("url", ["", "redis://x", "sqlite://x", "a\0b"])
async def test_a_url_of_no_known_kind_is_refused(url: str) -> None:
    with pytest.raises(StoreUnusable):
        await open_store(url)


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "log.db").touch()
    async with open_store(f"sqlite:///{tmp_path}/log.db") as store:
        await store.append("s", [NewEvent("t", b"x")])
        incarnation = store.incarnation
    async with open_store(str(tmp_path / "log.db"), create=False) as store:
        assert store.incarnation == incarnation


WITHOUT_RIGHTS: Final = """
import asyncio, os, sys
import anyio._backends._asyncio  # what is imported late lies where only root may look
from stream import StoreUnusable, open_store
os.setgid(65534); os.setuid(65534)

async def main(path):
    try:
        async with open_store(path) as store:
            print("opened", store.incarnation)
    except StoreUnusable as error:
        print(error)

asyncio.run(main(sys.argv[1]))
"""


CASES_WITHOUT_RIGHTS: Final = [
    "a read-only file",
    "an unreadable file",
    "a writable file in a read-only folder",
    "a new file in a read-only folder",
    "a closed folder",
]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights away")
@pytest.mark.parametrize("case", CASES_WITHOUT_RIGHTS)
async def test_a_file_this_user_may_not_write_is_refused(case: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder, path = Path(name), Path(name) / "log.db"
        if case != "a new file in a read-only folder":
            async with open_store(str(path)) as store:
                await store.append("s", [NewEvent("t", b"x")])
            path.chmod({"a read-only file": 0o644, "an unreadable file": 0o600}.get(case, 0o666))
        folder.chmod(0o700 if case == "a closed folder" else 0o755)
        command = [sys.executable, "-c", WITHOUT_RIGHTS, str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path}: "), done.stdout
    assert "give this user" in done.stdout or "may be written" in done.stdout


NEVER_CLOSED: Final = """
import asyncio, sys
from stream import NewEvent, open_store

async def main(path, how):
    store = await open_store(path)
    await store.append("s", [NewEvent("t", b"x")])
    if how == "raises":
        raise RuntimeError("the program failed")
    if how == "waits":
        asyncio.get_running_loop().create_task(store.wait("s", after=1))
        await asyncio.sleep(0)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("how", ["ends", "raises", "waits"])
async def test_a_program_that_never_closes_its_store_still_exits(tmp_path: Path, how: str) -> None:
    path = str(tmp_path / "log.db")
    command = [sys.executable, "-c", NEVER_CLOSED, path, how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=5, check=False)
    assert done.returncode == (how == "raises"), done.stderr
    assert "never awaited" not in done.stderr
    async with open_store(path, create=False) as store:
        assert [event.data for event in await store.read("s")] == [b"x"]


def descriptors(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(entry.readlink()))
    return [target for target in found if str(folder) in target]


async def eventually_alone(folder: Path, threads: int) -> None:
    with anyio.fail_after(10):
        while threading.active_count() > threads or descriptors(folder):
            await anyio.sleep(0.005)


async def test_a_cancelled_open_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    threads = threading.active_count()
    for attempt in range(50):
        opening = asyncio.ensure_future(open_store(str(tmp_path / f"{attempt % 5}.db")).__aenter__())
        if attempt % 2:
            await asyncio.sleep(attempt / 5000)
        else:
            for _ in range(attempt // 2):
                await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await opening).close()
        with anyio.move_on_after(attempt / 5000):
            async with open_store(str(tmp_path / f"{attempt % 5}.db")):
                pass
    await eventually_alone(tmp_path, threads)
    async with open_store(str(tmp_path / "0.db")) as store:
        await store.append("s", [NewEvent("t", b"x")])
    await eventually_alone(tmp_path, threads)


async def test_an_open_that_was_refused_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    threads = threading.active_count()
    (tmp_path / "log.db").write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    for _ in range(10):
        await refusal(tmp_path / "log.db")
    await eventually_alone(tmp_path, threads)


def test_the_log_is_imported_where_there_is_no_fcntl() -> None:
    """As on Windows: neither the module nor what `os` has only elsewhere is needed to import what can be imported."""
    program = """
import os, sys
sys.modules["fcntl"] = None
for name in ("fchmod", "fdatasync", "O_NOFOLLOW", "fork", "getuid", "geteuid", "link"):
    if hasattr(os, name):
        delattr(os, name)
import stream, stream.sqlite, stream.sqlite.backup, stream.sqlite.vacuum
assert sys.modules["fcntl"] is None
"""
    subprocess.run([sys.executable, "-c", program], check=True)
