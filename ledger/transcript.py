"""The committed messages of a conversation: its active path, any other one, and all of them as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ledger.errors import UnknownMessage
from projector import fork_points

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.engine import Engine
    from projector import ForkPoint, Message, Node


class Tree(NamedTuple):
    """The messages of a conversation as a tree, in the order of the log; `leaf` is the active one."""

    nodes: list[Node]
    forks: list[ForkPoint]
    leaf: str | None


async def read_transcript(
    engine: Engine,
    conversation: str,
    *,
    branch: Literal["active", "all"] = "active",
    selections: Mapping[str, str] | None = None,
    before: str | None = None,
    limit: int | None = None,
) -> list[Message]:
    """See `Ledger.transcript`."""
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be 0 or more, not {limit}")
    if branch not in ("active", "all"):
        raise ValueError(f"{branch!r} is no branch: use 'active' or 'all', or name turns by selections")
    await engine.read_up(conversation)
    end = None
    if before is not None:
        end = await engine.tables.message(conversation, before)
        if end is None:
            raise UnknownMessage(conversation, before)
    if branch == "all":
        return await engine.tables.last(conversation, end, -1 if limit is None else limit)
    return await _path(engine, conversation, selections or {}, end, limit)


async def read_tree(engine: Engine, conversation: str) -> Tree:
    """See `Ledger.tree`."""
    await engine.read_up(conversation)
    nodes = await engine.tables.nodes(conversation)
    return Tree(nodes, fork_points(nodes), (await engine.tables.position(conversation)).leaf)


async def _path(
    engine: Engine, conversation: str, selections: Mapping[str, str], end: Message | None, limit: int | None
) -> list[Message]:
    tables = engine.tables
    position = await tables.position(conversation)
    if position.orphans:
        path = await tables.scattered_path(conversation, selections)
        ids = [message.id for message in path]
        if end is not None and end.id not in ids:  # of another branch: what is ahead of it
            return [] if end.parent_id is None else await tables.path(conversation, end.parent_id, limit)
        path = path if end is None else path[: ids.index(end.id)]
        return path[max(0, len(path) - limit) :] if limit is not None else path
    leaf = await tables.leaf(conversation, selections) if selections else position.leaf
    leaf = leaf if end is None else end.parent_id
    return [] if leaf is None or limit == 0 else await tables.path(conversation, leaf, limit)
