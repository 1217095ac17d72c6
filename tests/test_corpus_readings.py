"""The reading of recordings that owes the project nothing: how it unwraps, what it finds, and that it tells what is missing."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from ledger.records import RunInfo
from projector import Block, Message
from projector.run_draft import Usage
from tests.corpus_answers import Answer, Call
from tests.corpus_claims import claim, is_claimed
from tests.corpus_exchanges import Sent, events_of, exchanges_of
from tests.corpus_logs import missing_of_log, said_in
from tests.corpus_readings import Given, Stored, missing, read_answers

if TYPE_CHECKING:
    from pathlib import Path

BODY = {"id": "c1", "model": "m-1", "choices": [{"index": 0, "message": {"content": "Tails."}, "finish_reason": "stop"}]}
ANSWER = Answer("Tails.", (Call("t", "toss", {"n": 1}),), ({"url": "u"},), (3, 2), "stop", "m-1", "c1")
CALL = Block("tool_call", 1, '{"n": 1}', sealed=True, name="toss", tool_call_id="t", parse="ok")
TEXT = Block("text", 0, "Tails.", sealed=True, citations=('{"kind":"x","source":{"url":"u"}}',))
MESSAGE = Message("r.1", None, "r", "assistant", "complete", (TEXT, CALL), 0, 1, provider_ref="c1")
RUN = RunInfo("c", "r", "committed", None, "submit", 1, 0, "m-1", finish_reason="stop", usage={"c1": Usage(3, 2)})


def frame(name: str, body: Any) -> bytes:
    header = bytes([11]) + b":event-type" + b"\7" + struct.pack(">H", len(name)) + name.encode()
    payload = json.dumps(body).encode()
    return struct.pack(">III", 16 + len(header) + len(payload), len(header), 0) + header + payload + b"crc."


def lost(answer: Answer = ANSWER, message: Message = MESSAGE, run: RunInfo = RUN) -> list[str]:
    return list(missing([Given("chat", "here", answer)], Stored([message], [run], [])))


@pytest.mark.parametrize("body", [
    {"string": json.dumps(BODY)}, {"string": gzip.compress(json.dumps(BODY).encode())}, json.dumps(BODY),
    {"base64_string": base64.b64encode(json.dumps(BODY).encode()).decode()},
])  # fmt: skip
@pytest.mark.parametrize("is_parallel", [True, False])
def test_a_body_is_found_in_every_wrapping(tmp_path: Path, body: Any, is_parallel: bool) -> None:  # noqa: FBT001 - a case
    yaml = pytest.importorskip("yaml")
    asked = {"uri": "https://host/v1/chat/completions", "method": "POST", "body": '{"messages": []}'}
    said = {"status": {"code": 200}, "body": body}
    document = (
        {"requests": [asked], "responses": [said]} if is_parallel else {"interactions": [{"request": asked, "response": said}]}
    )
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(document))
    [sent] = exchanges_of(tmp_path / "a.yaml")
    assert (sent.status, sent.request, sent.answer, claim(sent)) == (200, {"messages": []}, [BODY], "chat")


def test_frames_are_read_as_far_as_they_are_whole_and_a_chunk_gives_what_is_inside() -> None:
    inside = {"bytes": base64.b64encode(b'{"type": "ping"}').decode()}
    data = frame("messageStop", {"stopReason": "x"}) + frame("chunk", inside)
    assert events_of(data + frame("metadata", {})[:-1]) == ([{"messageStop": {"stopReason": "x"}}, {"type": "ping"}], True)


def test_server_sent_events_lines_and_a_document_are_told_apart() -> None:
    assert events_of(b": note\r\ndata: [1,\r\ndata: 2]\r\n\r\ndata: [DONE]\r\n\r\n") == ([[1, 2]], True)
    assert events_of(b'{"a": 1}\n{"a"') == ([{"a": 1}], True)
    assert events_of(b'{"a":\n1}') == ([{"a": 1}], False)


@pytest.mark.parametrize(("address", "request_", "wanted"), [
    ("https://h/v1/chat/completions?x=1#stream", {"messages": []}, "chat"),
    ("https://h/model/anthropic.claude-v2%3A1/invoke", {"prompt": "hi"}, "anthropic.claude-v2:1 on Bedrock's invoke"),
    ("https://h/model/us.anthropic.claude-3/invoke-with-response-stream", {"messages": []}, "anthropic"),
    ("https://h/model/amazon.titan-text/invoke", {"inputText": "hi"}, "amazon.titan-text on Bedrock's invoke"),
    ("https://h/v1/messages/count_tokens", {"messages": []}, "a count of tokens"),
    ("https://h/v1/completions", {"prompt": "hi"}, "completions of old"),
    ("https://h/v1/weather", None, "an address that is no model's (/v1/weather)"),
])  # fmt: skip
def test_an_exchange_is_claimed_by_its_address_and_its_keys(address: str, request_: Any, wanted: str) -> None:
    found = claim(Sent("here", address, 200, request_, [], is_stream=False))
    assert found == wanted or (address.endswith("stream") and "invoke" in found)  # which the registry may not take yet
    assert is_claimed(found) == (found in ("chat", "anthropic"))


def test_what_is_there_is_not_missing() -> None:
    assert lost() == []


@pytest.mark.parametrize(("message", "run", "told"), [
    (replace(MESSAGE, blocks=(replace(TEXT, text="Heads."), CALL)), RUN, "its answer 'Tails.' with calls of toss is nowhere"),
    (replace(MESSAGE, blocks=(TEXT, replace(CALL, tool_call_id="u"))), RUN, "its answer 'Tails.' with calls of toss"),
    (replace(MESSAGE, blocks=(TEXT, replace(CALL, text='{"n": 2}'))), RUN, "its answer 'Tails.' with calls of toss"),
    (replace(MESSAGE, blocks=(replace(TEXT, citations=()), CALL)), RUN, "1 of 1 citations are nowhere"),
    (replace(MESSAGE, provider_ref=None), replace(RUN, usage={"x": Usage(3, 2)}), "the id c1 is nowhere"),
    (MESSAGE, replace(RUN, usage={"c1": Usage(3, 1)}), "the usage (3, 2) is nowhere"),
    (MESSAGE, replace(RUN, finish_reason=None), "the finish reason stop is nowhere"),
    (MESSAGE, replace(RUN, model=None), "the model m-1 is nowhere"),
])  # fmt: skip
def test_whatever_is_missing_is_told(message: Message, run: RunInfo, told: str) -> None:
    assert [told in what for what in lost(message=message, run=run)] == [True]


def test_an_answer_may_be_several_messages_and_a_usage_counts_once() -> None:
    second = replace(MESSAGE, id="r.2", parent_id="r.1", blocks=(CALL,))
    stored = Stored([replace(MESSAGE, blocks=(TEXT,)), second], [RUN], [])
    assert list(missing([Given("chat", "here", ANSWER)], stored)) == []
    again = [Given("chat", place, ANSWER._replace(id=place)) for place in ("c1", "c2")]
    assert any("c2: the usage (3, 2) is nowhere" in what for what in missing(again, stored))


def test_a_second_choice_is_kept_or_named_and_an_error_is_told() -> None:
    other = ANSWER._replace(text="Heads.", choice=1, usage=None)
    assert lost(other) == ["here, choice 1: its answer 'Heads.' with calls of toss is nowhere"]
    named = Stored([MESSAGE], [RUN], ["1 other choices"])
    assert list(missing([Given("chat", "here", other)], named)) == []
    assert lost(Answer(is_error=True, is_whole=False)) == ["here: the error is not told"]
    assert lost(Answer(is_error=True, is_whole=False), run=replace(RUN, outcome="failed")) == []


@pytest.mark.parametrize(("name", "values", "wanted"), [
    ("anthropic", [
        {"type": "message_start", "message": {"id": "m", "model": "x", "content": [], "usage": {"input_tokens": 2}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": None, "output_tokens": 1}},
    ], Answer("Hi", (), (), (2, 1), "end_turn", "x", "m")),
    ("gemini", [{"candidates": [{"content": {"parts": [{"text": "Hi"}, {"text": "?", "thought": True}]}, "finishReason": 1}]}],
     Answer("Hi", finish="STOP")),
    ("bedrock", [{"output": {"message": {"content": [{"citationsContent": {"content": [{"text": "Hi"}], "citations": [1]}}]}},
                  "stopReason": "end_turn", "usage": {"inputTokens": 2, "outputTokens": 1, "cacheReadInputTokens": 4}}],
     Answer("Hi", (), (1,), (6, 1), "end_turn")),
    ("responses", [
        {"type": "response.created", "response": {"id": "r", "model": "x"}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "H"},
        {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hi"},
    ], Answer("Hi", model="x", id="r", is_whole=False)),
    ("chat", [
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{"}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}, "finish_reason": "tool_calls"}]},
    ], Answer("", (Call("a", "f", {}), Call("b", "g", {})), finish="tool_calls")),
    ("ollama", [
        {"message": {"content": "H"}},
        {"message": {"content": "i"}, "done": True, "done_reason": "stop", "eval_count": 1},
    ], Answer("Hi", (), (), (None, 1), "stop")),
    ("cohere", [
        {"type": "message-start", "id": "x"},
        {"type": "content-delta", "delta": {"message": {"content": {"text": "Hi"}}}},
    ], Answer("Hi", id="x", is_whole=False)),
    ("gemini-interactions", [
        {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}},
    ], Answer("Hi", is_whole=False)),
])  # fmt: skip
def test_an_answer_is_read_as_its_provider_says(name: str, values: list[Any], wanted: Answer) -> None:
    assert read_answers(name, values) == [wanted]


def test_texts_calls_and_usage_of_logs_are_looked_for(tmp_path: Path) -> None:
    block = {"type": "tool_use", "id": "t", "name": "toss", "input": {"n": 1}}
    said = {
        "id": "c1",
        "role": "assistant",
        "content": [{"type": "text", "text": "Tails."}, block],
        "usage": {"output_tokens": 2},
    }
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"type": "assistant", "message": said}) + "\n" + json.dumps({"type": "summary"}) + "\n")
    used = replace(RUN, usage={"c1": Usage(0, 2)})
    assert list(missing_of_log(said_in(path), Stored([MESSAGE], [used], []))) == []
    assert list(missing_of_log(said_in(path), Stored([], [], []))) == [
        "the text 'Tails.' is nowhere", "the call t of toss is nowhere", "the usage (0, 2) of c1 is nowhere",
    ]  # fmt: skip
