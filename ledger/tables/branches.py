"""The tree in the ledger's tables: the same answers as `projector.tree`, without looking at other branches.

All of it is SQL over a few columns: whoever asks for the active leaf walks down one branch, whoever asks whether a
message is on the active path walks up from it. A walk is no longer than there are messages, so hand-made circles end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.tables.texts import rows
from projector.tree import Node, leaf_of, select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stream.database import Sql

MAX_SELECTIONS: Final = 400
"""Other turns that one statement takes; with more, the whole tree is looked at."""


def _active_child(parent: str) -> str:
    """The child that is followed, by the rank of `projector.tree`; `parent` is an SQL expression, '' the virtual root."""
    return f"""(SELECT c.id FROM messages AS c
      WHERE c.conversation = ?1 AND coalesce(c.parent, '') = {parent} AND c.on_path = 1
      ORDER BY CASE WHEN c.is_committed = 1 AND c.started > c.selected THEN c.started ELSE c.selected END DESC,
        c.started DESC LIMIT 1)"""


_COUNT: Final = "(SELECT messages FROM conversations WHERE id = ?1)"
_DOWN: Final = f"""
down (id, depth) AS (
  SELECT CAST(?2 AS TEXT), 0
  UNION ALL
  SELECT {{child}}, down.depth + 1 FROM down WHERE down.id IS NOT NULL AND down.depth <= {_COUNT})
SELECT id FROM down WHERE id IS NOT NULL ORDER BY depth DESC LIMIT 1"""
_BELOW: Final = _active_child("coalesce(down.id, '')")  # with the column alone SQLite compares as text, and uses no index
_DOWN_ACTIVE: Final = f"WITH RECURSIVE {_DOWN.format(child=_BELOW)}"
_CHOSEN_CHILD: Final = f"""coalesce(
    (SELECT p.id FROM messages AS p JOIN chosen ON p.id = chosen.child
      WHERE p.conversation = ?1 AND p.on_path = 1 AND coalesce(p.parent, '') = down.id AND chosen.parent = down.id),
    {_BELOW})"""
_UP: Final = f"""
WITH RECURSIVE up (id, parent, depth) AS (
  SELECT id, coalesce(parent, ''), 0 FROM messages WHERE conversation = ?1 AND id = ?2 AND on_path = 1
  UNION ALL
  SELECT m.id, coalesce(m.parent, ''), up.depth + 1
  FROM up JOIN messages AS m ON m.conversation = ?1 AND m.id = up.parent AND m.on_path = 1
  WHERE up.depth < {_COUNT}{{only}})
"""
_UP_WHILE_ACTIVE: Final = f"""{_UP.format(only=f" AND up.id = {_active_child('up.parent')}")}
SELECT 1 FROM up WHERE parent = '' AND id = {_active_child("''")}"""
_UP_ALL: Final = _UP.format(only="")
_REACHES_ROOT: Final = f"{_UP_ALL} SELECT 1 FROM up WHERE parent = '' LIMIT 1"
_TURN_AT: Final = f"{_UP_ALL} SELECT id FROM up WHERE parent = ?3 LIMIT 1"
_SELECTED: Final = "CASE WHEN selected < ?3 THEN ?3 ELSE selected END"
_CHOOSE: Final = f"""{_UP_ALL}
UPDATE messages SET selected = {_SELECTED} WHERE conversation = ?1 AND id IN (
  SELECT up.id FROM up WHERE EXISTS (
    SELECT 1 FROM messages AS s
    WHERE s.conversation = ?1 AND coalesce(s.parent, '') = up.parent AND s.on_path = 1 AND s.id <> up.id))"""
_MARK: Final = f"UPDATE messages SET selected = {_SELECTED} WHERE conversation = ?1 AND id = ?2"
_ACTIVE_CHILD: Final = f"SELECT {_active_child('?2')}"
_IS_THERE: Final = "SELECT 1 FROM messages WHERE conversation = ?1 AND id = ?2 AND on_path = 1"
_JOINED: Final = """
SELECT EXISTS (SELECT 1 FROM messages WHERE conversation = ?1 AND id = ?2 AND on_path = 1), EXISTS (
  SELECT 1 FROM messages WHERE conversation = ?1 AND coalesce(parent, '') = ?2 AND on_path = 1 AND id <> ?3)"""
_COUNT_ORPHANS: Final = """
UPDATE conversations SET orphans = (
  SELECT count(*) FROM messages AS m WHERE m.conversation = ?1 AND m.on_path = 1 AND m.parent IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM messages AS p WHERE p.conversation = ?1 AND p.id = m.parent AND p.on_path = 1)) WHERE id = ?1"""
_MOVE_LEAF: Final = "UPDATE conversations SET leaf = ?2 WHERE id = ?1"
_REBUILT: Final = """
UPDATE conversations SET leaf = ?2, messages = ?3, orphans = ?4,
  runs = (SELECT count(*) FROM runs WHERE conversation = ?1) WHERE id = ?1"""
_SELECTIONS: Final = "SELECT seq, message FROM selections WHERE conversation = ?1 AND seq > ?2"
_SELECT: Final = """
INSERT INTO selections (conversation, seq, message) VALUES (?1, ?2, ?3)
ON CONFLICT (conversation, seq) DO UPDATE SET message = excluded.message"""
_DROP_SELECTIONS: Final = "DELETE FROM selections WHERE conversation = ?1 AND seq > ?2 RETURNING 1"


async def descend(sql: Sql, key: int, message_id: str | None, selections: Mapping[str, str] | None = None) -> str | None:
    """The leaf below a message, or the root; `selections` are other turns, `{parent: child}`, `MAX_SELECTIONS` at most."""
    text, parameters = _DOWN_ACTIVE, [key, message_id or ""]
    if selections:
        chosen = f"WITH RECURSIVE chosen (parent, child) AS (VALUES {rows(len(selections), 2, 3)}), "
        text = chosen + _DOWN.format(child=_CHOSEN_CHILD)
        parameters += [value for pair in selections.items() for value in pair]
    [(leaf,)] = await sql(text, parameters)
    return leaf or None


async def join(
    sql: Sql, key: int, parent: str | None, run: tuple[str, str, int], standing: tuple[str | None, int], *, is_committed: bool
) -> None:
    """Moves the active leaf, if need be, after the messages of a run have joined `parent`.

    `run` is (first message, last message, where the run started), `standing` the leaf and the number of orphans before.
    """
    (first, last, started), (leaf, orphans) = run, standing
    [(is_there, has_sibling)] = await sql(_JOINED, (key, parent or "", first))
    is_lost = parent is not None and not is_there
    if is_lost:
        await sql("UPDATE conversations SET orphans = orphans + 1 WHERE id = ?1", (key,))
    elif orphans:
        await sql(_COUNT_ORPHANS, (key,))
    if is_lost or orphans:
        await _choose_all_again(sql, key)
    elif has_sibling:
        await _choose_again(sql, key, parent, since=started if is_committed else 0)
    if is_lost:
        return
    if parent != leaf:
        [(active,)] = await sql(_ACTIVE_CHILD, (key, parent or ""))
        if active != first or not (parent is None or await sql(_UP_WHILE_ACTIVE, (key, parent))):
            return
    # Without orphans nothing hangs on what has come: its last message is a leaf.
    await sql(_MOVE_LEAF, (key, await descend(sql, key, first) if orphans else last))


async def choose(sql: Sql, key: int, message_id: str, seq: int) -> bool:
    """Makes the leaf below a message the active one; False for a message that is on no path."""
    if not await _is_there(sql, key, message_id):
        return False
    await sql(_SELECT, (key, seq, message_id))
    await sql(_CHOOSE, (key, message_id, seq))
    if await sql(_REACHES_ROOT, (key, message_id)):
        await sql(_MOVE_LEAF, (key, await descend(sql, key, message_id)))
    return True


async def drop_behind(sql: Sql, key: int, seq: int) -> None:
    """Forgets which turns were selected behind a seq."""
    if await sql(_DROP_SELECTIONS, (key, seq)):
        await rebuild(sql, key)


async def rebuild(sql: Sql, key: int) -> None:
    """Works out leaf, counts and chosen turns from the messages and selections that are there."""
    look = "SELECT id, parent, started, is_committed FROM messages WHERE conversation = ?1 AND on_path = 1 ORDER BY seq"
    nodes = [Node(row[0], row[1], row[2], bool(row[3])) for row in await sql(look, (key,))]
    for seq, message_id in await sql(f"{_SELECTIONS} ORDER BY seq", (key, 0)):
        nodes = select(nodes, message_id, seq)
    await sql("UPDATE messages SET selected = 0 WHERE conversation = ?1 AND selected <> 0", (key,))
    for node in nodes:
        if node.selected:
            await sql(_MARK, (key, node.id, node.selected))
    known = {node.id for node in nodes}
    orphans = sum(1 for node in nodes if node.parent_id is not None and node.parent_id not in known)
    await sql(_REBUILT, (key, leaf_of(nodes), len(nodes), orphans))


async def _choose_again(sql: Sql, key: int, parent: str | None, *, since: int) -> None:
    """A selection marks only turns at forks. Where a fork appears afterwards, the turn that was chosen there is marked.

    A run that started after it and is committed ends the selection anyway: only those behind its start are looked at.
    """
    for seq, message_id in await sql(f"{_SELECTIONS} ORDER BY seq DESC", (key, since)):
        for (turn,) in await sql(_TURN_AT, (key, message_id, parent or "")):
            await sql(_MARK, (key, turn, seq))
            return


async def _choose_all_again(sql: Sql, key: int) -> None:
    """Where messages wait for their parents, one run may make forks in several places, also above what was chosen."""
    for seq, message_id in await sql(_SELECTIONS, (key, 0)):
        await sql(_CHOOSE, (key, message_id, seq))


async def _is_there(sql: Sql, key: int, message_id: str) -> bool:
    return bool(await sql(_IS_THERE, (key, message_id)))
