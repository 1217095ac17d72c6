"""What the append path asks of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stream.tables.moves import MARKED_BITS, marked

if TYPE_CHECKING:
    from stream.postgres.dialects import ServerDialect

_GUARD: Final = "3 * ({0}.head % 1000003) + 5 * ({0}.floor % 1000003) + 7 * ({0}.origin % 1000003)"
_WATERMARK: Final = "3 * (p.epoch % 1000003) + 5 * (p.seq % 1000003) + 7 * (p.first % 1000003) + 11 * (p.last % 1000003)"


def append_text(dialect: ServerDialect) -> str:
    """The statement for appends of many streams.

    The number of the change is drawn before the first row is locked, and its lock lasts until the commit: so writers take
    turns, and nobody waits in a circle. A row that was moved meanwhile is looked at again as it is then. A producer moves only
    with the head of its stream, so what this statement sees of it is true where the head is. `moves` may see an older change
    of a stream than the one it is moved from: then it is marked once more, which does no harm.
    """
    return f"""
WITH moves AS (
  SELECT m.stream, m.head, m.last, s.changed
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS m (stream, head, last)
  JOIN streams AS s ON s.id = m.stream AND s.head = m.head),
marks_of AS (
  SELECT * FROM unnest($11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[],
    $18::bigint[]) AS p (stream, producer, begin_epoch, begin_seq, epoch, seq, first, last)),
drawn AS ({dialect.draw("SELECT 1 FROM moves")}),
moved AS (
  UPDATE streams AS s SET head = m.last, guard = s.guard + 3 * (m.last % 1000003 - s.head % 1000003),
    changed = (SELECT number FROM drawn)
  FROM moves AS m
  WHERE s.id = m.stream AND s.head = m.head AND s.guard = {_GUARD.format("s")} AND NOT EXISTS (
    SELECT 1 FROM marks_of AS p JOIN producers AS w ON w.id = p.producer WHERE p.stream = s.id AND NOT coalesce(
      CASE WHEN w.epoch IS NULL OR p.begin_epoch > w.epoch THEN p.begin_seq = 0
      ELSE p.begin_epoch = w.epoch AND p.begin_seq = w.seq + 1 END, false))
  RETURNING s.id, s.changed, m.head AS head_before, m.changed AS changed_before),
rows_in AS (
  INSERT INTO appends (stream, last, n, at, append_id, crc, data)
  SELECT r.stream, r.last, r.n, $6::bigint, r.append_id, r.crc, r.data
  FROM unnest($4::bigint[], $5::bigint[], $7::bigint[], $8::bytea[], $9::bigint[], $10::bytea[])
    AS r (stream, last, n, append_id, crc, data)
  JOIN moved ON moved.id = r.stream),
marked_producers AS (
  UPDATE producers AS w SET epoch = p.epoch, seq = p.seq, first = p.first, last = p.last,
    guard = {_WATERMARK}
  FROM marks_of AS p JOIN moved ON moved.id = p.stream WHERE w.id = p.producer),
marked AS (
  {marked("head_before", "moved")}
  WHERE changed >> {MARKED_BITS} > changed_before >> {MARKED_BITS} OR changed_before = 0)
SELECT id, changed FROM moved"""  # noqa: S608 - constants


STORED: Final = """
SELECT s.head, coalesce(s.floor, 0), a.append_id IS NOT NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) WITH ORDINALITY AS w (stream, last, append_id, place)
LEFT JOIN streams AS s ON s.id = w.stream
LEFT JOIN appends AS a ON a.stream = w.stream AND a.last = w.last AND a.append_id = w.append_id ORDER BY w.place"""
EARLIER: Final = "SELECT n FROM appends WHERE stream = ? AND last = ? AND append_id = ?"
