"""Reads a page of a stream out of its tables: the chunks, and the appends and batches that are in none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from stream.errors import CorruptEvent, Truncated
from stream.limits import MAX_INTEGER, MAX_PAGE_BYTES, cut_page
from stream.tables.bounds import check_bounds
from stream.tables.chunks import StoredAppend, split_within, unpack

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from stream.database import Row, Sql
    from stream.records import Event

_PAGE_ROWS: Final = 256
INLINE_BYTES: Final = 64 * 1024
HEADER: Final = 0
CHUNK: Final = 1
APPEND: Final = 2
"""The kinds of rows: (kind, floor, head, origin, guard); (kind, last, n, 0, b"", crc, data); (kind, last, n, at, aid, crc,
data), whose data may be None where it is large."""

_LARGE: Final = "SELECT data FROM appends WHERE stream = (SELECT id FROM streams WHERE name = ?) AND last = ?"


class Ask(Protocol):
    """Asks in one statement for the row of a stream, and for those that hold a number behind `after`, up to `end`.

    Nothing can move from one table to another meanwhile. What is larger than `INLINE_BYTES` is fetched by itself.
    """

    def __call__(self, sql: Sql, stream_id: str, after: int, count: int, end: int, /) -> Awaitable[list[Row]]:
        """The header first, none for an unknown stream; then at most `count` rows of each table."""
        ...


async def read_page(sql: Sql, ask: Ask, stream_id: str, after: int, limit: int) -> list[Event]:
    """See `EventStore.read`; to be run in one look, or in a transaction. Raises `Truncated` and `CorruptEvent`."""
    events: list[Event] = []
    size_bytes = 0
    end = min(after + max(limit, 1), MAX_INTEGER)
    while True:
        cursor = events[-1].seq if events else after
        count = min(max(limit - len(events), 1), _PAGE_ROWS)
        rows = await ask(sql, stream_id, cursor, count, end)
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
    for row in _sort(stream_id, rows):
        if row[1] <= cursor:  # it lies in a chunk, too
            continue
        if row[1] - row[2] >= end:
            break
        if row[1] - row[2] > cursor:  # the other table's rows end before this one, or a row is missing
            break
        kind, last, n, at, aid, crc, data = row
        if kind == CHUNK:
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


def _sort(stream_id: str, rows: list[Row]) -> list[Row]:
    for row in rows:
        if not (isinstance(row[1], int) and isinstance(row[2], int)):  # a damaged row may hold anything
            raise CorruptEvent(stream_id, 0, "a row does not say which events it holds")
    return sorted(rows, key=lambda row: int(row[1]))
