"""Every recorded run, cut after any of its events: what is exported is taken by each provider, and so is what follows."""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector import End, settle, transcript
from projector.events import RunFinished, RunStarted, to_event
from projector.formats.anthropic import writer as anthropic_writer
from projector.formats.bedrock import writer as bedrock_writer
from projector.formats.chat import writer as chat_writer
from projector.formats.gemini import writer as gemini_writer
from projector.formats.registry import NAMED
from projector.formats.responses import writer as responses_writer
from projector.formats.validators import (
    validate_anthropic,
    validate_bedrock,
    validate_chat,
    validate_gemini,
    validate_responses,
)
from stream import Event
from tests.broken_histories import user
from tests.corpus import look
from tests.corpus_parts import files_of
from tests.faults.sizes import FULL
from tests.shared_data import FOLDERS, needs_data, sources
from tests.talk import started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from projector import Message, State
    from projector.events import Body
    from projector.formats.format import Export
    from stream import NewEvent
    from tests.corpus_parts import Conversation

LARGE: Final = ("crewai", "open-assistant", "openllmetry", "otel-contrib", "pi-mono", "pydantic-ai", "tau-bench")
SOURCES: Final = [pytest.param(name, marks=pytest.mark.heavy) if name in LARGE else name for name in sources()]
WRITERS: Final[dict[str, tuple[Callable[..., Export], Callable[[Any], list[str]]]]] = {
    "anthropic": (anthropic_writer.write, validate_anthropic),
    "bedrock": (bedrock_writer.write, validate_bedrock),
    "chat": (chat_writer.write, validate_chat),
    "gemini": (gemini_writer.write, validate_gemini),
    "responses": (responses_writer.write, validate_responses),
}
REASONING: Final = ("reasoning", "redacted_reasoning")
EVERY: Final = 1 if FULL else 11
"""In the smoke size only each eleventh event of a run is a place to cut, and its first ones."""
FIRST: Final = 8


def conversations(source: str) -> Iterator[Conversation]:
    for folder in FOLDERS:
        for path in files_of(folder / source):
            yield from look(folder, path).conversations


def fold(state: State, event: NewEvent) -> State:
    return transcript.fold(state, Event("s", state.last_seq + 1, event.type, event.data, 0))


def cuts(bodies: Sequence[Body]) -> Iterator[tuple[int, list[Message]]]:
    """The messages of a run that ends after each of its events, behind what was asked."""
    first = bodies[0]
    assert isinstance(first, RunStarted)
    state = fold(transcript.initial, started(first.run_id))
    for at, body in enumerate(takewhile(lambda body: not isinstance(body, RunFinished), bodies[1:]), 1):
        state = fold(state, to_event(body))
        if at % EVERY == 0 or at <= FIRST:
            yield at, [user("u", "do it"), *settle(state.open[first.run_id], End("incomplete", state.last_seq + 1, 0)).path]


def paths(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """From the root to each leaf."""
    known = {message.id: message for message in messages}
    for leaf in known.keys() - {message.parent_id for message in messages}:
        path: list[Message] = []
        at: str | None = leaf
        while at is not None:
            path.append(known[at])
            at = known[at].parent_id
        yield path[::-1]


def check(path: list[Message], where: str) -> None:
    """It is taken as it is, and when the conversation goes on; the messages are what they were."""
    before = list(path)
    for name, (write, validate) in WRITERS.items():
        for messages in (path, [*path, user("u2", "go on")]):
            export = write(messages)
            sent = export.payload[NAMED[name].lists[0]] if isinstance(export.payload, dict) else export.payload
            assert not sent or validate(export.payload) == [], where  # of an empty history there is nothing to send
            assert sent or messages is path, where
    assert path == before


@pytest.mark.heavy
@needs_data
@pytest.mark.parametrize("source", SOURCES)
def test_a_recorded_run_cut_after_any_event_is_taken_by_every_provider(source: str) -> None:
    count = 0
    for conversation in conversations(source):
        for run in conversation.runs:
            for at, path in cuts(run):
                count += 1
                check(path, f"{conversation.name}, {path[-1].run_id} cut after {at}")
    assert count > 5


@pytest.mark.heavy
@needs_data
@pytest.mark.parametrize("source", SOURCES)
def test_every_path_of_a_recorded_conversation_is_taken_by_every_provider(source: str) -> None:
    for conversation in conversations(source):
        for path in paths(conversation.messages):
            check(path, conversation.name)


@needs_data
@pytest.mark.heavy
def test_signatures_and_unknown_blocks_of_recorded_runs_go_back_byte_for_byte() -> None:
    signatures = payloads = 0
    for conversation in (one for source in ("vercel-ai", "pydantic-ai") for one in conversations(source)):
        for run in conversation.runs:
            if not isinstance(run[0], RunStarted) or run[0].provider != "anthropic":
                continue
            messages = [message for message in conversation.messages if message.run_id == run[0].run_id]
            written = json.dumps(anthropic_writer.write([user("u"), *messages]).payload)
            whole = [
                message for message in messages if message.status == "complete" and message.blocks[-1].kind not in REASONING
            ]
            calls = {block.tool_call_id for message in whole for block in message.blocks if block.kind == "server_tool_call"}
            for block in (block for message in whole for block in message.blocks):
                if block.kind == "reasoning" and block.signature:
                    signatures += 1
                    assert json.dumps(block.signature) in written
                is_answer = block.kind == "server_tool_result" and block.tool_call_id in calls
                if block.opaque is not None and (block.kind == "redacted_reasoning" or is_answer):
                    payloads += 1
                    assert json.dumps(json.loads(block.opaque)["payload"]) in written
    assert signatures > 10
    assert payloads > 20
