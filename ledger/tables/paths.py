"""The path that a conversation is read by: the active one, or through other turns at its forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.tables import branches, conversations, messages, walks
from ledger.tables.texts import is_text
from projector.tree import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projector import Message
    from stream.sqlite import Sql


async def read_path(
    sql: Sql, conversation: str, selections: Mapping[str, str], end: Message | None = None, limit: int | None = None
) -> list[Message]:
    """The messages from the root to the leaf, or to the one ahead of `end`; with `limit` the last of them.

    `selections` are other turns at forks, `{parent: child}`; '' is the root. Raises `LedgerDamaged`.
    """
    position = await conversations.position(sql, conversation)
    if position.orphans:
        path = await _scattered(sql, conversation, selections)
        ids = [message.id for message in path]
        if end is not None and end.id not in ids:  # of another branch: what is ahead of it
            return [] if end.parent_id is None else await walks.path(sql, conversation, end.parent_id, limit)
        path = path if end is None else path[: ids.index(end.id)]
        return path[max(0, len(path) - limit) :] if limit is not None else path
    leaf = position.leaf if end is None else end.parent_id
    if end is None and selections:
        leaf = await _leaf(sql, conversation, selections)
    return [] if leaf is None or limit == 0 else await walks.path(sql, conversation, leaf, limit)


async def _leaf(sql: Sql, conversation: str, selections: Mapping[str, str]) -> str | None:
    if len(selections) > branches.MAX_SELECTIONS:
        path = resolve(await messages.nodes(sql, conversation), selections)
        return path[-1] if path else None
    key = await conversations.key_of(sql, conversation)
    known = {parent: child for parent, child in selections.items() if is_text(parent) and is_text(child)}
    return None if key is None else await branches.descend(sql, key, None, known)


async def _scattered(sql: Sql, conversation: str, selections: Mapping[str, str]) -> list[Message]:
    """The path of a tree that has lost some of its roots: what hangs on them comes last."""
    ids = resolve(await messages.nodes(sql, conversation), selections)
    wanted = set(ids)
    found: dict[str, Message] = {}
    place: tuple[int, str] = (0, "")
    while rows := await messages.page(sql, conversation, place):
        for _, message_id, crc, body in rows:
            if message_id in wanted:
                found[message_id] = messages.read(conversation, message_id, crc, body)
        place = rows[-1][:2]
    return [found[message_id] for message_id in ids]
