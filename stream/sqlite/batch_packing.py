"""Packs the oldest batches into chunks, one for each of their streams, so that there are never many batches to look through."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import CorruptEvent
from stream.sqlite.batches import OF_KEYS, open_batch, streams_of
from stream.tables.chunks import MAX_CHUNK_BYTES, MAX_CHUNK_EVENTS, checksum, chunk_place, compress, items_of, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stream.database import Row, Sql
    from stream.tables.chunks import Item

ChunkRow = tuple[int, int, int, int, bytes]
"""A row of `chunks`: the key of its stream, its last number, how many events, its checksum and its data."""

_AT_ONCE: Final = 128
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
_MOST_STREAMS: Final = 1_000
_FEW_APPENDS: Final = 8
_SMALL_CHUNK_BYTES: Final = 4 * 1024
_INSERT_CHUNKS: Final = 200
_OLDEST: Final = """
SELECT pos, heads, places, again, data FROM batches WHERE pos > ?1 AND pos <= (
  SELECT max(pos) FROM (
    SELECT pos, sum(length(data)) OVER (ORDER BY pos) - length(data) AS bytes_before
    FROM batches WHERE pos > ?1 ORDER BY pos LIMIT ?2)
  WHERE bytes_before < ?3)
ORDER BY pos"""
_BEFORE: Final = """
SELECT c.stream, c.last, c.n, c.crc, c.data FROM json_each(?1) AS begin
CROSS JOIN chunks AS c ON c.stream = json_extract(begin.value, '$[0]') AND c.last = json_extract(begin.value, '$[1]')
WHERE c.n <= ?3 AND length(c.data) <= CASE substr(c.data, 1, 1) WHEN x'78' THEN ?2 / 4 ELSE ?2 END"""
_INSERT: Final = "INSERT INTO chunks (stream, last, n, crc, data) VALUES "
_DELETE: Final = "DELETE FROM batches WHERE pos IN (SELECT value FROM json_each(?))"


class Packed(NamedTuple):
    """How many batches were looked at, and behind which position the next ones lie: what is left up to there is damaged."""

    seen: int
    after: int


class _Stream(NamedTuple):
    name: str
    floor: int


class Prepared(NamedTuple):
    """The rows to put in for the batches behind a position and the batches that go then, as its streams were found."""

    after: int
    streams: dict[int, _Stream]
    rows: list[ChunkRow]
    gone: list[int]
    packed: Packed


class _Run:
    """Items of a stream that follow each other: the last number, and how many events and bytes; a damaged one is alone."""

    __slots__ = ("is_damaged", "items", "last", "n", "size_bytes")

    def __init__(self, last: int, n: int, item: Item, *, is_damaged: bool) -> None:
        self.last, self.n, self.size_bytes = last, n, len(item[2])
        self.items, self.is_damaged = [item], is_damaged


class _Plan(NamedTuple):
    """The chunks to make, by key of their stream; the batches that may go then, and the last one that may not."""

    chunks: list[tuple[int, _Run]]
    gone: list[int]
    damaged: int


async def pack_batches(sql: Sql, after: int) -> Packed:
    """Packs the oldest batches behind a position; to be run in one transaction.

    What lies below the floor of its stream goes. What is damaged becomes a chunk that fails its checksum, for whoever reads
    it to be told. Only a batch that does not tell what it holds stays where it is, and one that holds some of a stream whose
    floor can't be believed, or whose other rows are in the way.
    """
    rows, streams = await _look(sql, after)
    await sql("SAVEPOINT before_chunks")
    while True:
        plan = _plan(rows, streams, after)
        passed_over = await _insert(sql, await _rows_of(sql, streams, plan.chunks))
        if not passed_over:
            break
        await sql("ROLLBACK TO before_chunks")
        streams = {key: stream for key, stream in streams.items() if key not in passed_over}
    await sql(_DELETE, (json.dumps(plan.gone),))
    return Packed(len(rows), plan.damaged)


async def prepare_batches(sql: Sql, after: int) -> Prepared:
    """What `pack_batches` would do, unpacked, checked and compressed while nobody waits for it; to be run in one look."""
    rows, streams = await _look(sql, after)
    plan = _plan(rows, streams, after)
    return Prepared(after, streams, await _rows_of(sql, streams, plan.chunks), plan.gone, Packed(len(rows), plan.damaged))


async def pack_prepared(sql: Sql, prepared: Prepared) -> Packed:
    """As `pack_batches`, in one transaction too, by what was prepared; what has moved since is looked at anew.

    No event changes, so what may be out of date is whether its stream has let it go, and where rows begin and end. The
    schema passes over what does not fit in.
    """
    if await _streams(sql, prepared.streams) == prepared.streams:
        await sql("SAVEPOINT before_chunks")
        if not await _insert(sql, prepared.rows):
            await sql(_DELETE, (json.dumps(prepared.gone),))
            return prepared.packed
        await sql("ROLLBACK TO before_chunks")
    return await pack_batches(sql, prepared.after)


async def _look(sql: Sql, after: int) -> tuple[Sequence[Row], dict[int, _Stream]]:
    rows, keys = _first(await sql(_OLDEST, (after, _AT_ONCE, _BYTES_AT_ONCE)))
    return rows, await _streams(sql, keys)


async def _streams(sql: Sql, keys: Iterable[int]) -> dict[int, _Stream]:
    """Those whose floor can be believed."""
    rows = await sql(OF_KEYS, (json.dumps(list(keys)),))
    return {int(key): _Stream(str(name), int(floor)) for key, name, floor in rows}


def _first(rows: Sequence[Row]) -> tuple[Sequence[Row], set[int]]:
    """As many as do not keep who appends waiting, at least one, and the keys of their streams, few enough to write quickly."""
    keys: set[int] = set()
    for count, row in enumerate(rows):
        more = keys.union(streams_of(row[1]))
        if count and len(more) > _MOST_STREAMS:
            return rows[:count], keys
        keys = more
    return rows, keys


def _plan(rows: Sequence[Row], streams: Mapping[int, _Stream], after: int) -> _Plan:
    names = {key: stream.name for key, stream in streams.items()}
    floors = {key: stream.floor for key, stream in streams.items()}
    newest: dict[int, _Run] = {}
    chunks: list[tuple[int, _Run]] = []
    gone: list[int] = []
    unclear = after
    for pos, *columns in rows:
        try:
            at, places, data, damaged = open_batch(columns, names)
        except ValueError:
            unclear = pos
            continue
        gone.append(pos)
        end = 0
        for index, (key, last, n, name, _, size_bytes) in enumerate(places):
            begin, end = end, end + size_bytes
            if last <= floors[key]:
                continue
            item, run = (at, name, data[begin:end]), newest.get(key)
            if (  # it goes on, up to a good size
                run is not None
                and last - n == run.last
                and run.size_bytes + size_bytes <= MAX_CHUNK_BYTES
                and run.n + n <= MAX_CHUNK_EVENTS
                and not (run.is_damaged or index in damaged)
            ):
                run.last, run.n, run.size_bytes = last, run.n + n, run.size_bytes + size_bytes
                run.items.append(item)
            else:
                newest[key] = run = _Run(last, n, item, is_damaged=index in damaged)
                chunks.append((key, run))
    return _Plan(chunks, gone, unclear)


async def _rows_of(sql: Sql, streams: Mapping[int, _Stream], chunks: Sequence[tuple[int, _Run]]) -> list[ChunkRow]:
    earlier = await _small_chunks(sql, [(key, run) for key, run in chunks if run.last - run.n > streams[key].floor])
    return [_chunk(key, streams[key].name, run, earlier.get((key, run.last - run.n))) for key, run in chunks]


async def _insert(sql: Sql, rows: Sequence[ChunkRow]) -> set[int]:
    """The keys of the streams not all of whose chunks went in: the schema passes over what does not fit in."""
    left = Counter(row[0] for row in rows)
    for begin in range(0, len(rows), _INSERT_CHUNKS):
        some = rows[begin : begin + _INSERT_CHUNKS]
        text = _INSERT + ", ".join(["(?, ?, ?, ?, ?)"] * len(some)) + " RETURNING stream"
        left.subtract(int(key) for (key,) in await sql(text, [value for row in some for value in row]))
    return {key for key, count in left.items() if count}


async def _small_chunks(sql: Sql, chunks: Sequence[tuple[int, _Run]]) -> dict[tuple[int, int], Row]:
    """The small chunks right before short runs, by stream and last number: they are written anew together with these.

    One below the floor is none of them: what was to go would live on with what came after it.
    """
    begins = [(key, run.last - run.n) for key, run in chunks if len(run.items) < _FEW_APPENDS and not run.is_damaged]
    rows = await sql(_BEFORE, (json.dumps(begins), _SMALL_CHUNK_BYTES, MAX_CHUNK_EVENTS // 2)) if begins else []
    return {(row[0], row[1]): row for row in rows}


def _chunk(key: int, name: str, run: _Run, earlier: Row | None) -> ChunkRow:
    items, n = run.items, run.n
    if earlier is not None:
        with suppress(CorruptEvent):  # damaged, or unpacked not small: each stays by itself
            items, n = [*items_of(name, earlier[1:], max_bytes=_SMALL_CHUNK_BYTES), *items], n + earlier[2]
    data = join(items) if run.is_damaged else compress(items)
    crc = checksum(chunk_place(name, run.last), data)
    return key, run.last, n, ~crc if run.is_damaged else crc, data
