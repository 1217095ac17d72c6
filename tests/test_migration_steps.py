"""The scripts that bring a file up to date: each in order, whole or not at all, once, and a copy before."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from stream import StoreUnusable
from stream.sqlite import Database, open_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
from tests.old_files import names, rows

pytestmark = pytest.mark.anyio

ONE: Final = "CREATE TABLE things (name TEXT) STRICT;"
TWO: Final = "ALTER TABLE things ADD COLUMN size INTEGER;\nUPDATE things SET size = length(name);"
THREE: Final = "CREATE TABLE boxes (size INTEGER) STRICT;\nINSERT INTO boxes SELECT size FROM things;"
FAILING: Final = "UPDATE things SET name = 'half done';\nINSERT INTO nowhere VALUES (1);"


async def install(path: Path, *scripts: str) -> None:
    database = await open_database(str(path), create=True)
    try:
        await database.install("things", scripts)
    finally:
        await database.close()


async def filled(path: Path, *names_: str) -> None:
    await install(path, ONE)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.executemany("INSERT INTO things VALUES (?)", [(name,) for name in names_])


@pytest.mark.parametrize("steps", [[1, 2, 3], [1, 3], [3]])
async def test_scripts_are_applied_in_order_and_once(tmp_path: Path, steps: Sequence[int]) -> None:
    path = tmp_path / "x.db"
    for step in steps:
        for _ in range(2):
            await install(path, *[ONE, TWO, THREE][:step])
        if step == 1:
            await filled(path, "a", "bcd")
    assert rows(path, "SELECT version FROM components") == [(3,)]
    assert rows(path, "SELECT size FROM boxes") == ([(1,), (3,)] if 1 in steps else [])


async def test_a_file_without_data_is_not_copied_and_one_with_data_is_at_each_step(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await install(path, ONE)
    await install(path, ONE, TWO)
    assert names(tmp_path) == {"x.db"}
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("INSERT INTO things VALUES ('a', 1)")
    (tmp_path / "x.db.things-v2-backup").write_bytes(b"an earlier one")
    await install(path, ONE, TWO, THREE)
    await install(path, ONE, TWO, THREE)
    assert names(tmp_path) == {"x.db", "x.db.things-v2-backup", "x.db.things-v2-backup.2"}
    assert (tmp_path / "x.db.things-v2-backup").read_bytes() == b"an earlier one"
    assert rows(tmp_path / "x.db.things-v2-backup.2", "SELECT * FROM things") == [("a", 1)]


async def test_a_script_that_fails_leaves_the_old_file_and_no_copies(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path, "a")
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="nowhere"):
            await install(path, ONE, FAILING)
        assert rows(path, "SELECT name FROM things") == [("a",)]
        assert rows(path, "SELECT version FROM components") == [(1,)]
        assert names(tmp_path) == {"x.db"}
    await install(path, ONE, TWO)
    assert rows(path, "SELECT * FROM things") == [("a", 1)]


async def test_an_older_program_is_refused_by_a_newer_file(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await install(path, ONE, TWO)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match="version 2, this Tailfold knows 1: upgrade"):
        await install(path, ONE)
    assert path.read_bytes() == before


async def test_no_room_for_the_copy_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path, "a")
    (tmp_path / "x.db.things-v1-backup.partial").mkdir()  # no file can be made there
    with pytest.raises(StoreUnusable, match=r"x\.db\.things-v1-backup: the file can't be written"):
        await install(path, ONE, TWO)
    assert rows(path, "SELECT name FROM things") == [("a",)]
    (tmp_path / "x.db.things-v1-backup.partial").rmdir()
    await install(path, ONE, TWO)


DYING: Final = """
import asyncio, os, signal, sys
from stream.sqlite import open_database
from stream.sqlite.blocking import Connect
from stream.sqlite.migrations import migrate

async def main():
    database = await open_database(sys.argv[1], create=False)
    scripts, statements = sys.argv[3:], int(sys.argv[2])

    def dying(sql):
        async def run(text, parameters=()):
            nonlocal statements
            if text.startswith(("ALTER", "UPDATE", "CREATE TABLE boxes", "INSERT INTO", "DELETE")):
                statements -= 1
                if statements < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return await sql(text, parameters)
        return run

    await database.transact(lambda sql: migrate(dying(sql), sys.argv[1], "things", scripts, Connect()))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("statements", range(7))
async def test_a_migration_that_is_killed_is_whole_or_absent_and_done_by_the_next_opening(
    tmp_path: Path, statements: int
) -> None:
    path = tmp_path / "x.db"
    await filled(path, "a", "bcd")
    command = [sys.executable, "-c", DYING, str(path), str(statements), ONE, TWO, THREE]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    version = 3 if statements == 6 else 1
    assert rows(path, "SELECT version FROM components") == [(version,)]
    assert rows(path, "SELECT name FROM things") == [("a",), ("bcd",)]
    assert rows(tmp_path / "x.db.things-v1-backup", "SELECT name FROM things") == [("a",), ("bcd",)]
    await install(path, ONE, TWO, THREE)
    assert rows(path, "SELECT size FROM boxes") == [(1,), (3,)]


async def test_many_connections_of_one_process_migrate_once(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path, "a")
    databases: list[Database] = await asyncio.gather(*(open_database(str(path), create=False) for _ in range(4)))
    try:
        await asyncio.gather(*(database.install("things", [ONE, TWO, THREE]) for database in databases))
    finally:
        for database in databases:
            await database.close()
    assert rows(path, "SELECT size FROM boxes") == [(1,)]
    assert names(tmp_path) == {"x.db", "x.db.things-v1-backup"}
