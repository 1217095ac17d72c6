"""Bad input is one clear line and exit code 2, and leaves everything as it was."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.recordings import SHARED
from tests.test_commands import SAMPLE, Shell

READING = [
    ["show", "c"], ["events", "c"], ["runs"], ["recover", "r", "--action", "commit"], ["compact", "c"], ["verify"],
]  # fmt: skip
LINES = SAMPLE.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def refused(shell: Shell, *words: str) -> str:
    """Runs a command that can't be done: exit code 2, one line, nothing half made."""
    existed, before = shell.data.exists(), shell.data.read_bytes() if shell.data.is_file() else b""
    told = shell.run(*words, code=2)
    assert told.startswith("tailfold: ")
    assert told.count("\n") == 1
    assert shell.data.exists() == existed
    assert not existed or not shell.data.is_file() or shell.data.read_bytes() == before
    return told


def test_an_import_of_no_name_is_not_one_of_the_current_folder(shell: Shell) -> None:
    assert "FILE must name a file or a folder, and it is empty" in refused(shell, "import", "")


def play(file: Path, conversation: str = "c") -> list[str]:
    return ["play", str(file), "--format", "anthropic", "--conversation", conversation]


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_a_missing_database_is_named(shell: Shell, words: list[str]) -> None:
    assert f"{shell.data}: there is no such file" in refused(shell, *words)


@pytest.mark.parametrize("words", [*READING, play(SAMPLE)], ids=lambda words: words[0])
def test_a_file_that_is_no_database_is_left_alone(shell: Shell, words: list[str]) -> None:
    shell.data.write_bytes(b"my diary\n" * 1000)
    assert "this is no Tailfold database" in refused(shell, *words)


@pytest.mark.parametrize("words", [["show", "c"], play(SAMPLE)], ids=lambda words: words[0])
def test_a_database_of_another_program_is_left_alone(shell: Shell, words: list[str]) -> None:
    with closing(sqlite3.connect(shell.data)) as other, other:
        other.execute("CREATE TABLE chunks (mine)")
    assert "database of another program" in refused(shell, *words)


def test_a_newer_database_asks_for_a_newer_program(shell: Shell) -> None:
    shell.play()
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        raw.execute("UPDATE components SET version = 99 WHERE name = 'ledger'")
    assert "upgrade Tailfold" in refused(shell, "show", "c")


def test_a_folder_and_a_missing_folder_are_named(shell: Shell, tmp_path: Path) -> None:
    shell.data = tmp_path
    assert "this is a folder" in refused(shell, *play(SAMPLE))
    shell.data = tmp_path / "no" / "chat.db"
    assert "its folder does not exist" in refused(shell, *play(SAMPLE))


@pytest.mark.parametrize("url", ["redis://host", "memory:x://", "mysql://localhost/x"])
def test_a_kind_of_store_that_is_not_there_is_named(url: str) -> None:
    command = [sys.executable, "-m", "ledger.admin", "--data", url, "runs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kind of store" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mode", [0o444, 0o000], ids=["read-only", "forbidden"])
def test_a_file_that_may_not_be_written_says_so(mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # a place of pytest's own is closed to others again with each session
        Path(folder).chmod(0o755)
        done = describe_as_nobody(Shell(Path(folder)), mode)
    assert done.returncode == 2, done.stderr
    assert ("can't be written" if mode else "can't be read") in done.stderr
    assert done.stderr.count("\n") == 1


def describe_as_nobody(shell: Shell, mode: int) -> subprocess.CompletedProcess[str]:
    shell.play()
    shell.data.chmod(mode)
    script = "import os, sys; from ledger.admin.app import run_app; assert run_app() == 0; "  # imports all there is
    script += "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.exit(run_app())"
    command = [sys.executable, "-c", script, *shell.command("describe", "c", "--title", "t")[5:]]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("odd", ["", "x" * 10_000, os.fsdecode(b"\xff\xfe"), "é" * 200])
def test_odd_ids_are_refused_and_make_nothing(shell: Shell, odd: str) -> None:
    assert "conversation id" in refused(shell, *play(SAMPLE, odd))
    shell.play()
    assert "conversation id" in refused(shell, "show", odd)
    assert "conversation id" in refused(shell, "compact", odd)


def test_what_is_unknown_is_named(shell: Shell) -> None:
    shell.play()
    for words in (["show", "x"], ["events", "x"], ["compact", "x"], ["verify", "x"], ["runs", "x"]):
        assert "no conversation 'x'" in refused(shell, *words)
    assert "no run 'x'" in refused(shell, "recover", "x", "--action", "commit")
    assert "no run 'x'" in refused(shell, "recover", "x", "--action", "commit", "--conversation", "c")


@pytest.mark.parametrize(
    "words",
    [
        ["recover", "x", "--action", "forget"], ["events", "c", "--after", "-1"], ["compact", "c", "--replay-window", "-1"],
        ["events", "c", "--after", "many"], [*play(SAMPLE), "--rate", "0"], ["play"], ["show"],
    ],
)  # fmt: skip
def test_wrong_words_are_a_usage_error(shell: Shell, words: list[str]) -> None:
    assert "Usage" in shell.run(*words, code=2)
    assert not shell.data.exists()
    shell.play()
    before = shell.data.read_bytes()
    assert "Usage" in shell.run(*words, code=2)
    assert shell.data.read_bytes() == before


@pytest.mark.parametrize("odd", ["", "x" * 10_000, os.fsdecode(b"\xff\xfe"), "\u00e9" * 200])
def test_odd_run_ids_are_refused_in_a_line_that_can_be_read(shell: Shell, odd: str) -> None:
    shell.play()
    for where in ([], ["--conversation", "c"]):
        told = refused(shell, "recover", odd, "--action", "commit", *where)
        assert "run id" in told
        assert len(told) < 500


def test_a_number_that_no_store_holds_is_refused(shell: Shell) -> None:
    shell.play()
    assert "whole number" in refused(shell, "events", "c", "--after", str(2**63), "--follow")


def test_an_unknown_format_names_those_there_are(shell: Shell) -> None:
    told = refused(shell, "play", str(SAMPLE), "--format", "telegraph", "--conversation", "c")
    assert "use one of agui, ai-sdk, anthropic, " in told


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("empty", b"", "holds nothing to play"),
        ("blank", b"\n\n  \n", "holds nothing to play"),
        ("garbage", bytes(range(256)) * 10, "frame 1, at byte 0"),
        ("array", b'[{"type": "nonsense"}]\n', "item 1: this is no anthropic stream"),
        ("no type", b'{"a": 1}\n', "line 1"),
        ("openai", b'{"type":"response.created","response":{}}\n{"type":"x"}\n', 'begins with "message_start"'),
        ("chat", b'{"id":"x","object":"chat.completion.chunk","choices":[]}\n', "line 1"),
        ("broken in the middle", "\n".join([*LINES[:4], '{"type": "content_', *LINES[4:]]).encode(), "line 5"),
        ("wrong shape", "\n".join([*LINES[:4], '{"type": "content_block_delta"}', *LINES[4:]]).encode(), "line 5"),
        ("wrong type", "\n".join([*LINES[:4], LINES[4].replace('"to know whether "', "5"), *LINES[5:]]).encode(), "line 5"),
        ("wrong role", LINES[0].replace('"assistant"', '"ghost"').encode() + b"\n" + LINES[1].encode(), "line 1"),
        ("wrong at the end", "\n".join([*LINES[:4], '{"a": 1}']).encode(), "line 5"),
        ("not utf-8", LINES[0].encode() + b"\n\xff\xfe\n" + LINES[1].encode(), "line 2: UTF-8 was expected"),
        ("gz that ends early", gzip.compress(SAMPLE.read_bytes())[:500], "ends too early"),
        ("gz that is none", b"\x1f\x8bnonsense", "can't be read"),
        (
            "deep",
            (LINES[0] + "\n" + '{"type": "x", "a": ' + "[" * 200_000 + "]" * 200_000 + "}\n" + LINES[1]).encode(),
            "line 2",
        ),
    ],
)
def test_a_file_that_is_no_recording_is_refused_before_anything_is_stored(
    shell: Shell, tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    told = refused(shell, *play(file))
    assert str(file) in told
    assert why in told


def test_a_recording_that_is_not_there_or_a_folder_is_named(shell: Shell, tmp_path: Path) -> None:
    assert "No such file" in refused(shell, *play(tmp_path / "nothing"))
    assert "Is a directory" in refused(shell, *play(tmp_path))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not beside this repository")
def test_streams_of_other_providers_are_refused(shell: Shell) -> None:
    for path in sorted((SHARED / "data" / "vercel-ai" / "openai").rglob("*.chunks.txt"))[:3]:
        assert "this is no anthropic stream" in refused(shell, *play(path))


@pytest.mark.parametrize("cut", ["between lines", "in a line"])
def test_a_recording_that_is_cut_off_ends_incomplete_and_what_came_stays(shell: Shell, tmp_path: Path, cut: str) -> None:
    file = tmp_path / "cut.jsonl"
    file.write_text("\n".join(LINES[:60] if cut == "between lines" else [*LINES[:60], LINES[60][:-9]]), encoding="utf-8")
    assert "incomplete" in shell.play(file=file, code=1)
    [message] = shell.read("show", "c")["messages"]
    assert message["status"] == "partial"
    assert message["blocks"][0]["signature"]
    assert message["blocks"][1]["text"].startswith("Let me look that up")
    assert [run["outcome"] for run in shell.read("runs")["runs"]] == ["incomplete"]


@pytest.mark.heavy
def test_an_error_in_the_stream_fails_the_run_and_keeps_what_came(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "error.jsonl"
    error = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    file.write_text("\n".join([*LINES[:60], error]), encoding="utf-8")
    assert "failed" in shell.play(file=file, code=1)
    [run] = shell.read("runs")["runs"]
    assert (run["status"], "overloaded_error" in run["error"]) == ("failed", True)
    assert shell.read("show", "c")["messages"] == []  # unfinished messages of a failed run are not on the path
    assert "Let me look that up" in shell.run("events", "c")


def test_an_error_after_a_whole_response_keeps_that_response_in_the_transcript(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "error.jsonl"
    again = [LINES[0].replace("msg_sample_0001", "msg_sample_0002"), *LINES[1:20]]
    file.write_text("\n".join([*LINES, *again, '{"type":"error","error":{"type":"overloaded_error"}}']), encoding="utf-8")
    assert "failed, 1 message" in shell.play(file=file, code=1)
    [message] = shell.read("show", "c")["messages"]
    assert (message["provider_ref"], message["status"]) == ("msg_sample_0001", "complete")
    [run] = shell.read("runs")["runs"]
    assert (run["status"], json.loads(run["error"])) == ("failed", {"type": "overloaded_error"})
    assert shell.run("verify") == "everything is as it should be\n"


def test_a_recording_that_is_refused_begins_no_run_in_a_conversation_there_is(shell: Shell, tmp_path: Path) -> None:
    shell.play()
    file = tmp_path / "bad.jsonl"
    file.write_text("\n".join([*LINES[:4], '{"type": ', *LINES[4:]]), encoding="utf-8")
    assert f"{file}, line 5" in refused(shell, *play(file))
    assert len(shell.read("runs")["runs"]) == 1
