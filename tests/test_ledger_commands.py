"""What holds for every command over conversations: what it refuses, and what it prints where."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.ledger_commands import fill, record, refuse_each, run_each, talk, turns
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


COMMANDS_OF_A_CONVERSATION = [
    ["show", "x"], ["tree", "x"], ["select", "x", "m"], ["describe", "x", "--title", "t"], ["erase", "x", "--yes"],
    ["snapshot", "x"], ["compact", "x"], ["export", "x"], ["runs", "x"], ["cancel", "r", "--conversation", "x"],
    ["recover", "r", "--action", "fail", "--conversation", "x"],
]  # fmt: skip
NEEDING_A_STORE = [
    *COMMANDS_OF_A_CONVERSATION, ["conversations"], ["cancel", "r"], ["compact", "--all"], ["export", "--all"],
]  # fmt: skip


def test_a_database_that_is_not_there_is_named_and_not_made(shell: Shell) -> None:
    for told in refuse_each(shell, NEEDING_A_STORE):
        assert f"{shell.data}: there is no such file" in told
    assert not shell.data.exists()


def test_a_conversation_that_is_not_there_is_named(shell: Shell) -> None:
    fill(shell, talk)
    for told in refuse_each(shell, COMMANDS_OF_A_CONVERSATION):
        assert "no conversation 'x': `tailfold conversations` lists what there is" in told


def test_an_odd_id_is_refused_in_a_line_that_can_be_read(shell: Shell) -> None:
    fill(shell, talk)
    odd = ["", "x" * 10_000, "\udcff\udcfe", "é" * 200]
    commands = [[odd_id if word == "x" else word for word in words] for words in COMMANDS_OF_A_CONVERSATION for odd_id in odd]
    for told in refuse_each(shell, commands):
        assert "conversation id" in told
        assert len(told) < 300


def test_wrong_words_are_a_usage_error(shell: Shell) -> None:
    fill(shell, talk)
    before = shell.data.read_bytes()
    commands = [
        ["conversations", "--limit", "0"], ["conversations", "x"], ["runs", "--status", "asleep"], ["tree"], ["select", "c"],
        ["show", "c", "--limit", "-1"], ["show", "c", "--branch", "mine"], ["cancel"], ["recover", "r"], ["erase"],
        ["describe"], ["snapshot"], ["compact", "--all", "--replay-window", "-1"], ["import"],
    ]  # fmt: skip
    for words, (code, _, err) in zip(commands, run_each(shell, commands), strict=True):
        assert (code, "Usage" in err) == (2, True), words
    assert shell.data.read_bytes() == before


@pytest.mark.parametrize("words", [["events", "c", "--json"], ["export", "c"], ["runs", "--json"]], ids=lambda words: words[0])
def test_a_reader_that_has_seen_enough_is_no_error(shell: Shell, words: list[str]) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(1000)))
    with subprocess.Popen(shell.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.read(10)
        writer.stdout.close()
        assert writer.stderr is not None
        assert writer.stderr.read() == b""
    assert writer.returncode == 0


@pytest.mark.parametrize("words", [["compact", "--all", "--json"], ["export", "--all"]], ids=lambda words: words[0])
def test_progress_is_shown_on_a_terminal_and_never_where_data_goes(shell: Shell, words: list[str]) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(10)))
    if words[0] == "export":
        words = [*words, "--output", str(shell.data.with_name("out.jsonl")), "--json"]
    leader, terminal = pty.openpty()
    done = subprocess.run(shell.command(*words), stdout=subprocess.PIPE, stderr=terminal, check=True, timeout=60)
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(leader, 65536)
        except OSError:  # the other end is closed and all is read
            break
    os.close(leader)
    assert b"compacting" in shown or b"exporting" in shown
    told: Any = json.loads(done.stdout)
    assert told
