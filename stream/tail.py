"""One tail for all who follow a stream in this process: what was appended a moment ago is read once, and handed to each."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

import anyio

from stream.checks import check_text
from stream.errors import Diverged, Truncated
from stream.limits import check_id, check_position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stream.records import Event
    from stream.store import EventStore

IDLE_S: Final = 15.0
_KEEP_BYTES: Final = 1024 * 1024  # of one stream
_KEEP_ALL_BYTES: Final = 64 * 1024 * 1024
_PAGE_EVENTS: Final = 1000
_BATCH_BYTES: Final = 64 * 1024  # what a follower is given at once, so that one who reads slowly holds no more
_FIRST_EVENTS: Final = 4  # of a follower who is behind: his pages grow to what a batch may be
_EVENT_BYTES: Final = 300  # what an event takes beside its data


class Tails:
    """The tails of one store. A stream has one while somebody follows it, and one task that reads what comes.

    What was read last is kept for those who are a little behind, up to 1 MiB a stream and 64 MiB in all, and for as long
    as the stream moves; who is further behind reads by himself until he has caught up. So a slow follower holds nothing.
    Followers that are not behind get the very same batches, so that what is made of one can be kept for all.
    """

    def __init__(self, store: EventStore, *, idle_s: float = IDLE_S) -> None:
        self._store = store
        self._idle_s = idle_s
        self._tails: OrderedDict[str, _Tail] = OrderedDict()  # who moved last is last
        self._kept_bytes = 0

    @contextlib.contextmanager
    def join(self, stream_id: str, *, after: int = 0, incarnation: str | None = None) -> Iterator[Follower]:
        """A follower of everything after `after`, until the block ends.

        Raises what `follow` raises, from `Follower.next`.
        """
        check_id("stream id", stream_id)
        check_position("after", after)
        if incarnation is not None:
            check_text("incarnation", incarnation)
        tail = self._tails.get(stream_id)
        if tail is None or tail.is_over:
            tail = self._tails[stream_id] = _Tail(self, self._store, stream_id, self._idle_s)
        tail.followers += 1
        try:
            yield Follower(self._store, tail, after, incarnation)
        finally:
            tail.followers -= 1
            if not tail.followers:
                tail.close()
                if self._tails.get(stream_id) is tail:
                    del self._tails[stream_id]

    def grown(self, tail: _Tail, by_bytes: int) -> None:
        """Counts what is kept, and lets go of what has not moved for longest where that is too much."""
        self._kept_bytes += by_bytes
        if by_bytes > 0 and self._tails.get(tail.stream_id) is tail:
            self._tails.move_to_end(tail.stream_id)
        while self._kept_bytes > _KEEP_ALL_BYTES and (oldest := next((t for t in self._tails.values() if t.batches), None)):
            oldest.drop_first()


class Follower:
    """Reads one stream on, batch by batch; made by `Tails.join`."""

    __slots__ = ("_incarnation", "_looks", "_page_events", "_store", "_tail", "after")

    def __init__(self, store: EventStore, tail: _Tail, after: int, incarnation: str | None) -> None:
        self._store = store
        self._tail = tail
        self._incarnation = incarnation
        self._looks = -1
        self._page_events = _FIRST_EVENTS
        self.after = after

    @property
    def is_behind(self) -> bool:
        """Whether more is known to be there than it was given."""
        return self.after < self._tail.head

    async def next(self) -> tuple[Event, ...]:
        """The next events, in order, each once; `()` now and then while there are none, and where some have gone.

        Raises `Truncated` if they lie below the floor, `Diverged` if the position lies beyond the head or belongs to
        another incarnation, and `StoreClosed` when the store is closed.
        """
        tail = self._tail
        await tail.started()
        if self._looks < 0:
            await self._begin()
        while True:
            if tail.failure is not None:
                raise tail.failure
            if self.after < tail.start:
                batch = await self._catch_up()
                if not batch:  # all of it has been deleted meanwhile
                    raise Truncated(tail.stream_id, self.after, (await self._store.bounds(tail.stream_id)).floor)
            else:
                batch = tail.behind(self.after)
            if batch:
                self.after = batch[-1].seq
                return batch
            if self._looks != tail.looks:
                self._looks = tail.looks
                return ()
            await tail.moved.wait()

    async def _catch_up(self) -> tuple[Event, ...]:
        events = await self._store.read(self._tail.stream_id, after=self.after, limit=self._page_events)
        size_bytes = sum(len(event.data) + _EVENT_BYTES for event in events)
        if size_bytes > _BATCH_BYTES:
            self._page_events = max(1, len(events) * _BATCH_BYTES // size_bytes)
        elif 2 * size_bytes < _BATCH_BYTES:
            self._page_events = min(2 * self._page_events, _PAGE_EVENTS)
        return next((batch for batch, _ in _cut(events)), ())  # large ones behind many small ones come a few at a time, too

    async def _begin(self) -> None:
        tail = self._tail
        self._looks = tail.looks
        diverged = self._incarnation not in (None, self._store.incarnation)
        if self.after > tail.head or diverged:  # it may be newer than what the tail has read
            head = (await self._store.bounds(tail.stream_id)).head
            if self.after > head or diverged:
                raise Diverged(tail.stream_id, self.after, head, incarnation=self._incarnation if diverged else None)


class _Tail:
    """What of one stream was read last. Behind `start` it is in memory, up to `head`."""

    def __init__(self, tails: Tails, store: EventStore, stream_id: str, idle_s: float) -> None:
        self.stream_id = stream_id
        self.followers = 0
        self.start = self.head = 0
        self.batches: deque[tuple[tuple[Event, ...], int]] = deque()
        self.moved = asyncio.Event()
        self.looks = 0
        """How often it was seen that there is nothing, or that something has gone."""
        self.failure: BaseException | None = None
        self._floor = 0
        self._bytes = 0
        self._tails = tails
        self._store = store
        self._idle_s = idle_s
        self._is_started = asyncio.Event()
        self._pump = asyncio.create_task(self._run())

    @property
    def is_over(self) -> bool:
        """Whether nothing comes any more."""
        return self._pump.done() or self.failure is not None

    async def started(self) -> None:
        """Returns when it knows where the stream is."""
        if not self._is_started.is_set():
            await self._is_started.wait()

    def behind(self, after: int) -> tuple[Event, ...]:
        """The next events in memory; the same tuple for all who ask for the same."""
        if after >= self.head:
            return ()
        for batch, _ in reversed(self.batches):  # who is not behind wants the last
            if batch[0].seq <= after + 1:
                return batch[after + 1 - batch[0].seq :] if batch[0].seq <= after else batch
        return ()

    def drop_first(self) -> None:
        """Lets go of the oldest batch."""
        batch, size_bytes = self.batches.popleft()
        self.start = batch[-1].seq
        self._bytes -= size_bytes
        self._tails.grown(self, -size_bytes)

    def close(self) -> None:
        """Ends the reading, and lets go of everything."""
        self._pump.cancel()
        self._forget()

    async def _run(self) -> None:
        try:
            with self._store.listen(self.stream_id) as signal:
                bounds = await self._store.bounds(self.stream_id)
                self.start = self.head = bounds.head
                self._floor = bounds.floor
                self._is_started.set()
                await self._read_on(signal)
        except Exception as error:  # noqa: BLE001 - each of the followers raises it
            self.failure = error
            self._is_started.set()
            self._wake()

    async def _read_on(self, signal: asyncio.Event) -> None:
        while True:
            with anyio.move_on_after(self._idle_s) as waiting:
                await signal.wait()
            if waiting.cancelled_caught:  # what is kept is of no use to anybody
                self._forget()
                self._look()
            signal.clear()
            while await self._read():
                pass

    async def _read(self) -> bool:
        """Whether there is more. What has gone goes here too, however fast the stream moves."""
        with contextlib.suppress(Truncated):
            events = await self._store.read(self.stream_id, after=self.head, limit=_PAGE_EVENTS)
            self._take(events)
        bounds = await self._store.bounds(self.stream_id)
        if bounds.floor > self._floor:
            self._forget()
            self._floor = bounds.floor
            self.start = self.head = max(self.head, bounds.floor)
            self._look()
        return bounds.head > self.head

    def _look(self) -> None:
        self.looks += 1
        self._wake()

    def _take(self, events: list[Event]) -> None:
        for batch, size_bytes in _cut(events):
            self.batches.append((batch, size_bytes))
            self.head = batch[-1].seq
            self._bytes += size_bytes
            self._tails.grown(self, size_bytes)
        while self._bytes > _KEEP_BYTES and len(self.batches) > 1:
            self.drop_first()
        if events:
            self._wake()

    def _forget(self) -> None:
        while self.batches:
            self.drop_first()

    def _wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()


def _cut(events: list[Event]) -> Iterator[tuple[tuple[Event, ...], int]]:
    """Batches that those who read slowly can hold, and their sizes: a few events, or one that is large."""
    begin = size_bytes = 0
    for at, event in enumerate(events):
        if size_bytes and size_bytes + len(event.data) + _EVENT_BYTES > _BATCH_BYTES:
            yield tuple(events[begin:at]), size_bytes
            begin, size_bytes = at, 0
        size_bytes += len(event.data) + _EVENT_BYTES
    if events:
        yield tuple(events[begin:]), size_bytes
