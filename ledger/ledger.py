"""The facade: conversations that are never lost, over a log and its durable transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from ledger import operations as do
from ledger.checks import check_ids
from ledger.engine import Engine
from ledger.following import OpenRun, Replay, follow_conversation
from ledger.listings import find_run, list_anomalies, list_conversations, list_open_runs, list_runs, place_of
from ledger.runs.start import ACTIVE_LEAF, Beginning, Parent, RunOptions, Runs
from ledger.tables.conversations import Page
from ledger.tables.holds import hold
from ledger.tables.media import Media, get_media
from ledger.transcript import Tree, read_transcript, read_tree
from ledger.transfer.formats import AUTO
from ledger.transfer.progress import untold
from projector.context.delta import ProviderCapabilities
from projector.context.tokens import Tokenizer, estimate
from projector.formats.shared.history import History
from stream.checks import check_flag, check_kind
from stream.limits import check_id, check_position
from stream.tasks import finish_anyway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from os import PathLike

    from ledger.catchup import Caught
    from ledger.context.context import Context
    from ledger.erasure import Erased
    from ledger.records import ConversationInfo, RunInfo
    from ledger.runs.run import OnError, Run
    from ledger.tables.tables import LedgerTables
    from ledger.transfer.copies import Copied
    from ledger.transfer.file_import import ImportReport
    from ledger.transfer.importing import ImportResult
    from ledger.transfer.progress import Progress
    from ledger.upkeep.verify import Finding
    from projector import Block, Compaction, Message, Projector
    from projector.context import Pipeline, ProviderSession, Refusal, Request, Used
    from projector.context.overflow import Recovery
    from projector.events import Action, ContextExpanded
    from projector.formats import Export
    from projector.run_draft import Anomaly
    from stream import AppendResult, Event, EventStore, NewEvent
    from stream.postgres.statistics import ServerStatistics
    from stream.sqlite.statistics import StoreStatistics

S = TypeVar("S")
_STATELESS: Final = ProviderCapabilities()


class Ledger:
    """Begins runs, keeps their transcripts, and mends what a crash left. Made by `open_ledger`.

    Every method raises the errors of the log (`StreamError`) as they are. A conversation is known from its first
    event on; asking for one that is not raises `UnknownConversation`. `store` is the log, `tables` the transcript, and
    `engine` what the functions work on that do it all.
    """

    def __init__(self, store: EventStore, tables: LedgerTables, projectors: Sequence[Projector[Any]] = ()) -> None:
        self._engine = engine = Engine(store, tables, projectors)
        self.store, self.tables, self.projectors = engine.shown_store, engine.tables, engine.projectors
        self._runs = Runs(engine)

    @property
    def engine(self) -> Engine:
        """What the functions work on that do it all. Raises `StoreElsewhere` in another event loop, or behind a fork."""
        self._engine.home.check()
        return self._engine

    async def begin_run(
        self, conversation: str, *, run_id: str | None = None, parent: str | Parent | None = ACTIVE_LEAF,
        format: str | None = None, trigger: str = "submit", model: str | None = None, provider: str | None = None,  # noqa: A002
        flush_ms: int = 100, on_error: OnError = "failed", wait: bool | float = False,
    ) -> Run:  # fmt: skip
        """Begins a run behind the active leaf, or behind `parent` (None: as a new root); returns when that is durable.

        `format` names what `Run.feed` takes. A delta waits for at most `flush_ms` to be joined with others; 0 keeps each.
        If the block raises, what was finished stays on the path, with `on_error="incomplete"` all that had streamed. While a
        run on the active leaf has no end and no parent is named this raises `RunOpen`; with `wait` it begins behind that run,
        in the order of the calls of this process, or raises `RunOpen` after so many seconds. If it is cancelled, the run ends
        as `cancelled` or never began. Raises `UnknownMessage` for a parent that is not committed, `RunExists` for a used id.
        """
        options = RunOptions(run_id, parent, format, trigger, model, provider, flush_ms, on_error, wait)
        return await self._runs.begin(conversation, options)

    def run(
        self, conversation: str, *, run_id: str | None = None, parent: str | Parent | None = ACTIVE_LEAF,
        format: str | None = None, trigger: str = "submit", model: str | None = None, provider: str | None = None,  # noqa: A002
        flush_ms: int = 100, on_error: OnError = "failed", wait: bool | float = False,
    ) -> Beginning:  # fmt: skip
        """`async with ledger.run("chat") as run`: begins as `begin_run`, and ends it; `await` of it leaves the end to you."""
        options = RunOptions(run_id, parent, format, trigger, model, provider, flush_ms, on_error, wait)
        return Beginning(self._runs, conversation, options)

    def fork(
        self, conversation: str, message_id: str, *, run_id: str | None = None,
        format: str | None = None, trigger: str = "submit", model: str | None = None, provider: str | None = None,  # noqa: A002
        flush_ms: int = 100, on_error: OnError = "failed",
    ) -> Beginning:  # fmt: skip
        """A run behind an earlier message; what it supersedes stays readable. Otherwise as `run`."""
        check_id("message_id", message_id)
        options = RunOptions(run_id, message_id, format, trigger, model, provider, flush_ms, on_error)
        return Beginning(self._runs, conversation, options)

    async def record(
        self, conversation: str, events: Sequence[NewEvent], *, expected_seq: int | None = None, append_id: str | None = None
    ) -> AppendResult:
        """Appends events that a caller made itself, after checking each body. Raises `InvalidEvent`; the rest as `append`."""
        return await do.record(self.engine.writing, conversation, events, expected_seq=expected_seq, append_id=append_id)

    async def take_in(self, conversation: str, history: History) -> ImportResult:
        """Records a history that another program has kept, as `projector.formats.READERS` read it; twice adds nothing.

        Its media go to the store. Raises `ImportDiffers` where the conversation holds something else in its place.
        """
        recorded = do.Recorded(check_kind("history", history, History, "a History"))
        return await do.import_history(self.engine.writing, conversation, recorded)

    async def import_file(
        self, path: str | PathLike[str], *, format: str = AUTO, into: str | None = None,  # noqa: A002
        skip_broken: bool = False, progress: Progress = untold,
    ) -> ImportReport:  # fmt: skip
        """Takes in a file, gzipped or not, of another program or provider, or what `tailfold export` wrote; twice adds nothing.

        All of it is looked through before anything is stored; of a folder each file is taken in or refused. `format` is
        told by the file itself, or one of `tailfold import --format`. A conversation has the id of an export of ours, else
        the name of the file, with its own behind it where a file holds several; `into`, for a file of one, is its id. With
        `skip_broken` the rest is taken in where a line, a message, a conversation or an exchange can't be read. `progress`
        hears what is done. The report says what was added, was there, has no place here, or was passed over.

        Raises `FileError` with the place and the way out for a file that can't be read, is of no such format, or holds what
        can't be stored, `ImportDiffers` where the conversation holds something else in its place, `ValueError` for a
        format that is none, an empty path, and for `into` with a folder, `InvalidId`.
        """
        return await do.import_file(self.engine, path, format=format, into=into, skip_broken=skip_broken, progress=progress)

    async def select(self, conversation: str, message_id: str) -> None:
        """Makes the path through a committed message active, until a later turn at a fork of it. Raises `UnknownMessage`."""
        await do.select(self.engine.writing, conversation, message_id)

    async def annotate(self, conversation: str, message_id: str, patch: Mapping[str, Any]) -> None:
        """Merges `patch` into the metadata of a message, also while its run is open. Raises `UnknownMessage`."""
        await do.annotate(self.engine.writing, conversation, message_id, patch)

    async def redact(
        self, conversation: str, message_id: str, blocks: Sequence[Block] = (), *, reason: str | None = None
    ) -> None:
        """Replaces the blocks of a message; its place stays, a retention policy of its blocks goes. Raises `UnknownMessage`.

        That is no `erase`: the log keeps what was said until it is compacted.
        """
        await do.redact(self.engine.writing, conversation, message_id, blocks, reason=reason)

    async def describe(
        self, conversation: str, *, title: str | None = None, metadata: Mapping[str, Any] | None = None,
        labels: Sequence[str] | None = None, archived: bool | None = None,
    ) -> None:  # fmt: skip
        """Says what a list shows of a conversation, also of a new one. `metadata` is merged, a None takes a field away."""
        await do.describe(self.engine.writing, conversation, title=title, metadata=metadata, labels=labels, archived=archived)

    async def add_media(self, conversation: str, data: bytes, media_type: str) -> str:
        """Keeps the bytes of an image or a file, once per content; returns the id (SHA-256) that blocks name it by."""
        return await do.add_media(self.engine.writing, conversation, data, media_type)

    async def media(self, media_id: str) -> Media:
        """What was added. Raises `UnknownMedia`, and `LedgerDamaged` for bytes that are not what was added."""
        return await get_media(self.tables, media_id)

    async def transcript(
        self, conversation: str, *, branch: Literal["active", "all"] | Mapping[str, str] = "active",
        selections: Mapping[str, str] | None = None, before: str | None = None, limit: int | None = None,
    ) -> list[Message]:  # fmt: skip
        """The committed messages of the active path in order; with `limit` the last ones, with `before` those ahead of it.

        `selections`, or a `branch` that is one, are other turns at forks, `{parent: child}` with '' for the root; one that
        names nothing is passed over. `branch="all"` gives every message in the order of the log, also what is left of
        failed runs. Where events are gone that the ledger has not taken in, it gives what there is (`reconcile` tells).
        Raises `UnknownMessage` for a `before` that the conversation does not have, `ValueError` for a branch that is none.
        """
        return await read_transcript(
            self.engine, conversation, branch=branch, selections=selections, before=before, limit=limit
        )

    async def tree(self, conversation: str) -> Tree:
        """All messages as a tree, and where it forks."""
        return await read_tree(self.engine, conversation)

    async def export(
        self, conversation: str, format: str, *,  # noqa: A002 - the word users know from the command line
        selections: Mapping[str, str] | None = None, messages: Sequence[Message] | None = None,
    ) -> Export:  # fmt: skip
        """The active path as a provider or program takes it, with what was lost or mended on the way.

        `format` is one of `projector.formats.WRITERS`, or of `STREAM_WRITERS` for what would have been streamed. With
        `messages` it is those of a view that are written (`Ledger.context`). Bytes of media are put in from the store.
        Log and ledger stay as they are. Raises `ValueError` for a format that is none.
        """
        return await do.export(self.engine, conversation, format, selections=selections, messages=messages)

    async def context(
        self, conversation: str, *, provider: str = "", pipeline: Pipeline | None = None, turn: int | None = None,
        run: Run | str | None = None, selections: Mapping[str, str] | None = None,
        capabilities: ProviderCapabilities = _STATELESS, system_prompt: str = "", working_directory: str | None = None,
        mode: Literal["full", "delta"] | None = None, now: int | None = None, used: Used | None = None,
        display: Mapping[str, Sequence[Block]] | None = None,
    ) -> Context:  # fmt: skip
        """What to send of the active path, or with `run` of the path of an open run with all that it has said so far.

        `turn` is how many prompts went out before; the steps of the runs on the path, if it is not given. Of a provider
        that keeps the session (`capabilities`) only what it lacks is sent, as far as that is certain; `mode` overrides
        that. `display` are blocks that stand for a message that is being sent right now, by its id. `now` (else it
        is read) and times in ms. What it decides is recorded before this returns. Raises `UnknownRun`, `UnknownConversation`
        after an erase, `NothingFits` where no message would be left, `ValueError` for what is no turn, time, mode or display.
        """
        return await do.make_context(
            self.engine, conversation, provider=provider, pipeline=pipeline, turn=turn, run=run, selections=selections,
            capabilities=capabilities, system_prompt=system_prompt, working_directory=working_directory, mode=mode, now=now,
            used=used, display=display,
        )  # fmt: skip

    async def expand(
        self, context: Context, request: Request | str, *, format: str | None = None,  # noqa: A002
        item_range: tuple[int, int] | None = None, reason: str = "",
    ) -> ContextExpanded | Refusal:  # fmt: skip
        """Shows a shortened or left out message in full again, from the next context on, or says why not (`notice`).

        `request` is an id, or what `read_request` found: an index counts what was written in `format`, without it
        `View.messages`. Where several results stand, all are shown. Raises `ValueError` for a range or format that is none.
        """
        return await do.expand(self.engine.writing, context, request, item_range=item_range, reason=reason, format=format)

    async def recover_overflow(self, context: Context, limit_tokens: int, *, tokenizer: Tokenizer = estimate) -> Recovery:
        """Shortens a context that was refused as too long until it fits: `messages` are sent instead, later ones stay so."""
        return await do.recover_overflow(self.engine, context, limit_tokens, tokenizer=tokenizer)

    async def begin_send(
        self, context: Context, *, session_id: str | None = None, expires_at: int | None = None
    ) -> ProviderSession:
        """Says that this context goes out now, so that a crash before `acknowledge` is noticed; returns the session.

        A full one begins a new session, whose id is `session_id`, or made up. Call it before anything is sent. Raises
        `SendOvertaken` for a delta where another send has begun or arrived since the context was made.
        """
        return await do.begin_send(self.engine.writing, context, session_id=session_id, expires_at=expires_at)

    async def acknowledge(
        self, context: Context, reply_ids: Collection[str] = (), *, run: Run | str | None = None, session_id: str | None = None,
    ) -> ProviderSession:  # fmt: skip
        """Says that what was sent has arrived and was answered with these messages; `session_id` as the provider named it.

        The answer is looked for on the path that the context is of, or with `run` on that of another open run. Raises
        `NoSend` where this send is not under way: it was acknowledged before, or another one was begun instead.
        """
        return await do.arrive(self.engine.writing, context, None, reply_ids, run=run, session_id=session_id)

    async def received(self, context: Context, ids: Collection[str], *, run: Run | str | None = None) -> ProviderSession:
        """Says after a crash what of a send has arrived, where a program can prove it; that may be nothing."""
        return await do.arrive(self.engine.writing, context, check_ids("ids", ids), (), run=run, session_id=None)

    async def open_runs(self, conversation: str) -> list[OpenRun]:
        """The runs that have no end, with what they have said so far; nothing of it is committed."""
        return await list_open_runs(self.engine, conversation)

    async def anomalies(self, conversation: str) -> list[Anomaly]:
        """The events that could not be applied, as far as the log or a snapshot of it still tells."""
        return await list_anomalies(self.engine, conversation)

    def runs(
        self, conversation: str | None = None, *, status: str | None = None,
        after: RunInfo | None = None, limit: int | None = None,
    ) -> AsyncIterator[RunInfo]:  # fmt: skip
        """Runs by conversation and start, behind `after`, a run of there; `status` as in `RunInfo`, or `open`. `ValueError`."""
        return list_runs(self.engine, conversation, status=status, after=place_of(after), limit=limit)

    async def find_run(self, run_id: str) -> str:
        """The conversation of a run. Raises `UnknownRun`, also where several have one of that id."""
        return await find_run(self.engine, run_id)

    def conversations(
        self, *, after: ConversationInfo | None = None, limit: int | None = None, prefix: str = "",
        label: str | None = None, title: str | None = None, archived: bool = False,
    ) -> AsyncIterator[ConversationInfo]:  # fmt: skip
        """Conversations, newest activity first; the next page is the one `after` the last of this one.

        `prefix` is of the id, `title` a part of the title, `label` one of its labels; with `archived` those, too.
        """
        return list_conversations(self.engine, Page(after, limit, archived, prefix, label, title))

    async def recover(self, conversation: str, run_id: str, action: Action, *, select: bool = False) -> RunInfo:
        """Ends an open run whose writer is lost, and fences that writer.

        `commit` keeps everything it has, `fail` its finished messages, `cancel` nothing, not the user's either. With `select`
        its last message becomes the active leaf even where newer turns are there. On a run that has ended it changes nothing:
        the answer tells which end counts (`RunInfo.outcome`, `recovered`). Raises `UnknownRun`.
        """
        return await do.recover(self.engine.writing, conversation, run_id, action, select=select)

    async def cancel(self, conversation: str, run_id: str, *, by: str | None = None) -> bool:
        """Asks a run's producer to stop (`Run.wait_for_cancel_request`); False if it had ended. Raises `UnknownRun`."""
        return await do.cancel(self.engine.writing, conversation, run_id, by=by)

    def follow(self, conversation: str, *, after: int = 0, incarnation: str | None = None) -> AsyncIterator[Event | Replay]:
        """The conversation's events after a position, each once, in order, and what comes; stop by leaving the loop.

        Where they can't be continued (below the floor, beyond the head, of another incarnation), and where the floor overtakes
        a slow reader, a `Replay` comes, and then what comes after it.
        """
        return follow_conversation(self.engine, conversation, after=check_position("after", after), incarnation=incarnation)

    async def project(self, projector: Projector[S], conversation: str) -> S:
        """The state of a projector after all events: its newest snapshot, and what came since.

        Compaction keeps snapshots of those this ledger was opened with, so that what they know is not lost with the log.
        Raises `SnapshotUnreadable` for one that came too late: the beginning of the log is gone.
        """
        return await do.project(self.engine, projector, conversation)

    async def compact(
        self, conversation: str, *, replay_window: int = 0, drop_unkept: bool = False, dry_run: bool = False
    ) -> Compaction:
        """Lets the log go as far as the ledger holds it, keeping open runs and the last `replay_window` events.

        The transcript stays, and moves into compressed pages. What only the log keeps stays in it: events of unknown types,
        unless a projector of the ledger `keeps` them; with `drop_unkept` they go, and are counted. A `dry_run` changes nothing;
        the answer says what binds the floor. Raises `NoConversation` for a stream that is none.
        """
        return await do.compact(
            self.engine, conversation, replay_window=replay_window, drop_unkept=drop_unkept, dry_run=dry_run
        )

    def hold(self, conversation: str | None = None, *, through: int = 0) -> AbstractAsyncContextManager[str]:
        """While the block lasts, no compaction in any process goes beyond `through`, of one conversation or of all.

        The hold of a killed process ends a minute later. An `erase` is not held. A process that sleeps for longer has lost
        its hold: the block is cancelled, or at its end raises `HoldLost`.
        """
        return hold(self.engine.writing.tables, conversation, through)

    @overload
    async def erase(self, conversation: str) -> Erased: ...
    @overload
    async def erase(self, conversation: str, second: str, /, *more: str) -> list[Erased]: ...
    async def erase(self, conversation: str, *more: str) -> list[Erased] | Erased:
        """Takes everything of a conversation away for good: log, snapshots, transcript, media. Id and counts stay.

        Its writers are fenced; a crash in the middle is finished by whoever opens the ledger next. The bytes are gone from a
        file and its write-ahead log, unless the answer says why not; backups, and servers, keep what they have. With `more`
        the answer is a list, the file is written anew once, and none goes if one of them is unknown.
        """
        erased = await do.erase(self.engine.writing, (conversation, *more))
        return erased if more else erased[0]

    def reconcile(self, conversation: str | None = None, *, repair: bool = False) -> AsyncIterator[Finding]:
        """How ledger and log differ, of one conversation or all; `repair` mends. See `ledger.upkeep.reconcile.reconcile`."""
        return do.reconcile(self.engine.writing if repair else self.engine, conversation, repair=repair)

    def copy_to(self, target: Ledger) -> AsyncIterator[Copied]:
        """Copies all of log and ledger to another one, stream by stream. See `ledger.transfer.copies.copy_ledger`."""
        return do.copy_ledger(self.engine, check_kind("target", target, Ledger, "a Ledger").engine.writing)

    async def backup(self, target: str, *, log_target: str | None = None) -> int:
        """Copies log and ledger to the file `target` while they are in use; returns its size in bytes.

        Of a log that lies elsewhere the copy is `log_target`; nothing leaves the log meanwhile. The copies are whole or
        absent. Raises `StoreUnusable` for a target that exists or can't be written, `StoreFull`, `StoreBusy`.
        """
        return await do.back_up(self.engine, target, log_target)

    async def statistics(self, *, exact: bool = False) -> StoreStatistics | ServerStatistics:
        """What file or schema holds; `exact` looks at every row. Raises `StoreUnusable` where log and ledger lie apart."""
        check_flag("exact", exact)
        return await do.store_statistics(self.engine, exact=exact)

    async def catch_up(self, conversation: str) -> Caught:
        """Takes in what is new in the log of a conversation."""
        return await self.engine.catch_up(conversation)

    async def catch_up_all(self) -> None:
        """Takes in what is new in every log."""
        await self.engine.catch_up_all()

    def forget(self, conversation: str) -> None:
        """Drops what this process remembers of a conversation: a repair has moved it."""
        self.engine.forget(check_id("conversation id", conversation))

    async def close(self) -> None:
        """Closes what it opened. Runs that were not ended stay open, to be recovered."""
        self._engine.home.check_closer()
        await finish_anyway(self._close())

    async def _close(self) -> None:
        if not self._engine.home.has_ended():
            await self._runs.close()
        await self._engine.store.close()
        await self.tables.database.close()
