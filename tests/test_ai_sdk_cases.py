"""UI message streams that no recording has: steps that are reset, all that may become of a tool, what only the SDK knows."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from projector.events import RunStep
from projector.formats.ai_sdk.stream_reader import write_stream
from projector.formats.ai_sdk.writer import write
from projector.formats.format import FormatError
from projector.formats.shared.payloads import opaque, signer_of
from projector.message import Block
from tests.test_ai_sdk import check_order, chunk, feed, parsed, raw_events
from tests.ui_readings import a_call, a_message, a_result, blocks_said, folded, paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector.message import Message


def says(ref: str, *pieces: str, kind: str = "text", **fields: Any) -> list[dict[str, Any]]:
    grown = [chunk(f"{kind}-delta", id=ref, delta=piece) for piece in pieces]
    return [chunk(f"{kind}-start", id=ref), *grown, chunk(f"{kind}-end", id=ref, **fields)]


def calls(ref: str, given: Any, **fields: Any) -> list[dict[str, Any]]:
    named = {"toolCallId": ref, "toolName": "f"} | fields
    return [chunk("tool-input-start", **named), chunk("tool-input-available", **named, input=given)]


def outputs(ref: str, output: Any = "1", **fields: Any) -> dict[str, Any]:
    return chunk("tool-output-available", toolCallId=ref, output=output, **fields)


START, STEP, OVER, FINISH = chunk("start", messageId="m"), chunk("start-step"), chunk("finish-step"), chunk("finish")


def shape(messages: Iterable[Message]) -> list[list[str]]:
    return [
        [message.role, *(f"{block.kind}:{block.text or block.input_text or ''}" for block in message.blocks)]
        for message in messages
    ]


# steps


def test_each_step_is_a_message_and_all_of_a_run_is_one_for_the_client() -> None:
    chunks = [START, STEP, *says("t", "a"), *calls("c", {"x": 1}), outputs("c"), OVER, STEP, *says("t", "b"), OVER, FINISH]
    messages, bodies, _ = feed(*chunks)
    assert shape(messages) == [["assistant", "text:a", 'tool_call:{"x":1}'], ["tool", "tool_result:"], ["assistant", "text:b"]]
    assert [(body.n, body.phase) for body in bodies if isinstance(body, RunStep)] == [
        (1, "started"), (1, "finished"), (2, "started"), (2, "finished"),
    ]  # fmt: skip
    [message] = write(messages).payload
    assert message == {
        "id": "m", "role": "assistant", "parts": [
            {"type": "step-start"}, {"type": "text", "text": "a", "state": "done"},
            {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": {"x": 1}, "output": "1"},
            {"type": "step-start"}, {"type": "text", "text": "b", "state": "done"},
        ],
    }  # fmt: skip


def test_a_step_that_is_reset_has_said_nothing() -> None:
    wrong = [*says("t", "wrong"), *calls("c", {}), outputs("c")]
    for over in ([], [OVER]):
        chunks = [START, STEP, *wrong, *over, chunk("reset-step"), *says("t", "right"), OVER, FINISH]
        assert shape(feed(*chunks)[0]) == [["assistant", "text:right"]]
    assert shape(feed(START, STEP, chunk("reset-step"), *says("t", "x"), FINISH)[0]) == [["assistant", "text:x"]]


def test_parts_of_two_streams_may_grow_at_once() -> None:
    one, two = says("t", "1", "2"), says("r", "a", "b", kind="reasoning")
    mixed = [one[0], two[0], two[1], one[1], OVER, one[2], two[2], two[3], one[3]]
    messages, _, _ = feed(START, STEP, *mixed, FINISH)
    assert shape(messages) == [["assistant", "text:12", "reasoning:ab"]]
    assert messages[0].status == "complete"


def test_what_is_not_ended_when_the_stream_finishes_is_whole_and_a_call_is_not() -> None:
    begun = [STEP, *says("t", "x")[:-1], chunk("tool-input-start", toolCallId="c", toolName="f")]
    messages, _, stream = feed(START, *begun, FINISH)
    assert [(block.kind, block.sealed) for block in messages[0].blocks] == [("text", True), ("tool_call", False)]
    assert (messages[0].status, stream.end().outcome) == ("partial", "completed")


@pytest.mark.parametrize(
    ("last", "outcome", "reason"),
    [
        (chunk("finish", finishReason="length"), "completed", "length"),
        (chunk("finish", finishReason="error"), "failed", "error"),
        (chunk("finish", finishReason="interrupted"), "incomplete", "interrupted"),
        (chunk("abort", reason="stopped"), "cancelled", "stopped"), (FINISH, "completed", None),
    ],
)  # fmt: skip
def test_a_stream_ends_as_it_says(last: dict[str, Any], outcome: str, reason: str | None) -> None:
    stream = feed(START, STEP, *says("t", "x"), last)[2]
    assert (stream.end().outcome, stream.end().finish_reason) == (outcome, reason)


def test_an_error_keeps_what_is_whole_and_is_not_undone() -> None:
    messages, _, stream = feed(
        START, STEP, *says("t", "x"), *says("s", "ha", "lf")[:2], chunk("error", errorText="torn"), FINISH
    )
    assert (stream.end().outcome, json.loads(stream.end().error or "")) == ("failed", {"message": "torn"})
    assert [(block.text, block.sealed) for block in messages[0].blocks] == [("x", True), ("ha", False)]
    assert messages[0].status == "partial"
    assert feed(START, STEP, *says("t", "x"), chunk("error", errorText="e"))[0][0].status == "complete"
    assert feed(START, chunk("error", errorText="e"), START)[2].end().outcome == "incomplete"


def test_one_stream_may_have_several_messages() -> None:
    one = [START, STEP, *says("t", "x"), OVER, FINISH]
    messages, _, stream = feed(*one, *(chunk("start", messageId="n"), *one[1:]))
    assert [message["id"] for message in write(messages).payload] == ["m", "n"]
    assert stream.end().outcome == "completed"


# tools


def test_the_input_of_a_tool_is_kept_as_it_was_streamed() -> None:
    written = '{"n": 1.50, "s": "\\ud83d"}'
    deltas = [chunk("tool-input-delta", toolCallId="c", inputTextDelta=piece) for piece in (written[:5], written[5:])]
    begin, whole = calls("c", json.loads(written))
    [message] = feed(START, STEP, begin, *deltas, whole, FINISH)[0]
    assert (message.blocks[0].text, message.blocks[0].input_text, message.blocks[0].parse) == (written, None, "ok")
    [other] = feed(START, STEP, begin, *deltas, whole | {"input": {"other": 1}}, FINISH)[0]
    assert (other.blocks[0].text, other.blocks[0].input) == ('{"other":1}', {"other": 1})
    [text] = feed(START, STEP, begin | {"inputEncoding": "text"}, *deltas, whole | {"input": written}, FINISH)[0]
    assert (text.blocks[0].text, text.blocks[0].input) == (written, written)


def test_a_tool_of_the_provider_has_its_result_in_the_same_message() -> None:
    chunks = [*calls("c", {}, providerExecuted=True), outputs("c", {"found": [1]}, providerExecuted=True), *says("t", "so")]
    messages, _, _ = feed(START, STEP, *chunks, OVER, FINISH)
    assert [block.kind for block in messages[0].blocks] == ["server_tool_call", "server_tool_result", "text"]
    [message] = write(messages).payload
    assert message["parts"][1] == {
        "type": "tool-f", "toolCallId": "c", "state": "output-available", "providerExecuted": True, "input": {},
        "output": {"found": [1]},
    }  # fmt: skip
    assert parsed(feed(*write_stream(messages))[0]) == parsed(messages)


def test_each_end_of_a_tool_is_a_result() -> None:
    denied = [chunk("tool-approval-request", toolCallId="d", approvalId="q", reason="why", signature="s"),
              chunk("tool-approval-response", approvalId="q", approved=False, reason="no"),
              chunk("tool-output-denied", toolCallId="d")]  # fmt: skip
    failed = chunk("tool-output-error", toolCallId="e", errorText="broke", providerMetadata={"x": {"n": 1}})
    bad = chunk("tool-input-error", toolCallId="b", toolName="f", input={"y": 1}, errorText="not taken")
    chunks = [
        *calls("d", {}),
        *denied,
        *calls("e", [1], dynamic=True, title="T"),
        failed,
        bad,
        *calls("n", None),
        outputs("n", None),
    ]
    messages, bodies, _ = feed(START, STEP, *chunks, OVER, FINISH)
    assert [block.status for message in messages for block in message.blocks if block.kind == "tool_result"] == [
        "denied", "error", "error", "ok",
    ]  # fmt: skip
    assert not raw_events(bodies)
    [message] = write(messages).payload
    approval = {"requestReason": "why", "signature": "s", "reason": "no", "id": "q", "approved": False}
    assert message["parts"][1:] == [
        {"type": "tool-f", "toolCallId": "d", "state": "output-denied", "input": {}, "approval": approval},
        {"type": "dynamic-tool", "toolName": "f", "toolCallId": "e", "state": "output-error", "input": [1], "title": "T",
         "errorText": "broke", "resultProviderMetadata": {"x": {"n": 1}}},
        {"type": "tool-f", "toolCallId": "b", "state": "output-error", "input": {"y": 1}, "errorText": "not taken"},
        {"type": "tool-f", "toolCallId": "n", "state": "output-available", "input": None, "output": None},
    ]  # fmt: skip
    again = feed(*write_stream(messages))[0]
    assert write(again).payload == [message]


def test_what_is_preliminary_or_transient_or_unknown_is_kept_and_no_part_of_a_message() -> None:
    kept = [
        outputs("c", "half", preliminary=True), chunk("data-note", data=1, transient=True), chunk("hologram", x=[1]),
        chunk("tool-input-delta", toolCallId="nobody", inputTextDelta="x"),
        chunk("tool-approval-request", toolCallId="nobody", approvalId="q"),
        chunk("tool-approval-response", approvalId="nobody", approved=True),
    ]  # fmt: skip
    messages, bodies, _ = feed(START, STEP, *calls("c", {}), *kept, outputs("c", "whole"), OVER, FINISH)
    assert raw_events(bodies) == kept
    assert messages[1].blocks[0].parts == '[{"kind":"text","text":"whole"}]'


# what only the SDK knows


def test_a_signature_comes_back_to_its_maker_and_unread_reasoning_stays() -> None:
    signed = says("r", "hm", kind="reasoning", providerMetadata={"anthropic": {"signature": "c2ln"}})
    unread = says("s", kind="reasoning", providerMetadata={"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAA"}})
    redacted = says("q", kind="reasoning", providerMetadata={"anthropic": {"redactedData": "x="}})
    [message] = feed(START, STEP, *signed, *unread, *redacted, *says("t", "x"), OVER, FINISH)[0]
    assert [(block.kind, block.signature) for block in message.blocks] == [
        ("reasoning", "c2ln"), ("redacted_reasoning", None), ("redacted_reasoning", None), ("text", None),
    ]  # fmt: skip
    assert signer_of(message.blocks[0]) == "anthropic"
    assert message.blocks[2].opaque == opaque("anthropic", '{"type":"redacted_thinking","data":"x="}')
    [written] = write([message]).payload
    metadata = [part.get("providerMetadata") for part in written["parts"][1:]]
    assert metadata == [signed[-1]["providerMetadata"], unread[-1]["providerMetadata"], redacted[-1]["providerMetadata"], None]


def test_citations_files_sources_and_data_are_parts_of_the_message() -> None:
    cited = {
        "source": {"type": "source", "sourceType": "url", "id": "1", "url": "https://e.org"},
        "startIndex": 0,
        "endIndex": 1,
    }
    parts = [
        chunk("source-url", sourceId="1", url="https://e.org", title="E"),
        chunk("file", url="data:image/png;base64,aGk=", mediaType="image/png"),
        chunk("reasoning-file", url="https://e.org/a.png", mediaType="image/png", providerMetadata={"x": {"y": 1}}),
        chunk("data-note", id="n", data={"done": False}), chunk("custom", kind="p.thing", providerMetadata={"p": {"z": 1.5}}),
        chunk("steering-message", id="s", parts=[{"type": "text", "text": "stop"}]), chunk("data-plain", data=None),
    ]  # fmt: skip
    last = chunk("data-note", id="n", data={"done": True})
    chunks = [START, STEP, *says("t", "x", citations=[cited]), *parts, last, OVER, FINISH]
    messages, bodies, _ = feed(*chunks)
    [message] = write(messages).payload
    text = {"type": "text", "text": "x", "state": "done", "citations": [cited]}
    assert message["parts"] == [{"type": "step-start"}, text, *parts[:3], last, *parts[4:]]
    assert not raw_events(bodies)
    assert write(feed(*write_stream(messages))[0]).payload == [message]


def test_metadata_of_the_message_is_merged_whenever_it_comes() -> None:
    chunks = [
        chunk("start", messageId="m", messageMetadata={"a": {"x": 1}, "b": 1}), STEP, *says("t", "x"), OVER,
        chunk("message-metadata", messageMetadata={"a": {"y": 2}}), chunk("finish", messageMetadata={"b": [2]}),
    ]  # fmt: skip
    messages, _, _ = feed(*chunks)
    assert write(messages).payload[0]["metadata"] == {"a": {"x": 1, "y": 2}, "b": [2]}
    lonely = chunk("finish", messageMetadata={"b": 1})
    assert raw_events(feed(START, lonely)[1]) == [lonely]


@pytest.mark.parametrize(
    "bad",
    [
        "", "{", "[]", "null", '{"a":1}', '{"type":1}', b'{"type":"\xff"}', '{"type":"text-start"}',
        '{"type":"text-delta","id":"t"}',
        '{"type":"tool-input-start","toolCallId":"x"}', '{"type":"tool-input-available","toolCallId":"x","input":{}}',
        '{"type":"tool-output-error","toolCallId":"x"}', '{"type":"error"}', '{"type":"start","messageId":7}',
        '{"type":"text-end","id":"t","citations":7}', '{"type":"tool-approval-request","toolCallId":"c"}',
    ],
)  # fmt: skip
def test_what_is_no_chunk_is_refused_and_the_stream_goes_on(bad: str | bytes) -> None:
    _, bodies, stream = feed(START, STEP, *calls("c", {}), *says("t", "a")[:-1])
    with pytest.raises(FormatError):
        stream.feed(bad)
    for good in (*says("t", "b")[1:], OVER, FINISH):
        bodies += stream.feed(good)
    assert shape(folded(bodies).all_messages()) == [["assistant", "tool_call:{}", "text:ab"]]


def test_another_stream_is_refused() -> None:
    for other in ('{"type":"message_start"}', '{"type":"response.created"}', '{"type":"RUN_STARTED"}', '{"choices":[]}'):
        with pytest.raises(FormatError):
            feed(other)


def test_memory_does_not_grow_with_the_stream() -> None:
    _, _, stream = feed(START, STEP, *says("t", "x")[:-1])
    piece = chunk("text-delta", id="t", delta="word " * 20)
    stream.feed(piece)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(5000):
        stream.feed(piece)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000


@given(paths())
@settings(max_examples=150, deadline=None)
def test_what_an_assistant_says_on_any_path_goes_out_and_comes_back_the_same(path: list[Message]) -> None:
    said = [message for message in path if message.role in ("assistant", "tool")]
    chunks = write_stream(path)
    check_order(chunks)
    back = feed(*chunks)[0]
    assert write(back).payload == [message for message in write(path).payload if message["role"] == "assistant"]
    assert [row[0] for row in blocks_said(back)] == [message.role for message in said]


def test_a_stream_that_was_cut_off_is_shown_as_far_as_it_came() -> None:
    torn = replace(a_call("c", '{"a"'), sealed=False, parse=None)
    said = a_message(1, "assistant", Block("text", text="ha"), torn, status="partial")
    chunks = write_stream([said])
    check_order(chunks)
    kinds = [given_chunk["type"] for given_chunk in chunks]
    assert kinds == [
        "start",
        "start-step",
        "text-start",
        "text-delta",
        "tool-input-start",
        "tool-input-delta",
        "finish-step",
        "finish",
    ]
    waiting = [a_message(1, "assistant", a_call("c"), a_call("d")), a_result(2, "d")]
    assert [chunk_["type"] for chunk_ in write_stream(waiting)].count("tool-output-available") == 1
