"""Messages as the events in which the Messages API would have streamed them.

Only what an assistant says is streamed. What Anthropic has no form for, or did not sign, has none here either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.anthropic.parts import known_block, write_block
from projector.formats.shared.makers import ANTHROPIC
from projector.formats.shared.payloads import maker_of
from projector.formats.shared.values import value_of
from projector.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Block, Message

_MAKERS: Final = (None, ANTHROPIC)
_TYPES: Final = {"text": "text", "reasoning": "thinking", "tool_call": "tool_use"}
_CALLS: Final = ("tool_call", "server_tool_call")


def write_stream(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The events of each message of an assistant, one response a message. A message that is not complete breaks off."""
    return [event for message in messages if message.role == "assistant" for event in _events(message)]


def _events(message: Message) -> Iterator[dict[str, Any]]:
    noted = {name: plain(text) for name, text in message.metadata_text.items()}
    head = {"id": message.provider_ref or f"msg_{message.id}", "type": "message", "role": "assistant", "content": []}
    usage = {"input_tokens": 0, "output_tokens": 0}
    shell = {"model": str(noted.get("model", "")), "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": head | shell}
    index = 0
    for block in map(known_block, message.blocks):
        said = _begun(block)
        if said is None:
            continue
        yield {"type": "content_block_start", "index": index, "content_block": said}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in _deltas(block))
        if not block.sealed:
            return
        yield {"type": "content_block_stop", "index": index}
        index += 1
    if message.status == "complete":
        called = any(block.kind == "tool_call" for block in message.blocks)
        reason = noted.get("stop_reason") or ("tool_use" if called else "end_turn")
        ended = {"stop_reason": reason, "stop_sequence": noted.get("stop_sequence")}
        yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 0}}
        yield {"type": "message_stop"}


def _begun(block: Block) -> dict[str, Any] | None:
    """The block as it begins: without what its deltas bring."""
    if maker_of(block) not in _MAKERS or (block.kind == "reasoning" and block.sealed and not block.signature):
        return None
    said = write_block(block) if block.sealed else {"type": _TYPES.get(block.kind)}
    if said is None or said["type"] is None:
        return None
    empty: dict[str, Any] = {}
    if block.kind == "text":
        empty = {"text": ""} | ({"citations": []} if said.get("citations") else {})
    elif block.kind == "reasoning":
        empty = {"thinking": "", "signature": ""}
    elif block.kind in _CALLS:
        empty = {"id": block.tool_call_id, "name": block.name, "input": {}}
    return said | empty


def _deltas(block: Block) -> Iterator[dict[str, Any]]:
    if block.kind == "text":
        said = write_block(block) or {} if block.sealed else {}
        yield from ({"type": "citations_delta", "citation": citation} for citation in said.get("citations", ()))
        if block.text:
            yield {"type": "text_delta", "text": block.text}
    elif block.kind == "reasoning":
        if block.text:
            yield {"type": "thinking_delta", "thinking": block.text}
        if block.signature:
            yield {"type": "signature_delta", "signature": block.signature}
    elif block.kind in _CALLS:
        text = block.text or block.input_text
        if text and value_of(text) != {}:
            yield {"type": "input_json_delta", "partial_json": text}
