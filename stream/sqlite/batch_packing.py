"""Packs the oldest batches into chunks, one for each of their streams, so that there are never many batches to look through."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import CorruptEvent
from stream.sqlite.batches import OF_KEYS, heads_of, parts_of
from stream.sqlite.chunks import checksum, chunk_place, compress, items_of, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stream.database import Row, Sql
    from stream.sqlite.batches import Run

ChunkRow = tuple[int, int, int, int, bytes]
"""A row of `chunks`: the key of its stream, its last number, how many events, its checksum and its data."""

_AT_ONCE: Final = 32
_MOST_STREAMS: Final = 1_000
_MAX_CHUNK_BYTES: Final = 48 * 1024
_MAX_CHUNK_EVENTS: Final = 4_000
_FEW_APPENDS: Final = 8
_SMALL_CHUNK_BYTES: Final = 4 * 1024
_INSERT_CHUNKS: Final = 200
_OLDEST: Final = "SELECT pos, heads, places, again, data FROM batches WHERE pos > ? ORDER BY pos LIMIT ?"
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


class _Plan(NamedTuple):
    """The chunks to make, by key of their stream; the batches that may go then, and the last one that may not."""

    chunks: list[tuple[int, Run]]
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
    rows = _first(await sql(_OLDEST, (after, _AT_ONCE)))
    return rows, await _streams(sql, {key for row in rows for key in heads_of(row[1])})


async def _streams(sql: Sql, keys: Iterable[int]) -> dict[int, _Stream]:
    """Those whose floor can be believed."""
    rows = await sql(OF_KEYS, (json.dumps(list(keys)),))
    return {int(key): _Stream(str(name), int(floor)) for key, name, floor in rows}


def _first(rows: Sequence[Row]) -> Sequence[Row]:
    """As many as do not keep who appends waiting: at least one, and of no more streams than are quickly written."""
    keys: set[int] = set()
    for count, row in enumerate(rows):
        keys.update(heads_of(row[1]))
        if count and len(keys) > _MOST_STREAMS:
            return rows[:count]
    return rows


def _plan(rows: Sequence[Row], streams: Mapping[int, _Stream], after: int) -> _Plan:
    names = {key: stream.name for key, stream in streams.items()}
    runs: dict[int, list[Run]] = {}
    gone: list[int] = []
    damaged = after
    for pos, *columns in rows:
        try:
            parts = parts_of(columns, names)
        except ValueError:
            damaged = pos
            continue
        gone.append(pos)
        for key, of_stream in parts.items():
            for part in of_stream:
                if part.last > streams[key].floor:
                    _add(runs.setdefault(key, []), part)
    return _Plan([(key, run) for key, of_stream in runs.items() for run in of_stream], gone, damaged)


async def _rows_of(sql: Sql, streams: Mapping[int, _Stream], chunks: Sequence[tuple[int, Run]]) -> list[ChunkRow]:
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


def _add(runs: list[Run], part: Run) -> None:
    """What follows the last run goes into it, up to a good size."""
    last = runs[-1] if runs else None
    if (
        last is not None
        and not (last.is_damaged or part.is_damaged)
        and part.last - part.n == last.last
        and last.size_bytes + part.size_bytes <= _MAX_CHUNK_BYTES
        and last.n + part.n <= _MAX_CHUNK_EVENTS
    ):
        last.take(part)
    else:
        runs.append(part)


async def _small_chunks(sql: Sql, chunks: Sequence[tuple[int, Run]]) -> dict[tuple[int, int], Row]:
    """The small chunks right before short runs, by stream and last number: they are written anew together with these.

    One below the floor is none of them: what was to go would live on with what came after it.
    """
    begins = [(key, run.last - run.n) for key, run in chunks if len(run.items) < _FEW_APPENDS and not run.is_damaged]
    rows = await sql(_BEFORE, (json.dumps(begins), _SMALL_CHUNK_BYTES, _MAX_CHUNK_EVENTS // 2)) if begins else []
    return {(row[0], row[1]): row for row in rows}


def _chunk(key: int, name: str, run: Run, earlier: Row | None) -> ChunkRow:
    items, n = run.items, run.n
    if earlier is not None:
        with suppress(CorruptEvent):  # damaged, or unpacked not small: each stays by itself
            items, n = [*items_of(name, earlier[1:], max_bytes=_SMALL_CHUNK_BYTES), *items], n + earlier[2]
    data = join(items) if run.is_damaged else compress(join(items))
    crc = checksum(chunk_place(name, run.last), data)
    return key, run.last, n, ~crc if run.is_damaged else crc, data
