"""The commands as a person and as a program use them: output, JSON, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import COMMANDS

SAMPLE = Path(__file__).parent / "fixtures" / "sample.jsonl"


class Shell:
    """Runs `tailfold --data FILE …` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "chat.db"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "ledger.admin", "--data", str(self.data), *words]

    def run(self, *words: str, code: int = 0) -> str:
        done = COMMANDS.run(*self.command(*words)[5:])  # what follows `-m ledger.admin`
        stdout, stderr = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, stderr + stdout
        assert "Traceback" not in stderr + stdout
        if code != 2:
            assert stderr == ""
        return stdout if code != 2 else stderr

    def measure(self, *words: str, code: int = 0) -> tuple[str, int]:
        """What a command says on standard error, and the most memory it ever had, in bytes."""
        # not `ru_maxrss`, which begins with what the process has that starts this one
        script = (
            "import pathlib, re, sys; from ledger.admin.app import run_app; code = run_app(); "
            r"peak = re.search(r'VmHWM:\s+(\d+) kB', pathlib.Path('/proc/self/status').read_text())[1]; "
            "sys.stderr.write('\\n' + peak); sys.exit(code)"
        )
        command = [sys.executable, "-W", "error", "-c", script, *self.command(*words)[5:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr
        said, _, peak_kib = done.stderr.rpartition("\n")
        return said, int(peak_kib) * 1024

    def read(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code))

    def play(self, conversation: str = "c", file: Path = SAMPLE, *, code: int = 0) -> str:
        return self.run("play", str(file), "--format", "anthropic", "--conversation", conversation, code=code)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_demo_kills_a_process_and_loses_nothing(shell: Shell, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    numbers = json.loads(shell.run("demo", "--json", "--keep", str(keep)))
    assert numbers["ok"] is True
    assert all(numbers["checks"].values())
    assert numbers["lost"] == 0
    assert 0 < numbers["acknowledged"] <= numbers["stored"] < numbers["head"] == numbers["seen_by_follower"]
    assert 0 < numbers["characters_before"] == numbers["characters_after"]
    shell.data = keep / "demo.db"
    assert shell.run("verify") == "everything is as it should be\n"
    assert [run["status"] for run in shell.read("runs")["runs"]] == ["committed", "committed"]
    assert "name another folder" in shell.run("demo", "--keep", str(keep), code=2)


def test_a_stream_that_is_played_is_shown_as_its_transcript(shell: Shell) -> None:
    assert "completed, 1 message" in shell.play()
    assert "find_trains" in shell.run("show", "c")
    shown = shell.read("show", "c")
    assert [block["kind"] for block in shown["messages"][0]["blocks"]] == ["reasoning", "text", "tool_call"]
    assert shown["open_runs"] == shown["anomalies"] == []
    [run] = shell.read("runs", "c")["runs"]
    assert (run["status"], run["outcome"], run["finish_reason"]) == ("committed", "completed", "tool_use")
    assert run["usage"]["msg_sample_0001"]["output"] == 263
    assert "committed" in shell.run("runs")


def test_events_are_printed_once_in_order_and_after_a_number(shell: Shell) -> None:
    shell.play()
    lines = [json.loads(line) for line in shell.run("events", "c", "--json").splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["type"] == "run.started"
    assert json.loads(lines[0]["data"])["provider"] == "anthropic"
    tail = [json.loads(line) for line in shell.run("events", "c", "--after", str(len(lines) - 2), "--json").splitlines()]
    assert tail == lines[-2:]
    assert shell.run("events", "c", "--after", str(len(lines))) == ""
    assert "run.finished" in shell.run("events", "c").splitlines()[-1]


def test_a_follower_sees_what_another_process_writes(shell: Shell) -> None:
    shell.play()
    with subprocess.Popen(shell.command("events", "c", "--follow", "--json"), stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        lines = (json.loads(line) for line in follower.stdout)
        seen = [next(lines)["seq"]]
        shell.play()
        ends = 0
        for line in lines:
            seen.append(line["seq"])
            ends += line["type"] == "run.finished"
            if ends == 2:
                break
        follower.kill()
    assert seen == list(range(1, len(seen) + 1))


@pytest.mark.heavy
def test_compaction_is_tried_then_done_and_the_transcript_stays(shell: Shell) -> None:
    shell.play()
    before = shell.read("show", "c")
    tried = shell.read("compact", "c", "--dry-run")
    assert (tried["dry_run"], tried["floor_before"], tried["floor"]) == (True, 0, tried["head"])
    window = shell.read("compact", "c", "--replay-window", "3")
    assert (window["floor"], window["binds"]) == (window["head"] - 3, "replay_window")
    assert "its numbers go on at" in shell.run("compact", "c")
    assert shell.read("show", "c") == before
    shell.play()
    assert len(shell.read("show", "c")["messages"]) == 2


@pytest.mark.heavy
def test_an_open_run_is_shown_recovered_once_and_then_told_as_it_ended(shell: Shell) -> None:
    shell.play()
    with subprocess.Popen(
        shell.command("play", str(SAMPLE), "--format", "anthropic", "--conversation", "c", "--rate", "50", "--json"),
        stdout=subprocess.PIPE,
        text=True,
    ) as player:
        assert player.stdout is not None
        run_id = json.loads(player.stdout.readline())["run_id"]
        for _ in range(4):
            player.stdout.readline()
        player.kill()
    [left] = shell.read("show", "c")["open_runs"]
    assert left["run_id"] == run_id
    assert "not committed" in shell.run("show", "c")
    assert f"open_run:{run_id}" in shell.run("compact", "c", "--dry-run")
    assert run_id in shell.play(code=2)
    assert shell.read("recover", run_id, "--action", "commit")["recovered"] == "commit"
    assert "had been recovered by commit before" in shell.run("recover", run_id, "--action", "cancel", code=1)
    assert shell.read("show", "c")["messages"][-1]["status"] == "partial"
    assert shell.run("verify", "c") == "everything is as it should be\n"


def test_verify_finds_damage_and_says_what_mends_it(shell: Shell) -> None:
    import sqlite3  # noqa: PLC0415
    from contextlib import closing  # noqa: PLC0415

    shell.play()
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        raw.execute("DROP TRIGGER events_never_change")
        raw.execute("UPDATE appends SET data = zeroblob(length(data)) WHERE pos = 3")
    schema, row = shell.read("verify", code=1)
    assert (schema["kind"], schema["conversation"]) == ("schema", "")
    assert (row["kind"], row["conversation"]) == ("damaged", "c")
    assert "backup" in shell.run("verify", code=1)
    assert shell.read("verify", "c", code=1) == [row]


def test_the_database_is_named_by_the_environment_too(shell: Shell) -> None:
    shell.play()
    command = [sys.executable, "-m", "ledger.admin", "runs", "--json"]
    done = subprocess.run(command, env=os.environ | {"TAILFOLD_DATA": str(shell.data)}, capture_output=True, check=True)
    assert len(json.loads(done.stdout)["runs"]) == 1


def test_what_a_model_said_does_not_steer_the_terminal(shell: Shell, tmp_path: Path) -> None:
    odd = "[bold]x[/bold] \\u001b[31mred\\u0007 \\ud83d"
    chunks = [
        '{"type":"message_start","message":{"id":"m","role":"assistant","content":[]}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"' + odd + '"}}',
        '{"type":"content_block_stop","index":0}',
        '{"type":"message_stop"}',
    ]
    (tmp_path / "odd.jsonl").write_text("\n".join(chunks))
    shell.play(file=tmp_path / "odd.jsonl")
    shown = shell.run("show", "c")
    assert "[bold]x[/bold]" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\\ud83d" in shown


@pytest.mark.heavy
def test_every_command_that_prints_data_prints_it_as_json_with_the_promised_keys(shell: Shell) -> None:
    file = ["--format", "anthropic", "--conversation", "c"]
    told = [json.loads(line) for line in shell.run("play", str(SAMPLE), *file, "--json").splitlines()]
    assert told[0].keys() == {"run_id", "acknowledged_seq"}
    assert told[-1]["run_id"] == told[0]["run_id"]
    numbers = [line["acknowledged_seq"] for line in told[:-1]]
    assert numbers == sorted(set(numbers))
    [run] = shell.read("runs")["runs"]
    assert run == told[-1] == shell.read("recover", told[0]["run_id"], "--action", "commit")
    assert run.keys() >= {"conversation", "run_id", "status", "outcome", "seq", "end_seq", "messages", "usage", "finish_reason"}
    assert shell.read("show", "c").keys() == {"conversation", "erased", "messages", "open_runs", "anomalies"}
    [event] = [json.loads(line) for line in shell.run("events", "c", "--after", str(run["end_seq"] - 1), "--json").splitlines()]
    assert event.keys() == {"seq", "type", "at", "at_iso", "data"}
    assert shell.read("verify", "c") == []
    compaction = shell.read("compact", "c", "--dry-run")
    assert compaction.keys() == {"conversation", "dry_run", "floor_before", "floor", "head", "binds", "unkept"}
    assert shell.read("compact", "c", "--dry-run") == compaction


def test_a_follower_begins_after_a_number_and_waits_for_what_comes(shell: Shell) -> None:
    shell.play()
    [run] = shell.read("runs")["runs"]
    command = shell.command("events", "c", "--follow", "--after", str(run["end_seq"]), "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        shell.play()
        first = json.loads(follower.stdout.readline())
        assert follower.poll() is None
        follower.kill()
    assert (first["seq"], first["type"]) == (run["end_seq"] + 1, "run.started")


@pytest.mark.heavy
def test_the_demo_tells_a_person_what_it_proved_and_leaves_nothing_behind(shell: Shell, tmp_path: Path) -> None:
    said = shell.run("demo")
    steps = ("  user      Does the night train", "→ find_trains {", "← NJ 471", "was killed (SIGKILL)", "is refused",
             "Recovered", "comes back with its cursor", "… (partial)", "All is as it should be.")  # fmt: skip
    places = [said.find(step) for step in steps]
    assert -1 not in places
    assert places == sorted(places)
    assert "✗" not in said
    assert said.endswith("`tailfold demo --keep demo-files` leaves the file to look at.\n")
    assert max(map(len, said.splitlines())) <= 80
    assert not list(tmp_path.iterdir())
