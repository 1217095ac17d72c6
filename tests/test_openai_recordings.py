"""Every recorded Chat Completions and Responses stream comes back as it was recorded, cut anywhere, in and out."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from projector.events import RunUsage, to_event
from projector.formats import FormatError
from projector.formats.chat import reader as chat
from projector.formats.chat import stream_writer as chat_chunks
from projector.formats.chat import writer as chat_writer
from projector.formats.responses import reader as responses
from projector.formats.responses import stream_writer as responses_events
from projector.formats.responses import writer as responses_writer
from projector.formats.validators import validate_chat, validate_responses
from projector.json_text import is_json
from projector.message import Block, Message
from projector.validation import validate
from tests import recordings as anthropic
from tests.openai_answers import answer_of, chat_usage, read_chat, read_responses, responses_usage
from tests.openai_recordings import (
    WHY_NONE,
    Exchange,
    Recording,
    begin,
    exchanges,
    feed,
    fold,
    imported,
    messages_of,
    recordings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projector.events import Body
    from projector.formats.format import Export

RECORDINGS = [*recordings("chat"), *recordings("responses")]
pytestmark = pytest.mark.skipif(not RECORDINGS, reason=WHY_NONE)
each = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
each_exchange = pytest.mark.parametrize("exchange", exchanges(), ids=lambda each: f"{each.cassette}-{len(each.request)}")
STREAMS_OUT = {"chat": chat_chunks.write_stream, "responses": responses_events.write_stream}
WRITERS: dict[str, tuple[Callable[[Sequence[Message]], Export], Callable[[Any], list[str]]]] = {
    "chat": (chat_writer.write, validate_chat),
    "responses": (responses_writer.write, validate_responses),
}
USER = Message("u", None, "u", "user", "complete", (Block("text", text="Go on.", sealed=True),), 0, 0)


def whole(recording: Recording) -> list[str]:
    """The chunks that are JSON: a few were published broken."""
    return [chunk for chunk in recording.chunks if is_json(chunk)]


@each
def test_a_recording_says_what_its_provider_says(recording: Recording) -> None:
    chunks = whole(recording)
    stream, bodies = feed(recording.format, recording.chunks if recording.chunks == chunks else chunks)
    read = read_chat if recording.format == "chat" else read_responses
    answers = read(chunks)
    found = [answer_of(message) for message in messages_of(bodies)]
    assert [answer for answer in found if any(answer)] == answers
    usage = {body.request_id: (body.input, body.output) for body in bodies if isinstance(body, RunUsage)}
    wanted = (chat_usage if recording.format == "chat" else responses_usage)(chunks)
    assert (list(usage.values())[-1] if usage else None) == wanted
    is_failed = any("error" in json.loads(chunk) and json.loads(chunk)["error"] for chunk in chunks)
    is_broken_off = recording.format == "responses" and not recording.is_whole and "response.completed" not in "".join(chunks)
    assert stream.end().outcome == ("failed" if is_failed else "incomplete" if is_broken_off else "completed")


@each
def test_a_stream_that_is_cut_anywhere_leaves_a_prefix_that_exports_valid(recording: Recording) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chunks = whole(recording)
    full = messages_of(feed(recording.format, chunks)[1])
    cuts = set(range(len(chunks))) if len(chunks) <= 30 else set(random.Random(seed).sample(range(len(chunks)), 20))
    stream, _ = feed(recording.format, [])
    state = begin()
    for cut, chunk in enumerate(chunks):
        for body in stream.feed(chunk):
            state = fold(state, to_event(body))
        if cut in cuts:
            messages = state.all_messages()
            assert not list(state.anomalies)
            assert is_prefix(messages, full)
            for write, check in WRITERS.values():
                assert check(write([USER, *messages]).payload) == []


def is_prefix(messages: Sequence[Message], full: Sequence[Message]) -> bool:
    for message, complete in zip(messages, full, strict=False):
        for block, whole_block in zip(message.blocks, complete.blocks, strict=False):
            if block.kind != whole_block.kind or not whole_block.text.startswith(block.text):
                return False
            if block.sealed and block != whole_block:
                return False
    return len(messages) <= len(full)


@each
def test_what_is_streamed_out_comes_back_the_same(recording: Recording) -> None:
    messages = messages_of(feed(recording.format, whole(recording))[1])
    streamed = STREAMS_OUT[recording.format](messages)
    again = messages_of(feed(recording.format, streamed)[1])
    if all(message.provider_ref for message in messages):  # one recording has lost its beginning
        assert list(map(values, again)) == list(map(values, messages))
    assert list(map(answer_of, again)) == list(map(answer_of, messages))


def values(message: Message) -> Any:
    """A message without what its place gives it, JSON text as values."""
    blocks = [
        [block.kind, block.number, block.text, block.sealed, block.name, block.tool_call_id, block.media_type,
         block.provider_ref, block.fields, block.signature, block.parse, *map(_value, (block.opaque, block.input_text)),
         *map(_value, block.citations)]
        for block in message.blocks
    ]  # fmt: skip
    return message.role, message.status, message.provider_ref, {n: _value(t) for n, t in message.metadata_text.items()}, blocks


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@each_exchange
def test_a_recorded_history_comes_out_as_it_went_in(exchange: Exchange) -> None:
    given: Any = exchange.request.get("messages", exchange.request.get("input"))
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if "messages" in exchange.request:
        [history] = chat.read(json.dumps(exchange.request))
        export = chat_writer.write(imported(history), reasoning=reasoning_of(exchange))
    else:
        if instructions := exchange.request.get("instructions"):
            items = [{"role": "system", "content": instructions}, *items]
        [history] = responses.read(json.dumps(exchange.request))
        export = responses_writer.write(imported(history), reasoning="any")
    if export.repairs:  # the server has the call, in a conversation that it keeps
        assert all("without a call" in repair.what for repair in export.repairs)
        assert {"conversation", "previous_response_id"} & exchange.request.keys()
        return
    assert list(map(normal, export.payload)) == list(map(normal, items))
    assert export.losses == ()


def reasoning_of(exchange: Exchange) -> Any:
    """The field in which the recorded program has sent reasoning back."""
    names = {name for message in exchange.request["messages"] for name in message}
    found = next((name for name in ("reasoning_details", "reasoning_content", "reasoning") if name in names), None)
    return found or ("reasoning_details" if "openrouter" in exchange.uri else None)


def normal(item: dict[str, Any]) -> dict[str, Any]:
    """Nothing said is as good as absent, and one plain text as a list of one."""
    kept = {name: value for name, value in item.items() if value not in (None, "", [])}
    kept = {name: value for name, value in kept.items() if (name, value) not in (("status", "completed"), ("type", "message"))}
    content = kept.get("content")
    if isinstance(content, list):
        parts = [{name: value for name, value in part.items() if value not in (None, [])} for part in content]
        kept["content"] = parts[0]["text"] if [set(part) for part in parts] == [{"type", "text"}] else parts
    return kept


def test_what_an_agent_sent_back_is_what_we_would_have_sent() -> None:
    """The recorded loops are the answer to how a stream goes back: with the same calls, texts and encrypted reasoning."""
    checked = 0
    known = exchanges()
    for before, after in itertools.pairwise(known):
        if before.cassette != after.cassette or before.answer is None or before.answer.format != "responses":
            continue
        sent = after.request.get("input")
        if not isinstance(sent, list) or "responses" not in after.uri:
            continue
        messages = messages_of(feed("responses", whole(before.answer))[1])
        ours = [item for item in responses_writer.write([USER, *messages, *answers_to(messages)]).payload if item.get("type")]
        theirs = {item["id"]: item for item in sent if item.get("id")}
        for item in ours:
            other = theirs.get(item.get("id"))
            if other is None or item["type"] not in ("message", "reasoning", "function_call"):  # that program rewrites the rest
                continue
            if item.get("call_id"):  # that program makes ids that are used again unique with those of responses
                assert other["call_id"].rpartition(":")[2] == item["call_id"]
                other = other | {"call_id": item["call_id"]}
            assert {name: value for name, value in normal(item).items() if name in other} == {
                name: value for name, value in normal(other).items() if name in item
            }
            checked += 1
    assert checked >= 20


def answers_to(messages: Sequence[Message]) -> list[Message]:
    """A result for each call, so that nothing has to be mended."""
    calls = [block for message in messages for block in message.blocks if block.kind == "tool_call"]
    parts = '[{"kind":"text","text":"ok"}]'
    results = [Block("tool_result", sealed=True, tool_call_id=call.tool_call_id, status="ok", parts=parts) for call in calls]
    return [Message(f"t{n}", None, "t", "tool", "complete", (block,), 0, 0) for n, block in enumerate(results)]


@pytest.mark.parametrize("path", anthropic.STREAMS, ids=lambda path: path.name.partition(".chunks")[0])
def test_what_another_provider_has_said_exports_valid(path: Any) -> None:
    from projector.formats.anthropic.stream_reader import AnthropicStream  # noqa: PLC0415

    stream = AnthropicStream("r", iter([f"r.{number}" for number in range(1, 99)]).__next__)
    messages = messages_of([body for chunk in anthropic.chunks_of(path) for body in stream.feed(chunk)])
    for write, check in WRITERS.values():
        export = write([USER, *messages])
        assert check(export.payload) == []
        assert '"signature"' not in json.dumps(export.payload)


def test_lines_that_are_no_json_are_refused_and_the_rest_is_kept() -> None:
    [recording] = [recording for recording in RECORDINGS if "parallel-tool-call-wrapper.1.chunks" in recording.name]
    stream, _ = feed("responses", [])
    bodies: list[Body] = []
    refused = 0
    for chunk in recording.chunks:
        try:
            bodies += stream.feed(chunk)
        except FormatError:
            refused += 1
    [message] = messages_of(bodies)
    assert (refused, message.blocks[0].name, message.blocks[0].parse) == (2, "parallel", "ok")


@pytest.mark.parametrize(
    "broken",
    [
        {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": {"type": 7}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}}, {"index": "second", "delta": {}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "message": [1]}]},
        {"choices": [{"index": 0, "delta": {"audio": {"id": "a", "data": True}}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "message": {"content": 7}}]},
    ],
)
def test_a_chunk_that_is_refused_leaves_nothing(broken: dict[str, Any]) -> None:
    stream, bodies = feed("chat", [])
    with pytest.raises(FormatError):
        stream.feed(json.dumps({"id": "a"} | broken))
    for said, stop in (("hello", None), (" you", "stop")):
        bodies += stream.feed({"id": "a", "choices": [{"index": 0, "delta": {"content": said}, "finish_reason": stop}]})
    [message] = messages_of(bodies)
    assert message.text == "hello you"


JUNK: list[Any] = [None, 0, -1, 1.5, True, "", "x", [], {}, [None], {"a": 1}, "\0", [[]], {"type": 7}, "a" * 300]


@pytest.mark.parametrize("format_name", ["chat", "responses"])
def test_whatever_a_broken_server_sends_is_taken_or_refused_and_exports_valid(format_name: str) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for recording in chance.sample(recordings(format_name), 12):
        stream, bodies = feed(format_name, [])
        for chunk in whole(recording)[:60]:
            value = json.loads(chunk)
            with suppress(FormatError):
                bodies += stream.feed(json.dumps(spoil(value, chance) if chance.random() < 0.3 else value))
        validate([to_event(body) for body in bodies])
        messages = messages_of(bodies)
        for write, check in WRITERS.values():
            assert check(write([USER, *messages]).payload) == []


def spoil(value: Any, chance: random.Random) -> Any:
    """The value with a part of it gone or replaced."""
    if chance.random() < 0.04:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        return {name: spoil(inner, chance) for name, inner in value.items() if chance.random() > 0.02}
    return [spoil(inner, chance) for inner in value if chance.random() > 0.02] if isinstance(value, list) else value
