"""What catch-up writes: the effects of a page of events, in the order of the log, as part of one transaction."""

from __future__ import annotations

import itertools
import zlib
from typing import TYPE_CHECKING, Any, Final

import structlog
from msgspec.structs import replace

from ledger.projection import Amended, Begun, Chosen, Described, Ended, Selected, Used
from ledger.records import RunInfo
from ledger.tables.branches import choose, join
from projector import Message, settle
from projector import events as ev
from projector.amendments import amend_message, asks_for
from projector.json_text import InvalidJson, decode, dump, encode, join_fields, split, text_of
from projector.run_draft import Refused, read_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.projection import Effect
    from ledger.tables.branches import Ask
    from projector import Settled
    from projector.run_draft import RunDraft
    from stream.sqlite import Sql

NEW_CONVERSATION: Final = """
INSERT INTO conversations (name) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM conversations WHERE name = ?1)"""
_LOG: Final = structlog.get_logger("tailfold.ledger")
_PUT_RUN: Final = """
INSERT INTO runs (conversation, id, seq, status, body) SELECT ?1, ?2, ?3, ?4, ?5
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE conversation = ?1 AND id = ?2) RETURNING 1"""
_END_RUN: Final = """
UPDATE runs SET status = ?4, body = ?5, first = ?6 WHERE conversation = ?1 AND id = ?2 AND seq = ?3 AND status = 'open'
RETURNING 1"""
_PUT_MESSAGES: Final = """
INSERT INTO messages (conversation, id, run, parent, seq, on_path, started, is_committed, crc, body) VALUES """
_MARKS: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROWS: Final = 90
"""Rows of a statement, whose parameters every SQLite takes (999)."""
_GROW: Final = """
UPDATE conversations SET runs = runs + ?2, messages = messages + ?3, active_at = max(active_at, ?4) WHERE id = ?1"""
_BE_ACTIVE: Final = "UPDATE conversations SET active_at = max(active_at, ?2) WHERE id = ?1"
_USE: Final = """
INSERT INTO uses SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM uses WHERE conversation = ?1 AND media = ?2)"""
_CHOOSE: Final = """
INSERT INTO choices SELECT ?1, ?2, ?3, ?4, ?5 WHERE NOT EXISTS (SELECT 1 FROM choices WHERE conversation = ?1 AND seq = ?2)"""
_CALLING: Final = """
SELECT body FROM messages WHERE conversation = ?1 AND (instr(body, ?2) OR instr(body, ?3)) AND (?4 IS NULL OR seq < ?4)
ORDER BY seq DESC"""


async def apply(sql: Sql, key: int, conversation: str, effects: Iterable[Effect]) -> None:
    """Takes effects in. What they can't change any more is told in the program's log and changes nothing."""
    for effect in effects:
        if isinstance(effect, Begun):
            await begin(sql, key, conversation, effect.run)
        elif isinstance(effect, Ended):
            await commit(sql, key, conversation, effect)
        elif isinstance(effect, Amended):
            await amend(sql, key, conversation, effect)
        elif isinstance(effect, Selected):
            if not await choose(sql, key, effect.message_id, effect.seq):
                _LOG.warning("ledger.selection_of_nothing", conversation=conversation, message_id=effect.message_id)
        elif isinstance(effect, Used):
            await sql(_USE, (key, effect.media_id))
        elif isinstance(effect, Chosen):
            await sql(_CHOOSE, (key, effect.seq, effect.type, zlib.crc32(effect.data), effect.data))
        else:
            await describe(sql, key, effect)


async def begin(sql: Sql, key: int, conversation: str, run: RunDraft) -> None:
    """Lists a run as open, unless its id was used before."""
    info = RunInfo.of(conversation, run, None, 0)
    if await sql(_PUT_RUN, (key, run.run_id, run.seq, info.status, encode(info))):
        await sql(_GROW, (key, 1, 0, run.started_at))


async def commit(sql: Sql, key: int, conversation: str, ended: Ended) -> None:
    """Writes what a run leaves. Ids that an earlier run has taken stay its: the later ones are anomalies."""
    run, end = ended
    await begin(sql, key, conversation, run)
    taken = await _known(sql, key, [*run.live, *(message_id for message_id, _ in run.done.items())])
    settled = settled_for_ledger(run.without(taken), ended)
    info = RunInfo.of(conversation, run, end, len(settled.path))
    first = settled.path[0].id if settled.path else None
    if not await sql(_END_RUN, (key, run.run_id, run.seq, info.status, encode(info), first)):
        _LOG.warning("ledger.run_id_taken", conversation=conversation, run_id=run.run_id, seq=run.seq)
        return
    if taken:
        _LOG.warning("ledger.message_ids_taken", conversation=conversation, run_id=run.run_id, message_ids=taken)
    is_committed = end.status != "failed"
    rows: list[tuple[Any, ...]] = []
    for on_path, messages in ((1, settled.path), (0, settled.off)):
        for message in messages:
            body = encode(message)
            place = (key, message.id, run.run_id, message.parent_id, message.seq, on_path, run.seq, int(is_committed))
            rows.append((*place, zlib.crc32(body), body))
    for first_row in range(0, len(rows), _ROWS):  # each statement is a trip to the writer's thread
        some = rows[first_row : first_row + _ROWS]
        await sql(_PUT_MESSAGES + ", ".join([_MARKS] * len(some)), tuple(itertools.chain.from_iterable(some)))
    newest = max((message.created_at for message in settled.path), default=run.started_at)
    await sql(_GROW, (key, 0, len(settled.path), newest))
    if first is not None:
        await join(sql, key, settled.path[0].parent_id, first, run.seq, is_committed=is_committed)


async def _known(sql: Sql, key: int, message_ids: Sequence[str]) -> list[str]:
    """Those of these ids that a message of the conversation has."""
    found: set[str] = set()
    for first in range(0, len(message_ids), 10 * _ROWS):
        some = message_ids[first : first + 10 * _ROWS]
        marks = ", ".join("?" * len(some))
        text = f"SELECT id FROM messages WHERE conversation = ? AND id IN ({marks})"  # noqa: S608 - marks only
        found.update(row[0] for row in await sql(text, (key, *some)))
    return [message_id for message_id in message_ids if message_id in found]


def settled_for_ledger(run: RunDraft, ended: Ended) -> Settled:
    """What the ledger keeps of a run: of one recovered by cancel nothing, it stays readable in the log (DESIGN §4)."""
    settled = settle(run, ended.end)
    return replace(settled, off=()) if ended.end.recovered == "cancel" else settled


async def amend(sql: Sql, key: int, conversation: str, amended: Amended) -> None:
    """Changes a committed message, or the usage of a run that ended."""
    body = amended.body
    if isinstance(body, ev.RunUsage):
        rows = await sql("SELECT body FROM runs WHERE conversation = ? AND id = ? AND status <> 'open'", (key, body.run_id))
        if rows:
            info: RunInfo = decode(rows[0][0], RunInfo)
            info = replace(info, usage=info.usage | {body.request_id: read_usage(body)})
            await sql("UPDATE runs SET body = ?3 WHERE conversation = ?1 AND id = ?2", (key, body.run_id, encode(info)))
            return
    else:
        message = await _amended(sql, key, amended.seq, body)
        if message is not None:
            try:
                await put(sql, key, amend_message(message, body))
            except Refused as why:
                _LOG.warning("ledger.amendment_refused", conversation=conversation, seq=amended.seq, why=str(why))
            return
    _LOG.warning("ledger.amendment_of_nothing", conversation=conversation, seq=amended.seq, type=body.TYPE)


async def put(sql: Sql, key: int, message: Message) -> None:
    """Another form of a message that is there."""
    body = encode(message)
    await sql(
        "UPDATE messages SET crc = ?3, body = ?4 WHERE conversation = ?1 AND id = ?2",
        (key, message.id, zlib.crc32(body), body),
    )


async def describe(sql: Sql, key: int, described: Described) -> None:
    """Title, metadata and whether a conversation is archived."""
    body = described.body
    if isinstance(body, ev.ConversationCreated):
        await sql(_BE_ACTIVE, (key, described.at))
    if isinstance(body, ev.ConversationArchived):
        await sql("UPDATE conversations SET archived = ?2 WHERE id = ?1", (key, int(body.archived)))
        return
    if body.title is not None:
        await sql("UPDATE conversations SET title = ?2 WHERE id = ?1", (key, dump(body.title)))  # any text is legal
    patch = text_of(body.metadata)
    if patch is not None:
        [(known,)] = await sql("SELECT metadata FROM conversations WHERE id = ?", (key,))
        merged = (split(known) if known else {}) | split(patch)
        kept = {name: value for name, value in merged.items() if value != "null"}
        await sql("UPDATE conversations SET metadata = ?2 WHERE id = ?1", (key, join_fields(kept)))


async def find_calling(sql: Ask, key: int, tool_call_id: str, before: int | None = None) -> Message | None:
    """The newest message that makes a tool call, ahead of a seq."""
    needles = (encode(tool_call_id), dump(tool_call_id).encode())  # as it is, or escaped
    for (found,) in await sql(_CALLING, (key, *needles, before)):
        message: Message = decode(found, Message)
        if asks_for(message, tool_call_id):
            return message
    return None


async def _amended(sql: Sql, key: int, seq: int, body: Any) -> Message | None:
    if isinstance(body, ev.ToolApproval):
        return await find_calling(sql, key, body.tool_call_id, seq)
    rows = await sql("SELECT body FROM messages WHERE conversation = ? AND id = ?", (key, body.message_id))
    try:
        return decode(rows[0][0], Message) if rows else None
    except InvalidJson:  # a damaged row: verify tells
        return None
