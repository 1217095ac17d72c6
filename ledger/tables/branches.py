"""The tree in the ledger's tables: the same answers as `projector.tree`, without looking at other branches.

All of it is SQL over a few columns: whoever asks for the active leaf walks down one branch, whoever asks whether a
message is on the active path walks up from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    Ask = Callable[[str, Sequence[Any]], Awaitable[list[Any]]]


def _active_child(parent: str) -> str:
    """The child that is followed, by the rank of `projector.tree`; `parent` is an SQL expression."""
    return f"""(SELECT c.id FROM messages AS c WHERE c.conversation = ?1 AND c.parent IS {parent} AND c.on_path
      ORDER BY max(CASE WHEN c.is_committed THEN c.started ELSE 0 END, c.selected) DESC, c.started DESC LIMIT 1)"""


# '' is the virtual root, which no message is called; ?3 is a JSON object of selections.
_DOWN: Final = f"""
WITH RECURSIVE down (id, depth) AS (
  SELECT ?2, 0
  UNION ALL
  SELECT coalesce(
      (SELECT p.id FROM messages AS p WHERE p.conversation = ?1 AND p.on_path AND p.parent IS nullif(down.id, '')
        AND p.id = (SELECT value FROM json_each(?3) WHERE key = down.id)),
      {_active_child("nullif(down.id, '')")}),
    down.depth + 1
  FROM down WHERE down.id IS NOT NULL)
SELECT nullif(id, '') FROM down WHERE id IS NOT NULL ORDER BY depth DESC LIMIT 1"""
_UP_WHILE_ACTIVE: Final = f"""
WITH RECURSIVE up (id, parent) AS (
  SELECT id, parent FROM messages WHERE conversation = ?1 AND id = ?2 AND on_path
  UNION
  SELECT m.id, m.parent FROM up JOIN messages AS m ON m.conversation = ?1 AND m.id = up.parent AND m.on_path
  WHERE up.id = {_active_child("up.parent")})
SELECT 1 FROM up WHERE parent IS NULL AND id = {_active_child("NULL")}"""
_UP: Final = """
WITH RECURSIVE up (id, parent) AS (
  SELECT id, parent FROM messages WHERE conversation = ?1 AND id = ?2 AND on_path
  UNION
  SELECT m.id, m.parent FROM up JOIN messages AS m ON m.conversation = ?1 AND m.id = up.parent AND m.on_path)
"""
_REACHES_ROOT: Final = f"{_UP} SELECT 1 FROM up WHERE parent IS NULL"
_TURN_AT: Final = f"{_UP} SELECT id FROM up WHERE parent IS ?3"
_CHOOSE: Final = f"""{_UP}
UPDATE messages SET selected = max(selected, ?3) WHERE conversation = ?1 AND id IN (
  SELECT up.id FROM up WHERE EXISTS (
    SELECT 1 FROM messages AS s WHERE s.conversation = ?1 AND s.parent IS up.parent AND s.on_path AND s.id <> up.id))"""
_HAS_SIBLING: Final = """
SELECT 1 FROM messages WHERE conversation = ?1 AND parent IS ?2 AND on_path AND id <> ?3 LIMIT 1"""
_COUNT_ORPHANS: Final = """
UPDATE conversations SET orphans = (
  SELECT count(*) FROM messages AS m WHERE m.conversation = ?1 AND m.on_path AND m.parent IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM messages AS p WHERE p.conversation = ?1 AND p.id = m.parent AND p.on_path)) WHERE id = ?1"""
_MOVE_LEAF: Final = "UPDATE conversations SET leaf = ?2 WHERE id = ?1"


async def descend(sql: Ask, key: int, message_id: str | None, selections: str = "{}") -> str | None:
    """The leaf below a message, or below the root; `selections` is a JSON object of `{parent: child}`."""
    [(leaf,)] = await sql(_DOWN, (key, message_id or "", selections))
    return leaf  # type: ignore[no-any-return]


async def join(sql: Ask, key: int, parent: str | None, first: str, started: int, *, is_committed: bool) -> None:
    """Moves the active leaf, if need be, after the messages of a run from `first` on have joined `parent`."""
    [(leaf, orphans)] = await sql("SELECT leaf, orphans FROM conversations WHERE id = ?", (key,))
    is_lost = parent is not None and not await _is_there(sql, key, parent)
    if is_lost:
        await sql("UPDATE conversations SET orphans = orphans + 1 WHERE id = ?", (key,))
    elif orphans:
        await sql(_COUNT_ORPHANS, (key,))
    if is_lost or orphans:
        await _choose_all_again(sql, key)
    else:
        await _choose_again(sql, key, parent, first, started, is_committed=is_committed)
    if is_lost:
        return
    if parent != leaf:
        [(active,)] = await sql(f"SELECT {_active_child('?2')}", (key, parent))
        if active != first or not (parent is None or await sql(_UP_WHILE_ACTIVE, (key, parent))):
            return
    await sql(_MOVE_LEAF, (key, await descend(sql, key, first)))


async def choose(sql: Ask, key: int, message_id: str, seq: int) -> bool:
    """Makes the leaf below a message the active one; False for a message that is on no path."""
    if not await _is_there(sql, key, message_id):
        return False
    await sql("INSERT INTO selections VALUES (?, ?, ?)", (key, seq, message_id))
    await sql(_CHOOSE, (key, message_id, seq))
    if await sql(_REACHES_ROOT, (key, message_id)):
        await sql(_MOVE_LEAF, (key, await descend(sql, key, message_id)))
    return True


async def _choose_again(sql: Ask, key: int, parent: str | None, first: str, started: int, *, is_committed: bool) -> None:
    """A selection marks only turns at forks. Where a fork appears afterwards, the turn that was chosen there is marked.

    A run that started after it and is committed ends the selection anyway.
    """
    if not await sql(_HAS_SIBLING, (key, parent, first)):
        return
    since = started if is_committed else 0
    text = "SELECT seq, message FROM selections WHERE conversation = ? AND seq > ? ORDER BY seq DESC"
    for seq, message_id in await sql(text, (key, since)):
        for (turn,) in await sql(_TURN_AT, (key, message_id, parent)):
            mark = "UPDATE messages SET selected = max(selected, ?3) WHERE conversation = ?1 AND id = ?2"
            await sql(mark, (key, turn, seq))
            return


async def _choose_all_again(sql: Ask, key: int) -> None:
    """Where messages wait for their parents, one run may make forks in several places, also above what was chosen."""
    for seq, message_id in await sql("SELECT seq, message FROM selections WHERE conversation = ?", (key,)):
        await sql(_CHOOSE, (key, message_id, seq))


async def _is_there(sql: Ask, key: int, message_id: str) -> bool:
    return bool(await sql("SELECT 1 FROM messages WHERE conversation = ? AND id = ? AND on_path", (key, message_id)))
