"""What models said in session logs, transcripts, trees and protocols of interfaces, read as plain JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.corpus_answers import Call, arguments_of, counts
from tests.corpus_exchanges import content_of, events_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.corpus_readings import Stored

_CACHED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_OF_PI = ("input", "cacheRead", "cacheWrite")


class Said(NamedTuple):
    """What a log holds of a model: its texts, its calls, what its requests used by their names, or runs in all."""

    texts: list[str]
    calls: list[Call]
    usage: dict[str, tuple[int | None, int | None]]
    totals: list[tuple[int | None, int | None]]


def said_in(path: Path) -> Said:
    """What models say in a file, whichever of the known logs it is."""
    said = Said([], [], {}, [])
    given = [value for value in events_of(content_of(path))[0] if isinstance(value, dict)]
    values = [record for value in given for record in value.get("loglines", [value])]
    for value in values:
        _read_record(value, said)
    _read_interface(values, said)
    _read_streamed_usage([value["event"] for value in values if value.get("type") == "stream_event"], said)
    return said


def missing_of_log(said: Said, stored: Stored) -> Iterator[str]:
    """What a log says and the ledger does not."""
    blocks = [block for message in stored.messages if message.role == "assistant" for block in message.blocks]
    texts = {block.text for block in blocks} | {message.text for message in stored.messages}
    told: dict[str, str] = {}
    for message in stored.messages:  # a message of an interface may be several of ours: its calls' results stand between
        told[message.run_id] = told.get(message.run_id, "") + (message.text if message.role == "assistant" else "")
    for text in said.texts:
        if text.strip() and text not in texts and not any(text in whole for whole in told.values()):
            yield f"the text {text[:60]!r} is nowhere"
    made = [(block.tool_call_id, block.name, block.input, block.text) for block in blocks if block.tool_call_id]
    for call in said.calls:
        is_there = any(
            call.id in (None, ref)
            and call.name in ("", name)
            and (call.arguments is ... or call.arguments in ({} if given is None else given, text))
            for ref, name, given, text in made
        )
        if not is_there:
            yield f"the call {call.id} of {call.name} is nowhere"
    left = [(usage.input, usage.output) for run in stored.runs for usage in run.usage.values()]
    for total in said.totals:  # a result's total counts for all its requests, whose messages tell how they began
        found = sum(given or 0 for given, _ in left), sum(made or 0 for _, made in left)
        if found != total:
            yield f"the total {total} of a run is {found}"
    for name, usage in said.usage.items() if not said.totals else ():
        if usage in left:
            left.remove(usage)
        else:
            yield f"the usage {usage} of {name} is nowhere"


def _read_record(value: dict[str, Any], said: Said) -> None:
    """A record, a transcript or a tree."""
    if "prompt" in value and "message_tree_id" in value:
        _read_tree(value["prompt"], said)
    elif "parent_message_id" in value or "message_tree_id" in value:
        _read_tree(value, said)
    elif isinstance(value.get("traj"), list) or isinstance(value.get("messages_display"), list):
        for message in value.get("traj") or []:
            _read_chat(message, said)
    elif isinstance(value.get("history"), list):
        for message in value["history"]:
            _read_chat(message, said)
    elif value.get("type") == "response_item":
        _read_item(value["payload"], said)
    elif value.get("type") == "message" and isinstance(value.get("message"), dict):
        _read_pi(value, said)
    elif value.get("type") == "result" and (total := counts(value.get("usage"), _CACHED, ("output_tokens",))) is not None:
        said.totals.append(total)
    elif value.get("type") == "assistant" and isinstance(value.get("message"), dict):
        _read_claude(value["message"], said)


def _read_tree(node: dict[str, Any], said: Said) -> None:
    if node.get("role") == "assistant":
        said.texts.append(node["text"])
    for reply in node.get("replies") or []:
        _read_tree(reply, said)


def _read_chat(message: dict[str, Any], said: Said) -> None:
    if message.get("role") != "assistant":
        return
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    said.texts.extend(str(part["text"]) for part in parts if isinstance(part.get("text"), str))
    for call in message.get("tool_calls") or []:
        said.calls.append(Call(call.get("id"), call["function"]["name"], arguments_of(call["function"]["arguments"])))


def _read_item(item: dict[str, Any], said: Said) -> None:
    if item.get("type") == "message" and item.get("role") == "assistant":
        said.texts.append("".join(part.get("text") or "" for part in item["content"]))
    elif item.get("type") == "function_call":
        said.calls.append(Call(item["call_id"], item["name"], arguments_of(item["arguments"])))


def _read_pi(record: dict[str, Any], said: Said) -> None:
    message = record["message"]
    if message.get("role") != "assistant" or message.get("stopReason") == "error":
        return
    for block in message["content"]:
        if block["type"] == "text":
            said.texts.append(block["text"])
        elif block["type"] == "toolCall":
            said.calls.append(Call(block["id"], block["name"], ... if "partialJson" in block else block["arguments"]))
    used = counts(message.get("usage"), _OF_PI, ("output",))
    if used is not None and any(used) and message["content"]:
        said.usage[str(record.get("id") or record.get("timestamp"))] = used


def _read_claude(message: dict[str, Any], said: Said) -> None:
    content = message["content"]
    for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if block["type"] == "text":
            said.texts.append(block["text"])
        elif block["type"] == "tool_use":
            said.calls.append(Call(block["id"], block["name"], block["input"]))
    _use(message.get("id"), message.get("usage"), said)


def _read_streamed_usage(events: list[dict[str, Any]], said: Said) -> None:
    """The counts of a stream beside finished messages: these are told as they were when it began."""
    current = None
    for event in events:
        if event["type"] == "message_start":
            current = event["message"]["id"]
        elif event["type"] == "message_delta":
            _use(current, event.get("usage"), said)


def _use(name: str | None, usage: Any, said: Said) -> None:
    used = counts(usage, _CACHED, ("output_tokens",))
    if used is not None and name:
        before = said.usage.get(name, (0, 0))
        said.usage[name] = max(used[0] or 0, before[0] or 0), max(used[1] or 0, before[1] or 0)


def _read_interface(events: list[dict[str, Any]], said: Said) -> None:
    """Events of AG-UI and chunks of the AI SDK: texts and calls by their ids, each begun anew where it starts again."""
    texts: dict[Any, list[str]] = {}
    calls: dict[Any, list[str]] = {}
    for event in events:
        kind = event.get("type")
        if kind in ("text-start", "TEXT_MESSAGE_START"):
            said.texts.extend("".join(pieces) for pieces in [texts.pop(event.get("messageId", event.get("id")), [])])
        elif kind in ("text-delta", "TEXT_MESSAGE_CONTENT"):
            texts.setdefault(event.get("messageId", event.get("id")), []).append(event["delta"])
        elif kind == "TOOL_CALL_START":
            calls[event["toolCallId"]] = [event["toolCallName"]]
        elif kind == "TOOL_CALL_ARGS":
            calls.setdefault(event["toolCallId"], [""]).append(event["delta"])
        elif kind in ("MESSAGES_SNAPSHOT", "RUN_ERROR", "reset-step"):  # which may say something else
            texts.clear()
            calls.clear()
    said.texts.extend("".join(pieces) for pieces in texts.values())
    said.calls.extend(Call(ref, pieces[0], arguments_of("".join(pieces[1:]))) for ref, pieces in calls.items())
