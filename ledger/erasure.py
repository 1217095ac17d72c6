"""Erase: log, snapshots, transcript and media of a conversation, so that nothing of it can be found again.

The intention is stored first, so a crash anywhere is finished by whoever comes next. Writers that are under way are
fenced behind a barrier: an event that is only taken where no run is open.

Whoever works at it has a claim. A process may be stopped between any two steps, and go on when another one has done it
and the conversation has begun a new life: so each step looks at the log first, then at its claim, and then does what is
only taken where the log is as it was. While the claim is ours nothing begins; once it is not, the log has moved on.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ledger.tables import erasures
from ledger.tables.conversations import make_known
from projector import events as ev
from projector.folds import open_runs
from projector.state import State
from stream import CorruptEvent, Producer, ProducerFenced, ProducerGap, SeqConflict, Truncated
from stream.limits import MAX_INTEGER
from stream.logger import Logger
from stream.sqlite import MEMORY, Database
from stream.sqlite.vacuum import clean_file
from stream.tables.store import TableStore
from stream.urls import is_nats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.tables.tables import LedgerTables
    from stream import Bounds, EventStore
    from stream.database import Database as SomeDatabase
    from stream.database import Sql

_LOG: Final = Logger("tailfold.ledger")
_CLAIM_MS: Final = 5_000
_POLL_S: Final = 0.05
_KEPT_ON_SERVERS: Final = (
    "no statement finds any of it; dead rows lie on the server's disk until vacuumed, "
    "its write-ahead log, replicas and backups hold it for as long as they are kept"
)
_KEPT_BY_NATS: Final = (
    "no message holds any of it; what was purged lies in the files of the NATS servers until they write them anew"
)


class Erased(msgspec.Struct, frozen=True):
    """How much there was. `is_proven` is false while another process holds old pages of a file, `why` says so.

    On a server it says that no statement finds any of it; `why` then says what a server keeps for those who can read its disk.
    """

    conversation: str
    messages: int
    runs: int
    events: int
    is_proven: bool = True
    why: str | None = None


class Counts(msgspec.Struct, frozen=True):
    """What stays of a conversation that was erased; while it is done, who does it, and until when (ms) nobody else.

    `at` tells one erasure from another; `through` is the head of the log when it was asked for. Once `is_wiped` only the
    bytes in the files are left to be cleaned.
    """

    messages: int
    runs: int
    events: int
    at: int
    is_wiped: bool = False
    is_done: bool = False
    claim: str = ""
    claimed_until: int = 0
    through: int = MAX_INTEGER


_COUNTS: Final = msgspec.json.Decoder(Counts)  # made here: threads must not learn a struct at the same time


def is_pending(erased: str | None) -> bool:
    """Whether an erasure was begun and not finished."""
    return erased is not None and not _COUNTS.decode(erased).is_done


def is_under_way(erased: str | None, now: int) -> bool:
    """Whether somebody is at it: it is claimed, or was begun a moment ago. An end farther away than a claim lasts is none."""
    counts = _decode(erased)
    ends = (counts.claimed_until, counts.at + _CLAIM_MS)
    return not counts.is_done and any(now <= end <= now + _CLAIM_MS for end in ends)


async def begin_erasure(tables: LedgerTables, conversation: str, bounds: Bounds, seen: str | None) -> None:
    """Stores the intention; from here on it will happen. `bounds` are those of its log.

    `seen` is what the ledger said of earlier erasures when this one was asked for: where one was under way, or has begun
    since, that one takes all that there was then, and none is begun.
    """

    async def job(sql: Sql) -> None:
        await make_known(sql, conversation)
        _, messages, runs, before = await erasures.look(sql, conversation)
        earlier, known = _decode(before), _decode(seen)
        if known.is_done and earlier.at == known.at:
            at = max(await tables.now(sql), earlier.at + 1)  # another one than the earlier, whatever the clock says
            events = earlier.events + bounds.head - bounds.origin
            counts = Counts(messages + earlier.messages, runs + earlier.runs, events, at, through=bounds.head)
            await erasures.note(sql, conversation, _encode(counts))

    await tables.transact(job)


async def finish_erasure(store: EventStore, tables: LedgerTables, conversation: str) -> Erased:
    """Does what was intended, however far an earlier attempt has come; waits while another process does it."""
    [erased] = await finish_erasures(store, tables, [conversation])
    return erased


async def finish_erasures(store: EventStore, tables: LedgerTables, conversations: Sequence[str]) -> list[Erased]:
    """The same of each: one after the other is taken away, then all their files are cleaned at once."""
    done = {conversation: await _take_all_away(store, tables, conversation) for conversation in conversations}
    why = await _clean_files(store, tables, conversations)  # also where another has done it: its reason may be gone by now
    kept = _kept_by_servers(store, tables)
    for conversation, first in done.items():
        await _conclude(tables, conversation, first)
    return [Erased(name, first.messages, first.runs, first.events, why is None, why or kept) for name, first in done.items()]


async def _take_all_away(store: EventStore, tables: LedgerTables, conversation: str) -> Counts:
    """What there was; on return it is left in the bytes of files only, or somebody else has done all of it."""
    claim = secrets.token_hex(8)
    first: Counts | None = None
    while True:
        counts = await _claim(tables, conversation, claim)
        first = first or counts
        if counts.is_done or counts.at != first.at:  # done, and another one is under way: not asked for here
            break
        if counts.claim == claim and (counts.is_wiped or await _take_away(store, tables, conversation, claim)):
            break
        await asyncio.sleep(_POLL_S)
    return first


async def _take_away(store: EventStore, tables: LedgerTables, conversation: str, claim: str) -> bool:
    """Everything but what is left in the bytes of files; False if it has to be tried again."""
    origin = (await store.bounds(conversation)).origin
    counts = await _is_ours(tables, conversation, claim)
    if counts is None:
        return False
    if origin <= counts.through:  # or somebody has deleted it already, and went no further
        try:
            head = await _shut_out_writers(store, tables, conversation, claim)
            if head is None:
                return False
            await store.delete(conversation, expected_head=head)
        except (SeqConflict, Truncated):  # somebody wrote meanwhile, or has deleted it
            return False
        origin = head
    if not await _set_tombstone(store, tables, conversation, claim) or not await _wipe(tables, conversation, claim, origin):
        return False
    _LOG.info("conversation.erased", conversation=conversation, messages=counts.messages, runs=counts.runs)
    return True


async def _shut_out_writers(store: EventStore, tables: LedgerTables, conversation: str, claim: str) -> int | None:
    """Ends every run that is open; the seq of the barrier, behind which no writer of this life of the stream is left.

    Whoever begins a run behind the barrier has seen the intention: what he has read of the log reaches to it, and taking
    that in he looks. None if it has to be tried again, raises `SeqConflict` and `Truncated` where the log has moved on.
    """
    writers = await _look_at_writers(store, tables, conversation)
    if writers.epochs and await _is_ours(tables, conversation, claim):
        await _fence(store, conversation, writers.epochs)
        writers = await _look_at_writers(store, tables, conversation)
    if await _is_ours(tables, conversation, claim) is None or (writers.epochs and not writers.is_damaged):
        return None
    barrier = ev.to_event(ev.ConversationErased(0, 0, 0))
    return (await store.append(conversation, [barrier], expected_seq=writers.head)).last_seq


async def _set_tombstone(store: EventStore, tables: LedgerTables, conversation: str, claim: str) -> bool:
    """Behind what was recorded since the deletion, which belongs to the new life. False if it is not ours to set."""
    while True:
        head = (await store.bounds(conversation)).head
        counts = await _is_ours(tables, conversation, claim)
        if counts is None:
            return False
        tombstone = ev.to_event(ev.ConversationErased(counts.messages, counts.runs, counts.events))
        with suppress(SeqConflict):
            await store.append(conversation, [tombstone], expected_seq=head)
            return True


async def _claim(tables: LedgerTables, conversation: str, claim: str) -> Counts:
    """The intention as it is, with our claim on it unless another process holds one."""

    async def job(sql: Sql) -> Counts:
        counts, now = await _counts(sql, conversation), await tables.now(sql)
        is_free = not now <= counts.claimed_until <= now + _CLAIM_MS  # farther away: by a clock that was wrong
        if not counts.is_done and (counts.claim == claim or is_free):
            counts = replace(counts, claim=claim, claimed_until=now + _CLAIM_MS)
            await erasures.note(sql, conversation, _encode(counts))
        return counts

    return await tables.transact(job)


async def _is_ours(tables: LedgerTables, conversation: str, claim: str) -> Counts | None:
    """The intention, where nobody has taken it over since we looked at the log."""
    counts = await _claim(tables, conversation, claim)
    return None if counts.claim != claim or counts.is_wiped or counts.is_done else counts


class _Writers(NamedTuple):
    """The runs that have no end, by id, with the epoch that fences each; `head` is how far was looked.

    Of a log that is damaged they are those that the ledger knew, whether they have ended since or not.
    """

    epochs: dict[str, int]
    head: int
    is_damaged: bool


async def _look_at_writers(store: EventStore, tables: LedgerTables, conversation: str) -> _Writers:
    head, is_damaged = (await store.bounds(conversation)).head, False
    try:
        state = await _open_runs(store, conversation)
        run_ids, head = list(state.open), state.last_seq
    except CorruptEvent:  # it goes, too
        run_ids, is_damaged = [run.run_id async for run in tables.runs(conversation, only_open=True)], True
    epochs = {}
    for run_id in run_ids:
        watermark = await store.producer(conversation, run_id)
        epochs[run_id] = 0 if watermark is None else watermark.epoch + 1
    return _Writers(epochs, head, is_damaged)


async def _fence(store: EventStore, conversation: str, epochs: Mapping[str, int]) -> None:
    """Ends runs. Of one that somebody has ended since, it ends nothing: the epoch is taken."""
    for run_id, epoch in epochs.items():
        cancel = ev.to_event(ev.RunRecovered(run_id, "cancel", 0))
        with suppress(ProducerFenced, ProducerGap):
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


async def _clean_files(store: EventStore, tables: LedgerTables, conversations: Sequence[str]) -> str | None:
    """Sweeps, writes the files anew and empties their write-ahead logs; why not, if something is in the way.

    SQLite overwrites what is deleted, but not the copies that it left in the free room of pages whenever it moved
    rows between them: only a file that is written anew has none.
    """
    settle = getattr(store, "settle", None)
    if settle is not None:
        for conversation in conversations:  # sweeps what others have left
            await store.truncate(conversation, through=(await store.bounds(conversation)).floor)
        await settle()
    if isinstance(store, TableStore):
        for conversation in conversations:
            left = await store.count_unswept(conversation)
            if left:
                mend = "open it again later" if store.database.dialect == "postgres" else "run `tailfold vacuum` later"
                return f"{left} rows of the log of {conversation!r} could not be swept: {mend}"
    files = [each for each in _databases(store, tables) if isinstance(each, Database) and each.path != MEMORY]
    reasons = [await clean_file(database) for database in files]
    return next((why for why in reasons if why is not None), None)


def _kept_by_servers(store: EventStore, tables: LedgerTables) -> str | None:
    """What lies where no client gets at it."""
    on_postgres = "postgres" in [database.dialect for database in _databases(store, tables)]
    on_nats = is_nats(getattr(store, "path", ""))
    told = [said for said, is_there in ((_KEPT_ON_SERVERS, on_postgres), (_KEPT_BY_NATS, on_nats)) if is_there]
    return "; ".join(told) or None


def _databases(store: EventStore, tables: LedgerTables) -> list[SomeDatabase]:
    """Those of the ledger and of its log, each once."""
    log = [store.database] if isinstance(store, TableStore) and store.database is not tables.database else []
    return [tables.database, *log]


async def _counts(sql: Sql, conversation: str) -> Counts:
    return _decode((await erasures.look(sql, conversation)).erased)


def _decode(erased: str | None) -> Counts:
    return Counts(0, 0, 0, 0, is_done=True) if erased is None else _COUNTS.decode(erased)


def _encode(counts: Counts) -> str:
    return msgspec.json.encode(counts).decode()
