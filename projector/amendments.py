"""What may still come to a message after its end: annotations, citations, redactions, approvals of its tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from projector.events import BlockAnnotated, MessageAnnotated, MessageRedacted, ToolApproval
from projector.run_draft import Refused, approve_block, cite_block, is_call, read_patch, redacted_blocks

if TYPE_CHECKING:
    from projector.message import Message

Amendment = MessageAnnotated | MessageRedacted | BlockAnnotated | ToolApproval


def amend_message(message: Message, body: Amendment) -> Message:
    """A message of a run that ended, with an amendment. Raises `Refused`."""
    if isinstance(body, MessageAnnotated):
        return replace(message, metadata_text=message.metadata_text | read_patch(body))
    if isinstance(body, MessageRedacted):
        return replace(message, blocks=tuple(redacted_blocks(body)))
    if isinstance(body, ToolApproval):
        return replace(message, blocks=tuple(approve_block(block, body) for block in message.blocks))
    if all(block.number != body.block for block in message.blocks):
        raise Refused(f"block {body.block} of {body.message_id} is unknown")
    return replace(
        message,
        blocks=tuple(cite_block(block, body) if block.number == body.block else block for block in message.blocks),
    )


def asks_for(message: Message, tool_call_id: str) -> bool:
    """Whether a message makes this tool call."""
    return any(is_call(block, tool_call_id) for block in message.blocks)
