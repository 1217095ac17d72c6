"""The facade: conversations that are never lost, over a log and its durable transcript."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from ledger.context.context import Contexts
from ledger.erasure import begin_erasure, finish_erasure
from ledger.errors import LedgerBehind, LedgerDiverged, UnknownConversation, UnknownMessage, UnknownRun
from ledger.following import follow_conversation
from ledger.pins import pins_of
from ledger.runs.outbox import Outbox
from ledger.runs.run import Run
from ledger.runs.start import ACTIVE_LEAF, Parent, abandon, append_start
from ledger.tables.holds import held, hold
from ledger.tables.media import get_media, put_media
from ledger.transfer.file_import import import_file
from ledger.transfer.importing import ImportResult, import_history
from ledger.transfer.progress import untold
from ledger.transfer.recorded import Recorded
from ledger.transfer.sources import AUTO
from ledger.upkeep import reconcile as reconciliation
from ledger.upkeep.backup import back_up, file_of
from projector import compact, load, open_runs
from projector import events as ev
from projector.compaction import keep
from projector.context.retention import POLICY
from projector.events import validate
from projector.formats import STREAMS
from projector.json_text import dump, encode, join_fields, raw
from stream import (
    CorruptEvent,
    NewEvent,
    Producer,
    ProducerFenced,
    ProducerGap,
    SnapshotUnreadable,
)
from stream.limits import MAX_RUN_ID_BYTES, check_id, check_position
from stream.sqlite.statistics import store_statistics
from stream.tasks import finish_anyway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from os import PathLike
    from types import TracebackType

    from ledger.erasure import Erased
    from ledger.following import Replay
    from ledger.records import RunInfo
    from ledger.tables.media import Media
    from ledger.tables.tables import LedgerTables
    from ledger.transfer.file_import import ImportReport
    from ledger.transfer.progress import Progress
    from ledger.upkeep.verify import Finding
    from projector import Block, Compaction, Projector, State
    from projector.events import Action
    from projector.formats.shared.history import History
    from projector.formats.shared.media_refs import Attachment
    from stream import AppendResult, Event, EventStore
    from stream.sqlite.statistics import StoreStatistics

S = TypeVar("S")
_LOG = structlog.get_logger("tailfold.ledger")


class Ledger(Contexts):
    """Begins runs, keeps their transcripts, and mends what a crash left. Made by `open_ledger`.

    Every method raises the errors of the log (`StreamError`) as they are. A conversation is known from its first
    event on; asking for one that is not raises `UnknownConversation`.
    """

    def __init__(self, store: EventStore, tables: LedgerTables, projectors: Sequence[Projector[Any]] = ()) -> None:
        super().__init__(store, tables)
        self._runs: set[Run] = set()
        self._background: set[asyncio.Task[None]] = set()
        self.projectors = tuple(projectors)

    async def begin_run(
        self,
        conversation: str,
        *,
        run_id: str | None = None,
        parent: str | Parent | None = ACTIVE_LEAF,
        format: str | None = None,  # noqa: A002 - the word users know from the command line
        trigger: str = "submit",
        model: str | None = None,
        provider: str | None = None,
        flush_ms: int = 100,
    ) -> Run:
        """Begins a run behind the active leaf, or behind `parent` (None: as a new root); returns when that is durable.

        `format` names what `Run.feed` takes. `flush_ms` is how long a delta may wait to be joined with others, 0
        keeps each. A run that had begun when the call was cancelled is ended as `cancelled`. Raises `RunOpen` while a
        run on the active leaf has no end and no parent is named, `UnknownMessage` for a parent that is not committed,
        `RunExists` for an id that was used.
        """
        check_id("conversation id", conversation)
        run_id = check_id("run id", secrets.token_hex(8) if run_id is None else run_id, max_bytes=MAX_RUN_ID_BYTES)
        if format is not None and format not in STREAMS:
            raise ValueError(f"{format!r} is no stream format: use one of {', '.join(STREAMS)}")
        if flush_ms < 0:
            raise ValueError(f"flush_ms must be 0 or more, not {flush_ms}")
        start = ev.RunStarted(run_id, None, trigger, run_id, model, provider or format)
        work = self._begin(conversation, start, parent, format, flush_ms)
        beginning = asyncio.create_task(work, name=f"tailfold begin of {run_id}")
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # Nobody holds the run that may have begun: end it, or it would bar the conversation.
            self._background.add(task := asyncio.create_task(abandon(beginning)))
            task.add_done_callback(self._background.discard)
            raise

    async def _begin(
        self, conversation: str, start: ev.RunStarted, parent: str | Parent | None, provider_format: str | None, flush_ms: int
    ) -> Run:
        seq = await append_start(self.store, self.tables, self._catch_up, conversation, start, parent)
        outbox = Outbox(self.store, conversation, Producer(start.run_id, 0, 1), seq, flush_ms=flush_ms)

        async def keep(media: Attachment) -> None:
            await put_media(self.tables, conversation, media.data, media.media_type)

        run = Run(conversation, start.run_id, outbox, provider_format=provider_format, ended=self._end_run, keep=keep)
        self._runs.add(run)
        return run

    async def fork(self, conversation: str, message_id: str, **options: Any) -> Run:
        """Begins a run behind an earlier message; what it supersedes stays readable. Options as in `begin_run`."""
        return await self.begin_run(conversation, parent=message_id, **options)

    def run(self, conversation: str, **options: Any) -> _Running:
        """`async with ledger.run("chat") as run`: begins a run with the options of `begin_run`, and ends it."""
        return _Running(self, conversation, options)

    async def record(self, conversation: str, events: Sequence[NewEvent], *, expected_seq: int | None = None) -> AppendResult:
        """Appends events that a caller made itself, after checking each body (law 14). Raises `InvalidEvent`."""
        validate(list(events))
        return await self.store.append(conversation, events, expected_seq=expected_seq)

    async def take_in(self, conversation: str, history: History) -> ImportResult:
        """Records a history that another program has kept, as `projector.formats.READERS` read it; twice adds nothing.

        Its media go to the store. Raises `ImportDiffers` where the conversation holds something else in its place.
        """
        return await import_history(self, conversation, Recorded(history))

    async def import_file(
        self,
        path: str | PathLike[str],
        *,
        format: str = AUTO,  # noqa: A002 - the word users know from the command line
        into: str | None = None,
        progress: Progress = untold,
    ) -> ImportReport:
        """Takes in a file, gzipped or not, of another program or provider, or what `tailfold export` wrote; twice adds nothing.

        All of it is looked through before anything is stored. Of a folder each file below it is taken in or refused, and
        one that is refused does not stop the others. `format` is told by the file itself, or one of those that
        `tailfold import --format` takes. A conversation has the id that it had in an export of ours, else the name of the
        file, and behind it of the conversation where the file holds several; with `into`, which is for a file of one,
        that. `progress` hears what is done. The report says of each conversation what was added, what was there, and what
        has no place here.

        Raises `FileError` with the place and the way out for a file that can't be read, is of no such format, or holds what
        can't be stored, `ImportDiffers` where the conversation holds something else in its place, `ValueError` for a
        format that is none, and for `into` with a folder, `InvalidId`.
        """
        return await import_file(self, Path(path), format=format, into=into, progress=progress)

    async def select(self, conversation: str, message_id: str) -> None:
        """Makes the path through a committed message the active one, until a later turn is committed at one of its forks.

        Raises `UnknownMessage`.
        """
        await self._require_message(conversation, message_id)
        await self._note(conversation, ev.BranchSelected(message_id))

    async def annotate(self, conversation: str, message_id: str, patch: Mapping[str, Any]) -> None:
        """Merges `patch` into the metadata of a message, also while its run is open. Raises `UnknownMessage`."""
        await self._require_message(conversation, message_id, is_open_enough=True)
        await self._note(conversation, ev.MessageAnnotated(message_id, raw(dump(dict(patch)))))

    async def redact(
        self, conversation: str, message_id: str, blocks: Sequence[Block] = (), *, reason: str | None = None
    ) -> None:
        """Replaces the blocks of a message; its place stays, a retention policy of its blocks goes. Raises `UnknownMessage`.

        That is no `erase`: the log keeps what was said until it is compacted.
        """
        await self._require_message(conversation, message_id, is_open_enough=True)
        message = await self.tables.message(conversation, message_id)
        if message is not None and POLICY in message.metadata:
            await self.annotate(conversation, message_id, {POLICY: None})
        await self._note(conversation, ev.MessageRedacted(message_id, raw(encode(list(blocks)).decode()), reason))

    async def describe(
        self,
        conversation: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        labels: Sequence[str] | None = None,
        archived: bool | None = None,
    ) -> None:
        """Says what a list of conversations shows. `metadata` is merged, a None in it takes a field away.

        A conversation that is not known yet begins with this.
        """
        fields = {name: dump(value) for name, value in (metadata or {}).items()}
        if labels is not None:
            fields["labels"] = dump(list(labels))
        check_id("conversation id", conversation)
        if title is not None or fields:
            is_new = (await self.store.bounds(conversation)).head == 0
            body = ev.ConversationCreated if is_new else ev.ConversationUpdated
            await self._note(conversation, body(title, raw(join_fields(fields) if fields else None)))
        if archived is not None:
            await self._note(conversation, ev.ConversationArchived(archived))

    async def add_media(self, conversation: str, data: bytes, media_type: str) -> str:
        """Keeps the bytes of an image or a file, once per content; returns the id (SHA-256) that blocks name it by."""
        media_id = await put_media(self.tables, check_id("conversation id", conversation), data, media_type)
        await self._note(conversation, ev.MediaAdded(media_id, media_type, len(data)))
        return media_id

    async def media(self, media_id: str) -> Media:
        """What was added. Raises `UnknownMedia`, and `LedgerDamaged` for bytes that are not what was added."""
        return await get_media(self.tables, media_id)

    async def recover(self, conversation: str, run_id: str, action: Action, *, select: bool = False) -> RunInfo:
        """Ends an open run whose writer is lost, and fences that writer (laws 10 and 11).

        `commit` keeps everything it has, `fail` its finished messages, `cancel` nothing. On a run that has ended it
        changes nothing; the answer tells which end counts. With `select` its last message becomes the active leaf even
        where newer turns are there. Raises `UnknownRun`.
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
        left = [message.id for message, on_path in await self.tables.messages_of(conversation, run_id) if on_path]
        if select and left:
            await self.select(conversation, left[-1])
        return run

    async def cancel(self, conversation: str, run_id: str, *, by: str | None = None) -> None:
        """Asks the producer of a run to stop, in whatever process it is; see `Run.wait_for_cancel_request`.

        Too late is no error. Raises `UnknownRun`.
        """
        if run_id not in (await self._known(conversation)).state.open:
            if await self.tables.run(conversation, run_id) is None:
                raise UnknownRun(run_id)
            return
        await self._note(conversation, ev.RunCancelRequested(run_id, by))

    async def compact(self, conversation: str, *, replay_window: int = 0, dry_run: bool = False) -> Compaction:
        """Lets the log go as far as the ledger holds it, keeping open runs and the last `replay_window` events.

        The transcript stays as it is. With `dry_run` nothing is changed; the answer says what binds the floor.
        """
        state = (await self._known(conversation)).state
        pins = pins_of(
            (await self.store.bounds(conversation)).head,
            projected_seq=(await self.tables.position(conversation)).projected_seq,
            open_runs={run.run_id: run.seq for run in state.open.values()},
            replay_window=replay_window,
            holds=await held(self.tables, conversation),
        )
        if not dry_run:
            await self._mend_base(conversation, state)
        projectors = [open_runs, *self.projectors]
        return await compact(projectors, self.store, self.store.snapshots, conversation, pins=pins, dry_run=dry_run)

    async def project(self, projector: Projector[S], conversation: str) -> S:
        """The state of a projector after all events: its newest snapshot, and what came since.

        Compaction keeps snapshots of the projectors this ledger was opened with, so that what they know is not lost
        with the log. Raises `SnapshotUnreadable` for one that came too late: the beginning of the log is gone.
        """
        if (await self.store.bounds(check_id("conversation id", conversation))).head == 0:
            raise UnknownConversation(conversation)
        return (await load(projector, self.store, self.store.snapshots, conversation)).state

    def hold(self, conversation: str | None = None, *, through: int = 0) -> AbstractAsyncContextManager[str]:
        """While the block lasts, no compaction in any process goes beyond `through`, of one conversation or of all.

        The hold of a process that is killed ends a minute later. An `erase` is not held.
        """
        return hold(self.tables, conversation, through)

    async def erase(self, conversation: str) -> Erased:
        """Takes everything of a conversation away for good: log, snapshots, transcript, media. Id and counts stay.

        Its writers are fenced; a crash in the middle is finished by whoever opens the ledger next. On SQLite the bytes
        are gone from the file and its write-ahead log, unless the answer says why not. Backups keep what they have.
        """
        await self.catch_up_all()  # so that media is known that others speak of
        try:
            await self._known(conversation)
        except (LedgerBehind, LedgerDiverged, CorruptEvent):  # it goes anyway
            pass
        except UnknownConversation:
            if await self.tables.conversation(conversation) is None:
                raise
        bounds = await self.store.bounds(conversation)
        await begin_erasure(self.tables, conversation, bounds.head - bounds.origin)
        self._catch_up.forget(conversation)
        return await finish_erasure(self.store, self.tables, conversation)

    def reconcile(self, conversation: str | None = None, *, repair: bool = False) -> AsyncIterator[Finding]:
        """How ledger and log differ, of one conversation or all; with `repair` what can be mended is.

        See `ledger.upkeep.reconcile.reconcile`. Raises `UnknownConversation`.
        """
        return reconciliation.reconcile(self, conversation, repair=repair)

    def forget(self, conversation: str) -> None:
        """Drops what this process remembers of a conversation: a repair has moved it."""
        self._catch_up.forget(conversation)

    def follow(self, conversation: str, *, after: int = 0, incarnation: str | None = None) -> AsyncIterator[Event | Replay]:
        """The conversation's events after a position, each once, in order, and what comes; stop by leaving the loop.

        Where they can't be continued (below the floor, beyond the head, of another incarnation) a `Replay` comes first,
        and then what comes after it; also in the middle, if the floor overtakes a slow reader.
        """
        return follow_conversation(
            self.store, self.tables, self._catch_up, conversation, after=check_position("after", after), incarnation=incarnation
        )

    async def backup(self, target: str, *, log_target: str | None = None) -> int:
        """Copies log and ledger to the file `target` while they are in use; returns its size in bytes.

        Of a log that lies elsewhere the copy is `log_target`; nothing leaves the log meanwhile. The copies are whole or
        absent. Raises `StoreUnusable` for a target that exists or can't be written, `StoreFull`, `StoreBusy`.
        """
        return await back_up(self, target, log_target)

    async def statistics(self, *, exact: bool = False) -> StoreStatistics:
        """What the file holds; `exact` looks at every row. Raises `StoreUnusable` where there is no file of both."""
        return await store_statistics(file_of(self).database, exact=exact)

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

    async def _mend_base(self, conversation: str, state: State) -> None:
        """Where the log is truncated and its snapshots are lost, the ledger's own position is a base record."""
        try:
            await load(open_runs, self.store, self.store.snapshots, conversation)
        except SnapshotUnreadable:
            await keep(open_runs, self.store.snapshots, conversation, state, state.last_seq)

    async def _note(self, conversation: str, body: ev.Body) -> None:
        event = ev.to_event(body)
        validate([event])
        await self.store.append(conversation, [event])
        await self.catch_up(conversation)

    async def _require_message(self, conversation: str, message_id: str, *, is_open_enough: bool = False) -> None:
        state = (await self._known(conversation)).state
        if is_open_enough and any(run.find(message_id) for run in state.open.values()):
            return
        if await self.tables.message(conversation, message_id, on_path=not is_open_enough) is None:
            raise UnknownMessage(conversation, message_id)

    async def _end_run(self, run: Run) -> None:
        self._runs.discard(run)
        await self.catch_up(run.conversation)


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
