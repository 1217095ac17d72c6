"""Who stops a command that takes long is told what is done and how to go on; nothing is half done, and the code is 130."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ledger.admin.play import Playing, play_recording
from ledger.transfer.sources import look_through
from tests.test_commands import SAMPLE, Shell, shell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger import Ledger

__all__ = ["shell"]


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
    [run] = shell.read("runs", "c")
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


@pytest.mark.heavy
def test_play_stops_when_the_run_is_cancelled(shell: Shell) -> None:
    with playing(shell) as (player, run_id):
        assert shell.read("cancel", run_id)["is_asked"]
        out, err = player.communicate(timeout=20)
    assert (player.returncode, err) == (1, "")
    assert json.loads(out.splitlines()[-1])["outcome"] == "cancelled"
    assert end_of(shell, run_id) == "cancelled"


@pytest.mark.heavy
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
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
