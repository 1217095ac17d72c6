"""Snapshots beside the logs: one message lists those of a projector, and moves only from what it was; bodies lie apart."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stream.limits import MAX_INTEGER, check_id, check_position
from stream.nats.client import ROLLUP
from stream.nats.errors import Moved, Unclear
from stream.nats.layout import untoken
from stream.records import Snapshot, SnapshotInfo
from stream.snapshots import check_dispensable, check_snapshot, is_newer, open_envelope, require_snapshot, seal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from typing import Protocol, TypeVar

    from stream.nats.log import Log

    T = TypeVar("T")

    class Run(Protocol):
        """Runs what a caller asked for, so that cancelling him does not cut it."""

        def __call__(self, work: Callable[[], Awaitable[T]], /) -> Awaitable[T]:
            """Its answer."""
            ...


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One snapshot: the subject of its body, and the numbers in JetStream of its first and last part."""

    last_seq: int
    name: str
    first: int
    last: int


class _List(NamedTuple):
    """The snapshots of a projector, the oldest first; `js` is the number of the message that says so, 0 where there is none."""

    js: int
    entries: tuple[Entry, ...]


class _Sent(NamedTuple):
    """A list with one more entry, sent in the place of the one of that number; what the entry `replaced` in it."""

    js: int
    entry: Entry
    replaced: list[str]


_ENTRIES: Final = msgspec.msgpack.Decoder(tuple[Entry, ...])


class NatsSnapshots:
    """The `SnapshotStore` beside a `NatsStore`. One envelope at a time is held in memory."""

    def __init__(self, log: Log, part_bytes: int, run: Run) -> None:
        self._log = log
        self._client = log.client
        self._layout = log.layout
        self._part_bytes = part_bytes
        self._run = run

    async def save(self, snapshot: Snapshot) -> bool:
        """See `SnapshotStore.save`."""
        require_snapshot(snapshot)
        sent: list[_Sent] = []
        torn: list[str] = []
        return await self._run(lambda: self._client.again(lambda: self._save(snapshot, sent, torn)))

    async def load(self, stream_id: str, projector: str) -> Snapshot | None:
        """See `SnapshotStore.load`."""
        check_id("stream id", stream_id)
        check_id("projector name", projector)
        return await self._run(lambda: self._load(stream_id, projector))

    async def delete(self, stream_id: str, projector: str, last_seq: int | None = None) -> None:
        """See `SnapshotStore.delete`."""
        check_id("stream id", stream_id)
        check_id("projector name", projector)
        if last_seq is not None:
            check_position("last_seq", last_seq)
        sent: list[Entry] = []
        await self._run(lambda: self._client.again(lambda: self._delete(stream_id, projector, last_seq, sent)))

    async def drop_all(self, stream_id: str, js: int) -> None:
        """Lets go of all that was kept of a stream before its message of this number."""
        for subject in (self._layout.snapshots(stream_id), self._layout.body(stream_id)):
            await self._log.purge(stream_id, subject, js)

    async def _save(self, snapshot: Snapshot, sent: list[_Sent], torn: list[str]) -> bool:
        """`sent` are those that were listed with nobody having said so, `torn` bodies of which not all parts may be there.

        A part that comes in later than its body was let go of stays until the stream is deleted.
        """
        stream_id, projector = snapshot.stream_id, snapshot.projector
        await self._drop_bodies(stream_id, torn)
        bounds = (await self._log.place(stream_id)).state.bounds
        check_snapshot(snapshot, bounds)
        kept = await self._read_list(stream_id, projector)
        lost = [each for each in sent if each.js != kept.js and each.entry not in kept.entries]  # they can't be listed any more
        await self._drop_bodies(stream_id, [each.entry.name for each in lost])
        sent[:] = [each for each in sent if each not in lost]
        for each in sent:
            if each.entry in kept.entries:
                await self._drop_bodies(stream_id, each.replaced)
                return True
        if not is_newer(snapshot, await self._newest(stream_id, projector, kept.entries, bounds.origin)):
            return False
        torn.append(secrets.token_hex(8))
        entry = await self._put_body(snapshot, torn[-1])
        torn.clear()
        others = [other for other in kept.entries if other.last_seq != snapshot.last_seq]
        replaced = [other.name for other in kept.entries if other not in others]
        try:
            await self._put_list(stream_id, projector, kept, sorted([*others, entry], key=lambda each: each.last_seq))
        except Moved:
            await self._drop_bodies(stream_id, [entry.name])
            raise
        except Unclear:
            sent.append(_Sent(kept.js, entry, replaced))
            raise
        await self._drop_bodies(stream_id, [*replaced, *(each.entry.name for each in sent)])
        return True

    async def _load(self, stream_id: str, projector: str) -> Snapshot | None:
        origin = (await self._log.place(stream_id)).state.origin
        return await self._newest(stream_id, projector, (await self._read_list(stream_id, projector)).entries, origin)

    async def _infos(self, stream_id: str) -> list[SnapshotInfo]:
        origin = (await self._log.place(stream_id)).state.origin
        infos: list[SnapshotInfo] = []
        subjects = await self._log.subjects(self._layout.shard_of(stream_id), self._layout.snapshots(stream_id))
        for projector in sorted(untoken(subject.rpartition(".")[2]) for subject in subjects):
            infos += await self._infos_of(stream_id, projector, await self._read_list(stream_id, projector), origin)
        return infos

    async def _infos_of(self, stream_id: str, projector: str, kept: _List, origin: int) -> list[SnapshotInfo]:
        return [
            SnapshotInfo(projector, entry.last_seq, await self._open(stream_id, projector, entry) is not None)
            for entry in kept.entries
            if entry.last_seq > origin  # or it is of another life
        ]

    async def _delete(self, stream_id: str, projector: str, last_seq: int | None, sent: list[Entry]) -> None:
        """`sent` are those that were struck off the list with nobody having said so."""
        kept = await self._read_list(stream_id, projector)
        gone = [entry for entry in kept.entries if last_seq in (None, entry.last_seq)]
        await self._drop_bodies(stream_id, [entry.name for entry in sent if entry not in kept.entries])
        if not gone:
            return
        if last_seq is not None:
            bounds = (await self._log.place(stream_id)).state.bounds
            stored = await self._infos_of(stream_id, projector, kept, bounds.origin)
            check_dispensable(stream_id, projector, last_seq, bounds, stored)
        try:
            await self._put_list(stream_id, projector, kept, [entry for entry in kept.entries if entry not in gone])
        except Unclear:
            sent[:] = gone
            raise
        await self._drop_bodies(stream_id, [entry.name for entry in gone])

    async def _newest(self, stream_id: str, projector: str, entries: Sequence[Entry], origin: int) -> Snapshot | None:
        for entry in reversed(entries):
            if entry.last_seq > origin:
                snapshot = await self._open(stream_id, projector, entry)
                if snapshot is not None:
                    return snapshot
        return None

    async def _open(self, stream_id: str, projector: str, entry: Entry) -> Snapshot | None:
        subject = self._layout.body(stream_id, entry.name)
        parts = [raw.data async for raw in self._log.walk(self._layout.home(stream_id), subject, entry.first, entry.last)]
        return open_envelope(b"".join(parts), stream_id=stream_id, projector=projector)

    async def _read_list(self, stream_id: str, projector: str) -> _List:
        raw = await self._client.last(self._layout.home(stream_id), self._layout.snapshots(stream_id, projector))
        if raw is None:
            return _List(0, ())
        try:
            return _List(raw.js, _ENTRIES.decode(raw.data))
        except msgspec.MsgspecError:  # what it listed is lost, and can be made again from the events
            return _List(raw.js, ())

    async def _put_list(self, stream_id: str, projector: str, kept: _List, entries: Sequence[Entry]) -> None:
        subject = self._layout.snapshots(stream_id, projector)
        await self._client.send(subject, msgspec.msgpack.encode(entries), ROLLUP, expected=kept.js)

    async def _put_body(self, snapshot: Snapshot, name: str) -> Entry:
        """On a subject that nobody else names, each part behind the one before it."""
        subject, envelope = self._layout.body(snapshot.stream_id, name), seal(snapshot)
        numbers = [0]
        for begin in range(0, len(envelope), self._part_bytes):
            part = envelope[begin : begin + self._part_bytes]
            numbers.append(await self._client.send(subject, part, {}, expected=numbers[-1]))
        return Entry(snapshot.last_seq, name, numbers[1], numbers[-1])

    async def _drop_bodies(self, stream_id: str, names: Iterable[str]) -> None:
        for name in names:
            await self._log.purge(stream_id, self._layout.body(stream_id, name), MAX_INTEGER)

    async def list(self, stream_id: str) -> list[SnapshotInfo]:
        """See `SnapshotStore.list`."""
        check_id("stream id", stream_id)
        return await self._run(lambda: self._infos(stream_id))
