"""The copies that a look makes of what can't be read as it lies: they leave nothing, miss nothing, and say what is wrong."""

from __future__ import annotations

import asyncio
import errno
import os
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
from stream.sqlite.untouched import Seen, see
from tests.talk import finished, started
from tests.test_read_only import left, once_left, state_of

if TYPE_CHECKING:
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
