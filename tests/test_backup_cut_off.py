"""A copy that is cut off, by a cancel, a kill or another copy, leaves its place as it was."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from stream import NewEvent, StoreBusy, StoreUnusable, open_store
from stream.sqlite.backup import back_up, restore
from tests.test_backup import KNOWN, contents, fill, names, refused

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_two_that_make_one_file_do_not_meet_in_it(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path)
    with (tmp_path / "copy.db.partial").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "somebody else is making it" in await refused(back_up(str(path), str(tmp_path / "copy.db")), kind=StoreBusy)
        assert names(tmp_path) == {"log.db", "copy.db.partial"}
    jobs = [back_up(str(path), str(tmp_path / "copy.db")) for _ in range(5)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert len([result for result in results if isinstance(result, int)]) == 1, results
    assert all(isinstance(result, int | StoreBusy | StoreUnusable) for result in results)
    assert names(tmp_path) == {"log.db", "copy.db"}
    assert await contents(tmp_path / "copy.db") == await contents(path)


async def test_a_cancelled_backup_stops_and_leaves_nothing(tmp_path: Path) -> None:
    path, partial = tmp_path / "log.db", tmp_path / "copy.db.partial"
    await fill(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("INSERT INTO snapshots SELECT 1, 'big', 1, zeroblob(50000000)")
    for pause_ms in (0, 1, 3, 10):
        backing = asyncio.create_task(back_up(str(path), str(tmp_path / "copy.db")))
        await asyncio.sleep(0)
        while not backing.done() and not (partial.exists() and partial.stat().st_size):
            await asyncio.sleep(0.001)
        await asyncio.sleep(pause_ms / 1000)
        backing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await backing
        assert names(tmp_path) == {"log.db"}
    async with open_store(str(path)) as store:
        assert (await store.append("s", [NewEvent("t", b"x")])).first_seq == 4


async def test_what_a_killed_copy_left_is_no_obstacle(tmp_path: Path) -> None:
    await fill(tmp_path / "log.db")
    for name in ("copy.db.partial", "copy.db.partial-journal", "again.db.partial", "again.db.partial-wal"):
        (tmp_path / name).write_bytes(b"half a file" * 1000)
    await back_up(str(tmp_path / "log.db"), str(tmp_path / "copy.db"))
    await restore(str(tmp_path / "copy.db"), str(tmp_path / "again.db"), KNOWN)
    assert names(tmp_path) == {"log.db", "copy.db", "again.db"}
    assert await contents(tmp_path / "again.db") == await contents(tmp_path / "log.db")


COPYING = """
import asyncio, sys
from ledger import open_ledger
from ledger.upkeep.backup import known_scripts
from stream.sqlite import SqliteStore
from stream.sqlite.backup import back_up, restore

async def main():
    print("ready", flush=True)
    if sys.argv[1] == "back_up":
        await back_up(sys.argv[2], sys.argv[3])
    else:
        await restore(sys.argv[2], sys.argv[3], known_scripts())

asyncio.run(main())
"""


@pytest.mark.heavy
@pytest.mark.parametrize("action", ["back_up", "restore"])
async def test_a_killed_copy_is_absent_or_whole_and_the_next_one_cleans_up(tmp_path: Path, action: str) -> None:
    path, target = tmp_path / "log.db", tmp_path / "copy.db"
    await fill(path, count=30, size=200_000)
    expected = await contents(path)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    pauses = random.Random(seed)
    left = 0
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", COPYING, action, str(path), str(target)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        await asyncio.sleep(pauses.uniform(0, 0.08))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        left += (tmp_path / "copy.db.partial").exists()
        if target.exists():
            assert await contents(target) == expected
            target.unlink()
    print(f"{left} were cut in the middle")
    if action == "back_up":
        await back_up(str(path), str(target))
    else:
        await restore(str(path), str(target), KNOWN)
    assert names(tmp_path) == {"log.db", "copy.db"}
    assert await contents(target) == expected


async def test_a_backup_killed_right_after_it_was_made_is_not_emptied_by_the_next(tmp_path: Path) -> None:
    """Between its two names it is one file; the next attempt must not write into it."""
    path, target = str(tmp_path / "log.db"), tmp_path / "backup"
    async with open_store(path) as store:
        await store.append("s", [NewEvent("t", b"x")])
        await back_up(path, str(target))
        os.link(target, f"{target}.partial")  # as a process leaves it that dies there
        archived = target.rename(tmp_path / "archive")
        before = archived.read_bytes()
        await back_up(path, str(target))
    assert archived.read_bytes() == before
    assert target.read_bytes()[:15] == before[:15]
