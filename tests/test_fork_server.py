"""A command of the fork server is a process as any: what it is given is its own, and it leaves nothing to the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import fork_server
from tests.fork_server import ForkServer
from tests.test_commands import SAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterator

SAID = b'{"role":"user","content":"hello"}\n'


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


def told(done: subprocess.CompletedProcess[bytes]) -> tuple[int, bytes, bytes]:
    return done.returncode, done.stdout, done.stderr


def fresh(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    start = "import sys; sys.argv[0] = 'tailfold'; from ledger.admin.app import run_app; sys.exit(run_app())"
    command = [sys.executable, "-W", "error", "-c", start, *words]
    return subprocess.run(command, input=given, capture_output=True, check=False)


@pytest.mark.heavy
def test_a_command_is_told_and_says_what_a_fresh_process_does(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Any] = []
    for run, data in ((fresh, "own.db"), (server.run, "env.db")):
        folder = tmp_path / data
        folder.mkdir()
        monkeypatch.chdir(folder)
        answers = [told(run("play", str(SAMPLE), "--format", "anthropic", "--conversation", "c"))]
        monkeypatch.setenv("TAILFOLD_DATA", "named.db")
        answers += [
            told(run(*words, given=given))
            for words, given in [
                (["import", "/dev/stdin", "--into", "é\udcff"], SAID),
                (["import", "/dev/stdin", "--into", "d"], SAID.replace(b"hello", b"hello" * 40_000)),
                (["events", "d"], b"unread" * 100_000),
                (["show", "nowhere"], b""),
                (["no-such-command"], b""),
                (["--data", "own.db", "show", "c", "--json"], b""),
            ]
        ]
        monkeypatch.delenv("TAILFOLD_DATA")
        answers.append(told(run("conversations")))
        runs.append([answers, {path.name: path.stat().st_mode for path in folder.iterdir()}])
    assert {code for code, _, _ in runs[0][0]} == {0, 2}
    assert set(runs[0][1]) == {"tailfold.db", "named.db"}
    for own, theirs in zip(*(answers for answers, _ in runs), strict=True):
        assert shape(own) == shape(theirs)
    assert runs[0][1] == runs[1][1]


def shape(answer: tuple[int, bytes, bytes]) -> tuple[Any, ...]:
    """Without the times, which differ."""
    code, out, err = answer
    return code, len(out.splitlines()), err


def command_of(server: ForkServer) -> int:
    """The process that the server has forked."""
    assert server._process is not None
    children = Path(f"/proc/{server._process.pid}/task/{server._process.pid}/children")
    while not (pids := children.read_text().split()):
        time.sleep(0.01)
    return int(pids[0])


def test_a_command_that_is_killed_says_so_and_the_next_one_is_whole(server: ForkServer, tmp_path: Path) -> None:
    words = ["--data", str(tmp_path / "a.db")]
    assert server.run(*words, "import", "/dev/stdin", "--into", "c", given=SAID).returncode == 0
    done: list[subprocess.CompletedProcess[bytes]] = []
    thread = threading.Thread(target=lambda: done.append(server.run(*words, "events", "c", "--follow")))
    thread.start()
    os.kill(command_of(server), signal.SIGKILL)
    thread.join()
    assert done[0].returncode == -signal.SIGKILL
    assert server.run(*words, "verify").stdout == b"everything is as it should be\n"


@pytest.mark.heavy
def test_a_command_that_does_not_end_is_ended_and_leaves_its_answer_to_nobody(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--data", str(tmp_path / "a.db")]
    assert server.run(*words, "import", "/dev/stdin", "--into", "c", given=SAID).returncode == 0
    monkeypatch.setattr(fork_server, "_PATIENCE_S", 0.5)
    first = server._process
    with pytest.raises(TimeoutError):
        server.run(*words, "events", "c", "--follow")
    assert first is not None
    assert first.poll() == -signal.SIGKILL
    monkeypatch.undo()
    assert told(server.run(*words, "show", "nowhere"))[0] == 2
    assert server.run(*words, "verify").stdout == b"everything is as it should be\n"


def test_what_is_left_open_is_told_at_the_end_although_the_modules_of_others_are_spared(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    script = (
        "import sys, structlog, ledger; from tests.fork_server import _spare\n"
        f"left = open({str(tmp_path / 'a')!r}); ledger.left = open({str(tmp_path / 'a')!r}, 'rb')\n"
        "_spare({name: sys.modules[name] for name in ('structlog', 're', 'json')})\n"
        "sys.exit(3)"
    )
    command = [sys.executable, "-W", "default", "-c", script]
    done = subprocess.run(command, cwd=fork_server.ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("ResourceWarning: unclosed file")) == (3, 2)
