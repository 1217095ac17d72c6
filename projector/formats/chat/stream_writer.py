"""Messages as the chunks in which Chat Completions would have streamed them.

Only what an assistant says is streamed. Server tools and what only another provider can read have no form here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.chat.parts import DETAILS, EXTRA, PLAIN_REASONING, PROVIDER, THINKING, write_detail, write_text
from projector.formats.shared.payloads import payload_for
from projector.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Block, Message

_REASON: Final = "finish_reason"
_SAID: Final = ("text", "refusal")


def write_stream(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The chunks of each message of an assistant, one completion a message; `[DONE]` is for the transport to send.

    A message that is not complete breaks off, as it did.
    """
    return [chunk for message in messages if message.role == "assistant" for chunk in _chunks(message)]


def _chunks(message: Message) -> Iterator[dict[str, Any]]:
    noted = {name: plain(text) for name, text in message.metadata_text.items() if name != EXTRA}
    reason = noted.pop(_REASON, None)
    head = {"id": message.provider_ref or f"chatcmpl-{message.id}", "object": "chat.completion.chunk"}
    always = {"created": noted.pop("created", message.created_at // 1000), "model": noted.pop("model", "")}

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return head | always | {"choices": [{"index": 0, "delta": delta, _REASON: finish_reason}]}

    yield chunk({"role": "assistant", "content": ""}) | noted
    calls = 0
    for block in message.blocks:
        if block.kind == "tool_call":
            yield from (chunk({"tool_calls": [fragment]}) for fragment in _call(block, calls))
            calls += 1
        else:
            yield from map(chunk, _deltas(block))
    if message.status == "complete":
        yield chunk({}, reason or ("tool_calls" if calls else "stop"))


def _deltas(block: Block) -> Iterator[dict[str, Any]]:
    if block.kind == "text":
        part = write_text(block)
        yield {"content": block.text if part.keys() == {"type", "text"} else [part]}
        sources = [plain(citation).get("source") for citation in block.citations]
        if sources:
            yield {"annotations": sources}
    elif block.kind == "refusal":
        yield {"refusal": block.text}
    elif block.provider_ref == DETAILS:
        yield {DETAILS: [write_detail(block)]}
    elif block.kind == "reasoning" and block.provider_ref == THINKING:
        rest = plain(payload_for(block, PROVIDER) or "{}")
        yield {"content": [{"type": THINKING, THINKING: [{"type": "text", "text": block.text}]} | rest]}
    elif block.kind == "reasoning" and block.text:
        yield {block.provider_ref if block.provider_ref in PLAIN_REASONING else PLAIN_REASONING[0]: block.text}
    elif block.kind in ("media", "provider"):
        yield from _own(block)


def _own(block: Block) -> Iterator[dict[str, Any]]:
    payload = payload_for(block, PROVIDER)
    if block.provider_ref == "audio":
        yield {"audio": plain(payload or "{}") | block.fields}
    elif payload is not None:
        yield {"content": [plain(payload)]}


def _call(block: Block, index: int) -> Iterator[dict[str, Any]]:
    """A call begins with its id and name; its arguments follow."""
    rest = plain(payload_for(block, PROVIDER) or "{}")
    kind = rest.pop("type", "function")
    name, text = ("input", block.text) if kind == "custom" else ("arguments", block.text or block.input_text or "")
    yield {"index": index, "id": block.tool_call_id, "type": kind, kind: {"name": block.name, name: ""}} | rest
    if text:
        yield {"index": index, kind: {name: text}}
