"""The streams of the protocol in one store: found by path, known by their events, changed only as what is known allows."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stream.clock import now_ms
from stream.errors import CorruptEvent, SeqConflict, StoreBusy, StoreFull, StreamError, Truncated
from stream.http.durable import state as kinds
from stream.http.durable.paths import read_id, stream_id
from stream.http.durable.state import State, decode, encode
from stream.records import Event, NewEvent, Snapshot
from stream.snapshots import retain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stream.http.durable.offsets import Offset
    from stream.records import AppendResult, Producer
    from stream.store import EventStore

PROJECTOR: Final = "durable_streams"
SNAPSHOT_EVENTS: Final = 1000
SNAPSHOT_BYTES: Final = 4 * 1024 * 1024
_KEPT_SNAPSHOTS: Final = 2
_KNOWN: Final = 4096  # streams that this process keeps the state of
_PAGE_EVENTS: Final = 1000
_TOUCHES: Final = 20  # in a time to live
_HOLDS: Final = 3  # in a time to live, of those who wait
_LEAST_HOLD_S: Final = 0.1


class Framed(NamedTuple):
    """What a batch of what has come is shown as: made once for all who follow and are not behind."""

    batch: Sequence[Event]
    cursor: str
    frames: list[bytes]
    place: Offset
    """Behind it."""
    is_last: bool
    is_over: bool


class Stream:
    """One life of a path, as far as this process has read its events."""

    def __init__(self, id: str) -> None:  # noqa: A002 - the field's name
        self.id = id
        _, self.number = read_id(id) or ("", 0)
        self.state = State()
        self.head = 0
        self.renewed_ms = 0
        """When it was read last, as only this process knows."""
        self.lock = asyncio.Lock()
        self.saved_head = 0
        self.unsaved_bytes = 0
        self.framed: Framed | None = None
        """As what that which came last is shown."""
        self.is_finished = False
        """Whether nothing is left to do of its end."""

    @property
    def is_there(self) -> bool:
        """Whether it can be read and written: not deleted, and no more than what forks read of it."""
        return self.head > 0 and not self.state.is_gone and not self.state.is_retired

    def ends_at_ms(self) -> int | None:
        """When it expires, as it stands. Within a twentieth of its time to live another process may have read it."""
        if not self.is_there:
            return None
        opened = self.state.config
        if opened.ttl_s is None:
            return opened.ends_at_ms
        window_ms = opened.ttl_s * 1000
        return max(self.renewed_ms, self.state.renewed_ms + window_ms // _TOUCHES) + window_ms

    def is_touch_due(self) -> bool:
        """Whether its renewal is to be told to other processes, and to this one's successor."""
        ttl_s = self.state.config.ttl_s if self.is_there else None
        return ttl_s is not None and self.renewed_ms - self.state.renewed_ms >= ttl_s * 1000 // _TOUCHES

    def take(self, events: Sequence[Event]) -> None:
        """Goes on by those of the events that are next; what is known already is passed over."""
        for event in events:
            if event.seq == self.head + 1:
                self.state.take(event)
                self.head = event.seq
                self.unsaved_bytes += len(event.data)


class Streams:
    """All of them. Whatever is appended to one goes in only behind the events that the decision was made by.

    So two processes never both close, delete or create; who comes second reads on and decides again.
    """

    def __init__(self, store: EventStore, *, clock_ms: Callable[[], int] = now_ms) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._known: OrderedDict[str, Stream] = OrderedDict()
        self._numbers: OrderedDict[str, int] = OrderedDict()

    async def find(self, path: str) -> Stream | None:
        """The newest life of the path as it is now, also one that has ended; None where there never was one."""
        while True:
            number = await self._newest(path)
            if not number:
                return None
            stream = await self.open(stream_id(path, number))
            if self.is_expired(stream):
                await self.end(stream, only_expired=True)
            elif stream.state.is_retired and not stream.state.is_gone:
                await self.settle(stream)
            if not stream.state.is_gone:
                return stream
            following = await self._store.bounds(stream_id(path, number + 1))
            if not following.head:
                await self._finish(stream)
                return stream
            self._numbers[path] = number + 1

    async def open(self, stream: str) -> Stream:
        """A life of a path by the id of its stream in the store, as it is now; its head is 0 where it never began."""
        known = self._known.get(stream) or Stream(stream)
        self._know(known)
        await self.refresh(known)
        return known

    async def refresh(self, stream: Stream) -> None:
        """Reads what was appended since. Raises `CorruptEvent` where nothing tells what it is."""
        while True:
            bounds = await self._store.bounds(stream.id)
            if bounds.origin:
                stream.state.is_gone = True
                stream.head = max(stream.head, bounds.head)
            if stream.head and stream.state.opened is None and not stream.state.is_gone:
                raise CorruptEvent(stream.id, 1, "it does not begin as a stream of this protocol does")
            if stream.head >= bounds.head:
                return
            if bounds.head - stream.head > SNAPSHOT_EVENTS or bounds.floor > stream.head:
                await self._load(stream)
            if bounds.floor > stream.head:
                raise CorruptEvent(stream.id, bounds.floor, "it is truncated, and no snapshot tells what it was")
            with contextlib.suppress(Truncated):  # deleted meanwhile
                events = await self._store.read(stream.id, after=stream.head, limit=_PAGE_EVENTS)
                try:
                    stream.take(events)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    why = f"it is none of this protocol: {error}"
                    raise CorruptEvent(stream.id, stream.head + 1, why) from error

    async def append(
        self, stream: Stream, events: Sequence[NewEvent], *, head: int, producer: Producer | None = None
    ) -> AppendResult:
        """Appends if `head` is still the head: that of the state by which it was decided, looked at before anything awaited.

        Raises what `EventStore.append` raises; after `SeqConflict`, read on and decide again.
        """
        result = await self._store.append(stream.id, events, expected_seq=head, producer=producer)
        if not result.duplicate:
            at = self._clock_ms()
            stream.take([Event(stream.id, result.first_seq + n, e.type, e.data, at) for n, e in enumerate(events)])
            if stream.head - stream.saved_head >= SNAPSHOT_EVENTS or stream.unsaved_bytes >= SNAPSHOT_BYTES:
                with contextlib.suppress(StreamError):  # the events are there all the same: it is saved later
                    await self.save(stream)
        return result

    async def watermark(self, stream: Stream, producer_id: str) -> Producer | None:
        """The newest append of a producer."""
        return await self._store.producer(stream.id, producer_id)

    async def create(self, path: str, number: int, events: Sequence[NewEvent]) -> Stream | None:
        """Begins a life of the path; None where somebody else has begun it, or where it shall not be."""
        stream = Stream(stream_id(path, number))
        try:
            await self.append(stream, events, head=0)
        except SeqConflict:
            return None
        self._know(stream)
        self._remember(path, number)
        return stream

    async def save(self, stream: Stream) -> None:
        """Saves its state, by which it is known without reading all of it, and though its first events are truncated."""
        snapshot = Snapshot(stream.id, PROJECTOR, kinds.VERSION, stream.head, self._clock_ms(), encode(stream.state))
        stream.saved_head, stream.unsaved_bytes = stream.head, 0
        with contextlib.suppress(ValueError):  # deleted meanwhile
            await self._store.snapshots.save(snapshot)
            await retain(self._store.snapshots, stream.id, PROJECTOR, keep=_KEPT_SNAPSHOTS)

    def is_expired(self, stream: Stream) -> bool:
        """Whether its time is over."""
        ends_at_ms = stream.ends_at_ms()
        return ends_at_ms is not None and self._clock_ms() >= ends_at_ms

    async def renew(self, stream: Stream) -> None:
        """Begins its time to live again. It is durable when a twentieth of it has passed since it last was.

        Where there is no room for that only this process knows: what can be read is read.
        """
        if not stream.is_there or stream.state.config.ttl_s is None:
            return
        stream.renewed_ms = max(stream.renewed_ms, self._clock_ms())
        while stream.is_touch_due():
            try:
                await self.append(stream, [NewEvent(kinds.TOUCH, b"")], head=stream.head)
            except SeqConflict:
                await self.refresh(stream)
            except (StoreBusy, StoreFull):
                return
            else:
                return

    async def hold(self, stream: Stream) -> float | None:
        """Keeps it for one who waits; how long he may do so before it has to be held again (s), None for ever.

        A stream that is followed lives (5.1), however short its time to live is beside that of a connection.
        """
        ttl_s = stream.state.config.ttl_s if stream.is_there else None
        if ttl_s is None:
            return None
        if self._clock_ms() - stream.state.renewed_ms >= ttl_s * 1000 // _HOLDS:
            await self.renew(stream)
        return max(ttl_s / _HOLDS, _LEAST_HOLD_S)

    async def promise(self, source: Stream, fork: str) -> bool:
        """Lets the source know of a fork that is about to be created; False where the source has gone."""
        while source.is_there:
            if fork in source.state.forks:
                return True
            try:
                await self.append(source, [NewEvent(kinds.FORK, fork.encode())], head=source.head)
            except SeqConflict:
                await self.refresh(source)
        return False

    async def end(self, stream: Stream, *, only_expired: bool = False) -> None:
        """Deletes it, or keeps it for the forks that read it; then looks whether it was the last fork of a deleted one."""
        following: Stream | None = stream
        while following is not None:
            following = await self._end_one(following, only_expired=only_expired and following is stream)

    async def _end_one(self, stream: Stream, *, only_expired: bool) -> Stream | None:
        """The same of one; returns the source if that may be next."""
        while True:
            if stream.state.is_gone or not stream.head or (only_expired and not self.is_expired(stream)):
                return await self._finish(stream)
            head = stream.head
            has_forks = await self._has_forks(stream)
            if has_forks and stream.state.is_retired:
                return None
            try:
                await self.append(stream, [NewEvent(kinds.RETIRE if has_forks else kinds.DELETE, b"")], head=head)
            except SeqConflict:
                await self.refresh(stream)
            else:
                return None if has_forks else await self._finish(stream)

    async def _finish(self, stream: Stream) -> Stream | None:
        """Does what is left to do of one whose end is in the log: its source is told, its events are dropped."""
        if not stream.state.is_gone or stream.is_finished:
            return None
        opened = stream.state.opened
        source_id = opened.source if opened is not None else None
        source = await self._release(source_id, stream.id) if source_id is not None else None
        if not (await self._store.bounds(stream.id)).origin:
            await self._store.delete(stream.id)
        stream.is_finished = True
        return source

    async def _release(self, source_id: str, fork: str) -> Stream | None:
        """Tells a source that a fork has gone; returns it if it was kept for its forks only.

        One that can't be read is not told: when it can, or is dropped, it is seen that the fork has gone.
        """
        try:
            source = await self.open(source_id)
        except CorruptEvent:
            return None
        while source.head and not source.state.is_gone and fork in source.state.forks:
            try:
                await self.append(source, [NewEvent(kinds.UNFORK, fork.encode())], head=source.head)
            except SeqConflict:
                await self.refresh(source)
        return source if source.state.is_retired and not source.state.is_gone else None

    async def _has_forks(self, stream: Stream) -> bool:
        for fork in list(stream.state.forks):
            if await self.is_forked_as(fork, stream.id):
                return True
        return False

    async def is_forked_as(self, fork_id: str, source_id: str) -> bool:
        """Whether a fork is there. One that was promised and never created will not be: its place is taken."""
        try:
            fork = await self.open(fork_id)
        except CorruptEvent:  # a backup may have it whole, and then it reads its source again
            return True
        while not fork.head:
            with contextlib.suppress(SeqConflict):
                await self._store.append(fork_id, [NewEvent(kinds.DELETE, b"")], expected_seq=0)
            await self.refresh(fork)
        return not fork.state.is_gone and fork.state.config.source == source_id

    async def settle(self, stream: Stream) -> None:
        """Ends the forks that have expired, and then perhaps this one, which was kept for them."""
        for fork_id in list(stream.state.forks):
            if await self.is_forked_as(fork_id, stream.id):
                try:
                    fork = await self.open(fork_id)
                except CorruptEvent:
                    return
                if not self.is_expired(fork):
                    return
                await self.end(fork, only_expired=True)
        await self.refresh(stream)
        if not stream.state.is_gone:
            await self.end(stream)

    async def _newest(self, path: str) -> int:
        """The number of the newest life: one is begun only where the one before it has ended, so all before it exist."""
        newest = self._numbers.get(path, 0)
        if newest:
            return newest
        step = 1
        while (await self._store.bounds(stream_id(path, newest + step))).head:
            newest, step = newest + step, step * 2
        missing = newest + step
        while missing - newest > 1:
            middle = (newest + missing) // 2
            if (await self._store.bounds(stream_id(path, middle))).head:
                newest = middle
            else:
                missing = middle
        if newest:
            self._remember(path, newest)
        return newest

    def _know(self, stream: Stream) -> None:
        self._known[stream.id] = stream
        self._known.move_to_end(stream.id)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    def _remember(self, path: str, number: int) -> None:
        self._numbers[path] = max(number, self._numbers.get(path, 0))
        self._numbers.move_to_end(path)
        if len(self._numbers) > _KNOWN:
            self._numbers.popitem(last=False)

    async def _load(self, stream: Stream) -> None:
        snapshot = await self._store.snapshots.load(stream.id, PROJECTOR)
        if snapshot is not None and snapshot.version == kinds.VERSION and snapshot.last_seq > stream.head:
            stream.state, stream.head = decode(snapshot.state), snapshot.last_seq
            stream.saved_head, stream.unsaved_bytes = snapshot.last_seq, 0
