"""What the plugins made of a history when its model was switched: a recorded choice, which holds until the next switch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast

import msgspec

from projector.context.tokens import content_of
from projector.context.tool_groups import SYNTHETIC, group
from projector.json_text import dump
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from projector.events import Role


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the path by its id, or what a plugin added: that has a role and a content of its own."""

    id: str
    role: str | None = None
    content: str | None = None


class Switched(msgspec.Struct, frozen=True):
    """What is shown of a path up to a switch of the model: `items` in their order, and nothing else up to `through`.

    `through` is the last message that was left out, None if none was; `left` is a fingerprint of all that were.
    """

    items: tuple[Shown, ...]
    through: str | None = None
    left: str = ""


def record_switch(whole: Sequence[Message], shown: Sequence[Message]) -> Switched:
    """What is to be remembered of a switch that shows this of a paired path."""
    groups = group(whole)
    heads = {messages[0].id for messages in groups}
    results = {message.id for messages in groups for message in messages[1:]}
    kept = {message.id for message in shown}
    through = next((messages[0].id for messages in reversed(groups) if messages[0].id not in kept), None)
    items = tuple(
        Shown(message.id) if message.id in heads else Shown(message.id, message.role, message.text)
        for message in shown
        if message.id not in results
    )
    return Switched(items, through, _fingerprint(_left_out(whole, through, kept) or []))


def apply_switch(whole: Sequence[Message], switched: Switched, origin: Sequence[Message]) -> list[Message]:
    """What a recorded switch shows of a paired path, and all that has come to it since.

    It says nothing of a path on which the last message that it left out does not stand, or none that it kept. What a
    plugin added is shown only as long as all that it may stand for says what it said: a redaction reaches it. `origin`
    is the paired path as it was said, where `whole` is a view of it.
    """
    groups = {messages[0].id: messages for messages in group(whole)}
    named = {item.id for item in switched.items if item.content is None}
    left = _left_out(origin, switched.through, named)
    if left is None or (switched.through is None and named and named.isdisjoint(groups)):
        return list(whole)
    has_added = any(item.content is not None for item in switched.items)
    is_same = has_added and _fingerprint(left) == switched.left
    kept: list[Message] = []
    for item in switched.items:
        if item.content is None:
            kept += groups.get(item.id, ())
        elif is_same:
            kept.append(_added(item, kept[-1] if kept else None))
    gone = {message.id for message in left}
    others = [message_id for message_id in groups if message_id not in named and message_id not in gone]
    places = {message_id: place for place, message_id in enumerate(groups)}
    first = min((places[message_id] for message_id in named & groups.keys()), default=0)
    ahead = [message for name in others if places[name] < first for message in groups[name]]  # what only the view has
    return ahead + kept + [message for name in others if places[name] >= first for message in groups[name]]


def _left_out(path: Sequence[Message], through: str | None, kept: Collection[str]) -> list[Message] | None:
    """All up to there but what was kept, and but results that only a view has; None where it does not stand on the path."""
    left: list[Message] = []
    if through is None:
        return left
    for messages in group(path):
        if messages[0].id not in kept:
            left += [message for message in messages if not message.id.startswith(SYNTHETIC)]
        if messages[0].id == through:
            return left
    return None


def _fingerprint(left: Sequence[Message]) -> str:
    digest = hashlib.sha256()
    for message in left:
        digest.update(dump([message.id, content_of(message)]).encode() + b"\n")
    return digest.hexdigest()


def _added(item: Shown, near: Message | None) -> Message:
    block = Block("text", text=item.content or "", sealed=True)
    parent_id, run_id, created_at, seq = (None, "", 0, 0) if near is None else (near.id, near.run_id, near.created_at, near.seq)
    return Message(item.id, parent_id, run_id, cast("Role", item.role or "user"), "complete", (block,), created_at, seq)
