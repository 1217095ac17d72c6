"""What may still come to a message after its end: annotations, citations, redactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from projector.draft import Refused, cite_block, read_patch, redacted_blocks
from projector.events import BlockAnnotated, MessageAnnotated, MessageRedacted

if TYPE_CHECKING:
    from projector.message import Message

Amendment = MessageAnnotated | MessageRedacted | BlockAnnotated


def amend_message(message: Message, body: Amendment) -> Message:
    """A committed message with an amendment. Raises `Refused`."""
    if isinstance(body, MessageAnnotated):
        return replace(message, metadata=message.metadata | read_patch(body))
    if isinstance(body, MessageRedacted):
        return replace(message, blocks=tuple(redacted_blocks(body)))
    if all(block.number != body.block for block in message.blocks):
        raise Refused(f"block {body.block} of {body.message_id} is unknown")
    return replace(
        message,
        blocks=tuple(cite_block(block, body) if block.number == body.block else block for block in message.blocks),
    )
