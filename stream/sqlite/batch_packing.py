"""Packs the oldest batches into chunks, one for each of their streams, so that there are never many batches to look through."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import CorruptEvent
from stream.sqlite.batches import OF_KEYS, heads_of, parts_of
from stream.sqlite.chunks import checksum, chunk_place, items_of, join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream.database import Row, Sql
    from stream.sqlite.batches import Run

_AT_ONCE: Final = 32
_MAX_CHUNK_BYTES: Final = 48 * 1024
_MAX_CHUNK_EVENTS: Final = 4_000
_FEW_APPENDS: Final = 8
_SMALL_CHUNK_BYTES: Final = 4 * 1024
_INSERT_CHUNKS: Final = 200
_OLDEST: Final = "SELECT pos, heads, places, again, data FROM batches WHERE pos > ? ORDER BY pos LIMIT ?"
_BEFORE: Final = """
SELECT c.stream, c.last, c.n, c.crc, c.data FROM json_each(?1) AS begin
CROSS JOIN chunks AS c ON c.stream = json_extract(begin.value, '$[0]') AND c.last = json_extract(begin.value, '$[1]')
WHERE length(c.data) <= ?2 AND c.n <= ?3"""
_INSERT: Final = "INSERT INTO chunks (stream, last, n, crc, data) VALUES "
_DELETE: Final = "DELETE FROM batches WHERE pos IN (SELECT value FROM json_each(?))"


class Packed(NamedTuple):
    """How many batches went, and behind which position the next ones lie: up to there all that are left are damaged."""

    gone: int
    after: int


async def pack_batches(sql: Sql, after: int) -> Packed:
    """Packs the oldest batches behind a position; to be run in one transaction.

    What lies below the floor of its stream goes. What is damaged becomes a chunk that fails its checksum, for whoever reads
    it to be told; only a batch that does not tell what it holds stays where it is.
    """
    rows = await sql(_OLDEST, (after, _AT_ONCE))
    keys = json.dumps(list({key for row in rows for key in heads_of(row[1])}))
    streams = {int(key): (str(name), int(floor)) for key, name, floor in await sql(OF_KEYS, (keys,))}
    names = {key: name for key, (name, _) in streams.items()}
    runs: dict[int, list[Run]] = {}
    packed: list[int] = []
    damaged = after
    for pos, *columns in rows:
        try:
            parts = parts_of(columns, names)
        except ValueError:
            damaged = pos
            continue
        packed.append(pos)
        for key, part in parts.items():
            if part.last > streams[key][1]:
                _add(runs.setdefault(key, []), part)
    chunks = [(key, run) for key, of_stream in runs.items() for run in of_stream]
    earlier = await _small_chunks(sql, chunks)
    for begin in range(0, len(chunks), _INSERT_CHUNKS):
        values: list[object] = []
        for key, run in chunks[begin : begin + _INSERT_CHUNKS]:
            values += _chunk(key, names[key], run, earlier.get((key, run.last - run.n)))
        await sql(_INSERT + ", ".join(["(?, ?, ?, ?, ?)"] * (len(values) // 5)), values)
    await sql(_DELETE, (json.dumps(packed),))
    return Packed(len(packed), damaged)


def _add(runs: list[Run], part: Run) -> None:
    """What follows the last run goes into it, up to a good size; what a batch holds of a stream stays together."""
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
    """The small chunks right before short runs, by stream and last number: they are written anew together with these."""
    begins = [(key, run.last - run.n) for key, run in chunks if len(run.items) < _FEW_APPENDS and not run.is_damaged]
    rows = await sql(_BEFORE, (json.dumps(begins), _SMALL_CHUNK_BYTES, _MAX_CHUNK_EVENTS // 2)) if begins else []
    return {(row[0], row[1]): row for row in rows}


def _chunk(key: int, name: str, run: Run, earlier: Row | None) -> tuple[int, int, int, int, bytes]:
    items, n = run.items, run.n
    if earlier is not None:
        with suppress(CorruptEvent):  # then each stays by itself
            items, n = [*items_of(name, earlier[1:]), *items], n + earlier[2]
    data = join(items)
    crc = checksum(chunk_place(name, run.last), data)
    return key, run.last, n, ~crc if run.is_damaged else crc, data
