"""Recordings of AG-UI and of the AI SDK, and a reading of them that owes nothing to the code under test."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from projector.events import RunStarted
from projector.formats.shared.history import call_block, text_block, text_parts
from projector.message import Block, Message
from tests.shared_data import files, fold, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from projector import State
    from projector.events import Body, Role
    from projector.formats.format import StreamFormat

BENCHMARK: Final = files("agui-benchmark", "*/*.events.jsonl*")
UI_STREAMS: Final = files("vercel-ai", "*/ui-message-stream/*.json")
_SNAKE: Final = {"message_id": "messageId", "tool_call_id": "toolCallId"}


class Said(NamedTuple):
    """What was said: texts in order, calls with name and arguments, results, how it ended."""

    texts: tuple[str, ...]
    thoughts: tuple[str, ...]
    calls: dict[str, tuple[str, Any]]
    results: dict[str, str]
    outcome: str


def agui_events(path: Path) -> list[str]:
    return [line for line in read_text(path).split("\n") if line.strip()]


def meta_of(path: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads(read_text(path.parent / f"{path.name.partition('.events')[0]}.meta.json"))
    return meta


def read_agui(events: Iterable[str]) -> Said:
    """AG-UI events by their documentation: text by message, arguments by call, and what only snapshots say."""
    texts: dict[str, str] = {}
    thoughts: dict[str, str] = {}
    names: dict[str, str] = {}
    arguments: dict[str, str] = {}
    results: dict[str, str] = {}
    outcome = "incomplete"
    for line in events:
        event = {_SNAKE.get(name, name): value for name, value in json.loads(line).items()}
        kind, ref = event["type"], event.get("messageId", "")
        if kind in ("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK"):
            texts[ref] = texts.get(ref, "") + event["delta"]
        elif kind in ("REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_CHUNK"):
            thoughts[ref] = thoughts.get(ref, "") + event["delta"]
        elif kind in ("TOOL_CALL_START", "TOOL_CALL_CHUNK"):
            names.setdefault(event["toolCallId"], event["toolCallName"])
            arguments[event["toolCallId"]] = arguments.get(event["toolCallId"], "") + event.get("delta", "")
        elif kind == "TOOL_CALL_ARGS":
            arguments[event["toolCallId"]] += event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            results[event["toolCallId"]] = str(event.get("content", event.get("result")))
        elif kind == "MESSAGES_SNAPSHOT":
            _read_snapshot(event["messages"], arguments, results)
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            outcome = "failed" if kind == "RUN_ERROR" or outcome == "failed" else "completed"
    calls = {call: (name, json.loads(arguments[call] or "{}")) for call, name in names.items()}
    return Said(tuple(filter(None, texts.values())), tuple(thoughts.values()), calls, results, outcome)


def _read_snapshot(messages: list[dict[str, Any]], arguments: dict[str, str], results: dict[str, str]) -> None:
    for message in messages:
        if message["role"] == "tool":
            results.setdefault(message["toolCallId"], message["content"])
        for call in message.get("toolCalls") or ():
            arguments[call["id"]] = arguments.get(call["id"]) or call["function"]["arguments"]


def read_ui_stream(chunks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a UIMessage that a client makes of chunks, without states."""
    parts: list[dict[str, Any]] = []
    for chunk in chunks:
        kind, sort = chunk["type"], chunk["type"].partition("-")[0]
        if kind in ("text-start", "reasoning-start"):
            parts.append({"type": sort, "id": chunk["id"], "text": ""})
        elif kind in ("text-delta", "reasoning-delta"):
            _last(parts, "id", chunk["id"])["text"] += chunk["delta"]
        elif kind == "tool-input-start":
            parts.append({"type": "tool", "id": chunk["toolCallId"], "name": chunk["toolName"], "input": ""})
        elif kind == "tool-input-delta":
            _last(parts, "id", chunk["toolCallId"])["input"] += chunk["inputTextDelta"]
        elif kind == "tool-input-available":
            _last(parts, "id", chunk["toolCallId"])["input"] = json.dumps(chunk["input"])
        elif kind == "tool-output-available":
            _last(parts, "id", chunk["toolCallId"])["output"] = chunk["output"]
        elif kind == "tool-approval-request":
            _last(parts, "id", chunk["toolCallId"])["approval"] = chunk["approvalId"]
    return [part | ({"input": json.loads(part["input"])} if part["type"] == "tool" else {}) for part in parts]


def _last(parts: list[dict[str, Any]], name: str, value: str) -> dict[str, Any]:
    return next(part for part in reversed(parts) if part.get(name) == value)


def play(make: Callable[[str, Callable[[], str]], StreamFormat], chunks: Iterable[Any]) -> tuple[StreamFormat, list[Body]]:
    """A stream that is fed to its end, and the events it becomes."""
    numbers = itertools.count(1)
    stream = make("r", lambda: f"r.{next(numbers)}")
    return stream, [body for chunk in chunks for body in stream.feed(chunk)]


def folded(bodies: Iterable[Body]) -> State:
    """The state after a run of these events."""
    return fold([RunStarted("r", None, "submit", "r"), *bodies])


def said_by(messages: Iterable[Message], outcome: str) -> Said:
    """The same of messages that Tailfold holds; text that a tool has broken in two is joined by its id there."""
    texts: dict[object, str] = {}
    thoughts: list[str] = []
    calls: dict[str, tuple[str, Any]] = {}
    results: dict[str, str] = {}
    for message in messages:
        for block in message.blocks:
            if block.kind == "text":
                shells = json.loads(message.metadata_text.get("ag-ui", "[{}]"))
                ref = shells[-1].get("id", message.id)
                texts[ref] = texts.get(ref, "") + block.text
            elif block.kind == "reasoning":
                thoughts.append(block.text)
            elif block.kind == "tool_call":
                assert block.sealed
                assert block.parse == "ok"
                calls[block.tool_call_id or ""] = (block.name or "", block.input)
            else:
                results[block.tool_call_id or ""] = "".join(part["text"] for part in json.loads(block.parts or "[]"))
    return Said(tuple(texts.values()), tuple(thoughts), calls, results, outcome)


def blocks_said(messages: Iterable[Message]) -> list[tuple[Any, ...]]:
    """What messages say, whatever their ids: for what goes out and comes in again."""
    return [(message.role, message.name, message.status, *map(_block_said, message.blocks)) for message in messages]


def _block_said(block: Block) -> tuple[Any, ...]:
    text = block.input_text or block.text if block.kind == "tool_call" else block.text
    known = (block.kind, text, block.sealed, block.name, block.tool_call_id, block.signature, block.status)
    return (*known, block.parts and json.loads(block.parts), block.citations, block.fields)


def grows_into(some: Iterable[Message], whole: Iterable[Message]) -> bool:
    """Whether each message says a prefix of the message in its place."""
    some, whole = list(some), list(whole)
    if len(some) > len(whole):
        return False
    for part, full in zip(some, whole, strict=False):
        if part.role != full.role or len(part.blocks) > len(full.blocks):
            return False
        for one, other in zip(part.blocks, full.blocks, strict=False):
            if (one.kind, one.name, one.tool_call_id) != (other.kind, other.name, other.tool_call_id):
                return False
            if not other.text.startswith(one.text) or (one.sealed and one.text != other.text):
                return False
    return True


def a_message(number: int, role: Role, *blocks: Block, run: str = "r", **fields: Any) -> Message:
    """A message of a path, the `number`th of its run."""
    parent = f"{run}.{number - 1}" if number > 1 else None
    numbered = tuple(replace(block, number=place) for place, block in enumerate(blocks))
    return Message(f"{run}.{number}", parent, run, role, fields.pop("status", "complete"), numbered, 0, number, **fields)


def a_result(number: int, tool_call_id: str, text: str = "1", status: str = "ok", run: str = "r") -> Message:
    """A tool's result as a message of a path."""
    block = Block("tool_result", sealed=True, tool_call_id=tool_call_id, status=status, parts=text_parts(text))
    return a_message(number, "tool", block, run=run)


def a_call(tool_call_id: str, arguments: str = "{}", name: str = "f", **fields: Any) -> Block:
    """A whole tool call."""
    return replace(call_block(name, tool_call_id, arguments, is_json=True), **fields)


TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@st.composite
def paths(draw: st.DrawFn) -> list[Message]:
    """Paths such as clients show them: answers with reasoning, text and calls, results of some of them, several runs."""
    messages: list[Message] = []
    for run in ["a", "b"][: draw(st.integers(1, 2))]:
        number = 0
        for turn in range(draw(st.integers(1, 4))):
            if draw(st.booleans()):
                number += 1
                messages.append(a_message(number, draw(st.sampled_from(["user", "system"])), text_block(draw(TEXTS)), run=run))
            said = [Block("reasoning", text=draw(TEXTS), sealed=True)] * draw(st.integers(0, 1))
            said += [text_block(draw(TEXTS))] * draw(st.integers(0, 1))
            calls = [a_call(f"{run}{turn}{n}", json.dumps({"x": draw(TEXTS)})) for n in range(draw(st.integers(0, 2)))]
            if said or calls:
                number += 1
                messages.append(a_message(number, "assistant", *said, *calls, run=run))
            for call in calls[: draw(st.integers(0, 2))]:
                number += 1
                status = draw(st.sampled_from(["ok", "ok", "error", "denied"]))
                messages.append(a_result(number, call.tool_call_id or "", draw(TEXTS), status, run=run))
    return messages
