"""The rows of a stream in a file: its chunks, and its appends and batches that are in none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stream.sqlite.batches import OF_STREAM, appends_of
from stream.tables.pages import APPEND, CHUNK, HEADER, INLINE_BYTES

if TYPE_CHECKING:
    from stream.database import Row, Sql

_BATCH: Final = 3

# One statement, so that nothing can move from one table to the other meanwhile. Only rows that hold a wanted number: of
# those that end at the last one or behind it the first does, if any, so the index ends the search there. What is large is
# fetched by itself.
_KEY: Final = "(SELECT id FROM streams WHERE name = ?1)"
_WANTED: Final = f"""
  stream = {_KEY} AND last > ?2 AND last - n < ?4
  AND last <= coalesce((SELECT last FROM {{table}} WHERE stream = {_KEY} AND last >= ?4 ORDER BY last LIMIT 1), ?4)
  ORDER BY last LIMIT ?3"""  # noqa: S608 - constants
_PAGE: Final = f"""
SELECT {HEADER}, floor, head, origin, guard, NULL, NULL FROM streams WHERE name = ?1
UNION ALL SELECT * FROM (
  SELECT {CHUNK}, last, n, 0, x'', crc, data FROM chunks WHERE {_WANTED.format(table="chunks")})
UNION ALL SELECT * FROM (
  SELECT {APPEND}, last, n, at, append_id, crc, CASE WHEN length(data) <= ?5 THEN data END FROM appends
  WHERE {_WANTED.format(table="appends")})
UNION ALL SELECT * FROM (
  SELECT {_BATCH}, stream, head, 0, places, again, data FROM ({OF_STREAM})
  WHERE head >> 16 > ?2 AND (head >> 16) - (head & 65535) < ?4 ORDER BY pos LIMIT ?3)"""  # noqa: S608 - a constant


async def ask(sql: Sql, stream_id: str, after: int, count: int, end: int) -> list[Row]:
    """See `stream.tables.pages.Ask`."""
    rows = await sql(_PAGE, (stream_id, after, count, end, INLINE_BYTES))
    if not rows or rows[-1][0] != _BATCH:
        return rows
    in_batches = [(stream, head, *columns) for kind, stream, head, _, *columns in rows if kind == _BATCH]
    return [*(row for row in rows if row[0] != _BATCH), *((APPEND, *append) for append in appends_of(in_batches))]
