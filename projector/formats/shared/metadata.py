"""What is noted of messages and goes back to the format it came from only: metadata in the names of the formats."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from projector.formats.shared.history import Loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Message

_OWN: Final = {
    "agui": "ag-ui",
    "ai-sdk": "ai-sdk",
    "anthropic": "anthropic",
    "chat": "chat",
    "langchain": "langchain",
    "responses": "openai",
}
"""The name under which a format keeps what no field of ours says; it is written back."""


def leftovers(messages: Sequence[Message], format_name: str) -> list[Loss]:
    """The metadata that a format has no place for, each name once."""
    counts = Counter(name for message in messages for name in message.metadata if name != _OWN[format_name])
    return [
        Loss(f"metadata {name!r} of {count} message{'s' if count > 1 else ''}: {format_name} has no place for it")
        for name, count in sorted(counts.items())
    ]
