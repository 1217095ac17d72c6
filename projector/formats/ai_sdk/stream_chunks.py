"""The chunks that a part of a UIMessage becomes, and a UIMessage that is known whole as events of ours to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.ai_sdk.parts import DATA, DYNAMIC, STEP, TOOL, WHOLE
from projector.json_text import raw

if TYPE_CHECKING:
    from collections.abc import Iterator

Chunks = list[dict[str, Any]]
RESET: Final = "reset-step"
_NEW: Final = ("tool-approval-response", "reasoning-file", "custom", "steering-message")
"""What a client of the AI SDK 6 does not know yet: it refuses the whole stream for one such chunk."""
_OF_TOOLS: Final = ("title", "toolMetadata", "providerExecuted")
_OF_APPROVALS: Final = {
    "requestReason": "reason", "descriptor": "approvalDescriptor", "inputSchemaInput": "inputSchemaInput",
    "isAutomatic": "isAutomatic", "signature": "signature",
}  # fmt: skip
_REASONS: Final = {
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool-calls", "tool_calls": "tool-calls",
    "content_filter": "content-filter", "refusal": "content-filter",
} | {name: name for name in ("stop", "length", "content-filter", "tool-calls", "error", "other")}  # fmt: skip
"""Why a model stopped, in the words of the AI SDK, whose client refuses any other."""


def for_version_6(chunks: Chunks) -> Chunks:
    """The same without what only version 7 knows; that a run was interrupted is told as another reason to finish.

    A `reset-step` stays: there is no other way to say it, so whoever sends this must not go on with it.
    """
    known = [chunk for chunk in chunks if chunk["type"] not in _NEW]
    return [chunk | {"finishReason": "other"} if chunk.get("finishReason") == "interrupted" else chunk for chunk in known]


def is_tool(part: dict[str, Any]) -> bool:
    """Whether a part is a call with its result."""
    return part["type"] == DYNAMIC or str(part["type"]).startswith(TOOL)


def is_chunk(part: dict[str, Any]) -> bool:
    """Whether a part is a chunk as it is. A client refuses the whole stream for a chunk it does not know."""
    return part["type"] in WHOLE or str(part["type"]).startswith(DATA)


def text_end(part: dict[str, Any], ref: str) -> dict[str, Any]:
    """Text or reasoning is whole."""
    more = {name: part[name] for name in ("citations", "providerMetadata") if name in part}
    return {"type": f"{part['type']}-end", "id": ref} | more


def tool_start(part: dict[str, Any]) -> dict[str, Any]:
    """A call begins."""
    encoding = {"inputEncoding": part["inputEncoding"]} if "inputEncoding" in part else {}
    return {"type": "tool-input-start"} | _named(part) | encoding


def tool_input(part: dict[str, Any]) -> dict[str, Any]:
    """The input of a call is whole, or is no JSON."""
    metadata = {"providerMetadata": part["callProviderMetadata"]} if "callProviderMetadata" in part else {}
    if "input" not in part:
        error = {"input": part.get("rawInput"), "errorText": part.get("errorText", "")}
        return {"type": "tool-input-error"} | _named(part) | error | metadata
    return {"type": "tool-input-available"} | _named(part) | {"input": part["input"]} | metadata


def asked(part: dict[str, Any]) -> Chunks:
    """That a person was asked about a call, and what they said if they did."""
    approval: dict[str, Any] | None = part.get("approval")
    if approval is None:
        return []
    call = {"toolCallId": part["toolCallId"]}
    said = {theirs: approval[name] for name, theirs in _OF_APPROVALS.items() if name in approval}
    request = {"type": "tool-approval-request", "approvalId": approval["id"]} | call | said
    if "approved" not in approval:
        return [request]
    reason = {"reason": approval["reason"]} if "reason" in approval else {}
    answer = {"type": "tool-approval-response", "approvalId": approval["id"], "approved": approval["approved"]}
    return [request, answer | reason]


def output(part: dict[str, Any]) -> dict[str, Any] | None:
    """What became of a call."""
    call, state = {"toolCallId": part["toolCallId"]}, part["state"]
    metadata = {"providerMetadata": part["resultProviderMetadata"]} if "resultProviderMetadata" in part else {}
    if state == "output-available":
        return {"type": "tool-output-available"} | call | ({"output": part["output"]} if "output" in part else {}) | metadata
    if state == "output-error":
        return {"type": "tool-output-error"} | call | {"errorText": part.get("errorText", "")} | metadata
    return {"type": "tool-output-denied"} | call if state == "output-denied" else None


def finish_chunk(outcome: str, reason: str | None, usage: dict[str, ev.RunUsage]) -> dict[str, Any]:
    """The end of a UIMessage, with the tokens of all its requests."""
    known = "interrupted" if outcome == "incomplete" else _REASONS.get(reason or "")
    names = {"inputTokens": "input", "outputTokens": "output", "cachedInputTokens": "cached", "reasoningTokens": "reasoning"}
    counts = {theirs: [getattr(used, ours) for used in usage.values()] for theirs, ours in names.items()}
    totals = {name: sum(n for n in found if n is not None) for name, found in counts.items() if set(found) - {None}}
    metadata = {"messageMetadata": {"totalUsage": totals}} if totals else {}
    return {"type": "finish"} | ({"finishReason": known} if known else {}) | metadata


def message_bodies(message: dict[str, Any]) -> Iterator[ev.Body]:
    """A UIMessage that is known whole, as the events that a writer who expects it makes it of."""
    ref = message["id"]
    yield ev.MessageStarted(ref, ref, "assistant")
    results: list[ev.Body] = []  # the tools of a step run when the model has said all
    for number, part in enumerate(message["parts"]):
        if part["type"] == STEP:
            yield from results
            results = []
        elif not is_tool(part):
            yield from _block(ref, number, _kind(part), part.get("text", ""), is_whole=part.get("state") != "streaming")
        else:
            yield from _tool(ref, number, part, results)
    yield from results
    yield ev.MessageFinished(ref, "complete")


def _tool(ref: str, number: int, part: dict[str, Any], results: list[ev.Body]) -> Iterator[ev.Body]:
    call, state, by_provider = part["toolCallId"], part["state"], bool(part.get("providerExecuted"))
    written = part.get("rawInput")
    text = written if isinstance(written, str) else ""
    kind: ev.Kind = "server_tool_call" if by_provider else "tool_call"
    yield from _block(ref, number, kind, text, call, is_whole=state != "input-streaming")
    if state == "input-streaming" or "input" not in part:
        return
    if "approval" in part:
        yield ev.ToolApproval(call, part["approval"]["id"], part["approval"].get("approved"))
    if output(part) is None:
        return
    if by_provider:
        yield from _block(ref, -1 - number, "server_tool_result", "", call, is_whole=True)
    else:
        results.append(ev.ToolResult(ref, f"{ref}/{number}", call, "ok", raw("[]")))


def _block(
    ref: str, number: int, kind: ev.Kind, text: str, tool_call_id: str | None = None, *, is_whole: bool
) -> Iterator[ev.Body]:
    yield ev.BlockStarted(ref, number, kind, None, tool_call_id)
    if text:
        yield ev.BlockDelta(ref, number, text)
    if is_whole:
        yield ev.BlockSealed(ref, number)


def _kind(part: dict[str, Any]) -> ev.Kind:
    return "text" if part["type"] == "text" else "reasoning" if part["type"] == "reasoning" else "provider"


def _named(part: dict[str, Any]) -> dict[str, Any]:
    is_dynamic = part["type"] == DYNAMIC
    name = part["toolName"] if is_dynamic else part["type"].removeprefix(TOOL)
    named = {"toolCallId": part["toolCallId"], "toolName": name}
    named |= {key: part[key] for key in _OF_TOOLS if key in part}
    return named | ({"dynamic": True} if is_dynamic else {})
