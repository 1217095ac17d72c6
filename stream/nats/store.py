"""The log on NATS JetStream: an `EventStore` whose answers come from the leader, and whose every change is one message."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from stream.admission import admit, check_adoption, prepare
from stream.errors import CorruptEvent, SeqConflict, StoreClosed, StreamError, Truncated
from stream.limits import Limits, check_id, check_position, check_prefix
from stream.logger import Logger
from stream.nats.adoption import adopt
from stream.nats.appender import Appender
from stream.nats.client import HEADER, ROLLUP
from stream.nats.feed import Feed
from stream.nats.layout import untoken
from stream.nats.signals import Signals
from stream.nats.snapshots import NatsSnapshots
from stream.nats.state import NOWHERE, State, read_state, write_state
from stream.ongoing import OngoingWork
from stream.records import AppendResult, Bounds, Changes, Event, Producer, StreamInfo
from stream.tasks import finish_anyway
from stream.wakeups import ANY, await_signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from stream.nats.client import Client
    from stream.nats.log import Log
    from stream.nats.state import Place
    from stream.records import NewEvent

T = TypeVar("T")
_LOG: Final = Logger("tailfold.stream")
_PAGE_STREAMS: Final = 64
_MAX_APPEND_EVENTS: Final = 1000
_HEADER_BYTES: Final = 16 * 1024
_AROUND_EVENT_BYTES: Final = 80


def limits_of(max_payload: int) -> Limits:
    """What fits into one message of that many bytes: beside the data lie the types, and what it says of its stream."""
    events = min(_MAX_APPEND_EVENTS, max_payload // 512)
    room = max_payload - _HEADER_BYTES - events * _AROUND_EVENT_BYTES
    return Limits(room, events, room)


class NatsStore:
    """An `EventStore` over a `Client`. Made by `open_store`."""

    def __init__(self, log: Log, incarnation: str, limits: Limits, clock_ms: Callable[[], int]) -> None:
        self.path = log.client.path
        self.incarnation = incarnation
        self.limits = limits
        self._log = log
        self._client: Client = log.client
        self._signals = Signals(log.client, log.layout)
        self._appender = Appender(log, limits, clock_ms, self._signals.tell)
        self._feed = Feed(log, incarnation)
        self._snapshots = NatsSnapshots(log, limits.append_bytes, self._run)
        self._ongoing = OngoingWork(self._check)
        self._closing = False

    @property
    def snapshots(self) -> NatsSnapshots:
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
        append = prepare(
            stream_id, events, expected_seq=expected_seq, append_id=append_id, producer=producer, limits=self.limits
        )
        if not append.events:
            head = (await self.bounds(stream_id)).head
            return admit(append, head=head, watermark=None, earlier=None) or AppendResult(head + 1, head)
        await self._ongoing.pass_left()
        answer = self._appender.append(append)
        try:
            return await answer
        except asyncio.CancelledError:
            self._ongoing.leave(self._ongoing.begin(self._appender.landed(stream_id)))
            raise

    async def adopt(
        self,
        stream_id: str,
        events: Sequence[Event],
        *,
        floor: int = 0,
        origin: int = 0,
        producers: Sequence[Producer] = (),
    ) -> None:
        """See `EventStore.adopt`. Raises `InvalidEvent` for more than one batch of messages holds."""
        check_adoption(stream_id, events, floor=floor, origin=origin, producers=producers, limits=self.limits)
        await self._run(lambda: adopt(self._log, self.limits, stream_id, events, floor, origin, producers))
        self._changed(stream_id)

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """See `EventStore.read`."""
        check_id("stream id", stream_id)
        check_position("after", after)
        check_position("limit", limit)
        return await self._run(lambda: self._read(stream_id, after, limit))

    async def bounds(self, stream_id: str) -> Bounds:
        """See `EventStore.bounds`."""
        check_id("stream id", stream_id)
        return (await self._run(lambda: self._log.place(stream_id))).state.bounds

    async def producer(self, stream_id: str, producer_id: str) -> Producer | None:
        """See `EventStore.producer`."""
        check_id("stream id", stream_id)
        check_id("producer id", producer_id)

        async def look() -> Producer | None:
            mark = await self._log.mark(stream_id, await self._log.place(stream_id), producer_id)
            return None if mark is None else Producer(mark.id, mark.epoch, mark.seq)

        return await self._run(look)

    async def producers(self, stream_id: str) -> list[Producer]:
        """See `EventStore.producers`."""
        check_id("stream id", stream_id)

        async def look() -> list[Producer]:
            place = await self._log.place(stream_id)
            layout = self._log.layout
            subjects = await self._log.subjects(layout.shard_of(stream_id), layout.producers(stream_id))
            kept = {untoken(subject.rpartition(".")[2]) for subject in subjects}
            marks = [await self._log.mark(stream_id, place, name) for name in kept | {mark.id for mark in place.state.marks}]
            return sorted(
                (Producer(mark.id, mark.epoch, mark.seq) for mark in marks if mark is not None), key=lambda each: each.id
            )

        return await self._run(look)

    async def wait(self, stream_id: str, *, after: int) -> None:
        """See `EventStore.wait`."""
        check_position("after", after)
        with self.listen(stream_id) as signal:
            if (await self.bounds(stream_id)).head <= after:
                await await_signal(signal)

    @contextlib.contextmanager
    def listen(self, stream_id: str) -> Iterator[asyncio.Event]:
        """See `EventStore.listen`."""
        check_id("stream id", stream_id)
        self._check()
        with self._signals.expect(stream_id) as signal:
            yield signal

    async def truncate(self, stream_id: str, *, through: int) -> Bounds:
        """See `EventStore.truncate`. The messages are let go of behind the caller's back; every reader looks at the floor."""
        check_id("stream id", stream_id)
        check_position("through", through)
        bounds = await self._run(lambda: self._client.again(lambda: self._truncate(stream_id, through)))
        self._changed(stream_id)
        return bounds

    async def delete(self, stream_id: str, *, expected_head: int | None = None) -> None:
        """See `EventStore.delete`. One message takes the place of all."""
        check_id("stream id", stream_id)
        if expected_head is not None:
            check_position("expected_head", expected_head)
        sent: list[Place] = []
        await self._run(lambda: self._client.again(lambda: self._delete(stream_id, expected_head, sent)))
        self._changed(stream_id)

    async def changes(self, *, after: str = "", limit: int = 1000) -> Changes:
        """See `EventStore.changes`."""
        self._feed.open(after)
        return await self._run(lambda: self._feed.changes(after, limit))

    async def wait_any(self, *, after: str) -> None:
        """See `EventStore.wait_any`."""
        place = self._feed.open(after)
        self._check()
        with self._signals.expect(ANY) as signal:
            if not await self._run(lambda: self._feed.has_moved(place)):
                await await_signal(signal)

    async def streams(self, *, prefix: str = "") -> AsyncIterator[StreamInfo]:
        """See `EventStore.streams`. The ids of all are held meanwhile."""
        check_prefix("prefix", prefix)
        names = await self._run(self._names)
        wanted = [name for name in names if name.startswith(prefix)]
        for begin in range(0, len(wanted), _PAGE_STREAMS):
            page = wanted[begin : begin + _PAGE_STREAMS]
            found = await asyncio.gather(*(self.bounds(stream_id) for stream_id in page))
            for stream_id, bounds in zip(page, found, strict=True):
                if bounds.head:
                    yield StreamInfo(stream_id, bounds.floor, bounds.head, bounds.origin)

    async def settle(self) -> None:
        """Waits until what lies below the floors is let go of; nothing but the room it takes depends on it."""
        self._check()
        await self._ongoing.settled()

    async def close(self) -> None:
        """See `EventStore.close`."""
        self._client.home.check_closer()
        await finish_anyway(self._close())

    async def _close(self) -> None:
        first, self._closing = not self._closing, True
        if not first or self._client.home.has_ended():
            return
        with anyio.CancelScope(shield=True):
            await self._signals.close()
            await self._appender.close()
            await self._ongoing.settled()
            await self._client.close()

    async def _names(self) -> list[str]:
        layout = self._log.layout
        pages = [self._log.subjects(shard, layout.logs(shard)) for shard in range(layout.shards)]
        return sorted(untoken(subject.rpartition(".")[2]) for page in await asyncio.gather(*pages) for subject in page)

    async def _read(self, stream_id: str, after: int, limit: int) -> list[Event]:
        tried = 0
        while True:
            place = await self._log.place(stream_id)
            bounds = place.state.bounds
            if after < bounds.floor:
                raise Truncated(stream_id, after, bounds.floor)
            if after >= bounds.head or not limit:
                return []
            events = await self._log.events(stream_id, place, after, min(after + limit, bounds.head))
            if events:
                return events
            if tried == place.js:  # nobody has let go of anything meanwhile
                raise CorruptEvent(stream_id, after + 1, "the message that holds it is missing")
            tried = place.js

    async def _truncate(self, stream_id: str, through: int) -> Bounds:
        place = await self._log.place(stream_id)
        bounds = place.state.bounds
        if through > bounds.head:
            raise ValueError(f"stream {stream_id!r} ends at {bounds.head}, it can't be truncated through {through}")
        if through <= bounds.floor:
            if bounds.floor:  # what others have left
                self._ongoing.begin(self._sweep(stream_id, place, bounds.floor, place.js))
            return bounds
        raised = Bounds(through, bounds.head, bounds.origin)
        js = await self._mark(stream_id, place, raised)
        self._ongoing.begin(self._sweep(stream_id, place, through, js))
        return raised

    async def _delete(self, stream_id: str, expected_head: int | None, sent: list[Place]) -> None:
        """`sent` is where it was deleted with nobody having said so."""
        place = await self._log.place(stream_id)
        head = place.state.head
        if sent and place.state.origin >= sent[0].state.head:  # it was stored
            await self._snapshots.drop_all(stream_id, await self._find_deletion(stream_id, sent[0]))
            return
        if expected_head is not None and expected_head != head:
            raise SeqConflict(stream_id, expected_head, head)
        if place is NOWHERE:
            return
        sent[:] = [place]
        js = await self._mark(stream_id, place, Bounds(head, head, head), ROLLUP)
        await self._snapshots.drop_all(stream_id, js)

    async def _find_deletion(self, stream_id: str, before: Place) -> int:
        """The number of the message that took the place of all up to `before`; of what is in its place, if that is gone."""
        raw = await self._client.get(
            self._log.layout.home(stream_id), seq=before.js + 1, next_by_subj=self._log.layout.log(stream_id)
        )
        bounds = Bounds(before.state.head, before.state.head, before.state.head)
        return raw.js if raw is not None and read_state(stream_id, raw.said).bounds == bounds else before.js + 1

    async def _mark(self, stream_id: str, place: Place, bounds: Bounds, headers: dict[str, str] | None = None) -> int:
        """Says in a message without events what the bounds are from now on, if the log is where it was; its number."""
        state = State(bounds.head, 0, bounds.floor, bounds.origin, place.moved_at, marks=place.state.marks)
        subject = self._log.layout.log(stream_id)
        return await self._client.send(subject, b"", {HEADER: write_state(state), **(headers or {})}, expected=place.js)

    async def _sweep(self, stream_id: str, place: Place, through: int, js: int) -> None:
        """Lets go of the messages below the floor; the last one of a log is never let go of, for it says where that is."""
        try:
            if through < place.state.head:
                js = await self._log.begin(stream_id, place, through)
            await self._log.drop_below(stream_id, js)
        except StreamError as error:  # the next truncation does it, too
            _LOG.warning("stream.sweep_stopped", path=self.path, error=type(error).__name__)

    def _changed(self, stream_id: str) -> None:
        self._appender.forget(stream_id)
        self._signals.wakeups.wake(stream_id)

    def _check(self) -> None:
        self._client.home.check()
        if self._closing:
            raise StoreClosed(f"{self._client.path} is closed")

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        return await self._ongoing.run(_await(work))


async def _await(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
