"""What a file holds, counted: of the whole store, or of one stream."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stream.errors import CorruptEvent, Truncated
from stream.limits import check_id
from stream.sqlite.batches import OF_STREAM, appends_of, unpack_batch
from stream.sqlite.page_rows import ask
from stream.tables.chunks import split
from stream.tables.pages import read_page

if TYPE_CHECKING:
    from stream.database import Row, Sql
    from stream.sqlite.database import Database

_STORE: Final = """
SELECT (SELECT incarnation FROM store), count(*), coalesce(sum(head - floor), 0), coalesce(sum(head), 0),
  (SELECT count(*) FROM producers WHERE epoch IS NOT NULL),
  (SELECT count(*) FROM snapshots), (SELECT coalesce(sum(length(envelope)), 0) FROM snapshots)
FROM streams WHERE head > 0"""
_VERSIONS: Final = "SELECT name, version FROM components ORDER BY name"
_PAGES: Final = """
SELECT page_size, page_count, freelist_count FROM pragma_page_size, pragma_page_count, pragma_freelist_count"""
_UNSWEPT: Final = """
SELECT (SELECT count(*) FROM streams AS s CROSS JOIN chunks AS r ON r.stream = s.id AND r.last <= s.floor WHERE s.floor > 0)
  + (SELECT count(*) FROM streams AS s CROSS JOIN appends AS r ON r.stream = s.id AND r.last <= s.floor WHERE s.floor > 0)"""
_ROWS: Final = """
SELECT count(*), coalesce(sum(bytes), 0)
FROM (SELECT length(data) AS bytes FROM chunks UNION ALL SELECT length(data) FROM appends
  UNION ALL SELECT length(data) FROM batches)"""
_EDGE_BATCHES: Final = """
SELECT places, again, data FROM batches WHERE pos IN (SELECT min(pos) FROM batches UNION SELECT max(pos) FROM batches)"""
_OF_STREAM: Final = """
SELECT count(*), coalesce(sum(length(data)), 0), coalesce(sum(last <= ?2), 0) FROM {table}
WHERE stream = (SELECT id FROM streams WHERE name = ?1)"""
_STREAM: Final = """
SELECT s.floor, s.head, s.origin, s.head - s.floor,
  (SELECT count(*) FROM producers AS p WHERE p.stream = s.id AND p.epoch IS NOT NULL),
  (SELECT count(*) FROM snapshots AS n WHERE n.stream = s.id),
  (SELECT coalesce(sum(length(envelope)), 0) FROM snapshots AS n WHERE n.stream = s.id)
FROM streams AS s WHERE s.name = ? AND s.head > 0"""
_TIMES_OF_APPENDS: Final = """
SELECT (SELECT at FROM appends ORDER BY pos LIMIT 1), (SELECT at FROM appends ORDER BY pos DESC LIMIT 1)"""
_EDGE_CHUNKS: Final = """
SELECT s.name, c.last, c.n, c.crc, c.data FROM chunks AS c JOIN streams AS s ON s.id = c.stream
WHERE c.pos IN (SELECT min(pos) FROM chunks UNION SELECT max(pos) FROM chunks)"""


class StoreStatistics(msgspec.Struct, frozen=True):
    """A whole store. `first_at` and `last_at` (ms) are those of its oldest and newest row; None in an empty one.

    `events` are readable, `numbered` is how many there ever were. `rows` and `payload_bytes` are None unless they were
    asked for, `unswept_rows` still lie below a floor.
    """

    incarnation: str
    sqlite: str
    versions: dict[str, int]
    file_bytes: int
    wal_bytes: int
    page_bytes: int
    pages: int
    free_pages: int
    streams: int
    events: int
    numbered: int
    unswept_rows: int
    rows: int | None
    payload_bytes: int | None
    producers: int
    snapshots: int
    snapshot_bytes: int
    first_at: int | None
    last_at: int | None


class StreamStatistics(msgspec.Struct, frozen=True):
    """One stream; `rows` and `payload_bytes` count what is in the file, `unswept_rows` of them lie below the floor."""

    stream_id: str
    floor: int
    head: int
    origin: int
    events: int
    rows: int
    payload_bytes: int
    unswept_rows: int
    producers: int
    snapshots: int
    snapshot_bytes: int
    first_at: int | None
    last_at: int | None


async def store_statistics(database: Database, *, exact: bool = False) -> StoreStatistics:
    """Counts by streams, producers and snapshots, sizes by pages; `exact` looks at every row for its payload too."""

    async def job(sql: Sql) -> tuple[list[list[Row]], Row, list[int]]:
        counts = [await sql(text) for text in (_STORE, _PAGES, _UNSWEPT, _VERSIONS)]
        return counts, (await sql(_ROWS))[0] if exact else (None, None), await _times(sql)

    counts, (rows, payload_bytes), times = await database.look(job)
    [(incarnation, streams, events, numbered, producers, *snapshots)] = counts[0]
    [(page_bytes, pages, free_pages)] = counts[1]
    [(unswept_rows,)] = counts[2]
    file_bytes, wal_bytes = file_sizes(database.path)
    return StoreStatistics(
        incarnation=incarnation,
        sqlite=sqlite3.sqlite_version,
        versions={row[0]: row[1] for row in counts[3]},
        file_bytes=file_bytes,
        wal_bytes=wal_bytes,
        page_bytes=page_bytes,
        pages=pages,
        free_pages=free_pages,
        streams=streams,
        events=events,
        numbered=numbered,
        unswept_rows=unswept_rows,
        rows=rows,
        payload_bytes=payload_bytes,
        producers=producers,
        snapshots=snapshots[0],
        snapshot_bytes=snapshots[1],
        first_at=min(times, default=None),
        last_at=max(times, default=None),
    )


async def stream_statistics(database: Database, stream_id: str) -> StreamStatistics | None:
    """Counts by the rows of one stream; None for one that never had an event."""
    check_id("stream id", stream_id)
    return await database.look(lambda sql: _count_stream(sql, stream_id))


def file_sizes(path: str) -> tuple[int, int]:
    """The bytes of a file and of the write-ahead log beside it; zero for what is not there."""
    return _size_bytes(path), _size_bytes(f"{path}-wal")


def _size_bytes(path: str) -> int:
    file = Path(path)
    return file.stat().st_size if file.exists() else 0


async def _count_stream(sql: Sql, stream_id: str) -> StreamStatistics | None:
    rows = await sql(_STREAM, (stream_id,))
    if not rows:
        return None
    floor, head = rows[0][:2]
    times = [await _at(sql, stream_id, after) for after in (floor, head - 1)]
    of_tables = [(await sql(_OF_STREAM.format(table=name), (stream_id, floor)))[0] for name in ("chunks", "appends")]
    held = [sum(numbers) for numbers in zip(*of_tables, await _in_batches(sql, stream_id, floor), strict=True)]
    fields: tuple[Any, ...] = (stream_id, *rows[0][:4], *held, *rows[0][4:], *times)
    return StreamStatistics(*fields)


async def _in_batches(sql: Sql, stream_id: str, floor: int) -> tuple[int, int, int]:
    """As many appends of a stream are in batches, with so many bytes, and so many of them below the floor."""
    found = appends_of(await sql(OF_STREAM, (stream_id,)))
    return len(found), sum(len(append.data) for append in found), sum(append.last <= floor for append in found)


async def _times(sql: Sql) -> list[int]:
    """The times of the first and the last row of each table: what lies between is not looked at."""
    times = [at for at in (await sql(_TIMES_OF_APPENDS))[0] if at is not None]
    for row in await sql(_EDGE_CHUNKS):
        with suppress(CorruptEvent):  # verify tells
            events = split(*row)
            times += [events[0].at, events[-1].at]
    for row in await sql(_EDGE_BATCHES):
        with suppress(ValueError):
            times += [placed.append.at for placed in unpack_batch(*row)][:1]
    return times


async def _at(sql: Sql, stream_id: str, after: int) -> int | None:
    with suppress(CorruptEvent, Truncated):  # verify tells of damage; the stream may end at its floor
        events = await read_page(sql, ask, stream_id, after, 1)
        return events[0].at if events else None
    return None
