"""A repair that slept between its look and its step: it takes nothing back, and looks again.

Each step is entered after others have done something, as by a process that was stopped there and goes on.
"""

from __future__ import annotations

import json
import shutil
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import Ledger, erasure
from ledger.upkeep import comparison, reconcile, repair, verify
from projector import Block
from stream.clock import now_ms
from tests.needles import PLACES, open_at, wrong
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from ledger.upkeep.verify import Finding
    from stream import NewEvent
    from stream.sqlite import Sql

    Do = Callable[[], Awaitable[object]]

pytestmark = pytest.mark.anyio
SECRET: Final = "what was said"


def turn(run_id: str, parent: str | None, text: str = "x") -> list[NewEvent]:
    return [started(run_id, parent), *said(run_id, f"{run_id}.1", text), finished(run_id)]


async def talk(ledger: Ledger) -> None:
    await ledger.record("c", [*turn("r", None, SECRET), *turn("s", "r.1"), *turn("t", "r.1")])
    await ledger.annotate("c", "r.1", {"before": 1})
    await ledger.select("c", "s.1")


@asynccontextmanager
async def two(folder: Path, place: str) -> AsyncIterator[tuple[Ledger, Ledger]]:
    """Two programs on the same files."""
    async with open_at(folder, place) as ledger, open_at(folder, place) as beside:
        await talk(ledger)
        yield ledger, beside


def enter(monkeypatch: pytest.MonkeyPatch, step: str, before: Do, after: Do | None = None) -> list[str]:
    """Others do something whenever, and only the first time, `step` is about to be taken; how often it was taken."""
    plain = getattr(repair, step)
    taken: list[str] = []

    async def entered(*words: Any) -> Any:
        taken.append(step)
        if len(taken) == 1:
            await before()
        told = await plain(*words)
        if len(taken) == 1 and after is not None:
            await after()
        return told

    monkeypatch.setattr(repair, step, entered)
    return taken


async def mend(ledger: Ledger) -> list[tuple[str, bool]]:
    found = [finding async for finding in ledger.reconcile("c", repair=True)]
    return [(finding.kind, finding.is_mended) for finding in found if not finding.is_note]


async def change(ledger: Ledger, *statements: str) -> None:
    for statement in statements:
        await ledger.tables.database.write(partial(_run, text=statement))


async def _run(sql: Sql, text: str) -> None:
    await sql(text)


DAMAGED: Final = "UPDATE messages SET row_body = CAST('{}' AS BLOB) WHERE id = 'r.1'"
OUTDATED: Final = "UPDATE messages SET crc = ?1, row_body = ?2 WHERE id = 'r.1'"
MISSING: Final = ("DELETE FROM messages WHERE run = 'r'", "DELETE FROM runs WHERE id = 'r'")


async def outdate(ledger: Ledger) -> None:
    """An amendment is there that the row of its message lacks."""
    [(crc, body)] = await ledger.tables.database.read("SELECT crc, row_body FROM messages WHERE id = 'r.1'")
    await ledger.annotate("c", "r.1", {"lost": 1})
    await ledger.tables.database.write(lambda sql: sql(OUTDATED, (crc, body)))


async def metadata(ledger: Ledger) -> dict[str, int]:
    message = await ledger.tables.message("c", "r.1")
    assert message is not None
    return {name: json.loads(value) for name, value in message.metadata_text.items()}


@pytest.mark.parametrize("place", PLACES)
async def test_an_amendment_that_comes_before_a_run_is_written_anew_is_never_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    async with two(tmp_path, place) as (ledger, beside):
        await outdate(ledger)

        async def redact() -> None:
            await beside.annotate("c", "r.1", {"since": 1})
            await beside.redact("c", "r.1", [Block("text", text="redacted")])

        async def look() -> None:
            message = await beside.tables.message("c", "r.1")
            assert message is not None
            assert (message.text, await metadata(beside)) == ("redacted", {"before": 1, "since": 1})

        taken = enter(monkeypatch, "rewrite", redact, look)
        assert await mend(ledger) == [("diverged", True)]
        assert len(taken) == 2
        assert await metadata(beside) == {"before": 1, "lost": 1, "since": 1}
        assert await wrong(beside) == []


@pytest.mark.parametrize("place", PLACES)
async def test_what_was_erased_before_it_is_written_anew_is_not_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    async with two(tmp_path, place) as (ledger, beside):
        await change(ledger, *MISSING)
        taken = enter(monkeypatch, "rewrite", lambda: beside.erase("c"))
        await mend(ledger)
        assert len(taken) == 1
        assert await ledger.tables.database.read("SELECT * FROM messages") == []
        assert await ledger.tables.database.read("SELECT * FROM runs") == []
        assert await wrong(beside) == []


async def test_what_was_compacted_before_it_is_written_anew_is_mended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path, "one file") as (ledger, beside):
        await change(ledger, DAMAGED)
        enter(monkeypatch, "rewrite", lambda: beside.compact("c"))
        assert await mend(ledger) == [("diverged", True)]
        assert await metadata(beside) == {"before": 1}
        assert await wrong(beside) == []


async def test_two_repairs_at_once_write_once_and_both_say_that_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path, "one file") as (ledger, beside):
        await change(ledger, *MISSING)
        taken = enter(monkeypatch, "rewrite", lambda: mend(beside))
        assert await mend(ledger) == [("diverged", True)]
        assert len(taken) == 2
        assert await wrong(ledger) == []
        assert [message.text for message in await beside.transcript("c")] == [SECRET, "x"]


@pytest.mark.parametrize("way", ["missing", "damaged"])
async def test_a_run_is_written_anew_with_the_tree_that_follows_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Who is killed behind any step leaves a tree that holds together, with the turn that was chosen."""
    async with two(tmp_path, "one file") as (ledger, beside):
        before = await beside.transcript("c")
        assert [message.id for message in before] == ["r.1", "s.1"]  # and t.1 came later
        await change(ledger, *(each.replace("'r", "'s") for each in (MISSING if way == "missing" else (DAMAGED,))))

        async def nothing() -> None: ...

        async def look() -> None:
            assert [finding async for finding in verify.check_tree(beside.engine, "c")] == []
            assert await beside.transcript("c") == before

        taken = enter(monkeypatch, "rewrite", nothing, look)
        assert ("diverged", True) in await mend(ledger)
        assert len(taken) == 1
        assert await wrong(beside) == []


async def test_who_puts_a_ledger_back_late_does_not_put_back_what_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(tmp_path, "two files") as ledger:
        await ledger.record("c", turn("r", None, SECRET))
        await ledger.catch_up("c")
    shutil.copy(tmp_path / "log.db", tmp_path / "old.db")
    async with open_at(tmp_path, "two files") as ledger:
        await ledger.record("c", turn("s", "r.1"))
        await ledger.catch_up("c")
    shutil.copy(tmp_path / "old.db", tmp_path / "log.db")
    async with open_at(tmp_path, "two files") as ledger, open_at(tmp_path, "two files") as beside:

        async def go_on() -> None:
            assert await mend(beside) == [("diverged", True)]
            for run_id in ("later", "last"):
                async with beside.run("c", run_id=run_id) as run:
                    await run.message("user", run_id)
            await beside.compact("c")

        taken = enter(monkeypatch, "rewind", go_on)
        assert await mend(ledger) == []
        assert len(taken) == 2  # ours and theirs
        assert (await ledger.tables.position("c")).projected_seq == (await ledger.store.bounds("c")).head
        assert await wrong(beside) == []
        assert [message.text for message in await beside.transcript("c")][-1] == "last"


async def test_who_goes_on_behind_a_hole_late_notes_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(tmp_path, "one file") as (ledger, beside):
        await ledger.record("c", turn("lost", "r.1"))
        await ledger.store.truncate("c", through=(await ledger.store.bounds("c")).head)
        await ledger.record("c", turn("late", "r.1", "late"))
        for each in (ledger, beside):
            each.forget("c")

        async def go_on() -> None:
            assert await mend(beside) == [("hole", False)]
            async with beside.run("c") as run:
                await run.message("user", "on it goes")

        taken = enter(monkeypatch, "skip_hole", go_on)
        assert await mend(ledger) == []
        assert len(taken) == 2
        position = await ledger.tables.position("c")
        assert len(json.loads(position.holes or "")) == 1
        assert position.projected_seq == (await ledger.store.bounds("c")).head
        assert [message.text for message in await beside.transcript("c")][-1] == "on it goes"
        assert await wrong(beside) == []


async def test_a_run_whose_events_are_gone_is_listed_as_failed_by_one_repair_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path, "one file") as (ledger, beside):
        run = await ledger.begin_run("c", run_id="open")
        await ledger.catch_up("c")
        await ledger.store.delete("c")
        taken = enter(monkeypatch, "end_lost_run", lambda: mend(beside))
        assert await mend(ledger) == []
        assert len(taken) == 2
        assert [info.status async for info in beside.runs("c") if info.run_id == "open"] == ["failed"]
        await run.close()


@pytest.mark.parametrize("place", PLACES)
async def test_rows_that_move_on_before_every_look_are_never_called_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The same run is amended however often it is looked at."""
    async with two(tmp_path, place) as (ledger, beside):
        count = 0

        def amended(plain: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def look(*words: Any) -> Any:
                nonlocal count
                count += 1
                await beside.annotate("c", "r.1", {"count": count})
                await beside.record("c", [new("run.usage", run_id="r", request_id="q", input=count)])
                await beside.catch_up("c")
                return await plain(*words)

            return look

        plain = comparison.compare

        async def compare(*words: Any) -> Any:
            with monkeypatch.context() as patches:
                for name in ("read", "look"):
                    patches.setattr(ledger.tables.database, name, amended(getattr(ledger.tables.database, name)))
                return await plain(*words)

        monkeypatch.setattr(verify, "compare", compare)
        monkeypatch.setattr(reconcile, "compare", compare)
        assert await wrong(ledger) == []
        assert await mend(ledger) == []
        assert count > 20


async def test_an_approval_of_what_is_redacted_meanwhile_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older message makes a call of the same id; what is found of that is not found again."""
    async with two(tmp_path, "one file") as (ledger, beside):
        await ledger.record("c", [*asking("old"), *asking("new")])
        await ledger.catch_up("c")
        go_through, look_again = comparison.Comparison.go_through, comparison.Comparison.look_again
        calling = ledger.tables.calling

        async def annotate(compared: comparison.Comparison) -> None:
            await beside.annotate("c", "old.1", {"late": 1})
            await go_through(compared)

        async def approve(compared: comparison.Comparison) -> None:
            await beside.record("c", [new("tool.approval", tool_call_id="call", approval_id="a")])
            await beside.catch_up("c")
            await look_again(compared)

        async def redact(*words: Any, **options: Any) -> Any:
            monkeypatch.undo()
            await beside.redact("c", "new.1")
            return await calling(*words, **options)

        monkeypatch.setattr(comparison.Comparison, "go_through", annotate)
        monkeypatch.setattr(comparison.Comparison, "look_again", approve)
        monkeypatch.setattr(ledger.tables, "calling", redact)
        assert (await comparison.compare(ledger.engine, "c")).differences == []
        assert comparison.Comparison.look_again is look_again  # so all of it has happened


def asking(run_id: str) -> list[NewEvent]:
    call = {"message_id": f"{run_id}.1", "block": 0}
    return [
        started(run_id, "r.1"),
        new("message.started", run_id=run_id, message_id=f"{run_id}.1", role="assistant"),
        new("block.started", **call, kind="tool_call", name="f", tool_call_id="call"),
        new("block.sealed", **call, parse="ok"),
        new("message.finished", message_id=f"{run_id}.1", status="complete"),
        finished(run_id),
    ]


async def erasing(ledger: Ledger, claimed_until: int, at: int) -> list[Finding]:
    counts = erasure.Counts(1, 1, 1, at, claim="theirs", claimed_until=claimed_until)
    said = json.dumps({name: getattr(counts, name) for name in counts.__struct_fields__})
    await ledger.tables.database.write(lambda sql: sql("UPDATE conversations SET erased = ?1", (said,)))
    return [finding async for finding in ledger.reconcile("c")]


async def test_an_erase_that_is_under_way_is_no_fault_and_is_left_to_who_does_it(tmp_path: Path) -> None:
    async with two(tmp_path, "one file") as (ledger, beside):
        now = now_ms()
        assert [finding.is_note for finding in await erasing(ledger, now + 4000, now - 60_000)] == [True]
        assert await mend(beside) == []
        assert [finding.is_note for finding in await erasing(ledger, 0, now)] == [True]  # begun, and not claimed yet
        assert [finding.is_note for finding in await erasing(ledger, now + 86_400_000, now - 60_000)] == [False]  # no claim
        assert [finding.is_note for finding in await erasing(ledger, now - 10, now - 60_000)] == [False]
        assert await mend(beside) == [("erasing", True)]
        assert await beside.transcript("c") == []
