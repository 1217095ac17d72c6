"""Which conversations speak of which media."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.tables.texts import KEY

if TYPE_CHECKING:
    from stream.database import Sql

_USE: Final = """
INSERT INTO uses (conversation, media) SELECT ?1, ?2
WHERE NOT EXISTS (SELECT 1 FROM uses WHERE conversation = ?1 AND media = ?2)"""
_USED: Final = f"""
SELECT media FROM uses WHERE conversation = {KEY} AND EXISTS (SELECT 1 FROM media WHERE id = uses.media)
ORDER BY media"""  # noqa: S608 - a constant


async def use(sql: Sql, key: int, media_id: str) -> None:
    """A conversation speaks of media, which need not be there."""
    await sql(_USE, (key, media_id))


async def used(sql: Sql, conversation: str) -> list[str]:
    """The ids of the media that a conversation speaks of and that are there, in order."""
    return [media_id for (media_id,) in await sql(_USED, (conversation,))]
