"""Which messages make a tool call: a table beside the messages, filled in steps where the messages are older than it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.tables.bodies import read_bodies
from ledger.tables.texts import EVERY, among, is_text, marks, pieces, rows
from projector import Message
from projector.amendments import asks_for
from projector.json_text import InvalidJson, decode, dump
from projector.message import CALLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream.database import Sql

_STEP: Final = 200
_FIND: Final = f"""
SELECT m.seq, m.row_body, m.place FROM calls AS c JOIN messages AS m ON m.conversation = c.conversation AND m.id = c.message
WHERE c.conversation = ?1 AND m.seq < ?2 AND {among("c.tool_call_id", 1, 3)} ORDER BY m.seq DESC"""  # noqa: S608 - marks
_STEP_BELOW: Final = """
SELECT seq FROM messages WHERE conversation = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT 1 OFFSET ?3"""
_BETWEEN: Final = """
SELECT seq, row_body, place FROM messages WHERE conversation = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq DESC"""
_COUNT: Final = """
SELECT count(*) FROM calls AS c JOIN messages AS m ON m.conversation = c.conversation AND m.id = c.message
WHERE c.conversation = ?1 AND m.seq >= ?2 AND m.seq < ?3"""
_TO_NOTHING: Final = """
SELECT 1 FROM calls AS c WHERE c.conversation = ?1 AND NOT EXISTS (
  SELECT 1 FROM messages AS m WHERE m.conversation = ?1 AND m.id = c.message) LIMIT 1"""
_START_OVER: Final = """
UPDATE conversations SET calls_from = coalesce((SELECT max(seq) + 1 FROM messages WHERE conversation = ?1), 0) WHERE id = ?1"""


def calls_of(message: Message) -> list[tuple[str, str]]:
    """The tool calls of a message: (id as it is stored, message), each once."""
    ids = (block.tool_call_id for block in message.blocks if block.kind in CALLS and block.tool_call_id is not None)
    return [(tool_call_id, message.id) for tool_call_id in dict.fromkeys(map(_stored, ids))]


async def find_calling(sql: Sql, key: int, tool_call_id: str, before: int = EVERY) -> Message | None:
    """The newest message that makes a tool call, ahead of a seq."""
    calls_from = await _calls_from(sql, key)
    newest: Message | None = None
    for seq, body in await read_bodies(sql, _FIND, (key, before, _stored(tool_call_id))):
        newest = _read(body)
        if newest is not None and asks_for(newest, tool_call_id):
            if seq >= calls_from:
                return newest
            break
        newest = None
    end = min(before, calls_from)
    while end > 0:  # older than the table, and not filled in yet: look at what was said itself
        start = await _step_below(sql, key, end)
        for seq, body in await read_bodies(sql, _BETWEEN, (key, start, end)):
            if newest is not None and seq <= newest.seq:
                return newest
            message = _read(body)
            if message is not None and asks_for(message, tool_call_id):
                return message
        end = start
    return newest


async def put_calls(sql: Sql, key: int, calls: Sequence[tuple[str, str]]) -> None:
    """Tool calls of messages that are new."""
    for some in pieces(calls, 3):
        values = [value for tool_call_id, message_id in some for value in (key, tool_call_id, message_id)]
        text = f"INSERT INTO calls (conversation, tool_call_id, message) VALUES {rows(len(some), 3)}"  # noqa: S608 - marks
        await sql(text, values)


async def replace_calls(sql: Sql, key: int, messages: Sequence[Message]) -> None:
    """The tool calls of messages that were there before in another form."""
    await drop_calls(sql, key, [message.id for message in messages])
    await put_calls(sql, key, [call for message in messages for call in calls_of(message)])


async def drop_calls(sql: Sql, key: int, message_ids: Sequence[str]) -> None:
    """Forgets the tool calls of some messages."""
    for some in pieces(message_ids):
        text = f"DELETE FROM calls WHERE conversation = ?1 AND message IN ({marks(len(some), 2)})"  # noqa: S608 - marks
        await sql(text, (key, *some))


async def fill_calls(sql: Sql, key: int) -> int:
    """One step back into messages that are older than the table; where it has come to, 0 when all are in.

    A row that can't be read has no calls; verify tells of it.
    """
    calls_from = await _calls_from(sql, key)
    if not calls_from:
        return 0
    start = await _step_below(sql, key, calls_from)
    messages = [_read(body) for _, body in await read_bodies(sql, _BETWEEN, (key, start, calls_from))]
    calls = [call for message in messages if message is not None for call in calls_of(message)]
    await put_calls(sql, key, await _missing(sql, key, calls))
    await sql("UPDATE conversations SET calls_from = ?2 WHERE id = ?1", (key, start))
    return start


async def start_over(sql: Sql, key: int) -> int:
    """Forgets all tool calls of a conversation, to be filled in again; from where."""
    await sql("DELETE FROM calls WHERE conversation = ?1", (key,))
    await sql(_START_OVER, (key,))
    return await _calls_from(sql, key)


async def lacks_calls(sql: Sql, key: int, end: int) -> tuple[bool, int]:
    """Whether a step of messages below `end` makes other calls than the table says, and where the step begins."""
    calls_from = await _calls_from(sql, key)
    start = await _step_below(sql, key, end)
    bottom = max(start, calls_from)
    messages = [_read(body) for _, body in await read_bodies(sql, _BETWEEN, (key, bottom, end))]
    calls = [call for message in messages if message is not None for call in calls_of(message)]
    [(count,)] = await sql(_COUNT, (key, bottom, end))
    is_wrong = bool(await _missing(sql, key, calls)) or (None not in messages and count != len(calls))
    return is_wrong, 0 if start < calls_from else start


async def lead_nowhere(sql: Sql, key: int) -> bool:
    """Whether the table names messages that are not there."""
    return bool(await sql(_TO_NOTHING, (key,)))


async def _calls_from(sql: Sql, key: int) -> int:
    """Of messages from this seq on all calls are in the table, of older ones not yet."""
    [(calls_from,)] = await sql("SELECT calls_from FROM conversations WHERE id = ?1", (key,))
    return calls_from  # type: ignore[no-any-return]


async def _missing(sql: Sql, key: int, calls: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that are not in the table."""
    there: set[tuple[str, str]] = set()
    for some in pieces(list({tool_call_id for tool_call_id, _ in calls})):
        text = f"""SELECT tool_call_id, message FROM calls
            WHERE conversation = ?1 AND {among("tool_call_id", len(some), 2)}"""  # noqa: S608 - marks only
        there.update((row[0], row[1]) for row in await sql(text, (key, *some)))
    return [call for call in calls if call not in there]


async def _step_below(sql: Sql, key: int, end: int) -> int:
    """The seq at which some messages ahead of `end` begin, 0 for the first ones; all of one seq go together."""
    found = await sql(_STEP_BELOW, (key, end, _STEP - 1))
    return found[0][0] if found else 0


def _stored(tool_call_id: str) -> str:
    """The id, or JSON of one that no database takes: with NUL, or half a pair."""
    return tool_call_id if is_text(tool_call_id) and "\0" not in tool_call_id else dump(tool_call_id)


def _read(body: bytes) -> Message | None:
    try:
        return decode(body, Message)  # type: ignore[no-any-return]
    except InvalidJson:  # a damaged row: verify tells
        return None
