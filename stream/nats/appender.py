"""The append path: what waits for one stream goes into one message, which is stored only where the stream was expected.

So an append is whole or absent. Each stream has its own message under way, streams do not wait for each other. Where nobody
has answered, the log itself tells: each append has a name that nobody else gives, and a message that was sent for a place
can't come in once the log has passed it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stream.admission import Append, admit
from stream.errors import StoreClosed, StoreFull, StoreUnreachable, StreamError
from stream.nats.batches import Batches
from stream.nats.client import HEADER, PATIENCE_S
from stream.nats.errors import Moved, Unclear
from stream.nats.state import Mark, Place, State, write_state
from stream.records import AppendResult
from stream.tables.chunks import NAMED_BYTES, checksum, chunk_place, holds_append, join, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stream.limits import Limits
    from stream.nats.log import Log

MARKS_WITHIN: Final = 4
"""So many producers are said in each message; those that are silent for longer lie beside the log."""

_MAX_NEW_MARKS: Final = 16
_MAX_APPENDS: Final = 256
_MAX_LANES: Final = 10_000


class Request(msgspec.Struct, eq=False):
    """An append that waits for its answer; `last` is told by what plans it, and `name` is what it is known by in the log."""

    append: Append
    data: bytes
    name: bytes
    answer: asyncio.Future[AppendResult]
    last: int = 0

    @property
    def n(self) -> int:
        """How many events."""
        return len(self.append.events)

    def settle(self, answer: AppendResult) -> None:
        """Answers it, unless its caller was cancelled; what is stored stays stored."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, error: BaseException) -> None:
        """As `settle`, with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)


class _Attempt(NamedTuple):
    """A message of which nobody has said whether it was stored: these, up to their numbers, behind `base`, the log at `js`.

    `connects` tells on which connection it was sent, or on one before it.
    """

    js: int
    base: int
    connects: int
    requests: list[tuple[Request, int]]


class _Lane:
    """What waits for one stream, and where this process last saw it."""

    __slots__ = ("landed", "marks", "place", "stream_id", "task", "waiting")

    def __init__(self, stream_id: str) -> None:
        self.stream_id = stream_id
        self.waiting: deque[Request] = deque()
        self.task: asyncio.Task[None] | None = None
        self.landed = asyncio.Event()
        self.landed.set()
        self.place: Place | None = None
        self.marks: dict[str, Mark | None] = {}

    def forget(self) -> None:
        """What is known of it may be wrong."""
        self.place = None
        self.marks.clear()


class Appender:
    """Collects appends, and stores those that wait for one stream together."""

    def __init__(self, log: Log, limits: Limits, clock_ms: Callable[[], int], stored: Callable[[str, int], None]) -> None:
        self._log = log
        self._limits = limits
        self._clock_ms = clock_ms
        self._stored = stored
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()
        self._busy = 0
        """So many lanes have a task."""
        self._batches = [Batches(log.client) for _ in range(log.layout.shards)]
        self._prefix = secrets.token_bytes(NAMED_BYTES - 8)

    def append(self, append: Append) -> asyncio.Future[AppendResult]:
        """Tells when the append is durable, or why it was refused."""
        answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        name = append.aid if append.named else self._prefix + append.aid
        lane = self._lane(append.stream_id)
        lane.waiting.append(Request(append, pack(append.events), name, answer))
        if lane.task is None:
            self._busy += 1
            lane.task = asyncio.create_task(self._run(lane), name=f"tailfold writer of {append.stream_id}")
        return answer

    async def landed(self, stream_id: str) -> None:
        """Waits until what is under way now to a stream has an outcome."""
        lane = self._lanes.get(stream_id)
        if lane is not None:
            await lane.landed.wait()

    def forget(self, stream_id: str) -> None:
        """Others have moved it."""
        lane = self._lanes.get(stream_id)
        if lane is not None:
            lane.forget()

    async def close(self) -> None:
        """Stores what waits, then ends."""
        while tasks := [lane.task for lane in self._lanes.values() if lane.task is not None]:
            await asyncio.wait(tasks)

    def _lane(self, stream_id: str) -> _Lane:
        lane = self._lanes.get(stream_id)
        if lane is None:
            lane = self._lanes[stream_id] = _Lane(stream_id)
            if len(self._lanes) > _MAX_LANES:
                idle = [name for name, each in itertools.islice(self._lanes.items(), _MAX_LANES // 2) if each.task is None]
                for name in idle:
                    del self._lanes[name]
        return lane

    async def _run(self, lane: _Lane) -> None:
        try:
            while batch := self._take(lane):
                lane.landed.clear()
                try:
                    await self._store(lane, batch)
                except BaseException as error:  # noqa: BLE001 - nobody may wait for ever
                    lane.forget()
                    for request in batch:
                        request.refuse(error if isinstance(error, Exception) else StoreClosed("closed: outcome unknown"))
                finally:
                    lane.landed.set()
        finally:
            lane.task = None
            self._busy -= 1

    def _take(self, lane: _Lane) -> list[Request]:
        batch: list[Request] = []
        size_bytes = 0
        while lane.waiting and len(batch) < _MAX_APPENDS:
            request = lane.waiting[0]
            if request.answer.done():  # a caller that is gone before anything was begun: absent
                lane.waiting.popleft()
                continue
            size_bytes += len(request.data)
            if batch and size_bytes > self._limits.append_bytes:
                break
            batch.append(lane.waiting.popleft())
        return batch

    async def _store(self, lane: _Lane, batch: list[Request]) -> None:
        """Afterwards each has its answer."""
        deadline, pause_s = time.monotonic() + PATIENCE_S, 0.001
        unclear: list[_Attempt] = []
        left = batch
        while left:
            try:
                await self._try(lane, left, unclear)
            except (Moved, Unclear, StoreUnreachable) as error:
                lane.forget()
                if isinstance(error, StoreUnreachable) or time.monotonic() > deadline:
                    self._give_up(left, unclear, error)
                    return
            except StreamError as error:
                await self._tell_before(lane, unclear, error)
                raise
            still = [request for request in left if not request.answer.done()]
            if len(still) == len(left):
                await asyncio.sleep(random.uniform(0.2, 1) * pause_s)  # noqa: S311 - jitter, no secret
                pause_s = min(pause_s * 2, 0.2)
            left = still

    def _give_up(self, left: Sequence[Request], unclear: Sequence[_Attempt], error: Exception) -> None:
        """Of those that were sent, nobody knows; the others are absent."""
        client = self._log.client
        self._tell_unknown(unclear, error)
        for request in left:
            request.refuse(client.busy() if isinstance(error, Moved) else client.unreachable(error))

    async def _tell_before(self, lane: _Lane, unclear: list[_Attempt], refusal: StreamError) -> None:
        """Answers those that were sent before this refusal and are there, or may be.

        On one way to one server they were judged before it: what is not there now will not come. A server is silent of a batch
        in which its room ran out.
        """
        client = self._log.client
        error: Exception = refusal
        if isinstance(refusal, StoreFull) and not client.is_clustered:
            try:
                await self._look_for(lane, unclear)
                unclear = [attempt for attempt in unclear if attempt.connects != client.connects]
            except (Unclear, StreamError) as failure:
                error = failure
        self._tell_unknown(unclear, error)

    def _tell_unknown(self, unclear: Sequence[_Attempt], error: Exception) -> None:
        for request, _ in itertools.chain.from_iterable(attempt.requests for attempt in unclear):
            request.refuse(self._log.client.outcome_unknown(error))

    async def _try(self, lane: _Lane, left: Sequence[Request], unclear: list[_Attempt]) -> None:
        """Stores what goes in now, and answers it. What is in `unclear` afterwards may have been stored or not."""
        if unclear:
            await self._look_for(lane, unclear)
            left = [request for request in left if not request.answer.done()]
        place = await self._know(lane)
        planned, odd = await self._plan(lane, place, left)
        if planned:
            await self._send(lane, place, planned, unclear)
        elif odd is not None:
            await self._explain(lane, odd)

    async def _know(self, lane: _Lane) -> Place:
        if lane.place is None:
            lane.marks.clear()
            lane.place = await self._log.place(lane.stream_id)
        return lane.place

    async def _mark(self, lane: _Lane, place: Place, producer_id: str) -> Mark | None:
        if producer_id not in lane.marks:
            lane.marks[producer_id] = await self._log.mark(lane.stream_id, place, producer_id)
        return lane.marks[producer_id]

    async def _plan(self, lane: _Lane, place: Place, left: Sequence[Request]) -> tuple[list[Request], Request | None]:
        """Those that go on from where the stream is, each behind the one before it, up to the first that does not."""
        planned: list[Request] = []
        marks: dict[str, Mark] = {}
        head = place.state.head
        for request in left:
            producer = request.append.producer
            mark = None
            if producer is not None:
                if producer.id not in marks and len(marks) == _MAX_NEW_MARKS:
                    return planned, None
                mark = marks.get(producer.id) or await self._mark(lane, place, producer.id)
            try:
                goes_on = admit(request.append, head=head, watermark=mark.watermark if mark else None, earlier=None) is None
            except StreamError:
                goes_on = False
            if not goes_on:
                return planned, request
            if producer is not None:
                marks[producer.id] = Mark(producer.id, producer.epoch, producer.seq, head + 1, head + request.n)
            request.last = head = head + request.n
            planned.append(request)
        return planned, None

    async def _send(self, lane: _Lane, place: Place, planned: list[Request], unclear: list[_Attempt]) -> None:
        head = planned[-1].last
        at = self._clock_ms()
        data = join([(at, request.name, request.data) for request in planned])
        state = State(
            head=head,
            n=head - place.state.head,
            floor=place.state.floor,
            origin=place.state.origin,
            since=place.moved_at,
            crc=checksum(chunk_place(lane.stream_id, head), data),
            marks=await self._marks(lane, place, planned),
        )
        subject, connects = self._log.layout.log(lane.stream_id), self._log.client.connects
        try:
            batches = self._batches[self._log.layout.shard_of(lane.stream_id)]
            headers = {HEADER: write_state(state)}
            js = await batches.send(subject, data, headers, expected=place.js, is_alone=self._busy == 1)
        except Unclear:
            requests = [(request, request.last) for request in planned]
            unclear.append(_Attempt(place.js, place.state.head, connects, requests))
            raise
        lane.place = Place(js, state, data)
        lane.marks.update({mark.id: mark for mark in state.marks})
        self._accept(lane, [(request, request.last) for request in planned])

    async def _marks(self, lane: _Lane, place: Place, planned: Sequence[Request]) -> tuple[Mark, ...]:
        """Those of the next message. What it no longer says is kept elsewhere before it is sent."""
        new: dict[str, Mark] = {}
        for request in planned:
            producer = request.append.producer
            if producer is not None:
                new.pop(producer.id, None)
                first = request.last - request.n + 1
                new[producer.id] = Mark(producer.id, producer.epoch, producer.seq, first, request.last)
        old = [mark for mark in place.state.marks if mark.id not in new]
        while old and len(old) + len(new) > MARKS_WITHIN:
            await self._log.keep_mark(lane.stream_id, old.pop(0))
        return (*old, *new.values())

    async def _look_for(self, lane: _Lane, unclear: list[_Attempt]) -> None:
        """Answers those whose message is there. What can't come in any more is struck off the list."""
        lane.forget()
        place = await self._know(lane)
        for attempt in list(unclear):
            first = attempt.requests[0][0]
            is_there = False
            if place.state.floor <= attempt.base < place.state.head:
                chunk = await self._log.message(lane.stream_id, place, attempt.base)
                last = attempt.base + first.n
                is_there = chunk is not None and holds_append(lane.stream_id, chunk, last, first.n, first.name)
                if not is_there:  # it may have been truncated just then
                    lane.forget()
                    place = await self._know(lane)
            if is_there:
                self._accept(lane, attempt.requests)
            elif place.state.floor > attempt.base:
                for request, _ in attempt.requests:  # a producer's repeat is known by its watermark
                    if request.append.producer is None:
                        request.refuse(self._log.client.outcome_unknown(LookupError("what followed was truncated")))
            if place.js != attempt.js:
                unclear.remove(attempt)

    async def _explain(self, lane: _Lane, request: Request) -> None:
        """Answers what does not go on as things stand now; nothing, where it would go in."""
        append = request.append
        lane.forget()
        place = await self._know(lane)
        try:
            mark = None if append.producer is None else await self._mark(lane, place, append.producer.id)
            earlier = await self._find_earlier(append, place)
            watermark = mark.watermark if mark else None
            answer = admit(append, head=place.state.head, watermark=watermark, earlier=earlier)
        except StreamError as refusal:
            request.refuse(refusal)
        else:
            if answer is not None:
                request.settle(answer)

    async def _find_earlier(self, append: Append, place: Place) -> AppendResult | None:
        """The first answer of a named append, as long as its events are there."""
        expected, n = append.expected_seq, len(append.events)
        if not append.named or expected is None or not place.state.floor <= expected < place.state.head:
            return None
        chunk = await self._log.message(append.stream_id, place, expected)
        if chunk is None or not holds_append(append.stream_id, chunk, expected + n, n, append.aid):
            return None
        return AppendResult(expected + 1, expected + n)

    def _accept(self, lane: _Lane, requests: Sequence[tuple[Request, int]]) -> None:
        for request, last in requests:
            request.settle(AppendResult(last - request.n + 1, last))
        self._stored(lane.stream_id, 0 if lane.place is None else lane.place.js)
