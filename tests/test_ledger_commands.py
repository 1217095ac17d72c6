"""The commands over conversations, their trees and runs: what they print, their exit codes, and what they refuse."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from structlog.testing import capture_logs

from ledger import open_ledger
from stream import NewEvent, Snapshot, open_store
from tests.fork_server import COMMANDS
from tests.talk import finished, new, said, started
from tests.test_bad_input import refused
from tests.test_commands import SAMPLE, Shell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from ledger import Ledger

COMMANDS_OF_A_CONVERSATION = [
    ["show", "x"], ["tree", "x"], ["select", "x", "m"], ["describe", "x", "--title", "t"], ["erase", "x", "--yes"],
    ["snapshot", "x"], ["compact", "x"], ["export", "x"], ["runs", "x"], ["cancel", "r", "--conversation", "x"],
    ["recover", "r", "--action", "fail", "--conversation", "x"],
]  # fmt: skip
NEEDING_A_STORE = [
    *COMMANDS_OF_A_CONVERSATION, ["conversations"], ["cancel", "r"], ["compact", "--all"], ["export", "--all"],
]  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def fill(shell: Shell, job: Callable[[Ledger], Awaitable[object]]) -> None:
    """Does what a program would have done before the commands are run."""

    async def main() -> None:
        async with open_ledger(str(shell.data), durability="normal") as ledger:
            await job(ledger)
            await ledger.catch_up_all()  # what is left to do would change the file when a command is refused

    with capture_logs():
        asyncio.run(main())


async def talk(ledger: Ledger) -> None:
    """Two answers to one question, a failed run, and one that is still open."""
    async with ledger.run("c", run_id="r1") as run:
        question = await run.message("user", "What is the capital of France?")
        await run.message("assistant", "Lyon")
    async with ledger.run("c", run_id="r2", parent=question, trigger="regenerate") as run:
        await run.message("assistant", "Paris")
    with pytest.raises(ZeroDivisionError):
        async with ledger.run("c", run_id="r3") as run:
            raise ZeroDivisionError
    run = await ledger.begin_run("c", run_id="r4")
    await run.text("still going")
    await run.flush()


def run_each(shell: Shell, commands: Sequence[Sequence[str]]) -> list[tuple[int, str, str]]:
    """Exit code, standard output and error of each, in one process, for most of a command's time is its beginning."""
    return COMMANDS.run_each([["--data", str(shell.data), *words] for words in commands])


def refuse_each(shell: Shell, commands: Sequence[Sequence[str]]) -> list[str]:
    """What commands that can't be done say: exit code 2, one line, and nothing is changed."""
    before = shell.data.read_bytes() if shell.data.exists() else None
    told = run_each(shell, commands)
    for words, (code, out, err) in zip(commands, told, strict=True):
        assert (code, out, err.count("\n"), err[:10]) == (2, "", 1, "tailfold: "), (words, out, err)
        assert len(err) < 700, words
    assert (shell.data.read_bytes() if shell.data.exists() else None) == before
    return [err for _, _, err in told]


def turns(count: int, prefix: str = "q", parent: str | None = None) -> list[NewEvent]:
    """A conversation of `count` runs of one message, each behind the one before."""
    events: list[NewEvent] = []
    for number in range(count):
        run_id = f"{prefix}{number}"
        events += [started(run_id, parent), *said(run_id, f"{run_id}.1", f"turn {number}"), finished(run_id)]
        parent = f"{run_id}.1"
    return events


async def record(ledger: Ledger, conversation: str, events: list[NewEvent]) -> None:
    for at in range(0, len(events), 5000):
        await ledger.record(conversation, events[at : at + 5000])


# conversations


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
    for told in refuse_each(shell, [["conversations", "--after", cursor] for cursor in cursors]):
        assert "is no cursor: take the one that the page before ended with" in told
        assert len(told) < 300


def test_text_that_is_no_utf_8_is_refused(shell: Shell) -> None:
    fill(shell, talk)
    options = ["--prefix", "--label", "--title"]
    for option, told in zip(options, refuse_each(shell, [["conversations", name, "\udcff"] for name in options]), strict=True):
        assert f"{option} '\\udcff' is no UTF-8 text" in told


# runs


def test_runs_are_listed_by_what_has_become_of_them(shell: Shell) -> None:
    fill(shell, talk)
    assert {run["run_id"]: run["status"] for run in shell.read("runs")} == {
        "r1": "committed", "r2": "committed", "r3": "failed", "r4": "streaming",
    }  # fmt: skip
    for status, expected in (("open", ["r4"]), ("streaming", ["r4"]), ("failed", ["r3"]), ("cancelled", []), ("created", [])):
        assert [run["run_id"] for run in shell.read("runs", "c", "--status", status)] == expected
    assert "r3" in shell.run("runs", "--status", "failed")


def test_a_run_that_a_later_turn_replaced_is_superseded(shell: Shell) -> None:
    fill(shell, lambda ledger: record(ledger, "c", [*turns(2, "a"), *turns(1, "b", "a0.1")]))
    assert [(run["run_id"], run["status"]) for run in shell.read("runs")] == [
        ("a0", "committed"), ("a1", "superseded"), ("b0", "committed"),
    ]  # fmt: skip


# show


def test_show_gives_the_active_path_another_one_or_all_of_it(shell: Shell) -> None:
    fill(shell, talk)

    def ids(*words: str) -> list[str]:
        shown = shell.read("show", "c", *words)
        assert shown.keys() == {"conversation", "messages", "open_runs", "anomalies"}
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


# tree


def test_the_tree_shows_forks_the_active_path_and_what_became_of_runs(shell: Shell) -> None:
    fill(shell, talk)
    assert shell.run("tree", "c") == (
        "c  3 messages, 4 runs, 1 forks\n"
        "├── ● r1.1  user  What is the capital of France?  run r1 committed  fork: 2 turns follow\n"
        "│   └── turn 1 of 2\n"
        "│       └── ○ r1.2  assistant  Lyon  run r1 committed\n"
        "└── ● r2.1  assistant  Paris  run r2 committed  ← the active path ends here\n"
        "    ├── run r3 failed, no message on a path\n"
        "    └── run r4 streaming, no message on a path\n"
    )
    tree = shell.read("tree", "c")
    assert tree.keys() == {"conversation", "nodes", "forks", "leaf"}
    assert tree["forks"] == [{"parent_id": "r1.1", "children": ["r1.2", "r2.1"], "active": "r2.1"}]
    assert tree["leaf"] == "r2.1"
    assert tree["nodes"][0] == {
        "id": "r1.1", "parent_id": None, "started": 1, "is_committed": True, "selected": 0, "run_id": "r1",
        "run_status": "committed", "role": "user", "is_active": True,
    }  # fmt: skip
    assert [node["id"] for node in tree["nodes"] if node["is_active"]] == ["r1.1", "r2.1"]


def test_a_tree_without_messages_tells_of_its_runs(shell: Shell) -> None:
    fill(shell, lambda ledger: ledger.record("c", [started("r")]))
    assert shell.run("tree", "c") == "c  0 messages, 1 runs, 0 forks\n└── run r created, no message on a path\n"
    assert shell.read("tree", "c") == {"conversation": "c", "nodes": [], "forks": [], "leaf": None}


def test_several_beginnings_are_turns_at_the_root(shell: Shell) -> None:
    fill(shell, lambda ledger: record(ledger, "c", [*turns(1, "a"), *turns(1, "b")]))
    assert shell.run("tree", "c").splitlines()[1:] == [
        "├── turn 1 of 2",
        "│   └── ○ a0.1  assistant  turn 0  run a0 superseded",
        "└── ● b0.1  assistant  turn 0  run b0 committed  ← the active path ends here",
    ]


def test_ten_thousand_messages_stay_on_one_level(shell: Shell) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(10_000)))
    lines = shell.run("tree", "c").splitlines()
    assert len(lines) == 10_001
    assert {line[:6] for line in lines[1:]} == {"├── ● ", "└── ● "}
    tree = shell.read("tree", "c")
    assert (len(tree["nodes"]), tree["forks"], tree["leaf"]) == (10_000, [], "q9999.1")


def test_a_turn_that_is_regenerated_again_and_again_indents_nothing(shell: Shell) -> None:
    events: list[NewEvent] = []
    parent = None
    for number in range(100):
        events += [*turns(1, f"a{number}.", parent), *turns(1, f"b{number}.", parent)]
        parent = f"b{number}.0.1"
    fill(shell, lambda ledger: record(ledger, "c", events))
    lines = shell.run("tree", "c").splitlines()
    assert sum("●" in line for line in lines) == sum("○" in line for line in lines) == 100
    assert max(len(line) - len(line.lstrip("│├└─ ")) for line in lines) == len("│       └── ")


def test_forks_within_forks_are_drawn_below_where_they_would_indent_too_far(shell: Shell) -> None:
    """The turn that is followed is a short one at each fork, the other one goes on and on."""
    events = turns(100, "deep")
    for number in range(99):
        events += turns(1, f"short{number}.", f"deep{number}.1")
    fill(shell, lambda ledger: record(ledger, "c", events))
    lines = shell.run("tree", "c").splitlines()
    assert sum("● " in line or "○ " in line for line in lines) == 199
    assert max(len(line) - len(line.lstrip("│├└─ ")) for line in lines) <= 8 * 10
    assert any(line.startswith("turn 1 of 2 behind deep") for line in lines)


def test_messages_whose_parent_is_missing_or_behind_themselves_are_drawn_too(shell: Shell) -> None:
    events = [
        *turns(1, "a"),
        *turns(2, "lost", "nowhere.1"),
        *turns(1, "x", "y0.1"),
        *turns(1, "y", "x0.1"),
    ]
    fill(shell, lambda ledger: record(ledger, "c", events))
    lines = shell.run("tree", "c").splitlines()
    assert "behind message nowhere.1, which is not there" in lines
    assert "behind itself: a circle" in lines
    for message_id in ("a0.1", "lost0.1", "lost1.1", "x0.1", "y0.1"):
        assert sum(f" {message_id} " in line for line in lines) == 1


def test_a_tree_does_not_steer_the_terminal(shell: Shell) -> None:
    events = [started("r"), *said("r", "r.1", "[bold]x[/bold] \x1b[31m\nred\x07 " + "long " * 100), finished("r")]
    fill(shell, lambda ledger: record(ledger, "c", events))
    drawn = shell.run("tree", "c")
    assert "[bold]x[/bold] ␛[31m red␇ long" in drawn
    assert "\x1b" not in drawn
    assert max(len(line) for line in drawn.splitlines()) < 160


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
        assert told == {"conversation": "c", "run_id": "r", "is_asked": True, "outcome": None}
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
    assert [run["status"] for run in shell.read("runs")] == ["created", "cancelled"]


def test_an_old_run_that_is_recovered_hides_nothing_unless_it_is_selected(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        await ledger.record("c", [*turns(1, "a"), started("old", "a0.1"), *said("old", "old.1", "old")])
        await ledger.record("c", turns(1, "b", "a0.1"))

    fill(shell, job)
    assert shell.read("recover", "old", "--action", "commit")["status"] == "superseded"
    assert shell.read("tree", "c")["leaf"] == "b0.1"
    assert shell.read("recover", "old", "--action", "commit", "--select")["recovered"] == "commit"
    assert shell.read("tree", "c")["leaf"] == "old.1"


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
    assert b"capital of France" in shell.data.read_bytes()
    told = shell.read("erase", "c", "--yes")
    assert told == {"conversation": "c", "messages": 3, "runs": 4, "events": told["events"], "is_proven": True, "why": None}
    assert told["events"] > 10
    assert b"capital of France" not in shell.data.read_bytes()
    assert shell.read("show", "c")["messages"] == shell.read("runs", "c") == []
    [info] = shell.read("conversations")["conversations"]
    assert (info["erased"]["messages"], info["messages"]) == (3, 0)
    assert "erased" in shell.run("conversations")
    assert "3 messages in 4 runs" in shell.run("erase", "c", "--yes")  # the counts of all its lives


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


# compact, snapshot


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
    for one in tried:
        assert one.keys() == {"conversation", "dry_run", "floor_before", "floor", "head", "binds", "error"}
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


# a log elsewhere


def test_a_log_elsewhere_is_named_by_an_option_or_by_the_environment(shell: Shell, tmp_path: Path) -> None:
    log = ["--log", str(tmp_path / "log.db")]
    file = ["--format", "anthropic", "--conversation", "c"]
    subprocess.run(with_options(shell, log, "play", str(SAMPLE), *file), check=True, stdout=subprocess.DEVNULL)
    assert b"anthropic" in (tmp_path / "log.db").read_bytes()
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


# all of them


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
