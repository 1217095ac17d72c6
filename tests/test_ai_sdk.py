"""The AI SDK: recorded UI streams against an independent reading, cut anywhere, and out and in again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from projector.events import RawEvent
from projector.formats.ai_sdk.stream_reader import AiSdkStream, write_stream
from projector.formats.ai_sdk.writer import write
from projector.json_text import text_of
from tests.shared_data import needs_data, read_text
from tests.ui_readings import (
    UI_STREAMS,
    blocks_said,
    folded,
    grows_into,
    play,
    read_ui_stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from projector.events import Body
    from projector.message import Block, Message

each = pytest.mark.parametrize("path", UI_STREAMS, ids=lambda path: path.stem)


def feed(*chunks: dict[str, Any] | str | bytes) -> tuple[list[Message], list[Body], AiSdkStream]:
    stream, bodies = play(AiSdkStream, chunks)
    assert isinstance(stream, AiSdkStream)
    return folded(bodies).all_messages(), bodies, stream


def chunk(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": kind} | fields


def raw_events(bodies: Iterable[Body]) -> list[Any]:
    return [json.loads(text_of(body.event) or "") for body in bodies if isinstance(body, RawEvent)]


def parsed(messages: Iterable[Message]) -> list[tuple[Any, ...]]:
    """What messages say, the input of calls as values: how it was written is lost on the way."""

    def value(block: Block) -> Block:
        if block.kind != "tool_call":
            return block
        return replace(block, text=json.dumps(json.loads(block.input_text or block.text), sort_keys=True), input_text=None)

    return blocks_said(replace(message, blocks=tuple(map(value, message.blocks))) for message in messages)


# recordings


@needs_data
@each
def test_a_recorded_stream_says_what_an_independent_reading_says(path: Path) -> None:
    chunks = json.loads(read_text(path))
    messages, bodies, stream = feed(*chunks)
    found: list[dict[str, Any]] = []
    for block in (block for message in messages for block in message.blocks):
        if block.kind in ("text", "reasoning"):
            found.append({"type": block.kind, "text": block.text})
        elif block.kind == "tool_call":
            asked = {"approval": json.loads(block.approval)["approval_id"]} if block.approval else {}
            found.append({"type": "tool", "id": block.tool_call_id, "name": block.name, "input": block.input} | asked)
        else:
            [part] = json.loads(block.parts or "[]")
            next(part for part in found if part.get("id") == block.tool_call_id)["output"] = part["text"]
    wanted = [{name: value for name, value in part.items() if part["type"] == "tool" or name != "id"}
              for part in read_ui_stream(chunks)]  # fmt: skip
    assert found == wanted
    assert stream.end().outcome == "completed"
    assert not raw_events(bodies)
    assert {message.status for message in messages} == {"complete"}


@needs_data
@each
def test_a_recorded_stream_cut_after_any_chunk_is_a_prefix_and_exports(path: Path) -> None:
    chunks = json.loads(read_text(path))
    whole = feed(*chunks)[0]
    for cut in range(len(chunks)):
        messages, _, stream = feed(*chunks[:cut])
        assert grows_into(messages, whole)
        assert stream.end().outcome == "incomplete"
        check_order(write_stream(messages))


@needs_data
@each
def test_a_recorded_stream_comes_back_chunk_by_chunk(path: Path) -> None:
    messages = feed(*json.loads(read_text(path)))[0]
    chunks = write_stream(messages)
    check_order(chunks)
    again = feed(*chunks)[0]
    assert parsed(again) == parsed(messages)
    assert [part for message in write(again).payload for part in message["parts"]] == [
        part for message in write(messages).payload for part in message["parts"]
    ]


@needs_data
def test_the_recorded_streams_are_one_message_each_with_what_a_client_shows() -> None:
    first, second = ([*write(feed(*json.loads(read_text(path)))[0]).payload] for path in UI_STREAMS)
    [asking], [answering] = first, second
    assert [part["type"] for part in asking["parts"]] == ["step-start", "reasoning", "dynamic-tool"]
    call_id = asking["parts"][2]["toolCallId"]
    assert (asking["parts"][2]["state"], asking["parts"][2]["input"]) == ("approval-requested", {"filename": "report.pdf"})
    assert (asking["parts"][2]["state"], asking["parts"][2]["approval"]) == ("approval-requested", {"id": call_id})
    assert [part["type"] for part in answering["parts"]] == ["dynamic-tool", "step-start", "text"]
    assert answering["parts"][0]["output"] == 'File "report.pdf" has been deleted successfully'


def check_order(chunks: list[dict[str, Any]]) -> None:
    """What the client's own reading of chunks demands, written down once more."""
    opened, known, running, in_step = set[str](), set[str](), False, False
    for given_chunk in chunks:
        kind, ref = given_chunk["type"], given_chunk.get("id") or given_chunk.get("toolCallId") or ""
        if kind == "start":
            assert not running
            opened, known, running = set(), set(), True
            continue
        assert running
        if kind.endswith("-delta") and kind != "tool-input-delta":
            assert ref in opened
        elif kind in ("text-start", "reasoning-start"):
            assert ref not in known
            opened.add(ref)
            known.add(ref)
        elif kind in ("text-end", "reasoning-end"):
            opened.remove(ref)
        elif kind == "tool-input-start":
            assert ref not in known
            known.add(ref)
        elif kind.startswith("tool-") and kind != "tool-approval-response":
            assert ref in known
        elif kind in ("start-step", "finish-step"):
            assert in_step == (kind == "finish-step")
            in_step = not in_step
        elif kind == "finish":
            assert not in_step
            running = False
    assert not running
