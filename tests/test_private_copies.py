"""The copies that a look makes of what can't be read as it lies: they leave nothing, miss nothing, and say what is wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import pytest

from ledger import open_ledger
from stream import StoreFull, StoreUnusable, follow
from stream.sqlite.private_folder import private_folder
from stream.sqlite.store import SqliteStore
from stream.sqlite.untouched import Seen, open_untouched, see
from tests.talk import finished, started
from tests.test_read_only import left, once_left, state_of

if TYPE_CHECKING:
    import sqlite3
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["left", "once_left"]
pytestmark = pytest.mark.anyio
KILLED = """
import os, signal
from stream.sqlite.private_folder import private_folder
with private_folder() as folder:
    (folder / "copy.db").write_bytes(b"what was said")
    (folder / "copy.db-wal").write_bytes(b"and this")
    os.kill(os.getpid(), signal.SIGKILL)
"""
WRITER = """
import asyncio, sys
from stream import NewEvent, open_store

async def main(path):
    store = await open_store(path)
    for line in sys.stdin:
        print((await store.append("c", [NewEvent("said", line.encode())])).last_seq, flush=True)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


async def test_what_a_look_has_left_that_was_killed_goes_with_the_next_one(temporary: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert done.returncode == -signal.SIGKILL
    [left_behind] = temporary.iterdir()
    assert len(list(left_behind.iterdir())) == 2
    (own := temporary / "tailfold-look-mine").mkdir()
    (own / "notes").write_text("nobody's business")
    with private_folder() as first:
        (first / "copy.db").write_bytes(b"in use")
        with private_folder() as second:
            assert set(temporary.iterdir()) == {first, second, own}
        assert (first / "copy.db").read_bytes() == b"in use"
    assert [path.name for path in temporary.rglob("*")] == ["tailfold-look-mine", "notes"]


async def test_a_log_that_is_none_is_named_and_not_its_copy(left: Path, temporary: Path) -> None:
    for name in ("chat.db-wal", "chat.db-shm"):
        (left / name).unlink()
    (left / "chat.db-wal").mkdir()
    with pytest.raises(StoreUnusable, match=r"left/chat\.db: chat\.db-wal can't be read \(Is a directory\)"):
        await open_ledger(str(left / "chat.db"), read_only=True)
    assert not list(temporary.iterdir())


async def test_where_there_is_no_place_for_a_copy_another_one_can_be_named(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (left / "chat.db-shm").unlink()
    before = state_of(left)
    monkeypatch.setattr(tempfile, "tempdir", str(left / "none"))
    with pytest.raises(StoreUnusable, match=r"chat\.db: no copy of it can be made .*TMPDIR"):
        await open_ledger(str(left / "chat.db"), read_only=True)
    real = os.open

    def full(name: str | Path, flags: int, mode: int = 0o777) -> int:
        if str(name).endswith("copy.db"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(name, flags, mode)

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StoreFull, match=r"chat\.db: there is no room left for a copy: .*TMPDIR"):
        await open_ledger(str(left / "chat.db"), read_only=True)
    assert state_of(left) == before


async def test_what_comes_in_the_same_tick_of_the_clock_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that begins again is written over: it is as long as before, and may have the same time of its last change."""
    path = str(tmp_path / "chat.db")
    async with open_ledger(path, durability="normal") as writer:
        await writer.store.append("c", [started("r1")])
        seen = see(path)
        same = Seen(seen.file, (*seen.wal[:3], time.time_ns()), seen.journal)
        monkeypatch.setattr("stream.sqlite.private_copy.see", lambda _: same)
        async with open_ledger(path, read_only=True) as ledger, asyncio.timeout(10):
            await writer.store.append("c", [finished("r1")])
            events = follow(ledger.store, "c")
            assert [(await anext(events)).type, (await anext(events)).type] == ["run.started", "run.finished"]


async def test_what_was_written_before_it_counted_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit lies in the log while the disk is waited for, and nothing that `see` looks at moves when it is one."""
    path = str(tmp_path / "chat.db")
    async with open_ledger(path, durability="normal") as writer:
        await writer.store.append("c", [started("r1")])
        seen = see(path)
        written_long_ago = Seen(seen.file, (*seen.wal[:3], 0), seen.journal)
        monkeypatch.setattr("stream.sqlite.private_copy.see", lambda _: written_long_ago)
        monkeypatch.setattr(Seen, "is_younger_than", lambda *_: False)
        async with open_ledger(path, read_only=True) as ledger, asyncio.timeout(10):
            await writer.store.append("c", [finished("r1")])
            events = follow(ledger.store, "c")
            assert [(await anext(events)).type, (await anext(events)).type] == ["run.started", "run.finished"]


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform == "win32", reason="nobody is stopped there by a signal")
async def test_a_process_that_stands_still_in_its_commit_is_followed_when_it_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "chat.db")
    async with open_ledger(path):
        pass
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, path, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    dice = random.Random(7)
    try:
        writer.stdin.write(b"1\n")
        assert await writer.stdout.readline() == b"1\n"
        async with open_ledger(path, read_only=True) as ledger, asyncio.timeout(60):
            events = follow(ledger.store, "c", after=1)
            for number in range(2, 32):
                coming = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.05)  # it waits by now
                writer.stdin.write(b"%d\n" % number)
                await asyncio.sleep(0.004 * dice.random())
                writer.send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.15)
                writer.send_signal(signal.SIGCONT)
                assert await writer.stdout.readline() == b"%d\n" % number
                assert (await asyncio.wait_for(coming, 5)).seq == number
    finally:
        writer.stdin.close()
        await writer.wait()


async def test_a_copy_that_could_not_be_made_anew_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "chat.db")
    refused: list[str] = []

    def refuse_once(place: str) -> AbstractContextManager[sqlite3.Connection]:
        if not refused:
            refused.append(place)
            raise StoreUnusable(place, "not now")
        return open_untouched(place)

    monkeypatch.setattr("stream.sqlite.database._AGAIN_S", 0.05)
    monkeypatch.setattr(Seen, "is_younger_than", lambda *_: False)
    async with open_ledger(path, durability="normal") as writer:
        await writer.store.append("c", [started("r1")])
        async with open_ledger(path, read_only=True) as ledger, asyncio.timeout(10):
            monkeypatch.setattr("stream.sqlite.private_copy.open_untouched", refuse_once)
            monkeypatch.setattr("stream.sqlite.private_copy.ask_shared", lambda *_: None)
            events = follow(ledger.store, "c", after=1)
            await writer.store.append("c", [finished("r1")])
            assert (await anext(events)).type == "run.finished"
            assert refused == [path]


async def test_what_was_done_to_a_copy_alone_hides_nothing_of_the_next_one(tmp_path: Path) -> None:
    """Both number their changes from where the file stood."""
    path = str(tmp_path / "chat.db")
    async with open_ledger(path, durability="normal") as writer:
        await writer.store.append("c", [started("r1")])
        async with open_ledger(path, read_only=True) as ledger, asyncio.timeout(10):
            events = follow(ledger.store, "c", after=1)
            coming = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.1)  # it waits by now
            assert isinstance(ledger.store, SqliteStore)
            for _ in range(3):
                await SqliteStore.append(ledger.store, "d", [started("r2")])  # as finishing an erasure would
            await ledger.store._wake_those_that_moved()
            await asyncio.sleep(0.1)  # it waits again
            await writer.store.append("c", [finished("r1")])
            assert (await coming).type == "run.finished"
