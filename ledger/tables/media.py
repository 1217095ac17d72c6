"""The media store: images and files, once per content, named by their SHA-256."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from ledger.errors import LedgerDamaged, UnknownMedia
from ledger.tables.conversations import key_of, make_known
from ledger.tables.texts import KEY
from ledger.tables.uses import use
from stream.checks import check_name

if TYPE_CHECKING:
    from ledger.tables.tables import LedgerTables
    from stream.database import Sql

MAX_MEDIA_BYTES: Final = 512 * 1024 * 1024
_PUT: Final = """
INSERT INTO media (id, media_type, size, data) SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM media WHERE id = ?1)"""
_TYPE: Final = f"""
SELECT media.media_type FROM uses JOIN media ON media.id = uses.media
WHERE uses.conversation = {KEY} AND uses.media = ?2"""  # noqa: S608 - a constant


class Media(msgspec.Struct, frozen=True):
    """Bytes, and what they are."""

    media_id: str
    media_type: str
    data: bytes


async def put_media(tables: LedgerTables, conversation: str, data: bytes, media_type: str) -> str:
    """Stores bytes for a conversation, unless they are there; returns their id. Raises `ValueError` for too many."""
    if len(data) > MAX_MEDIA_BYTES:
        raise ValueError(f"media of {len(data):,} bytes is too large: at most {MAX_MEDIA_BYTES:,}")
    media_id = hashlib.sha256(data).hexdigest()

    async def job(sql: Sql) -> None:
        await make_known(sql, conversation)
        key = await key_of(sql, conversation)
        assert key is not None
        await sql(_PUT, (media_id, media_type, len(data), data))
        await use(sql, key, media_id)

    await tables.transact(job)
    return media_id


async def find_media_type(tables: LedgerTables, conversation: str, media_id: str) -> str:
    """What media of a conversation are. Raises `UnknownMedia`, also for what only another conversation has."""
    rows = await tables.database.read(_TYPE, (conversation, media_id))
    if not rows:
        raise UnknownMedia(media_id)
    return str(rows[0][0])


async def get_media(tables: LedgerTables, media_id: str) -> Media:
    """The bytes of an id, checked against it. Raises `UnknownMedia`, `LedgerDamaged`."""
    check_name("media_id", media_id)
    rows = await tables.database.read("SELECT media_type, data FROM media WHERE id = ?1", (media_id,))
    if not rows:
        raise UnknownMedia(media_id)
    media_type, data = rows[0]
    if hashlib.sha256(data).hexdigest() != media_id:
        raise LedgerDamaged("", media_id)
    return Media(media_id, media_type, data)


async def damaged_media(tables: LedgerTables) -> list[str]:
    """The ids of media whose bytes are not what was stored."""
    wrong = []
    last = ""
    while rows := await tables.database.read("SELECT id, data FROM media WHERE id > ?1 ORDER BY id LIMIT 1", (last,)):
        [(last, data)] = rows
        if hashlib.sha256(data).hexdigest() != last:
            wrong.append(last)
    return wrong
