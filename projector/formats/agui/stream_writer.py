"""Messages as the events of AG-UI, in an order that its client accepts: each run begins and ends, all is closed.

What events can't carry (media of a user, errors of tools, activities, what AG-UI itself added to a message) stands in
a MESSAGES_SNAPSHOT at the end. Order rules: `facts/clients.md` §3 of the design.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from projector.formats.agui.writer import write_runs
from projector.formats.outgoing.display import HINT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Message

_IN_EVENTS = {"id", "role", "name", "content", "toolCalls", "toolCallId", "encryptedValue", "metadata"}


def write_stream(messages: Sequence[Message], *, thread_id: str | None = None) -> list[dict[str, Any]]:
    """The events that give a client these messages, run by run; the last run may have calls that wait.

    Ids are derived as `agui.write` does it, the thread's is that of the first run unless it is given.
    """
    written = write_runs(messages).payload
    thread = thread_id or (written[0][0] if written else "empty")
    events: list[dict[str, Any]] = []
    for run_id, pieces in groupby(written, key=lambda item: item[0]):
        events.append({"type": "RUN_STARTED", "threadId": thread, "runId": run_id})
        events += [event for _, piece in pieces for event in _events(piece)]
        events.append({"type": "RUN_FINISHED", "threadId": thread, "runId": run_id})
    if any(_is_more_than_events(piece) for _, piece in written):
        events.insert(-1, {"type": "MESSAGES_SNAPSHOT", "messages": [piece for _, piece in written]})
    return events


def _events(piece: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One message. Whose work it is (`subagentRunId`) is left to the snapshot, for no event has begun a subagent."""
    ref, metadata = piece["id"], {"metadata": piece["metadata"]} if piece.get("metadata") else {}
    match piece["role"]:
        case "reasoning":
            yield {"type": "REASONING_START", "messageId": ref}
            yield {"type": "REASONING_MESSAGE_START", "messageId": ref, "role": "reasoning"} | metadata
            if piece["content"]:
                yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": ref, "delta": piece["content"]}
            yield {"type": "REASONING_MESSAGE_END", "messageId": ref}
            yield from _encrypted("message", ref, piece)
            yield {"type": "REASONING_END", "messageId": ref}
        case "tool":
            hint = metadata.get("metadata", {}).get(HINT) or ({"status": "error"} if "error" in piece else {})
            metadata = {"metadata": metadata.get("metadata", {}) | {HINT: hint}} if hint else metadata
            named = {"messageId": ref, "toolCallId": piece["toolCallId"], "role": "tool"}
            yield {"type": "TOOL_CALL_RESULT"} | named | {"content": piece["content"]} | metadata
        case "activity":
            known = {name: piece[name] for name in ("activityType", "content") if name in piece}
            yield {"type": "ACTIVITY_SNAPSHOT", "messageId": ref} | known
        case _:
            yield from _said(piece, metadata)
            for call in piece.get("toolCalls", ()):
                yield from _call(call, ref, metadata)


def _said(piece: dict[str, Any], metadata: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = piece.get("content")
    if content is None and "encryptedValue" not in piece:
        return
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    text = "".join(part.get("text", "") for part in parts)
    name = {"name": piece["name"]} if "name" in piece else {}
    yield {"type": "TEXT_MESSAGE_START", "messageId": piece["id"], "role": piece["role"]} | name | metadata
    if text:
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": piece["id"], "delta": text}
    yield from _encrypted("message", piece["id"], piece)
    yield {"type": "TEXT_MESSAGE_END", "messageId": piece["id"]}


def _call(call: dict[str, Any], parent: str, metadata: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A call; what groups messages of ours stands with it too, for its message may say nothing."""
    own, of_message = call.get("metadata", {}), metadata.get("metadata", {}).get(HINT)
    own |= {HINT: own.get(HINT, {}) | of_message} if of_message else {}
    named = {"toolCallId": call["id"], "toolCallName": call["function"]["name"], "parentMessageId": parent}
    yield {"type": "TOOL_CALL_START"} | named | ({"metadata": own} if own else {})
    yield {"type": "TOOL_CALL_ARGS", "toolCallId": call["id"], "delta": call["function"]["arguments"]}
    yield from _encrypted("tool-call", call["id"], call)
    yield {"type": "TOOL_CALL_END", "toolCallId": call["id"]}


def _encrypted(subtype: str, ref: str, holder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "encryptedValue" in holder:
        signer = holder.get("metadata", {}).get(HINT, {}).get("signer")
        hint = {"metadata": {HINT: {"signer": signer}}} if signer else {}
        named = {"subtype": subtype, "entityId": ref, "encryptedValue": holder["encryptedValue"]}
        yield {"type": "REASONING_ENCRYPTED_VALUE"} | named | hint


def _is_more_than_events(piece: dict[str, Any]) -> bool:
    has_media = piece["role"] != "tool" and isinstance(piece.get("content"), list)
    return has_media or bool(piece.keys() - _IN_EVENTS)
