"""What a schema holds, counted: of the whole store, or of one stream."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stream.errors import CorruptEvent, Truncated
from stream.limits import check_id
from stream.postgres.page_rows import ask
from stream.sqlite.statistics import StreamStatistics
from stream.tables.pages import read_page

if TYPE_CHECKING:
    from stream.database import Row, Sql
    from stream.postgres.database import PostgresDatabase

_STORE: Final = """
SELECT (SELECT incarnation FROM store LIMIT 1), current_setting('server_version'), current_schema()::text, count(*),
  coalesce(sum(head - floor), 0), coalesce(sum(head), 0), (SELECT count(*) FROM producers WHERE epoch IS NOT NULL),
  (SELECT count(*) FROM snapshots), (SELECT coalesce(sum(length(envelope)), 0) FROM snapshots)
FROM streams WHERE head > 0"""
_VERSIONS: Final = "SELECT name, version FROM components ORDER BY name"
_SIZES: Final = """
SELECT coalesce(sum(pg_total_relation_size(relid)), 0), coalesce(sum(n_dead_tup), 0)
FROM pg_stat_user_tables WHERE schemaname = current_schema()"""
_UNSWEPT: Final = "SELECT count(*) FROM streams AS s JOIN appends AS r ON r.stream = s.id AND r.last <= s.floor"
_ROWS: Final = "SELECT count(*), coalesce(sum(length(data)), 0), min(at), max(at) FROM appends"
_STREAM: Final = """
SELECT s.floor, s.head, s.origin, s.head - s.floor,
  (SELECT count(*) FROM appends AS a WHERE a.stream = s.id),
  (SELECT coalesce(sum(length(data)), 0) FROM appends AS a WHERE a.stream = s.id),
  (SELECT count(*) FROM appends AS a WHERE a.stream = s.id AND a.last <= s.floor),
  (SELECT count(*) FROM producers AS p WHERE p.stream = s.id AND p.epoch IS NOT NULL),
  (SELECT count(*) FROM snapshots AS n WHERE n.stream = s.id),
  (SELECT coalesce(sum(length(envelope)), 0) FROM snapshots AS n WHERE n.stream = s.id)
FROM streams AS s WHERE s.name = ? AND s.head > 0"""


class ServerStatistics(msgspec.Struct, frozen=True):
    """A whole store on a server, its tables with their indexes; about `dead_rows` of their rows wait for VACUUM.

    Both are None where the server is no PostgreSQL. `events` are readable, `numbered` is how many there ever were,
    `unswept_rows` still lie below a floor. `rows`, `payload_bytes`, `first_at` and `last_at` (ms) are None unless they were
    asked for: every row is looked at for them.
    """

    incarnation: str
    postgres: str
    schema: str
    versions: dict[str, int]
    table_bytes: int | None
    dead_rows: int | None
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


async def server_statistics(database: PostgresDatabase, *, exact: bool = False) -> ServerStatistics:
    """Counts by streams, producers and snapshots, sizes as the server tells them; `exact` looks at every row, too."""

    async def job(sql: Sql) -> tuple[list[list[Row]], Row]:
        sizes = _SIZES if database.server.has_sizes else "SELECT NULL, NULL"
        counts = [await sql(text) for text in (_STORE, sizes, _UNSWEPT, _VERSIONS)]
        return counts, (await sql(_ROWS))[0] if exact else (None,) * 4

    counts, (rows, payload_bytes, first_at, last_at) = await database.look(job)
    [(incarnation, postgres, schema, streams, events, numbered, producers, snapshots, snapshot_bytes)] = counts[0]
    [(table_bytes, dead_rows)], [(unswept_rows,)] = counts[1:3]
    return ServerStatistics(
        incarnation=incarnation,
        postgres=postgres,
        schema=schema,
        versions={row[0]: row[1] for row in counts[3]},
        table_bytes=table_bytes,
        dead_rows=dead_rows,
        streams=streams,
        events=events,
        numbered=numbered,
        unswept_rows=unswept_rows,
        rows=rows,
        payload_bytes=payload_bytes,
        producers=producers,
        snapshots=snapshots,
        snapshot_bytes=snapshot_bytes,
        first_at=first_at,
        last_at=last_at,
    )


async def stream_statistics(database: PostgresDatabase, stream_id: str) -> StreamStatistics | None:
    """Counts by the rows of one stream; None for one that never had an event."""
    check_id("stream id", stream_id)

    async def job(sql: Sql) -> StreamStatistics | None:
        rows = await sql(_STREAM, (stream_id,))
        if not rows:
            return None
        floor, head = rows[0][:2]
        fields: tuple[Any, ...] = (stream_id, *rows[0], *[await _at(sql, stream_id, after) for after in (floor, head - 1)])
        return StreamStatistics(*fields)

    return await database.look(job)


async def _at(sql: Sql, stream_id: str, after: int) -> int | None:
    with suppress(CorruptEvent, Truncated):  # verify tells of damage; the stream may end at its floor
        events = await read_page(sql, ask, stream_id, after, 1)
        return events[0].at if events else None
    return None
