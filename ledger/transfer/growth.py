"""Whether what a file says is what the ledger holds of it, a part of that, or more: a file may have grown since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector.json_text import decode

if TYPE_CHECKING:
    from projector import Message
    from projector.json_text import JsonText


def is_part(some: Message, whole: Message) -> bool:
    """Whether the one was read before all of the other was written: it broke off, or its last blocks were missing."""
    count = len(some.blocks)
    if some.role != whole.role or count > len(whole.blocks):
        return False
    if some.blocks == whole.blocks[:count]:
        return count < len(whole.blocks) or (some.status, whole.status) == ("partial", "complete")
    torn, other = some.blocks[-1], whole.blocks[count - 1]
    is_same = (torn.kind, torn.tool_call_id) == (other.kind, other.tool_call_id) and some.blocks[:-1] == whole.blocks[
        : count - 1
    ]
    return some.status == "partial" and is_same and (torn.kind == "tool_call" or other.text.startswith(torn.text))


def adds(held: JsonText | None, said: JsonText) -> bool:
    """Whether a note says more than one that is there, which may be another one that somebody made here."""
    if held is None or held == said:
        return held is None
    some, more = decode(held), decode(said)
    return isinstance(some, list) and isinstance(more, list) and more[: len(some)] == some
