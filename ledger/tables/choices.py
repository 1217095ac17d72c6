"""What is remembered of how the model's view of a conversation was made."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from ledger.errors import LedgerDamaged
from ledger.tables import messages
from ledger.tables.texts import KEY
from projector.context import provenance
from projector.events import read_body
from projector.json_text import encode

if TYPE_CHECKING:
    from projector.effects import ViewChosen
    from projector.events import Choice
    from stream.database import Sql

_PUT: Final = """
INSERT INTO choices (conversation, seq, type, crc, body) SELECT ?1, ?2, ?3, ?4, ?5
WHERE NOT EXISTS (SELECT 1 FROM choices WHERE conversation = ?1 AND seq = ?2)"""
_ALL: Final = f"SELECT seq, type, crc, body FROM choices WHERE conversation = {KEY} ORDER BY seq"  # noqa: S608 - a constant

_CHANGE: Final = f"UPDATE choices SET crc = ?3, body = ?4 WHERE conversation = {KEY} AND seq = ?2"  # noqa: S608 - a constant


async def put(sql: Sql, key: int, chosen: ViewChosen) -> None:
    """Remembers a choice, once."""
    await sql(_PUT, (key, chosen.seq, chosen.type, zlib.crc32(chosen.data), chosen.data))


async def choices(sql: Sql, conversation: str) -> list[tuple[int, Choice]]:
    """All choices with the seq of each, oldest first. Raises `LedgerDamaged`."""
    found = []
    for seq, kind, crc, body in await sql(_ALL, (conversation,)):
        if zlib.crc32(body) != crc:
            raise LedgerDamaged(conversation, f"choice {seq}")
        found.append((seq, read_body(kind, body)))
    return found  # type: ignore[return-value] # only choices are put there


async def without_redacted(sql: Sql, conversation: str) -> list[tuple[int, Choice]]:
    """The same, without the texts that were made of what was redacted since. Raises `LedgerDamaged`."""
    known = await choices(sql, conversation)
    names = dict.fromkeys(name for _, choice in known for name in provenance.names_of(choice))
    found = [await messages.message(sql, conversation, name) for name in names]
    left = provenance.without_redacted([choice for _, choice in known], [one for one in found if one is not None])
    return [(seq, choice) for (seq, _), choice in zip(known, left, strict=True)]


async def forget_redacted(sql: Sql, conversation: str) -> None:
    """Takes such texts away for good."""
    known = dict(await choices(sql, conversation))
    for seq, choice in await without_redacted(sql, conversation):
        if choice != known[seq]:
            body = encode(choice)
            await sql(_CHANGE, (conversation, seq, zlib.crc32(body), body))


async def drop_behind(sql: Sql, conversation: str, seq: int) -> None:
    """Forgets what was chosen behind a seq."""
    text = f"DELETE FROM choices WHERE conversation = {KEY} AND seq > ?2"  # noqa: S608 - a constant
    await sql(text, (conversation, seq))
