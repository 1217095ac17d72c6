"""Looks through the log for what should not be: rows, the watermarks of producers, snapshots."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stream.errors import CorruptEvent
from stream.snapshots import open_envelope
from stream.sqlite.batches import OF_STREAM, appends_of, pack_head, unpack_batch, write_numbers
from stream.sqlite.integrity import Fault, telling, versions
from stream.tables.chunks import StoredAppend, split, unpack

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

BATCHES_SINCE: Final = 3
"""The version of the tables that has `batches`."""

_PAGE_ROWS: Final = 256
_STREAMS: Final = "SELECT name, head FROM streams WHERE name > ?1 AND (?2 IS NULL OR name = ?2) ORDER BY name LIMIT 500"
_UNGUARDED: Final = """
SELECT name FROM streams WHERE (?1 IS NULL OR name = ?1)
AND (guard = 3 * (head % 1000003) + 5 * (floor % 1000003) + 7 * (origin % 1000003)) IS NOT TRUE"""
_MARKS: Final = """
SELECT stream, (SELECT name FROM streams AS s WHERE s.id = stream) FROM marks
WHERE (?1 IS NULL OR stream = (SELECT id FROM streams WHERE name = ?1)) AND (
  guard <> 3 * (stream % 1000003) + 5 * (number % 1000003) + 7 * (head % 1000003)
  OR NOT EXISTS (SELECT 1 FROM streams AS s WHERE s.id = stream AND s.head >= marks.head AND s.changed >= number))"""
_UNMARKED: Final = 2  # the last version without marks
_FLOOR: Final = "SELECT floor FROM streams WHERE name = ?"
_APPENDS: Final = """
SELECT a.last, a.n, a.at, a.{id}, a.crc, a.data, a.producer, a.epoch, a.{number}, p.name, p.stream = s.id, p.epoch, p.seq
FROM streams AS s JOIN {table} AS a ON a.stream = s.id AND a.last > max(s.floor, ?2)
LEFT JOIN producers AS p ON p.id = a.producer
WHERE s.name = ?1 ORDER BY a.last LIMIT ?3"""
_CHUNKS: Final = """
SELECT c.last, c.n, NULL, NULL, c.crc, c.data, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM streams AS s JOIN chunks AS c ON c.stream = s.id AND c.last > max(s.floor, ?2)
WHERE s.name = ?1 ORDER BY c.last LIMIT ?3"""
_BATCHES: Final = "SELECT pos, heads, places, again, data FROM batches WHERE pos > ? ORDER BY pos LIMIT 1"
_KEY: Final = "SELECT 1 FROM streams WHERE id = ?"
_ROWS: Final = {  # by version; those of later ones are as the last
    1: (_APPENDS.format(table="chunks", number="pseq", id="aid"),),
    2: (_APPENDS.format(table="appends", number="pseq", id="aid"), _CHUNKS),
    3: (_APPENDS.format(table="appends", number="producer_seq", id="append_id"), _CHUNKS),
}
_OF_NOBODY: Final = """
SELECT DISTINCT stream FROM {table} WHERE NOT EXISTS (SELECT 1 FROM streams WHERE id = stream)"""
_GUARD: Final = """
AND p.guard = 3 * (p.epoch % 1000003) + 5 * (p.seq % 1000003) + 7 * (p.first % 1000003) + 11 * (p.last % 1000003)"""
_WATERMARKS: Final = """
SELECT p.name, p.epoch, p.seq, p.first, p.last, s.head FROM producers AS p JOIN streams AS s ON s.id = p.stream
WHERE s.name = ? AND epoch IS NOT NULL AND NOT coalesce(
  p.epoch >= 0 AND p.seq >= 0 AND 0 < p.first AND p.first <= p.last + 1 AND p.last <= s.head {guard}, 0)"""
_MISPLACED: Final = """
SELECT n.projector, n.last_seq, s.origin, s.head FROM snapshots AS n JOIN streams AS s ON s.id = n.stream
WHERE s.name = ? AND NOT (s.origin < n.last_seq AND n.last_seq <= s.head)"""
_NEXT_SNAPSHOT: Final = """
SELECT n.rowid, s.name, n.projector, n.last_seq, n.envelope
FROM snapshots AS n JOIN streams AS s ON s.id = n.stream WHERE n.rowid > ? ORDER BY n.rowid LIMIT 1"""


def check_streams(connection: sqlite3.Connection, stream_id: str | None = None) -> Iterator[Fault]:
    """Rows of one stream or of all, from floor to head, and the watermarks and snapshots beside them.

    None is missing, each is as it was packed and in step with its producer. Holds one row at a time, and nothing open
    for longer than a page of rows.
    """
    yield from telling(_check_streams(connection, stream_id), Fault("", "file", "the log can't be read"))


def check_snapshots(connection: sqlite3.Connection) -> Iterator[Fault]:
    """Snapshots that fail their checksum."""
    yield from telling(_check_snapshots(connection), Fault("", "file", "the snapshots can't be read"))


def _check_streams(connection: sqlite3.Connection, stream_id: str | None) -> Iterator[Fault]:
    version = versions(connection).get("stream", 0)
    tables = _ROWS[min(version, max(_ROWS))] if version else ()
    last = ""
    while version and (streams := connection.execute(_STREAMS, (last, stream_id)).fetchall()):
        if streams[-1][0] <= last:  # the index leads round in circles
            raise ValueError("the index of streams is damaged")
        for name, head in streams:
            broken = Fault(name, "damaged", f"the rows of stream {name!r} can't be read")
            yield from telling(_check_rows(connection, tables, name, head, has_batches=version >= BATCHES_SINCE), broken)
            yield from telling(_check_places(connection, version, name), broken)
        last = streams[-1][0]
    for (name,) in connection.execute(_UNGUARDED, (stream_id,)).fetchall() if version > 1 else ():
        yield Fault(name, "damaged", f"the row that keeps floor, head and origin of stream {name!r} is damaged")
    for key, name in connection.execute(_MARKS, (stream_id,)).fetchall() if version > _UNMARKED else ():
        whose = f"of a stream that is not there, {key}" if name is None else f"where stream {name!r} stood"
        yield Fault(name or "", "damaged", f"a mark {whose} is damaged: followers of all streams are told of it again")
    for table in ("appends", "chunks") if version > 1 and stream_id is None else ():
        for (key,) in connection.execute(_OF_NOBODY.format(table=table)).fetchall():
            yield Fault("", "reference", f"rows of {table} are of a stream that is not there, {key}")
    if version >= BATCHES_SINCE and stream_id is None:
        yield from _check_batches(connection)


def _check_snapshots(connection: sqlite3.Connection) -> Iterator[Fault]:
    place = 0
    while "stream" in versions(connection) and (row := connection.execute(_NEXT_SNAPSHOT, (place,)).fetchone()):
        place, name, projector, last_seq, envelope = row
        if open_envelope(envelope, stream_id=name, projector=projector) is None:
            yield Fault(name, "snapshot", f"snapshot {last_seq} of {projector} of stream {name!r} fails its checksum")


def _check_batches(connection: sqlite3.Connection) -> Iterator[Fault]:
    """Batches that don't hold what they say; the appends in them are looked at with their streams."""
    pos = 0
    while row := connection.execute(_BATCHES, (pos,)).fetchone():
        pos, heads, places, again, data = row
        found: dict[int, int] = {}
        try:
            for key, append in unpack_batch(places, again, data):
                found[key] = pack_head(append.last, append.n, found.get(key, 0))
        except ValueError:
            yield Fault("", "damaged", f"batch {pos} does not say where its events lie")
            continue
        if places != again:
            yield Fault("", "damaged", f"one of the two lists of what batch {pos} holds is damaged; its events can be read")
        if heads != write_numbers(found):
            yield Fault("", "damaged", f"batch {pos} holds events of other streams, or other events, than it says")
        for key in found:
            if connection.execute(_KEY, (key,)).fetchone() is None:
                yield Fault("", "reference", f"events of batch {pos} are of a stream that is not there, {key}")


def _check_rows(
    connection: sqlite3.Connection, tables: tuple[str, ...], name: str, head: int, *, has_batches: bool
) -> Iterator[Fault]:
    cursor, count = 0, _PAGE_ROWS
    while count == _PAGE_ROWS:
        faults, cursor, count = _check_page(connection, tables, name, cursor, has_batches=has_batches)
        yield from faults
    if cursor < head:
        yield Fault(name, "missing", f"events {cursor + 1} to {head} of stream {name!r} are missing")
    elif cursor > head and cursor > connection.execute("SELECT head FROM streams WHERE name = ?", (name,)).fetchone()[0]:
        yield Fault(name, "damaged", f"stream {name!r} has rows up to {cursor}, beyond its head {head}")


def _check_page(
    connection: sqlite3.Connection, tables: tuple[str, ...], name: str, cursor: int, *, has_batches: bool
) -> tuple[list[Fault], int, int]:
    """The faults of the next rows behind `cursor`, the end of the last one, and how many rows there were."""
    faults: list[Fault] = []
    count = 0
    pages: list[sqlite3.Cursor] = []
    connection.execute("BEGIN")  # a floor that rises and rows that are moved meanwhile are seen together
    try:
        pages += [connection.execute(text, (name, cursor, _PAGE_ROWS)) for text in tables]
        cursor = max(cursor, *connection.execute(_FLOOR, (name,)).fetchone())  # what is below the floor is nobody's any more
        in_batches = _rows_of_batches(connection, name, cursor) if has_batches else []
        for row in islice(heapq.merge(*pages, in_batches, key=lambda row: int(row[0])), _PAGE_ROWS):
            count += 1
            last, n = row[:2]
            if last - n > cursor:
                faults.append(Fault(name, "missing", f"events {cursor + 1} to {last - n} of stream {name!r} are missing"))
            elif last - n < cursor and count > 1:  # the first may straddle the floor, or be packed since the page before
                faults.append(Fault(name, "damaged", f"events {last - n + 1} to {last} of stream {name!r} are there twice"))
            faults += _check_row(name, *row)
            cursor = max(cursor, last)
    finally:
        for page in pages:
            page.close()
        if connection.in_transaction:  # an error of the disk has ended it
            connection.execute("COMMIT")
    return faults, cursor, count


def _rows_of_batches(connection: sqlite3.Connection, name: str, after: int) -> list[tuple[Any, ...]]:
    """What batches hold of a stream behind a number, as rows of `appends`."""
    appends = appends_of(connection.execute(OF_STREAM, (name,)))
    return [(*append, *[None] * 7) for append in appends if append.last > after]


def _check_row(
    name: str, last: int, n: int, at: int | None, aid: bytes, crc: int, data: bytes, *producer: Any
) -> Iterator[Fault]:
    try:
        if at is None:
            split(name, last, n, crc, data)
        else:
            unpack(name, StoredAppend(last, n, at, aid, crc, data))
    except CorruptEvent as error:
        yield Fault(name, "damaged", str(error))
    except msgspec.MsgspecError as error:
        yield Fault(name, "damaged", f"events {last - n + 1} to {last} of stream {name!r} can't be unpacked ({error})")
    key, epoch, number, who, is_own, newest_epoch, newest_number = producer
    if key is None:
        return
    if not is_own:
        whose = "that is not there" if who is None else f"of another stream, {who!r}"
        yield Fault(name, "reference", f"event {last} of stream {name!r} is of a producer {whose}")
    elif newest_epoch is None or (epoch, number) > (newest_epoch, newest_number):
        yield Fault(name, "producer", f"producer {who!r} of stream {name!r} has forgotten its append {epoch}/{number}")


def _check_places(connection: sqlite3.Connection, version: int, name: str) -> Iterator[Fault]:
    watermarks = _WATERMARKS.format(guard=_GUARD if version > 1 else "")
    for who, epoch, number, first, last, head in connection.execute(watermarks, (name,)).fetchall():
        what = f"producer {who!r} of stream {name!r} is at {epoch}/{number}, events {first} to {last}, the head is {head}"
        yield Fault(name, "producer", what)
    for projector, last_seq, origin, head in connection.execute(_MISPLACED, (name,)).fetchall():
        what = f"snapshot {last_seq} of {projector} of stream {name!r} lies outside its events {origin + 1} to {head}"
        yield Fault(name, "snapshot", what)
