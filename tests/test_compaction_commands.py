"""The commands `compact` and `snapshot`, of one conversation or of all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from stream import Snapshot
from tests.fork_server import COMMANDS
from tests.ledger_commands import fill, record, talk, turns
from tests.talk import started
from tests.test_bad_input import refused
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_all_conversations_are_compacted_and_a_bad_one_bars_no_other(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        for conversation in ("c1", "c2", "c3"):
            await record(ledger, conversation, turns(2))
        await ledger.compact("c1")
        head = (await ledger.store.append("c2", turns(1, "z", "q1.1"))).last_seq
        await ledger.store.truncate("c2", through=head)
        await ledger.record("c3", [started("open")])

    fill(shell, job)
    tried = json.loads(run_aside(shell, "compact", "--all", "--dry-run", "--json"))
    assert [record["conversation"] for record in tried] == ["c1", "c2", "c3"]
    numbers = {"floor_before", "floor", "head", "binds", "unkept"}
    for one in tried:
        assert one.keys() == {"conversation", "dry_run", "passed_over", "error"} | numbers
        assert one["dry_run"] is True
    assert [one["error"] is None for one in tried] == [True, False, True]
    assert (tried[2]["binds"], tried[2]["floor_before"]) == ("open_run:open", 0)
    told = run_aside(shell, "compact", "--all").splitlines()
    assert told[0] == "c1: 0 events went: the log keeps none, its numbers go on at 15"
    assert "what lies between is gone" in told[1]
    assert "bound by open_run:open" in told[2]
    assert shell.read("stats", "c3")["floor"] == 14


def run_aside(shell: Shell, *words: str) -> str:
    """Runs a command that finds something wrong, and tells more of it on standard error."""
    done = COMMANDS.run(*shell.command(*words)[5:])
    assert done.returncode == 1, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stdout.decode()


def test_a_window_is_kept_in_every_conversation(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        for conversation in ("c1", "c2"):
            await record(ledger, conversation, turns(2))

    fill(shell, job)
    for one in shell.read("compact", "--all", "--replay-window", "5"):
        assert (one["floor"], one["head"], one["binds"]) == (9, 14, "replay_window")


@pytest.mark.parametrize("command", ["compact", "export"])
def test_one_conversation_or_all_are_named(shell: Shell, command: str) -> None:
    fill(shell, talk)
    assert "name a conversation, or all of them with --all" in refused(shell, command)
    assert "name a conversation or --all, not both" in refused(shell, command, "c", "--all")


def test_a_snapshot_is_saved_read_back_and_listed_and_the_log_stays(shell: Shell) -> None:
    fill(shell, talk)
    listed = shell.read("snapshot", "c")
    assert (listed["conversation"], listed["floor"], listed["origin"], listed["snapshots"]) == ("c", 0, 0, [])
    saved = shell.read("snapshot", "c", "--save")
    assert saved["floor"] == 0
    assert saved["snapshots"] == [{"projector": "open_runs", "last_seq": saved["head"], "readable": True}]
    assert f"the log holds events 1 to {saved['head']}" in shell.run("snapshot", "c")
    assert shell.read("snapshot", "c", "--save") == saved


def test_an_unreadable_snapshot_is_marked_and_exits_1(shell: Shell) -> None:
    import sqlite3  # noqa: PLC0415
    from contextlib import closing  # noqa: PLC0415

    fill(shell, talk)
    shell.read("snapshot", "c", "--save")
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        raw.execute("UPDATE snapshots SET envelope = zeroblob(100)")
    assert [info["readable"] for info in shell.read("snapshot", "c", code=1)["snapshots"]] == [False]
    assert [info["readable"] for info in shell.read("snapshot", "c", "--save")["snapshots"]] == [True]


def test_a_retired_projector_is_dropped_so_that_it_binds_no_more(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        await talk(ledger)
        await ledger.recover("c", "r4", "commit")
        await ledger.store.snapshots.save(Snapshot("c", "words", 1, 3, 0, b"state"))

    fill(shell, job)
    assert shell.read("compact", "c", "--dry-run")["binds"] == "snapshot:words"
    told = refused(shell, "snapshot", "c", "--delete", "word")
    assert "has no snapshot of 'word': it has words" in told
    assert shell.read("snapshot", "c", "--delete", "words")["snapshots"] == []
    assert shell.read("compact", "c", "--dry-run")["binds"] is None
    assert "'open_runs' is in use" in refused(shell, "snapshot", "c", "--delete", "open_runs")
    assert "it has none at all" in refused(shell, "snapshot", "c", "--delete", "words")
    assert "projector name" in refused(shell, "snapshot", "c", "--delete", "")
