"""What a user has in the whole file, or in one conversation of it, counted."""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ledger.tables.bodies import read_bodies
from ledger.tables.texts import KEY
from projector.json_text import InvalidJson, decode, learn
from projector.run_draft import Usage
from stream.limits import PROTOCOL_PREFIX

if TYPE_CHECKING:
    from ledger.tables.tables import LedgerTables
    from stream.database import Sql

_ROWS: Final = 500
_OURS: Final = f"is_conversation = 1 AND substr(stream_id, 1, {len(PROTOCOL_PREFIX)}) <> '{PROTOCOL_PREFIX}'"
_CONVERSATIONS: Final = f"""
SELECT count(*), coalesce(sum(CASE WHEN archived <> 0 THEN 1 ELSE 0 END), 0),
  coalesce(sum(CASE WHEN erased IS NOT NULL THEN 1 ELSE 0 END), 0), coalesce(sum(messages), 0), coalesce(sum(runs), 0)
FROM conversations WHERE {_OURS} AND (?1 = '' OR stream_id = ?1)"""  # noqa: S608 - constants
_OPEN: Final = """
SELECT count(*) FROM runs AS r JOIN conversations AS c ON c.id = r.conversation
WHERE r.status = 'open' AND (?1 = '' OR c.stream_id = ?1)"""
_MEDIA: Final = """
SELECT count(*), coalesce(sum(size), 0) FROM media
WHERE ?1 = ''
  OR id IN (SELECT u.media FROM uses AS u JOIN conversations AS c ON c.id = u.conversation WHERE c.stream_id = ?1)"""
_RUNS: Final = """
SELECT conversation, seq, crc, row_body, place FROM runs
WHERE (conversation, seq) > (?1, ?2) ORDER BY conversation, seq LIMIT ?3"""
_RUNS_OF: Final = f"""
SELECT conversation, seq, crc, row_body, place FROM runs
WHERE conversation = {KEY} AND seq > ?2 ORDER BY seq LIMIT ?3"""  # noqa: S608 - a constant
_KINDS: Final = ("input", "output", "cached", "reasoning")


class Tally(msgspec.Struct, frozen=True):
    """What there is for people: `messages` are those of any path, tokens those that providers told, as totals of all runs.

    Of what was erased nothing is counted but the conversation itself.
    """

    conversations: int
    archived: int
    erased: int
    messages: int
    runs: int
    open_runs: int
    media: int
    media_bytes: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int


class _Used(msgspec.Struct, frozen=True, gc=False):
    """Of a `RunInfo` what was used."""

    usage: dict[str, Usage] = {}


learn(_Used)


async def count(tables: LedgerTables, conversation: str | None = None) -> Tally:
    """Tally all, or what belongs to one conversation. Runs that can't be read are counted without their tokens."""
    name = (conversation or "",)

    async def job(sql: Sql) -> tuple[tuple[int, ...], ...]:
        [of_all], [open_runs], [media] = [await sql(text, name) for text in (_CONVERSATIONS, _OPEN, _MEDIA)]
        return tuple(of_all), tuple(open_runs), tuple(media)

    of_all, open_runs, media = await tables.look(job)
    return Tally(*of_all, *open_runs, *media, *await _tokens(tables, conversation))


async def _tokens(tables: LedgerTables, conversation: str | None) -> list[int]:
    """The sums of what was used, by kind; the runs are read in pages."""
    sums = dict.fromkeys(_KINDS, 0)
    text = _RUNS if conversation is None else _RUNS_OF
    first: int | str = 0 if conversation is None else conversation
    after = 0
    while rows := await tables.look(partial(read_bodies, text=text, parameters=(first, after, _ROWS))):
        for usage in (usage for *_, crc, body in rows for usage in _used(crc, body)):
            for kind in _KINDS:
                sums[kind] += getattr(usage, kind) or 0
        first, after = rows[-1][0] if conversation is None else conversation, rows[-1][1]
    return list(sums.values())


def _used(crc: int | None, body: bytes) -> list[Usage]:
    if not body or (crc is not None and zlib.crc32(body) != crc):
        return []  # verify tells
    try:
        used: _Used = decode(body, _Used)
    except InvalidJson:
        return []
    return list(used.usage.values())
