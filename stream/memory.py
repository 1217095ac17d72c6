"""The log in memory: the reference that every other backend is held against."""

from __future__ import annotations

import bisect
import itertools
import secrets
from typing import TYPE_CHECKING

from stream.admission import Append, Watermark, admit, check_adoption, prepare
from stream.clock import now_ms
from stream.errors import SeqConflict, StoreClosed, Truncated
from stream.feed import FeedPlace, check_page, check_reached, open_place, seal_place
from stream.home import Home
from stream.limits import LIMITS, check_id, check_position, check_prefix, cut_page
from stream.records import AppendResult, Bounds, Changes, Event, Producer, Snapshot, SnapshotInfo, StreamInfo
from stream.snapshots import check_dispensable, check_snapshot, is_newer, open_envelope, require_snapshot, seal
from stream.wakeups import ANY, Wakeups, await_signal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from stream.records import NewEvent


class MemoryStore:
    """An `EventStore` that is gone with its process. Durability and several processes apart, it keeps every promise."""

    def __init__(self, *, clock_ms: Callable[[], int] = now_ms) -> None:
        self.incarnation = secrets.token_hex(16)
        self.limits = LIMITS
        self._streams: dict[str, _Stream] = {}
        self._feed = _Feed()
        self._snapshots = MemorySnapshots(self)
        self._wakeups = Wakeups()
        self._clock_ms = clock_ms
        self._closed = False
        self.home = Home("this store in memory")

    @property
    def snapshots(self) -> MemorySnapshots:
        """See `EventStore.snapshots`."""
        return self._snapshots

    async def append(
        self,
        stream_id: str,
        events: Sequence[NewEvent],
        *,
        expected_seq: int | None = None,
        append_id: str | None = None,
        producer: Producer | None = None,
    ) -> AppendResult:
        """See `EventStore.append`."""
        append = prepare(stream_id, events, expected_seq=expected_seq, append_id=append_id, producer=producer)
        stream = self.stream(stream_id)
        watermark = stream.watermarks.get(producer.id) if producer else None
        answer = admit(append, head=stream.head, watermark=watermark, earlier=stream.earlier(append))
        if answer is not None:
            return answer
        if not append.events:
            return AppendResult(stream.head + 1, stream.head)
        self._streams[stream_id] = stream
        result = stream.store(append, self._clock_ms())
        self._changed(stream)
        return result

    async def adopt(
        self,
        stream_id: str,
        events: Sequence[Event],
        *,
        floor: int = 0,
        origin: int = 0,
        producers: Sequence[Producer] = (),
    ) -> None:
        """See `EventStore.adopt`."""
        check_adoption(stream_id, events, floor=floor, origin=origin, producers=producers)
        stream = self.stream(stream_id)
        if stream.head:
            raise SeqConflict(stream_id, 0, stream.head)
        self._streams[stream_id] = stream
        stream.adopt(events, floor, origin, producers)
        self._changed(stream)

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """See `EventStore.read`."""
        check_position("after", after)
        check_position("limit", limit)
        stream = self.stream(stream_id)
        if after < stream.floor:
            raise Truncated(stream_id, after, stream.floor)
        start = after - stream.floor
        return cut_page(stream.events[start : start + limit])

    async def bounds(self, stream_id: str) -> Bounds:
        """See `EventStore.bounds`."""
        stream = self.stream(stream_id)
        return Bounds(stream.floor, stream.head, stream.origin)

    async def producers(self, stream_id: str) -> list[Producer]:
        """See `EventStore.producers`."""
        return [Producer(name, mark.epoch, mark.seq) for name, mark in sorted(self.stream(stream_id).watermarks.items())]

    async def producer(self, stream_id: str, producer_id: str) -> Producer | None:
        """See `EventStore.producer`."""
        check_id("producer id", producer_id)
        watermark = self.stream(stream_id).watermarks.get(producer_id)
        return None if watermark is None else Producer(producer_id, watermark.epoch, watermark.seq)

    async def wait(self, stream_id: str, *, after: int) -> None:
        """See `EventStore.wait`."""
        check_id("stream id", stream_id)
        check_position("after", after)
        self.home.check()
        with self._wakeups.expect(stream_id) as signal:
            if self.stream(stream_id).head <= after:
                await await_signal(signal)

    def listen(self, stream_id: str) -> AbstractContextManager[asyncio.Event]:
        """See `EventStore.listen`."""
        check_id("stream id", stream_id)
        self._check_open()
        return self._wakeups.expect(stream_id)

    async def truncate(self, stream_id: str, *, through: int) -> Bounds:
        """See `EventStore.truncate`."""
        check_position("through", through)
        stream = self.stream(stream_id)
        if stream.raise_floor(through):
            self._changed(stream)
        return Bounds(stream.floor, stream.head, stream.origin)

    async def delete(self, stream_id: str, *, expected_head: int | None = None) -> None:
        """See `EventStore.delete`."""
        stream = self.stream(stream_id)
        if expected_head is not None and check_position("expected_head", expected_head) != stream.head:
            raise SeqConflict(stream_id, expected_head, stream.head)
        stream.raise_floor(stream.head)
        stream.origin = stream.head
        stream.envelopes.clear()
        self._changed(stream)

    async def changes(self, *, after: str = "", limit: int = 1000) -> Changes:
        """See `EventStore.changes`."""
        place = open_place(after, self.incarnation)
        check_page(limit)
        self._check_open()
        streams, spans, begin, end = self._feed.read(place, limit)
        return Changes(streams, seal_place(self.incarnation, end), spans, seal_place(self.incarnation, begin))

    async def wait_any(self, *, after: str) -> None:
        """See `EventStore.wait_any`."""
        place = open_place(after, self.incarnation)
        self._check_open()
        with self._wakeups.expect(ANY) as signal:
            if self._feed.number <= (place.through or place.since):
                await await_signal(signal)

    async def streams(self, *, prefix: str = "") -> AsyncIterator[StreamInfo]:
        """See `EventStore.streams`."""
        check_prefix("prefix", prefix)
        self._check_open()
        for stream_id in sorted(self._streams):
            if stream_id.startswith(prefix):
                stream = self.stream(stream_id)
                yield StreamInfo(stream_id, stream.floor, stream.head, stream.origin)

    async def close(self) -> None:
        """See `EventStore.close`."""
        self.home.check_closer()
        self._closed = True
        self._wakeups.wake_all()

    def stream(self, stream_id: str) -> _Stream:
        """The stream, or an empty one that is not kept; raises `InvalidId`, `StoreElsewhere` or `StoreClosed`."""
        check_id("stream id", stream_id)
        self._check_open()
        return self._streams.get(stream_id) or _Stream(stream_id)

    def _check_open(self) -> None:
        self.home.check()
        if self._closed:
            raise StoreClosed("the store is closed")

    def _changed(self, stream: _Stream) -> None:
        if stream.head:  # there is nothing to tell of one that never had an event
            self._feed.note(stream)
            self._wakeups.wake(stream.stream_id)


class MemorySnapshots:
    """The `SnapshotStore` beside a `MemoryStore`; it keeps sealed bytes, so nobody can change a stored state."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def save(self, snapshot: Snapshot) -> bool:
        """See `SnapshotStore.save`."""
        require_snapshot(snapshot)
        stream = self._store.stream(snapshot.stream_id)
        check_snapshot(snapshot, Bounds(stream.floor, stream.head, stream.origin))
        newest = self._newest(stream, snapshot.projector)
        if not is_newer(snapshot, newest):
            return False
        stream.envelopes[snapshot.projector, snapshot.last_seq] = seal(snapshot)
        return True

    async def load(self, stream_id: str, projector: str) -> Snapshot | None:
        """See `SnapshotStore.load`."""
        check_id("projector name", projector)
        return self._newest(self._store.stream(stream_id), projector)

    async def list(self, stream_id: str) -> list[SnapshotInfo]:
        """See `SnapshotStore.list`."""
        envelopes = self._store.stream(stream_id).envelopes
        return [
            SnapshotInfo(projector, last_seq, open_envelope(data, stream_id=stream_id, projector=projector) is not None)
            for (projector, last_seq), data in sorted(envelopes.items())
        ]

    async def delete(self, stream_id: str, projector: str, last_seq: int | None = None) -> None:
        """See `SnapshotStore.delete`."""
        check_id("projector name", projector)
        stream = self._store.stream(stream_id)
        if last_seq is not None:
            check_position("last_seq", last_seq)
            bounds = Bounds(stream.floor, stream.head, stream.origin)
            check_dispensable(stream_id, projector, last_seq, bounds, await self.list(stream_id))
        for key in [key for key in stream.envelopes if key[0] == projector and last_seq in (None, key[1])]:
            del stream.envelopes[key]

    def _newest(self, stream: _Stream, projector: str) -> Snapshot | None:
        for name, last_seq in sorted(stream.envelopes, key=lambda key: -key[1]):
            if name == projector:
                envelope = stream.envelopes[name, last_seq]
                snapshot = open_envelope(envelope, stream_id=stream.stream_id, projector=projector)
                if snapshot is not None:
                    return snapshot
        return None


class _Feed:
    """Numbers the changes. Each stream keeps where it stood at which of them, as far as its events are there."""

    def __init__(self) -> None:
        self.number = 0
        self._by_change: dict[int, _Stream] = {}  # by the newest change of each, so that what moved lies at the end

    def note(self, stream: _Stream) -> None:
        self.number += 1
        stream.key = stream.key or self.number
        self._by_change.pop(stream.changes[-1][0] if stream.changes else 0, None)
        self._by_change[self.number] = stream
        heads = [head for _, head in stream.changes if head <= stream.floor][-1:]
        del stream.changes[: bisect.bisect_left(stream.changes, (heads or [0])[0], key=lambda change: change[1])]
        stream.changes.append((self.number, stream.head))

    def read(self, place: FeedPlace, limit: int) -> tuple[list[str], list[tuple[int, int]], FeedPlace, FeedPlace]:
        check_reached(place, self.number)
        while True:
            begin = place if place.through else FeedPlace(place.since, {}, self.number)
            moved = sorted(self._changed_since(begin.since), key=lambda stream: stream.key)
            found = [(stream, stream.head_at(begin.since), stream.head_at(begin.through)) for stream in moved]
            found = [
                (stream, after, head)
                for stream, after, head in found
                if stream.key > begin.key and (after < head or stream.changes[-1][0] <= begin.through)
            ]
            end = FeedPlace(begin.through)
            if len(found) > limit:
                del found[limit:]
                end = FeedPlace(begin.since, {}, begin.through, {}, found[-1][0].key)
            if found or begin is not place:
                return [stream.stream_id for stream, _, _ in found], [(a, b) for _, a, b in found], begin, end
            place = end  # nothing was left to go through: what has changed since?

    def _changed_since(self, number: int) -> Iterator[_Stream]:
        recent = itertools.takewhile(lambda its: its > number, reversed(self._by_change))
        return map(self._by_change.__getitem__, recent)


class _Stream:
    def __init__(self, stream_id: str) -> None:
        self.stream_id = stream_id
        self.key = 0
        self.changes: list[tuple[int, int]] = []  # (number, head then)
        self.head = self.floor = self.origin = 0
        self.events: list[Event] = []  # floor < seq <= head
        self.watermarks: dict[str, Watermark] = {}
        self.envelopes: dict[tuple[str, int], bytes] = {}
        self._appends: list[tuple[int, bytes, AppendResult]] = []  # (first seq - 1, aid, answer), above the floor

    def head_at(self, number: int) -> int:
        """Where it stood after that change of the store; 0 for what is too long ago, all of that is gone."""
        at = bisect.bisect_right(self.changes, number, key=lambda change: change[0])
        return self.changes[at - 1][1] if at else 0

    def earlier(self, append: Append) -> AppendResult | None:
        at = bisect.bisect_left(self._appends, append.expected_seq or 0, key=lambda entry: entry[0])
        if at < len(self._appends) and self._appends[at][:2] == (append.expected_seq, append.aid):
            return self._appends[at][2]
        return None

    def store(self, append: Append, at: int) -> AppendResult:
        first = self.head + 1
        self.events += [Event(self.stream_id, first + n, e.type, e.data, at) for n, e in enumerate(append.events)]
        self.head += len(append.events)
        if append.producer is not None:
            producer = append.producer
            self.watermarks[producer.id] = Watermark(producer.epoch, producer.seq, first, self.head)
        result = AppendResult(first, self.head)
        self._appends.append((first - 1, append.aid, result))
        return result

    def adopt(self, events: Sequence[Event], floor: int, origin: int, producers: Sequence[Producer]) -> None:
        self.origin, self.floor, self.head = origin, floor, floor + len(events)
        self.events = [Event(self.stream_id, event.seq, event.type, event.data, event.at) for event in events]
        for producer in producers:  # the numbers of its newest append are not known here
            self.watermarks[producer.id] = Watermark(producer.epoch, producer.seq, self.head + 1, self.head)

    def raise_floor(self, through: int) -> bool:
        if through > self.head:
            raise ValueError(f"stream {self.stream_id!r} ends at {self.head}, it can't be truncated through {through}")
        if through > self.floor:
            del self.events[: through - self.floor]
            self.floor = through
            self._appends = [entry for entry in self._appends if entry[0] >= through]
            return True
        return False
