"""The order of the messages: where each is listed, held against what it and its run say of themselves."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ledger.tables import bodies, branches, runs
from ledger.tables.texts import KEY, PAGE_ROWS
from projector.json_text import decode, learn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream.database import Sql

_IN_ORDER: Final = f"""
SELECT seq, id, run, started, crc, row_body, place FROM messages WHERE conversation = {KEY} AND (seq, id) > (?2, ?3)
ORDER BY seq, id LIMIT ?4"""  # noqa: S608 - constants
_PUT: Final = """
UPDATE messages SET seq = ?5, started = ?6 WHERE conversation = ?1 AND id = ?2 AND seq = ?3 AND started = ?4"""


class _Said(msgspec.Struct, frozen=True, gc=False):
    """Of a `Message` what tells its place."""

    seq: int


learn(_Said)


class Listed(NamedTuple):
    """A message, whether it can be read, where it is listed and where it says it is: (its seq, that of its run's start).

    What can't be read says nothing else than where it is listed.
    """

    message_id: str
    is_whole: bool
    at: tuple[int, int]
    told: tuple[int, int]


async def page(sql: Sql, conversation: str, after: tuple[int, str]) -> list[Listed]:
    """The next messages in the order in which they are listed, behind one (its seq and id)."""
    found = await bodies.read_bodies(sql, _IN_ORDER, (conversation, *after, PAGE_ROWS))
    starts = await runs.starts_of(sql, conversation, {row[2] for row in found})
    listed: list[Listed] = []
    for seq, message_id, run_id, started, crc, body in found:
        is_whole = bool(body) and zlib.crc32(body) == crc
        told = decode(body, _Said).seq if is_whole else seq
        listed.append(Listed(message_id, is_whole, (seq, started), (told, starts.get(run_id, started))))
    return listed


async def put_in_order(sql: Sql, key: int, misplaced: Sequence[Listed]) -> None:
    """Lists messages where they say they are, and works out anew what follows from it."""
    for one in misplaced:
        await sql(_PUT, (key, one.message_id, *one.at, *one.told))
    await branches.rebuild(sql, key)
    await bodies.start_over(sql, key)
