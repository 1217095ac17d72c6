"""The one door of `feed`: a fault of a chunk is told as one, a fault of ours comes out as what it is."""

from __future__ import annotations

import copy
import itertools
import json
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector.formats.format import FormatError
from projector.formats.recordings.transport import read_all
from projector.formats.registry import STREAMS
from projector.formats.shared.response import ResponseDraft
from tests.corpus_formats import load
from tests.shared_data import files, needs_data, read_bytes
from tests.small_streams import STARTS, Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from projector import events as ev
    from projector.formats.format import StreamEnd, StreamFormat

RECORDED: Final = {
    "agui": ("agui-benchmark", "**/*.jsonl*"),
    "anthropic": ("vercel-ai", "anthropic/*.chunks.txt*"),
    "bedrock": ("vercel-ai", "amazon-bedrock/*.chunks.txt*"),
    "chat": ("vercel-ai", "deepseek/**/*.chunks.txt*"),
    "gemini": ("vercel-ai", "google/*.chunks.txt*"),
    "gemini-interactions": ("vercel-ai", "google/interactions/*.chunks.txt*"),
    "responses": ("vercel-ai", "openai/responses/*.chunks.txt*"),
}
ODD: Final[list[Any]] = [None, 5, -1, 1.5, 1e300, 10**30, True, "x", "", "\ud800", [], [5], [None], [[]], [{}], {}, {"type": 5}]
SEED: Final = random.SystemRandom().randrange(10**6)


def make(name: str) -> StreamFormat:
    numbers = itertools.count(1)
    return STREAMS[name]("r", lambda: f"r.{next(numbers)}")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a chunk: what it is in, and its name or number there."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def mutate(chunk: Chunk, rng: random.Random) -> Chunk:
    """A chunk with a field that is missing, or something else than it was."""
    broken = copy.deepcopy(chunk)
    inside, key = rng.choice(list(places(broken)))
    if rng.random() < 0.3:
        del inside[key]
    else:
        inside[key] = copy.deepcopy(rng.choice(ODD))
    return broken


def feed_broken(name: str, chunks: list[Chunk], rng: random.Random) -> tuple[int, int]:
    """Feeds a stream of which some chunks are broken; how many were, and how many of them were refused."""
    stream, broken, refused = make(name), 0, 0
    for chunk in chunks:
        given = chunk
        if chunk and rng.random() < 0.4:
            given, broken = mutate(chunk, rng), broken + 1
        try:
            stream.feed(json.dumps(given, ensure_ascii=rng.random() < 0.5) if rng.random() < 0.5 else given)
        except FormatError:
            refused += 1
        stream.end()
    return broken, refused


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_small_stream_of_everything_is_read(name: str) -> None:
    stream = make(name)
    kinds = [type(body).__name__ for chunk in STARTS[name] for body in stream.feed(chunk)]
    assert {"MessageStarted", "BlockStarted", "BlockDelta", "BlockSealed", "MessageFinished"} <= set(kinds)
    assert stream.end().outcome == "completed"


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_broken_chunk_is_read_or_refused_and_nothing_else(name: str) -> None:
    print("seed", SEED)
    rng = random.Random(f"{SEED} {name}")
    told = [feed_broken(name, STARTS[name], rng) for _ in range(150)]
    assert sum(broken for broken, _ in told) > 300
    assert sum(refused for _, refused in told) > 50


def feed_all(name: str, chunks: Iterable[Chunk]) -> tuple[tuple[list[ev.Body], StreamEnd], list[Chunk]]:
    """What a stream becomes and how it ends, and which of its chunks were refused; all its messages have one name."""
    stream = STREAMS[name]("r", lambda: "m")
    bodies: list[ev.Body] = []
    refused: list[Chunk] = []
    for chunk in chunks:
        try:
            bodies += stream.feed(chunk)
        except FormatError:
            refused.append(chunk)
    return (bodies, stream.end()), refused


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_chunk_that_is_refused_leaves_nothing(name: str) -> None:
    """What follows it becomes what it had become without that chunk."""
    print("seed", SEED)
    rng, chunks, seen = random.Random(f"{SEED} refused {name}"), STARTS[name], 0
    while seen < 60:
        at = rng.randrange(len(chunks))
        broken = mutate(chunks[at], rng) if chunks[at] else {}
        told, refused = feed_all(name, [*chunks[:at], broken, *chunks[at + 1 :]])
        if not any(chunk is broken for chunk in refused):
            continue
        told_without, others = feed_all(name, [*chunks[:at], *chunks[at + 1 :]])
        assert (broken, told, len(refused)) == (broken, told_without, len(others) + 1)
        seen += 1


REFUSED: Final[dict[str, tuple[str, list[Chunk], Chunk]]] = {
    "the end of an answer": (
        "ollama",
        [{"message": {"thinking": "a"}, "done": False}, {"message": {"content": "b"}, "done": True, "done_reason": "stop"}],
        {"message": {"content": "b"}, "done": True, "done_reason": "stop", "eval_count": "many"},
    ),
    "an answer once more": (
        "cohere",
        [
            {"event_type": "stream-start", "generation_id": "g"}, {"event_type": "text-generation", "text": "So"},
            {"event_type": "stream-end", "finish_reason": "COMPLETE", "response": {"text": "So it is"}},
        ],
        {"event_type": "stream-end", "finish_reason": "COMPLETE", "response": {"text": "So it is", "meta": 5}},
    ),
    "a count that is none": (
        "anthropic",
        [
            {"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": {"output_tokens": 1}}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
        ],
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5, "input_tokens": "many"}},
    ),
    "a response that ends": (
        "gemini",
        [
            {"candidates": [{"content": {"parts": [{"text": "a"}]}}]},
            {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 7}},
        ],
        {"candidates": [{"content": {"parts": [{"text": 5}]}}], "usageMetadata": {"promptTokenCount": 7}},
    ),
    "an interaction that ends": (
        "gemini-interactions",
        [
            {"event_type": "step.start", "index": 0, "step": {"type": "thought"}},
            {"event_type": "interaction.completed", "interaction": {"status": "completed", "model": "m"}},
        ],
        {
            "event_type": "interaction.completed",
            "interaction": {"status": "completed", "model": "m", "usage": {"total_input_tokens": "many"}},
        },
    ),
    "an event that comes again whole": (
        "responses",
        [
            {"type": "response.created", "response": {"id": "p"}, "sequence_number": 0},
            {"type": "response.output_text.delta", "item_id": "i", "delta": "a", "sequence_number": 1},
            {"type": "response.output_text.delta", "item_id": "i", "delta": "b", "sequence_number": 2},
        ],
        {"type": "response.output_text.delta", "item_id": "i", "sequence_number": 2},
    ),
    "an event between pieces of a call": (
        "agui",
        [
            {"type": "TOOL_CALL_CHUNK", "toolCallId": "k", "toolCallName": "look", "delta": "{"},
            {"type": "TOOL_CALL_CHUNK", "toolCallId": "k", "delta": "}"},
        ],
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": 5},
    ),
    "a snapshot of another text": (
        "agui",
        [
            {"type": "TEXT_MESSAGE_START", "messageId": "m"}, {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a"},
            {"type": "TEXT_MESSAGE_END", "messageId": "m"},
            {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "content": "b"}]},
        ],
        {"type": "MESSAGES_SNAPSHOT", "messages": [
            {"id": "m", "role": "assistant", "content": "b"},
            {"id": "n", "role": "assistant", "content": "c", "toolCalls": [{"id": "k", "function": {"name": 5}}]},
        ]},
    ),
    "a snapshot between pieces of a call": (
        "agui",
        [
            {"type": "TOOL_CALL_CHUNK", "toolCallId": "k", "toolCallName": "look", "delta": "{"},
            {"type": "TOOL_CALL_CHUNK", "toolCallId": "k", "delta": "}"},
        ],
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "n", "role": "assistant", "content": 5}]},
    ),
}  # fmt: skip
"""What is refused ahead of the last chunk."""


@pytest.mark.parametrize("what", REFUSED)
def test_a_chunk_that_is_refused_between_others_leaves_nothing(what: str) -> None:
    name, chunks, broken = REFUSED[what]
    told, refused = feed_all(name, [*chunks[:-1], broken, chunks[-1]])
    assert refused == [broken]
    assert told == feed_all(name, chunks)[0]


@needs_data
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_chunk_of_a_recording_that_is_refused_leaves_nothing(name: str) -> None:
    """Wherever it comes, and whether what it would have been comes behind it or not."""
    print("seed", SEED)
    rng, seen = random.Random(f"{SEED} recorded {name}"), 0
    recordings = [list(read_all([read_bytes(path)])) for path in files(*RECORDED[name])[:20]]
    while seen < 40:
        payloads = rng.choice(recordings)
        chunks = [value for payload in payloads[:60] if isinstance(value := load(payload.data), dict) and value]
        at = rng.randrange(len(chunks))
        broken, rest = mutate(rng.choice([chunks[at], rng.choice(chunks)]), rng), chunks[at + rng.randrange(2) :]
        told, refused = feed_all(name, [*chunks[:at], broken, *rest])
        if any(chunk is broken for chunk in refused):
            assert (broken, told) == (broken, feed_all(name, [*chunks[:at], *rest])[0])
            seen += 1


@needs_data
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_broken_chunk_of_a_recording_is_read_or_refused(name: str) -> None:
    print("seed", SEED)
    rng = random.Random(f"{SEED} {name}")
    recordings = [list(read_all([read_bytes(path)])) for path in files(*RECORDED[name])]
    broken = 0
    for payloads in itertools.cycle(recordings):
        values = [value for payload in payloads[:60] if isinstance(value := load(payload.data), dict)]
        broken += feed_broken(name, values, rng)[0]
        if broken > 500:
            break


@pytest.mark.parametrize("fault", [KeyError("ours"), AttributeError("ours"), TypeError("ours"), ValueError("ours")])
@pytest.mark.parametrize("verb", ["start", "grow"])
@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_fault_of_ours_is_no_fault_of_the_chunk(
    name: str, verb: str, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(ResponseDraft, verb, fail)
    stream = make(name)
    with pytest.raises(type(fault), match="ours"):
        [stream.feed(chunk) for chunk in STARTS[name]]


def test_a_reason_that_is_a_number_ends_a_response_of_gemini() -> None:
    stream = make("gemini")
    bodies = stream.feed({"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": 1}]})
    assert type(bodies[-2]).__name__ == "MessageFinished"
    assert stream.end().outcome == "completed"


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_what_is_no_text_and_no_json_says_what_was_expected(name: str) -> None:
    no_chunks: list[Callable[[], Any]] = [
        lambda: make(name).feed('{"a":'),
        lambda: make(name).feed('{"a":"\xff"}'.encode("latin-1")),
        lambda: make(name).feed({"a": float("nan")}),
    ]
    for no_chunk in no_chunks:
        with pytest.raises(FormatError, match="was expected"):
            no_chunk()


def test_an_error_names_the_chunk_the_field_and_what_was_expected() -> None:
    stream = make("anthropic")
    stream.feed(STARTS["anthropic"][0])
    with pytest.raises(FormatError, match=r"'content_block_start' event lacks what it needs \(\"index\" is not there\)"):
        stream.feed({"type": "content_block_start", "content_block": {"type": "text"}})
    stream.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}})
    with pytest.raises(FormatError, match=r'"text" should be text, not 5'):
        stream.feed({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}})
