"""The events of AG-UI that a piece of a message becomes, and the messages of AG-UI as events of ours to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.outgoing.display import HINT
from projector.json_text import raw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.formats.shared.live import GrowingBlock

WITHDRAWN: Final = f"{HINT}.withdrawn"
"""Of CUSTOM: messages of which what had gone out counts no longer."""
_IN_EVENTS: Final = {"id", "role", "name", "content", "toolCalls", "toolCallId", "encryptedValue", "metadata"}
_USAGE: Final = {
    "inputTokens": "input", "outputTokens": "output", "cachedInputTokens": "cached", "cacheWriteInputTokens": "cache_write",
    "reasoningTokens": "reasoning",
}  # fmt: skip
_INTERRUPT: Final = {"tool_call_id": "toolCallId", "schema": "responseSchema"}


def text_start(ref: str, role: str, name: str | None, metadata: dict[str, Any]) -> dict[str, Any]:
    """A text message begins."""
    named = {"name": name} if name is not None else {}
    return {"type": "TEXT_MESSAGE_START", "messageId": ref, "role": role} | named | _noted(metadata)


def thought_start(ref: str, metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Reasoning begins, which is a phase and a message in it."""
    return [
        {"type": "REASONING_START", "messageId": ref},
        {"type": "REASONING_MESSAGE_START", "messageId": ref, "role": "reasoning"} | _noted(metadata),
    ]


def call_start(ref: str, name: str, parent: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """A tool call begins."""
    named = {"toolCallId": ref, "toolCallName": name, "parentMessageId": parent}
    return {"type": "TOOL_CALL_START"} | named | _noted(metadata)


def content(block: GrowingBlock, text: str) -> dict[str, Any]:
    """A piece of what a block says."""
    if block.kind == "tool_call":
        return {"type": "TOOL_CALL_ARGS", "toolCallId": block.ref, "delta": text}
    kind = "REASONING_MESSAGE_CONTENT" if block.kind == "reasoning" else "TEXT_MESSAGE_CONTENT"
    return {"type": kind, "messageId": block.ref, "delta": text}


def ends(block: GrowingBlock) -> list[dict[str, Any]]:
    """What a block that began ends with; some blocks have no events at all."""
    if block.kind == "tool_call":
        return [{"type": "TOOL_CALL_END", "toolCallId": block.ref}]
    if block.kind == "reasoning":
        return [{"type": kind, "messageId": block.ref} for kind in ("REASONING_MESSAGE_END", "REASONING_END")]
    return [{"type": "TEXT_MESSAGE_END", "messageId": block.ref}]


def encrypted(subtype: str, ref: str, holder: dict[str, Any]) -> list[dict[str, Any]]:
    """The encrypted value of a message or call, if it has one, and who made it."""
    if "encryptedValue" not in holder:
        return []
    signer = holder.get("metadata", {}).get(HINT, {}).get("signer")
    hint = {"metadata": {HINT: {"signer": signer}}} if signer else {}
    named = {"subtype": subtype, "entityId": ref, "encryptedValue": holder["encryptedValue"]}
    return [{"type": "REASONING_ENCRYPTED_VALUE"} | named | hint]


def whole(piece: dict[str, Any]) -> list[dict[str, Any]]:
    """A message that is one event: a tool's result, an activity."""
    if piece["role"] == "activity":
        known = {name: piece[name] for name in ("activityType", "content") if name in piece}
        return [{"type": "ACTIVITY_SNAPSHOT", "messageId": piece["id"]} | known]
    metadata = piece.get("metadata") or {}
    hint = metadata.get(HINT) or ({"status": "error"} if "error" in piece else {})
    named = {"messageId": piece["id"], "toolCallId": piece["toolCallId"], "role": "tool", "content": piece["content"]}
    return [{"type": "TOOL_CALL_RESULT"} | named | _noted(metadata | ({HINT: hint} if hint else {}))]


def usage_of(body: ev.RunUsage) -> dict[str, Any]:
    """Tokens of one request: totals, as with us."""
    counts = {theirs: getattr(body, ours) for theirs, ours in _USAGE.items()}
    return {name: count for name, count in counts.items() if count is not None}


def interrupt(asked: dict[str, Any]) -> dict[str, Any]:
    """A question to a person."""
    return {_INTERRUPT.get(name, name): value for name, value in asked.items() if value is not None}


def withdrawn(message_ids: list[str]) -> list[dict[str, Any]]:
    """For what was taken back after it had gone out AG-UI has no event of its own."""
    return [{"type": "CUSTOM", "name": WITHDRAWN, "value": {"messageIds": message_ids}}] if message_ids else []


def message_bodies(run_id: str, piece: dict[str, Any]) -> Iterator[ev.Body]:
    """A message of AG-UI that is known whole, as the events that a writer who expects it makes it of."""
    ref, role = piece["id"], piece["role"]
    if role == "tool":
        yield ev.ToolResult(run_id, ref, piece["toolCallId"], "ok", raw("[]"))
        return
    started: ev.Role = "assistant" if role in ("reasoning", "activity") else role
    yield ev.MessageStarted(run_id, ref, started, piece.get("name"))
    said = piece.get("content")
    if role == "activity":
        yield ev.BlockStarted(ref, 0, "provider")
        yield ev.BlockSealed(ref, 0)
    elif said is not None or "encryptedValue" in piece:
        parts = said if isinstance(said, list) else [{"text": said or ""}]
        yield from _block(ref, 0, "reasoning" if role == "reasoning" else "text", "".join(p.get("text", "") for p in parts))
    for number, call in enumerate(piece.get("toolCalls", ()), 1):
        function = call["function"]
        yield from _block(ref, number, "tool_call", function["arguments"], function["name"], call["id"])
    yield ev.MessageFinished(ref, "complete")


def is_more_than_events(piece: dict[str, Any]) -> bool:
    """Whether a message of AG-UI has something that no event of a stream says."""
    has_media = piece["role"] != "tool" and isinstance(piece.get("content"), list)
    return has_media or bool(piece.keys() - _IN_EVENTS)


def _block(
    ref: str, number: int, kind: ev.Kind, text: str, name: str | None = None, tool_call_id: str | None = None
) -> Iterator[ev.Body]:
    yield ev.BlockStarted(ref, number, kind, name, tool_call_id)
    if text:
        yield ev.BlockDelta(ref, number, text)
    yield ev.BlockSealed(ref, number)


def _noted(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": metadata} if metadata else {}
