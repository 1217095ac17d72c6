"""How a run begins: behind which message, under which id, and only where no other run is under way."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from ledger.errors import LedgerDiverged, LedgerError, RunExists, RunLost, UnknownMessage
from ledger.kinds import check_conversation_id
from ledger.runs.outbox import Outbox
from ledger.runs.queue import Busy, Queue, check_wait, require_free_leaf
from ledger.runs.run import ENDS, OnError, Run
from ledger.tables import messages, runs
from ledger.turns import Turns
from projector import events as ev
from projector.formats import STREAMS
from projector.validation import validate
from stream import Producer, ProducerFenced, ProducerGap, SeqConflict, StreamError
from stream.checks import check_choice, check_name, shown
from stream.limits import MAX_RUN_ID_BYTES, check_id, check_position

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from ledger.catchup import Caught
    from ledger.engine import Engine
    from stream.database import Sql


class Parent(Enum):
    """What stands for a parent that is not named."""

    ACTIVE_LEAF = "the active leaf"


ACTIVE_LEAF: Final = Parent.ACTIVE_LEAF


class RunOptions(NamedTuple):
    """What `Ledger.begin_run` was asked for, in the order of its parameters."""

    run_id: str | None
    parent: str | Parent | None
    format: str | None
    trigger: str
    model: str | None
    provider: str | None
    flush_ms: int
    on_error: OnError = "failed"
    wait: bool | float = False


class Beginning:
    """A run that begins by `await`, or by `async with`, which also ends it."""

    def __init__(self, runs: Runs, conversation: str, options: RunOptions) -> None:
        self._runs = runs
        self._conversation = conversation
        self._options = options
        self._run: Run | None = None

    def __await__(self) -> Generator[None, None, Run]:
        return self._runs.begin(self._conversation, self._options).__await__()

    async def __aenter__(self) -> Run:
        self._run = await self
        return self._run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._run is not None
        await self._run.__aexit__(kind, error, trace)


class Runs:
    """Begins runs, and knows those that were begun here and have not ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: set[Run] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        self._turns = Turns()
        self._queue = Queue(engine)

    async def begin(self, conversation: str, options: RunOptions) -> Run:
        """See `Ledger.begin_run`."""
        check_conversation_id(conversation)
        _check_options(options)
        run_id = secrets.token_hex(8) if options.run_id is None else options.run_id
        attempt = _Attempt()
        beginning = asyncio.create_task(self._begin(conversation, run_id, options, attempt), name=f"tailfold begin of {run_id}")
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            attempt.is_called_off = True
            if not attempt.is_handed_over:
                beginning.cancel()
            self._abandoned.add(task := asyncio.create_task(_abandon(beginning)))
            task.add_done_callback(self._abandoned.discard)
            raise

    async def close(self) -> None:
        """Leaves the runs that have no end: they stay open, to be recovered."""
        if self._abandoned:
            await asyncio.wait(self._abandoned)
        for run in list(self._open):
            await run.close()

    async def _begin(self, conversation: str, run_id: str, options: RunOptions, attempt: _Attempt) -> Run:
        start = ev.RunStarted(run_id, None, options.trigger, run_id, options.model, options.provider or options.format)

        async def begin() -> int:
            # One by one: each begin stands on the head it saw, and all that try at once would make each other look again.
            async with self._turns.of(conversation):
                return await _append_start(self._engine.writing, conversation, start, options.parent, attempt)

        wait = options.wait if isinstance(options.parent, Parent) else False  # nobody bars another branch
        seq = await self._queue.begin(conversation, wait, begin)
        outbox = Outbox(self._engine.store, conversation, Producer(run_id, 0, 1), seq, flush_ms=options.flush_ms)
        run = Run(
            self._engine, conversation, run_id, outbox,
            provider_format=options.format, on_error=options.on_error, ended=self._end,
        )  # fmt: skip
        self._open.add(run)
        return run

    async def _end(self, run: Run) -> None:
        self._open.discard(run)
        caught = await self._engine.catch_up(run.conversation)
        if caught.bounds.origin >= run.begun_seq:
            raise RunLost(run.conversation, run.run_id, "erased with its conversation")


class _Attempt:
    """How far a begin has come: as long as its event is not with the log it can be called off, and leaves nothing."""

    is_handed_over = False
    is_called_off = False


def _check_options(options: RunOptions) -> None:
    if options.run_id is not None:
        check_id("run id", options.run_id, max_bytes=MAX_RUN_ID_BYTES)
    if options.parent is not None and not isinstance(options.parent, Parent):
        check_id("parent", options.parent)
    if options.format is not None and options.format not in tuple(STREAMS):
        raise ValueError(f"format {shown(options.format)} is no stream format: use one of {', '.join(STREAMS)}")
    check_name("trigger", options.trigger)
    for name, value in (("model", options.model), ("provider", options.provider)):
        if value is not None:
            check_name(name, value)
    check_position("flush_ms", options.flush_ms)
    check_choice("on_error", options.on_error, ENDS)
    check_wait("wait", options.wait)


async def _append_start(
    engine: Engine, conversation: str, start: ev.RunStarted, parent: str | Parent | None, attempt: _Attempt
) -> int:
    """Appends `run.started` behind its parent; returns its seq. Raises what `Ledger.begin_run` says."""
    first = Producer(start.run_id, 0, 0)
    while True:
        caught = await engine.catch_up(conversation)
        try:
            behind = await _find_parent(engine, conversation, start.run_id, parent, caught)
        except (Busy, UnknownMessage) as error:
            if await engine.store.producer(conversation, start.run_id):  # of a life that was erased: no waiting helps
                raise RunExists(conversation, start.run_id) from error
            raise
        started = ev.to_event(replace(start, parent_message_id=behind))
        validate([started])
        attempt.is_handed_over = True
        try:
            result = await engine.store.append(conversation, [started], expected_seq=caught.state.last_seq, producer=first)
        except SeqConflict as conflict:
            if conflict.head < conflict.expected:
                raise LedgerDiverged(conversation, conflict.expected, conflict.head) from conflict
            attempt.is_handed_over = False
            if attempt.is_called_off:
                raise asyncio.CancelledError from conflict
            continue  # somebody wrote meanwhile: look again
        except (ProducerFenced, ProducerGap) as error:
            raise RunExists(conversation, start.run_id) from error
        if result.duplicate:
            raise RunExists(conversation, start.run_id)
        return result.last_seq


async def _abandon(beginning: asyncio.Task[Run]) -> None:
    """Ends the run that may have begun and that nobody holds, or it would bar the conversation."""
    with suppress(StreamError, LedgerError, asyncio.CancelledError):  # what can't be ended stays open, to be recovered
        run = await beginning
        await run.finish("cancelled")


async def _find_parent(
    engine: Engine, conversation: str, run_id: str, parent: str | Parent | None, caught: Caught
) -> str | None:
    """The parent's id, for a run whose id nobody has used."""
    if run_id in caught.state.open:
        raise RunExists(conversation, run_id)

    async def job(sql: Sql) -> tuple[bool, bool]:
        is_used = await runs.run(sql, conversation, run_id) is not None
        is_there = not isinstance(parent, str) or await messages.message(sql, conversation, parent, on_path=True) is not None
        return is_used, is_there

    is_used, is_there = await engine.tables.look(job)
    if is_used:
        raise RunExists(conversation, run_id)
    if isinstance(parent, Parent):
        return require_free_leaf(caught)
    if not is_there:
        raise UnknownMessage(conversation, str(parent))
    return parent
