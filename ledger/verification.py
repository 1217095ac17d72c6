"""Looks at both planes for what should not be, and says what mends it; changes nothing but the ledger's own lag."""

from __future__ import annotations

import sqlite3
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ledger.backup import known_scripts
from ledger.commit import settled_for_ledger
from ledger.effects import Ended
from ledger.errors import LedgerBehind, LedgerDamaged
from projector import State, open_runs
from projector.folds import ending
from stream import CorruptEvent, StoreUnusable, Truncated
from stream.sqlite import MEMORY, SqliteStore
from stream.sqlite.aside import aside
from stream.sqlite.checking import check_file
from stream.sqlite.checking_log import check_streams
from stream.sqlite.errors import translate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.ledger import Ledger
    from projector import End
    from projector.draft import RunDraft
    from stream.sqlite.aside import Connect
    from stream.sqlite.checking import Fault

_PAGE_EVENTS: Final = 1000
_MAX_FAULTS: Final = 1000


class Finding(NamedTuple):
    """`kind` is one word; a `note` is worth knowing and nothing wrong."""

    conversation: str
    kind: str
    what: str
    mend: str
    is_note: bool = False


async def verify(ledger: Ledger, conversation: str | None = None) -> AsyncIterator[Finding]:
    """Findings of one conversation, or of all and of the files themselves.

    Damaged pages, a changed schema, lost references; gaps and damage in the log, producers and snapshots that do not
    fit it, snapshots that can't be read; runs whose committed form is not what their events say, messages without
    their parent, events that could not be applied.
    """
    damaged = set()
    for fault in await _check_files(ledger, conversation):
        damaged.add(fault.stream_id)
        yield Finding(fault.stream_id, fault.kind, fault.what, "restore the file from a backup")
    try:
        async for info in ledger.store.streams(prefix=conversation or ""):
            if conversation is None or info.stream_id == conversation:
                async for finding in _verify_one(ledger, info.stream_id, is_told=info.stream_id in damaged):
                    yield finding
    except StoreUnusable as error:  # a damaged file tells no more than that
        if "" not in damaged:
            yield Finding(conversation or "", "file", str(error), "restore the file from a backup")


async def _check_files(ledger: Ledger, conversation: str | None) -> list[Fault]:
    """What the files themselves show, of a log that is in one, without asking the program that reads them."""
    log = ledger.store.database if isinstance(ledger.store, SqliteStore) else None
    own = ledger.tables.database
    paths = {database.path for database in (log, own) if database is not None and database.path != MEMORY}

    def check(connect: Connect) -> list[Fault]:
        faults: list[Fault] = []
        for path in sorted(paths):
            try:
                with connect(path) as connection:
                    if conversation is None:
                        faults += check_file(connection, known_scripts())
                    faults += islice(check_streams(connection, conversation), _MAX_FAULTS)
            except sqlite3.Error as error:
                raise translate(error, path) from error
        return faults

    return await aside(check)


async def _verify_one(ledger: Ledger, conversation: str, *, is_told: bool) -> AsyncIterator[Finding]:
    bounds = await ledger.store.bounds(conversation)
    snapshots = await ledger.store.snapshots.list(conversation)
    for info in snapshots:
        if not info.readable:
            what = f"snapshot {info.last_seq} of {info.projector} fails its checksum"
            yield Finding(conversation, "snapshot", what, "tailfold compact saves a new one")
    try:
        await ledger.catch_up(conversation)
        async for finding in _compare(ledger, conversation, bounds.floor, is_whole=bounds.floor == bounds.origin):
            yield finding
    except CorruptEvent as error:
        if not is_told:
            yield Finding(conversation, "damaged", str(error), "restore the log from a backup")
    except (LedgerDamaged, Truncated):
        pass  # found again below; or its log was let go meanwhile and can't be compared any more
    except LedgerBehind as error:
        yield Finding(conversation, "hole", str(error), "restore a newer ledger or an older log")
    async for damage in ledger.tables.damaged(conversation):
        yield Finding(conversation, "damaged", str(damage), "restore the ledger from a backup")
    for message_id, parent in await ledger.tables.orphans(conversation):
        yield Finding(
            conversation, "orphan", f"message {message_id} has no parent {parent}", "restore the ledger from a backup"
        )


async def _compare(ledger: Ledger, conversation: str, floor: int, *, is_whole: bool) -> AsyncIterator[Finding]:
    """Projects again what the log still has, and holds it against the ledger's rows."""
    state = State(last_seq=floor)
    position = await ledger.tables.position(conversation)
    while events := await ledger.store.read(conversation, after=state.last_seq, limit=_PAGE_EVENTS):
        for event in events:
            over = ending(state, event)
            state = open_runs.fold(state, event)
            if over is not None and event.seq <= position.projected_seq:
                async for finding in _compare_run(ledger, conversation, *over):
                    yield finding
    if position.projected_seq > state.last_seq:
        what = f"the ledger holds events up to {position.projected_seq}, the log ends at {state.last_seq}"
        yield Finding(conversation, "diverged", what, "restore the log that belongs to this ledger")
    for anomaly in state.anomalies if is_whole else ():  # behind a floor, a run's beginning may be missing
        yield Finding(
            conversation, "anomaly", f"event {anomaly.seq}: {anomaly.why}", "nothing: it changes nothing", is_note=True
        )


async def _compare_run(ledger: Ledger, conversation: str, run: RunDraft, end: End) -> AsyncIterator[Finding]:
    mend = "restore the ledger from a backup"
    row = await ledger.tables.run(conversation, run.run_id)
    if row is None or (row.seq == run.seq and row.status != end.status):
        held = "is missing" if row is None else f"is {row.status}, by its events it is {end.status}"
        yield Finding(conversation, "run", f"run {run.run_id} {held}", mend)
        return
    settled = settled_for_ledger(run, Ended(run, end))
    said = [(message, True) for message in settled.path] + [(message, False) for message in settled.off]
    said.sort(key=lambda pair: pair[0].seq)
    if row.seq == run.seq and said != await ledger.tables.messages_of(conversation, run.run_id):
        yield Finding(conversation, "differs", f"the messages of run {run.run_id} are not those of its events", mend)
