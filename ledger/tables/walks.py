"""From a message up to the root: in the order of the log as long as no other branch lies between, parent by parent at forks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.tables.bodies import bodies_of
from ledger.tables.messages import read
from ledger.tables.texts import EVERY, KEY

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from projector import Message
    from stream.database import Sql

_FEWEST: Final = 16
_MOST: Final = 512
_BACK: Final = f"""
SELECT id, parent, crc, row_body, place FROM messages WHERE conversation = {KEY} AND on_path = 1
  AND seq <= (SELECT seq FROM messages WHERE conversation = {KEY} AND id = ?2 AND on_path = 1)
ORDER BY seq DESC LIMIT ?3"""  # noqa: S608 - constants
_UP: Final = f"""
WITH RECURSIVE chain (id, parent, crc, row_body, place, depth) AS (
  SELECT id, parent, crc, row_body, place, 1 FROM messages WHERE conversation = {KEY} AND id = ?2 AND on_path = 1
  UNION ALL
  SELECT m.id, m.parent, m.crc, m.row_body, m.place, chain.depth + 1
  FROM chain JOIN messages AS m ON m.conversation = {KEY} AND m.id = chain.parent AND m.on_path = 1
  WHERE chain.depth < ?3)
SELECT id, parent, crc, row_body, place FROM chain ORDER BY depth"""  # noqa: S608 - constants
_COUNT: Final = "SELECT messages FROM conversations WHERE stream_id = ?1"
Row = tuple[str, str | None, int, bytes, int | None]
"""A message as it lies in the tables: id, parent, checksum, and its body or the place of that."""


class Walk:
    """The way up that was gone: `rows` from the leaf on, and which message comes next; None at the root, and at its end."""

    def __init__(self, leaf: str, known: Container[str], most: int) -> None:
        self.rows: list[Row] = []
        self.bodies: list[bytes] = []
        """Those of the rows, once all are there; empty where one is damaged."""
        self.wanted: str | None = leaf
        self._known = known
        self._most = most

    @property
    def left(self) -> int:
        """How many messages may follow; 0 once it has come to the root, or to one that is known."""
        is_over = self.wanted is None or self.wanted in self._known
        return 0 if is_over else self._most - len(self.rows)

    def take(self, rows: Iterable[Row]) -> int:
        """Goes on along those of these rows that are next; how many they were."""
        before = len(self.rows)
        if self.left:
            for row in rows:
                if row[0] == self.wanted:
                    self.rows.append(row)
                    self.wanted = row[1]
                    if not self.left:
                        break
        return len(self.rows) - before

    def messages(self, conversation: str) -> list[Message]:
        """The messages of the way, from the root on. Raises `LedgerDamaged`."""
        pairs = zip(reversed(self.rows), reversed(self.bodies), strict=True)
        return [read(conversation, row[0], row[2], body) for row, body in pairs]


async def walk(sql: Sql, conversation: str, leaf: str, limit: int | None = None, known: Container[str] = ()) -> Walk:
    """The way from `leaf` up to the root, to one that is `known`, or as far as `limit` messages go.

    No way is longer than there are messages, so hand-made circles end, too.
    """
    [(count,)] = await sql(_COUNT, (conversation,)) or [(0,)]
    way = Walk(leaf, known, min(count, EVERY if limit is None else limit))
    size = _FEWEST
    while way.left:
        rows = await sql(_BACK, (conversation, way.wanted, min(size, way.left)))
        if 2 * way.take(rows) >= len(rows) > 0:
            size = min(2 * size, _MOST)
        elif way.left and not way.take(await sql(_UP, (conversation, way.wanted, min(size, way.left)))):
            break  # its parent is not there
    way.bodies = await bodies_of(sql, way.rows)
    return way


async def path(sql: Sql, conversation: str, leaf: str, limit: int | None) -> list[Message]:
    """The messages from the root, or the last `limit` of them, down to `leaf`. Raises `LedgerDamaged`."""
    return (await walk(sql, conversation, leaf, limit)).messages(conversation)
