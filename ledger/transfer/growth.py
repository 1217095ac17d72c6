"""Whether what a file says is what the ledger holds of it, a part of that, or more: a file may have grown since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector.json_text import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector import Message
    from projector.json_text import JsonText


def is_same(one: Message, other: Message) -> bool:
    """Whether two messages say the same."""
    return (one.role, one.blocks) == (other.role, other.blocks)


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


def is_newer(held: Sequence[Message], said: Sequence[Message], ahead: Message | None) -> bool:
    """Whether a message of the file, which goes over several of ours, is told in a newer form than the one that is held.

    Both are what comes from the first difference on, and have the id that the file has for it; `ahead` is what stands
    before, which a result at the beginning belongs to.
    """
    own = _names(ahead) if said[0].role == "tool" and ahead is not None else _names(said[0])
    return bool(own) and all(each.role == "tool" or _names(each) & own for each in held)


def adds(held: JsonText | None, said: JsonText) -> bool:
    """Whether a note says more than one that is there, which may be another one that somebody made here."""
    return held is None or (held != said and _has_grown(decode(held), decode(said)))


def _has_grown(some: object, more: object) -> bool:
    """Whether a list got longer at its end, or an object more members or some that grew."""
    if isinstance(some, list) and isinstance(more, list):
        return more[: len(some)] == some
    if isinstance(some, dict) and isinstance(more, dict):
        return all(name in more and (more[name] == value or _has_grown(value, more[name])) for name, value in some.items())
    return False


def _names(message: Message) -> set[str]:
    """What a program that keeps messages over several of ours calls this one, as its format notes it."""
    notes = [decode(text) for text in message.metadata_text.values() if text[:1] in "{["]
    shells = [shell for note in notes for shell in (note if isinstance(note, list) else [note])]
    return {shell["id"] for shell in shells if isinstance(shell, dict) and isinstance(shell.get("id"), str)}
