"""What the tables hold of an erasure: its intention and claim, as JSON, and how the rows of a conversation go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from stream.database import Sql

_LOOK: Final = "SELECT id, messages, runs, erased FROM conversations WHERE stream_id = ?1"
_NOTE: Final = "UPDATE conversations SET erased = ?2 WHERE stream_id = ?1"
_OWN: Final = ("calls", "labels", "messages", "runs", "pages", "selections", "uses", "choices")
_DROP_MEDIA: Final = """
DELETE FROM media WHERE id IN (SELECT media FROM uses WHERE conversation = ?1)
  AND NOT EXISTS (SELECT 1 FROM uses AS u WHERE u.media = media.id AND u.conversation <> ?1)"""
_EMPTY: Final = """
UPDATE conversations SET projected_seq = ?2, replay_from = ?2, leaf = NULL, title = NULL, metadata = NULL, archived = 0,
  messages = 0, runs = 0, orphans = 0, holes = NULL, erased = ?3, rewound = rewound + 1, calls_from = 0, paged_seq = 0
WHERE id = ?1"""


class Standing(NamedTuple):
    """What there is of a conversation, and of its erasure."""

    key: int
    messages: int
    runs: int
    erased: str | None


async def look(sql: Sql, conversation: str) -> Standing:
    """Of a conversation that the ledger knows."""
    [row] = await sql(_LOOK, (conversation,))
    return Standing(*row)


async def note(sql: Sql, conversation: str, erased: str) -> None:
    """Another state of the erasure."""
    await sql(_NOTE, (conversation, erased))


async def wipe(sql: Sql, key: int, origin: int, erased: str) -> None:
    """Empties the rows of a conversation, media that no other speaks of too, and puts it to `origin`."""
    await sql(_DROP_MEDIA, (key,))
    for table in _OWN:
        await sql(f"DELETE FROM {table} WHERE conversation = ?1", (key,))  # noqa: S608 - constants
    await sql(_EMPTY, (key, origin, erased))
