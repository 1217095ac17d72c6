"""The commands that list and show: conversations in pages, runs by what became of them, the messages of a path."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from ledger.admin.json_shapes import iso
from stream import NewEvent, open_store
from tests.ledger_commands import fill, record, refuse_each, talk, turns
from tests.talk import finished, new
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


# conversations


@pytest.mark.heavy
def test_conversations_come_newest_first_in_pages_that_a_cursor_joins(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        for number in range(7):
            start = new(
                "run.started", run_id="r", parent_message_id=None, trigger="submit", producer="r", created_at=number // 2
            )
            await ledger.record(f"c{number}", [start, finished("r")])

    fill(shell, job)
    everything = shell.read("conversations")
    assert everything["next"] is None
    names = [record["conversation"] for record in everything["conversations"]]
    assert names == ["c6", "c5", "c4", "c3", "c2", "c1", "c0"]
    seen: list[str] = []
    words: list[str] = []
    while True:
        page = shell.read("conversations", "--limit", "3", *words)
        seen += [record["conversation"] for record in page["conversations"]]
        if page["next"] is None:
            break
        words = ["--after", page["next"]]
    assert seen == names
    assert f"--after {shell.read('conversations', '--limit', '3')['next']}" in shell.run("conversations", "--limit", "3")
    assert "--after" not in shell.run("conversations", "--limit", "7")


def test_a_conversation_is_listed_with_all_that_is_known_of_it(shell: Shell) -> None:
    fill(shell, talk)
    [info] = shell.read("conversations")["conversations"]
    active_at = info.pop("active_at")
    assert isinstance(active_at, int)
    assert info.pop("active_at_iso") == iso(active_at)
    assert info == {
        "conversation": "c", "title": None, "labels": [], "metadata": {}, "archived": False, "messages": 3, "runs": 4,
        "leaf": "r2.1", "projected_seq": info["projected_seq"], "erased": None,
    }  # fmt: skip
    assert info["projected_seq"] > 0


def test_conversations_are_found_by_prefix_label_title_and_archive(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        await ledger.describe("work:1", title="The 50% plan", labels=["plan", "köln"])
        await ledger.describe("work:2", title="Notes", metadata={"odd": "x"})
        await ledger.describe("home", title="A plan for Sunday", archived=True)

    fill(shell, job)

    def found(*words: str) -> set[str]:
        return {record["conversation"] for record in shell.read("conversations", *words)["conversations"]}

    assert found() == {"work:1", "work:2"}
    assert found("--archived") == {"work:1", "work:2", "home"}
    assert found("--archived", "--title", "PLAN") == {"work:1", "home"}
    assert found("--label", "köln") == {"work:1"}
    assert found("--label", "pla") == set()
    assert found("--prefix", "work:") == {"work:1", "work:2"}
    assert found("--title", "%") == {"work:1"}
    assert "köln" in shell.run("conversations")


def test_metadata_that_no_float_holds_does_not_bar_the_list(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        await ledger.record("c", [NewEvent("conversation.created", b'{"metadata":{"n":1e400,"m":[-1e999,2.5],"i":7}}')])
        await ledger.record("c", turns(1, "r"))
        await ledger.record("c", [NewEvent("message.annotated", b'{"message_id":"r0.1","patch":{"n":1e400}}')])

    fill(shell, job)
    [info] = shell.read("conversations")["conversations"]
    assert info["metadata"] == {"n": "1e400", "m": ["-1e999", 2.5], "i": 7}
    [message] = shell.read("show", "c")["messages"]
    assert message["metadata"] == {"n": "1e400"}


def test_a_cursor_that_can_not_be_read_is_refused(shell: Shell) -> None:
    fill(shell, talk)
    cursors = ["", "x", "MTI", "MTI6", "OmM", "LTU6Yw", "!!!", "MTIzOmP_", "é", "A" * 9999]
    words = [[command, "--after", cursor] for command in ("conversations", "runs") for cursor in cursors]
    for told in refuse_each(shell, words):
        assert "is no cursor: take the one that the page before ended with" in told
        assert len(told) < 300


def test_text_that_is_no_utf_8_is_refused(shell: Shell) -> None:
    fill(shell, talk)
    options = ["--prefix", "--label", "--title"]
    for option, told in zip(options, refuse_each(shell, [["conversations", name, "\udcff"] for name in options]), strict=True):
        assert f"{option} '\\udcff' is no UTF-8 text" in told


# runs


@pytest.mark.heavy
def test_runs_are_listed_by_what_has_become_of_them(shell: Shell) -> None:
    fill(shell, talk)
    assert {run["run_id"]: run["status"] for run in shell.read("runs")["runs"]} == {
        "r1": "committed", "r2": "committed", "r3": "failed", "r4": "streaming",
    }  # fmt: skip
    for status, expected in (("open", ["r4"]), ("streaming", ["r4"]), ("failed", ["r3"]), ("cancelled", []), ("created", [])):
        assert [run["run_id"] for run in shell.read("runs", "c", "--status", status)["runs"]] == expected
    assert "r3" in shell.run("runs", "--status", "failed")


def test_a_run_that_a_later_turn_replaced_is_superseded(shell: Shell) -> None:
    fill(shell, lambda ledger: record(ledger, "c", [*turns(2, "a"), *turns(1, "b", "a0.1")]))
    assert [(run["run_id"], run["status"]) for run in shell.read("runs")["runs"]] == [
        ("a0", "committed"), ("a1", "superseded"), ("b0", "committed"),
    ]  # fmt: skip


def test_runs_come_in_pages_that_a_cursor_joins(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        for name in ("a", "b:c"):
            await record(ledger, name, turns(3, name[0]))
        pages, last = [], None
        while page := [run async for run in ledger.runs(after=last, limit=4)]:
            pages.append([run.run_id for run in page])
            last = page[-1]
        assert pages == [["a0", "a1", "a2", "b0"], ["b1", "b2"]]
        assert last is not None
        assert [run.run_id async for run in ledger.runs("a", limit=0)] == []
        assert [run.run_id async for run in ledger.runs("a", status="failed", limit=1)] == []
        with pytest.raises(ValueError, match="after is a run of conversation 'b:c'"):
            _ = [run async for run in ledger.runs("a", after=last)]

    fill(shell, job)
    of_one = ["b0", "b1", "b2"]
    for words, expected in (
        (["--limit", "4"], ["a0", "a1", "a2", *of_one]),
        (["b:c", "--limit", "2"], of_one),
        (["--status", "committed", "--limit", "3"], ["a0", "a1", "a2", *of_one]),
    ):
        seen: list[str] = []
        after: list[str] = []
        while True:
            page = shell.read("runs", *words, *after)
            seen += [run["run_id"] for run in page["runs"]]
            if page["next"] is None:
                break
            after = ["--after", page["next"]]
        assert seen == expected
    cursor = shell.read("runs", "--limit", "4")["next"]
    assert f"there are more: add --after {cursor}" in shell.run("runs", "--limit", "4")
    assert "--after" not in shell.run("runs", "--limit", "6")
    of_others = shell.read("conversations", "--limit", "1")["next"]
    bad = [["runs", "a", "--after", cursor], ["runs", "--after", of_others], ["conversations", "--after", cursor]]
    elsewhere, *refused = refuse_each(shell, bad)
    assert "--after goes on behind a run of conversation 'b:c'" in elsewhere
    assert all("is no cursor: take the one that the page before ended with" in told for told in refused)


# show


@pytest.mark.heavy
def test_show_gives_the_active_path_another_one_or_all_of_it(shell: Shell) -> None:
    fill(shell, talk)

    def ids(*words: str) -> list[str]:
        shown = shell.read("show", "c", *words)
        assert shown.keys() == {"conversation", "erased", "messages", "open_runs", "anomalies"}
        assert [run["run_id"] for run in shown["open_runs"]] == ["r4"]
        return [message["id"] for message in shown["messages"]]

    assert ids() == ["r1.1", "r2.1"]
    assert ids("--select", "r1.1=r1.2") == ["r1.1", "r1.2"]
    assert ids("--select", "r1.1=r1.2", "--select", "=r1.1") == ["r1.1", "r1.2"]
    assert ids("--branch", "all") == ["r1.1", "r1.2", "r2.1"]
    assert ids("--limit", "1") == ["r2.1"]
    assert ids("--limit", "0") == []
    assert ids("--before", "r2.1") == ["r1.1"]
    assert ids("--branch", "all", "--before", "r2.1", "--limit", "1") == ["r1.2"]
    assert "Lyon" in shell.run("show", "c", "--select", "r1.1=r1.2")
    assert "Lyon" not in shell.run("show", "c")


def test_a_selection_finds_ids_that_hold_an_equals_sign(shell: Shell) -> None:
    events = [*turns(2, "a=b="), *turns(1, "=", "a=b=0.1")]
    fill(shell, lambda ledger: record(ledger, "c", events))
    shown = shell.read("show", "c", "--select", "a=b=0.1=a=b=1.1")
    assert [message["id"] for message in shown["messages"]] == ["a=b=0.1", "a=b=1.1"]


def test_what_can_not_be_shown_is_named(shell: Shell) -> None:
    fill(shell, talk)
    whys = {
        ("--select", "r1.1"): "PARENT=CHILD was expected",
        ("--select", "r1.1=r9.9"): "no such message follows another one: `tailfold tree c` shows the forks",
        ("--select", "=r2.1"): "no such message follows",
        ("--branch", "all", "--select", "r1.1=r1.2"): "leave --select out",
        ("--before", "r9.9"): "no committed message 'r9.9'",
    }
    for why, told in zip(whys.values(), refuse_each(shell, [["show", "c", *words] for words in whys]), strict=True):
        assert why in told


def test_what_is_committed_is_shown_although_the_log_is_gone(shell: Shell) -> None:
    """A log that was cut ahead of what the ledger has taken in."""
    fill(shell, lambda ledger: record(ledger, "c", turns(2, "a")))
    assert len(shell.read("show", "c")["messages"]) == 2

    async def cut() -> None:
        async with open_store(str(shell.data)) as store:
            head = (await store.append("c", turns(1, "b", "a1.1"))).last_seq
            await store.truncate("c", through=head)

    asyncio.run(cut())
    done = subprocess.run(shell.command("show", "c", "--json"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "what lies between is gone" in done.stderr
    shown = json.loads(done.stdout)
    assert [message["id"] for message in shown["messages"]] == ["a0.1", "a1.1"]
    assert (shown["open_runs"], shown["anomalies"]) == (None, None)
