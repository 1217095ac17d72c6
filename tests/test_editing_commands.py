"""The commands that change a conversation: select, cancel, recover, describe, erase."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.ledger_commands import fill, talk, turns
from tests.raw_bytes import readable
from tests.talk import said, started
from tests.test_bad_input import refused
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger


SELDOM: Final = pytest.mark.heavy
SELDOM_SEEN: Final = ("incomplete", "failed", "commit", "fail")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


# select, cancel, recover, describe


def test_a_turn_is_selected_until_a_later_one_is_committed(shell: Shell) -> None:
    fill(shell, talk)
    assert shell.read("select", "c", "r1.2") == {"conversation": "c", "message_id": "r1.2", "leaf": "r1.2"}
    assert [message["id"] for message in shell.read("show", "c")["messages"]] == ["r1.1", "r1.2"]
    assert "ends at r2.1" in shell.run("select", "c", "r2.1")
    assert "`tailfold tree` shows what there is" in refused(shell, "select", "c", "r9.1")
    assert "no committed message 'r4.1'" in refused(shell, "select", "c", "r4.1")
    assert "message id" in refused(shell, "select", "c", "x" * 300)
    assert "message id" in refused(shell, "select", "c", os.fsdecode(b"\xff"))


def test_a_run_in_another_process_is_asked_to_stop(shell: Shell) -> None:
    script = """
import asyncio, sys
from ledger import open_ledger
async def main():
    async with open_ledger(sys.argv[1]) as ledger, ledger.run("c", run_id="r") as run:
        await run.text("going")
        await run.flush()
        print("begun", flush=True)
        print("asked by", await run.wait_for_cancel_request(), flush=True)
        await run.finish("cancelled")
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script, str(shell.data)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        line = ""
        while line != "begun\n":
            line = writer.stdout.readline()
        told = shell.read("cancel", "r", "--by", "somebody")
        assert told.pop("outcome") in (None, "cancelled")  # it may have done so before anybody looked
        assert told == {"conversation": "c", "run_id": "r", "is_asked": True}
        try:
            assert "asked by somebody\n" in writer.communicate(timeout=60)[0]
        finally:
            writer.kill()
    assert shell.read("cancel", "r") == {"conversation": "c", "run_id": "r", "is_asked": False, "outcome": "cancelled"}
    assert shell.run("cancel", "r") == "run r: had ended as cancelled before\n"
    assert "there is no run 'x'" in refused(shell, "cancel", "x")
    assert "run id" in refused(shell, "cancel", "x" * 300)


def test_a_run_id_that_several_conversations_use_needs_its_conversation(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        for conversation in ("c1", "c2"):
            await ledger.record(conversation, [started("r")])

    fill(shell, job)
    for words in (["cancel", "r"], ["recover", "r", "--action", "commit"]):
        assert "2 conversations have a run 'r': name one with --conversation ('c1', 'c2')" in refused(shell, *words)
    assert shell.read("recover", "r", "--action", "cancel", "--conversation", "c2")["status"] == "cancelled"
    assert [run["status"] for run in shell.read("runs")["runs"]] == ["created", "cancelled"]


def test_an_old_run_that_is_recovered_hides_nothing_unless_it_is_selected(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        await ledger.record("c", [*turns(1, "a"), started("old", "a0.1"), *said("old", "old.1", "old")])
        await ledger.record("c", [started("older", "a0.1"), *said("older", "older.1", "older"), *turns(1, "b", "a0.1")])

    fill(shell, job)
    assert shell.read("recover", "old", "--action", "commit")["status"] == "superseded"
    assert shell.read("tree", "c")["leaf"] == "b0.1"
    assert shell.read("recover", "older", "--action", "commit", "--select")["recovered"] == "commit"
    assert shell.read("tree", "c")["leaf"] == "older.1"
    again = "run old: had been recovered by commit before, 1 message committed; nothing was changed\n"
    assert shell.run("recover", "old", "--action", "commit", "--select") == again
    assert shell.read("tree", "c")["leaf"] == "older.1"


@pytest.mark.parametrize("end", ["completed", "cancelled", "cancel", *(pytest.param(e, marks=SELDOM) for e in SELDOM_SEEN)])
@pytest.mark.heavy
def test_what_is_asked_of_a_run_that_has_ended_changes_nothing_and_is_told(shell: Shell, end: str) -> None:
    """It is an error only where another end was asked for."""

    async def job(ledger: Ledger) -> None:
        run = await ledger.begin_run("c", run_id="r")
        await run.message("user", "q")
        await run.flush()
        if end in ("commit", "fail", "cancel"):
            await run.close()
            await ledger.recover("c", "r", end)  # type: ignore[arg-type]
        else:
            await run.finish(end)  # type: ignore[arg-type]

    fill(shell, job)
    before = shell.run("events", "c")
    like = {"completed": "commit", "incomplete": "commit", "failed": "fail", "cancelled": None}.get(end, end)
    for action in ("commit", "fail", "cancel"):
        told = shell.run("recover", "r", "--action", action, "--select", code=0 if action == like else 1)
        how = "been recovered by" if like == end else "ended as"
        assert told.startswith(f"run r: had {how} {end} before, ")
        assert told.endswith("; nothing was changed\n")
        record = shell.read("recover", "r", "--action", action, code=0 if action == like else 1)
        assert (record["recovered"] or record["outcome"]) == end
    assert shell.run("events", "c") == before


async def keep_open(ledger: Ledger) -> None:
    await ledger.record("c", [*turns(1, "a")])
    run = await ledger.begin_run("c", run_id="r")
    await run.message("user", "What is the capital of France, and what was it before?")
    await run.tool_call("look", {})
    await run.flush()


WHAT: Final = "2 messages (user 'What is the capital of France, and what…'; assistant [tool_call])"


def test_a_recovery_that_takes_away_says_what(shell: Shell) -> None:
    fill(shell, keep_open)
    told = shell.run("recover", "r", "--action", "cancel")  # where nobody can be asked it does as it is told
    assert told == (
        "run r: cancelled, recovered by cancel, 0 messages committed\n"
        f"not in the transcript any more, but in the log until it is compacted: {WHAT}\n"
    )
    assert [message["id"] for message in shell.read("show", "c")["messages"]] == ["a0.1"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [("y\n", []), ("n\n", []), pytest.param("\n", [], marks=SELDOM), pytest.param(None, ["--yes"], marks=SELDOM)],
)
def test_a_person_is_asked_before_a_recovery_takes_something_away(shell: Shell, answer: str | None, words: list[str]) -> None:
    fill(shell, keep_open)
    leader, terminal = pty.openpty()
    if answer is not None:
        os.write(leader, answer.encode())
    done = subprocess.run(
        shell.command("recover", "r", "--action", "cancel", *words), stdin=terminal, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    os.close(leader)
    os.close(terminal)
    is_done = answer in ("y\n", None)
    assert (f"Take away what run 'r' has said, {WHAT}? [y/N]:" in done.stderr) == (answer is not None)
    assert done.returncode == (0 if is_done else 2)
    assert ("run 'r' is open as before" in done.stderr) == (not is_done)
    assert [run["status"] for run in shell.read("runs")["runs"]][-1] == ("cancelled" if is_done else "streaming")


def test_a_conversation_is_described_for_lists(shell: Shell) -> None:
    fill(shell, talk)
    info = shell.read("describe", "c", "--title", "Trains", "--label", "a", "--label", "b")
    assert (info["title"], info["labels"], info["archived"]) == ("Trains", ["a", "b"], False)
    assert info == shell.read("conversations")["conversations"][0]
    assert shell.run("describe", "c", "--archive") == "c: title 'Trains', labels a, b, archived\n"
    assert shell.read("conversations")["conversations"] == []
    info = shell.read("describe", "c", "--no-archive", "--label", "", "--title", "")
    assert (info["title"], info["labels"], info["archived"]) == ("", [], False)
    assert "there is nothing to change" in refused(shell, "describe", "c")


# erase


def test_what_is_erased_is_nowhere_in_the_file(shell: Shell) -> None:
    fill(shell, talk)
    assert b"capital of France" in readable(shell.data)
    told = shell.read("erase", "c", "--yes")
    assert told == {"conversation": "c", "messages": 3, "runs": 4, "events": told["events"], "is_proven": True, "why": None}
    assert told["events"] > 10
    assert b"capital of France" not in readable(shell.data)
    assert shell.read("show", "c")["messages"] == shell.read("runs", "c")["runs"] == []
    [info] = shell.read("conversations")["conversations"]
    assert (info["erased"]["messages"], info["messages"]) == (3, 0)
    assert "erased" in shell.run("conversations")
    assert "3 messages in 4 runs" in shell.run("erase", "c", "--yes")  # the counts of all its lives


@pytest.mark.heavy
def test_several_are_erased_by_one_command(shell: Shell) -> None:
    fill(shell, talk)

    async def more(ledger: Ledger) -> None:
        async with ledger.run("d") as run:
            await run.text("Madrid is not")

    fill(shell, more)
    assert refused(shell, "erase", "c", "nobody", "--yes") == refused(shell, "show", "nobody")
    assert b"capital of France" in readable(shell.data)
    told = shell.read("erase", "c", "d", "c", "--yes")
    assert [(one["conversation"], one["messages"], one["is_proven"]) for one in told] == [("c", 3, True), ("d", 1, True)]
    held = readable(shell.data)
    assert not [text for text in (b"capital of France", b"Madrid") if text in held]
    assert shell.run("erase", "c", "d", "--yes").count("events are gone") == 2
    words = shell.command("erase", "c", "d")
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert "to erase 'c', 'd' for good" in done.stderr


def test_nothing_is_erased_where_nobody_can_be_asked(shell: Shell) -> None:
    fill(shell, talk)
    words = shell.command("erase", "c")
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "tailfold: to erase 'c' for good somebody must say so: use --yes where nobody can be asked\n"
    assert len(shell.read("show", "c")["messages"]) == 2


QUESTION: Final = b"Erase conversation 'c', 3 messages in 4 runs, for good? [y/N]:"


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2), ("\x03", 2)])
def test_a_person_is_asked_before_something_is_erased(shell: Shell, answer: str, code: int) -> None:
    fill(shell, talk)
    leader, terminal = pty.openpty()

    def hear() -> None:  # where the tests run in the background, it inherits that SIGINT is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    words, pipe = shell.command("erase", "c"), subprocess.PIPE
    with subprocess.Popen(words, stdin=terminal, stdout=pipe, stderr=pipe, start_new_session=True, preexec_fn=hear) as asked:  # noqa: PLW1509
        assert asked.stderr is not None
        said_first = asked.stderr.read(len(QUESTION))
        if answer == "\x03":
            asked.send_signal(signal.SIGINT)
        else:
            os.write(leader, answer.encode())
        try:
            _, told = asked.communicate(timeout=60)
        finally:
            asked.kill()
    os.close(leader)
    os.close(terminal)
    assert said_first == QUESTION
    assert b"Traceback" not in told
    assert asked.returncode == code
    assert len(shell.read("show", "c")["messages"]) == (0 if code == 0 else 2)
    if code == 2:
        assert b"nothing of 'c' was erased" in told


@pytest.mark.heavy
def test_an_erasure_that_is_not_proven_says_why_and_exits_1(shell: Shell) -> None:
    import sqlite3  # noqa: PLC0415
    from contextlib import closing  # noqa: PLC0415

    fill(shell, talk)
    with closing(sqlite3.connect(shell.data)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM messages").fetchone()
        assert "another process still reads old pages" in shell.run("erase", "c", "--yes", code=1)
        told = shell.read("erase", "c", "--yes", code=1)
    assert told["is_proven"] is False
    assert "tailfold vacuum" in told["why"]
    assert shell.read("erase", "c", "--yes")["is_proven"] is True
