"""Recorded responses of Gemini and Bedrock against an independent reading, and the histories that were sent to them."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from projector.events import RunUsage
from projector.formats.bedrock import reader as bedrock_messages
from projector.formats.format import FormatError
from projector.formats.gemini import reader as gemini_messages
from projector.formats.recordings.transport import read_all, read_cassette
from tests.shared_data import files, imported, needs_data, read_bytes, read_text
from tests.test_gemini_bedrock import Chunk, bedrock, feed, gemini

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from projector import Block
    from projector.formats.format import StreamFormat


class Said(NamedTuple):
    """What a response says, whoever reads it."""

    text: str
    reasoning: str
    calls: list[tuple[str, Any]]
    signatures: list[str]
    usage: tuple[Any, Any] | None
    reason: str | None


def said(stream: StreamFormat, chunks: Iterable[Chunk]) -> Said:
    messages, bodies = feed(stream, chunks)
    blocks = [block for message in messages for block in message.blocks]
    used = [body for body in bodies if isinstance(body, RunUsage)]
    return Said(
        "".join(block.text for block in blocks if block.kind == "text"),
        "".join(block.text for block in blocks if block.kind == "reasoning"),
        [(block.name or "", block.input) for block in blocks if block.kind == "tool_call"],
        [block.signature for block in blocks if block.signature],
        (used[-1].input, used[-1].output) if used else None,
        stream.end().finish_reason,
    )


def read_gemini(chunks: Iterable[str]) -> Said:
    """What a stream of Gemini says, by the provider's own documentation."""
    text = reasoning = ""
    calls: list[tuple[str, Any]] = []
    signatures, usage, reason = [], dict[str, Any](), None
    for chunk in map(json.loads, chunks):
        usage |= {name: count for name, count in chunk.get("usageMetadata", {}).items() if count is not None}
        for candidate in chunk.get("candidates", []):
            reason = candidate.get("finishReason") or reason
            for part in candidate.get("content", {}).get("parts", []):
                signatures += [part["thoughtSignature"]] if "thoughtSignature" in part else []
                if part.get("thought"):
                    reasoning += part["text"]
                else:
                    text += part.get("text", "")
                call = part.get("functionCall", {})
                if "name" in call:
                    calls.append((call["name"], call.get("args", {})))
                for partial in call.get("partialArgs", []):
                    put(calls[-1][1], partial)
    names = [("promptTokenCount", "toolUsePromptTokenCount"), ("candidatesTokenCount", "thoughtsTokenCount")]
    totals = [sum(usage.get(name, 0) for name in pair) if usage.keys() & set(pair) else None for pair in names]
    return Said(text, reasoning, calls, signatures, (totals[0], totals[1]), reason)


def put(arguments: dict[str, Any], partial: dict[str, Any]) -> None:
    keys = partial["jsonPath"].replace("[", ".").replace("]", "").split(".")[1:]
    steps = [int(key) if key.isdigit() else key for key in keys]
    here: Any = arguments
    for step, following in itertools.pairwise(steps):
        fresh: Any = [] if isinstance(following, int) else {}
        if isinstance(here, list) and step == len(here):
            here.append(fresh)
        elif isinstance(here, dict):
            here.setdefault(step, fresh)
        here = here[step]
    value = next(value for name, value in partial.items() if name.endswith("Value"))
    if isinstance(here, list) and steps[-1] == len(here):
        here.append(value)
    elif isinstance(here, dict) and steps[-1] not in here:
        here[steps[-1]] = value
    else:
        here[steps[-1]] += value


def read_bedrock(chunks: Iterable[str]) -> Said:
    """What a stream of Converse says, by the provider's own documentation."""
    text = reasoning = ""
    inputs: dict[int, list[str]] = {}
    signatures: dict[int, str] = {}
    usage, reason = None, None
    for chunk in map(json.loads, chunks):
        if "output" in chunk:
            return read_whole(chunk)
        start = chunk.get("contentBlockStart", {})
        if "toolUse" in start.get("start", {}):
            inputs[start["contentBlockIndex"]] = [start["start"]["toolUse"]["name"], ""]
        at, delta = (
            chunk.get("contentBlockDelta", {}).get("contentBlockIndex"),
            chunk.get("contentBlockDelta", {}).get("delta", {}),
        )
        text += delta.get("text", "")
        reasoning += delta.get("reasoningContent", {}).get("text", "")
        if "signature" in delta.get("reasoningContent", {}):
            signatures[at] = signatures.get(at, "") + delta["reasoningContent"]["signature"]
        if "toolUse" in delta:
            inputs[at][1] += delta["toolUse"]["input"]
        usage = chunk.get("metadata", {}).get("usage", usage)
        reason = chunk.get("messageStop", {}).get("stopReason", reason)
    calls = [(name, json.loads(text or "{}")) for name, text in inputs.values()]
    return Said(text, reasoning, calls, list(signatures.values()), used(usage), reason)


def read_whole(response: dict[str, Any]) -> Said:
    content = response["output"]["message"]["content"]
    thoughts = [block["reasoningContent"].get("reasoningText", {}) for block in content if "reasoningContent" in block]
    return Said(
        "".join(block.get("text", "") for block in content),
        "".join(thought.get("text", "") for thought in thoughts),
        [(block["toolUse"]["name"], block["toolUse"]["input"]) for block in content if "toolUse" in block],
        [thought["signature"] for thought in thoughts if "signature" in thought],
        used(response["usage"]),
        response["stopReason"],
    )


def used(usage: dict[str, Any] | None) -> tuple[Any, Any] | None:
    if usage is None:
        return None
    beside = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    return sum(usage.get(name) or 0 for name in beside), usage["outputTokens"]


def recorded(word: str) -> Iterator[tuple[str, str | None, bytes, str]]:
    """Name, request, body and content type of the exchanges with one provider that went well."""
    for path in files("pydantic-ai", "http*/**/*.yaml", "http*/**/*.yaml.gz"):
        for exchange in read_cassette(read_bytes(path)).exchanges:
            if word in exchange.uri and exchange.status == 200:
                yield path.name, exchange.request, exchange.body, exchange.content_type


def chunks_in(folder: str, word: str) -> list[tuple[str, list[str]]]:
    """The payloads of every stream and every whole response of a provider."""
    found = [
        (path.name, [payload.data for payload in read_all([read_bytes(path)])])
        for path in files("vercel-ai", f"{folder}/*.json", f"{folder}/*.txt")
    ]
    return found + [(name, [payload.data for payload in read_all([body])]) for name, _, body, _ in recorded(word)]


@needs_data
def test_every_recorded_gemini_response_says_what_an_independent_reading_says() -> None:
    cases = chunks_in("google", "enerateContent")
    assert len(cases) > 80
    failed = 0
    for name, chunks in cases:
        stream = gemini()
        if "error" in json.loads(chunks[0]):
            assert feed(stream, chunks)[1] == []
            assert stream.end().outcome == "failed"
            failed += 1
            continue
        wanted = read_gemini(chunks)
        told = said(stream, chunks)
        if "promptFeedback" in json.loads(chunks[0]):  # blocked: a refusal, so that something stands there
            assert told.reason == json.loads(chunks[0])["promptFeedback"]["blockReason"]
            continue
        assert told == wanted, name
        assert stream.end().outcome == "completed", name
    assert failed == 1


@needs_data
def test_every_recorded_bedrock_response_says_what_an_independent_reading_says() -> None:
    cases = chunks_in("amazon-bedrock", "/converse")
    assert len(cases) == 66
    for name, chunks in cases:
        stream = bedrock()
        assert said(stream, chunks) == read_bedrock(chunks), name
        assert stream.end().outcome == "completed", name


@needs_data
def test_the_bytes_of_a_bedrock_response_are_read_wherever_they_are_cut() -> None:
    streams = [body for _, _, body, kind in recorded("converse-stream") if "eventstream" in kind]
    assert len(streams) == 8
    for body in streams:
        whole = feed(bedrock(), [body])[1]
        assert feed(bedrock(), [payload.data for payload in read_all([body])])[1] == whole
        for size in (1, 7, 1000):
            assert feed(bedrock(), [body[at : at + size] for at in range(0, len(body), size)])[1] == whole
        broken, stream = body[:-1] + bytes([body[-1] ^ 1]), bedrock()
        kept = feed(stream, [broken])[1]
        assert kept == whole[: len(kept)]
        assert len(kept) >= len(whole) - 2
        assert stream.end().outcome == "failed"
        with pytest.raises(FormatError, match="its checksum is wrong"):
            stream.feed(b"\0")


@needs_data
def test_streams_of_other_interfaces_are_refused_with_what_they_are() -> None:
    for path in files("vercel-ai", "google/interactions/*.chunks.txt"):
        first = read_text(path).split("\n", 1)[0]
        with pytest.raises(FormatError, match="an event of Google's Interactions, another interface"):
            gemini().feed(first)
    for path in files("vercel-ai", "anthropic/*.chunks.txt", "openai/**/*.chunks.txt"):
        first = read_text(path).split("\n", 1)[0]
        for stream in (gemini(), bedrock()):
            with pytest.raises(FormatError, match="was expected"):
                stream.feed(first)


@needs_data
def test_the_histories_that_were_sent_are_imported_with_their_calls_answered() -> None:
    for word, module in (("enerateContent", gemini_messages), ("/converse", bedrock_messages)):
        count = answered = 0
        for name, request, _, _ in recorded(word):
            sent = json.loads(request or "{}")
            [history] = module.read(request or "")
            messages = imported(history)
            wanted, texts, results = read_sent(sent)
            assert [
                "".join(b.text for b in draft.blocks if b.kind == "text") for draft in history.drafts if draft.role != "tool"
            ] == texts
            assert [b.input for message in messages for b in message.blocks if b.kind == "tool_call"] == wanted, name
            calls = [block.tool_call_id for message in messages for block in message.blocks if block.kind == "tool_call"]
            replied = [block.tool_call_id for message in messages for block in message.blocks if block.kind == "tool_result"]
            assert replied == calls[: len(replied)]
            assert [
                given_of(block) for message in messages for block in message.blocks if block.kind == "tool_result"
            ] == results
            count += 1
            answered += len(replied)
        assert count > 40
        assert answered > 10


def read_sent(request: dict[str, Any]) -> tuple[list[Any], list[str], list[Any]]:
    """Inputs of calls, texts of messages that are no results, and results, of a request to Gemini or Bedrock."""
    inputs, texts, results = [], [], []
    system = request.get("systemInstruction", {}).get("parts") or request.get("system") or []
    for content in ([{"parts": system}] if system else []) + (request.get("contents") or request.get("messages") or []):
        parts = content.get("parts") or content.get("content") or []
        inputs += [part["functionCall"].get("args", {}) for part in parts if "functionCall" in part]
        inputs += [part["toolUse"]["input"] for part in parts if "toolUse" in part]
        results += [[part["functionResponse"]["response"]] for part in parts if "functionResponse" in part]
        results += [
            [item.get("text", item.get("json", item)) for item in part["toolResult"]["content"]]
            for part in parts
            if "toolResult" in part
        ]
        rest = [part for part in parts if "functionResponse" not in part and "toolResult" not in part]
        if rest or not parts:
            texts.append("".join(part.get("text", "") for part in rest if not part.get("thought")))
    return inputs, texts, results


def given_of(block: Block) -> list[Any]:
    parts = json.loads(block.parts or "[]")
    return [
        json.loads(part["text"]) if part["kind"] == "data" else part["text"] if "text" in part else part["opaque"]["payload"]
        for part in parts
    ]
