"""What must not change does not: a protected prefix by any stage, anything where expiration is off; and who hears of what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger import open_ledger
from projector.context.budget import Budget
from projector.context.chain import ChainSession
from projector.context.expiration import ExpirationRules
from projector.context.lifecycle import Lifecycle, LifecycleEvent
from projector.context.model_registry import ModelConfig
from projector.context.pipeline import Pipeline, Summaries
from projector.context.plugins import DEFAULT, Bundled, keep_token_budget, keep_window
from projector.context.policies import Action, ExpirationPolicy, Override, PolicyRegistry
from projector.context.result_stages import Expiration, Relevance
from projector.context.stage import Shaped
from projector.context.summaries import SummaryMaker
from projector.context.tokens import content_of
from projector.context.tool_groups import ids_of
from projector.json_text import encode
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger import Ledger
    from projector import Message
    from projector.context.stage import Source

pytestmark = pytest.mark.anyio
LONG = "it goes on and on " * 80
WINDOW = Bundled(DEFAULT, keep_window)


async def shorten(old: Sequence[Message]) -> str:
    return f"{len(old)} messages"


async def take_turn(ledger: Ledger, number: int, *, calls: bool = False) -> None:
    """A question with what a plugin added for one turn, and an answer, which may be a call with its result."""
    path = await ledger.transcript("c") if number else []
    run, user, answer = f"r{number}", f"u{number}", f"a{number}"
    events = [started(run, path[-1].id if path else None), new("message.started", run_id=run, message_id=user, role="user")]
    for place, text in enumerate((f"question {number} {LONG}", "added by a plugin")):
        events += [
            new("block.started", message_id=user, block=place, kind="text"),
            new("block.delta", message_id=user, block=place, text=text),
            new("block.sealed", message_id=user, block=place),
        ]
    events.append(new("message.finished", message_id=user, status="complete"))
    if calls:
        asked = new("block.started", message_id=answer, block=0, kind="tool_call", name="find", tool_call_id=f"c{number}")
        told = [{"kind": "text", "text": LONG}]
        events += [
            new("message.started", run_id=run, message_id=answer, role="assistant"),
            asked,
            new("block.sealed", message_id=answer, block=0, input={}, parse="ok"),
            new("message.finished", message_id=answer, status="complete"),
            new("tool.result", run_id=run, message_id=f"t{number}", tool_call_id=f"c{number}", status="ok", parts=told),
        ]
    else:
        events += said(run, answer, f"answer {number}")
    await ledger.record("c", [*events, finished(run)])
    await ledger.annotate("c", user, {"retention": [None, 1]})


class Drop:
    """A stage of somebody else, which takes the first message away and the last one apart."""

    name = "drop"

    async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
        del source
        return Shaped(messages[1:])


def chained(max_ctx: int, **more: Any) -> Pipeline:
    return Pipeline(chain=(WINDOW,), session=ChainSession(max_ctx=max_ctx), **more)


PIPELINES = {
    "retention": Pipeline(),
    "expiration": Pipeline(expiration=Expiration(policies={"u0": ExpirationPolicy(0, "compact", "first_n_chars", 10)})),
    "another's stage": Pipeline(optional=(Drop(),)),
    "relevance": Pipeline(optional=(Relevance(1.0),)),
    "summaries": Pipeline(summaries=Summaries(Budget(100), shorten, keep=1)),
    "window": chained(5),
    "all": chained(6, summaries=Summaries(Budget(10), shorten, keep=0), optional=(Drop(),)),
}


@pytest.mark.parametrize("by_rules", [False, True], ids=["by the pipeline", "by the rules of the expiration"])
@pytest.mark.parametrize("name", PIPELINES)
async def test_no_stage_changes_what_stands_ahead_of_the_first_result(ledger: Ledger, name: str, *, by_rules: bool) -> None:
    given = PIPELINES[name]
    if by_rules and isinstance(given.expiration, Expiration):
        expiration = Expiration(policies=given.expiration.policies, rules=ExpirationRules(protect_prefix=True))
        pipeline = Pipeline(
            expiration=expiration, optional=given.optional, summaries=given.summaries, chain=given.chain, session=given.session
        )
    else:
        pipeline = Pipeline(
            expiration=given.expiration, optional=given.optional, summaries=given.summaries, chain=given.chain,
            session=given.session, protect_prefix=True,
        )  # fmt: skip
    ahead: list[bytes] = []
    for number in range(5):
        await take_turn(ledger, number, calls=number in (1, 3))
        context = await ledger.context("c", pipeline=pipeline, turn=number)
        path = (await ledger.transcript("c"))[: 4 if number else 2]  # u0 a0 u1 a1, and then the result of a1
        assert encode(list(context.messages[: len(path)])) == encode(path)
        ahead.append(encode(list(context.messages[:2])))
    assert len(set(ahead)) == 1


async def test_behind_the_prefix_the_stages_do_their_work(ledger: Ledger) -> None:
    for number in range(6):
        await take_turn(ledger, number, calls=number == 1)
    summed = Pipeline(summaries=Summaries(Budget(100), shorten, keep=1), protect_prefix=True)
    context = await ledger.context("c", pipeline=summed)
    assert ids_of(context.messages) == ["u0", "a0", "u1", "a1", "t1", "summary:u2", "a5"]
    assert [record.covers for record in context.view.records] == [["u2", "a2", "u3", "a3", "u4", "a4", "u5"]]  # type: ignore[union-attr]
    again = await ledger.context("c", pipeline=summed)
    assert (again.view.records, again.messages) == ((), context.messages)
    assert "what could be summed up stands in the protected prefix" in again.view.failures[0].why  # it is still too long
    windowed = await ledger.context("c", pipeline=chained(7, protect_prefix=True))
    assert ids_of(windowed.messages) == ["u0", "a0", "u1", "a1", "t1", "u5", "a5"]
    assert windowed.view.failures == ()


async def test_a_ceiling_that_the_prefix_leaves_no_room_in_is_told(ledger: Ledger) -> None:
    for number in range(4):
        await take_turn(ledger, number, calls=number == 1)
    path = await ledger.transcript("c")
    for pipeline in (
        chained(5, protect_prefix=True),
        Pipeline(
            chain=(WINDOW, Bundled("plugin_history_token_budget", keep_token_budget)),
            session=ChainSession(config=ModelConfig(token_budget=50)),
            protect_prefix=True,
        ),
    ):
        context = await ledger.context("c", pipeline=pipeline)
        assert [failure.plugin for failure in context.view.failures] == ["chain"]
        assert "no room left" in context.view.failures[0].why
        assert list(ids_of(context.messages)) == ids_of(path)
    fits = await ledger.context("c", pipeline=chained(200, protect_prefix=True))
    assert fits.view.failures == ()


async def test_without_any_result_all_is_protected_and_a_window_that_is_too_small_is_told() -> None:
    async with open_ledger("memory:") as ledger:
        for number in range(3):
            await take_turn(ledger, number)
        assert (await ledger.context("c", pipeline=chained(6, protect_prefix=True))).view.failures == ()
        told = await ledger.context("c", pipeline=chained(5, protect_prefix=True))
        assert len(told.messages) == 6
        assert [failure.plugin for failure in told.view.failures] == ["chain"]


async def test_an_overflow_leaves_the_prefix_alone_and_says_that_it_does_not_fit(ledger: Ledger) -> None:
    for number in range(2):
        await take_turn(ledger, number, calls=number == 1)
    context = await ledger.context("c", pipeline=Pipeline(protect_prefix=True), turn=9)
    recovery = await ledger.recover_overflow(context, 10)
    assert not recovery.fits
    assert [record.covers for record in recovery.records] == [["t1"]]
    assert recovery.messages[:4] == context.messages[:4]


# Expiration that is off


async def test_where_expiration_is_off_all_is_shown_whatever_else_says_otherwise(ledger: Ledger) -> None:
    async def sum_up(instructions: str, text: str) -> str:
        return f"in short: {len(instructions) + len(text)}"

    await take_turn(ledger, 0, calls=True)
    gone, summed = ExpirationPolicy(0, "remove"), ExpirationPolicy(0, "compact", "ai_summary")
    registry = PolicyRegistry({"find": Action(summed)})
    summing = Pipeline(retention=False, expiration=Expiration(registry, maker=SummaryMaker(sum_up)))
    assert LONG not in content_of((await ledger.context("c", pipeline=summing, turn=5)).messages[-1])
    await ledger.recover_overflow(await ledger.context("c", turn=5), 20)
    off = Override(turns=0, mode="remove", disable_expiration=True)
    for policies in ({}, {"t0": gone, "u0": gone}):
        pipeline = Pipeline(retention=False, expiration=Expiration(registry, policies, off, maker=SummaryMaker(sum_up)))
        context = await ledger.context("c", pipeline=pipeline, turn=5)
        assert list(context.messages) == await ledger.transcript("c")
        assert (context.view.records, context.view.changes) == ((), ())


# Who hears of it


async def test_the_lifecycle_of_a_message_is_told_from_its_beginning(ledger: Ledger) -> None:
    told: list[LifecycleEvent] = []
    life = Lifecycle(told.append)
    cut, gone = ExpirationPolicy(1, "compact", "first_n_chars", 50), ExpirationPolicy(1, "remove")
    for number in range(3):
        await take_turn(ledger, number, calls=number == 1)
    policies = {"u0": gone, "u1": cut, "t1": gone, "u2": gone}
    pipeline = Pipeline(retention=False, expiration=Expiration(policies=policies, lifecycle=life))
    await ledger.context("c", pipeline=pipeline, turn=0)
    assert [(one.type, one.message_id) for one in told] == [
        ("message-added", name) for name in ("u0", "a0", "u1", "a1", "t1", "u2", "a2")
    ]
    assert {(one.turn, one.tokens_saved) for one in told} == {(0, 0)}
    told.clear()
    context = await ledger.context("c", pipeline=pipeline, turn=5)
    phases = [(one.type.removeprefix("message-"), one.message_id) for one in told]
    assert phases == [
        ("expired", "u0"), ("expired", "t1"), ("expired", "u2"), ("compacted", "u1"), ("removed", "u0"), ("removed", "u2"),
    ]  # fmt: skip
    assert all(one.reason and one.tokens_saved > 0 and one.turn == 5 for one in told)
    told.clear()
    await ledger.expand(context, "u1", reason="the user asks")
    await ledger.expand(context, "u1", reason="again")  # refused
    assert [(one.type, one.message_id, one.reason) for one in told] == [("message-expanded", "u1", "the user asks")]
    told.clear()
    await take_turn(ledger, 3)
    await ledger.context("c", pipeline=pipeline, turn=6)
    await ledger.context("c", pipeline=pipeline, turn=9)
    assert [(one.type.removeprefix("message-"), one.message_id) for one in told] == [
        ("added", "u3"), ("added", "a3"), ("compacted", "u1"),
    ]  # fmt: skip


async def test_messages_are_told_where_nothing_expires_and_those_told_before_are_not(ledger: Ledger) -> None:
    told: list[LifecycleEvent] = []
    await take_turn(ledger, 0)
    for known in ((), ("u0",)):
        pipeline = Pipeline(expiration=Expiration(lifecycle=Lifecycle(told.append, known)))
        await ledger.context("c", pipeline=pipeline)
    assert [one.message_id for one in told] == ["u0", "a0", "a0"]
    assert json.dumps([one.reason for one in told])
