"""What is noted of messages and goes back to the format it came from only: metadata in the names of the formats."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from projector.formats.outgoing.unicode import mend_json
from projector.formats.shared.history import Loss
from projector.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.formats.format import Format
    from projector.message import Message


def leftovers(messages: Sequence[Message], target: Format) -> list[Loss]:
    """The metadata that a format has no place for, each name once."""
    counts = Counter(name for message in messages for name in message.metadata_text if name != target.metadata)
    return [
        Loss(f"metadata {name!r} of {count} message{'s' if count > 1 else ''}: {target.name} has no place for it")
        for name, count in sorted(counts.items())
    ]


def extra_of(message: Message, name: str, repairs: list[Loss]) -> dict[str, Any]:
    """The fields of a message that have no other place, such as text may be sent."""
    text, count = mend_json(message.metadata_text.get(name, "{}"), refuse_nul=True)
    if count:
        repairs.append(Loss(f"characters that no text may have were replaced: {count}", message.id))
    fields: dict[str, Any] = plain(text)
    return fields
