"""Packs the oldest batches into chunks, one for each of their streams, so that there are never many batches to look through."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import CorruptEvent
from stream.sqlite.batches import unpack_batch
from stream.sqlite.chunks import checksum, chunk_place, join, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stream.database import Row, Sql
    from stream.sqlite.chunks import StoredAppend

_AT_ONCE: Final = 32
_MAX_CHUNK_BYTES: Final = 48 * 1024
_MAX_CHUNK_EVENTS: Final = 4_000
_FEW_APPENDS: Final = 8
_SMALL_CHUNK_BYTES: Final = 4 * 1024
_INSERT_CHUNKS: Final = 200
_OLDEST: Final = "SELECT pos, places, again, data FROM batches WHERE pos > ? ORDER BY pos LIMIT ?"
_STREAMS: Final = "SELECT s.id, s.name, s.floor FROM json_each(?) AS key CROSS JOIN streams AS s ON s.id = key.value"
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

    What lies below the floor of its stream goes. A batch that is damaged stays where it is, for whoever reads it to be told.
    """
    rows = await sql(_OLDEST, (after, _AT_ONCE))
    batches = [(int(row[0]), _read(row)) for row in rows]
    keys = {key for _, appends in batches for key, _ in appends or ()}
    streams = {int(key): (str(name), int(floor)) for key, name, floor in await sql(_STREAMS, (json.dumps(list(keys)),))}
    sound = {pos: appends for pos, appends in batches if appends is not None and _are_sound(appends, streams)}
    by_stream: dict[int, list[list[StoredAppend]]] = {}
    for appends in sound.values():
        parts: dict[int, list[StoredAppend]] = {}
        for key, append in appends:
            parts.setdefault(key, []).append(append)
        for key, part in parts.items():
            if part[-1].last > streams[key][1]:
                by_stream.setdefault(key, []).append(part)
    chunks = [(key, run) for key, parts_of in by_stream.items() for run in _runs(parts_of)]
    earlier = await _small_chunks(sql, chunks)
    for begin in range(0, len(chunks), _INSERT_CHUNKS):
        values: list[object] = []
        for key, run in chunks[begin : begin + _INSERT_CHUNKS]:
            values += _chunk(key, streams[key][0], run, earlier.get((key, run[0].last - run[0].n)))
        await sql(_INSERT + ", ".join(["(?, ?, ?, ?, ?)"] * (len(values) // 5)), values)
    await sql(_DELETE, (json.dumps(list(sound)),))
    damaged = [pos for pos, _ in batches if pos not in sound]
    return Packed(len(sound), max(damaged, default=after))


def _read(row: Row) -> list[tuple[int, StoredAppend]] | None:
    try:
        return [(placed.stream, placed.append) for placed in unpack_batch(*row[1:])]
    except ValueError:
        return None


def _are_sound(appends: Sequence[tuple[int, StoredAppend]], streams: dict[int, tuple[str, int]]) -> bool:
    try:
        for key, append in appends:
            merge(streams[key][0], [append])
    except (CorruptEvent, KeyError):
        return False
    return True


def _runs(parts: list[list[StoredAppend]]) -> Iterator[list[StoredAppend]]:
    """The parts that follow each other, in pieces of a good size; what a batch holds of a stream stays together."""
    run: list[StoredAppend] = []
    size_bytes = events = 0
    for part in parts:
        more_bytes, more = sum(len(append.data) for append in part), sum(append.n for append in part)
        goes_on = run and part[0].last - part[0].n == run[-1].last
        if run and (not goes_on or size_bytes + more_bytes > _MAX_CHUNK_BYTES or events + more > _MAX_CHUNK_EVENTS):
            yield run
            run, size_bytes, events = [], 0, 0
        run += part
        size_bytes += more_bytes
        events += more
    if run:
        yield run


async def _small_chunks(sql: Sql, chunks: Sequence[tuple[int, list[StoredAppend]]]) -> dict[tuple[int, int], Row]:
    """The small chunks right before short runs, by stream and last number: they are written anew together with these."""
    begins = [(key, run[0].last - run[0].n) for key, run in chunks if len(run) < _FEW_APPENDS]
    rows = await sql(_BEFORE, (json.dumps(begins), _SMALL_CHUNK_BYTES, _MAX_CHUNK_EVENTS // 2)) if begins else []
    return {(row[0], row[1]): row for row in rows}


def _chunk(key: int, name: str, run: list[StoredAppend], earlier: Row | None) -> tuple[int, int, int, int, bytes]:
    data, last, events = merge(name, run), run[-1].last, sum(append.n for append in run)
    if earlier is not None:
        with suppress(CorruptEvent):  # then each stays by itself
            data, events = join(name, earlier[1:], data), events + earlier[2]
    return key, last, events, checksum(chunk_place(name, last), data), data
