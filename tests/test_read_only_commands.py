"""Commands that look leave no trace where nothing may be written; commands that write are refused by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.ledger_commands import run_each
from tests.test_commands import SAMPLE, Shell
from tests.test_read_only import left, once_left, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["left", "once_left"]
LOOKING: Final = [
    ["conversations"], ["runs"], ["show", "c"], ["show", "c", "--branch", "all"], ["tree", "c"], ["context", "c"],
    ["events", "c"], ["snapshot", "c"], ["export", "c"], ["export", "--all"], ["export", "c", "--format", "chat"],
    ["verify"], ["verify", "c"], ["stats"], ["stats", "c"], ["reconcile"],
    ["compact", "c", "--dry-run"], ["compact", "--all", "--dry-run"], ["sql", "SELECT name, head FROM streams"],
]  # fmt: skip
WRITING: Final = [
    ["select", "c", "r1.1"], ["describe", "c", "--title", "t"], ["cancel", "r3"], ["recover", "r3", "--action", "commit"],
    ["compact", "c"], ["compact", "--all"], ["snapshot", "c", "--save"], ["snapshot", "c", "--delete", "mine"],
    ["import", str(SAMPLE)], ["play", str(SAMPLE), "--conversation", "d"], ["reconcile", "--repair"], ["vacuum"],
    ["erase", "c", "--yes"], ["restore", "copy.db"], ["serve", "--port", "0"], ["demo"],
    ["history", "chain-add", "mine"], ["history", "chain-remove", "mine"], ["history", "maxctx", "5"],
    ["limits", "max-users", "5"], ["limits", "session-timeout", "5"],
]  # fmt: skip
AS_NOBODY: Final = """
import contextlib, io, json, os, sys
from ledger.admin.app import run_app

def run(data, words):
    sys.argv = ["tailfold", "--data", data, *words]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = run_app()
    return code, out.getvalue(), err.getvalue()

own, locked, commands = json.loads(sys.argv[1])
told = [run(own, words) for words in commands]  # imports all there is, and tells what is to be said
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(json.dumps([told, *([run(data, words) for words in commands] for data in locked)]))
"""


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A place of pytest's own is closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_nobody(own: Path, locked: Sequence[Path], commands: Sequence[Sequence[str]]) -> list[list[tuple[int, str, str]]]:
    """What the commands say of a file that is ours, and then of others as a user who may write nothing."""
    given = json.dumps([str(own), list(map(str, locked)), commands])
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout)
    return [[(code, out, err) for code, out, err in each] for each in told]


def run_read_only(folder: Path, commands: Sequence[Sequence[str]]) -> list[tuple[int, str, str]]:
    shell = Shell(folder)
    assert shell.data.exists()
    return run_each(shell, [["--read-only", *words] for words in commands])


def lock(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)


@pytest.mark.heavy
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_who_may_write_nothing_sees_the_same_and_leaves_no_trace(left: Path, open_place: Path) -> None:
    folders = [open_place / name for name in ("whole", "no index", "closed")]
    for folder in folders:
        shutil.copytree(left, folder)
    (folders[1] / "chat.db-shm").unlink()
    closing = Shell(folders[2])
    closing.run("verify")
    assert [path.name for path in folders[2].iterdir()] == ["chat.db"]
    for folder in folders:
        lock(folder)
    before = [state_of(folder) for folder in folders]
    own, *others = as_nobody(left / "chat.db", [folder / "chat.db" for folder in folders], [["reconcile"], *LOOKING])
    assert [(code, err) for code, _, err in own] == [(0, "")] * len(own)
    for told, folder in zip(others, folders, strict=True):
        for words, here, there in zip(LOOKING, own[1:], told[1:], strict=True):
            if words[0] not in ("stats", "reconcile"):  # the sizes of files, and what the first command has taken in
                assert there == here, (folder.name, words)
            assert there[0] == 0, there
    assert [state_of(folder) for folder in folders] == before


@pytest.mark.heavy
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_file_that_can_be_written_in_a_folder_that_can_not_is_looked_at(left: Path, open_place: Path) -> None:
    folder = open_place / "mine"
    shutil.copytree(left, folder)
    for path in folder.iterdir():
        path.chmod(0o666)
    folder.chmod(0o555)
    before = state_of(folder)
    own, told = as_nobody(left / "chat.db", [folder / "chat.db"], [["show", "c"]])
    assert told == own
    assert state_of(folder) == before


@pytest.mark.parametrize("commands", [LOOKING[::6], pytest.param(LOOKING, marks=pytest.mark.heavy)], ids=["some", "all"])
def test_with_read_only_nothing_is_written_by_who_could(left: Path, commands: list[list[str]]) -> None:
    before = state_of(left)
    for words, (code, out, err) in zip(commands, run_read_only(left, commands), strict=True):
        assert (code, err) == (0, ""), (words, out, err)
    assert state_of(left) == before


def test_a_command_that_writes_is_refused_by_name_under_read_only(left: Path, tmp_path: Path) -> None:
    before = state_of(left)
    for words, (code, out, err) in zip(WRITING, run_read_only(left, WRITING), strict=True):
        assert (code, out) == (2, ""), words
        assert err.startswith(f"tailfold: `{words[0]}"), err
        assert "--read-only" in err
        assert err.count("\n") == 1
    assert state_of(left) == before
    assert not list(tmp_path.glob("*.json"))
