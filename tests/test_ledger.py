"""Runs and their transcripts: how a run ends, what is committed, who may write (DESIGN §4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from ledger import (
    Ledger,
    RunEnded,
    RunExists,
    RunInfo,
    RunLost,
    RunOpen,
    UnknownConversation,
    UnknownMessage,
    UnknownRun,
    open_ledger,
)
from ledger.tables.tables import LedgerTables
from projector import InvalidJson
from stream import InvalidEvent, InvalidId, NewEvent
from tests.ledger_places import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from stream.sqlite import Sql

pytestmark = pytest.mark.anyio
LEDGERS: Final = EVERYWHERE


async def run_info(ledger: Ledger, run_id: str) -> RunInfo:
    [found] = [run async for run in ledger.runs() if run.run_id == run_id]
    return found


async def texts(ledger: Ledger, conversation: str = "c") -> list[str]:
    return [message.text for message in await ledger.transcript(conversation)]


async def test_a_run_that_is_left_normally_is_committed_and_the_next_goes_on_behind_it(ledger: Ledger) -> None:
    async with ledger.run("c") as first:
        question = await first.message("user", "q")
        await first.text("an")
        await first.text("swer")
        await first.tool_call("look", {}, id="call")
        result = await first.tool_result("call", "done")
    async with ledger.run("c") as second:
        await second.text("more")
    messages = await ledger.transcript("c")
    assert [message.text for message in messages] == ["q", "answer", "", "more"]
    assert [message.parent_id for message in messages] == [None, question, f"{first.run_id}.2", result]
    assert {message.status for message in messages} == {"complete"}
    assert [(run.status, run.outcome) async for run in ledger.runs("c")] == [("committed", "completed")] * 2


async def test_of_a_run_that_raises_the_users_input_stays_and_the_torn_answer_is_kept_off_the_path(ledger: Ledger) -> None:

    async def fail() -> None:
        async with ledger.run("c", run_id="r") as run:
            await run.message("user", "q")
            await run.text("half an ans")
            raise KeyError("tool")

    with pytest.raises(KeyError):
        await fail()
    assert await texts(ledger) == ["q"]
    info = await run_info(ledger, "r")
    assert (info.status, info.outcome, info.error) == ("failed", "failed", '{"type":"KeyError","message":"\'tool\'"}')
    assert [(message.text, on_path) for message, on_path in await ledger.tables.messages_of("c", "r")] == [
        ("q", True),
        ("half an ans", False),
    ]


async def test_a_run_that_is_cancelled_keeps_what_it_had_as_partial(ledger: Ledger) -> None:
    with anyio.CancelScope() as scope:
        async with ledger.run("c", run_id="r") as run:
            await run.text("so far")
            scope.cancel()
            await anyio.sleep_forever()
    assert [(message.text, message.status) for message in await ledger.transcript("c")] == [("so far", "partial")]
    assert (await run_info(ledger, "r")).outcome == "cancelled"


async def test_a_second_run_is_refused_while_the_first_has_no_end(ledger: Ledger) -> None:
    run = await ledger.begin_run("c", run_id="r")
    with pytest.raises(RunOpen) as refusal:
        await ledger.begin_run("c")
    assert refusal.value.run_id == "r"
    await run.finish()
    assert await (await ledger.begin_run("c")).flush() == 3


async def test_a_run_id_is_used_once(ledger: Ledger) -> None:
    async with ledger.run("c", run_id="r") as run:
        await run.text("x")
    with pytest.raises(RunExists):
        await ledger.begin_run("c", run_id="r")
    await ledger.compact("c")
    with pytest.raises(RunExists):
        await ledger.begin_run("c", run_id="r")
    async with ledger.run("other", run_id="r"):
        pass
    await ledger.erase("c")
    await ledger.begin_run("c", run_id="open")
    with pytest.raises(RunExists):  # no wait for the open run would help
        await ledger.begin_run("c", run_id="r")
    with pytest.raises(RunExists):
        await ledger.begin_run("c", run_id="r", parent="r.1")
    with pytest.raises(RunOpen):
        await ledger.begin_run("c", run_id="another")


@pytest.mark.parametrize(
    ("action", "kept", "status"),
    [("commit", ["q", "half"], "committed"), ("fail", ["q"], "failed"), ("cancel", [], "cancelled")],
)
async def test_recovery_keeps_everything_or_what_is_finished_or_nothing(
    ledger: Ledger, action: str, kept: list[str], status: str
) -> None:
    run = await ledger.begin_run("c", run_id="r")
    await run.message("user", "q")
    await run.text("half")
    await run.flush()
    assert (await ledger.recover("c", "r", action)).status == status  # type: ignore[arg-type]
    assert await texts(ledger) == kept
    await run.text("late")
    with pytest.raises(RunLost):
        await run.flush()
    with pytest.raises(RunLost):
        await run.finish()
    assert await texts(ledger) == kept
    async with ledger.run("c") as after:
        await after.text("next")
    assert await texts(ledger) == [*kept, "next"]


async def test_recovering_a_run_that_ended_changes_nothing_and_tells_its_end(ledger: Ledger) -> None:
    async with ledger.run("c", run_id="r") as run:
        await run.text("whole")
    head = (await ledger.store.bounds("c")).head
    told = await ledger.recover("c", "r", "cancel")
    assert (told.outcome, told.recovered) == ("completed", None)
    assert (await ledger.store.bounds("c")).head == head
    again = await ledger.recover("c", "r", "commit")
    assert again == told


async def test_after_compaction_the_transcript_is_the_same_and_numbers_go_on(ledger: Ledger) -> None:
    for turn in range(3):
        async with ledger.run("c") as run:
            await run.message("user", f"question {turn}")
            await run.text(f"answer {turn}")
    before, head = await ledger.transcript("c"), (await ledger.store.bounds("c")).head
    assert (await ledger.compact("c")).floor == head
    assert await ledger.transcript("c") == before
    async with ledger.run("c") as run:
        await run.text("on")
        assert await run.flush() > head
    assert await ledger.transcript("c") == [*before, (await ledger.transcript("c"))[-1]]


async def test_compaction_keeps_an_open_run_and_the_replay_window(ledger: Ledger) -> None:
    async with ledger.run("c") as done:
        await done.text("old")
    head = (await ledger.store.bounds("c")).head
    run = await ledger.begin_run("c", run_id="r")
    await run.text("live")
    await run.flush()
    compaction = await ledger.compact("c")
    assert (compaction.floor, compaction.binds) == (head, "open_run:r")
    await run.text(" and well")
    await run.finish()
    assert await texts(ledger) == ["old", "live and well"]
    head = (await ledger.store.bounds("c")).head
    assert (await ledger.compact("c", replay_window=3)).floor == head - 3


async def test_of_a_log_that_was_deleted_a_compaction_keeps_nothing(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        await run.message("user", "hi")
    await ledger.store.append("c", [NewEvent("block.delta", b'{"message_id":"gone","block":0,"text":"x"}')])
    assert [anomaly.why for anomaly in await ledger.anomalies("c")] == ["message gone is unknown"]
    await ledger.store.delete("c")
    async with ledger.run("c") as run:
        await run.message("user", "again")
    assert await ledger.anomalies("c") == []
    compaction = await ledger.compact("c")
    assert compaction.floor == compaction.head
    assert await ledger.anomalies("c") == []


async def test_transcripts_are_read_in_pages(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        ids = [await run.message("user", str(n)) for n in range(10)]
    assert [message.id for message in await ledger.transcript("c", limit=3)] == ids[7:]
    assert [message.id for message in await ledger.transcript("c", before=ids[7], limit=3)] == ids[4:7]
    assert await ledger.transcript("c", before=ids[0]) == []
    assert await ledger.transcript("c", limit=0) == []
    with pytest.raises(ValueError, match="limit"):
        await ledger.transcript("c", limit=-1)
    with pytest.raises(UnknownMessage):
        await ledger.transcript("c", before="nobody")


async def test_what_is_unknown_is_said_so_and_makes_nothing(ledger: Ledger) -> None:
    with pytest.raises(UnknownConversation):
        await ledger.transcript("nobody")
    with pytest.raises(UnknownRun):
        await ledger.find_run("nobody")
    async with ledger.run("c"):
        pass
    with pytest.raises(UnknownRun):
        await ledger.recover("c", "nobody", "commit")
    with pytest.raises(ValueError, match="commit, fail or cancel"):
        await ledger.recover("c", "nobody", "forget")  # type: ignore[arg-type]
    assert [info.conversation async for info in ledger.conversations()] == ["c"]


@pytest.mark.parametrize("odd", ["", "a\0b", "x" * 10_000, "\ud800", "é" * 129])
async def test_odd_ids_are_refused_before_anything_is_made(ledger: Ledger, odd: str) -> None:
    with pytest.raises(InvalidId):
        await ledger.begin_run(odd)
    with pytest.raises(InvalidId):
        await ledger.begin_run("c", run_id=odd)
    assert [info async for info in ledger.store.streams()] == []


async def test_texts_with_nul_and_lone_surrogates_come_back_as_they_were(ledger: Ledger) -> None:
    odd = "a\0b \ud83d \U0001f468\u200d\U0001f469 \u202eabc e\u0301"
    async with ledger.run("c") as run:
        await run.message("user", odd)
        await run.text(odd[:5])
        await run.text(odd[5:])
        await run.tool_call("look", {"odd": odd}, id="call")
        await run.tool_result("call", [{"kind": "text", "text": odd, "n": 2**200}])
    await ledger.compact("c")
    messages = await ledger.transcript("c")
    assert [message.text for message in messages[:2]] == [odd, odd]
    assert str(2**200) in (messages[2].blocks[0].parts or "")


async def test_an_ended_run_takes_nothing_more(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        await run.text("x")
    with pytest.raises(RunEnded):
        await run.text("y")
    await run.finish()  # safe to say again
    assert await texts(ledger) == ["x"]


async def test_recorded_bodies_are_checked_before_they_are_stored(ledger: Ledger) -> None:
    good = NewEvent("weather.changed", b'{"to": "rain", "n": 1e400}')
    with pytest.raises(InvalidEvent) as refusal:
        await ledger.record("c", [good, NewEvent("block.delta", b'{"message_id": "m"}')])
    assert refusal.value.index == 1
    with pytest.raises(InvalidEvent):
        await ledger.record("c", [NewEvent("weather.changed", b"{")])
    assert (await ledger.store.bounds("c")).head == 0
    assert (await ledger.record("c", [good])).last_seq == 1


async def test_what_json_cannot_say_is_refused_at_once(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        with pytest.raises(InvalidJson):
            await run.tool_result("call", [{"kind": "data", "value": float("nan")}])
        await run.text("goes on")
    assert await texts(ledger) == ["goes on"]


async def test_a_compaction_lets_nothing_go_of_a_run_that_began_while_it_looked(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    async with open_ledger(path) as ledger, open_ledger(path) as other:
        async with ledger.run("c") as run:
            await run.message("user", "hi")
        tables = ledger.engine.tables
        look = tables.look

        async def begin_and_look(job: Callable[[Sql], Awaitable[Any]]) -> Any:
            patched.undo()
            begun = await other.begin_run("c", run_id="late")
            await begun.message("user", "still open")
            await other.record("c", [NewEvent("custom", b"{}")] * 1000)
            assert await other.compact("c")  # with a snapshot at its end
            return await look(job)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LedgerTables, "look", lambda _, job: begin_and_look(job))
            compaction = await ledger.compact("c")
        [late] = await ledger.open_runs("c")
        assert compaction.floor < late.seq
