"""The ledger's tables, in the file of the log or in one of their own: what is read of them, and how they move on."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ledger.errors import LedgerDamaged
from ledger.records import ConversationInfo, RunInfo
from ledger.tables.branches import descend
from ledger.tables.commit import NEW_CONVERSATION, apply, find_calling
from projector import Message
from projector.events import read_body
from projector.json_text import decode, dump, split
from projector.tree import Node, resolve
from stream.sqlite import Database, read_scripts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from ledger.projection import Effect
    from projector.events import Choice
    from stream.sqlite import Sql

_KEY: Final = "(SELECT id FROM conversations WHERE name = ?1)"
_PAGE_ROWS: Final = 200
_ADVANCE: Final = """
UPDATE conversations SET projected_seq = ?3, replay_from = ?4 WHERE name = ?1 AND projected_seq = ?2 AND rewound = ?5
RETURNING id"""
_POSITION: Final = """
SELECT projected_seq, replay_from, leaf, messages, orphans, holes, erased, rewound FROM conversations WHERE name = ?"""
_CHAIN: Final = f"""
WITH RECURSIVE chain (id, parent, crc, body, depth) AS (
  SELECT id, parent, crc, body, 1 FROM messages WHERE conversation = {_KEY} AND id = ?2 AND on_path
  UNION ALL
  SELECT m.id, m.parent, m.crc, m.body, chain.depth + 1
  FROM chain JOIN messages AS m ON m.conversation = {_KEY} AND m.id = chain.parent AND m.on_path
  LIMIT ?3)
SELECT id, crc, body FROM chain ORDER BY depth DESC"""  # noqa: S608 - constants
_CONVERSATION: Final = """
SELECT name, messages, runs, leaf, projected_seq, active_at, archived, title, metadata, erased FROM conversations"""
_LISTED: Final = f"""{_CONVERSATION}
WHERE (?1 OR NOT archived) AND (?2 IS NULL OR (active_at, name) < (?3, ?2)) AND substr(name, 1, length(?4)) = ?4
  AND (?5 IS NULL OR (json_valid(metadata) AND EXISTS (SELECT 1 FROM json_each(metadata, '$.labels') WHERE value = ?5)))
  AND (?6 IS NULL OR instr(lower(json_extract(title, '$')), lower(?6)))
ORDER BY active_at DESC, name DESC LIMIT ?7"""  # noqa: S608 - constants
_IS_SUPERSEDED: Final = """r.status = 'committed' AND EXISTS (
  SELECT 1 FROM messages AS f JOIN messages AS s ON s.conversation = f.conversation AND s.parent IS f.parent AND s.on_path
  WHERE f.conversation = r.conversation AND f.id = r.first AND s.is_committed = 1 AND s.started > f.started)"""


_TOLD: Final = ("messages", "runs", "events", "at", "is_done")  # of an erasure


class Position(NamedTuple):
    """How far the ledger holds a conversation; all zero for one it does not know.

    `holes` and `erased` are JSON, see the schema; `rewound` counts repairs that put it back.
    """

    projected_seq: int = 0
    replay_from: int = 0
    leaf: str | None = None
    messages: int = 0
    orphans: int = 0
    holes: str | None = None
    erased: str | None = None
    rewound: int = 0


class Page(NamedTuple):
    """Which conversations are listed, newest activity first. `after` is the last one of the page before."""

    after: ConversationInfo | None = None
    limit: int | None = None
    archived: bool = False
    prefix: str = ""
    label: str | None = None
    title: str | None = None


class LedgerTables:
    """Reads and writes the durable transcript. Every write is one transaction in the database's writer."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    async def attach(cls, database: Database) -> LedgerTables:
        """Brings the ledger's tables to their newest form."""
        await database.install("ledger", read_scripts("ledger.tables"))
        return cls(database)

    async def position(self, conversation: str) -> Position:
        """How far this conversation is projected."""
        rows = await self.database.read(_POSITION, (conversation,))
        return Position(*rows[0]) if rows else Position()

    async def positions(self, conversations: Collection[str]) -> dict[str, int]:
        """`projected_seq` of each that the ledger knows."""
        text = "SELECT name, projected_seq FROM conversations WHERE name IN (SELECT value FROM json_each(?))"
        return dict(await self.database.read(text, (dump(list(conversations)),)))

    async def advance(
        self, conversation: str, before: Position, *, projected_seq: int, replay_from: int, effects: Sequence[Effect]
    ) -> bool:
        """Takes in what a page of the log brings and moves on to `projected_seq`, as a whole.

        False, and nothing changed, if the ledger is no longer at `before`: another process was faster.
        """

        async def job(sql: Sql) -> bool:
            await sql(NEW_CONVERSATION, (conversation,))
            moved = await sql(_ADVANCE, (conversation, before.projected_seq, projected_seq, replay_from, before.rewound))
            if not moved:
                return False
            await apply(sql, moved[0][0], conversation, effects)
            return True

        return await self.database.transact(job)

    async def path(self, conversation: str, leaf: str, limit: int | None) -> list[Message]:
        """The messages from the root, or the last `limit` of them, down to `leaf`."""
        position = await self.position(conversation)
        most = position.messages if limit is None else min(limit, position.messages)  # hand-made circles end, too
        rows = await self.database.read(_CHAIN, (conversation, leaf, most))
        return [_read(conversation, *row) for row in rows]

    async def leaf(self, conversation: str, selections: Mapping[str, str]) -> str | None:
        """The leaf of the path with other turns at forks, `{parent: child}`; '' is the root."""
        rows = await self.database.read("SELECT id FROM conversations WHERE name = ?", (conversation,))
        return await descend(self.database.read, rows[0][0], None, dump(dict(selections))) if rows else None

    async def nodes(self, conversation: str) -> list[Node]:
        """All messages on any path, as nodes of the tree, in the order of the log."""
        text = f"""SELECT id, parent, started, is_committed, selected FROM messages
            WHERE conversation = {_KEY} AND on_path ORDER BY seq"""  # noqa: S608 - constants
        rows = await self.database.read(text, (conversation,))
        return [Node(row[0], row[1], row[2], bool(row[3]), row[4]) for row in rows]

    async def scattered_path(self, conversation: str, selections: Mapping[str, str]) -> list[Message]:
        """The path of a tree that has lost some of its roots: what hangs on them comes last."""
        ids = resolve(await self.nodes(conversation), selections)
        found = {message.id: message async for message in self.all(conversation) if message.id in set(ids)}
        return [found[message_id] for message_id in ids]

    async def all(self, conversation: str) -> AsyncIterator[Message]:
        """Every message that was committed or kept of a failed run, in the order of the log."""
        text = f"""SELECT seq, id, crc, body FROM messages
            WHERE conversation = {_KEY} AND (seq, id) > (?2, ?3) ORDER BY seq, id LIMIT ?4"""  # noqa: S608 - constants
        place: tuple[int, str] = (0, "")
        while rows := await self.database.read(text, (conversation, *place, _PAGE_ROWS)):
            for row in rows:
                yield _read(conversation, *row[1:])
            place = (rows[-1][0], rows[-1][1])

    async def last(self, conversation: str, before: Message | None, limit: int) -> list[Message]:
        """The last messages in the order of the log, ahead of one of them."""
        text = f"""SELECT id, crc, body FROM messages WHERE conversation = {_KEY} AND (?2 IS NULL OR seq < ?2)
            ORDER BY seq DESC LIMIT ?3"""  # noqa: S608 - constants
        rows = await self.database.read(text, (conversation, None if before is None else before.seq, limit))
        return [_read(conversation, *row) for row in reversed(rows)]

    async def message(self, conversation: str, message_id: str, *, on_path: bool = False) -> Message | None:
        """One message, on a path or off it."""
        text = f"""SELECT id, crc, body FROM messages
            WHERE conversation = {_KEY} AND id = ?2 AND on_path >= ?3"""  # noqa: S608 - constants
        rows = await self.database.read(text, (conversation, message_id, int(on_path)))
        return _read(conversation, *rows[0]) if rows else None

    async def owner(self, conversation: str, message_id: str) -> str | None:
        """The run of a message."""
        text = f"SELECT run FROM messages WHERE conversation = {_KEY} AND id = ?2"  # noqa: S608 - constants
        rows = await self.database.read(text, (conversation, message_id))
        return rows[0][0] if rows else None

    async def calling(self, conversation: str, tool_call_id: str) -> Message | None:
        """The newest message that makes a tool call."""
        rows = await self.database.read("SELECT id FROM conversations WHERE name = ?", (conversation,))
        return await find_calling(self.database.read, rows[0][0], tool_call_id) if rows else None

    async def names(self) -> list[str]:
        """All conversations by name."""
        return [name for (name,) in await self.database.read("SELECT name FROM conversations ORDER BY name")]

    async def messages_of(self, conversation: str, run_id: str) -> list[tuple[Message, bool]]:
        """The messages of a run in their order, and whether each is on the path."""
        text = f"SELECT id, crc, body, on_path FROM messages WHERE conversation = {_KEY} AND run = ?2 ORDER BY seq"  # noqa: S608
        rows = await self.database.read(text, (conversation, run_id))
        return [(_read(conversation, *row[:3]), bool(row[3])) for row in rows]

    async def orphans(self, conversation: str) -> list[tuple[str, str]]:
        """Messages on the path whose parent is not there: (message, parent)."""
        text = f"""SELECT id, parent FROM messages AS m WHERE conversation = {_KEY} AND on_path AND parent IS NOT NULL
            AND NOT EXISTS (
              SELECT 1 FROM messages AS p WHERE p.conversation = m.conversation AND p.id = m.parent AND p.on_path)"""  # noqa: S608
        return [(row[0], row[1]) for row in await self.database.read(text, (conversation,))]

    async def damaged(self, conversation: str) -> AsyncIterator[LedgerDamaged]:
        """The messages of a conversation that fail their checksum."""
        text = f"""SELECT seq, id, crc, body FROM messages
            WHERE conversation = {_KEY} AND (seq, id) > (?2, ?3) ORDER BY seq, id LIMIT ?4"""  # noqa: S608 - constants
        place: tuple[int, str] = (0, "")
        while rows := await self.database.read(text, (conversation, *place, _PAGE_ROWS)):
            for _, message_id, crc, body in rows:
                if zlib.crc32(body) != crc:
                    yield LedgerDamaged(conversation, message_id)
            place = (rows[-1][0], rows[-1][1])

    async def runs(self, conversation: str | None = None, *, only_open: bool = False) -> AsyncIterator[RunInfo]:
        """Runs in order of conversation and start; those that are open as `open`."""
        only = "r.status = 'open' AND" if only_open else ""
        text = f"""SELECT c.name, r.seq, r.body, {_IS_SUPERSEDED}
            FROM runs AS r JOIN conversations AS c ON c.id = r.conversation
            WHERE {only} (c.name, r.seq) > (?1, ?2) AND (?3 IS NULL OR c.name = ?3)
            ORDER BY c.name, r.seq LIMIT ?4"""  # noqa: S608 - constants
        place: tuple[str, int] = ("", 0)
        while rows := await self.database.read(text, (*place, conversation, _PAGE_ROWS)):
            for row in rows:
                yield _read_run(*row[2:])
            place = (rows[-1][0], rows[-1][1])

    async def run(self, conversation: str, run_id: str) -> RunInfo | None:
        """One run."""
        text = f"SELECT body, {_IS_SUPERSEDED} FROM runs AS r WHERE conversation = {_KEY} AND id = ?2"  # noqa: S608 - constants
        rows = await self.database.read(text, (conversation, run_id))
        return _read_run(*rows[0]) if rows else None

    async def media_of(self, conversation: str) -> list[str]:
        """The ids of the media that a conversation speaks of and that are there, in order."""
        text = f"""SELECT media FROM uses WHERE conversation = {_KEY} AND EXISTS (SELECT 1 FROM media WHERE id = uses.media)
            ORDER BY media"""  # noqa: S608 - a constant
        return [row[0] for row in await self.database.read(text, (conversation,))]

    async def prompts(self, conversation: str, path: Sequence[Message]) -> dict[str, tuple[int, ...]]:
        """The seqs at which steps of the runs on a path began, by run.

        Of a run that the path leaves in the middle only those that led to what is on it.
        """
        last: dict[str, int] = {}
        counts: Counter[str] = Counter()
        for message in path:
            last[message.run_id] = message.seq
            counts[message.run_id] += 1
        found: dict[str, tuple[int, ...]] = {}
        wanted = list(last)
        for first in range(0, len(wanted), _PAGE_ROWS):
            some = wanted[first : first + _PAGE_ROWS]
            marks = ",".join("?" * len(some))
            text = f"SELECT id, body FROM runs WHERE conversation = {_KEY} AND id IN ({marks})"  # noqa: S608 - marks only
            for run_id, body in await self.database.read(text, (conversation, *some)):
                run: RunInfo = decode(body, RunInfo)
                is_whole = counts[run_id] >= run.messages
                found[run_id] = tuple(seq for seq in run.prompts if is_whole or seq < last[run_id])
        return found

    async def choices(self, conversation: str) -> list[tuple[int, Choice]]:
        """What is remembered of how the model's view was made, with the seq of each, oldest first. Raises `LedgerDamaged`."""
        text = f"SELECT seq, type, crc, body FROM choices WHERE conversation = {_KEY} ORDER BY seq"  # noqa: S608 - a constant
        found = []
        for seq, kind, crc, body in await self.database.read(text, (conversation,)):
            if zlib.crc32(body) != crc:
                raise LedgerDamaged(conversation, f"choice {seq}")
            found.append((seq, read_body(kind, body)))
        return found  # type: ignore[return-value] # only choices are put there

    async def homes(self, run_id: str) -> list[str]:
        """The conversations that have a run of this id."""
        text = "SELECT c.name FROM runs AS r JOIN conversations AS c ON c.id = r.conversation WHERE r.id = ? ORDER BY c.name"
        return [name for (name,) in await self.database.read(text, (run_id,))]

    async def conversation(self, conversation: str) -> ConversationInfo | None:
        """What is listed of one conversation."""
        rows = await self.database.read(f"{_CONVERSATION} WHERE name = ?", (conversation,))
        return _read_conversation(rows[0]) if rows else None

    async def conversations(self, page: Page) -> AsyncIterator[ConversationInfo]:
        """Conversations, newest activity first."""
        after, left = page.after, page.limit
        while left is None or left > 0:
            place = (None, 0) if after is None else (after.conversation, after.active_at)
            rows_wanted = _PAGE_ROWS if left is None else min(left, _PAGE_ROWS)
            filters = (int(page.archived), *place, page.prefix, page.label, page.title, rows_wanted)
            rows = await self.database.read(_LISTED, filters)
            for row in rows:
                after = _read_conversation(row)
                yield after
            if len(rows) < rows_wanted:
                return
            left = None if left is None else left - len(rows)


def _read(conversation: str, message_id: str, crc: int, body: bytes) -> Message:
    if zlib.crc32(body) != crc:
        raise LedgerDamaged(conversation, message_id)
    message: Message = decode(body, Message)
    return message


def _read_run(body: bytes, is_superseded: int) -> RunInfo:
    run: RunInfo = decode(body, RunInfo)
    return replace(run, status="superseded") if is_superseded else run


def _read_conversation(row: Sequence[Any]) -> ConversationInfo:
    name, messages, runs, leaf, projected_seq, active_at, archived, title, metadata, erased = row
    return ConversationInfo(
        name,
        messages,
        runs,
        leaf,
        projected_seq,
        active_at,
        bool(archived),
        None if title is None else decode(title),
        split(metadata) if metadata else {},
        None if erased is None else {name: said for name, said in msgspec.json.decode(erased).items() if name in _TOLD},
    )
