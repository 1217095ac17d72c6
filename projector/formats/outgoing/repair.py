"""Histories that a provider takes: what is broken, cut off or of another provider is mended on the way out.

The messages themselves are never changed; each change is said. Source of what is demanded: the public documentation
that the validators of the formats name rule by rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from projector.formats.outgoing.pairing import pair, pair_server_tools
from projector.formats.outgoing.rules import Notes, Rules
from projector.formats.outgoing.sanitize import clean
from projector.formats.shared.history import Loss, text_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from projector.message import Message

SYSTEM: Final = ("system", "developer")
_REASONING: Final = ("reasoning", "redacted_reasoning")
_OPENING: Final = "[The conversation begins with the assistant.]"


class Mended(NamedTuple):
    """`repairs`: what was changed so that it is taken. `losses`: what this provider can't be told."""

    messages: tuple[Message, ...]
    repairs: tuple[Loss, ...]
    losses: tuple[Loss, ...]


def mend(messages: Iterable[Message], rules: Rules) -> Mended:
    """A path of messages, root first, such as the provider takes it. Mending twice changes nothing more.

    Afterwards all blocks are sealed and not blank, a tool's result is a message of its own (role `tool`) directly
    behind the assistant's message that calls, every call has exactly one, ids are unique, and text is well-formed.
    """
    notes = Notes()
    path = [clean(message, rules, notes) for message in _unique(_single_results(messages, notes), notes)]
    path = _without_empty(path, notes)
    if rules.server_tools_answered:
        path = pair_server_tools(path, notes)
    if rules.reasoning_leads:
        path = [_without_last_reasoning(message, notes) for message in path]
    path = _without_empty(path, notes)
    path = pair(path, rules, notes)
    if rules.alternate:
        path = _alternate(path, notes)
    if rules.begins_with_user:
        path = _begin_with_user(path, notes)
    if rules.trimmed_end:
        path = _trim_end(path, notes)
    return Mended(tuple(path), tuple(notes.repairs), tuple(notes.losses))


def _single_results(messages: Iterable[Message], notes: Notes) -> Iterator[Message]:
    """Each result as a message of its own: behind what an assistant says, before what anybody else says with it."""
    for message in messages:
        results = [block for block in message.blocks if block.kind == "tool_result"]
        rest = tuple(block for block in message.blocks if block.kind != "tool_result")
        if len(results) <= 1 and len(results) == len(message.blocks) and message.role == "tool":
            yield message
            continue
        if rest and message.role == "tool":
            notes.repair("a message of a tool has only results, the rest is not sent", message)
            rest = ()
        if results:
            notes.repair("results are sent as messages of their own", message)
        singles = [
            replace(message, id=f"{message.id}~r{number}", role="tool", blocks=(replace(result, number=0),), name=None)
            for number, result in enumerate(results)
        ]
        kept = [replace(message, blocks=rest)] if rest or not results else []
        yield from kept + singles if message.role == "assistant" else singles + kept


def _unique(messages: Iterable[Message], notes: Notes) -> list[Message]:
    """One message an id: the same once more is dropped, another one gets an id of its own."""
    given = list(messages)
    taken = {message.id for message in given}
    kept: dict[str, Message] = {}
    for message in given:
        first = kept.get(message.id)
        if first is None:
            kept[message.id] = message
        elif (first.role, first.blocks) == (message.role, message.blocks):
            notes.repair("the message is there twice and is sent once", message)
        else:
            own = next(name for name in (f"{message.id}~{n}" for n in range(2, len(given) + 2)) if name not in taken)
            taken.add(own)
            notes.repair(f"another message has this id, it is sent as {own}", message)
            kept[own] = replace(message, id=own)
    return list(kept.values())


def _without_empty(path: Sequence[Message], notes: Notes) -> list[Message]:
    for message in path:
        if not message.blocks:
            notes.repair("a message without content is not sent", message)
    return [message for message in path if message.blocks]


def _without_last_reasoning(message: Message, notes: Notes) -> Message:
    """Reasoning and what must follow it move together: alone, neither is taken."""
    blocks = list(message.blocks)
    while blocks and blocks[-1].kind in _REASONING:
        notes.repair("reasoning that nothing follows is not sent", message, blocks.pop())
    return message if len(blocks) == len(message.blocks) else replace(message, blocks=tuple(blocks))


def _alternate(path: Sequence[Message], notes: Notes) -> list[Message]:
    merged: list[Message] = []
    for message in path:
        before = merged[-1] if merged else None
        if before is None or before.role != message.role or message.role not in ("user", "assistant"):
            merged.append(message)
            continue
        notes.repair(f"it is sent as part of {before.id}, which has the same role", message)
        blocks = (replace(block, number=number) for number, block in enumerate((*before.blocks, *message.blocks)))
        merged[-1] = replace(before, blocks=tuple(blocks), status=message.status)
    return merged


def _begin_with_user(path: Sequence[Message], notes: Notes) -> list[Message]:
    at = next((at for at, message in enumerate(path) if message.role not in SYSTEM), len(path))
    if at == len(path) or path[at].role == "user":
        return list(path)
    first = path[at]
    notes.repair("a user's message is sent before it, for a conversation begins with the user", first)
    said = replace(first, id=f"{first.id}~0", role="user", status="complete", blocks=(text_block(_OPENING),), name=None)
    return [*path[:at], replace(said, provider_ref=None, metadata_text={}, unknown=()), *path[at:]]


def _trim_end(path: Sequence[Message], notes: Notes) -> list[Message]:
    """A last message of the assistant is continued by the model, and must not end with white space."""
    if not path or path[-1].role != "assistant" or path[-1].blocks[-1].kind != "text":
        return list(path)
    message, block = path[-1], path[-1].blocks[-1]
    if block.text == block.text.rstrip():
        return list(path)
    notes.repair("white space at the end of the last message is not sent", message, block)
    return [*path[:-1], replace(message, blocks=(*message.blocks[:-1], replace(block, text=block.text.rstrip())))]
