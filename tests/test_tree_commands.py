"""The command `tree`: forks, the active path and what became of runs, however deep, odd or hostile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ledger_commands import fill, record, talk, turns
from tests.talk import finished, said, started
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from stream import NewEvent


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_tree_shows_forks_the_active_path_and_what_became_of_runs(shell: Shell) -> None:
    fill(shell, talk)
    assert shell.run("tree", "c") == (
        "c  3 messages, 4 runs, 1 fork\n"
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
    assert shell.run("tree", "c") == "c  0 messages, 1 run, 0 forks\n└── run r created, no message on a path\n"
    assert shell.read("tree", "c") == {"conversation": "c", "nodes": [], "forks": [], "leaf": None}


def test_several_beginnings_are_turns_at_the_root(shell: Shell) -> None:
    fill(shell, lambda ledger: record(ledger, "c", [*turns(1, "a"), *turns(1, "b")]))
    assert shell.run("tree", "c").splitlines()[1:] == [
        "├── turn 1 of 2",
        "│   └── ○ a0.1  assistant  turn 0  run a0 superseded",
        "└── ● b0.1  assistant  turn 0  run b0 committed  ← the active path ends here",
    ]


@pytest.mark.heavy
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
