"""Long work shows how far it has come; who stops it is told what is done and how to go on, and nothing is half done."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

import pytest

from ledger import RunLost
from ledger.admin.play import Playing, play_recording
from ledger.transfer.sources import look_through
from tests.ledger_commands import fill, record, turns
from tests.test_commands import SAMPLE, Shell, shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ledger import Ledger

__all__ = ["shell"]
STOPS: Final = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)


def hear() -> None:
    """What is started in the background, as tests may be, inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def playing(shell: Shell) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = shell.command("play", str(SAMPLE), "--format", "anthropic", "--conversation", "c", "--rate", "20", "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear) as player:  # noqa: PLW1509
        assert player.stdout is not None
        run_id = json.loads(player.stdout.readline())["run_id"]
        for _ in range(4):  # something was said, and acknowledged
            player.stdout.readline()
        yield player, run_id
        if player.poll() is None:
            player.kill()


def end_of(shell: Shell, run_id: str) -> str:
    """How the run ended; what it had said is on the path."""
    [run] = shell.read("runs", "c")["runs"]
    assert run["run_id"] == run_id
    [message] = shell.read("show", "c")["messages"]
    assert (message["status"], bool(message["blocks"])) == ("partial", True)
    outcome: str = run["outcome"]
    return outcome


@pytest.mark.anyio
async def test_a_recording_stops_when_its_run_is_asked_to(ledger: Ledger) -> None:
    playing = Playing()
    recording = look_through(SAMPLE, "anthropic")
    play = asyncio.create_task(play_recording(ledger, recording, "c", rate=50, as_json=False, playing=playing))
    while not any(event.type == "block.delta" for event in await ledger.store.read("c")):
        await asyncio.sleep(0.01)
    assert playing.run_id is not None
    assert await ledger.cancel("c", playing.run_id)
    async with asyncio.timeout(5):
        assert (await play).outcome == "cancelled"
    assert playing.stopped_by == "cancel"
    assert (await ledger.transcript("c"))[0].status == "partial"


@pytest.mark.anyio
async def test_a_recording_whose_run_was_recovered_says_that(ledger: Ledger) -> None:
    playing = Playing()
    recording = look_through(SAMPLE, "anthropic")
    play = asyncio.create_task(play_recording(ledger, recording, "c", rate=50, as_json=False, playing=playing))
    while playing.run_id is None:
        await asyncio.sleep(0.01)
    await ledger.recover("c", playing.run_id, "fail")
    with pytest.raises(RunLost):
        await play


@pytest.mark.heavy
def test_play_stops_when_the_run_is_cancelled(shell: Shell) -> None:
    with playing(shell) as (player, run_id):
        assert shell.read("cancel", run_id)["is_asked"]
        out, err = player.communicate(timeout=20)
    assert (player.returncode, err) == (1, "")
    assert json.loads(out.splitlines()[-1])["outcome"] == "cancelled"
    assert end_of(shell, run_id) == "cancelled"


@pytest.mark.heavy
@STOPS
def test_play_ends_its_run_when_it_is_stopped(shell: Shell, number: signal.Signals, code: int) -> None:
    with playing(shell) as (player, run_id):
        player.send_signal(number)
        out, err = player.communicate(timeout=20)
    assert player.returncode == code, err
    if number == signal.SIGINT:
        assert err == f"stopped: run {run_id} is cancelled, what it had said is kept (`tailfold show`)\n"
    else:
        assert (json.loads(out.splitlines()[-1])["outcome"], err) == ("cancelled", "")
    assert end_of(shell, run_id) == "cancelled"


def on_terminal(
    shell: Shell,
    *words: str,
    stop_at: str | None = None,
    number: signal.Signals = signal.SIGINT,
    begin: Callable[[], None] = hear,
) -> tuple[int, str, str]:
    """Exit code, standard output, and what a terminal is shown of standard error; with `stop_at` a signal when it says that."""
    terminal, theirs = pty.openpty()
    shown = b""
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    command = shell.command(*words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, preexec_fn=begin, env=environment) as process:  # noqa: PLW1509
        os.close(theirs)
        with suppress(OSError):  # it is closed at the end
            while piece := os.read(terminal, 65536):
                shown += piece
                if stop_at is not None and stop_at.encode() in shown:
                    process.send_signal(number)
                    stop_at = None
        assert process.stdout is not None
        out = process.stdout.read().decode()
    os.close(terminal)
    return process.returncode, out, re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\r", "", shown.decode())


def fill_many(shell: Shell, count: int) -> None:
    async def job(ledger: Ledger) -> None:
        for number in range(count):
            await record(ledger, f"c{number:03}", turns(30, f"c{number}q"))

    fill(shell, job)


@pytest.mark.heavy
def test_long_work_is_shown_on_a_terminal_with_a_total(shell: Shell, tmp_path: Path) -> None:
    fill_many(shell, 3)
    code, out, shown = on_terminal(shell, "verify")
    assert (code, out) == (0, "everything is as it should be\n")
    assert "looking at conversations" in shown
    assert "3/3" in shown
    assert "3 conversations verified, 0 findings in " in shown
    code, out, shown = on_terminal(shell, "compact", "--all", "--json")
    assert (code, len(json.loads(out))) == (0, 3)
    assert "3/3" in shown
    assert shell.run("compact", "--all").splitlines()[-1] == "3 conversations: 0 events went"
    (tmp_path / "two").mkdir()
    for name in ("a", "b"):
        (tmp_path / "two" / f"{name}.json").write_text(json.dumps([{"role": "user", "content": name}]))
    code, out, shown = on_terminal(shell, "import", str(tmp_path / "two"))
    assert code == 0
    assert "2/2" in shown
    assert out.startswith("2 files: 2 conversations, 2 runs and ")
    assert "copying to" in on_terminal(shell, "backup", str(tmp_path / "copy.db"))[2]
    assert "sweeping" in on_terminal(shell, "vacuum")[2]


@pytest.mark.heavy
@STOPS
def test_an_import_that_is_stopped_goes_on(shell: Shell, tmp_path: Path, number: signal.Signals, code: int) -> None:
    fill_many(shell, 60)
    (tmp_path / "all.jsonl").write_text(shell.run("export", "--all", "--format", "tailfold-messages"))
    shell.data = tmp_path / "again.db"
    words = ["import", str(tmp_path / "all.jsonl")]
    ended, out, shown = on_terminal(shell, *words, stop_at="importing", number=number)
    assert (ended, out) == (code, "")
    assert re.search(r"stopped: no file is in whole, importing \S+ had come to \d+ of 60; the same command goes on", shown)
    assert shell.run("verify") == "everything is as it should be\n"
    assert shell.run(*words).splitlines()[-1].startswith("1 file: 60 conversations, ")
    assert {info["runs"] for info in shell.read("conversations")["conversations"]} == {30}


@pytest.mark.heavy
@STOPS
def test_what_is_compacted_or_verified_goes_on_after_a_stop(shell: Shell, number: signal.Signals, code: int) -> None:
    fill_many(shell, 60)
    ended, out, shown = on_terminal(shell, "verify", stop_at="0/60", number=number)
    assert (ended, out) == (code, "")
    assert re.search(r"stopped: \d+ of 60 conversations were looked at, 0 findings; nothing was changed", shown)
    ended, out, shown = on_terminal(shell, "compact", "--all", stop_at="0/60", number=number)
    assert ended == code
    told = re.search(r"stopped: (\d+) of 60 conversations were compacted, each whole or not at all", shown)
    assert told is not None
    assert len(out.splitlines()) == int(told[1]) < 60
    assert shell.run("verify") == "everything is as it should be\n"
    assert shell.run("compact", "--all").splitlines()[-1].startswith("60 conversations: ")
    assert {one["floor"] for one in shell.read("compact", "--all", "--dry-run")} == {210}


@pytest.mark.heavy
@STOPS
def test_a_vacuum_that_is_stopped_leaves_the_file_as_it_was(shell: Shell, number: signal.Signals, code: int) -> None:
    fill_many(shell, 1)
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        raw.execute("CREATE TABLE big AS SELECT zeroblob(20000000) AS data")
        raw.execute("DROP TABLE big")
        raw.execute("INSERT INTO snapshots SELECT 1, 'big', 1, zeroblob(100000000)")
    size_bytes = shell.data.stat().st_size
    ended, _, shown = on_terminal(shell, "vacuum", stop_at="sweeping", number=number)
    assert ended == code
    assert "stopped: the file holds what it held; run it again to make it smaller" in shown
    assert shell.data.stat().st_size == size_bytes


@pytest.mark.heavy
def test_what_runs_in_the_background_is_stopped_by_sigterm_alone(shell: Shell) -> None:
    """A shell has it ignore Ctrl-C, which is meant for what runs in front."""
    fill_many(shell, 60)

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    assert on_terminal(shell, "verify", stop_at="0/60", begin=ignore)[:2] == (0, "everything is as it should be\n")
    code, out, shown = on_terminal(shell, "verify", stop_at="0/60", number=signal.SIGTERM, begin=ignore)
    assert (code, out) == (143, "")
    assert re.search(r"stopped: \d+ of 60 conversations were looked at", shown)
    assert "Traceback" not in shown
