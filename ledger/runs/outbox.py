"""What a run has said and the log has not yet acknowledged: joined, flushed in time, kept until it is there.

Adjacent deltas of one block are joined; they go when they are `flush_ms` old or make 1 kB. Whatever is no delta goes
at once, with the deltas before it. One append is in flight, the buffer behind it is bounded: then `room` waits.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import TYPE_CHECKING, Final

from projector.deltas import JoinedDeltas
from projector.events import BlockDelta, Body, to_event
from projector.validation import validate
from stream import InvalidEvent, InvalidId, NewEvent, Producer, ProducerFenced, ProducerGap, StoreClosed
from stream.checks import shown
from stream.home import Home
from stream.limits import MAX_INTEGER, Limits, check_events, check_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream import EventStore

_TICKS: Final = 5  # runs flush together, up to a fifth of `flush_ms` before they must: the log stores them at once
_FLUSH_BYTES: Final = 1024
_BUFFER_BYTES: Final = 256 * 1024
_BUFFER_EVENTS: Final = 2000


class Outbox:
    """Appends the events of one producer, in order, each once."""

    def __init__(self, store: EventStore, stream_id: str, producer: Producer, acknowledged_seq: int, *, flush_ms: int) -> None:
        self.acknowledged_seq = acknowledged_seq
        self.store = store
        self.home = Home(f"run {producer.id!r}")
        self._stream_id = stream_id
        self._next = producer
        self._flush_ms = flush_ms
        self._limits = store.limits
        self._each = Limits(event_bytes=store.limits.event_bytes)  # what is put at once may become several appends
        self._waiting: list[NewEvent] = []
        self._deltas: JoinedDeltas | None = None
        self._size = 0
        self._batch: list[NewEvent] = []  # handed to the store; its bytes stay until it is acknowledged
        self._urgent = False
        self._error: Exception | None = None
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._progress: set[asyncio.Future[None]] = set()
        self._pump = asyncio.create_task(self._run(), name=f"tailfold outbox of {producer.id}")

    def has_room(self) -> bool:
        """Whether `room` has nothing to wait for, nor to raise. Raises `StoreElsewhere`."""
        self.home.check()
        return self._error is None and self._size < _BUFFER_BYTES and len(self._waiting) < _BUFFER_EVENTS

    async def room(self) -> None:
        """Waits until the buffer takes more. Raises what a background append has failed with, once, and `StoreElsewhere`."""
        self.home.check()
        self._raise_error()
        while self._size >= _BUFFER_BYTES or len(self._waiting) >= _BUFFER_EVENTS:
            self._due.set()
            await self._step()

    def put(self, bodies: Sequence[Body]) -> None:
        """Takes events in, all or none, without waiting: ask for `room` before.

        Raises `InvalidEvent` for a body that does not fit its type or is too large.
        """
        if len(bodies) == 1:
            body = bodies[0]
            if isinstance(body, BlockDelta) and self.grow(body.message_id, body.block, body.text, body.field):
                return
        for body, event in zip(bodies, self._encode(bodies), strict=True):
            if isinstance(body, BlockDelta) and self._flush_ms:
                if body.text:
                    self._join(body)
            elif event is not None:
                self._close_deltas()
                self._add(event)
                self._urgent = self._urgent or not isinstance(body, BlockDelta) or not self._flush_ms
        if self._urgent or self._size >= _FLUSH_BYTES:
            self._due.set()
        elif self._size and self._timer is None:
            loop = asyncio.get_running_loop()
            tick_s = self._flush_ms / 1000 / _TICKS
            self._timer = loop.call_at(math.floor(loop.time() / tick_s + _TICKS) * tick_s, self._ring)

    def grow(self, message_id: str, block: int, text: str, field: str | None = None) -> bool:
        """Takes a short delta behind those that wait and were checked, as most are; False, and nothing is done, for others."""
        deltas = self._deltas
        if deltas is None or not self._flush_ms or type(text) is not str:
            return False
        size = self._size + len(text)
        if size >= _FLUSH_BYTES or not deltas.are_of(message_id, block, field):
            return False
        if text:
            deltas.add(text)
            self._size = size
        return True

    async def flush(self) -> int:
        """Returns the seq up to which everything put before is durable. Raises what an append failed with.

        What was not acknowledged stays; the next flush tries it again, with the same bytes and number.
        """
        self.home.check()
        self._raise_error()
        while self._batch or self._waiting or self._deltas:
            self._urgent = True
            self._due.set()
            await self._step()
        return self.acknowledged_seq

    async def close(self) -> None:
        """Stops; what is not acknowledged is given up. A batch that is under way has an unknown outcome."""
        self.home.check()
        self._pump.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.wait([self._pump])

    def _ring(self) -> None:
        self._urgent = True
        self._due.set()

    def _encode(self, bodies: Sequence[Body]) -> list[NewEvent | None]:
        """The event of each body, checked; None for a delta that is to be joined: it becomes one with its neighbours."""
        events = [None if self._flush_ms and _is_plain(body) else _encode(at, body) for at, body in enumerate(bodies)]
        encoded = [event for event in events if event is not None]
        sizes = (
            len(event.data) if event is not None else _most_bytes(body) for event, body in zip(events, bodies, strict=True)
        )
        try:
            if len(bodies) <= self._each.append_events and sum(sizes) <= self._limits.event_bytes:
                validate(encoded)
                check_events(encoded, limits=self._each)
                return events
        except InvalidEvent:
            pass
        everything = [to_event(body) for body in bodies]  # too large, maybe; or wrong, and told by its place among all
        validate(everything)
        check_events(everything, limits=self._each)
        return events

    def _join(self, body: BlockDelta) -> None:
        self._size += len(body.text)
        if self._deltas is not None:
            together = 6 * self._deltas.size + _most_bytes(body)
            if self._size < _BUFFER_BYTES and together <= self._limits.event_bytes and self._deltas.take(body):
                return
            self._close_deltas()
        self._deltas = JoinedDeltas(body)

    def _close_deltas(self) -> None:
        if self._deltas is not None:
            deltas, self._deltas = self._deltas, None
            self._size -= deltas.size
            self._add(to_event(deltas.body()))

    def _add(self, event: NewEvent) -> None:
        self._waiting.append(event)
        self._size += len(event.data)

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            while self._batch or self._is_due():
                try:
                    if not self._batch:
                        self._fill()
                    result = await self.store.append(self._stream_id, self._batch, producer=self._next)
                except Exception as error:  # noqa: BLE001 - handed to whoever feeds or flushes
                    self._error = error
                    break
                # A repeat that is not the newest append has no numbers; then its newest event is at the head or below.
                self.acknowledged_seq = max(self.acknowledged_seq, result.last_seq)
                self._next = Producer(self._next.id, self._next.epoch, self._next.seq + 1)
                self._batch = []
                self._wake()
            self._wake()

    def _is_due(self) -> bool:
        return bool(self._waiting or self._deltas) and (self._urgent or self._size >= _FLUSH_BYTES)

    def _fill(self) -> None:
        self._close_deltas()
        sizes = itertools.accumulate(len(event.data) for event in self._waiting)
        count = sum(1 for size in sizes if size <= self._limits.append_bytes // 2) or 1
        count = min(count, self._limits.append_events)
        self._batch, self._waiting = self._waiting[:count], self._waiting[count:]
        self._size = sum(len(event.data) for event in self._waiting)
        self._urgent = bool(self._waiting)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _step(self) -> None:
        """Waits for the next answer of the store."""
        if self._pump.done():
            raise StoreClosed("this run was closed, what it had not flushed is given up")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._progress.add(future)
        try:
            await future
        finally:
            self._progress.discard(future)
        self._raise_error()

    def _wake(self) -> None:
        for future in self._progress:
            if not future.done():
                future.set_result(None)

    def _raise_error(self) -> None:
        error = self._error
        if error is not None:
            if not isinstance(error, ProducerFenced | ProducerGap):  # those stay for good
                self._error = None
            raise error


def _encode(index: int, body: Body) -> NewEvent:
    """The event of a body. Raises `InvalidEvent` for a delta of bytes, which would be written as base64."""
    if isinstance(body, BlockDelta):
        text: object = body.text
        if isinstance(text, bytes | bytearray | memoryview):
            raise InvalidEvent(index, f"the text of a delta is {shown(text)}, not text")
    return to_event(body)


def _is_plain(body: Body) -> bool:
    """Whether this is a delta that fits its type, so that its bytes need not be looked at."""
    if not isinstance(body, BlockDelta) or type(body.block) is not int or not 0 <= body.block <= MAX_INTEGER:
        return False
    if type(body.message_id) is not str or type(body.text) is not str or type(body.field) not in (str, type(None)):
        return False
    try:
        check_id("message_id", body.message_id)
    except InvalidId:
        return False
    return True


def _most_bytes(body: Body) -> int:
    """What a plain delta takes at most as an event: six bytes for a character, and its names."""
    return 6 * (len(body.message_id) + len(body.text) + len(body.field or "") + 20) if isinstance(body, BlockDelta) else 0
