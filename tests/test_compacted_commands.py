"""What `events` and `export` give where `compact` has let a part of the log go: all that is kept, and they say so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stream import NewEvent
from tests.ledger_commands import fill, run_each
from tests.test_commands import Shell, shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger

__all__ = ["shell"]


async def converse(ledger: Ledger) -> None:
    """A conversation with two branches and an image, which is compacted; and one that is whole."""
    async with ledger.run("c", run_id="r1") as run:
        question = await run.message("user", "hello")
        await run.message("assistant", "hi")
    async with ledger.run("c", run_id="r2", parent=question) as run:
        await run.message("assistant", "good day")
    await ledger.annotate("c", question, {"image": await ledger.add_media("c", b"\x89PNG", "image/png")})
    await ledger.compact("c")
    async with ledger.run("d", run_id="r3") as run:
        await run.message("user", "whole")


def told(shell: Shell, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    [(code, out, err)] = run_each(shell, [words])
    return code, [json.loads(line) for line in out.splitlines()], err


def test_events_begin_where_the_log_begins_and_say_so(shell: Shell) -> None:
    fill(shell, converse)
    floor = shell.read("snapshot", "c")["floor"]
    code, events, err = told(shell, "events", "c", "--json")
    assert (code, events, err.count("\n")) == (0, [], 1)
    assert f"events 1 to {floor} are gone from its log" in err
    assert f"none is left, the next one is {floor + 1}" in err

    async def go_on(ledger: Ledger) -> None:
        await (await ledger.begin_run("c", run_id="r4")).close()

    fill(shell, go_on)
    code, events, err = told(shell, "events", "c", "--json", "--after", "2")
    assert (code, [event["seq"] for event in events]) == (0, [floor + 1])
    assert f"events 3 to {floor} are gone" in err
    assert f"begins at event {floor + 1}" in err
    assert told(shell, "events", "c", "--json", "--after", str(floor)) == (0, events, "")


def test_events_that_were_erased_are_not_promised_elsewhere(shell: Shell) -> None:
    async def erase_and_go_on(ledger: Ledger) -> None:
        await converse(ledger)
        await ledger.erase("c")
        await ledger.erase("d")
        async with ledger.run("d", run_id="r5") as run:
            await run.message("user", "again")
        await ledger.compact("d")

    fill(shell, erase_and_go_on)
    assert "(what was said in them was erased): what follows begins at event" in told(shell, "events", "c", "--json")[2]
    origin = shell.read("snapshot", "d")["origin"]
    err = told(shell, "events", "d", "--json")[2]
    assert f"(to {origin} they were erased, of the others `tailfold show` has what was said): none is left" in err


def test_an_export_behind_a_compaction_has_all_that_is_kept_and_names_its_format(shell: Shell, tmp_path: Path) -> None:
    fill(shell, converse)
    before = shell.read("show", "c", "--branch", "all")["messages"]
    code, lines, err = told(shell, "export", "c")
    assert (code, lines[0]["tailfold_messages"], err.count("\n")) == (0, 1, 1)
    assert "are gone from its log: this export is in the format tailfold-messages" in err
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shell.data = tmp_path / "again.db"
    shell.run("import", str(tmp_path / "c.jsonl"))
    again = shell.read("show", "c", "--branch", "all")["messages"]
    kept = [[(one["id"], one["parent_id"], one["blocks"], one.get("metadata")) for one in each] for each in (before, again)]
    assert kept[0] == kept[1]
    assert len(again) == 3


def test_all_conversations_are_exported_alike_where_one_of_them_was_compacted(shell: Shell) -> None:
    async def with_a_stream(ledger: Ledger) -> None:
        await converse(ledger)
        await ledger.record("d", [NewEvent("another.type", b"{}")])
        await ledger.store.append("numbers", [NewEvent("tick", b"1"), NewEvent("tick", b"2")])
        await ledger.store.truncate("numbers", through=1)

    fill(shell, with_a_stream)
    code, lines, err = told(shell, "export", "--all")
    assert (code, [line["conversation"] for line in lines if "conversation" in line]) == (1, ["c", "d"])
    assert "it is without 1 streams that are no conversations, as 'numbers'" in err
    assert "it is without 1 events of types that only the log keeps" in err
    assert told(shell, "export", "d")[1][0]["tailfold"] == 1
    assert told(shell, "export", "numbers")[1][0] == {
        "tailfold": 1, "conversation": "numbers", "floor": 1, "origin": 0, "head": 2,
    }  # fmt: skip


def test_who_asks_for_the_events_gets_those_that_are_left(shell: Shell) -> None:
    fill(shell, converse)
    code, lines, err = told(shell, "export", "c", "--format", "tailfold")
    assert (code, [next(iter(line)) for line in lines]) == (1, ["tailfold"])
    assert "--format tailfold-messages writes what the ledger keeps of them" in err
