"""What was redacted is not shown to a model again: not by a summary, a cut or an expansion that was recorded before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from ledger import open_ledger
from ledger.transfer.archive import write_lines
from projector import Block
from projector.context.budget import Budget
from projector.context.delta import Full, ProviderCapabilities
from projector.context.pipeline import Pipeline, Summaries
from projector.context.policies import Action, ExpirationPolicy, PolicyRegistry
from projector.context.provenance import mark, standing
from projector.context.result_stages import Expiration, NearDuplicates
from projector.context.summaries import SummaryMaker
from projector.context.tokens import content_of
from projector.events import ContextCompacted, ContextExpanded
from projector.json_text import encode
from tests.talk import new, said, started
from tests.vectors.delta import message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger import Ledger
    from ledger.context.context import Context
    from projector import Message
    from projector.events import Choice

pytestmark = pytest.mark.anyio
SECRET = "PIN 4711"
HIDDEN = "PIN ####"  # of the same length: no count of characters or tokens tells them apart
LONG = f"{SECRET} and other things. " + "so it goes on " * 200


async def leak(instructions: str, text: str) -> str:
    del instructions, text
    return f"it says {SECRET}"


async def leak_all(messages: Sequence[Message]) -> str:
    del messages
    return f"they say {SECRET}"


CUT = Expiration(PolicyRegistry({"look": Action(ExpirationPolicy(0, "compact", "first_n_chars", 100))}))
SUMMED = Expiration(PolicyRegistry({"look": Action(ExpirationPolicy(0, "compact", "ai_summary"))}), maker=SummaryMaker(leak))
WAYS = {
    "cut": Pipeline(expiration=CUT),
    "summary of a result": Pipeline(expiration=SUMMED),
    "summary of an old part": Pipeline(summaries=Summaries(Budget(50), leak_all, keep=1)),
    "overflow": Pipeline(),
}


async def tell(ledger: Ledger) -> None:
    asked = new("block.started", message_id="a", block=0, kind="tool_call", name="look", tool_call_id="c1")
    await ledger.record(
        "c",
        [
            started("r"),
            *said("r", "u", LONG, role="user"),
            *said("r", "v", LONG, role="user"),
            new("message.started", run_id="r", message_id="a", role="assistant"),
            asked,
            new("block.sealed", message_id="a", block=0, input={}, parse="ok"),
            new("message.finished", message_id="a", status="complete"),
            new("tool.result", run_id="r", message_id="t", tool_call_id="c1", status="ok",
                parts=[{"kind": "text", "text": LONG}]),
            new("run.finished", run_id="r", outcome="completed"),
        ],
    )  # fmt: skip


async def hide(ledger: Ledger, *names: str) -> None:
    for one in await ledger.transcript("c"):
        if one.id in names:
            blocks = [
                replace(
                    block,
                    text=block.text.replace(SECRET, HIDDEN),
                    parts=None if block.parts is None else block.parts.replace(SECRET, HIDDEN),
                )
                for block in one.blocks
            ]
            await ledger.redact("c", one.id, blocks, reason="private")


def shown(context: Context) -> str:
    return "\n".join(map(content_of, context.messages))


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_recorded_of_a_text_ends_with_its_redaction(way: str, tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as ledger:
        await tell(ledger)
        context = await ledger.context("c", pipeline=WAYS[way], turn=5)
        if way == "overflow":
            recovery = await ledger.recover_overflow(context, 200)
            assert all(record.made_of for record in recovery.records)
        assert await ledger.tables.choices("c") or way == "cut"
        assert SECRET in shown(await ledger.context("c", pipeline=WAYS[way], turn=5))
        await hide(ledger, "u", "v", "t")
        assert SECRET not in shown(await ledger.context("c", pipeline=WAYS[way], turn=5))
        assert HIDDEN in shown(await ledger.context("c", pipeline=WAYS[way], turn=5))
        await ledger.compact("c")
    async with open_ledger(path) as ledger:
        once = await ledger.context("c", pipeline=WAYS[way], turn=5)
        again = await ledger.context("c", pipeline=WAYS[way], turn=5)
    assert SECRET not in shown(once)
    assert encode(list(once.messages)) == encode(list(again.messages))


async def test_what_was_not_redacted_keeps_what_was_recorded_of_it(ledger: Ledger) -> None:
    await tell(ledger)
    pipeline = WAYS["summary of a result"]
    first = await ledger.context("c", pipeline=pipeline, turn=5)
    await hide(ledger, "u")
    await ledger.annotate("c", "t", {"rating": 1})
    later = await ledger.context("c", pipeline=pipeline, turn=5)
    assert later.messages[-1].blocks == first.messages[-1].blocks
    assert later.view.records == ()


async def test_a_new_summary_stands_beside_the_redacted_message_not_for_it(ledger: Ledger) -> None:
    given: list[list[str]] = []

    async def summarize(messages: Sequence[Message]) -> str:
        given.append([one.id for one in messages])
        return "in short"

    pipeline = Pipeline(summaries=Summaries(Budget(50), summarize, keep=1))
    await tell(ledger)
    await ledger.context("c", pipeline=pipeline)
    await hide(ledger, "v")
    context = await ledger.context("c", pipeline=pipeline)
    assert given == [["u", "v"], ["u"]]
    assert [one.id for one in context.messages] == ["summary:u", "v", "a", "t"]


async def test_a_result_that_was_redacted_before_anything_was_recorded_is_summed_up_as_it_is(ledger: Ledger) -> None:
    given: list[str] = []

    async def summarize(instructions: str, text: str) -> str:
        del instructions
        given.append(text)
        return "in short"

    await tell(ledger)
    await hide(ledger, "t")
    pipeline = Pipeline(expiration=Expiration(SUMMED.registry, maker=SummaryMaker(summarize)))
    context = await ledger.context("c", pipeline=pipeline, turn=5)
    assert "in short" in content_of(context.messages[-1])
    assert [SECRET in text for text in given] == [False]


async def test_an_expansion_of_the_old_text_is_none_of_the_new_one(ledger: Ledger) -> None:
    await tell(ledger)
    pipeline = WAYS["cut"]
    found = await ledger.expand(await ledger.context("c", pipeline=pipeline, turn=5), "t", item_range=(0, 1))
    assert isinstance(found, ContextExpanded)
    assert found.made_of is not None
    await hide(ledger, "t")
    after = await ledger.context("c", pipeline=pipeline, turn=5)
    assert content_of(after.messages[-1]).startswith(HIDDEN)
    assert "[Compacted" in content_of(after.messages[-1])
    assert isinstance(await ledger.expand(after, "t"), ContextExpanded)
    whole = await ledger.context("c", pipeline=pipeline, turn=5)
    assert content_of(whole.messages[-1]) == LONG.replace(SECRET, HIDDEN)


async def test_an_expansion_asked_for_by_an_older_view_shows_what_the_message_says_now(ledger: Ledger) -> None:
    await tell(ledger)
    before = await ledger.context("c", pipeline=WAYS["cut"], turn=5)
    await hide(ledger, "t")
    assert isinstance(await ledger.expand(before, "t"), ContextExpanded)
    after = await ledger.context("c", pipeline=WAYS["cut"], turn=5)
    assert content_of(after.messages[-1]) == LONG.replace(SECRET, HIDDEN)


async def test_a_redaction_within_an_open_run_counts_too(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        told = await run.message("user", LONG)
        await run.message("user", "and?")
        pipeline = WAYS["summary of an old part"]
        assert SECRET in shown(await ledger.context("c", run=run, pipeline=pipeline))
        await run.flush()
        await ledger.redact("c", told, [Block("text", text=HIDDEN)])
        assert SECRET not in shown(await ledger.context("c", run=run, pipeline=pipeline))
    assert SECRET not in shown(await ledger.context("c", pipeline=pipeline))


async def test_a_provider_that_holds_the_old_text_gets_a_new_session(ledger: Ledger) -> None:
    await tell(ledger)
    keeps = ProviderCapabilities(session_resumption=True, history_management="session-stateful")
    await ledger.begin_send(await ledger.context("c", capabilities=keeps))
    await ledger.acknowledge(await ledger.context("c", capabilities=keeps))
    await hide(ledger, "u")
    send = (await ledger.context("c", capabilities=keeps)).send
    assert isinstance(send, Full)
    assert send.reason == "prefix_changed"


async def test_after_a_compaction_nothing_keeps_the_text_and_an_export_never_holds_it(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as ledger:
        await tell(ledger)
        for way in ("summary of a result", "summary of an old part"):
            context = await ledger.context("c", pipeline=WAYS[way], turn=5)
            await ledger.expand(context, "t", reason=SECRET)
        await hide(ledger, "u", "v", "t")
        lines = [line async for line in write_lines(ledger.engine, "c")]
        assert len([line for line in lines if line.startswith('{"choice"')]) == len(await ledger.tables.choices("c")) > 2
        assert SECRET not in "".join(lines)
        await ledger.compact("c", dry_run=True)
        assert SECRET in str(await ledger.tables.choices("c"))
        await ledger.compact("c")
        before = await ledger.tables.choices("c")
        assert SECRET not in str(before)
        await ledger.compact("c")
        assert await ledger.tables.choices("c") == before
        assert [finding async for finding in ledger.reconcile("c")] == []
    async with open_ledger(path) as ledger:
        assert SECRET not in shown(await ledger.context("c", pipeline=WAYS["summary of a result"], turn=5))


def recorded(strategy: str, text: str, **more: Any) -> ContextCompacted:
    return ContextCompacted(0, ["m"], text, strategy, 0, 0, **more)


MARKER = "...\n\n[Compacted: showing first 8 of 300 characters. Agent can request expansion if needed.]"


@pytest.mark.parametrize(
    ("record", "counts"),
    [
        (recorded("ai_summary", f"[AI Summary of 300 chars.]\n\n{SECRET}"), False),
        (recorded("summary", SECRET), False),
        (recorded("first_n_chars", SECRET + MARKER), False),
        (recorded("first_n_chars", HIDDEN + MARKER), True),
        (recorded("first_n_chars", HIDDEN + MARKER + SECRET), False),
        (recorded("first_n_chars", HIDDEN), False),
        (recorded("stub", "[result expired after 3 turns]"), True),
        (recorded("stub", SECRET), False),
        (recorded("reference", "[almost the same as the newer result r.1]"), True),
        (recorded("reference", SECRET), False),
        (recorded("remove", ""), True),
        (recorded("ai_summary", SECRET, made_of="0" * 12), False),
        (recorded("ai_summary", SECRET, made_of="short"), False),
        (ContextExpanded(0, "m"), True),
    ],
)
def test_a_record_that_does_not_prove_what_it_was_made_of_counts_as_far_as_it_shows_nothing_else(
    record: ContextCompacted | ContextExpanded, *, counts: bool
) -> None:
    path = [message({"id": "m", "role": "user", "text": HIDDEN + "x" * 292})]
    assert standing([record], path).choices == ((record,) if counts else ())


def test_records_of_a_path_count_on_it_and_on_others_are_left_to_them() -> None:
    path = [message({"id": name, "role": "user", "text": name * 9}) for name in "abc"]
    records: list[Choice] = [ContextCompacted(0, ["a", "b"], "s", "summary", 9, 1), ContextExpanded(0, "c")]
    marked = mark(records, path)
    assert standing(marked, path).choices == marked
    assert standing(marked, path[2:]).choices == marked
    assert standing(records[:1], path[1:]).choices == tuple(records[:1])  # without a digest it says nothing here, either
    other = [replace(path[0], blocks=(Block("text", text="z", sealed=True),)), *path[1:]]
    assert standing(marked, other) == (marked[1:], frozenset("a"))


def test_a_message_that_went_on_was_not_redacted() -> None:
    begun = replace(message({"id": "m", "role": "assistant", "text": "it go"}), status="partial")
    [record] = mark([ContextCompacted(0, ["m"], "s", "summary", 9, 1)], [begun])
    assert standing([record], [begun]).choices == (record,)
    assert standing([record], [message({"id": "m", "role": "assistant", "text": "it goes on"})]) == ((), frozenset())


def test_a_message_whose_digest_would_be_all_digits_was_not_redacted_either() -> None:
    """About one in three hundred has such a digest, so some of these do."""
    for number in range(3000):
        begun = replace(message({"id": "m", "role": "assistant", "text": f"it go {number}"}), status="partial")
        records = mark([ContextCompacted(0, ["m"], "s", "summary", 9, 1)], [begun])
        assert standing(records, [begun]).choices == records
        went_on = message({"id": "m", "role": "assistant", "text": f"it goes on {number}"})
        assert standing(records, [went_on]) == ((), frozenset()), number


async def test_a_reference_can_be_expanded_from_the_view_that_made_it(ledger: Ledger) -> None:
    await tell(ledger)
    await ledger.annotate("c", "u", {"result": "action"})
    context = await ledger.context("c", pipeline=Pipeline(optional=(NearDuplicates(),)))
    assert "almost the same" in json.dumps(context.messages[0].text)
    assert isinstance(await ledger.expand(context, "u"), ContextExpanded)
    assert (await ledger.context("c")).messages[0].text == LONG
