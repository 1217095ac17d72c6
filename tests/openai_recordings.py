"""Recorded streams, responses and requests of Chat Completions and Responses, and their folds."""

from __future__ import annotations

import functools
import gzip
import importlib
import itertools
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from projector import State, transcript
from projector.events import to_event
from projector.formats.chat.stream_reader import ChatStream
from projector.formats.responses.stream_reader import ResponsesStream
from projector.formats.shared.history import runs_of
from stream import Event, NewEvent
from tests.recordings import SHARED
from tests.talk import started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from projector import Message
    from projector.events import Body
    from projector.formats import StreamFormat
    from projector.formats.shared.history import History

WHY_NONE: Final = "the shared recordings are not beside this repository"
STREAMS: Final[dict[str, type[ChatStream | ResponsesStream]]] = {"chat": ChatStream, "responses": ResponsesStream}
_OURS: Final = (b"/chat/completions", b"/responses", b"api.mistral.ai")
_OTHERS: Final = ("anthropic.com", "bedrock-runtime", "cohere.com", "googleapis.com")


class Recording(NamedTuple):
    """What one request was answered with: events of a stream, or a whole response as the only one."""

    name: str
    format: str
    chunks: list[str]
    is_whole: bool


class Exchange(NamedTuple):
    """A request and, if it is of ours, its answer."""

    cassette: str
    uri: str
    request: dict[str, Any]
    answer: Recording | None


def recordings(format_name: str) -> list[Recording]:
    found = [recording for recording in _files() if recording.format == format_name]
    return found + [each.answer for each in exchanges() if each.answer is not None and each.answer.format == format_name]


@functools.cache
def exchanges() -> list[Exchange]:
    folder = SHARED / "data" / "pydantic-ai"
    found = []
    for path in sorted(folder.glob("http-bodies/*/*/*.request.json")):
        answers = sorted(path.parent.glob(path.name.replace("request.json", "response.*")))
        cassette = str(path.parent.relative_to(folder))
        recording = _recording(f"{cassette}/{path.name[:2]}", _texts(answers[0])) if answers else None
        found.append(Exchange(cassette, "", json.loads(path.read_bytes()), recording))
    for path in sorted([*folder.glob("http/**/*.yaml*"), *folder.glob("http-multi/**/*.yaml*")]):
        found += _cassette(path, str(path.relative_to(folder)))
    return [each for each in found if {"messages", "input"} & each.request.keys() and not _is_foreign(each)]


def feed(format_name: str, chunks: Iterable[str | bytes | dict[str, Any]]) -> tuple[StreamFormat, list[Body]]:
    numbers = itertools.count(1)
    stream = STREAMS[format_name]("r", lambda: f"r.{next(numbers)}")
    return stream, [body for chunk in chunks for body in stream.feed(chunk)]


def begin() -> State:
    return fold(transcript.initial, started("r"))


def fold(state: State, event: NewEvent) -> State:
    return transcript.fold(state, Event("s", state.last_seq + 1, event.type, event.data, 0))


def messages_of(bodies: Iterable[Body]) -> list[Message]:
    state = begin()
    for body in bodies:
        state = fold(state, to_event(body))
    assert [anomaly for anomaly in state.anomalies if not anomaly.is_applied] == []
    return state.all_messages()


def imported(history: History) -> list[Message]:
    """The messages of a history, once it is taken in."""
    state = transcript.initial
    for run in runs_of(history, "test"):
        for body in run.bodies:
            state = fold(state, to_event(body))
    assert [anomaly for anomaly in state.anomalies if not anomaly.is_applied] == []
    return state.all_messages()


def _files() -> Iterator[Recording]:
    folder = SHARED / "data" / "vercel-ai"
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md"):
        recording = _recording(str(path.relative_to(folder)), _texts(path))
        if recording is not None:
            yield recording


def _texts(path: Path) -> list[str]:
    text = _read(path)
    name = path.name.removesuffix(".gz")
    if name.endswith(".json"):
        return [text]
    return _sse(text) if name.endswith(".sse") else [line for line in text.split("\n") if line.strip()]


def _read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def _sse(text: str) -> list[str]:
    events = text.replace("\r\n", "\n").split("\n\n")
    found = ["\n".join(line[5:].lstrip() for line in event.split("\n") if line.startswith("data:")) for event in events]
    return [data for data in found if data]


def _recording(name: str, chunks: list[str]) -> Recording | None:
    format_name = next((known for known in map(_format, chunks[:2]) if known), None)
    is_whole = len(chunks) == 1
    return Recording(name, format_name, chunks, is_whole) if format_name else None


def _format(chunk: str) -> str | None:
    try:
        value = json.loads(chunk)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("choices"), list):
        return "chat"
    is_event = str(value.get("type", "")).startswith("response.") and "response" in value
    return (
        "responses"
        if is_event or value.get("object") == "response" or value.get("type") == "response.output_item.added"
        else None
    )


def _cassette(path: Path, name: str) -> Iterator[Exchange]:
    text = _read(path)
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        return
    if not any(uri in text.encode() for uri in _OURS):
        return
    for number, each in enumerate(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["interactions"]):
        request, response = each["request"], each["response"]
        body = request.get("parsed_body")
        given = response.get("parsed_body")
        streamed = (response.get("body") or {}).get("string")
        chunks = [json.dumps(given)] if given is not None else _sse(streamed) if isinstance(streamed, str) else []
        answer = _recording(f"{name}#{number}", chunks) if chunks else None
        if isinstance(body, dict):
            yield Exchange(name, request["uri"], body, answer)


def _is_foreign(exchange: Exchange) -> bool:
    return exchange.answer is None and (not exchange.uri or any(host in exchange.uri for host in _OTHERS))
