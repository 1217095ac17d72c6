"""Instructions for providers that take one system prompt, which is no message: they are sent before the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector.formats.outgoing.repair import SYSTEM
from projector.formats.shared.history import Loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Message


def lead_with_instructions(messages: Sequence[Message]) -> tuple[list[Message], list[Loss]]:
    """The messages with all instructions first, and a word of each that stood inside the conversation."""
    first = [message for message in messages if message.role in SYSTEM]
    rest = [message for message in messages if message.role not in SYSTEM]
    begun = next((at for at, message in enumerate(messages) if message.role not in SYSTEM), len(messages))
    moved = [message for message in messages[begun:] if message.role in SYSTEM]
    return first + rest, [Loss("an instruction inside the conversation is sent before it", each.id) for each in moved]
