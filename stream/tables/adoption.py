"""Takes a stream of another store in, row by row, under the same rules as an append."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from stream.errors import SeqConflict
from stream.records import NewEvent
from stream.tables.chunks import append_place, checksum, pack
from stream.tables.moves import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stream.database import Sql
    from stream.records import Event, Producer

_ROW_EVENTS: Final = 500
_ROW_BYTES: Final = 256 * 1024
_INSERT: Final = "INSERT INTO appends (stream, last, n, at, append_id, crc, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
_BEGIN: Final = Move("head = ?2, floor = ?2, origin = ?3, guard = 8 * (?2 % 1000003) + 7 * (?3 % 1000003)", "id = ?1", "0")
_MOVE_HEAD: Final = Move(
    "head = ?2, guard = guard + 3 * (?2 % 1000003 - head % 1000003)", "id = ?1 AND head < ?2", "floor"
)  # unless a trigger has
_KNOW_PRODUCER: Final = """
INSERT INTO producers (stream, name)
SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM producers WHERE stream = ?1 AND name = ?2)"""
_SET_WATERMARK: Final = """
UPDATE producers SET epoch = ?3, seq = ?4, first = ?5 + 1, last = ?5,
  guard = 3 * (?3 % 1000003) + 5 * (?4 % 1000003) + 7 * ((?5 + 1) % 1000003) + 11 * (?5 % 1000003)
WHERE stream = ?1 AND name = ?2"""


async def adopt(
    sql: Sql, text_of: Callable[[Move], str], stream_id: str, events: Sequence[Event], floor: int, origin: int,
    producers: Sequence[Producer],
) -> None:  # fmt: skip
    """To be run in one transaction, with what `check_adoption` has passed. Raises `SeqConflict` for a known stream.

    `text_of` makes the SQL of a move.
    """
    await sql("INSERT INTO streams (name) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM streams WHERE name = ?1)", (stream_id,))
    [(key, head)] = await sql("SELECT id, head FROM streams WHERE name = ?", (stream_id,))
    if head:
        raise SeqConflict(stream_id, 0, head)
    await sql(text_of(_BEGIN), (key, floor, origin))
    for row in _rows(events):
        last, data = row[-1].seq, pack([NewEvent(event.type, event.data) for event in row])
        at = row[0].at
        crc = checksum(append_place(stream_id, last, at, b""), data)
        await sql(_INSERT, (key, last, len(row), at, b"", crc, data))
    head = floor + len(events)
    await sql(text_of(_MOVE_HEAD), (key, head))
    for producer in producers:  # the numbers of its newest append are not known here
        place = (key, producer.id)
        await sql(_KNOW_PRODUCER, place)
        await sql(_SET_WATERMARK, (*place, producer.epoch, producer.seq, head))


def _rows(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Neighbours of one time share a row, up to a size that is quick to read."""
    for _, group in itertools.groupby(events, key=lambda event: event.at):
        row: list[Event] = []
        size_bytes = 0
        for event in group:
            if row and (len(row) >= _ROW_EVENTS or size_bytes + len(event.data) > _ROW_BYTES):
                yield row
                row, size_bytes = [], 0
            row.append(event)
            size_bytes += len(event.data)
        yield row
