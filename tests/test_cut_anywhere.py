"""Every recorded run, cut after any of its events: what is exported is taken by each provider, and so is what follows."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector import End, settle
from projector.events import to_event
from projector.formats import AnthropicStream, anthropic_messages, chat, responses
from projector.formats.validators import validate_anthropic, validate_chat, validate_responses
from tests.broken_histories import user
from tests.openai_recordings import begin, feed, fold, messages_of, recordings
from tests.recordings import STREAMS, WHY_NONE, chunks_of
from tests.shared_data import needs_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from projector import Message, State
    from projector.events import Body
    from projector.formats.format import Export

WRITERS: Final[dict[str, tuple[Callable[..., Export], Callable[[Any], list[str]]]]] = {
    "anthropic": (anthropic_messages.write, validate_anthropic),
    "chat": (chat.write, validate_chat),
    "responses": (responses.write, validate_responses),
}


def cuts(bodies: Iterator[list[Body]]) -> Iterator[tuple[int, list[Message]]]:
    """The path of a run that ends after each event of its stream: what was asked, and what came."""
    state: State = begin()
    for at, made in enumerate(bodies):
        for body in made:
            state = fold(state, to_event(body))
        if made:
            end = End("incomplete", state.last_seq + 1, 0)
            yield at, [user("u", "do it"), *settle(state.open["r"], end).path]


def check(path: list[Message], writer: str, where: str) -> None:
    """It is taken as it is, and when the conversation goes on."""
    out, validate = WRITERS[writer]
    before = list(path)
    for messages in (path, [*path, user("u2", "go on")]):
        export = out(messages)
        assert validate(export.payload) == [], where
    assert path == before


@pytest.mark.skipif(not STREAMS, reason=WHY_NONE)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.name.partition(".chunks")[0])
def test_a_recorded_run_cut_after_any_event_is_taken_by_every_provider(stream: Path, writer: str) -> None:
    numbers = itertools.count(1)
    adapter = AnthropicStream("r", lambda: f"r.{next(numbers)}")
    for at, path in cuts(adapter.feed(chunk) for chunk in chunks_of(stream)):
        check(path, writer, f"{stream.name} cut after {at}")


@needs_data
@pytest.mark.parametrize("format_name", ["chat", "responses"])
def test_a_recorded_run_of_another_provider_cut_after_any_event_is_taken_by_anthropic(format_name: str) -> None:
    count = 0
    for recording in recordings(format_name):
        stream, _ = feed(format_name, [])
        for at, path in cuts(stream.feed(chunk) for chunk in recording.chunks):
            count += 1
            check(path, "anthropic", f"{recording.name} cut after {at}")
    assert count > 1000


@pytest.mark.skipif(not STREAMS, reason=WHY_NONE)
def test_signatures_and_unknown_blocks_of_a_recorded_run_go_back_byte_for_byte() -> None:
    signatures = 0
    for path in STREAMS:
        stream = AnthropicStream("r", lambda: "r.1")
        text_of_stream = "\n".join(chunks_of(path))
        if text_of_stream.count('"message_start"') != 1:
            continue
        bodies = [body for chunk in chunks_of(path) for body in stream.feed(chunk)]
        written = json.dumps(anthropic_messages.write([user("u"), *messages_of(bodies)]).payload)
        for sealed in messages_of(bodies):
            for block in sealed.blocks:
                if block.signature is not None:
                    signatures += 1
                    assert json.dumps(block.signature) in written
                if block.opaque is not None and block.kind in ("redacted_reasoning", "server_tool_result"):
                    assert json.dumps(json.loads(block.opaque)["payload"]) in written
    assert signatures > 3
