"""What of the change feed SQLite says in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stream.tables.feed import FeedTexts

if TYPE_CHECKING:
    from stream.tables.moves import Move

LAST: Final = "SELECT coalesce(max(changed), 0) FROM streams"
"""The number of the last one."""

FEED: Final = FeedTexts(LAST, ("INDEXED BY streams_by_change", "CROSS"))


def move(move: Move) -> str:
    """The SQL of a move; a trigger marks it."""
    number = "(SELECT max(changed) FROM streams) + 1"
    return f"UPDATE streams SET {move.sets}, changed = {number} WHERE {move.where} RETURNING floor, head, origin, guard"  # noqa: S608
