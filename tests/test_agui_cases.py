"""AG-UI that no recording has: snapshots that disagree, values that are encrypted, histories that are broken, any path."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from projector.events import RawEvent, RunPaused, RunUsage
from projector.formats.agui.stream_reader import write_stream
from projector.formats.agui.writer import write
from projector.formats.format import FormatError
from projector.formats.shared.payloads import signer_of
from projector.json_text import text_of
from tests.test_agui import DONE, RUN, call, event, feed, result, shape, text, thought
from tests.ui_readings import blocks_said, folded


def raw_events(bodies: list[Any]) -> list[Any]:
    return [json.loads(text_of(body.event) or "") for body in bodies if isinstance(body, RawEvent)]


# what belongs together


def test_text_that_goes_on_behind_a_result_is_another_message() -> None:
    start, first, second, end = text("m", "before", "behind")
    messages, _, _ = feed(RUN, start, first, *call("c", "{}"), result("c"), second, end, DONE)
    assert shape(messages) == [
        ["assistant", "text:before", "tool_call:{}"], ["tool", "tool_result:"], ["assistant", "text:behind"],
    ]  # fmt: skip
    ids = [message["id"] for message in write(messages).payload]
    assert ids == ["m", "t-c", "r.3"]  # an id is given once


def test_text_that_goes_on_behind_a_call_is_a_block_of_the_same_message() -> None:
    start, first, second, end = text("m", "before", "behind")
    [message], _, _ = feed(RUN, start, first, *call("c", "{}"), second, end, DONE)
    assert [block.text for block in message.blocks] == ["before", "{}", "behind"]
    assert [loss.what for loss in write([message]).losses] == ["that the text stands behind a call"]


def test_parallel_calls_are_one_message_though_a_result_comes_between_them() -> None:
    first, second = call("c", "{}"), call("d", '{"a":1}')
    messages, _, _ = feed(RUN, *first[:-1], *second[:-1], first[-1], result("c"), second[-1], result("d"), DONE)
    assert shape(messages) == [
        ["assistant", "tool_call:{}", 'tool_call:{"a":1}'], ["tool", "tool_result:"], ["tool", "tool_result:"],
    ]  # fmt: skip
    assert {block.sealed for block in messages[0].blocks} == {True}


def test_a_call_goes_where_its_parent_is_and_reasoning_before_both() -> None:
    events = [*thought("r1", "hm"), *text("m"), *call("c", "{}", parentMessageId="m"), *text("n", "next")]
    messages, _, _ = feed(RUN, *events, DONE)
    assert shape(messages) == [["assistant", "reasoning:hm", "tool_call:{}"], ["assistant", "text:next"]]
    assert messages[0].parent_id is None
    assert [message["id"] for message in write(messages).payload] == ["r1", "m", "n"]


def test_messages_that_grow_at_once_stay_apart() -> None:
    one, two = text("m", "1", "2"), text("n", "a", "b")
    order = [one[0], two[0], one[1], two[1], two[2], one[2], two[3], one[3]]
    assert shape(feed(RUN, *order, DONE)[0]) == [["assistant", "text:12"], ["assistant", "text:ab"]]


def test_chunks_go_on_without_an_id_until_something_else_comes() -> None:
    def chunk(**fields: Any) -> dict[str, Any]:
        return event("TEXT_MESSAGE_CHUNK", **fields)

    calling = event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="f", delta="{")
    events = [chunk(messageId="m", delta="a"), chunk(delta="b"), calling, event("TOOL_CALL_CHUNK", delta="}")]
    thinking = [event("REASONING_MESSAGE_CHUNK", messageId="r1", delta="h"), event("REASONING_MESSAGE_CHUNK", delta="m")]
    messages, _, _ = feed(RUN, *thinking, *events, result("c"), chunk(messageId="n", delta="c"), DONE)
    assert shape(messages) == [
        ["assistant", "reasoning:hm", "text:ab", "tool_call:{}"], ["tool", "tool_result:"], ["assistant", "text:c"],
    ]  # fmt: skip


def test_names_of_the_python_package_are_understood() -> None:
    events = [
        event("TEXT_MESSAGE_START", message_id="m", role="assistant"),
        event("TEXT_MESSAGE_CONTENT", message_id="m", delta="x"),
        event("TEXT_MESSAGE_END", message_id="m"),
        event("TOOL_CALL_START", tool_call_id="c", tool_call_name="f", parent_message_id="m"),
        event("TOOL_CALL_END", tool_call_id="c"),
        event("TOOL_CALL_RESULT", tool_call_id="c", result="y"),
    ]
    messages, _, _ = feed(RUN, *events, DONE)
    assert shape(messages) == [["assistant", "text:x", "tool_call:"], ["tool", "tool_result:"]]
    assert (messages[0].blocks[1].input, messages[1].blocks[0].parts) == ({}, '[{"kind":"text","text":"y"}]')


def test_a_call_that_begins_once_more_and_what_nobody_began_change_nothing() -> None:
    again = call("c", "{}")[0]
    lost = [event("TOOL_CALL_ARGS", toolCallId="x", delta="y")]
    messages, bodies, _ = feed(RUN, *call("c", "{}"), again, *lost, DONE)
    assert shape(messages) == [["assistant", "tool_call:{}"]]
    assert raw_events(bodies) == [RUN, again, *lost]


# snapshots


def snapshot(*messages: dict[str, Any]) -> dict[str, Any]:
    return event("MESSAGES_SNAPSHOT", messages=list(messages))


USER = {"id": "u", "role": "user", "content": "?"}


def says(ref: str, content: str) -> dict[str, Any]:
    return {"id": ref, "role": "assistant", "content": content}


def calls(ref: str, call_id: str, arguments: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"id": ref, "role": "assistant", "toolCalls": [{"id": call_id, "type": "function", "function": function}]}


def answers(ref: str, call_id: str, content: str) -> dict[str, Any]:
    return {"id": ref, "role": "tool", "toolCallId": call_id, "content": content}


def test_a_snapshot_gives_the_arguments_that_no_event_gave() -> None:
    messages, bodies, _ = feed(RUN, *call("c"), result("c"), *text("m", "x"), snapshot(USER, calls("q", "c", '{"a": 1}')), DONE)
    assert messages[0].blocks[0].input == {"a": 1}
    assert messages[0].status == "complete"
    assert feed(RUN, *call("c"), result("c"), DONE)[0][0].blocks[0].input == {}
    assert raw_events(bodies)[1:2] == [snapshot(USER, calls("q", "c", '{"a": 1}'))]  # the text is not in it


def test_a_snapshot_that_repeats_what_was_streamed_is_no_event() -> None:
    streamed = [RUN, *text("m", "x"), *call("c", "{}"), result("c", "1"), *text("n", "y")]
    told = snapshot(USER, says("other", "x") | calls("m", "c", "{}"), answers("any", "c", "1"), says("n", "y"))
    assert feed(*streamed, told, told, DONE)[1] == feed(*streamed, DONE)[1]


def test_a_snapshot_brings_what_stands_behind_what_was_streamed() -> None:
    told = snapshot(USER, calls("q", "c", "{}"), answers("t", "c", "1"), says("n", "late"))
    messages, _, _ = feed(RUN, *call("c", "{}"), told, told, DONE)
    assert shape(messages) == [["assistant", "tool_call:{}"], ["tool", "tool_result:"], ["assistant", "text:late"]]


def test_a_snapshot_of_the_past_brings_nothing_and_one_that_is_all_there_is_brings_the_answer() -> None:
    past = snapshot(says("old", "once"), USER)
    assert shape(feed(RUN, past, *text("m", "x"), DONE)[0]) == [["assistant", "text:x"]]
    assert shape(feed(RUN, snapshot(says("old", "once"), USER, says("m", "x")), DONE)[0]) == [["assistant", "text:x"]]
    resumed = snapshot(USER, calls("q", "c", "{}"), answers("t", "c", "1"), says("m", "x"))
    assert shape(feed(RUN, *text("m", "x"), resumed, DONE)[0]) == [["assistant", "text:x"]]


def test_a_snapshot_with_another_text_under_another_id_is_kept_and_changes_nothing() -> None:
    told = snapshot(USER, says("n", "other"))
    messages, bodies, _ = feed(RUN, *text("m", "x"), told, DONE)
    assert shape(messages) == [["assistant", "text:x"]]
    assert raw_events(bodies) == [RUN, told]


def test_the_text_of_a_message_is_the_one_that_a_snapshot_has() -> None:
    told = snapshot(USER, says("m", "not x"), says("o", "y"))
    for more in ([], [*text("o", "y")]):
        messages, bodies, _ = feed(RUN, *text("m", "x"), *more, told, DONE)
        assert shape(messages) == [["assistant", "text:not x"], ["assistant", "text:y"]]
        assert raw_events(bodies) == [RUN]
    early = [event("TEXT_MESSAGE_START", messageId="m"), event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x")]
    late = [event("TEXT_MESSAGE_CONTENT", messageId="m", delta="y"), event("TEXT_MESSAGE_END", messageId="m")]
    messages, bodies, _ = feed(RUN, *early, snapshot(USER, says("m", "not")), *late, DONE)
    assert shape(messages) == [["assistant", "text:xy"]]  # it had not come to its end
    assert len(raw_events(bodies)) == 2


# how a run ends


def test_an_interrupt_pauses_and_the_run_ends_with_that_reason() -> None:
    asked = {"id": "i", "reason": "tool_call", "toolCallId": "c", "responseSchema": {"type": "object"}, "message": "may I?"}
    done = event("RUN_FINISHED", threadId="t", runId="a", outcome={"type": "interrupt", "interrupts": [asked]})
    messages, bodies, stream = feed(RUN, *call("c", "{}"), done)
    [paused] = [body for body in bodies if isinstance(body, RunPaused)]
    wanted = {"id": "i", "reason": "tool_call", "tool_call_id": "c", "schema": {"type": "object"}, "message": "may I?"}
    assert json.loads(text_of(paused.interrupts) or "") == [wanted]
    assert (stream.end().outcome, stream.end().finish_reason) == ("completed", "interrupt")
    assert [block["type"] for block in write_stream(messages)].count("TOOL_CALL_RESULT") == 0  # the call stays open


def test_a_cancelled_run_says_so_and_usage_is_a_total() -> None:
    used = {"inputTokens": 7, "cachedInputTokens": 3, "outputTokens": 2, "reasoningTokens": 1, "model": "m"}
    done = event("RUN_FINISHED", threadId="t", runId="a", outcome={"type": "cancelled"}, usage=[used], result={"n": 1})
    _, bodies, stream = feed(RUN, done)
    assert stream.end().outcome == "cancelled"
    [usage] = [body for body in bodies if isinstance(body, RunUsage)]
    assert (usage.request_id, usage.input, usage.cached, usage.output, usage.reasoning) == ("a:1", 7, 3, 2, 1)
    assert raw_events(bodies) == [RUN, done]  # its result has no other place


def test_an_error_keeps_what_is_whole_and_is_not_undone() -> None:
    error = event("RUN_ERROR", message="torn", code="E")
    torn = [RUN, *text("m", "whole"), *call("c", '{"a"')[:-1], error]
    messages, _, stream = feed(*torn, DONE)
    assert (stream.end().outcome, json.loads(stream.end().error or "")) == ("failed", {"message": "torn", "code": "E"})
    assert [(block.sealed, block.text) for message in messages for block in message.blocks] == [
        (True, "whole"),
        (False, '{"a"'),
    ]
    assert messages[0].status == "partial"
    assert feed(*torn, RUN)[2].end().outcome == "incomplete"
    half = text("m", "whole")
    assert feed(RUN, *half[:-1], error)[0][0].status == "partial"
    assert feed(RUN, *half, error)[0][0].status == "complete"


def test_runs_follow_each_other_under_the_same_ids() -> None:
    once = [RUN, *text("m", "x"), DONE]
    messages, _, stream = feed(*once, *once)
    assert shape(messages) == [["assistant", "text:x"], ["assistant", "text:x"]]
    assert stream.end().outcome == "completed"
    assert [message["id"] for message in write(messages).payload] == ["m", "r.2"]


def test_a_stream_without_an_event_is_incomplete() -> None:
    assert feed()[2].end().outcome == "incomplete"


# encrypted values


def encrypted(ref: str, value: str, subtype: str = "message") -> dict[str, Any]:
    return event("REASONING_ENCRYPTED_VALUE", subtype=subtype, entityId=ref, encryptedValue=value)


def test_encrypted_values_come_back_with_what_they_belong_to() -> None:
    phase, over = event("REASONING_START", messageId="p"), event("REASONING_END", messageId="p")
    started, *given, ended = call("c", "{}", parentMessageId="m")
    events = [
        phase, *thought("r1", "hm"), encrypted("r1", "v1"), over, *text("m", "x")[:-1], encrypted("m", "v2"), text("m")[-1],
        started, *given, encrypted("c", "v3", "tool-call"), ended,
    ]  # fmt: skip
    late = [*events[:-2], events[-1], events[-2]]  # behind the end of the call
    for order in (events, late):
        [message], _, _ = feed(RUN, *order, DONE)
        assert [block.signature for block in message.blocks] == ["v1", None, "v3"]
        assert {signer_of(block) for block in message.blocks if block.signature} == {"ag-ui"}
        written = write([message])
        assert [piece.get("encryptedValue") for piece in written.payload] == ["v1", "v2"]
        assert written.payload[1]["toolCalls"][0]["encryptedValue"] == "v3"
        assert written.losses == ()
        assert blocks_said(feed(*write_stream([message]))[0]) == blocks_said([message])


def test_reasoning_that_nobody_may_read_is_a_block_without_text() -> None:
    phase, over = event("REASONING_START", messageId="r1"), event("REASONING_END", messageId="r1")
    [message], _, _ = feed(RUN, phase, encrypted("r1", "v"), over, *text("m", "x"), DONE)
    assert [(block.kind, block.text, block.signature) for block in message.blocks] == [
        ("reasoning", "", "v"), ("text", "x", None),
    ]  # fmt: skip
    assert write([message]).payload[0] == {"id": "r1", "role": "reasoning", "content": "", "encryptedValue": "v"}


def test_an_encrypted_value_of_nobody_is_kept() -> None:
    _, bodies, _ = feed(RUN, encrypted("x", "v"), encrypted("y", "v", "tool-call"), DONE)
    assert raw_events(bodies) == [RUN, encrypted("x", "v"), encrypted("y", "v", "tool-call")]


# what is kept, and what is refused


@pytest.mark.parametrize("kind", ["STATE_DELTA", "CUSTOM", "SUBAGENT_STARTED", "ACTIVITY_DELTA", "STEP_STARTED", "HOLOGRAM"])
def test_what_says_nothing_of_a_message_is_kept_as_it_came(kind: str) -> None:
    given = f'{{"type":"{kind}",  "n": 1e400, "s": "\\ud83d", "z": 1.50}}'
    start, first, second, end = text("m", "a", "b")
    messages, bodies, _ = feed(RUN, start, first, given, second, end, DONE)
    assert [text_of(body.event) for body in bodies if isinstance(body, RawEvent)][1] == given
    assert [message.text for message in messages] == ["ab"]


@pytest.mark.parametrize(
    "bad",
    [
        "", "{", "[]", "null", '{"a":1}', '{"type":1}', b'{"type":"\xff"}', '{"type":"TEXT_MESSAGE_START"}',
        '{"type":"TEXT_MESSAGE_START","messageId":"x","role":"tool"}', '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}',
        '{"type":"TOOL_CALL_START","toolCallId":"x"}', '{"type":"MESSAGES_SNAPSHOT","messages":[{}]}',
        '{"type":"MESSAGES_SNAPSHOT","messages":{}}', '{"type":"TOOL_CALL_CHUNK","delta":"x"}',
        '{"type":"RUN_FINISHED","usage":[{"inputTokens":"many"}]}', '{"type":"REASONING_ENCRYPTED_VALUE","entityId":"m"}',
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused_and_the_stream_goes_on(bad: str | bytes) -> None:
    _, bodies, stream = feed(RUN, *call("c", "{}"), *text("m", "a")[:-1])
    with pytest.raises(FormatError):
        stream.feed(bad)
    for good in (*text("m", "b")[1:], *text("n", "c"), DONE):
        bodies += stream.feed(good)

    assert shape(folded(bodies).all_messages()) == shape(
        feed(RUN, *call("c", "{}"), *text("m", "a", "b"), *text("n", "c"), DONE)[0]
    )


def test_another_stream_is_refused() -> None:
    for other in ('{"type":"message_start"}', '{"type":"response.created"}', '{"type":"start"}', '{"choices":[]}'):
        with pytest.raises(FormatError):
            feed(other)


def test_memory_does_not_grow_with_the_stream() -> None:
    _, _, stream = feed(RUN, *text("m", "x")[:-1])
    piece = event("TEXT_MESSAGE_CONTENT", messageId="m", delta="word " * 20)
    stream.feed(piece)

    def grown() -> int:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5000):
            stream.feed(piece)
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:  # a thread that another test has left may take some of it once, a stream that keeps its pieces each time
        assert min(grown() for _ in range(3)) < 20_000
    finally:
        tracemalloc.stop()
