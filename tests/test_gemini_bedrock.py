"""Gemini and Bedrock: recorded streams against an independent reading, and what no recording has."""

from __future__ import annotations

import base64
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from projector.events import BlockDelta, Body, RawEvent, RunStarted
from projector.formats.bedrock.stream_reader import BedrockStream
from projector.formats.format import FormatError
from projector.formats.gemini.stream_reader import GeminiStream
from projector.json_text import is_json
from tests.shared_data import files, fold, naughty, needs_data, read_bytes
from tests.test_transport import frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector import Message
    from projector.formats.format import StreamFormat

Chunk = bytes | str | dict[str, Any]


def feed(stream: StreamFormat, chunks: Iterable[Chunk]) -> tuple[list[Message], list[Body]]:
    bodies = [body for chunk in chunks for body in stream.feed(chunk)]
    return fold([RunStarted("r", None, "submit", "r"), *bodies]).all_messages(), bodies


def gemini() -> GeminiStream:
    numbers = itertools.count(1)
    return GeminiStream("r", lambda: f"r.{next(numbers)}")


def bedrock() -> BedrockStream:
    numbers = itertools.count(1)
    return BedrockStream("r", lambda: f"r.{next(numbers)}")


def text_chunk(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **candidate}], "responseId": "q"}


@pytest.mark.parametrize("text", naughty())
def test_naughty_strings_come_through_text_names_ids_and_inputs(text: str) -> None:
    [message] = feed(
        gemini(),
        [
            text_chunk({"text": f"{text}."}),
            text_chunk({"functionCall": {"name": text, "id": text, "args": {text: [text]}}}, finishReason="STOP"),
        ],
    )[0]
    call = message.blocks[-1]
    assert (message.text, call.name, call.input) == (f"{text}.", text, {text: [text]})
    assert call.tool_call_id == (text or "r.1.call1")
    chunks: list[Chunk] = [
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": f"{text}."}}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": text, "name": text}}}},
        *(
            {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": piece}}}}
            for piece in json.dumps({text: text})
        ),
        {"messageStop": {"stopReason": "tool_use"}},
    ]
    [message] = feed(bedrock(), chunks)[0]
    call = message.blocks[-1]
    assert (message.text, call.name, call.tool_call_id, call.input) == (f"{text}.", text, text, {text: text})


@needs_data
def test_every_json_vector_is_kept_as_a_tools_input_and_marked_as_what_it_is() -> None:
    for path in files("jsontestsuite", "**/*.json"):
        try:
            given = read_bytes(path).decode()
        except UnicodeDecodeError:
            continue
        start = {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "f"}}}}
        delta = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": given}}}}
        [message] = feed(bedrock(), [start, delta, {"messageStop": {"stopReason": "tool_use"}}])[0]
        assert message.blocks[0].text == given
        assert message.blocks[0].parse == ("ok" if is_json(given) or not given else "bad")
        if is_json(given):
            whole = f'{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"f","args":{given}}}}}]}}}}]}}'
            [message] = feed(gemini(), [whole])[0]
            assert message.blocks[0].input_text == given.strip(" \t\r\n")


def test_a_part_with_a_signature_is_a_block_of_its_own_and_kept_byte_for_byte() -> None:
    part = '{"text":"b", "thoughtSignature":"c2ln\\/", "n": 1e400}'
    chunk = f'{{"candidates":[{{"content":{{"parts":[{{"text":"a"}},{part},{{"text":"c"}}]}},"finishReason":"STOP"}}]}}'
    [message] = feed(gemini(), [chunk])[0]
    kinds = [(block.kind, block.text, block.signature) for block in message.blocks]
    assert kinds == [("text", "a", None), ("provider", "", "c2ln/"), ("text", "c", None)]
    assert message.blocks[1].opaque == f'{{"provider":"google","payload":{part}}}'
    thought = '{"text":"hm","thought":true,"thoughtSignature":"c2ln"}'
    [message] = feed(gemini(), [text_chunk({"text": "x", "thought": True}), chunk.replace(part, thought)])[0]
    assert [(block.kind, block.text) for block in message.blocks] == [
        ("reasoning", "x"), ("text", "a"), ("reasoning", "hm"), ("text", "c"),
    ]  # fmt: skip
    assert message.blocks[2].opaque == f'{{"provider":"google","payload":{thought}}}'


def partial(path: str, **value: Any) -> dict[str, Any]:
    return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], "willContinue": True}}


def test_arguments_that_come_by_path_are_put_together_and_never_guessed() -> None:
    begin = text_chunk({"functionCall": {"name": "f", "willContinue": True}})
    grown = [
        partial("$.a[0].b", stringValue="x", willContinue=True), partial("$.a[0].b", stringValue="y"),
        partial("$.a[1]", numberValue=1.5), partial("$['k.e]y'].n", nullValue="NULL_VALUE"),
        partial('$["q\\"q"]', boolValue=True),
    ]  # fmt: skip
    [message] = feed(gemini(), [begin, *map(text_chunk, grown), text_chunk({"functionCall": {}}, finishReason="STOP")])[0]
    [call] = message.blocks
    assert (call.input, call.parse) == ({"a": [{"b": "xy"}, 1.5], "k.e]y": {"n": None}, 'q"q': True}, "ok")
    for wrong in ("$.a[7]", "$.a.b", "a", "", "$", "$.", "$[0]", "$.a[0]"):
        [message] = feed(
            gemini(), [begin, *map(text_chunk, grown), text_chunk(partial(wrong, stringValue="z"), finishReason="STOP")]
        )[0]
        assert (message.blocks[0].parse, message.blocks[0].input_text, message.blocks[0].input) == ("bad", None, None)
        assert '"z"' in message.blocks[0].fields["partialArgs"]


def test_a_call_that_breaks_off_keeps_what_came() -> None:
    begin = text_chunk({"functionCall": {"name": "f", "willContinue": True}})
    stream = gemini()
    [message] = feed(stream, [begin, text_chunk(partial("$.a", stringValue="x"))])[0]
    assert (message.status, message.blocks[0].sealed, stream.end().outcome) == ("partial", False, "incomplete")
    assert json.loads(message.blocks[0].fields["partialArgs"]) == [{"jsonPath": "$.a", "stringValue": "x"}]


def test_what_is_blocked_is_a_refusal_and_what_follows_a_finish_is_not_lost() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "no"}, "responseId": "q"}
    [message] = feed(gemini(), [blocked])[0]
    assert [(block.kind, block.text) for block in message.blocks] == [("refusal", "no")]
    again = [text_chunk({"text": text}, finishReason="STOP") for text in ("a", "b")]
    assert [message.text for message in feed(gemini(), again)[0]] == ["a", "b"]
    other = {"candidates": [{"index": 1, "content": {"parts": [{"text": "other"}]}}], "responseId": "q"}
    messages, bodies = feed(gemini(), [text_chunk({"text": "a"}), other])
    assert [message.text for message in messages] == ["a"]
    assert sum(isinstance(body, RawEvent) for body in bodies) == 1


def test_an_error_in_the_stream_fails_the_run_and_keeps_what_came() -> None:
    stream = gemini()
    [message] = feed(stream, [text_chunk({"text": "so far"}), '{"error": {"code": 503, "x": 1e400}}'])[0]
    assert (message.text, message.status) == ("so far", "partial")
    assert (stream.end().outcome, stream.end().error) == ("failed", '{"code": 503, "x": 1e400}')
    other = bedrock()
    delta = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "so far"}}}
    [message] = feed(other, [delta, {"throttlingException": {"message": "slow"}}])[0]
    assert (message.text, message.status, other.end().outcome) == ("so far", "partial", "failed")
    assert json.loads(other.end().error or "") == {"type": "throttlingException", "message": "slow"}


def test_what_bedrock_hides_goes_back_byte_for_byte_and_signatures_name_their_maker() -> None:
    hidden = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"redactedContent": b"\0\1"}}}}
    thought = [{"text": "hm"}, {"signature": "c2"}, {"signature": "ln"}]
    deltas = [{"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"reasoningContent": said}}} for said in thought]
    [message] = feed(
        bedrock(), [{"messageStart": {"role": "assistant"}}, hidden, *deltas, {"messageStop": {"stopReason": "x"}}]
    )[0]
    first, second = message.blocks
    assert json.loads(first.opaque or "") == {
        "provider": "bedrock", "payload": {"reasoningContent": {"redactedContent": base64.b64encode(b"\0\1").decode()}},
    }  # fmt: skip
    assert (second.kind, second.text, second.signature) == ("reasoning", "hm", "c2ln")
    assert json.loads(second.opaque or "")["provider"] == "bedrock"


def test_what_nobody_knows_is_kept_and_changes_no_message() -> None:
    _, bodies = feed(gemini(), [text_chunk({"text": "a"}), '{"weather": "rain"}', text_chunk({"text": "b"})])
    assert sum(isinstance(body, RawEvent) for body in bodies) == 1
    start = {"messageStart": {"role": "assistant"}}
    messages, bodies = feed(
        bedrock(), [start, '{"weather": "rain"}', {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"x": 1}}}]
    )
    assert sum(isinstance(body, RawEvent) for body in bodies) == 1
    assert messages[0].blocks[0].kind == "provider"
    assert not [body for body in bodies if isinstance(body, BlockDelta)]


@pytest.mark.parametrize(
    "chunk",
    [
        "", "{", "[]", "null", "7", '{"a":1}', b"\xff\xfe{}", '{"candidates":7}', '{"candidates":[7]}',
        '{"candidates":[{"content":7}]}',
        '{"candidates":[{"content":{"parts":[7]}}]}', '{"candidates":[{"content":{"parts":[{"text":7}]}}]}',
        '{"candidates":[{"content":{"parts":[{"functionCall":7}]}}]}', '{"candidates":[],"usageMetadata":[]}',
    ],
)  # fmt: skip
def test_what_is_no_gemini_response_is_refused(chunk: str | bytes) -> None:
    with pytest.raises(FormatError, match=r"was expected|lacks what it needs"):
        feed(gemini(), [chunk])


@pytest.mark.parametrize(
    "chunk",
    [
        "", "{", "[]", "null", '{"a":1}', b'{"\xff"}', '{"messageStart":7}', '{"contentBlockDelta":{}}', '{"output":{}}',
        '{"contentBlockDelta":{"contentBlockIndex":0,"delta":{}}}',
        '{"contentBlockDelta":{"contentBlockIndex":"x","delta":{"text":""}}}',
        '{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":7}}}',
        b'data: {"messageStart":{}}\n\n', frame(b'{"a":1}', event_type="x"),
    ],
)  # fmt: skip
def test_what_is_no_bedrock_event_is_refused(chunk: str | bytes) -> None:
    with pytest.raises(FormatError, match=r"was expected|lacks what it needs|checksum"):
        feed(bedrock(), [chunk])
