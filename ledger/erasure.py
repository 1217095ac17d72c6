"""Erase: log, snapshots, transcript and media of a conversation, so that nothing of it can be found again.

The intention is stored first, so a crash anywhere is finished by whoever comes next. Writers that are under way are
fenced behind a barrier: an event that is only taken where no run is open.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from msgspec.structs import replace

from ledger.tables import erasures
from ledger.tables.conversations import make_known
from projector import events as ev
from projector.folds import open_runs
from projector.state import State
from stream import CorruptEvent, Producer, ProducerFenced, ProducerGap, SeqConflict
from stream.clock import now_ms
from stream.sqlite import MEMORY, SqliteStore
from stream.sqlite.statistics import stream_statistics
from stream.sqlite.vacuum import clean_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.tables.tables import LedgerTables
    from stream import EventStore
    from stream.sqlite import Database, Sql

_LOG: Final = structlog.get_logger("tailfold.ledger")
_CLAIM_MS: Final = 5_000
_POLL_S: Final = 0.05


class Erased(msgspec.Struct, frozen=True):
    """How much there was. `is_proven` is false while another process holds old pages of a file, `why` says so."""

    conversation: str
    messages: int
    runs: int
    events: int
    is_proven: bool = True
    why: str | None = None


class Counts(msgspec.Struct, frozen=True):
    """What stays of a conversation that was erased; while it is done, who does it, and until when (ms) nobody else.

    `at` tells one erasure from another; once `is_wiped` only the bytes in the files are left to be cleaned.
    """

    messages: int
    runs: int
    events: int
    at: int
    is_wiped: bool = False
    is_done: bool = False
    claim: str = ""
    claimed_until: int = 0


def is_pending(erased: str | None) -> bool:
    """Whether an erasure was begun and not finished."""
    return erased is not None and not msgspec.json.decode(erased, type=Counts).is_done


async def begin_erasure(tables: LedgerTables, conversation: str, events: int) -> None:
    """Stores the intention; from here on it will happen. `events` is how many there are in this life of the stream."""

    async def job(sql: Sql) -> None:
        await make_known(sql, conversation)
        _, messages, runs, before = await erasures.look(sql, conversation)
        earlier = Counts(0, 0, 0, 0, is_done=True) if before is None else msgspec.json.decode(before, type=Counts)
        if earlier.is_done:
            counts = Counts(messages + earlier.messages, runs + earlier.runs, events + earlier.events, now_ms())
            await erasures.note(sql, conversation, _encode(counts))

    await tables.transact(job)


async def finish_erasure(store: EventStore, tables: LedgerTables, conversation: str) -> Erased:
    """Does what was intended, however far an earlier attempt has come; waits while another process does it."""
    claim = secrets.token_hex(8)
    while True:
        counts = await _claim(tables, conversation, claim)
        if counts.is_done:
            break
        if counts.claim == claim and (counts.is_wiped or await _take_away(store, tables, conversation, claim)):
            break
        await asyncio.sleep(_POLL_S)
    why = await _clean_files(store, tables, conversation)  # also where another has done it: its reason may be gone by now
    await _conclude(tables, conversation, counts)
    return Erased(conversation, counts.messages, counts.runs, counts.events, why is None, why)


async def _take_away(store: EventStore, tables: LedgerTables, conversation: str, claim: str) -> bool:
    """Everything but what is left in the bytes of files; False if it has to be tried again."""
    if not await _shut_out_writers(store, tables, conversation):
        return False
    counts = await _claim(tables, conversation, claim)  # ours still: nobody has finished it and begun anew
    if counts.claim != claim or counts.is_wiped or counts.is_done:
        return False
    await store.delete(conversation)
    origin = (await store.bounds(conversation)).origin
    tombstone = ev.ConversationErased(counts.messages, counts.runs, counts.events)
    await store.append(conversation, [ev.to_event(tombstone)])
    if not await _wipe(tables, conversation, claim, origin):
        return False
    _LOG.info("conversation.erased", conversation=conversation, messages=counts.messages, runs=counts.runs)
    return True


async def _claim(tables: LedgerTables, conversation: str, claim: str) -> Counts:
    """The intention as it is, with our claim on it unless another process holds one."""

    async def job(sql: Sql) -> Counts:
        counts = await _counts(sql, conversation)
        if not counts.is_done and (counts.claim == claim or counts.claimed_until < now_ms()):
            counts = replace(counts, claim=claim, claimed_until=now_ms() + _CLAIM_MS)
            await erasures.note(sql, conversation, _encode(counts))
        return counts

    return await tables.transact(job)


async def _shut_out_writers(store: EventStore, tables: LedgerTables, conversation: str) -> bool:
    """Ends every run that is open; True when no writer of this life of the stream is left.

    Whoever begins a run behind the barrier has seen the intention first, because it catches up under `expected_seq`.
    """
    barrier = ev.to_event(ev.ConversationErased(0, 0, 0))
    try:
        state = await _open_runs(store, conversation)
        await _fence(store, conversation, state.open)
        if state.open:
            state = await _open_runs(store, conversation)
        await store.append(conversation, [barrier], expected_seq=state.last_seq)
    except SeqConflict:
        return False
    except CorruptEvent:  # a damaged log goes, too; who writes to it is what the ledger knows
        await _fence(store, conversation, [run.run_id async for run in tables.runs(conversation, only_open=True)])
        await store.append(conversation, [barrier])
        return True
    return not state.open


async def _fence(store: EventStore, conversation: str, run_ids: Iterable[str]) -> None:
    for run_id in run_ids:
        watermark = await store.producer(conversation, run_id)
        epoch = 0 if watermark is None else watermark.epoch + 1
        cancel = ev.to_event(ev.RunRecovered(run_id, "cancel", 0))
        with suppress(ProducerFenced, ProducerGap):  # it ended meanwhile, or somebody recovers it, too
            await store.append(conversation, [cancel], producer=Producer(run_id, epoch, 0))


async def _open_runs(store: EventStore, conversation: str) -> State:
    """The runs that are open, as far as the log still tells; a run whose beginning is gone has no writer's events to keep."""
    bounds = await store.bounds(conversation)
    snapshot = await store.snapshots.load(conversation, open_runs.name)
    state = State(last_seq=bounds.floor)
    if snapshot is not None and snapshot.last_seq >= bounds.floor and snapshot.last_seq > bounds.origin:
        with suppress(ValueError):
            state = open_runs.decode(snapshot.state)
    while events := await store.read(conversation, after=state.last_seq):
        for event in events:
            state = open_runs.fold(state, event)
    return state


async def _wipe(tables: LedgerTables, conversation: str, claim: str, origin: int) -> bool:
    """Empties the ledger's rows, and puts it to where the new life begins: what came since is not passed over.

    False if another process has taken over.
    """

    async def job(sql: Sql) -> bool:
        counts = await _counts(sql, conversation)
        if counts.claim != claim:
            return False
        key = (await erasures.look(sql, conversation)).key
        await erasures.wipe(sql, key, origin, _encode(replace(counts, is_wiped=True)))
        return True

    return await tables.transact(job)


async def _conclude(tables: LedgerTables, conversation: str, done: Counts) -> None:
    """Comes last, so that after a crash before the bytes are gone somebody cleans the files."""

    async def job(sql: Sql) -> None:
        counts = await _counts(sql, conversation)
        if counts.is_wiped and not counts.is_done and counts.at == done.at:
            await erasures.note(sql, conversation, _encode(replace(counts, is_done=True, claim="", claimed_until=0)))

    await tables.transact(job)


async def _clean_files(store: EventStore, tables: LedgerTables, conversation: str) -> str | None:
    """Sweeps, writes the files anew and empties their write-ahead logs; why not, if something is in the way.

    SQLite overwrites what is deleted, but not the copies that it left in the free room of pages whenever it moved
    rows between them: only a file that is written anew has none.
    """
    databases: list[Database] = [tables.database]
    if isinstance(store, SqliteStore):
        await store.truncate(conversation, through=(await store.bounds(conversation)).floor)  # sweeps what others have left
        await store.settle()
        left = await stream_statistics(store.database, conversation)
        if left is not None and left.unswept_rows:
            return f"{left.unswept_rows} rows of its log could not be swept: run `tailfold vacuum` later"
        if store.database is not tables.database:
            databases.append(store.database)
    reasons = [await clean_file(database) for database in databases if database.path != MEMORY]
    return next((why for why in reasons if why is not None), None)


async def _counts(sql: Sql, conversation: str) -> Counts:
    standing = await erasures.look(sql, conversation)
    assert standing.erased is not None
    return msgspec.json.decode(standing.erased, type=Counts)


def _encode(counts: Counts) -> str:
    return msgspec.json.encode(counts).decode()
