"""Messages as the events in which ConverseStream would have streamed them.

Only what an assistant says is streamed. What Converse has no form for, or did not sign, has none here either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.bedrock.parts import payload_of, write_block
from projector.formats.bedrock.rules import RULES
from projector.formats.shared.payloads import maker_of, signer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Block, Message

_CALLS: Final = ("tool_call", "server_tool_call")


def write_stream(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The events of each message of an assistant, one response a message. A message that is not complete breaks off."""
    return [event for message in messages if message.role == "assistant" for event in _events(message)]


def _events(message: Message) -> Iterator[dict[str, Any]]:
    yield {"messageStart": {"role": "assistant"}}
    index = 0
    for block in message.blocks:
        if not _is_said(block):
            continue
        place = {"contentBlockIndex": index}
        if block.kind in _CALLS:
            server = {"type": "server_tool_use"} if block.kind == "server_tool_call" else {}
            start = {"toolUse": {"toolUseId": block.tool_call_id, "name": block.name} | server}
            yield {"contentBlockStart": place | {"start": start}}
        elif block.kind == "server_tool_result":
            yield {"contentBlockStart": place | {"start": payload_of(block)}}
        yield from ({"contentBlockDelta": place | {"delta": delta}} for delta in _deltas(block))
        if not block.sealed:
            return
        yield {"contentBlockStop": place}
        index += 1
    if message.status == "complete":
        called = any(block.kind == "tool_call" for block in message.blocks)
        yield {"messageStop": {"stopReason": "tool_use" if called else "end_turn"}}


def _is_said(block: Block) -> bool:
    if maker_of(block) not in (None, RULES.provider):
        return False
    if block.kind == "reasoning":
        return not block.sealed or (bool(block.signature) and signer_of(block) == RULES.provider)
    if not block.sealed:
        return block.kind in ("text", "tool_call")
    return block.kind in {"text", "redacted_reasoning", *_CALLS, "server_tool_result"} and write_block(block) is not None


def _deltas(block: Block) -> Iterator[dict[str, Any]]:
    if block.kind == "text" and block.text:
        yield {"text": block.text}
    elif block.kind == "reasoning":
        if block.text:
            yield {"reasoningContent": {"text": block.text}}
        if block.signature:
            yield {"reasoningContent": {"signature": block.signature}}
    elif block.kind == "redacted_reasoning":
        yield payload_of(block)
    elif block.kind in _CALLS and (given := block.text or block.input_text):
        yield {"toolUse": {"input": given}}
