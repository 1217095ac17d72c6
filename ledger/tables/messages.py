"""The messages that runs have left, by the order of the log, and one by one."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledger.errors import LedgerDamaged
from ledger.tables.bodies import read_bodies, take_out
from ledger.tables.calls import calls_of, put_calls, replace_calls
from ledger.tables.conversations import key_of
from ledger.tables.texts import EVERY, KEY, PAGE_ROWS, marks, pieces, rows
from projector import Message
from projector.json_text import InvalidJson, decoder, encode
from projector.tree import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stream.database import Sql

_decode: Final = decoder(Message)
_COLUMNS: Final = "conversation, id, run, parent, seq, on_path, started, is_committed, crc, row_body"
_WIDTH: Final = 10
_NODES: Final = f"""
SELECT id, parent, started, is_committed, selected FROM messages WHERE conversation = {KEY} AND on_path = 1
ORDER BY seq"""  # noqa: S608 - constants
_IN_ORDER: Final = f"""
SELECT seq, id, crc, row_body, place FROM messages WHERE conversation = {KEY} AND (seq, id) > (?2, ?3)
ORDER BY seq, id LIMIT ?4"""  # noqa: S608 - constants
_LAST: Final = f"""
SELECT id, crc, row_body, place FROM messages WHERE conversation = {KEY} AND seq < ?2 ORDER BY seq DESC LIMIT ?3"""  # noqa: S608
_ONE: Final = f"""
SELECT id, crc, row_body, place FROM messages WHERE conversation = {KEY} AND id = ?2 AND on_path >= ?3"""  # noqa: S608 - constants
_OF_RUN: Final = """
SELECT {columns} FROM messages WHERE conversation = ?1 AND run = ?2 {and_started}
ORDER BY seq + 0"""  # or SQLite goes through all of the conversation in that order
_AND_STARTED: Final = "AND started = (SELECT seq FROM runs WHERE conversation = ?1 AND id = ?2)"
_SAID_NOTHING: Final = "SELECT 1 FROM runs WHERE conversation = ?1 AND id = ?2 AND first IS NULL"
_ORPHANS: Final = f"""
SELECT id, parent FROM messages AS m WHERE conversation = {KEY} AND on_path = 1 AND parent IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM messages AS p WHERE p.conversation = m.conversation AND p.id = m.parent AND p.on_path = 1)
ORDER BY seq"""  # noqa: S608 - constants


class Placed(NamedTuple):
    """A message of a run as it lies in the tables: on the path or off it, `started` with its run, of a failed one or not."""

    message: Message
    on_path: bool
    started: int
    is_committed: bool


async def nodes(sql: Sql, conversation: str) -> list[Node]:
    """All messages on any path, as nodes of the tree, in the order of the log."""
    return [Node(row[0], row[1], row[2], bool(row[3]), row[4]) for row in await sql(_NODES, (conversation,))]


async def page(sql: Sql, conversation: str, after: tuple[int, str]) -> list[tuple[int, str, int, bytes]]:
    """The next messages in the order of the log: (seq, id, checksum, body)."""
    return await read_bodies(sql, _IN_ORDER, (conversation, *after, PAGE_ROWS))


async def last(sql: Sql, conversation: str, before: Message | None, limit: int | None) -> list[Message]:
    """The last messages in the order of the log, ahead of one of them. Raises `LedgerDamaged`."""
    end = EVERY if before is None else before.seq
    found = await read_bodies(sql, _LAST, (conversation, end, EVERY if limit is None else limit))
    return [read(conversation, *row) for row in reversed(found)]


async def message(sql: Sql, conversation: str, message_id: str, *, on_path: bool = False) -> Message | None:
    """One message, on a path or off it. Raises `LedgerDamaged`."""
    found = await read_bodies(sql, _ONE, (conversation, message_id, int(on_path)))
    return read(conversation, *found[0]) if found else None


async def message_at(sql: Sql, key: int, message_id: str) -> Message | None:
    """One message of the conversation with this key; None also for a row that can't be read."""
    found = await read_bodies(
        sql, "SELECT row_body, place FROM messages WHERE conversation = ?1 AND id = ?2", (key, message_id)
    )
    try:
        return _decode(found[0][0]) if found else None
    except InvalidJson:  # a damaged row: verify tells
        return None


async def owner(sql: Sql, conversation: str, message_id: str) -> str | None:
    """The run of a message."""
    text = f"SELECT run FROM messages WHERE conversation = {KEY} AND id = ?2"  # noqa: S608 - constants
    found = await sql(text, (conversation, message_id))
    return found[0][0] if found else None


async def of_run(sql: Sql, conversation: str, run_id: str) -> list[tuple[Message, bool]]:
    """The messages of a run in their order, and whether each is on the path. Raises `LedgerDamaged`."""
    key = await key_of(sql, conversation)
    found = [] if key is None else await rows_of_run(sql, key, run_id, "on_path, id, crc, row_body, place")
    return [(read(conversation, *row[1:]), bool(row[0])) for row in found]


async def rows_of_run(sql: Sql, key: int, run_id: str, columns: str) -> list[tuple[Any, ...]]:
    """The rows of a run's messages in their order: these columns, the last two of which are `row_body` and `place`.

    They are looked for where the run started. Where it is not listed, or elsewhere than it started, all of the conversation
    are looked through.
    """
    found = await read_bodies(sql, _OF_RUN.format(columns=columns, and_started=_AND_STARTED), (key, run_id))
    if found or await sql(_SAID_NOTHING, (key, run_id)):
        return found
    return await read_bodies(sql, _OF_RUN.format(columns=columns, and_started=""), (key, run_id))


async def orphans(sql: Sql, conversation: str) -> list[tuple[str, str]]:
    """Messages on the path whose parent is not there: (message, parent)."""
    return [(row[0], row[1]) for row in await sql(_ORPHANS, (conversation,))]


async def known(sql: Sql, key: int, message_ids: Sequence[str]) -> list[str]:
    """Those of these ids that a message of the conversation has."""
    found: set[str] = set()
    for some in pieces(message_ids):
        text = f"SELECT id FROM messages WHERE conversation = ?1 AND id IN ({marks(len(some), 2)})"  # noqa: S608 - marks only
        found.update(row[0] for row in await sql(text, (key, *some)))
    return [message_id for message_id in message_ids if message_id in found]


async def add(sql: Sql, key: int, placed: Iterable[Placed]) -> None:
    """New messages, and the tool calls they make."""
    values: list[tuple[Any, ...]] = []
    calls: list[tuple[str, str]] = []
    for said, on_path, started, is_committed in placed:
        body = encode(said)
        place = (key, said.id, said.run_id, said.parent_id, said.seq, int(on_path), started, int(is_committed))
        values.append((*place, zlib.crc32(body), body))
        calls += calls_of(said)
    for some in pieces(values, _WIDTH):
        text = f"INSERT INTO messages ({_COLUMNS}) VALUES {rows(len(some), _WIDTH)}"  # noqa: S608 - marks only
        await sql(text, [value for row in some for value in row])
    await put_calls(sql, key, calls)


async def drop(sql: Sql, key: int, message_ids: Sequence[str]) -> None:
    """Takes messages away, to be written anew."""
    for some in pieces(message_ids):
        of_these = f"FROM messages WHERE conversation = ?1 AND id IN ({marks(len(some), 2)})"
        places = await sql(f"SELECT seq, place {of_these}", (key, *some))
        await sql(f"DELETE {of_these}", (key, *some))
        await take_out(sql, key, places)


async def put(sql: Sql, key: int, before: Message | None, after: Message) -> None:
    """Another form of a message that is there; `before` is the one it had, where that can be read."""
    body = encode(after)
    places = await sql("SELECT seq, place FROM messages WHERE conversation = ?1 AND id = ?2", (key, after.id))
    text = "UPDATE messages SET crc = ?3, row_body = ?4, place = NULL WHERE conversation = ?1 AND id = ?2"
    await sql(text, (key, after.id, zlib.crc32(body), body))
    await take_out(sql, key, places)
    if before is None or before.blocks != after.blocks:
        await replace_calls(sql, key, [after])


def read(conversation: str, message_id: str, crc: int, body: bytes) -> Message:
    """A message out of its row. Raises `LedgerDamaged` if its checksum fails."""
    if not body or zlib.crc32(body) != crc:
        raise LedgerDamaged(conversation, message_id)
    return _decode(body)
