"""The committed messages of a conversation: its active path, any other one, and all of them as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ledger.checks import check_limit, check_selections
from ledger.errors import UnknownMessage
from ledger.tables import messages
from ledger.tables.conversations import position
from ledger.tables.paths import Read, read_path
from projector import fork_points
from projector.tree import turns_of
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.engine import Engine
    from projector import ForkPoint, Message, Node
    from stream.database import Sql


class Tree(NamedTuple):
    """The messages of a conversation as a tree, in the order of the log; `leaf` is the active one."""

    nodes: list[Node]
    forks: list[ForkPoint]
    leaf: str | None


async def read_transcript(
    engine: Engine,
    conversation: str,
    *,
    branch: Literal["active", "all"] | Mapping[str, str] = "active",
    selections: Mapping[str, str] | None = None,
    before: str | None = None,
    limit: int | None = None,
) -> list[Message]:
    """See `Ledger.transcript`."""
    check_limit("limit", limit)
    check_selections("selections", selections)
    if before is not None:
        check_id("before", before)
    if not isinstance(branch, str) or branch not in ("active", "all"):
        selections = turns_of(branch) | dict(selections or {})
    await engine.read_up(conversation)
    kept = engine.tables.kept.find(conversation)

    async def job(sql: Sql) -> Read:
        end = None if before is None else await messages.message(sql, conversation, before)
        if before is not None and end is None:
            raise UnknownMessage(conversation, before)
        if branch == "all":
            return Read(await messages.last(sql, conversation, end, limit))
        return await read_path(sql, conversation, selections or {}, kept, end, limit)

    found, path = await engine.tables.look(job)
    if path is not None:
        engine.tables.kept.put(conversation, path)
    return list(found)


async def read_tree(engine: Engine, conversation: str) -> Tree:
    """See `Ledger.tree`."""
    await engine.read_up(conversation)

    async def job(sql: Sql) -> Tree:
        nodes = await messages.nodes(sql, conversation)
        return Tree(nodes, fork_points(nodes), (await position(sql, conversation)).leaf)

    return await engine.tables.look(job)
