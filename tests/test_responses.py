"""Responses: what no recording has, items in and out, and what moves together on the way."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from typing import Any

import pytest

from projector import Block, Message
from projector.events import BlockDelta, Body, RawEvent, RunUsage, ToolApproval, to_event
from projector.formats import FormatError
from projector.formats.responses import reader as responses
from projector.formats.responses import writer as responses_writer
from projector.formats.responses.stream_writer import write_stream
from projector.formats.validators import validate_responses
from projector.json_text import text_of
from tests.openai_recordings import feed, imported, messages_of

CREATED = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "model": "m", "output": []}}
COMPLETED = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FBQUFB+/=\u00e9"}
HELLO = {"role": "user", "content": "hi"}


def text_item(text: str, **fields: Any) -> dict[str, Any]:
    return MESSAGE | {"content": [{"type": "output_text", "text": text, "annotations": []}]} | fields


def delta(text: str, index: int = 0, kind: str = "output_text", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "content_index": 0, "delta": text} | fields


def added(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def numbered(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def run(*events: dict[str, Any] | str) -> tuple[Any, list[Body], list[Block]]:
    stream, bodies = feed("responses", [CREATED, *events])
    found = messages_of(bodies)
    return stream, bodies, [block for message in found for block in message.blocks]


def raw_events(bodies: list[Body]) -> list[Any]:
    return [json.loads(text_of(body.event) or "") for body in bodies if isinstance(body, RawEvent)]


def read(*items: dict[str, Any]) -> list[Message]:
    [history] = responses.read(json.dumps(items))
    return imported(history)


def test_ids_that_change_with_each_event_do_not_split_an_item_and_the_last_one_counts() -> None:
    ids = (f"rotating_{number}" for number in itertools.count())
    _, _, [thought, said] = run(
        added({"type": "reasoning", "id": next(ids), "summary": []}),
        delta("hm", 0, "reasoning_summary_text", summary_index=0, item_id=next(ids)),
        done(REASONING | {"summary": [{"type": "summary_text", "text": "hm"}]}),
        added(MESSAGE | {"id": next(ids)}, 1),
        *(delta(text, 1, item_id=next(ids)) for text in ("a", "b")),
        done(text_item("ab"), 1),
        COMPLETED,
    )
    assert (thought.text, said.text) == ("hm", "ab")
    messages = [Message("m", None, "r", "assistant", "complete", (thought, said), 0, 0)]
    assert [item["id"] for item in responses_writer.write(messages).payload] == ["rs_1", "msg_1"]


def test_what_deltas_left_out_is_added_at_the_end_and_another_text_counts_there() -> None:
    _, bodies, [said] = run(
        delta("Got"), {"type": "response.output_text.done", "output_index": 0, "text": "Got it."}, COMPLETED
    )
    assert (said.text, raw_events(bodies)) == ("Got it.", [])
    other = done(text_item("Another."))
    _, bodies, [said] = run(delta("Got"), other, COMPLETED)
    assert (said.text, said.sealed, raw_events(bodies)) == ("Another.", True, [])


def test_a_stream_without_ends_of_items_is_whole_once_its_response_is() -> None:
    call = added(CALL | {"arguments": ""}, 1)
    events = [delta("x"), call, delta('{"a":', 1, "function_call_arguments"), delta("1}", 1, "function_call_arguments")]
    stream, _, blocks = run(*events)
    assert (stream.end().outcome, [block.sealed for block in blocks]) == ("incomplete", [False, False])
    _, _, blocks = run(*events, COMPLETED)
    assert [(block.sealed, block.parse) for block in blocks] == [(True, None), (True, "ok")]
    _, _, blocks = run(*events[:2], COMPLETED | {"response": COMPLETED["response"] | {"output": [text_item("xy"), CALL]}})  # type: ignore[operator]
    assert [(block.text, block.sealed) for block in blocks] == [("xy", True), ("{}", True)]


def test_a_stream_that_is_resumed_goes_on_where_it_was() -> None:
    events = numbered(CREATED, delta("a"), delta("b"), delta("c"), done(text_item("abc")), COMPLETED)
    _, once = feed("responses", events)
    for cut in range(1, len(events) + 1):
        for after in range(cut + 1):  # the server sends what came after a number, be it known or not
            assert feed("responses", [*events[:cut], *events[after:]])[1] == once


def test_numbers_with_gaps_or_that_never_change_lose_nothing() -> None:
    for numbers in ((0, 5, 9, 40, 41, 99), (0,) * 6, (-1,) * 6):
        events = [CREATED, delta("a"), delta("b"), delta("c"), done(text_item("abc")), COMPLETED]
        numbered_so = [event | {"sequence_number": number} for event, number in zip(events, numbers, strict=True)]
        assert messages_of(feed("responses", numbered_so)[1])[0].text == "abc"


def test_the_same_start_and_end_once_more_change_nothing() -> None:
    one = [CREATED, delta("x"), done(text_item("x")), COMPLETED]
    assert feed("responses", [CREATED, *one, COMPLETED])[1] == feed("responses", one)[1]


def test_a_response_inside_another_one_leaves_the_first_as_partial() -> None:
    second = json.loads(json.dumps([CREATED, delta("whole"), COMPLETED]).replace("resp_1", "resp_2"))
    first, last = messages_of(feed("responses", [CREATED, delta("torn"), *second])[1])
    assert [(first.text, first.status), (last.text, last.status)] == [("torn", "partial"), ("whole", "complete")]


@pytest.mark.parametrize("error", [{"code": "x", "message": "no"}, {"error": {"code": "x", "message": "no"}}])
def test_an_error_in_the_middle_fails_the_run_and_what_came_is_kept(error: dict[str, Any]) -> None:
    stream, bodies, [said] = run(delta("so far"), {"type": "error", **error}, COMPLETED)
    assert (stream.end().outcome, "no" in str(stream.end().error), said.text) == ("failed", True, "so far")
    failed = {"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "error": {"code": "x"}}}
    stream, bodies, [said] = run(delta("so far"), failed)
    assert (stream.end().outcome, stream.end().error, said.sealed) == ("failed", '{"code":"x"}', False)
    assert messages_of(bodies)[0].status == "partial"


def test_a_response_that_hits_a_limit_is_incomplete_and_says_why() -> None:
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": {"input_tokens": 3}}
    stream, bodies, [said] = run(delta("so f"), {"type": "response.incomplete", "response": {"id": "resp_1"} | details})
    assert (stream.end().outcome, stream.end().finish_reason, said.sealed) == ("incomplete", "max_output_tokens", True)
    assert [body.input for body in bodies if isinstance(body, RunUsage)] == [3]


def test_encrypted_reasoning_goes_back_byte_for_byte_and_only_with_what_follows_it() -> None:
    stream = [done(REASONING), done(text_item("x"), 1), COMPLETED]
    _, _, [thought, said] = run(*stream)
    assert (thought.kind, thought.signature) == ("redacted_reasoning", REASONING["encrypted_content"])
    message = Message("m", None, "r", "assistant", "complete", (thought, said), 0, 0)
    assert responses_writer.write([message]).payload == [REASONING, text_item("x")]
    _, _, [alone, torn] = run(*stream[:1], delta("x", 1))
    export = responses_writer.write([Message("m", None, "r", "assistant", "partial", (alone, torn), 0, 0)])
    assert [item.get("type") for item in export.payload] == ["reasoning", None]  # its text is sent as far as it came
    export = responses_writer.write([Message("m", None, "r", "assistant", "partial", (alone,), 0, 0)])
    assert export.payload == []
    assert export.repairs


def test_what_follows_reasoning_that_can_not_be_sent_goes_without_its_id() -> None:
    plain = REASONING | {"encrypted_content": None}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    messages = read(
        HELLO, plain, text_item("x"), plain | {"id": "rs_2"}, CALL, OUTPUT, plain | {"id": "rs_3"}, search, text_item("y")
    )
    export = responses_writer.write(messages)
    assert validate_responses(export.payload) == []
    assert export.payload[1] == {"role": "assistant", "content": "x"}
    assert export.payload[2] == {name: value for name, value in CALL.items() if name != "id"}
    assert "web_search_call" not in json.dumps(export.payload)
    assert len(export.losses) == 6
    everything = responses_writer.write(messages, reasoning="any").payload
    assert [item.get("id") for item in everything] == [None, "rs_1", "msg_1", "rs_2", "fc_1", None, "rs_3", "ws_1", None]


def test_reasoning_of_several_parts_comes_back_in_its_parts() -> None:
    parts = [{"type": "summary_text", "text": text} for text in ("a", "b")]
    item = REASONING | {"summary": parts, "content": [{"type": "reasoning_text", "text": "c"}]}
    deltas = [delta(text, 0, "reasoning_summary_text", summary_index=at) for at, text in enumerate("ab")]
    _, _, [thought] = run(*deltas, delta("c", 0, "reasoning_text"), done(item), COMPLETED)
    assert thought.text == "a\n\nb\n\nc"
    [sent, _] = responses_writer.write(read(item, text_item("x"))).payload
    assert sent == item


def test_a_refusal_and_citations_are_kept_however_they_come() -> None:
    note = {"type": "url_citation", "url": "https://example.org", "title": "t", "start_index": 0, "end_index": 1}
    noted = {"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0, "annotation": note}
    item = MESSAGE | {
        "content": [{"type": "output_text", "text": "x", "annotations": [note, note]}, {"type": "refusal", "refusal": "no"}]
    }
    _, _, [said, refused] = run(delta("x"), noted, delta("n", 0, "refusal", content_index=1), done(item), COMPLETED)
    assert [json.loads(citation)["source"] for citation in said.citations] == [note, note]
    assert (refused.kind, refused.text) == ("refusal", "no")
    assert responses_writer.write(read(item)).payload == [item]


def test_a_request_for_approval_is_asked_and_its_answer_goes_back() -> None:
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "s"}
    _, bodies, [block] = run(done(asked), COMPLETED)
    assert [body for body in bodies if isinstance(body, ToolApproval)] == [ToolApproval("mcpr_1", "mcpr_1")]
    assert json.loads(block.approval or "") == {"approval_id": "mcpr_1", "approved": None}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert responses_writer.write(read(HELLO, asked, answer)).payload == [HELLO, asked, answer]
    lone = responses_writer.write(read(HELLO, answer))
    assert (lone.payload, len(lone.repairs)) == ([HELLO], 1)


def test_previews_states_and_padding_leave_nothing() -> None:
    item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"}
    names = ("in_progress", "generating", "partial_image", "completed")
    states = [
        {"type": f"response.image_generation_call.{name}", "output_index": 0, "partial_image_b64": "BBBB"} for name in names
    ]
    _, bodies, [block] = run(added(item | {"status": "in_progress", "result": None}), *states, done(item), COMPLETED)
    assert (block.kind, json.loads(block.opaque or "")["payload"]) == ("server_tool_call", item)
    assert "BBBB" not in str([to_event(body) for body in bodies])
    _, bodies, _ = run(delta("x", obfuscation="padding"))
    assert "padding" not in str([to_event(body) for body in bodies])


def test_commands_for_a_shell_come_in_lines_and_go_back_as_they_came() -> None:
    item = {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "call_1",
        "status": "completed",
        "action": {"commands": ["ls", "cat a"]},
    }
    kind = "response.shell_call_command"
    commands = [
        {"type": f"{kind}.added", "output_index": 0, "command_index": 0, "command": "ls"},
        {"type": f"{kind}.added", "output_index": 0, "command_index": 1, "command": ""},
        {"type": f"{kind}.delta", "output_index": 0, "command_index": 1, "delta": "cat a"},
    ]
    empty = item | {"status": "in_progress", "action": {"commands": []}}
    _, bodies, [block] = run(added(empty), *commands, done(item), COMPLETED)
    assert (block.kind, block.name, block.text, block.input) == (
        "tool_call",
        "shell",
        "ls\ncat a",
        {"action": item["action"]},
    )
    assert raw_events(bodies) == []


@pytest.mark.parametrize(
    "event",
    [
        '{"type":"response.hologram.delta",  "n": 1e400, "s": "\\ud83d"}', '{"type": "response.audio.delta", "delta": "AAAA"}',
        '{"type":"response.function_call_arguments.delta","output_index":7,"delta":"{"}', '{"type":"weather"}',
    ],
)  # fmt: skip
def test_what_nobody_knows_is_kept_as_it_came(event: str) -> None:
    _, bodies, [said] = run(delta("a"), event, delta("b"), COMPLETED)
    assert [text_of(body.event) for body in bodies if isinstance(body, RawEvent)] == [event]
    assert said.text == "ab"


def test_items_that_nobody_knows_go_back_byte_for_byte() -> None:
    item = '{"type": "hologram_item",  "n": 1.50, "s": "\\u00e9"}'
    _, _, [block] = run(f'{{"type":"response.output_item.done","output_index":0,"item":{item}}}', COMPLETED)
    assert (block.kind, block.opaque) == ("provider", f'{{"provider":"openai","payload":{item}}}')
    assert responses_writer.write([Message("m", None, "r", "assistant", "complete", (block,), 0, 0)]).payload == [
        json.loads(item)
    ]


def test_a_text_that_is_split_elsewhere_and_events_in_another_form_are_the_same() -> None:
    text = "a\ud83d\ude00 \u00e9\0 \ud83d"
    for cut in range(len(text) + 1):
        _, bodies, [said] = run(delta(text[:cut]), delta(text[cut:]), done(text_item(text)), COMPLETED)
        assert (said.text, raw_events(bodies)) == ("a\U0001f600 \u00e9\0 \ud83d", [])
    events = [json.dumps(event) for event in (CREATED, delta("\u00e9"), COMPLETED)]
    texts = [to_event(body) for body in feed("responses", events)[1]]
    assert [to_event(body) for body in feed("responses", [event.encode() for event in events])[1]] == texts
    assert [to_event(body) for body in feed("responses", map(json.loads, events))[1]] == texts


def test_memory_does_not_grow_with_the_stream() -> None:
    stream, _ = feed("responses", [CREATED, delta("x"), delta("x", 1, "reasoning_text")])
    tracemalloc.start()
    for _ in range(4000):
        stream.feed(delta("word " * 20))
        stream.feed(delta("hm ", 1, "reasoning_text"))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 20_000


@pytest.mark.parametrize(
    "chunk",
    [
        "", "{", "[]", "7", '{"a":1}', '{"type":7}', b'{"type":"\xff"}',
        '{"type":"response.completed","response":{"usage":7}}',
        '{"type":"response.completed","response":{"output":[7]}}',
        '{"type":"response.output_text.delta"}', '{"type":"response.output_text.delta","output_index":0,"delta":7}',
        '{"type":"response.output_text.done","output_index":0,"text":7}',
        '{"type":"response.output_item.done","output_index":0,"item":7}',
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused_and_the_stream_goes_on(chunk: str | bytes) -> None:
    stream, bodies = feed("responses", [CREATED, delta("a")])
    with pytest.raises(FormatError):
        stream.feed(chunk)
    bodies += [body for good in (delta("b"), COMPLETED) for body in stream.feed(good)]
    assert (messages_of(bodies)[0].text, stream.end().outcome) == ("ab", "completed")


def test_a_stream_whose_beginning_was_missed_is_taken_and_another_format_is_refused() -> None:
    stream, bodies = feed("responses", [delta("end"), COMPLETED])
    assert (messages_of(bodies)[0].text, stream.end().outcome) == ("end", "completed")
    for other in ('{"type":"message_start","message":{}}', '{"choices":[]}'):
        with pytest.raises(FormatError):
            feed("responses", [other])


def test_a_client_of_the_api_accepts_what_is_streamed_out() -> None:
    types: Any = pytest.importorskip("openai.types.responses")
    adapter: Any = pytest.importorskip("pydantic").TypeAdapter(types.ResponseStreamEvent)
    streaming: Any = pytest.importorskip("openai.lib.streaming.responses._responses")
    omit: Any = pytest.importorskip("openai").omit
    client = streaming.ResponseStreamState(input_tools=omit, text_format=omit)
    history = read(REASONING | {"summary": [{"type": "summary_text", "text": "hm"}]}, text_item("x"), CALL)
    events = write_stream(history)
    for event in events:
        client.handle_event(adapter.validate_python(event))
    assert [number for number, event in enumerate(events) if event["sequence_number"] != number] == []
    said = client._completed_response
    assert (said.output_text, [item.type for item in said.output]) == ("x", ["reasoning", "message", "function_call"])
    assert messages_of(feed("responses", events)[1])[0].blocks == history[0].blocks
    assert [body.text for body in feed("responses", events)[1] if isinstance(body, BlockDelta)] == ["hm", "x", "{}"]
