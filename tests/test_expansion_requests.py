"""What a model asks to see again: read whatever stands around it, found where the model saw it, as often as it expires."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from projector.context.expansion import Refusal, Request, read_request
from projector.context.json_answers import objects_in, whole_number
from projector.context.pipeline import Pipeline
from projector.context.policies import Action, ExpirationPolicy, PolicyRegistry
from projector.context.result_stages import Expiration
from projector.context.tokens import content_of
from projector.events import ContextExpanded
from projector.formats import WRITERS
from projector.formats.registry import NAMED
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from ledger import Ledger

pytestmark = pytest.mark.anyio
CUT = Pipeline(expiration=Expiration(PolicyRegistry({"find": Action(ExpirationPolicy(1, "compact", "first_n_chars", 40))})))
LINES = "\n".join(f"line {number} of it" for number in range(100))


async def ask_twice(ledger: Ledger) -> None:
    """A system message, a call with words before it, two results at once, and an answer."""
    asked = [
        event
        for number in (0, 1)
        for event in (
            new("block.started", message_id="a", block=number + 1, kind="tool_call", name="find", tool_call_id=f"c{number}"),
            new("block.sealed", message_id="a", block=number + 1, input={"n": number}, parse="ok"),
        )
    ]
    results = [
        new("tool.result", run_id="r", message_id=f"t{n}", tool_call_id=f"c{n}", status="ok",
            parts=[{"kind": "text", "text": f"{n}: {LINES}"}])
        for n in (0, 1)
    ]  # fmt: skip
    begun = said("r", "a", "I look.")
    await ledger.record(
        "c",
        [
            started("r"), *said("r", "s", "Be brief.", role="system"), *said("r", "u", "look", role="user"),
            *begun[:-1], *asked, begun[-1], *results, *said("r", "b", "Done."), *said("r", "v", "More!", role="user"),
            finished("r"),
        ],
    )  # fmt: skip


def step(index: object, **more: Any) -> Request:
    request = read_request(json.dumps({"nextStep": {"type": "expand-message", "messageIndex": index, **more}}))
    assert isinstance(request, Request)
    return request


# Where the model saw it


@pytest.mark.parametrize("name", sorted(WRITERS))
async def test_an_index_counts_what_was_written_for_the_model(ledger: Ledger, name: str) -> None:
    await ask_twice(ledger)
    context = await ledger.context("c", pipeline=CUT, turn=5)
    payload = WRITERS[name](context.messages).payload
    items = payload if isinstance(payload, list) else payload[NAMED[name].lists[0]]
    places = [place for place, item in enumerate(items) if "[Compacted" in json.dumps(item)]
    for place in places:
        found = await ledger.expand(context, step(place), format=name)
        assert isinstance(found, ContextExpanded), (place, found)
    again = await ledger.context("c", pipeline=CUT, turn=5)
    assert not [one.id for one in again.messages if "[Compacted" in content_of(one)]


@pytest.mark.parametrize("name", ["anthropic", "chat", "responses"])
async def test_an_index_of_something_else_names_what_could_be_asked_for(ledger: Ledger, name: str) -> None:
    await ask_twice(ledger)
    context = await ledger.context("c", pipeline=CUT, turn=5)
    for index, label in ((0, "not compacted"), (50, "no such index"), (-1, "no such index")):
        refused = await ledger.expand(context, step(index), format=name)
        assert isinstance(refused, Refusal)
        assert refused.label == label
        assert "t0, t1" in refused.reason
    assert await ledger.tables.choices("c") == []
    with pytest.raises(ValueError, match="format must be"):
        await ledger.expand(context, step(1), format="smoke")


async def test_without_a_format_an_index_is_of_the_view_and_a_wrong_one_names_what_could_be_asked_for(ledger: Ledger) -> None:
    await ask_twice(ledger)
    context = await ledger.context("c", pipeline=CUT, turn=5)
    for index in (0, 50):
        refused = await ledger.expand(context, step(index))
        assert isinstance(refused, Refusal)
        assert "by messageId: t0, t1" in refused.reason
    found = await ledger.expand(context, step(4))
    assert isinstance(found, ContextExpanded)
    assert found.message_id == context.messages[4].id == "t1"


async def test_a_part_of_an_item_with_several_results_can_not_be_meant(ledger: Ledger) -> None:
    await ask_twice(ledger)
    context = await ledger.context("c", pipeline=CUT, turn=5)
    refused = await ledger.expand(context, step(2, itemRange=[1, 2]), format="anthropic")
    assert isinstance(refused, Refusal)
    assert refused.label == "bad range"
    assert "by messageId: t0, t1" in refused.reason
    found = await ledger.expand(context, step(2), format="anthropic")
    assert isinstance(found, ContextExpanded)
    assert [one.role for one in (await ledger.context("c", pipeline=CUT, turn=5)).messages if LINES in content_of(one)] == [
        "tool", "tool",
    ]  # fmt: skip


# As often as it expires, and in part


async def test_what_expired_again_can_be_expanded_again(ledger: Ledger) -> None:
    await ask_twice(ledger)
    for turn in (5, 7, 9):
        context = await ledger.context("c", pipeline=CUT, turn=turn)
        assert "[Compacted" in content_of(context.messages[3])
        assert isinstance(await ledger.expand(context, "t0"), ContextExpanded)
        assert await ledger.expand(context, "t0") == Refusal("already expanded")
        shown = await ledger.context("c", pipeline=CUT, turn=turn + 1)
        assert content_of(shown.messages[3]).endswith(LINES)
        assert await ledger.expand(shown, "t0") == Refusal("already expanded")


async def test_a_view_that_shows_a_part_gives_another_part_and_all_of_it(ledger: Ledger) -> None:
    await ask_twice(ledger)
    context = await ledger.context("c", pipeline=CUT, turn=5)
    for item_range in ((10, 12), (40, 41), (10, 12)):
        assert isinstance(await ledger.expand(context, "t0", item_range=item_range), ContextExpanded)
        assert await ledger.expand(context, "t0", item_range=item_range) == Refusal("already expanded")
        context = await ledger.context("c", pipeline=CUT, turn=5)
        assert f"line {item_range[0]} of it" in content_of(context.messages[3])
        assert "line 90" not in content_of(context.messages[3])
        assert await ledger.expand(context, "t0", item_range=item_range) == Refusal("already expanded")
    assert isinstance(await ledger.expand(context, "t0"), ContextExpanded)
    assert await ledger.expand(context, "t0", item_range=(1, 2)) == Refusal("already expanded")
    assert content_of((await ledger.context("c", pipeline=CUT, turn=5)).messages[3]).endswith(LINES)


async def test_a_range_beside_a_request_counts_and_one_that_is_none_is_the_program_s_fault(ledger: Ledger) -> None:
    await ask_twice(ledger)
    context = await ledger.context("c", pipeline=CUT, turn=5)
    for bad in ((3, 1), (-1, 2), (1,), "ab"):
        with pytest.raises(ValueError, match=r"item.range"):
            await ledger.expand(context, "t0", item_range=bad)  # type: ignore[arg-type]
    found = await ledger.expand(context, step(3), item_range=(1, 3), reason="details")
    assert isinstance(found, ContextExpanded)
    assert (found.message_id, found.item_range, found.reason) == ("t0", (1, 3), "details")


async def test_a_view_of_a_run_that_has_ended_can_still_be_expanded(ledger: Ledger) -> None:
    policy = ExpirationPolicy(0, "compact", "first_n_chars", 10)
    async with ledger.run("c") as run:
        told = await run.message("user", LINES)
        pipeline = Pipeline(expiration=Expiration(policies={told: policy}))
        context = await ledger.context("c", run=run, turn=1, pipeline=pipeline)
    assert isinstance(await ledger.expand(context, told), ContextExpanded)


# Whatever stands around it


@pytest.mark.parametrize(
    "answer",
    [
        '{"step": "ExpandMessage", "messageIndex": 7}',
        '{"step": "expand-message", "messageIndex": "7", "terminate": false}',
        '{"type": "Expand Message", "message_index": 7.0}',
        '{"nextStep": {"step": "expand_message", "messageIndex": " 7 "}}',
        '{"nextStep": "expand-message", "messageIndex": 7}',
        '{"expand-message": {"messageIndex": 7}}',
        '{"taskComplete": false, "decision": [{"nextStep": {"type": "expand-message", "messageIndex": 7}}]}',
        'I see {this}.\n```json\n{"step": "ExpandMessage", "messageIndex": 7}\n```\nand {more',
        '{"thought": "no"} {"step": "expand-message"} {"step": "expand-message", "messageIndex": 7}',
        '{"step": "ExpandMessage",\n"messageIndex": 7, "reason": "of two\nlines"}',
    ],
)
def test_a_step_is_read_in_each_form_that_models_give_it(answer: str) -> None:
    request = read_request(answer)
    assert isinstance(request, Request)
    assert request.index == 7


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("{'step': 'ExpandMessage', 'messageIndex': 5}", "not understood"),
        ('{"step": "expand-message", "messageIndex": 5', "not understood"),
        ("{step: ExpandMessage, messageIndex: 5}", "not understood"),
        ("nextStep: expand-message\nmessageIndex: 5", "not understood"),
        ('"{\\"step\\": \\"expand-message\\", \\"messageIndex\\": 5}"', "not understood"),
        ('{"step": "ExpandMessage"}', "no such index"),
        ('{"step": "ExpandMessage", "messageIndex": "the fifth"}', "no such index"),
        ('{"step": "ExpandMessage", "messageIndex": null, "messageId": ""}', "no such index"),
        ('{"step": "ExpandMessage", "messageIndex": 5, "itemRange": "40-50"}', "bad range"),
        ('{"step": "ExpandMessage", "messageIndex": 5, "itemRange": ["x", 3]}', "bad range"),
    ],
)  # fmt: skip
def test_what_looks_like_a_request_and_is_none_is_told_how_to_ask(answer: str, label: str) -> None:
    refused = read_request(answer)
    assert isinstance(refused, Refusal)
    assert refused.label == label
    assert '{"nextStep": {"type": "expand-message", "messageIndex": 5}}' in refused.reason


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "I could expand message 5 for you.",
        "The step expand-message is not needed.",
        '{"step": "Continue", "messageIndex": 5}',
        '{"nextStep": {"type": "Chat", "message": "shall I use \'expand-message\' {here}?"}}',
        '{"step": "success", "note": "expand-message"}',
    ],
)
def test_what_only_speaks_of_it_asks_for_nothing(answer: str | None) -> None:
    assert read_request(answer) is None


def test_texts_are_ranges_and_ids_go_before_nothing() -> None:
    request = read_request('{"step": "ExpandMessage", "messageId": "m", "itemRange": ["40", 50], "reason": 3}')
    assert request == Request(None, "m", (40, 50), "")
    assert [whole_number(one) for one in ("5", "-1", " 5", 5.0, "5.0", True, None, "9" * 30, 1.5)] == [
        5, -1, 5, 5, None, None, None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("piece", ["{", '{"a":', '{"a": "', "[{", '{"a": 1000000000000000000000000000000}'])
@pytest.mark.heavy
def test_an_answer_that_is_made_to_be_slow_is_read_in_time(piece: str) -> None:
    start = time.process_time()
    read_request(piece * 30_000 + "expand-message")
    assert time.process_time() - start < 5


def test_objects_are_found_in_order_and_not_within_each_other() -> None:
    found = list(objects_in('x {"a": {"b": 1}} {no} {"c": "}"} {'))
    assert [one.value for one in found] == [{"a": {"b": 1}}, {"c": "}"}]
