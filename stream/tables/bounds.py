"""Reads what a stream keeps apart from its rows, and notices where that can't be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stream.admission import Watermark
from stream.errors import CorruptEvent
from stream.records import Bounds
from stream.tables.moves import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stream.database import Row, Sql

_WATERMARK: Final = """
SELECT epoch, seq, first, last, guard FROM producers
WHERE stream = (SELECT id FROM streams WHERE name = ?) AND name = ?"""
_RAISE_FLOOR: Final = Move(
    "floor = ?2, guard = guard + 5 * (?2 % 1000003 - floor % 1000003)", "name = ?1 AND ?2 <= head AND ?2 > floor"
)
_BOUNDS: Final = "SELECT floor, head, origin, guard FROM streams WHERE name = ?"


async def read_bounds(sql: Sql, stream_id: str) -> Bounds:
    """See `EventStore.bounds`. Raises `CorruptEvent` where the row of the stream is damaged."""
    return bounds_of(stream_id, await sql(_BOUNDS, (stream_id,)))


async def raise_floor(sql: Sql, text_of: Callable[[Move], str], stream_id: str, through: int) -> Bounds:
    """Raises the floor to `through`, never lowers it; the bounds then. Raises `ValueError` for what lies beyond the head.

    `text_of` makes the SQL of a move.
    """
    rows = await sql(text_of(_RAISE_FLOOR), (stream_id, through))
    if rows:
        return bounds_of(stream_id, rows)
    bounds = await read_bounds(sql, stream_id)
    if through > bounds.head:
        raise ValueError(f"stream {stream_id!r} ends at {bounds.head}, it can't be truncated through {through}")
    return bounds


async def read_watermark(sql: Sql, stream_id: str, producer_id: str) -> Watermark | None:
    """What is known of a producer. Raises `CorruptEvent` where its row is damaged."""
    return watermark_of(stream_id, producer_id, await sql(_WATERMARK, (stream_id, producer_id)))


def bounds_of(stream_id: str, rows: Sequence[Row]) -> Bounds:
    """Rows of floor, head, origin and guard as bounds; all 0 where there is none."""
    return check_bounds(stream_id, *rows[0]) if rows else Bounds(0, 0)


def check_bounds(stream_id: str, floor: Any, head: Any, origin: Any, guard: Any) -> Bounds:
    """These as bounds. The schema keeps them right, so anything else is damage."""
    numbers = (head, floor, origin)
    if all(isinstance(number, int) for number in numbers) and 0 <= origin <= floor <= head and guard == _guard(numbers):
        return Bounds(floor, head, origin)
    raise CorruptEvent(stream_id, 0, "the row that keeps its floor, head and origin is damaged")


def watermark_of(stream_id: str, producer_id: str, rows: Sequence[Row]) -> Watermark | None:
    """Rows of epoch, seq, first, last and guard as a watermark; None before a first append. Raises `CorruptEvent`."""
    if not rows or rows[0] == (None,) * 5:
        return None
    epoch, seq, first, last, guard = rows[0]
    numbers = (epoch, seq, first, last)
    if not all(isinstance(number, int) for number in numbers) or guard != _guard(numbers):
        raise CorruptEvent(stream_id, 0, f"the row that keeps the watermark of producer {producer_id!r} is damaged")
    return Watermark(epoch, seq, first, last)


def _guard(numbers: tuple[int, ...]) -> int:
    """As the schema has it; the remainder keeps large numbers from leaving SQLite's integers."""
    return sum(factor * (number % 1_000_003) for factor, number in zip((3, 5, 7, 11), numbers, strict=False))
