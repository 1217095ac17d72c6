"""The path that a conversation is read by: the active one, or through other turns at its forks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ledger.tables import branches, conversations, messages
from ledger.tables.kept_paths import read_kept, read_last
from ledger.tables.texts import is_text
from projector.tree import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.tables.conversations import Position
    from ledger.tables.kept_paths import KeptPath
    from projector import Message
    from stream.database import Sql


class Read(NamedTuple):
    """Messages of a path, and the whole path where it was read and may be kept."""

    messages: Sequence[Message]
    path: KeptPath | None = None


async def read_path(
    sql: Sql,
    conversation: str,
    selections: Mapping[str, str],
    kept: KeptPath,
    end: Message | None = None,
    limit: int | None = None,
) -> Read:
    """The messages from the root to the leaf, or to the one ahead of `end`; with `limit` the last of them.

    `selections` are other turns at forks, `{parent: child}`; '' is the root. What is `kept` of an earlier read is not
    read again. Raises `LedgerDamaged`.
    """
    position = await conversations.position(sql, conversation)
    leaf = position.leaf if end is None else end.parent_id
    if position.orphans:
        path = await _scattered(sql, conversation, selections)
        ids = [message.id for message in path]
        if end is None or end.id in ids:
            path = path if end is None else path[: ids.index(end.id)]
            return Read(path[max(0, len(path) - limit) :] if limit is not None else path)
        # of another branch: what is ahead of it
    elif end is None and selections:
        leaf = await _leaf(sql, conversation, selections)
    return await _read_to(sql, conversation, position, leaf, kept, limit)


async def read_path_to(sql: Sql, conversation: str, leaf: str | None, kept: KeptPath) -> Read:
    """The messages from the root to a leaf. Raises `LedgerDamaged`."""
    return await _read_to(sql, conversation, await conversations.position(sql, conversation), leaf, kept, None)


async def _read_to(
    sql: Sql, conversation: str, position: Position, leaf: str | None, kept: KeptPath, limit: int | None
) -> Read:
    if leaf is None or limit == 0:
        return Read(())
    if limit is not None:
        return Read(await read_last(sql, conversation, position, leaf, limit, kept))
    path = await read_kept(sql, conversation, position, leaf, kept)
    return Read(path.messages, path)


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
