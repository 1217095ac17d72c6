"""The commands where the log has a file of its own, which `--log` names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.ledger_commands import fill, talk
from tests.raw_bytes import readable
from tests.test_commands import SAMPLE, Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.heavy
def test_a_log_elsewhere_is_named_by_an_option_or_by_the_environment(shell: Shell, tmp_path: Path) -> None:
    log = ["--log", str(tmp_path / "log.db")]
    file = ["--format", "anthropic", "--conversation", "c"]
    subprocess.run(with_options(shell, log, "play", str(SAMPLE), *file), check=True, stdout=subprocess.DEVNULL)
    assert b"anthropic" in readable(tmp_path / "log.db")
    done = subprocess.run(with_options(shell, log, "show", "c", "--json"), check=True, capture_output=True)
    shown = json.loads(done.stdout)
    assert len(shown["messages"]) == 1
    env = os.environ | {"TAILFOLD_LOG": str(tmp_path / "log.db")}
    assert subprocess.run(shell.command("show", "c", "--json"), env=env, check=True, capture_output=True).stdout == done.stdout
    words = with_options(shell, log, "stats")
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (told.returncode, "the log has a file of its own" in told.stderr) == (2, True)


def test_a_log_that_is_missing_or_another_one_is_named(shell: Shell, tmp_path: Path) -> None:
    fill(shell, talk)
    for number in (1, 2):
        options = ["--log", str(tmp_path / f"log{number}.db")]
        data = ["--data", str(tmp_path / f"data{number}.db")]
        command = [sys.executable, "-m", "ledger.admin", *data, *options, "play", str(SAMPLE), "--format", "anthropic"]
        subprocess.run([*command, "--conversation", "c"], check=True, stdout=subprocess.DEVNULL)
    shell.data = tmp_path / "data1.db"
    for log, why in (
        (tmp_path / "no.db", "there is no such file"),
        (tmp_path / "log2.db", "this ledger belongs to the log"),
        ("", "an empty path names no database"),
        ("redis://x", "no kind of store"),
    ):
        words = with_options(shell, ["--log", str(log)], "runs")
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert why in done.stderr
    assert not (tmp_path / "no.db").exists()


@pytest.mark.heavy
def test_a_ledger_and_its_log_are_backed_up_and_restored_together(shell: Shell, tmp_path: Path) -> None:
    def run(data: str, log: str, *words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "ledger.admin", "--data", str(tmp_path / data), "--log", str(tmp_path / log), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr or done.stdout

    run("d.db", "l.db", "play", str(SAMPLE), "--format", "anthropic", "--conversation", "c")
    shown = run("d.db", "l.db", "show", "c", "--json")
    assert "name the copy of it with --log-target" in run("d.db", "l.db", "backup", str(tmp_path / "bd.db"), code=2)
    run("d.db", "l.db", "backup", str(tmp_path / "bd.db"), "--log-target", str(tmp_path / "bl.db"))
    assert "--log-backup" in run("d2.db", "l2.db", "restore", str(tmp_path / "bd.db"), code=2)
    run("d2.db", "l2.db", "restore", str(tmp_path / "bd.db"), "--log-backup", str(tmp_path / "bl.db"))
    assert run("d2.db", "l2.db", "show", "c", "--json") == shown
    assert "--log-backup" in shell.run("restore", str(tmp_path / "bd.db"), "--log-backup", str(tmp_path / "bl.db"), code=2)


def with_options(shell: Shell, options: list[str], *words: str) -> list[str]:
    command = shell.command(*words)
    at = command.index(str(shell.data)) + 1
    return [*command[:at], *options, *command[at:]]
