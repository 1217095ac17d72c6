"""The ledger's tables, in the file of the log or in one of their own."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from ledger.errors import LedgerDamaged
from ledger.records import ConversationInfo, RunInfo
from projector import Message, settle
from projector.json import decode, encode
from stream.sqlite import Database, read_scripts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from projector import End
    from projector.draft import RunDraft
    from stream.sqlite import Sql

_LOG: Final = structlog.get_logger("tailfold.ledger")
_KEY: Final = "(SELECT id FROM conversations WHERE name = ?1)"
_PAGE_ROWS: Final = 200
_ADVANCE: Final = """
UPDATE conversations SET projected_seq = ?3, replay_from = ?4 WHERE name = ?1 AND projected_seq = ?2 RETURNING id"""
_MOVE_LEAF: Final = "UPDATE conversations SET leaf = ?2, leaf_seq = ?3 WHERE id = ?1 AND leaf_seq < ?3"
_PUT_RUN: Final = """
INSERT INTO runs SELECT ?1, ?2, ?3, ?4, ?5 WHERE NOT EXISTS (SELECT 1 FROM runs WHERE conversation = ?1 AND id = ?2)"""
_END_RUN: Final = "UPDATE runs SET status = ?4, body = ?5 WHERE conversation = ?1 AND id = ?2 AND seq = ?3 AND status = 'open'"
_PUT_MESSAGE: Final = """
INSERT INTO messages SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE NOT EXISTS (SELECT 1 FROM messages WHERE conversation = ?1 AND id = ?2) RETURNING 1"""
_CHAIN: Final = f"""
WITH RECURSIVE chain (id, parent, crc, body, seq, depth) AS (
  SELECT id, parent, crc, body, seq, 1 FROM messages WHERE conversation = {_KEY} AND id = ?2 AND on_path
  UNION ALL
  SELECT m.id, m.parent, m.crc, m.body, m.seq, chain.depth + 1
  FROM chain JOIN messages AS m ON m.conversation = {_KEY} AND m.id = chain.parent AND m.on_path AND m.seq < chain.seq
  LIMIT ?3)
SELECT id, crc, body FROM chain ORDER BY depth DESC"""  # noqa: S608 - constants
_CONVERSATIONS: Final = """
SELECT name, (SELECT count(*) FROM messages AS m WHERE m.conversation = c.id AND m.on_path),
  (SELECT count(*) FROM runs AS r WHERE r.conversation = c.id), leaf, projected_seq
FROM conversations AS c WHERE name > ?1 ORDER BY name LIMIT ?2"""


class Position(NamedTuple):
    """How far the ledger holds a conversation; all zero for one it does not know."""

    projected_seq: int
    replay_from: int
    leaf: str | None


class Ended(NamedTuple):
    """A run that ended, as it was when it did."""

    run: RunDraft
    end: End


class LedgerTables:
    """Reads and writes the durable transcript. Every write is one transaction in the database's writer."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    async def attach(cls, database: Database) -> LedgerTables:
        """Brings the ledger's tables to their newest form."""
        await database.install("ledger", read_scripts("ledger"))
        return cls(database)

    async def position(self, conversation: str) -> Position:
        """How far this conversation is projected."""
        text = "SELECT projected_seq, replay_from, leaf FROM conversations WHERE name = ?"
        rows = await self.database.read(text, (conversation,))
        return Position(*rows[0]) if rows else Position(0, 0, None)

    async def advance(
        self,
        conversation: str,
        before: Position,
        *,
        projected_seq: int,
        replay_from: int,
        begun: Sequence[RunDraft],
        ended: Sequence[Ended],
    ) -> bool:
        """Takes in runs that began or ended and moves on to `projected_seq`, as a whole.

        False, and nothing changed, if the ledger is no longer at `before`: another process was faster.
        """

        async def job(sql: Sql) -> bool:
            if before == Position(0, 0, None):
                new = (
                    "INSERT INTO conversations (name) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM conversations WHERE name = ?1)"
                )
                await sql(new, (conversation,))
            moved = await sql(_ADVANCE, (conversation, before.projected_seq, projected_seq, replay_from))
            if not moved:
                return False
            key = moved[0][0]
            for run in begun:
                info = RunInfo.of(conversation, run, None, 0)
                await sql(_PUT_RUN, (key, run.run_id, run.seq, info.status, encode(info)))
            for over in ended:
                await _commit(sql, key, conversation, over)
            return True

        return await self.database.transact(job)

    async def path(self, conversation: str, leaf: str, limit: int | None) -> list[Message]:
        """The messages from the root, or the last `limit` of them, down to `leaf`."""
        rows = await self.database.read(_CHAIN, (conversation, leaf, -1 if limit is None else limit))
        return [_read(conversation, *row) for row in rows]

    async def message(self, conversation: str, message_id: str) -> Message | None:
        """One message, on the path or off it."""
        text = f"SELECT id, crc, body FROM messages WHERE conversation = {_KEY} AND id = ?2"  # noqa: S608 - constants
        rows = await self.database.read(text, (conversation, message_id))
        return _read(conversation, *rows[0]) if rows else None

    async def messages_of(self, conversation: str, run_id: str) -> list[tuple[Message, bool]]:
        """The messages of a run in their order, and whether each is on the path."""
        text = f"SELECT id, crc, body, on_path FROM messages WHERE conversation = {_KEY} AND run = ?2 ORDER BY seq"  # noqa: S608
        rows = await self.database.read(text, (conversation, run_id))
        return [(_read(conversation, *row[:3]), bool(row[3])) for row in rows]

    async def orphans(self, conversation: str) -> list[tuple[str, str]]:
        """Messages on the path whose parent is not there: (message, parent)."""
        text = f"""SELECT id, parent FROM messages AS m WHERE conversation = {_KEY} AND on_path AND parent IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM messages AS p WHERE p.conversation = m.conversation AND p.id = m.parent)"""  # noqa: S608
        return [(row[0], row[1]) for row in await self.database.read(text, (conversation,))]

    async def damaged(self, conversation: str) -> AsyncIterator[LedgerDamaged]:
        """What is wrong with the rows of a conversation themselves: messages that fail their checksum, a lost leaf."""
        text = f"""SELECT seq, id, crc, body FROM messages
            WHERE conversation = {_KEY} AND (seq, id) > (?2, ?3) ORDER BY seq, id LIMIT ?4"""  # noqa: S608 - constants
        place: tuple[int, str] = (0, "")
        while rows := await self.database.read(text, (conversation, *place, _PAGE_ROWS)):
            for _, message_id, crc, body in rows:
                if zlib.crc32(body) != crc:
                    yield LedgerDamaged(conversation, message_id)
            place = (rows[-1][0], rows[-1][1])
        lost_leaf = f"""SELECT id FROM messages AS m WHERE conversation = {_KEY} AND on_path AND NOT EXISTS (
              SELECT 1 FROM conversations AS c JOIN messages AS l ON l.conversation = c.id AND l.id = c.leaf
              WHERE c.id = m.conversation)
            ORDER BY seq DESC LIMIT 1"""  # noqa: S608 - constants
        for (message_id,) in await self.database.read(lost_leaf, (conversation,)):
            yield LedgerDamaged(conversation, message_id)

    async def runs(self, conversation: str | None = None, *, status: str | None = None) -> AsyncIterator[RunInfo]:
        """Runs in order of conversation and start."""
        text = """SELECT c.name, r.seq, r.body FROM runs AS r JOIN conversations AS c ON c.id = r.conversation
            WHERE (c.name, r.seq) > (?1, ?2) AND (?3 IS NULL OR c.name = ?3) AND (?4 IS NULL OR r.status = ?4)
            ORDER BY c.name, r.seq LIMIT ?5"""
        place: tuple[str, int] = ("", 0)
        while rows := await self.database.read(text, (*place, conversation, status, _PAGE_ROWS)):
            for _, _, body in rows:
                yield decode(body, RunInfo)
            place = (rows[-1][0], rows[-1][1])

    async def run(self, conversation: str, run_id: str) -> RunInfo | None:
        """One run."""
        text = f"SELECT body FROM runs WHERE conversation = {_KEY} AND id = ?2"  # noqa: S608 - constants
        rows = await self.database.read(text, (conversation, run_id))
        return decode(rows[0][0], RunInfo) if rows else None

    async def homes(self, run_id: str) -> list[str]:
        """The conversations that have a run of this id."""
        text = "SELECT c.name FROM runs AS r JOIN conversations AS c ON c.id = r.conversation WHERE r.id = ? ORDER BY c.name"
        return [name for (name,) in await self.database.read(text, (run_id,))]

    async def conversations(self) -> AsyncIterator[ConversationInfo]:
        """All conversations by name."""
        last = ""
        while rows := await self.database.read(_CONVERSATIONS, (last, _PAGE_ROWS)):
            for row in rows:
                yield ConversationInfo(*row)
            last = rows[-1][0]


def _read(conversation: str, message_id: str, crc: int, body: bytes) -> Message:
    if zlib.crc32(body) != crc:
        raise LedgerDamaged(conversation, message_id)
    message: Message = decode(body, Message)
    return message


async def _commit(sql: Sql, key: int, conversation: str, ended: Ended) -> None:
    """Writes what a run leaves. Ids that an earlier run has taken stay its: the later ones are anomalies."""
    run, end = ended.run, ended.end
    if await sql("SELECT 1 FROM runs WHERE conversation = ? AND id = ? AND seq <> ?", (key, run.run_id, run.seq)):
        _LOG.warning("ledger.run_id_taken", conversation=conversation, run_id=run.run_id, seq=run.seq)
        return
    taken = [
        message_id
        for message_id in (*run.live, *(message_id for message_id, _ in run.done.items()))
        if await sql("SELECT 1 FROM messages WHERE conversation = ? AND id = ? AND run <> ?", (key, message_id, run.run_id))
    ]
    if taken:
        _LOG.warning("ledger.message_ids_taken", conversation=conversation, run_id=run.run_id, message_ids=taken)
    settled = settle(run.without(taken), end)
    info = RunInfo.of(conversation, run, end, len(settled.path))
    row: tuple[Any, ...] = (key, run.run_id, run.seq, info.status, encode(info))
    await sql(_PUT_RUN, row)  # begun and ended in one page
    await sql(_END_RUN, row)
    for on_path, messages in ((1, settled.path), (0, settled.off)):
        for message in messages:
            body = encode(message)
            await sql(
                _PUT_MESSAGE,
                (key, message.id, run.run_id, message.parent_id, message.seq, on_path, zlib.crc32(body), body),
            )
    if settled.path:
        await sql(_MOVE_LEAF, (key, settled.path[-1].id, run.seq))
