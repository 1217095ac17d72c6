"""The ledger's tables, in the file of the log or in one of their own: what is read of them, and how they move on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ledger.errors import LedgerDamaged
from ledger.tables import bodies, calls, choices, conversations, messages, order, runs, uses, walks
from ledger.tables.commit import apply, tell
from ledger.tables.kept_paths import KeptPaths
from ledger.tables.texts import EVERY, PAGE_ROWS
from stream import StoreUnusable
from stream.clock import now_ms
from stream.sqlite import read_scripts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from ledger.records import ConversationInfo, RunInfo
    from ledger.tables.commit import Note
    from ledger.tables.conversations import Page, Position
    from ledger.tables.order import Listed
    from projector import Message
    from projector.effects import Effect
    from projector.events import Choice
    from projector.tree import Node
    from stream.database import Database, Sql

T = TypeVar("T")
_SERVER_NOW: Final = "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)"
_VERSION: Final = "SELECT version FROM components WHERE name = 'ledger'"


class LedgerTables:
    """Reads and writes the durable transcript. Every write is one transaction in the database's writer."""

    def __init__(self, database: Database, version: int) -> None:
        self.database = database
        self.kept = KeptPaths()
        self._version = version

    @classmethod
    async def attach(cls, database: Database) -> LedgerTables:
        """Brings the ledger's tables to their newest form."""
        is_file = database.dialect == "sqlite"
        scripts = read_scripts("ledger.tables" if is_file else "ledger.tables.postgres")
        await database.install("ledger", scripts, {4: conversations.fill_labels} if is_file else None)
        return cls(database, len(scripts))

    async def transact(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """Runs `job(sql)` as one transaction that is whole or absent; all that is written to the tables goes through here.

        Raises what the job raises, and `StoreUnusable` for tables that a newer program has changed meanwhile.
        """

        async def checked(sql: Sql) -> T:
            [(version,)] = await sql(_VERSION)
            if version != self._version:
                why = f"its ledger tables have version {version}, this Tailfold knows {self._version}: upgrade Tailfold"
                raise StoreUnusable(self.database.path, why)
            return await job(sql)

        return await self.database.transact(job if self.database.checks_versions else checked)

    async def look(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """Runs `job(sql)`, which only reads: all of it at one moment, in one trip."""
        return await self.database.look(job)

    async def now(self, sql: Sql) -> int:
        """What leases are held against, in ms, to be asked in a job: the clock of the server, or of this machine."""
        if self.database.dialect == "sqlite":
            return now_ms()
        [(now,)] = await sql(_SERVER_NOW)
        return int(now)

    async def advance(
        self, conversation: str, before: Position, *, projected_seq: int, replay_from: int, effects: Sequence[Effect],
        spoken_at: int | None = None,
    ) -> Position | None:  # fmt: skip
        """Takes in what a page of the log brings and moves on to `projected_seq`, as a whole; returns where it is then.

        `spoken_at` is the time (ms) of the first event that makes a conversation of the stream, if it was none before.
        None, and nothing changed, if the ledger is no longer at `before`: another process was faster.
        """

        async def job(sql: Sql) -> tuple[Position, list[Note]] | None:
            moved = await conversations.move_on(sql, conversation, before, projected_seq, replay_from)
            if moved is None:
                return None
            key, calls_from = moved
            notes = await apply(sql, key, conversation, effects)
            if spoken_at is not None:
                await conversations.mark(sql, key, spoken_at)
            if calls_from:  # of an older version: a step at a time, while it is in use
                await calls.fill_calls(sql, key)
            return await conversations.position(sql, conversation), notes

        stored = await self.transact(job)
        if stored is None:
            return None
        position, notes = stored
        tell(conversation, notes)
        return position

    async def position(self, conversation: str) -> Position:
        """How far this conversation is projected."""
        return await conversations.position(self.database.read, conversation)

    async def positions(self, names: Collection[str]) -> dict[str, int]:
        """`projected_seq` of each that the ledger knows."""
        return await conversations.positions(self.database.read, names)

    async def path(self, conversation: str, leaf: str, limit: int | None) -> list[Message]:
        """The messages from the root, or the last `limit` of them, down to `leaf`."""
        return await self.look(partial(walks.path, conversation=conversation, leaf=leaf, limit=limit))

    async def all(self, conversation: str) -> AsyncIterator[Message]:
        """Every message that was committed or kept of a failed run, in the order of the log."""
        place: tuple[int, str] = (0, "")
        while rows := await self.look(partial(messages.page, conversation=conversation, after=place)):
            for row in rows:
                yield messages.read(conversation, *row[1:])
            place = rows[-1][:2]

    async def last(self, conversation: str, before: Message | None, limit: int) -> list[Message]:
        """The last messages in the order of the log, ahead of one of them; all with a negative limit."""
        wanted = None if limit < 0 else limit
        return await self.look(partial(messages.last, conversation=conversation, before=before, limit=wanted))

    async def message(self, conversation: str, message_id: str, *, on_path: bool = False) -> Message | None:
        """One message, on a path or off it."""
        look = partial(messages.message, conversation=conversation, message_id=message_id, on_path=on_path)
        return await self.look(look)

    async def owner(self, conversation: str, message_id: str) -> str | None:
        """The run of a message."""
        return await messages.owner(self.database.read, conversation, message_id)

    async def calling(self, conversation: str, tool_call_id: str, *, before: int = EVERY) -> Message | None:
        """The newest message that makes a tool call, ahead of a seq."""

        async def job(sql: Sql) -> Message | None:
            key = await conversations.key_of(sql, conversation)
            return None if key is None else await calls.find_calling(sql, key, tool_call_id, before)

        return await self.look(job)

    async def lacks_calls(self, conversation: str) -> bool:
        """Whether the table of tool calls says something else than the messages do, as far as it is filled."""
        key = await conversations.key_of(self.database.read, conversation)
        if key is None:
            return False
        end = EVERY
        while end:
            is_wrong, end = await self.look(partial(calls.lacks_calls, key=key, end=end))
            if is_wrong:
                return True
        return await calls.lead_nowhere(self.database.read, key)

    async def count_unnamed(self, conversation: str) -> int:
        """How many bodies lie in pages of a conversation that no message and no run names."""

        async def job(sql: Sql) -> int:
            key = await conversations.key_of(sql, conversation)
            return 0 if key is None else await bodies.count_unnamed(sql, key)

        return await self.look(job)

    async def lacks_labels(self, conversation: str) -> bool:
        """Whether the table of labels says something else than the metadata does."""
        key = await conversations.key_of(self.database.read, conversation)
        return key is not None and await self.look(partial(conversations.lacks_labels, key=key))

    async def names(self) -> list[str]:
        """All conversations by name."""
        return await conversations.names(self.database.read)

    async def messages_of(self, conversation: str, run_id: str) -> list[tuple[Message, bool]]:
        """The messages of a run in their order, and whether each is on the path."""
        return await self.look(partial(messages.of_run, conversation=conversation, run_id=run_id))

    async def tree(self, conversation: str) -> tuple[list[tuple[str, str]], list[Node], Position]:
        """Messages whose parent is not there, as (message, parent), all on a path, and what is said of them: at one moment."""

        async def job(sql: Sql) -> tuple[list[tuple[str, str]], list[Node], Position]:
            orphans, nodes = await messages.orphans(sql, conversation), await messages.nodes(sql, conversation)
            return orphans, nodes, await conversations.position(sql, conversation)

        return await self.look(job)

    async def damaged(self, conversation: str) -> AsyncIterator[LedgerDamaged]:
        """The messages and runs of a conversation that fail their checksum, or are listed elsewhere than they say."""
        async for one in self._listed(conversation):
            if not one.is_whole or one.at != one.told:
                yield LedgerDamaged(conversation, one.message_id)
        for run_id in await self.look(partial(runs.damaged, conversation=conversation)):
            yield LedgerDamaged(conversation, run_id, "run")

    async def misplaced(self, conversation: str) -> list[Listed]:
        """The messages of a conversation that are listed elsewhere than they say."""
        return [one async for one in self._listed(conversation) if one.at != one.told]

    async def _listed(self, conversation: str) -> AsyncIterator[Listed]:
        place: tuple[int, str] = (0, "")
        while found := await self.look(partial(order.page, conversation=conversation, after=place)):
            for one in found:
                yield one
            place = found[-1].at[0], found[-1].message_id

    async def runs(
        self, conversation: str | None = None, *, only_open: bool = False, after: tuple[str, int] = ("", 0)
    ) -> AsyncIterator[RunInfo]:
        """Runs in order of conversation and start, behind such a place; those that are open as `open`."""
        place = after
        while found := await self.look(partial(runs.page, conversation=conversation, after=place, only_open=only_open)):
            for info, place in found:  # noqa: B007 - the last one is where the next page begins
                yield info

    async def run(self, conversation: str, run_id: str) -> RunInfo | None:
        """One run."""
        return await self.look(partial(runs.run, conversation=conversation, run_id=run_id))

    async def media_of(self, conversation: str) -> list[str]:
        """The ids of the media that a conversation speaks of and that are there, in order."""
        return await uses.used(self.database.read, conversation)

    async def choices(self, conversation: str) -> list[tuple[int, Choice]]:
        """What is remembered of how the model's view was made, with the seq of each, oldest first. Raises `LedgerDamaged`."""
        return await choices.choices(self.database.read, conversation)

    async def homes(self, run_id: str) -> list[str]:
        """The conversations that have a run of this id."""
        return await runs.homes(self.database.read, run_id)

    async def conversation(self, conversation: str) -> ConversationInfo | None:
        """What is listed of one conversation."""
        return await conversations.conversation(self.database.read, conversation)

    async def conversations(self, page: Page) -> AsyncIterator[ConversationInfo]:
        """Conversations, newest activity first."""
        after, left = page.after, EVERY if page.limit is None else page.limit
        while left > 0:
            wanted = PAGE_ROWS if page.title is not None else min(left, PAGE_ROWS)
            found = await conversations.listed(self.database.read, page, after, wanted)
            for after in found:
                if left > 0 and (page.title is None or conversations.is_titled(after, page.title)):
                    yield after
                    left -= 1
            if len(found) < wanted:
                return
