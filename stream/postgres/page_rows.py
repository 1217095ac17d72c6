"""The rows of a stream: each is one append."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stream.tables.pages import APPEND, HEADER, INLINE_BYTES

if TYPE_CHECKING:
    from stream.database import Row, Sql

# Only rows that hold a wanted number; of those that end at the last one or behind it the first does, if any.
_PAGE: Final = """
SELECT s.floor, s.head, s.origin, s.guard, a.last, a.n, a.at, a.append_id, a.crc, a.data
FROM streams AS s LEFT JOIN LATERAL (
  SELECT last, n, at, append_id, crc, CASE WHEN length(data) <= ?5 THEN data END AS data FROM appends
  WHERE stream = s.id AND last > ?2 AND last - n < ?4
    AND last <= coalesce((SELECT min(b.last) FROM appends AS b WHERE b.stream = s.id AND b.last >= ?4), ?4)
  ORDER BY last LIMIT ?3) AS a ON true
WHERE s.name = ?1 ORDER BY a.last"""


async def ask(sql: Sql, stream_id: str, after: int, count: int, end: int) -> list[Row]:
    """See `stream.tables.pages.Ask`."""
    rows = await sql(_PAGE, (stream_id, after, count, end, INLINE_BYTES))
    if not rows:
        return []
    return [(HEADER, *rows[0][:4], None, None), *((APPEND, *row[4:]) for row in rows if row[4] is not None)]
