"""The append path: whatever waits goes into one statement, which moves each stream only from where it was expected.

The statement is one commit for appends of many streams; a stream that has moved meanwhile is passed over with all its
appends, and nobody else is. Each row carries a name that nobody else gives, so that where a connection was lost in the middle
the rows themselves tell what was stored. What was sent and lost may still come in later, as long as its stream is where it was
expected: so each such place is remembered until its stream has moved, and looked at before the append goes anywhere else.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from asyncpg.exceptions import UniqueViolationError

from stream.admission import admit
from stream.errors import CorruptEvent, StoreBusy, StoreClosed, StoreUnreachable, StreamError
from stream.postgres.append_statements import EARLIER, STORED, append_text
from stream.postgres.database import PATIENCE_S
from stream.postgres.errors import FAILURES, is_again, is_gone, is_of_one, translate
from stream.postgres.keys import KeyCache, damage_of
from stream.postgres.request import Place, Request
from stream.records import AppendResult
from stream.tables.bounds import read_watermark
from stream.tables.chunks import NAMED_BYTES, append_place, checksum, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stream.admission import Append
    from stream.postgres.database import PostgresDatabase
    from stream.postgres.keys import Stream

_MAX_APPENDS: Final = 256
_MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
_UNKNOWN: Final = (
    "the connection was lost while this was stored, whether it was is not known: try again, retries with an append_id or by a "
    "producer are safe"
)
_SWEPT: Final = "the connection was lost while this was stored, and its place was truncated since: whether it was is not known"


class Appender:
    """Collects appends and stores them, those that wait together at once."""

    def __init__(self, database: PostgresDatabase, clock_ms: Callable[[], int], stored: Callable[[str], None]) -> None:
        self._database = database
        self._text = append_text(database.server)
        self._clock_ms = clock_ms
        self._stored = stored
        self._waiting: deque[Request] = deque()
        self._work = asyncio.Event()
        self._keys = KeyCache()
        self._connects = database.connects
        self._failing: tuple[float, float] | None = None
        self._prefix = secrets.token_bytes(NAMED_BYTES - 8)
        self._closing = False
        self._landed = asyncio.Event()
        self._landed.set()
        self._task = asyncio.create_task(self._run(), name=f"tailfold writer of {database.path}")

    def append(self, append: Append) -> asyncio.Future[AppendResult]:
        """Tells when the append is durable, or why it was refused."""
        answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        if self._closing:
            raise StoreClosed(f"{self._database.path} is closed")
        name = append.aid if append.named else self._prefix + append.aid
        self._waiting.append(Request(append, pack(append.events), name, answer))
        self._work.set()
        return answer

    async def landed(self) -> None:
        """Waits until what is under way now has an outcome."""
        await self._landed.wait()

    async def close(self) -> None:
        """Stores what waits, then ends."""
        self._closing = True
        self._work.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            if not self._waiting:
                self._work.clear()
                await self._work.wait()
                continue
            batch = self._take()
            self._landed.clear()
            try:
                await self._store(batch)
            except Exception as error:  # noqa: BLE001 - nobody may wait for ever
                for request in batch:
                    request.refuse(error)
            except BaseException:  # its loop is taken down
                self._closing = True
                for request in (*batch, *self._waiting):
                    request.refuse(StoreClosed(f"{self._database.path} was closed while this was done: outcome unknown"))
                raise
            finally:
                self._landed.set()

    def _take(self) -> list[Request]:
        batch: list[Request] = []
        size_bytes = 0
        while self._waiting and len(batch) < _MAX_APPENDS and size_bytes < _MAX_BATCH_BYTES:
            request = self._waiting.popleft()
            if not request.answer.done():  # a caller that is gone before anything was begun: absent
                batch.append(request)
                size_bytes += len(request.data)
        return batch

    async def _store(self, batch: list[Request]) -> None:
        """Afterwards each has its answer."""
        pause_s = 0.001
        left = batch
        while left:
            try:
                await self._try(left)
                self._failing = None
            except FAILURES as error:
                self._keys.forget(request.append.stream_id for request in left)
                if not is_gone(error) and not is_again(error):
                    await self._store_singly(left, error)
                    return
                if not self._has_patience():
                    for request in left:
                        request.refuse(self._refusal(request, error))
                    return
            still = [request for request in left if not request.answer.done()]
            if len(still) == len(left):
                await asyncio.sleep(random.uniform(0.2, 1) * pause_s)  # noqa: S311 - jitter, no secret
                pause_s = min(pause_s * 2, 0.2)
            left = still

    def _has_patience(self) -> bool:
        """Whether what fails has not failed for too long, without a rest: who comes later does not wait all of it again."""
        now = time.monotonic()
        since, newest = self._failing or (now, now)
        self._failing = (now if now - newest > PATIENCE_S else since, now)
        return now - self._failing[0] <= PATIENCE_S

    async def _try(self, left: Sequence[Request]) -> None:
        """Stores what goes in now, and answers it."""
        if self._connects != self._database.connects:  # it may be another server, where keys are others
            self._connects, self._keys = self._database.connects, KeyCache()
        await self._look_for([request for request in left if request.lost])
        planned, odd = await self._plan([request for request in left if not request.answer.done()])
        self._answer(planned, await self._insert(planned))
        for request in odd:
            await self._explain(request)

    async def _store_singly(self, batch: Sequence[Request], error: BaseException) -> None:
        """One bad row fails the statement for all: each alone, so that its fault hits its own caller."""
        if len(batch) == 1 or not is_of_one(error):
            for request in batch:
                request.refuse(self._refusal(request, error))
            return
        for request in batch:
            await self._store([request])

    async def _plan(self, requests: Sequence[Request]) -> tuple[list[Request], list[Request]]:
        """Those that go on from where their stream is known to be, each behind the one before it; and odd ones to explain.

        Of a stream nothing is planned behind an odd one: who was asked first is answered first.
        """
        self._keys.trim()
        damages = await self._keys.know(self._database, [request.append for request in requests])
        planned: list[Request] = []
        odd: list[Request] = []
        heads: dict[int, int] = {}
        marks: dict[int, tuple[int, int]] = {}
        waits: set[int] = set()
        for request in requests:
            append = request.append
            if (damage := damage_of(append, damages)) is not None:
                request.refuse(damage)
                continue
            request.stream = stream = self._keys.streams[append.stream_id]
            if stream.key in waits:
                continue
            if any(place.stream == stream.key and place.expected != stream.head for place in request.lost):
                waits.add(stream.key)  # it has moved since the look: what was lost may have come in, and is looked for again
                continue
            head = heads.get(stream.key, stream.head)
            goes_on = append.expected_seq is None or append.expected_seq == head
            producer = append.producer
            if producer is not None:
                request.known = known = self._keys.producers[stream.key, producer.id]
                goes_on = goes_on and known.goes_on_with(producer, marks.get(known.key))
            if not goes_on:
                odd.append(request)
                waits.add(stream.key)
                continue
            request.last = heads[stream.key] = head + request.n
            if producer is not None and request.known is not None:
                marks[request.known.key] = (producer.epoch, producer.seq)
            planned.append(request)
        return planned, odd

    async def _insert(self, planned: Sequence[Request]) -> set[int]:
        """The keys of the streams that were moved. Raises what the driver raises."""
        if not planned:
            return set()
        async with self._database.connected() as connection:
            if self._connects != self._database.connects:  # what was planned may be of another server
                return set()
            places, arguments = self._arguments(planned)
            self._database.trips += 1
            is_lost = True  # until its outcome is told
            try:
                with self._database.own_changes.drawing() as note:
                    moved = await connection.fetch(self._text, *arguments)
                    if moved:
                        note(moved[0][1])
                is_lost = False
            except FAILURES as error:
                is_lost = is_gone(error)
                raise
            finally:
                if is_lost:
                    for request, place in zip(planned, places, strict=True):
                        request.lost, request.lost_since = request.lost | {place}, request.lost_since or time.monotonic()
        return {key for key, _ in moved}

    def _arguments(self, planned: Sequence[Request]) -> tuple[list[Place], list[Any]]:
        """Where each goes, and what the statement is given."""
        at = self._clock_ms()
        moves: dict[int, list[int]] = {}
        marks: dict[int, list[int]] = {}
        rows: list[tuple[Any, ...]] = []
        for request in planned:
            append, stream, last = request.append, request.stream, request.last
            assert stream is not None
            moves.setdefault(stream.key, [last - request.n, last])[1] = last
            crc = checksum(append_place(append.stream_id, last, at, request.name), request.data)
            rows.append((stream.key, last, request.n, request.name, crc, request.data))
            producer, known = append.producer, request.known
            if producer is not None and known is not None:
                mark = marks.setdefault(known.key, [stream.key, producer.epoch, producer.seq, 0, 0, 0, 0])
                mark[3:] = [producer.epoch, producer.seq, last - request.n + 1, last]
        keys, lasts, sizes, names, crcs, datas = zip(*rows, strict=True)
        columns = list(zip(*[(mark[0], key, *mark[1:]) for key, mark in marks.items()], strict=True)) or [()] * 8
        heads = [head for head, _ in moves.values()]
        places = [Place(key, moves[key][0], last) for key, last in zip(keys, lasts, strict=True)]
        moved = (list(moves), heads, [last for _, last in moves.values()])
        return places, [*moved, keys, lasts, at, sizes, names, crcs, datas, *columns]

    def _answer(self, planned: Iterable[Request], moved: set[int]) -> None:
        for request in planned:
            stream, producer = request.stream, request.append.producer
            assert stream is not None
            if stream.key in moved:
                stream.head = max(stream.head, request.last)
                if producer is not None and request.known is not None:
                    request.known.note(producer)
                request.accept()
                self._stored(request.append.stream_id)
            else:
                self._keys.forget([request.append.stream_id])

    async def _look_for(self, requests: Sequence[Request]) -> None:
        """Answers those whose rows are there, and forgets the places where they can't come any more.

        Raises what the driver raises.
        """
        asked = [(request, place) for request in requests for place in request.lost]
        if not asked:
            return
        async with self._database.connected() as connection:
            self._database.trips += 1
            found = await connection.fetch(
                STORED, [place.stream for _, place in asked], [place.last for _, place in asked],
                [request.name for request, _ in asked],
            )  # fmt: skip
        self._keys.forget(request.append.stream_id for request in requests)
        for (request, place), (head, floor, is_there) in zip(asked, found, strict=True):
            if is_there:
                request.last = place.last
                request.accept()
                self._stored(request.append.stream_id)
            elif head != place.expected:
                if floor >= place.last and request.append.producer is None and not request.append.named:
                    request.refuse(StoreUnreachable(self._database.path, _SWEPT))
                request.lost -= {place}

    async def _explain(self, request: Request) -> None:
        """Answers what does not go on as things stand now; nothing, where it would go in, or may be on its way."""
        append = request.append
        await self._look_for([request])
        if request.lost and time.monotonic() - request.lost_since > PATIENCE_S:
            request.refuse(StoreUnreachable(self._database.path, _UNKNOWN))
        if request.lost or request.answer.done():
            return
        self._keys.forget([append.stream_id])
        damages = await self._keys.know(self._database, [append])
        try:
            if (damage := damage_of(append, damages)) is not None:
                raise damage
            stream = self._keys.streams[append.stream_id]
            watermark = None
            if append.producer is not None:
                watermark = await read_watermark(self._database.ask, append.stream_id, append.producer.id)
            earlier = await self._find_earlier(append, stream)
            answer = admit(append, head=stream.head, watermark=watermark, earlier=earlier)
        except StreamError as refusal:
            request.refuse(refusal)
        else:
            if answer is not None:
                request.settle(answer)

    async def _find_earlier(self, append: Append, stream: Stream) -> AppendResult | None:
        """The first answer of a named append, as long as its events are there."""
        if not append.named or append.expected_seq is None or append.expected_seq < stream.floor:
            return None
        last = append.expected_seq + len(append.events)
        found = await self._database.ask(EARLIER, (stream.key, last, append.aid))
        return AppendResult(append.expected_seq + 1, last) if found else None

    def _refusal(self, request: Request, error: BaseException) -> StreamError:
        if request.lost:
            return StoreUnreachable(self._database.path, _UNKNOWN)
        if isinstance(error, UniqueViolationError):
            return CorruptEvent(request.append.stream_id, request.last, "it lies beyond the head")
        if is_again(error):
            return StoreBusy(f"{self._database.path}: others were in the way for {PATIENCE_S:.0f} s: try again")
        return translate(error, self._database.path)
