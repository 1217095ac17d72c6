"""Looks at both planes for what should not be, says what it means and what mends it; changes nothing but the lag."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ledger.errors import LedgerBehind, LedgerDamaged, LedgerDiverged
from ledger.kinds import is_reserved
from ledger.tables.media import damaged_media
from ledger.transfer.progress import untold
from ledger.upkeep.backup import known_scripts
from ledger.upkeep.comparison import compare
from ledger.upkeep.snapshot_check import differing_snapshots
from projector.foreign import is_foreign
from projector.tree import leaf_of, unreachable
from stream import CorruptEvent, StoreUnusable, Truncated
from stream.limits import PROTOCOL_PREFIX
from stream.sqlite import MEMORY, Database, SqliteStore
from stream.sqlite.blocking import run_blocking
from stream.sqlite.errors import translate
from stream.sqlite.integrity import check_file
from stream.sqlite.log_integrity import check_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.engine import Engine
    from ledger.transfer.progress import Progress
    from stream.sqlite.blocking import Connect
    from stream.sqlite.integrity import Fault

_MAX_FAULTS: Final = 1000
_RESTORE: Final = "restore the file from a backup: tailfold restore"
_REPROJECT: Final = "tailfold reconcile --repair writes it anew from the log"
MEANINGS: Final = {
    "file": "pages, schema or rows of the file are not what was written; what they held may be lost",
    "damaged": "what is stored fails its checksum; it is never given out as if it were right",
    "snapshot": "a shortcut for loading is unusable; while the log is complete nothing is lost",
    "stale_snapshot": "a snapshot is not what its events say; loading would go on from something wrong",
    "run": "the ledger tells another end of this run than the log",
    "differs": "the ledger's messages are not what the log says; readers see the ledger's",
    "diverged": "ledger and log are not of the same moment: one of them was restored, or is another's",
    "orphaned": "the ledger holds what this log does not know; it can be read, and can't be projected again",
    "hole": "events were gone before the ledger had taken them in; what only they told is lost",
    "behind": "the log has events that the ledger has not taken in yet",
    "open": "a run has no end: its writer works, or has crashed",
    "orphan": "a message's parent is not there; it is shown behind the path",
    "circle": "messages are each other's parents; they are on no path, and in `all`",
    "leaf": "the active path ends elsewhere than the tree says",
    "lookup": "the tables of tool calls or labels are not what messages and metadata say; a search may miss something",
    "left": "what was changed or taken away is still in the file, where nothing shows it",
    "erasing": "an erase was begun and is not finished",
    "media": "bytes of an image or a file are not what was added",
    "reserved": "a conversation of before its id was kept for other streams; it can be read, it is not listed or compacted",
    "text": "what a provider said at the end of a text is not what it had streamed; the end counts",
    "anomaly": "an event could not be applied where it came; it changes nothing",
}
_LEFT: Final = {"text": "the log keeps both", "anomaly": "it changes nothing"}


class _Open(Protocol):
    """A `Ledger` that is open."""

    @property
    def engine(self) -> Engine: ...


class Finding(NamedTuple):
    """`kind` is one word of `MEANINGS`; a `note` is worth knowing and nothing wrong."""

    conversation: str
    kind: str
    what: str
    mend: str
    is_note: bool = False
    is_mended: bool = False

    @property
    def means(self) -> str:
        """What such a finding means, in a sentence."""
        return MEANINGS.get(self.kind, MEANINGS["file"])


async def verify(ledger: _Open, conversation: str | None = None, *, progress: Progress = untold) -> AsyncIterator[Finding]:
    """Findings of one conversation, or of all and of the files themselves.

    Damaged pages, a changed schema, lost references; gaps and damage in the log, producers and snapshots that do not
    fit it, snapshots that can't be read or are not what their events say; runs whose committed form is not what their
    events say, a tree that does not hold together, damaged media, events that could not be applied. What others do to
    it meanwhile is no finding. `progress` hears which conversations were looked at.
    """
    engine = ledger.engine
    damaged = set()
    with progress("checking the file"):
        faults = await _check_files(engine, conversation)
    for fault in faults:
        damaged.add(fault.stream_id)
        yield Finding(fault.stream_id, fault.kind, fault.what, _RESTORE)
    try:
        known = {info.stream_id async for info in engine.store.streams(prefix=conversation or "")}
        known = known if conversation is None else known & {conversation}
        with progress("looking at conversations", len(known)) as advance:
            for name in sorted(known):
                async for finding in _verify_one(engine, name, is_told=name in damaged):
                    yield finding
                advance(1)
        async for finding in _verify_unknown(engine, conversation, known):
            yield finding
        for media_id in await damaged_media(engine.tables) if conversation is None else ():
            yield Finding("", "media", f"media {media_id} is not what was added", _RESTORE)
    except StoreUnusable as error:  # a damaged file tells no more than that
        if "" not in damaged:
            yield Finding(conversation or "", "file", str(error), _RESTORE)


async def check_tree(engine: Engine, conversation: str) -> AsyncIterator[Finding]:
    """Messages without their parent, circles, a leaf that is not the tree's."""
    orphans, nodes, position = await engine.tables.tree(conversation)
    for message_id, parent in orphans:
        yield Finding(conversation, "orphan", f"message {message_id} has no parent {parent}", _REPROJECT)
    lost = unreachable(nodes)
    if lost:
        what = f"messages {', '.join(lost[:5])}{' …' if len(lost) > 5 else ''} hang on nothing but each other"
        yield Finding(conversation, "circle", what, "nothing: their run named such a parent", is_note=True)
    leaf = leaf_of(nodes)
    if leaf != position.leaf or len(nodes) != position.messages:
        what = f"the active leaf is {position.leaf} of {position.messages} messages, by the tree {leaf} of {len(nodes)}"
        yield Finding(conversation, "leaf", what, _REPROJECT)
    for what, is_wrong in (
        ("tool calls", await engine.tables.lacks_calls(conversation)),
        ("labels", await engine.tables.lacks_labels(conversation)),
    ):
        if is_wrong:
            yield Finding(conversation, "lookup", f"the table of {what} is not what is said", "tailfold reconcile --repair")
    left = await engine.tables.count_unnamed(conversation)
    if left:
        yield Finding(conversation, "left", f"pages hold {left} bodies that nothing names", "tailfold reconcile --repair")


async def _check_files(engine: Engine, conversation: str | None) -> list[Fault]:
    """What the files themselves show, of a log that is in one, without asking the program that reads them."""
    log = engine.store.database if isinstance(engine.store, SqliteStore) else None
    own = engine.tables.database
    files = [database for database in (log, own) if isinstance(database, Database) and database.path != MEMORY]
    for database in files:
        database.check()

    def look(connection: sqlite3.Connection) -> list[Fault]:
        whole = [*check_file(connection, known_scripts())] if conversation is None else []
        return [*whole, *islice(check_streams(connection, conversation), _MAX_FAULTS)]

    def check(connect: Connect) -> list[Fault]:
        faults: list[Fault] = []
        for path in sorted({database.path for database in files}):
            try:
                with connect(path) as connection:
                    faults += look(connection)
            except sqlite3.Error as error:
                raise translate(error, path) from error
        return faults

    if any(database.is_private_copy for database in files):  # that is what is looked at
        return [fault for copy in dict.fromkeys(files) for fault in await copy.inspect(look)]
    return await run_blocking(check)


async def _verify_one(engine: Engine, conversation: str, *, is_told: bool) -> AsyncIterator[Finding]:
    try:
        named = await _take_in(engine, conversation)
        if named is not None:
            yield named
        async for finding in _compare(engine, conversation):
            yield finding
    except CorruptEvent as error:
        if not is_told:
            yield Finding(conversation, "damaged", str(error), _RESTORE)
    except (LedgerDamaged, Truncated):
        pass  # found again below; or its log was let go meanwhile and can't be compared any more
    except LedgerBehind as error:
        yield Finding(conversation, "hole", str(error), "tailfold reconcile --repair goes on behind it; a backup may have it")
    except LedgerDiverged as error:
        yield Finding(conversation, "diverged", str(error), "tailfold reconcile says how far")
    async for finding in _look_at_snapshots(engine, conversation):
        yield finding
    async for finding in _look_at_rows(engine, conversation):
        yield finding


async def _take_in(engine: Engine, conversation: str) -> Finding | None:
    """Catches up with a conversation; with one whose id is kept for other streams it does not, and says so."""
    if not is_reserved(conversation):
        await engine.catch_up(conversation)
        return None
    after = (await engine.store.bounds(conversation)).floor
    known = (await engine.tables.position(conversation)).is_conversation
    if not known and await is_foreign(engine.store, conversation, after=after):
        return None
    what = f"its id begins with {PROTOCOL_PREFIX!r}, as of streams that are no conversations"
    return Finding(conversation, "reserved", what, "tailfold export, and import --into another id", is_note=True)


async def _look_at_snapshots(engine: Engine, conversation: str) -> AsyncIterator[Finding]:
    for info in await engine.store.snapshots.list(conversation):
        if not info.readable:
            what = f"snapshot {info.last_seq} of {info.projector} fails its checksum"
            yield Finding(conversation, "snapshot", what, "tailfold compact saves a new one")
    with suppress(CorruptEvent, Truncated):  # told above, or let go meanwhile
        for what in await differing_snapshots(engine, conversation):
            mend = "tailfold snapshot --delete drops it, and loading goes through the log"
            yield Finding(conversation, "stale_snapshot", what, mend)


async def _look_at_rows(engine: Engine, conversation: str) -> AsyncIterator[Finding]:
    async for damage in engine.tables.damaged(conversation):
        yield Finding(conversation, "damaged", str(damage), _REPROJECT)
    async for finding in check_tree(engine, conversation):
        yield finding
    position = await engine.tables.position(conversation)
    for after, through in json.loads(position.holes or "[]"):
        what = f"events {after + 1} to {through} were gone before the ledger had taken them in"
        yield Finding(conversation, "hole", what, "nothing brings them back", is_note=True)


async def _compare(engine: Engine, conversation: str) -> AsyncIterator[Finding]:
    """Projects again what the log still has, and holds it against the ledger's rows."""
    compared = await compare(engine, conversation)
    for difference in compared.differences:
        if difference.is_damage:
            continue  # told of the row itself
        kind = "run" if difference.why.startswith("it is") else "differs"
        yield Finding(conversation, kind, f"run {difference.run_id}: {difference.why}", _REPROJECT)
    seen, head = compared.seen.projected_seq, compared.bounds.head
    if seen > head:
        what = f"the ledger holds events up to {seen}, the log ends at {head}"
        yield Finding(conversation, "diverged", what, "restore the log that belongs to this ledger, or tailfold reconcile")
    for anomaly in compared.anomalies:
        what = f"event {anomaly.seq}: {anomaly.why}"
        kind = "text" if anomaly.is_applied else "anomaly"
        yield Finding(conversation, kind, what, f"nothing: {_LEFT[kind]}", is_note=True)


async def _verify_unknown(engine: Engine, conversation: str | None, known: set[str]) -> AsyncIterator[Finding]:
    """Conversations that the ledger holds and the log does not know."""
    for name in await engine.tables.names():
        if name not in known and conversation in (None, name):
            position = await engine.tables.position(name)
            if position.projected_seq and not (await engine.store.bounds(name)).head:  # or it has come meanwhile
                what = f"the ledger holds {position.messages} messages, the log has never had an event of it"
                yield Finding(name, "orphaned", what, "restore the log that belongs to this ledger, or tailfold reconcile")
            async for finding in _look_at_rows(engine, name):
                yield finding
