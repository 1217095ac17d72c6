"""Reads a page of a stream out of its tables: the chunks, and the appends and batches that are in none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stream.errors import CorruptEvent, Truncated
from stream.limits import MAX_INTEGER, MAX_PAGE_BYTES, cut_page
from stream.sqlite.batches import OF_STREAM, appends_of
from stream.sqlite.bounds import check_bounds
from stream.sqlite.chunks import StoredAppend, split_within, unpack

if TYPE_CHECKING:
    from stream.database import Row, Sql
    from stream.records import Event

_PAGE_ROWS: Final = 256
_INLINE_BYTES: Final = 64 * 1024
_HEADER: Final = 0
_CHUNK: Final = 1
_APPEND: Final = 2
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
SELECT 0, floor, head, origin, guard, NULL, NULL FROM streams WHERE name = ?1
UNION ALL SELECT * FROM (
  SELECT 1, last, n, 0, x'', crc, data FROM chunks WHERE {_WANTED.format(table="chunks")})
UNION ALL SELECT * FROM (
  SELECT 2, last, n, at, append_id, crc, CASE WHEN length(data) <= ?5 THEN data END FROM appends
  WHERE {_WANTED.format(table="appends")})
UNION ALL SELECT * FROM (
  SELECT 3, stream, head, 0, places, again, data FROM ({OF_STREAM})
  WHERE head >> 16 > ?2 AND (head >> 16) - (head & 65535) < ?4 ORDER BY pos LIMIT ?3)"""  # noqa: S608 - a constant
_LARGE: Final = "SELECT data FROM appends WHERE stream = (SELECT id FROM streams WHERE name = ?) AND last = ?"


async def read_page(sql: Sql, stream_id: str, after: int, limit: int) -> list[Event]:
    """See `EventStore.read`; to be run in one look, or in a transaction. Raises `Truncated` and `CorruptEvent`."""
    events: list[Event] = []
    size_bytes = 0
    end = min(after + max(limit, 1), MAX_INTEGER)
    while True:
        cursor = events[-1].seq if events else after
        count = min(max(limit - len(events), 1), _PAGE_ROWS)
        rows = await sql(_PAGE, (stream_id, cursor, count, end, _INLINE_BYTES))
        if not rows:
            return events
        (_, floor, head, origin, guard, *_), *rows = rows
        check_bounds(stream_id, floor, head, origin, guard)
        if cursor < floor:
            raise Truncated(stream_id, after, floor)
        found, found_bytes = await _read_rows(sql, stream_id, rows, cursor, end, MAX_PAGE_BYTES - size_bytes)
        if found and found[-1].seq > head:
            raise CorruptEvent(stream_id, found[-1].seq, f"it lies beyond the head {head}")
        events += found
        size_bytes += found_bytes
        if size_bytes >= MAX_PAGE_BYTES:
            return cut_page(events[:limit])
        if len(events) >= limit or cursor + len(found) >= head:
            return events[:limit]
        if not found:
            raise CorruptEvent(stream_id, cursor + 1, "its row is missing")


async def _read_rows(
    sql: Sql, stream_id: str, rows: list[Row], cursor: int, end: int, max_bytes: int
) -> tuple[list[Event], int]:
    """The events behind the cursor as far as they follow each other, and about how many bytes they are.

    No row that begins at `end` or behind it: a batch holds some that nobody has asked for.
    """
    events: list[Event] = []
    size_bytes = 0
    for row in _sort(stream_id, _spread(rows)):
        if row[1] <= cursor:  # it lies in a chunk, too
            continue
        if row[1] - row[2] >= end:
            break
        if row[1] - row[2] > cursor:  # the other table's rows end before this one, or a row is missing
            break
        kind, last, n, at, aid, crc, data = row
        if kind == _CHUNK:
            found, found_bytes = split_within(stream_id, last, n, crc, data, after=cursor, end=end)
        else:
            if data is None:
                [(data,)] = await sql(_LARGE, (stream_id, last))
            found, found_bytes = unpack(stream_id, StoredAppend(last, n, at, aid, crc, data)), len(data)
            if last - n < cursor:
                found = found[cursor - last + n :]
                found_bytes = sum(len(event.data) for event in found)
        events += found
        size_bytes += found_bytes
        cursor = last
        if size_bytes >= max_bytes:
            break
    return events, size_bytes


def _spread(rows: list[Row]) -> list[Row]:
    """For each batch the appends that it holds of the stream."""
    if not rows or rows[-1][0] != _BATCH:
        return rows
    in_batches = [(stream, head, *columns) for kind, stream, head, _, *columns in rows if kind == _BATCH]
    return [*(row for row in rows if row[0] != _BATCH), *((_APPEND, *append) for append in appends_of(in_batches))]


def _sort(stream_id: str, rows: list[Row]) -> list[Row]:
    for row in rows:
        if not (isinstance(row[1], int) and isinstance(row[2], int)):  # a damaged row may hold anything
            raise CorruptEvent(stream_id, 0, "a row does not say which events it holds")
    return sorted(rows, key=lambda row: int(row[1]))
