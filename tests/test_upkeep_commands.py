"""`stats`, `verify`, `backup`, `restore` and `vacuum`: what they print, their exit codes, and what they refuse."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.test_bad_input import refused
from tests.test_commands import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDING_A_STORE = [["stats"], ["stats", "c"], ["backup", "copy.db"], ["vacuum"], ["verify"]]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    home = Path.cwd()
    os.chdir(tmp_path)
    yield Shell(tmp_path)
    os.chdir(home)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.heavy
def test_a_conversation_is_backed_up_lost_and_restored(shell: Shell, tmp_path: Path) -> None:
    shell.play()
    shown = shell.read("show", "c")
    assert "copy.db: " in shell.run("backup", "copy.db")
    told = shell.read("backup", "other.db")
    assert told.keys() == {"backup", "bytes", "incarnation"}
    assert told["bytes"] == (tmp_path / "other.db").stat().st_size
    before = (tmp_path / "copy.db").read_bytes()
    shell.data.unlink()
    assert "restored from copy.db" in shell.run("restore", "copy.db")
    assert shell.read("show", "c") == shown
    assert (tmp_path / "copy.db").read_bytes() == before
    shell.data.unlink()
    restored = shell.read("restore", "other.db")
    assert restored["data"] == str(shell.data)
    assert shell.read("stats")["incarnation"] == restored["incarnation"] != told["incarnation"]
    shell.play()
    assert len(shell.read("show", "c")["messages"]) == 2


def test_a_backup_is_made_beside_a_live_run(shell: Shell) -> None:
    words = shell.command("play", str(Path(__file__).parent / "fixtures" / "sample.jsonl"))
    words += ["--format", "anthropic", "--conversation", "c", "--rate", "50", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as player:
        assert player.stdout is not None
        player.stdout.readline()
        shell.run("backup", "copy.db")
        assert shell.read("stats")["streams"] == 1
        player.kill()
    shell.data = shell.data.with_name("copy.db")
    assert [run["status"] for run in shell.read("runs")["runs"]] == ["streaming"]
    assert shell.run("verify") == "everything is as it should be\n"


def test_stats_of_the_store_and_of_a_conversation(shell: Shell) -> None:
    shell.play()
    store = shell.read("stats")
    counts = {
        "messages", "runs", "open_runs", "media", "media_bytes", "input_tokens", "output_tokens", "cached_tokens",
        "reasoning_tokens", "erased",
    }  # fmt: skip
    assert store.keys() == counts | {
        "conversations", "archived",
        "incarnation", "sqlite", "versions", "file_bytes", "wal_bytes", "page_bytes", "pages", "free_pages", "streams",
        "events", "numbered", "unswept_rows", "rows", "payload_bytes", "producers", "snapshots", "snapshot_bytes", "first_at",
        "last_at", "first_at_iso", "last_at_iso",
    }  # fmt: skip
    assert store["rows"] is None
    assert shell.read("stats", "--exact")["rows"] > 0
    stream = shell.read("stats", "c")
    assert stream.keys() == counts | {
        "conversation", "floor", "head", "origin", "events", "rows", "payload_bytes", "unswept_rows", "producers", "snapshots",
        "snapshot_bytes", "first_at", "last_at", "first_at_iso", "last_at_iso",
    }  # fmt: skip
    assert stream["events"] == store["events"] == len(shell.run("events", "c").splitlines())
    assert "use --exact" in shell.run("stats")
    assert "payload bytes" in shell.run("stats", "c")


@pytest.mark.heavy
def test_vacuum_makes_the_file_smaller_and_numbers_go_on(shell: Shell) -> None:
    shell.play()
    shell.play()
    head = shell.read("stats", "c")["head"]
    shell.run("compact", "c")
    done = shell.read("vacuum")
    assert done["after_bytes"] < done["before_bytes"]
    assert done["after_bytes"] == shell.data.stat().st_size
    shell.play()
    assert shell.read("runs", "c")["runs"][-1]["seq"] == head + 1
    assert "bytes before" in shell.run("vacuum")


def test_verify_names_a_lost_trigger_and_exits_1(shell: Shell) -> None:
    shell.play()
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        raw.execute("DROP TRIGGER head_floor_and_origin_never_fall_and_each_change_is_numbered")
    [finding] = shell.read("verify", code=1)
    assert finding["what"] == "trigger head_floor_and_origin_never_fall_and_each_change_is_numbered is missing"
    assert shell.read("verify", "c") == []


@pytest.mark.parametrize("name", ["appends", "sqlite_autoindex_appends_1", "messages"])
def test_verify_names_a_damaged_page_and_exits_1(shell: Shell, name: str) -> None:
    shell.play()
    with closing(sqlite3.connect(shell.data)) as raw:
        [(root,)] = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,))
    data = bytearray(shell.data.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    shell.data.write_bytes(data)
    assert ("", "file") in {(finding["conversation"], finding["kind"]) for finding in shell.read("verify", code=1)}
    assert "the file is damaged" in refused(shell, "backup", "copy.db")


@pytest.mark.parametrize("words", NEEDING_A_STORE, ids=" ".join)
def test_a_store_that_is_not_there_is_named_and_nothing_made(shell: Shell, tmp_path: Path, words: list[str]) -> None:
    assert f"{shell.data}: there is no such file" in refused(shell, *words)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("words", [["stats"], ["backup", "copy.db"], ["restore", "chat.db"], ["vacuum"]], ids=lambda w: w[0])
def test_memory_has_no_file(shell: Shell, tmp_path: Path, words: list[str]) -> None:
    shell.data = Path("memory:")
    assert "memory: what is kept in memory has no file" in shell.run(*words, code=2)
    assert names(tmp_path) == set()


def test_what_is_there_is_not_overwritten(shell: Shell, tmp_path: Path) -> None:
    shell.play()
    (tmp_path / "note").write_text("mine")
    assert "note: there is something of this name" in refused(shell, "backup", "note")
    assert "there is something of this name" in refused(shell, "backup", str(shell.data))
    assert "no/copy.db: its folder does not exist" in refused(shell, "backup", "no/copy.db")
    shell.run("backup", "copy.db")
    assert f"{shell.data}: there is something of this name" in refused(shell, "restore", "copy.db")
    assert (tmp_path / "note").read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"my diary\n" * 500, b"SQLite format 3\0" + b"\0" * 5000])
def test_what_is_no_backup_makes_no_store(shell: Shell, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "copy.db").write_bytes(content)
    assert refused(shell, "restore", "copy.db").startswith(f"tailfold: {tmp_path}/copy.db: ")
    assert names(tmp_path) == {"copy.db"}
    assert "no such file" in refused(shell, "restore", "missing.db")
    assert "no file" in refused(shell, "restore", str(tmp_path))


def test_odd_ids_are_refused(shell: Shell) -> None:
    shell.play()
    for odd in ("", "x" * 300):
        assert "conversation id" in refused(shell, "stats", odd)
        assert "conversation id" in refused(shell, "verify", odd)
    assert "no conversation 'x'" in refused(shell, "stats", "x")


@pytest.mark.parametrize("words", [["backup"], ["restore"], ["backup", "a", "b"], ["vacuum", "c"], ["stats", "--exactly"]])
def test_wrong_words_are_a_usage_error(shell: Shell, tmp_path: Path, words: list[str]) -> None:
    shell.play()
    assert "Usage" in shell.run(*words, code=2)
    assert names(tmp_path) == {"chat.db"}


def test_no_room_for_a_backup_is_one_line(shell: Shell, tmp_path: Path) -> None:
    shell.play()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    with closing(sqlite3.connect(shell.data)) as other:  # so that the log of the store is there already
        other.execute("SELECT * FROM streams").fetchall()
        done = subprocess.run(shell.command("backup", "copy.db"), preexec_fn=limit, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    why = "there is no room left for it, nothing was made: make room or name another place"
    assert done.stderr == f"tailfold: {tmp_path}/copy.db: {why}\n"
    assert not (tmp_path / "copy.db").exists()
    assert not (tmp_path / "copy.db.partial").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_a_backup_that_is_interrupted_leaves_nothing(shell: Shell, tmp_path: Path, number: signal.Signals, code: int) -> None:
    shell.play()
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        raw.execute("INSERT INTO snapshots SELECT 1, 'big', 1, zeroblob(100000000)")

    def hear() -> None:  # what is started in the background, as tests may be, inherits that SIGINT is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    command = shell.command("backup", "copy.db")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear) as making:  # noqa: PLW1509
        while not (tmp_path / "copy.db.partial").exists():
            assert making.poll() is None
            time.sleep(0.001)
        making.send_signal(number)
        _, told = making.communicate(timeout=60)
    assert (making.returncode, told) == (
        code, b"stopped: no copy was made, there is no copy.db; the database is as it was: run it again for a copy\n",
    )  # fmt: skip
    assert names(tmp_path) == {"chat.db"}
