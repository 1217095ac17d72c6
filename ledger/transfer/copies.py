"""Copies all that a ledger and its log hold into another ledger: numbers, times, floors, origins, producers and snapshots stay.

Each stream goes over whole or not at all, then what the ledger holds of it: so what was ended in the middle is done again
by the same call, which passes over what is there. Whatever was copied is read back and compared.
"""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, overload

import msgspec

from ledger.errors import CopyDiffers, LedgerDamaged
from ledger.tables.media import get_media, put_media
from ledger.tables.whole_rows import read_rows, write_rows
from ledger.transfer.content_hash import hash_log
from ledger.transfer.progress import untold
from stream import Event, SeqConflict, Truncated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Self

    from ledger.engine import Engine
    from ledger.tables.whole_rows import WholeRows
    from ledger.transfer.progress import Progress
    from stream import Bounds, EventStore, Snapshot

_PAGE_EVENTS: Final = 1000
_ATTEMPTS: Final = 5
_KEPT_BYTES: Final = 8 * 1024 * 1024  # of a stream in memory; more lies in a file meanwhile
_EVENT: Final = msgspec.msgpack.Decoder(Event)


class Copied(NamedTuple):
    """What became of a stream: how many events it has, `is_new` unless it was there, and the `digest` of its content.

    The digest is that of log and ledger together, read back from where it was copied to.
    """

    stream_id: str
    events: int
    is_new: bool
    digest: str


async def copy_ledger(source: Engine, target: Engine, progress: Progress = untold) -> AsyncIterator[Copied]:
    """Copies stream by stream, and tells of each; the source is only read, and others may read it meanwhile.

    Raises `CopyDiffers` where the target holds something else under an id, or where the source is written to so that no
    moment of it can be had; `LedgerDamaged` and `CorruptEvent` for what is damaged. What others hold of a log is not copied.
    """
    names = dict.fromkeys([info.stream_id async for info in source.store.streams()])
    names |= dict.fromkeys(await source.tables.names())
    with progress("copying", len(names)) as advance:
        for name in sorted(names):
            yield await _copy(source, target, name)
            advance(1)


async def _copy(source: Engine, target: Engine, name: str) -> Copied:
    for _ in range(_ATTEMPTS):
        rows = await source.tables.look(lambda sql: read_rows(sql, name))
        bounds = await source.store.bounds(name)
        try:
            with _Spooled() as events:
                await events.fill(source.store, name, bounds)
                snapshots = await _newest_snapshots(source.store, name)
                seen = 0 if rows is None else rows.projected_seq
                if await source.store.bounds(name) != bounds or (await source.tables.position(name)).projected_seq != seen:
                    continue  # what was read of log and ledger is of two moments
                _check(name, rows)
                is_new = await _copy_log(source.store, target.store, name, bounds, events)
                digest = await hash_log(target.store, name, through=bounds.head)
                if digest != events.digest(bounds):
                    raise CopyDiffers(name, "its log is another one there")
        except Truncated:
            continue
        for snapshot in snapshots:
            await target.store.snapshots.save(snapshot)
        return Copied(name, len(events), is_new, await _copy_rows(source, target, name, rows, digest))
    raise CopyDiffers(name, "it is written to all the time: stop who writes to it while it is copied")


async def _copy_log(source: EventStore, target: EventStore, name: str, bounds: Bounds, events: _Spooled) -> bool:
    """Whether there was none before."""
    if (await target.bounds(name)).head or not bounds.head:
        return False
    producers = await source.producers(name)
    try:
        await target.adopt(name, events, floor=bounds.floor, origin=bounds.origin, producers=producers)
    except SeqConflict:  # another copy of the same was faster: what is there now is compared
        return False
    return True


async def _newest_snapshots(source: EventStore, name: str) -> list[Snapshot]:
    """Of each projector the newest that can be read: what a load begins with."""
    projectors = dict.fromkeys(info.projector for info in await source.snapshots.list(name))
    found = [await source.snapshots.load(name, projector) for projector in projectors]
    return [snapshot for snapshot in found if snapshot is not None]


async def _copy_rows(source: Engine, target: Engine, name: str, rows: WholeRows | None, log: str) -> str:
    """What the ledger holds; the digest of log and ledger together."""
    if rows is None:
        return log
    there = {media_id for (media_id,) in rows.tables["uses"]}
    for media_id in await source.tables.media_of(name):
        if media_id in there:
            media = await get_media(source.tables, media_id)
            await put_media(target.tables, name, media.data, media.media_type)
    await target.tables.transact(lambda sql: write_rows(sql, name, rows))
    copied = await target.tables.look(lambda sql: read_rows(sql, name))
    wanted = rows.digest()
    if copied is None or (copied.digest() != wanted and copied.projected_seq <= rows.projected_seq):
        raise CopyDiffers(name, "its transcript is another one there")
    target.forget(name)
    return hashlib.sha256(f"{log} {wanted}".encode()).hexdigest()


def _check(name: str, rows: WholeRows | None) -> None:
    """Raises `LedgerDamaged` for a body that is not what was written: copied it would be damaged there, too, or empty."""
    for table in ("messages", "runs") if rows is not None else ():
        for row_id, *_, crc, body in rows.tables[table] if rows is not None else ():
            if not body or (crc is not None and zlib.crc32(body) != crc):
                raise LedgerDamaged(name, row_id, "run" if table == "runs" else "message")


class _Spooled(Sequence[Event]):
    """The events of a stream, read again each time they are asked for, so that memory does not depend on their number."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_KEPT_BYTES)  # noqa: SIM115 - closed at the end of the block
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    async def fill(self, store: EventStore, name: str, bounds: Bounds) -> None:
        """Reads all of them. Raises `Truncated` where they go meanwhile."""
        after = bounds.floor
        while after < bounds.head:
            page = await store.read(name, after=after, limit=min(_PAGE_EVENTS, bounds.head - after))
            for event in page:
                body = msgspec.msgpack.encode(event)
                self._file.write(len(body).to_bytes(8, "big") + body)
            self._count += len(page)
            after = page[-1].seq

    def digest(self, bounds: Bounds) -> str:
        """See `hash_log`."""
        digest = hashlib.sha256(f"{bounds.origin} {bounds.floor}\n".encode())
        for event in self:
            digest.update(f"{event.seq} {event.at} {event.type} {len(event.data)}\n".encode())
            digest.update(event.data)
        return digest.hexdigest()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Event]:
        self._file.seek(0)
        for _ in range(self._count):
            yield _EVENT.decode(self._file.read(int.from_bytes(self._file.read(8), "big")))

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        return list(self)[index]
