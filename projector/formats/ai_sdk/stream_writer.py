"""Messages as the chunks of the AI SDK's UI message stream, one `start` to `finish` for each of the assistant's.

A stream has no other messages: what a user says stands in the client's own list. What chunks can't carry (the name of
a file, parts that are no chunks) is in the UIMessage only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.ai_sdk.parts import DATA, DYNAMIC, STEP, TOOL, WHOLE
from projector.formats.ai_sdk.writer import write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Message

_OF_TOOLS: Final = ("title", "toolMetadata", "providerExecuted")
_OF_APPROVALS: Final = {
    "requestReason": "reason", "descriptor": "approvalDescriptor", "inputSchemaInput": "inputSchemaInput",
    "isAutomatic": "isAutomatic", "signature": "signature",
}  # fmt: skip


def write_stream(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The chunks that give a client what the assistant says in these messages. Ids are derived as `write` does it."""
    return [chunk for message in write(messages).payload if message["role"] == "assistant" for chunk in _chunks(message)]


def _chunks(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    metadata = {"messageMetadata": message["metadata"]} if "metadata" in message else {}
    yield {"type": "start", "messageId": message["id"]} | metadata
    outputs: list[dict[str, Any]] = []
    in_step = False
    for number, part in enumerate(message["parts"]):
        if part["type"] == STEP:
            yield from _end_step(outputs, in_step=in_step)
            outputs, in_step = [], True
            yield {"type": "start-step"}
        else:
            yield from _part(part, f"{part['type']}-{number}", outputs)
    yield from _end_step(outputs, in_step=in_step)
    yield {"type": "finish"}


def _end_step(outputs: list[dict[str, Any]], *, in_step: bool) -> Iterator[dict[str, Any]]:
    """The tools of a step run when the model has said all."""
    yield from outputs
    if in_step:
        yield {"type": "finish-step"}


def _part(part: dict[str, Any], ref: str, outputs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    kind = part["type"]
    if kind in ("text", "reasoning"):
        ref = part.get("id", ref)
        more = {name: part[name] for name in ("citations", "providerMetadata") if name in part}
        yield {"type": f"{kind}-start", "id": ref}
        if part["text"]:
            yield {"type": f"{kind}-delta", "id": ref, "delta": part["text"]}
        if part.get("state") != "streaming":
            yield {"type": f"{kind}-end", "id": ref} | more
    elif kind == DYNAMIC or kind.startswith(TOOL):
        yield from _tool(part, outputs)
    elif kind in WHOLE or kind.startswith(DATA):  # a client refuses the whole stream for a chunk it does not know
        yield part


def _tool(part: dict[str, Any], outputs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    call, state = {"toolCallId": part["toolCallId"]}, part["state"]
    name = part["toolName"] if part["type"] == DYNAMIC else part["type"].removeprefix(TOOL)
    named = call | {"toolName": name} | {key: part[key] for key in _OF_TOOLS if key in part}
    named |= {"dynamic": True} if part["type"] == DYNAMIC else {}
    encoding = {"inputEncoding": part["inputEncoding"]} if "inputEncoding" in part else {}
    metadata = {"providerMetadata": part["callProviderMetadata"]} if "callProviderMetadata" in part else {}
    yield {"type": "tool-input-start"} | named | encoding
    written = part.get("rawInput")
    if isinstance(written, str) and written:
        yield {"type": "tool-input-delta"} | call | {"inputTextDelta": written}
    if state == "input-streaming":
        return
    if "input" not in part:
        error = {"input": written, "errorText": part.get("errorText", "")}
        yield {"type": "tool-input-error"} | named | error | metadata
        return
    yield {"type": "tool-input-available"} | named | {"input": part["input"]} | metadata
    yield from _approval(call, part.get("approval"))
    output = _output(call, part, state)
    if output is None:
        return
    if part.get("providerExecuted"):
        yield output | {"providerExecuted": True}
    else:
        outputs.append(output)


def _approval(call: dict[str, Any], approval: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    if approval is None:
        return
    asked = {theirs: approval[name] for name, theirs in _OF_APPROVALS.items() if name in approval}
    yield {"type": "tool-approval-request", "approvalId": approval["id"]} | call | asked
    if "approved" in approval:
        reason = {"reason": approval["reason"]} if "reason" in approval else {}
        yield {"type": "tool-approval-response", "approvalId": approval["id"], "approved": approval["approved"]} | reason


def _output(call: dict[str, Any], part: dict[str, Any], state: str) -> dict[str, Any] | None:
    metadata = {"providerMetadata": part["resultProviderMetadata"]} if "resultProviderMetadata" in part else {}
    if state == "output-available":
        return {"type": "tool-output-available"} | call | ({"output": part["output"]} if "output" in part else {}) | metadata
    if state == "output-error":
        return {"type": "tool-output-error"} | call | {"errorText": part.get("errorText", "")} | metadata
    return {"type": "tool-output-denied"} | call if state == "output-denied" else None
