"""What a history plugin sees of messages, and how what it returns becomes messages again.

A plugin sees `{"id", "role": "user" | "assistant", "content": str}`. A tool group is one item, that of the assistant
message which calls: no tool turn ever reaches a plugin. An item that comes back as it was stands for its messages, with
all their blocks; any other item is plain text that the plugin added.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, cast

from projector.context.tokens import result_text
from projector.context.tool_groups import group
from projector.json_text import dump
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from projector.events import Role

Item = dict[str, str]
ADDED: Final = "added:"
"""How the ids of messages begin that a plugin added without an id of its own."""
MOST_ADDED: Final = 100_000
"""How many items more than it was given a plugin may return; a window holds far fewer."""
_ROLES: Final = ("user", "assistant")


class BadItems(ValueError):
    """What a plugin returned is no history; the message says why, without quoting any content."""


def fold_items(history: Sequence[Message]) -> list[Item]:
    """The items of a paired history, each a new one. The content of a tool group names its calls and their results."""
    return [_item(messages) for messages in group(history)]


def unfold_items(
    returned: object,
    history: Sequence[Message],
    plugin: str,
    *,
    items: Sequence[Item] | None = None,
    reserved: Collection[str] = (),
) -> list[Message]:
    """The messages that the items of a plugin stand for; `history` is what it was given, `items` are its items.

    What it added, or gave another content, becomes a plain-text message. One without an id, or with an id of a message
    it was given or of the `reserved` ones, gets an id that depends on the plugin and on what is said alone, so that it
    is the same in each turn. Raises `BadItems` for what is no list, for far more items than there were, for an item that
    is none, and for one that comes twice.
    """
    if not isinstance(returned, list):
        raise BadItems(f"it returned {type(returned).__name__}, not a list")
    if len(returned) > len(history) + MOST_ADDED:
        raise BadItems(f"it returned {len(returned):,} items, and was given {len(history):,}")
    groups = {messages[0].id: messages for messages in group(history)}
    known = {item["id"]: item for item in (fold_items(history) if items is None else items)}
    results = {message.id for message in history} - groups.keys()
    taken: set[str] = set()
    same_words: dict[tuple[str, str], _Words] = {}
    made: list[Message] = []
    near = history[0] if history else None
    for place, item in enumerate(returned):
        checked = _checked(item, place)
        same = groups.get(checked.get("id", ""))
        if same is not None and checked == known[same[0].id]:
            messages = same
        else:
            message_id = checked.get("id", "")
            is_own = bool(message_id) and same is None and message_id not in results and message_id not in reserved
            if not is_own:
                said = checked["role"], checked["content"]
                if said not in same_words:
                    same_words[said] = _Words(plugin, *said)
                message_id = same_words[said].name(taken, groups)
            messages = [_added(message_id, checked, near)]
        if messages[0].id in taken:
            raise BadItems(f"item {place} of what it returned has the id of one before it")
        taken.update(message.id for message in messages)
        made += messages
        near = messages[-1]
    return made


def _checked(item: object, place: int) -> Item:
    if not isinstance(item, dict):
        raise BadItems(f"item {place} of what it returned is {type(item).__name__}, not a dict")
    if item.get("role") not in _ROLES:
        raise BadItems(f"item {place} of what it returned has another role than user or assistant")
    if not isinstance(item.get("content"), str):
        raise BadItems(f"item {place} of what it returned has no content that is text")
    if not isinstance(item.get("id", ""), str):
        raise BadItems(f"item {place} of what it returned has an id that is no text")
    return {name: str(item[name]) for name in ("id", "role", "content") if item.get(name) is not None}


def _item(messages: Sequence[Message]) -> Item:
    first = messages[0]
    content = first.text if len(messages) == 1 else "\n".join(part for part in _told(messages) if part)
    return {"id": first.id, "role": first.role, "content": content}


def _told(messages: Sequence[Message]) -> list[str]:
    """What is said in a tool group: the text, each call with its input, each result."""
    first = messages[0]
    calls = [
        f"{block.name or 'tool'}({block.text or block.input_text or ''})" for block in first.blocks if block.kind == "tool_call"
    ]
    results = [result_text(block) for message in messages[1:] for block in message.blocks if block.kind == "tool_result"]
    return [first.text, *calls, *results]


class _Words:
    """The ids of what a plugin says in the same words, once or many times."""

    def __init__(self, plugin: str, role: str, content: str) -> None:
        digest = hashlib.sha256(dump([plugin, role, content]).encode()).hexdigest()
        self._first, self._times = f"{ADDED}{digest[:16]}", 0

    def name(self, taken: Collection[str], given: Collection[str]) -> str:
        """The next id that is free; it goes on where it stopped, or many equal items would cost their square."""
        while True:
            self._times += 1
            made = self._first if self._times == 1 else f"{self._first}:{self._times}"
            if made not in taken and made not in given:
                return made


def _added(message_id: str, item: Item, near: Message | None) -> Message:
    said = Block("text", text=item["content"], sealed=True)
    parent_id, run_id, created_at, seq = (None, "", 0, 0) if near is None else (near.id, near.run_id, near.created_at, near.seq)
    return Message(message_id, parent_id, run_id, cast("Role", item["role"]), "complete", (said,), created_at, seq)
