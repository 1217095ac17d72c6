"""Results that expire, are summarised, expanded and cut in what `Ledger.context` gives, and that it is remembered."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger import open_ledger
from projector.context.chain import ChainSession
from projector.context.expansion import Refusal, Request, read_request
from projector.context.expiration import ExpirationRules
from projector.context.lifecycle import Lifecycle
from projector.context.pipeline import Pipeline
from projector.context.plugins import DEFAULT, Bundled, keep_window
from projector.context.policies import Action, ExpirationPolicy, Override, PolicyRegistry
from projector.context.result_stages import Expiration, NearDuplicates, Relevance, summarizer_of
from projector.context.summaries import SummaryMaker
from projector.context.tokens import result_text
from projector.events import ContextCompacted, ContextExpanded
from projector.json_text import encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger import Ledger
    from projector import Message
    from projector.context.lifecycle import LifecycleEvent

pytestmark = pytest.mark.anyio
LONG = "".join(f"line {number} of the weather report\n" for number in range(100))
REMOVE = ExpirationPolicy(turns=1, mode="remove")
FIRST = ExpirationPolicy(turns=1, mode="compact", compact_mode="first_n_chars", compact_length=100)
SUMMARY = ExpirationPolicy(turns=0, mode="compact", compact_mode="ai_summary", compact_length=100)


def expiring(policy: ExpirationPolicy, **more: Any) -> Pipeline:
    return Pipeline(expiration=Expiration(PolicyRegistry({"look": Action(policy)}), **more))


async def look(ledger: Ledger, ref: str, text: str = LONG, *, prompts: int = 1) -> str:
    """A run that calls a tool, gets its result, and prompts the model again; gives the result's id."""
    call = {"index": 0, "id": ref, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with ledger.run("c", format="chat") as run:
        await run.message("user", f"look at {ref}")
        await run.feed(
            {"id": f"q{ref}", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
        )
        result = await run.tool_result(ref, text)
        for number in range(prompts):
            said = {"role": "assistant", "content": f"seen {ref}"}
            await run.feed({"id": f"a{ref}{number}", "choices": [{"index": 0, "delta": said, "finish_reason": "stop"}]})
    return result


def result_of(messages: Sequence[Message], message_id: str) -> str | None:
    return next(("".join(map(result_text, message.blocks)) for message in messages if message.id == message_id), None)


async def test_a_result_lives_for_its_turns_and_is_a_stub_then(ledger: Ledger) -> None:
    result = await look(ledger, "t1")  # added after prompt 1, and prompt 2 has seen it
    assert (await ledger.context("c")).view.source.turns[result] == 1
    for turn, expected in ((2, LONG), (3, "[result expired after 2 turns]")):
        context = await ledger.context("c", pipeline=expiring(REMOVE), turn=turn)
        assert result_of(context.messages, result) == expected
    [change] = context.view.changes
    assert (change.stage, change.message_id, change.what, change.block) == ("expiration", result, "shortened", 0)
    assert "turns are over" in change.why
    assert change.saved > 500
    assert result_of(await ledger.transcript("c"), result) == LONG


async def test_what_has_expired_can_be_asked_for_by_its_place_in_that_very_view(ledger: Ledger) -> None:
    result = await look(ledger, "t1")
    pipeline = expiring(FIRST)
    context = await ledger.context("c", pipeline=pipeline, turn=5)
    place = [message.id for message in context.messages].index(result)
    asked = read_request(json.dumps({"nextStep": {"type": "expand-message", "messageIndex": place, "reason": "details"}}))
    assert isinstance(asked, Request)
    found = await ledger.expand(context, asked)
    assert isinstance(found, ContextExpanded)
    again = await ledger.context("c", pipeline=pipeline, turn=5)
    assert result_of(again.messages, result) == LONG
    assert await ledger.expand(again, result) == Refusal("already expanded")
    assert await ledger.expand(context, result) == Refusal("already expanded")  # from the older view, too
    later = await ledger.context("c", pipeline=pipeline, turn=7)
    assert (result_of(later.messages, result) or "").startswith(LONG[:50])
    assert "[Compacted: showing first 100" in (result_of(later.messages, result) or "")
    refused = await ledger.expand(context, "nobody")
    assert isinstance(refused, Refusal)
    assert refused.reason


async def test_what_a_window_left_out_can_not_be_expanded_and_that_is_said(ledger: Ledger) -> None:
    result = await look(ledger, "t1")
    window = Pipeline(chain=(Bundled(DEFAULT, keep_window),), session=ChainSession(max_ctx=1))
    assert await ledger.expand(await ledger.context("c", pipeline=window), result) == Refusal("left out")


async def test_a_part_of_it_can_be_asked_for(ledger: Ledger) -> None:
    result = await look(ledger, "t1")
    context = await ledger.context("c", pipeline=expiring(FIRST), turn=5)
    await ledger.expand(context, result, item_range=(40, 42))
    shown = result_of((await ledger.context("c", pipeline=expiring(FIRST), turn=5)).messages, result) or ""
    assert "line 40" in shown
    assert "line 41" in shown
    assert "line 43" not in shown


async def test_a_summary_is_asked_for_once_and_the_view_is_the_same_after_a_restart(tmp_path: Path) -> None:
    asked: list[str] = []

    async def summarizer(instructions: str, text: str) -> str:
        asked.append(instructions)
        return f'{{"summary": "rain, {len(text)} characters"}}'

    path = str(tmp_path / "c.db")
    pipeline = expiring(SUMMARY, maker=SummaryMaker(summarizer))
    async with open_ledger(path) as ledger:
        result = await look(ledger, "t1")
        first = await ledger.context("c", pipeline=pipeline)
        assert "rain" in (result_of(first.messages, result) or "")
        [record] = first.view.records
        assert isinstance(record, ContextCompacted)
        assert record.covers == [result]
    async with open_ledger(path) as ledger:
        await ledger.compact("c")
        again = await ledger.context("c", pipeline=expiring(SUMMARY, maker=SummaryMaker(summarizer)))
        assert encode(list(again.messages)) == encode(list(first.messages))
        without = await ledger.context("c")  # what was recorded holds without the policy
        assert encode(list(without.messages)) == encode(list(first.messages))
    assert len(asked) == 1


async def test_an_overflow_is_recovered_step_by_step_and_stays_so(ledger: Ledger) -> None:
    old = await look(ledger, "t1", prompts=6)
    new = await look(ledger, "t2")
    context = await ledger.context("c")
    recovery = await ledger.recover_overflow(context, context.tokens - 100)
    assert (recovery.stopped_at, recovery.fits) == (1, True)
    assert result_of(recovery.messages, old) != LONG
    assert result_of(recovery.messages, new) == LONG
    again = await ledger.context("c")
    assert encode(list(again.messages)) == encode(list(recovery.messages))
    assert isinstance(await ledger.expand(again, old), ContextExpanded)
    assert result_of((await ledger.context("c")).messages, old) == LONG


async def test_a_result_that_a_newer_one_repeats_is_a_reference_to_it(ledger: Ledger) -> None:
    old = await look(ledger, "t1")
    new = await look(ledger, "t2")
    pipeline = Pipeline(optional=(NearDuplicates(),))
    first = await ledger.context("c", pipeline=pipeline)
    assert new in (result_of(first.messages, old) or "")
    assert result_of(first.messages, new) == LONG
    second = await ledger.context("c", pipeline=pipeline)
    assert (second.view.records, encode(list(second.messages))) == ((), encode(list(first.messages)))
    assert {change.stage for change in second.view.changes} == {"expiration"}


async def test_comparing_results_neither_holds_the_loop_nor_outlasts_its_time(ledger: Ledger) -> None:
    await look(ledger, "t1")
    await look(ledger, "t2")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    def slowly(one: str, other: str) -> float:
        time.sleep(0.5)
        return float(one == other)

    ticking = asyncio.create_task(tick())
    context = await ledger.context("c", pipeline=Pipeline(optional=(NearDuplicates(similarity=slowly),), time_limit=0.2))
    ticking.cancel()
    assert ticks > 5
    assert [failure.plugin for failure in context.view.failures] == ["near-duplicates"]
    assert list(context.messages) == await ledger.transcript("c")


async def test_what_has_nothing_to_do_with_the_question_leaves_a_stub(ledger: Ledger) -> None:
    result = await look(ledger, "t1", "prices of second hand pianos " * 20)
    async with ledger.run("c") as run:
        await run.message("user", "tell me about volcanoes")
    context = await ledger.context("c", pipeline=Pipeline(optional=(Relevance(0.5),)))
    assert (result_of(context.messages, result) or "").startswith("[result expired")
    assert any("relevance" in change.why for change in context.view.changes)


async def test_what_was_asked_is_the_question_however_the_view_shows_it(ledger: Ledger) -> None:
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with ledger.run("c", format="chat") as run:
        asked = await run.message("user", LONG)
        await run.feed({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        result = await run.tool_result("t1", LONG)
    await ledger.annotate("c", asked, {"result": "loop"})  # so that the newer one may stand for it
    pipeline = Pipeline(optional=(Relevance(0.3), NearDuplicates()))
    first = await ledger.context("c", pipeline=pipeline)
    assert {change.message_id for change in first.view.changes} == {asked}
    second = await ledger.context("c", pipeline=pipeline)
    assert (second.view.records, second.messages) == ((), first.messages)
    assert result_of(second.messages, result) == LONG


async def test_results_that_are_no_tools_are_told_by_their_metadata(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        loop = await run.message("user", LONG)
    await ledger.annotate("c", loop, {"result": "loop"})
    async with ledger.run("c") as run:
        await run.message("user", "and?")
    assert loop in {message.id for message in (await ledger.context("c", turn=3)).messages}
    context = await ledger.context("c", turn=4)
    assert loop not in {message.id for message in context.messages}
    kept = Pipeline(expiration=Expiration(override=Override(disable_expiration=True)))
    assert loop in {message.id for message in (await ledger.context("c", turn=4, pipeline=kept)).messages}


async def test_the_lifecycle_is_told_once_and_a_prefix_can_be_protected(ledger: Ledger) -> None:
    told: list[LifecycleEvent] = []
    async with ledger.run("c") as run:
        early = await run.message("user", LONG)
    result = await look(ledger, "t1")
    policies = {early: replace_turns(FIRST, 0)}
    pipeline = expiring(REMOVE, policies=policies, lifecycle=Lifecycle(told.append), rules=ExpirationRules(protect_prefix=True))
    for _ in range(2):
        context = await ledger.context("c", pipeline=pipeline, turn=9)
    ended = [(event.type, event.message_id) for event in told if event.type != "message-added"]
    assert ended == [("message-expired", result)]
    assert len(told) == 1 + len(await ledger.transcript("c"))
    assert next(message for message in context.messages if message.id == early).text == LONG
    open_prefix = replace(pipeline, expiration=expiring(REMOVE, policies=policies).expiration)
    changed = await ledger.context("c", pipeline=open_prefix, turn=9)
    assert next(message for message in changed.messages if message.id == early).text != LONG


def replace_turns(policy: ExpirationPolicy, turns: int) -> ExpirationPolicy:
    return ExpirationPolicy(turns, policy.mode, policy.compact_mode, policy.compact_length, policy.compact_prompt)


async def test_a_maker_of_summaries_serves_old_parts_too() -> None:
    async def summarizer(instructions: str, text: str) -> str:
        del instructions
        return f"in short: {text[:14]}"

    maker = SummaryMaker(summarizer)
    with pytest.raises(ValueError, match="no prompt 'nothing'"):
        summarizer_of(maker, "nothing")
    async with open_ledger("memory:") as ledger:
        await look(ledger, "t1")
        path = await ledger.transcript("c")
        assert await summarizer_of(maker)(path) == "in short: user: look at"
