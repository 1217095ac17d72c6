"""The message that is being sent right now: it has no index of retention yet, and is shown with all that plugins add to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from projector import Block
from projector.context.pipeline import Pipeline
from projector.context.retention import AdditionalContent, PluginAdditions, enrich
from projector.context.tokens import content_of
from projector.formats import WRITERS
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger import Ledger
    from projector import Message
    from projector.context.retention import RetentionAware

pytestmark = pytest.mark.anyio


def words(text: str) -> Block:
    return Block("text", text=text, sealed=True)


def with_plugin(number: int, keeps: int = 1) -> RetentionAware:
    """A question with the time of day, for this prompt alone, and with notes, which are kept for a while."""
    added = (
        AdditionalContent(True, False, (words(f"time {number}"),)),
        AdditionalContent(True, keeps, (words(f"notes {number}"),)),
    )
    return enrich([words(f"question {number}")], [PluginAdditions("P", added)])


async def ask(ledger: Ledger, number: int, *, ends: bool = True, keeps: int = 1) -> RetentionAware:
    """A run with a question, as it is kept."""
    kept = with_plugin(number, keeps)
    path = (await ledger.transcript("c"))[-1:] if number else []
    message_id, run = f"m{number}", f"r{number}"
    events = [
        started(run, path[0].id if path else None),
        new("message.started", run_id=run, message_id=message_id, role="user"),
    ]
    for place, block in enumerate(kept.persistent):
        events += [
            new("block.started", message_id=message_id, block=place, kind="text"),
            new("block.delta", message_id=message_id, block=place, text=block.text),
            new("block.sealed", message_id=message_id, block=place),
        ]
    events.append(new("message.finished", message_id=message_id, status="complete"))
    await ledger.record("c", [*events, *([finished(run)] if ends else [])])
    await ledger.annotate("c", message_id, {"retention": list(kept.retention_policy)})
    return kept


def noted(messages: Sequence[Message]) -> list[str]:
    """What is shown of each message's additions."""
    return ["+".join(block.text for block in one.blocks if block.text.startswith(("time", "notes"))) for one in messages]


async def test_the_newest_durable_message_has_index_0_while_another_one_is_being_sent(ledger: Ledger) -> None:
    for number in range(3):
        await ask(ledger, number)
    await ask(ledger, 3, ends=False)
    assert noted((await ledger.context("c", run="r3")).messages) == ["", "", "notes 2", "notes 3"]
    await ledger.record("c", [finished("r3")])
    assert noted((await ledger.context("c")).messages) == ["", "", "", "notes 3"]


async def test_once_a_prompt_has_held_it_it_counts_within_its_run_too(ledger: Ledger) -> None:
    await ask(ledger, 0)
    await ask(ledger, 1, ends=False)
    await ledger.record("c", [new("run.step", run_id="r1", n=1, phase="started")])
    assert noted((await ledger.context("c", run="r1")).messages) == ["", "notes 1"]


async def test_an_answer_says_that_it_was_sent_even_without_a_step(ledger: Ledger) -> None:
    await ask(ledger, 0)
    await ask(ledger, 1, ends=False)
    await ledger.record("c", said("r1", "a1", "an answer"))
    assert noted((await ledger.context("c", run="r1")).messages) == ["", "notes 1", ""]


async def test_the_display_variant_is_shown_in_this_prompt_alone(ledger: Ledger) -> None:
    for number in range(2):
        await ask(ledger, number)
    kept = await ask(ledger, 2, ends=False)
    context = await ledger.context("c", run="r2", display={"m2": kept.display})
    assert noted(context.messages) == ["", "notes 1", "time 2+notes 2"]
    assert [block.text for block in context.messages[2].blocks] == [block.text for block in kept.display]
    assert "time 2" in str(WRITERS["anthropic"](context.messages).payload)
    assert {change.stage for change in context.view.changes if change.message_id == "m2"} == {"display"}
    assert noted((await ledger.context("c", run="r2")).messages)[2] == "notes 2"
    await ledger.record("c", [finished("r2")])
    assert noted((await ledger.context("c")).messages) == ["", "", "notes 2"]
    assert "time" not in "".join(map(content_of, await ledger.transcript("c")))


async def test_what_is_displayed_is_said_to_be_sent_with_or_without_a_run_and_a_stage_of_retention(ledger: Ledger) -> None:
    await ask(ledger, 0)
    kept = await ask(ledger, 1)
    display = {"m1": list(kept.display)}
    assert noted((await ledger.context("c", display=display)).messages) == ["notes 0", "time 1+notes 1"]
    off = await ledger.context("c", display=display, pipeline=Pipeline(retention=False))
    assert noted(off.messages) == ["notes 0", "time 1+notes 1"]


async def test_a_tool_s_message_is_displayed_with_its_result(ledger: Ledger) -> None:
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with ledger.run("c", format="chat") as run:
        await run.message("user", "look")
        await run.feed({"id": "q", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        result = await run.tool_result("t1", "it rains")
        plain = (await ledger.context("c", run=run)).messages[-1]
        added = AdditionalContent(True, False, (words("mind the weather"),))
        kept = enrich(plain.blocks, [PluginAdditions("P", (added,))])
        context = await ledger.context("c", run=run, display={result: kept.display})
        assert [block.kind for block in context.messages[-1].blocks] == ["tool_result", "text", "text", "text"]
        assert context.messages[-1].blocks[0] == plain.blocks[0]
        with pytest.raises(ValueError, match="must hold the result of its call"):
            await ledger.context("c", run=run, display={result: [words("alone")]})


@pytest.mark.parametrize(
    ("display", "why"),
    [
        ({"nobody": [words("x")]}, "display names a message that is not on the path: 'nobody'"),
        ({"a0": [words("x")]}, "'a0' is an assistant's message"),
        ({"m0": "text"}, r"display\['m0'\]"),
        ({"m0": ["text"]}, r"display\['m0'\]"),
        ([("m0", [words("x")])], "display"),
        ("m0", "display"),
    ],
)
async def test_a_display_that_is_none_is_refused_by_name(ledger: Ledger, display: Any, why: str) -> None:
    await ask(ledger, 0, ends=False)
    await ledger.record("c", [*said("r0", "a0", "an answer"), finished("r0")])
    with pytest.raises(ValueError, match=why):
        await ledger.context("c", display=display)
