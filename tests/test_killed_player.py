"""A player that is killed with SIGKILL at a random moment: what was acknowledged is there, the rest is a prefix."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ledger import RunOpen, open_ledger
from ledger.upkeep.verify import verify
from projector import load, transcript
from projector.events import BlockDelta
from projector.json_text import decode
from tests.recordings import STREAMS, WHY_NONE, chunks_of, folded_parts, is_prefix, read_parts, size
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.skipif(not STREAMS, reason=WHY_NONE), pytest.mark.anyio, pytest.mark.slow]
LONG = [path for path in STREAMS if len(chunks_of(path)) >= 40]


def play_and_kill(path: Path, database: Path, *, after_lines: int, rate: float) -> tuple[str, int]:
    """Plays in a process of its own and kills it; returns the run and the last seq that it was told is durable."""
    command = [sys.executable, "-m", "ledger.admin", "--data", str(database), "play", str(path)]
    command += ["--format", "anthropic", "--conversation", "c", "--rate", str(rate), "--json"]
    told: list[dict[str, Any]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            told.append(json.loads(line))
            if len(told) == after_lines:
                child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL, "the player ended before it could be killed"
    return told[0]["run_id"], max(line.get("acknowledged_seq", 0) for line in told)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name.partition(".chunks")[0], marks=[pytest.mark.heavy] if number > 2 else [])
        for number, path in enumerate(LONG)
    ],
)
async def test_what_a_killed_player_left_is_recovered_as_a_prefix_and_nothing_acknowledged_is_lost(
    path: Path, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    choose = random.Random(seed)
    chunks = chunks_of(path)
    action = choose.choice(["commit", "commit", "fail"])
    run_id, acknowledged = play_and_kill(
        path, tmp_path / "a.db", after_lines=choose.randrange(2, 7), rate=max(25, len(chunks) / 3)
    )
    async with open_ledger(str(tmp_path / "a.db"), create=False) as ledger:
        head = (await ledger.store.bounds("c")).head
        assert head >= acknowledged
        events = await ledger.store.read("c", limit=10_000)
        durable = sum(len(decode(e.data, BlockDelta).text) for e in events[:acknowledged] if e.type == "block.delta")
        with pytest.raises(RunOpen):
            await ledger.begin_run("c")
        assert [run.run_id for run in await ledger.open_runs("c")] == [run_id]
        info = await ledger.recover("c", run_id, action)  # type: ignore[arg-type]
        assert info.status == {"commit": "committed", "fail": "failed"}[action]
        kept = await ledger.transcript("c")
        everything = (await load(transcript, ledger.store, ledger.store.snapshots, "c")).state.all_messages()
        parts = folded_parts(everything)
        assert is_prefix(parts, read_parts(chunks))
        assert size(parts) >= durable
        assert kept == ([m for m in everything if m.status == "complete"] if action == "fail" else everything)
        assert not [finding async for finding in verify(ledger)]
        await ledger.compact("c")
    async with open_ledger(str(tmp_path / "a.db"), create=False) as again:
        assert await again.transcript("c") == kept
        assert (await again.store.bounds("c")).floor == head + 1
        async with again.run("c") as run:
            await run.text("on")
            assert await run.flush() > head + 1
        assert (await again.transcript("c"))[:-1] == kept


@pytest.mark.heavy
@pytest.mark.parametrize("action", ["commit", "fail", "cancel"])
async def test_an_operator_ends_what_a_killed_player_left_and_the_conversation_goes_on(action: str, tmp_path: Path) -> None:
    [path] = [path for path in STREAMS if "deferred-bm25" in path.name]  # responses one after another, with tools
    seed = random.randrange(2**32)
    print("seed", seed)
    shell = Shell(tmp_path)
    after_lines = random.Random(seed).randrange(14, 22)
    run_id, acknowledged = play_and_kill(path, shell.data, after_lines=after_lines, rate=50)
    [left] = shell.read("show", "c")["open_runs"]
    assert left["run_id"] == run_id
    assert left["messages"][0]["status"] == "complete"  # so the three actions differ
    told = shell.read("recover", run_id, "--action", action)
    status = {"commit": "committed", "fail": "failed", "cancel": "cancelled"}[action]
    assert (told["status"], told["recovered"]) == (status, action)
    assert told["end_seq"] > acknowledged
    shown = shell.read("show", "c")
    kept = {
        "commit": left["messages"],
        "fail": [message for message in left["messages"] if message["status"] == "complete"],
        "cancel": [],
    }[action]
    assert shown["messages"] == kept
    assert shown["open_runs"] == []
    assert shell.run("verify") == "everything is as it should be\n"
    assert shell.read("compact", "c")["floor"] == told["end_seq"]
    shell.play("c")
    after = shell.read("show", "c")["messages"]
    assert after[:-1] == kept
    assert after[-1]["parent_id"] == (kept[-1]["id"] if kept else None)
    assert shell.read("runs", "c")["runs"][-1]["seq"] == told["end_seq"] + 1
