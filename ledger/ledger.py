"""The facade: conversations that are never lost, over a log and its durable transcript."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from msgspec.structs import replace

from ledger.backup import back_up, file_of
from ledger.catchup import CatchUp
from ledger.errors import (
    LedgerBehind,
    LedgerDiverged,
    LedgerError,
    RunExists,
    RunOpen,
    UnknownConversation,
    UnknownMessage,
    UnknownRun,
)
from ledger.outbox import Outbox
from ledger.run import Run
from ledger.sqlite import LedgerTables
from projector import compact, load, open_runs
from projector import events as ev
from projector.compaction import keep
from projector.events import validate
from projector.formats import STREAMS
from stream import (
    CorruptEvent,
    MemoryStore,
    NewEvent,
    Opening,
    Producer,
    ProducerFenced,
    ProducerGap,
    SeqConflict,
    SnapshotUnreadable,
    StreamError,
    follow,
    open_store,
)
from stream.finishing import finish_anyway
from stream.limits import MAX_RUN_ID_BYTES, check_id
from stream.opening import sqlite_path
from stream.sqlite import MEMORY, Database, Durability, SqliteStore, open_database
from stream.sqlite.statistics import store_statistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from ledger.catchup import Caught
    from ledger.records import ConversationInfo, RunInfo
    from projector import Compaction, Message, State
    from projector.draft import Anomaly
    from projector.events import Action
    from stream import AppendResult, Event, EventStore
    from stream.sqlite.statistics import StoreStatistics

_LOG = structlog.get_logger("tailfold.ledger")


class OpenRun(NamedTuple):
    """A run without an end, and what it has said so far."""

    run_id: str
    seq: int
    last_seq: int
    messages: list[Message]


class Ledger:
    """Begins runs, keeps their transcripts, and mends what a crash left. Made by `open_ledger`.

    Every method raises the errors of the log (`StreamError`) as they are. A conversation is known from its first
    event on; asking for one that is not raises `UnknownConversation`.
    """

    def __init__(self, store: EventStore, tables: LedgerTables) -> None:
        self.store = store
        self.tables = tables
        self._catch_up = CatchUp(store, tables)
        self._runs: set[Run] = set()
        self._background: set[asyncio.Task[None]] = set()

    async def begin_run(
        self,
        conversation: str,
        *,
        run_id: str | None = None,
        format: str | None = None,  # noqa: A002 - the word users know from the command line
        trigger: str = "submit",
        model: str | None = None,
        provider: str | None = None,
        flush_ms: int = 100,
    ) -> Run:
        """Begins a run behind the last message of the conversation; returns when that is durable.

        `format` names what `Run.feed` takes. `flush_ms` is how long a delta may wait to be joined with others, 0
        keeps each. A run that had begun when the call was cancelled is ended as `cancelled`. Raises `RunOpen` while the
        last run has no end, `RunExists` for an id that was used.
        """
        run_id = check_id("run id", secrets.token_hex(8) if run_id is None else run_id, max_bytes=MAX_RUN_ID_BYTES)
        if format is not None and format not in STREAMS:
            raise ValueError(f"{format!r} is no stream format: use one of {', '.join(STREAMS)}")
        if flush_ms < 0:
            raise ValueError(f"flush_ms must be 0 or more, not {flush_ms}")
        start = ev.RunStarted(run_id, None, trigger, run_id, model, provider or format)
        beginning = asyncio.create_task(self._begin(conversation, start, format, flush_ms), name=f"tailfold begin of {run_id}")
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # Nobody holds the run that may have begun: end it, or it would bar the conversation.
            self._background.add(task := asyncio.create_task(_abandon(beginning)))
            task.add_done_callback(self._background.discard)
            raise

    async def _begin(self, conversation: str, start: ev.RunStarted, provider_format: str | None, flush_ms: int) -> Run:
        run_id, first = start.run_id, Producer(start.run_id, 0, 0)
        while True:
            caught = await self.catch_up(conversation)
            await self._require_unused(conversation, run_id, caught)
            started = ev.to_event(replace(start, parent_message_id=caught.leaf))
            validate([started])
            try:
                result = await self.store.append(conversation, [started], expected_seq=caught.state.last_seq, producer=first)
            except SeqConflict as conflict:
                if conflict.head < conflict.expected:
                    raise LedgerDiverged(conversation, conflict.expected, conflict.head) from conflict
                continue  # somebody wrote meanwhile: look again
            except (ProducerFenced, ProducerGap) as error:
                raise RunExists(conversation, run_id) from error
            if result.duplicate:
                raise RunExists(conversation, run_id)
            break
        outbox = Outbox(self.store, conversation, Producer(run_id, 0, 1), result.last_seq, flush_ms=flush_ms)
        run = Run(conversation, run_id, outbox, provider_format=provider_format, ended=self._end_run)
        self._runs.add(run)
        return run

    def run(self, conversation: str, **options: Any) -> _Running:
        """`async with ledger.run("chat") as run`: begins a run with the options of `begin_run`, and ends it."""
        return _Running(self, conversation, options)

    async def record(self, conversation: str, events: Sequence[NewEvent], *, expected_seq: int | None = None) -> AppendResult:
        """Appends events that a caller made itself, after checking each body (law 14). Raises `InvalidEvent`."""
        validate(list(events))
        return await self.store.append(conversation, events, expected_seq=expected_seq)

    async def transcript(self, conversation: str, *, before: str | None = None, limit: int | None = None) -> list[Message]:
        """The committed messages in order; with `limit` the last ones, with `before` those ahead of that message.

        Raises `UnknownMessage` for a `before` that is not committed.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        leaf = (await self._known(conversation)).leaf
        if before is not None:
            message = await self.tables.message(conversation, before)
            if message is None:
                raise UnknownMessage(conversation, before)
            leaf = message.parent_id
        return [] if leaf is None or limit == 0 else await self.tables.path(conversation, leaf, limit)

    async def open_runs(self, conversation: str) -> list[OpenRun]:
        """The runs that have no end, with what they have said so far; nothing of it is committed."""
        state = (await self._known(conversation)).state
        messages = state.all_messages()
        return [
            OpenRun(run.run_id, run.seq, state.last_seq, [message for message in messages if message.run_id == run.run_id])
            for run in state.open.values()
        ]

    async def anomalies(self, conversation: str) -> list[Anomaly]:
        """The events that could not be applied, as far as the log or a snapshot of it still tells."""
        await self._known(conversation)
        try:
            loaded = await load(open_runs, self.store, self.store.snapshots, conversation)
        except SnapshotUnreadable:
            return []
        return list(loaded.state.anomalies)

    async def runs(self, conversation: str | None = None, *, status: str | None = None) -> AsyncIterator[RunInfo]:
        """Runs by conversation and start, of one conversation or of all; `status` as in `RunInfo`."""
        if conversation is not None:
            await self._known(conversation)
        else:
            await self.catch_up_all()
        async for run in self.tables.runs(conversation, status=status):
            yield run

    async def conversations(self) -> AsyncIterator[ConversationInfo]:
        """All conversations by name."""
        await self.catch_up_all()
        async for info in self.tables.conversations():
            yield info

    async def find_run(self, run_id: str) -> str:
        """The conversation of a run. Raises `UnknownRun`, also where several have one of that id."""
        await self.catch_up_all()
        homes = await self.tables.homes(run_id)
        if len(homes) != 1:
            raise UnknownRun(run_id)
        return homes[0]

    async def recover(self, conversation: str, run_id: str, action: Action) -> RunInfo:
        """Ends an open run whose writer is lost, and fences that writer (laws 10 and 11).

        `commit` keeps everything it has, `fail` its finished messages, `cancel` nothing. On a run that has ended it
        changes nothing; the answer tells which end counts. Raises `UnknownRun`.
        """
        if action not in ("commit", "fail", "cancel"):
            raise ValueError(f"{action!r} is no way to recover a run: use commit, fail or cancel")
        state = (await self._known(conversation)).state
        if run_id in state.open:
            watermark = await self.store.producer(conversation, run_id)
            epoch = 0 if watermark is None else watermark.epoch + 1
            recovered = ev.to_event(ev.RunRecovered(run_id, action, state.last_seq))
            with suppress(ProducerFenced, ProducerGap):  # somebody else recovers it too: the first end counts
                await self.store.append(conversation, [recovered], producer=Producer(run_id, epoch, 0))
            await self.catch_up(conversation)
        run = await self.tables.run(conversation, run_id)
        if run is None:
            raise UnknownRun(run_id)
        return run

    async def compact(self, conversation: str, *, replay_window: int = 0, dry_run: bool = False) -> Compaction:
        """Lets the log go as far as the ledger holds it, keeping open runs and the last `replay_window` events.

        The transcript stays as it is. With `dry_run` nothing is changed; the answer says what binds the floor.
        """
        if replay_window < 0:
            raise ValueError(f"replay_window must be 0 or more events, not {replay_window}")
        state = (await self._known(conversation)).state
        position = await self.tables.position(conversation)
        head = (await self.store.bounds(conversation)).head
        pins = {"ledger": position.projected_seq, "replay_window": max(0, head - replay_window)}
        pins |= {f"open_run:{run.run_id}": run.seq - 1 for run in state.open.values()}
        if not dry_run:
            await self._mend_base(conversation, state)
        return await compact([open_runs], self.store, self.store.snapshots, conversation, pins=pins, dry_run=dry_run)

    def follow(self, conversation: str, *, after: int = 0, incarnation: str | None = None) -> AsyncIterator[Event]:
        """The conversation's events after a position, each once, in order, and what comes; see `stream.follow`."""
        return follow(self.store, conversation, after=after, incarnation=incarnation)

    async def backup(self, target: str) -> int:
        """Copies log and ledger to the file `target` while they are in use; returns its size in bytes.

        The copy is whole or absent. Raises `StoreUnusable` for a target that exists or can't be written, and where log
        and ledger do not lie in one file; `StoreFull`, `StoreBusy`.
        """
        return await back_up(self, target)

    async def statistics(self, *, exact: bool = False) -> StoreStatistics:
        """What the file holds; `exact` looks at every row. Raises `StoreUnusable` where there is no file of both."""
        return await store_statistics(file_of(self).database, exact=exact)

    async def catch_up(self, conversation: str) -> Caught:
        """Takes in what is new in the log of a conversation."""
        return await self._catch_up.run(check_id("conversation id", conversation))

    async def catch_up_all(self) -> None:
        """Takes in what is new in every log."""
        async for info in self.store.streams():
            if info.head > (await self.tables.position(info.stream_id)).projected_seq:
                try:
                    await self.catch_up(info.stream_id)
                except (CorruptEvent, LedgerBehind) as error:  # one bad conversation does not bar the others
                    _LOG.error("ledger.behind", conversation=info.stream_id, error=str(error))

    async def close(self) -> None:
        """Closes what it opened. Runs that were not ended stay open, to be recovered."""
        await finish_anyway(self._close())

    async def _close(self) -> None:
        if self._background:
            await asyncio.wait(self._background)
        for run in list(self._runs):
            await run.close()
        await self.store.close()
        await self.tables.database.close()

    async def _known(self, conversation: str) -> Caught:
        check_id("conversation id", conversation)
        if (await self.store.bounds(conversation)).head == 0:
            raise UnknownConversation(conversation)
        return await self.catch_up(conversation)

    async def _mend_base(self, conversation: str, state: State) -> None:
        """Where the log is truncated and its snapshots are lost, the ledger's own position is a base record."""
        try:
            await load(open_runs, self.store, self.store.snapshots, conversation)
        except SnapshotUnreadable:
            await keep(open_runs, self.store.snapshots, conversation, state, state.last_seq)

    async def _require_unused(self, conversation: str, run_id: str, caught: Caught) -> None:
        for run in caught.state.open.values():
            if run.run_id == run_id:
                raise RunExists(conversation, run_id)
            if run.parent_message_id == caught.leaf:
                raise RunOpen(conversation, run.run_id)
        if await self.tables.run(conversation, run_id) or await self.store.producer(conversation, run_id):
            raise RunExists(conversation, run_id)

    async def _end_run(self, run: Run) -> None:
        self._runs.discard(run)
        await self.catch_up(run.conversation)


def open_ledger(url: str, *, log: str | None = None, create: bool = True, durability: Durability = "full") -> Opening[Ledger]:
    """Opens the ledger at `url`, and the log in the same file, or at `log`.

    `memory:` keeps both in memory. `async with open_ledger(url) as ledger` closes it at the end. With `create=False`
    a missing file is an error. Raises `StoreUnusable`.
    """

    async def make() -> Ledger:
        store = await open_store(log or url, create=create, durability=durability)
        database: Database | None = None
        try:
            database = await _database(store)
            return Ledger(store, await LedgerTables.attach(database))
        except BaseException:
            if database is not None:
                await finish_anyway(database.abandon())
            await store.close()
            raise

    async def _database(store: MemoryStore | SqliteStore) -> Database:
        if log is None and isinstance(store, SqliteStore):
            return store.database
        path = MEMORY if log is None else sqlite_path(url)
        return await open_database(path, create=create, durability=durability)

    return Opening(make)


async def _abandon(beginning: asyncio.Task[Run]) -> None:
    with suppress(StreamError, LedgerError):  # what can't be ended stays open, to be recovered
        run = await beginning
        await run.finish("cancelled")


class _Running:
    def __init__(self, ledger: Ledger, conversation: str, options: dict[str, Any]) -> None:
        self._ledger = ledger
        self._conversation = conversation
        self._options = options
        self._run: Run | None = None

    async def __aenter__(self) -> Run:
        self._run = await self._ledger.begin_run(self._conversation, **self._options)
        return self._run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._run is not None
        await self._run.__aexit__(kind, error, trace)
