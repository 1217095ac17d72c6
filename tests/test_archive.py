"""`export --format tailfold-messages`: a conversation without its log, that comes back the same, once."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from ledger import LedgerError, open_ledger
from ledger.transfer.archive import read_lines, write_lines
from ledger.transfer.importing import import_history
from ledger.transfer.recorded import Recorded
from projector.formats import FormatError
from tests import random_talks
from tests.faults.sizes import size
from tests.ledger_commands import fill
from tests.test_commands import Shell
from tests.test_context_results import FIRST, expiring, look

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from projector.formats.shared.history import Loss

IMAGE = bytes(range(256)) * 40


async def talk(ledger: Ledger) -> None:
    """Branches, a failed run, a tool's result, media, a choice, a selection, notes, and a log that is gone."""
    await ledger.describe("c", title="A talk", labels=["work"], metadata={"odd": {"a": [1, "\ud83d"]}})
    await look(ledger, "t1")
    fork_at = (await ledger.transcript("c"))[-1].id
    async with ledger.run("c", run_id="left", model="m", provider="p") as run:
        await run.message("user", "left\0 or \ud83d right")
        await run.step()
        await run.text("left it is")
    run = await ledger.fork("c", fork_at, run_id="failing")
    await run.message("user", "this fails")
    await run.text("half")
    await run.finish("failed", error="no")
    async with ledger.fork("c", fork_at, run_id="right") as run:
        await run.message("user", "right")
    await ledger.select("c", "left.2")
    await ledger.annotate("c", "left.1", {"rating": 5})
    await ledger.add_media("c", IMAGE, "image/png")
    context = await ledger.context("c", pipeline=expiring(FIRST), turn=9)
    await ledger.expand(context, context.messages[2].id)
    await ledger.describe("c", archived=True)
    await ledger.compact("c")


async def lines_of(ledger: Ledger, conversation: str = "c") -> list[str]:
    return [line async for line in write_lines(ledger.engine, conversation)]


@pytest.mark.anyio
async def test_what_is_written_comes_back_the_same_and_once() -> None:
    async with open_ledger("memory:") as ledger, open_ledger("memory:") as other:
        await talk(ledger)
        written = await lines_of(ledger)
        [kept] = read_lines("\n".join(written))
        first = await import_history(other.engine, "c", Recorded(kept=kept))
        assert await lines_of(other) == written
        theirs = {message.id: message.blocks for message in await other.transcript("c", branch="all")}
        assert theirs == {message.id: message.blocks for message in await ledger.transcript("c", branch="all")}
        assert [m.id for m in await other.transcript("c")] == [m.id for m in await ledger.transcript("c")]
        ours = {run.run_id: (run.outcome, run.error, len(run.prompts)) async for run in ledger.runs("c")}
        assert {run.run_id: (run.outcome, run.error, len(run.prompts)) async for run in other.runs("c")} == ours
        again = await import_history(other.engine, "c", Recorded(kept=kept))
        assert (again.events, again.head) == (0, first.head)
        assert (await other.context("c", turn=9)).view.view_id == (await ledger.context("c", turn=9)).view.view_id
        assert not [finding async for finding in other.reconcile()]


@settings(max_examples=size(smoke=12, full=25), deadline=None)
@given(random_talks.conversations)
def test_random_conversations_come_back_the_same(steps: list[random_talks.Step]) -> None:
    async def check() -> None:
        async with open_ledger("memory:") as ledger, open_ledger("memory:") as other:
            talk = random_talks.Talk(ledger, "c")
            await ledger.describe("c", title="A talk")
            for step in steps:
                await step.take(talk)
            written = await lines_of(ledger)
            [kept] = read_lines("\n".join(written))
            await import_history(other.engine, "c", Recorded(kept=kept))
            assert await lines_of(other) == written

    asyncio.run(check())


@pytest.mark.heavy
def test_the_commands_write_and_read_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "other").mkdir()
    other = Shell(tmp_path / "other")
    fill(shell, talk)
    written = shell.run("export", "c", "--format", "tailfold-messages")
    (tmp_path / "c.jsonl").write_text(written)
    other.run("import", str(tmp_path / "c.jsonl"))
    assert other.run("export", "--all", "--format", "tailfold-messages") == written
    assert "0 events of 0 runs added" in other.run("import", str(tmp_path / "c.jsonl"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"tailfold_messages":2,"conversation":"c"}', "line 1: its version is 2, this one knows 1: upgrade"),
        ('{"run":{}}', "line 1: a header was expected first"),
        ('{"tailfold_messages":1,"conversation":"c"}\n{"message":{}}', "line 2: a run was expected before"),
        ('{"tailfold_messages":1,"conversation":"c"}\n{"leaf":5}', 'line 2: "leaf" should be text'),
        ('{"tailfold_messages":1,"conversation":"c"}\n{"x":5}', "line 2: a run, a message, media"),
        ('{"tailfold_messages":1,"conversation":"c"}\n{"media":"a","data_base64":"AA=="}', "line 2: the bytes are not"),
        ('{"tailfold_messages":1,"conversation":"c"}\n{"choice":"run.started","body":{}}', "is nothing that is chosen"),
        ('{"tailfold_messages":1}', '"conversation" should be text'),
        ("", "the file is empty"),
    ],
)
def test_a_line_that_is_wrong_is_named(line: str, why: str) -> None:
    with pytest.raises(FormatError, match=re.escape(why)):
        list(read_lines(line))


@pytest.mark.anyio
async def test_a_line_is_ascii_free_json_and_ids_are_kept() -> None:
    async with open_ledger("memory:") as ledger:
        await talk(ledger)
        records = [json.loads(line) for line in await lines_of(ledger)]
        ids = [record["message"]["id"] for record in records if "message" in record]
        assert sorted(ids) == sorted(message.id for message in await ledger.transcript("c", branch="all"))


@pytest.mark.anyio
async def test_what_ends_while_it_is_read_is_left_out_with_all_that_hangs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.tables.runs.PAGE_ROWS", 1)
    async with open_ledger("memory:") as ledger:
        slow = await ledger.begin_run("c", run_id="slow", parent=None)
        await slow.message("user", "not yet")
        async with ledger.run("c", run_id="quick", parent=None) as quick:
            await quick.message("user", "said")
        lines = write_lines(ledger.engine, "c")
        read = [await anext(lines), await anext(lines)]  # the place of the slow one is behind the reader
        await slow.finish()
        async with ledger.run("c", parent="slow.1", run_id="late") as late:
            await late.message("user", "too late")
        read += [line async for line in lines]
        messages = [said for line in read if (said := json.loads(line).get("message"))]
        assert {each["run_id"] for each in messages}.isdisjoint({"slow", "late"})
        assert {each["parent_id"] for each in messages} - {None} <= {each["id"] for each in messages}


@pytest.mark.anyio
async def test_a_conversation_that_is_erased_while_it_is_read_is_no_torn_one() -> None:
    async with open_ledger("memory:") as ledger:
        await talk(ledger)
        lines = write_lines(ledger.engine, "c")
        await anext(lines)
        await ledger.erase("c")
        with pytest.raises(LedgerError, match="was erased or put back while it was read: read it again"):
            [line async for line in lines]


@pytest.mark.anyio
async def test_a_run_that_is_open_is_told_to_be_missing() -> None:
    async with open_ledger("memory:") as ledger:
        await talk(ledger)
        whole = await lines_of(ledger)
        run = await ledger.begin_run("c", run_id="open", parent=None)
        await run.message("user", "not yet")
        await run.flush()
        losses: list[Loss] = []
        assert [line async for line in write_lines(ledger.engine, "c", losses)] == whole
        assert [loss.what for loss in losses] == ["run open, which is open: end it with `tailfold recover` first"]
