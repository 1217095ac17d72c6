"""The append path: whatever waits goes into one statement, and the schema says which rows went in.

An append is a row of a multi-row INSERT in autocommit: one commit for all, and nothing that a cancelled caller
could split. Rows are matched by append id, never by place. Without an expectation an append is chained behind the
head this process knows, and tried again where another process was faster.

Each batch is one trip to SQLite's thread, with no task in between. While it is stored there, this thread answers the one
before and takes what its callers append next. What was not stored at once has a turn of the database's writer, which waits
for locks and asks why: an append of an unknown stream or producer, and one that was passed over.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from stream.admission import Append, admit
from stream.errors import CorruptEvent, StoreClosed, StreamError
from stream.records import AppendResult
from stream.sqlite.bounds import read_watermark
from stream.sqlite.chunks import append_place, checksum, holds_append, pack
from stream.sqlite.key_cache import KeyCache, Stream
from stream.sqlite.packing import Packer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stream.admission import Watermark
    from stream.database import Row, Sql
    from stream.sqlite.database import Database
    from stream.sqlite.trips import Busy, Trip

_MAX_ROWS: Final = 512
_MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
_MAX_ON_THEIR_WAY: Final = 2  # batches: while one is stored the next one waits there already
_YIELD_ROWS: Final = 16
_YIELD_S: Final = 30e-6  # SQLite's thread needs the interpreter to begin; without this it waits until this one is idle
_INSERT: Final = "INSERT INTO appends (stream, last, n, at, aid, producer, epoch, pseq, crc, data) VALUES "
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EARLIER: Final = "SELECT n FROM appends WHERE stream = ? AND last = ? AND aid = ?"
_EARLIER_CHUNK: Final = "SELECT last, n, crc, data FROM chunks WHERE stream = ? AND last >= ? ORDER BY last LIMIT 1"


class Appender:
    """Collects appends and stores them in batches, in turns of the database's writer."""

    def __init__(self, database: Database, clock_ms: Callable[[], int], stored: Callable[[str], None]) -> None:
        self._database = database
        self._clock_ms = clock_ms
        self._stored = stored
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Request] = deque()
        self._again: list[_Request] = []
        self._on_their_way = 0
        self._is_planned = self._is_held = False
        self._is_alone = True
        self._keys = KeyCache()
        self._packer = Packer(database)
        self._texts: dict[int, str] = {}

    async def append(self, append: Append) -> AppendResult:
        """Returns when the append is durable, or raises why it was refused."""
        request = _Request(append)
        self._waiting.append(request)
        if not self._is_planned:
            if self._is_alone and not self._on_their_way:
                self._flush()
            else:  # who appends in the same round of the loop goes with it
                self._is_planned = True
                self._loop.call_soon(self._flush)
        return await request.answer

    def _flush(self) -> None:
        """Hands what waits to SQLite's thread, one batch behind the other; what can't go so has a turn of the writer."""
        self._is_planned = False
        while self._waiting and self._on_their_way < _MAX_ON_THEIR_WAY and not self._is_held:
            batch = self._take()
            if not batch:
                return
            self._is_alone = len(batch) == 1
            self._keys.trim()
            if self._database.is_idle and self._keys.has_all(request.append for request in batch):
                self._post(batch)
            else:
                self._waiting.extendleft(reversed(batch))
                self._hold()
                return
            if len(batch) >= _YIELD_ROWS:
                time.sleep(_YIELD_S)

    def _post(self, batch: list[_Request]) -> None:
        text, values = self._text(len(batch)), self._values(batch, self._clock_ms())
        heads = {request.stream: request.last for request in batch}

        async def job(sql: Sql) -> list[Row]:
            return await sql(text, values)

        self._database.post(job, lambda told: self._land(batch, told))
        self._on_their_way += 1
        for stream, last in heads.items():  # what comes next goes on from here; where this fails, the schema refuses that
            stream.head = max(stream.head, last)

    def _land(self, batch: list[_Request], told: list[Row] | Busy | BaseException) -> None:
        """Answers what was stored; the others wait for a turn, behind those that were handed over before them."""
        self._on_their_way -= 1
        if isinstance(told, list):
            self._note(batch, told)
            self._answer(batch)
            for request in batch:
                request.is_passed_over = not request.is_stored
        elif isinstance(told, BaseException) and (len(batch) == 1 or not isinstance(told, StreamError)):
            _refuse(batch, told)
        self._again += [request for request in batch if not (request.is_stored or request.answer.done())]
        self._packer.pack_due()
        if self._again:
            if not self._on_their_way:
                self._waiting.extendleft(reversed(self._again))
                self._again.clear()
                self._hold()
        elif self._waiting:
            self._flush()

    def _answer(self, batch: list[_Request]) -> None:
        """Callers that append in step: half of them first, so that something is stored while the others are answered."""
        half = len(batch) // 2
        if half >= _YIELD_ROWS // 2 and not self._on_their_way and len(self._waiting) < half:
            self._accept(batch[:half])
            self._loop.call_soon(self._accept, batch[half:])
        else:
            self._accept(batch)

    def _hold(self) -> None:
        """Asks for a turn of the writer: until it is over nothing else is handed over."""
        if not self._is_held:
            self._is_held = True
            self._database.hold(self._take_turn).add_done_callback(self._end_turn)

    def _end_turn(self, turn: asyncio.Future[None]) -> None:
        self._is_held = False
        error = asyncio.CancelledError() if turn.cancelled() else turn.exception()
        if error is not None:  # a closed database takes no batch: nobody may wait for ever
            _refuse(self._waiting, error)
            self._waiting.clear()
        self._packer.pack_due()
        if self._waiting:
            self._flush()

    async def _take_turn(self, trip: Trip) -> None:
        batch = self._take()
        passed_over = list(itertools.takewhile(lambda request: request.is_passed_over, batch))
        try:
            if passed_over:  # why, was not asked yet
                self._waiting.extendleft(reversed(batch[len(passed_over) :]))
                batch = passed_over
            await self._store(trip, batch)
        except BaseException:
            _refuse(batch, StoreClosed("the store was closed while this was appended: outcome unknown"))
            raise
        self._accept(batch)

    def _take(self) -> list[_Request]:
        batch: list[_Request] = []
        size_bytes = 0
        while self._waiting and len(batch) < _MAX_ROWS and size_bytes < _MAX_BATCH_BYTES:
            request = self._waiting.popleft()
            if not request.answer.done():  # a caller that is gone before anything was begun: absent
                batch.append(request)
                size_bytes += len(request.data)
        return batch

    def _accept(self, batch: Iterable[_Request]) -> None:
        for request in batch:
            if request.is_stored and not request.answer.done():
                request.answer.set_result(AppendResult(request.first, request.last))

    async def _store(self, trip: Trip, batch: list[_Request]) -> None:
        """Afterwards each request is stored, answered, or waiting again before all others."""
        try:
            if (batch and batch[0].is_passed_over) or not await self._insert(trip, batch):
                await self._sort_out(trip, batch)
        except Exception as error:  # noqa: BLE001 - it is the callers'
            if isinstance(error, StreamError) and len(batch) > 1:
                await self._store_singly(trip, [request for request in batch if not request.is_stored])
            else:
                _refuse((request for request in batch if not request.is_stored), error)

    async def _store_singly(self, trip: Trip, batch: list[_Request]) -> None:
        """One bad row fails the statement for all: each alone, so that its fault hits its own caller."""
        for index, request in enumerate(batch):
            await self._store(trip, [request])
            if not request.is_stored and not request.answer.done():  # it waits again, so those behind it do
                self._waiting.popleft()
                self._waiting.extendleft(reversed(batch[index:]))
                return

    async def _insert(self, trip: Trip, batch: list[_Request]) -> bool:
        """One statement for the batch; whether all of it was stored."""
        self._keys.trim()
        at = self._clock_ms()

        async def job(sql: Sql) -> list[Row]:
            for request in batch:
                await self._keys.know(sql, request.append)
            return await sql(self._text(len(batch)), self._values(batch, at))

        rows = await trip(job)
        self._note(batch, rows)
        return len(rows) == len(batch)

    def _note(self, batch: list[_Request], rows: list[Row]) -> None:
        stored = {row[0] for row in rows}
        for request in batch:
            if request.append.aid in stored:
                request.is_stored = True
                request.stream.head = max(request.stream.head, request.last)
                self._stored(request.append.stream_id)
                self._packer.count(request.stream)

    def _values(self, batch: list[_Request], at: int) -> list[Any]:
        """The rows of the batch, as the streams were last seen, which are known."""
        known, heads = self._keys.streams, dict[int, int]()
        values: list[Any] = []
        for request in batch:
            append, producer = request.append, request.append.producer
            stream = known[append.stream_id]
            key, head = stream.key, heads.get(stream.key, stream.head)
            first = (head if append.expected_seq is None else append.expected_seq) + 1
            last = first + len(append.events) - 1
            request.stream, request.first, request.last = stream, first, last
            if first == head + 1:
                heads[key] = last
            values += (key, last, len(append.events), at, append.aid)
            if producer is None:
                values += (None, None, None)
            else:
                values += (self._keys.producers[key, producer.id], producer.epoch, producer.seq)
            values += (checksum(append_place(append.stream_id, last, at, append.aid), request.data), request.data)
        return values

    def _text(self, rows: int) -> str:
        """One text for each size of batch, so that SQLite keeps it prepared."""
        text = self._texts.get(rows)
        if text is None:
            text = self._texts[rows] = _INSERT + ", ".join([_ROW] * rows) + " RETURNING aid"
        return text

    async def _sort_out(self, trip: Trip, batch: list[_Request]) -> None:
        again: list[_Request] = []
        behind: set[tuple[str, str]] = set()  # producers whose earlier append is tried again: the later one waits for it
        self._accept(batch)  # first of all: what is stored is acknowledged, whatever becomes of the others
        for request in batch:
            if request.is_stored:
                continue
            producer = request.append.producer
            place = (request.append.stream_id, producer.id if producer else "")
            try:
                if (producer and place in behind) or not await self._explain(trip, request):
                    again.append(request)
                    behind.add(place)
            except StreamError as error:
                request.refuse(error)
        self._waiting.extendleft(reversed(again))

    async def _explain(self, trip: Trip, request: _Request) -> bool:
        """Answers a request whose row was passed over; False if it would go in now and is to be tried again."""
        append = request.append
        stream, watermark, earlier = await trip(lambda sql: self._look(sql, append))
        try:
            answer = admit(append, head=stream.head, watermark=watermark, earlier=earlier)
        except StreamError as refusal:
            request.refuse(refusal)
            return True
        if answer is not None:
            request.settle(answer)
            return True
        request.tries += 1
        request.is_passed_over = False
        if request.tries > 1 and append.expected_seq is not None:  # the schema refuses what it ought to take
            raise CorruptEvent(append.stream_id, stream.head + 1, "the tables of the log disagree with each other")
        return False

    async def _look(self, sql: Sql, append: Append) -> tuple[Stream, Watermark | None, AppendResult | None]:
        stream = await self._keys.look_up_stream(sql, append.stream_id)
        watermark = await read_watermark(sql, append.stream_id, append.producer.id) if append.producer else None
        return stream, watermark, await _find_earlier(sql, append, stream)


async def _find_earlier(sql: Sql, append: Append, stream: Stream) -> AppendResult | None:
    """The first answer of a named append, as long as its events are there."""
    if not append.named or append.expected_seq is None or append.expected_seq < stream.floor:
        return None
    count = len(append.events)
    last = append.expected_seq + count
    found = bool(await sql(_EARLIER, (stream.key, last, append.aid)))
    if not found:
        chunks = await sql(_EARLIER_CHUNK, (stream.key, last))
        found = bool(chunks) and holds_append(append.stream_id, chunks[0], last, count, append.aid)
    return AppendResult(append.expected_seq + 1, last) if found else None


def _refuse(requests: Iterable[_Request], error: BaseException) -> None:
    for request in requests:
        request.refuse(error)


class _Request:
    __slots__ = ("answer", "append", "data", "first", "is_passed_over", "is_stored", "last", "stream", "tries")

    def __init__(self, append: Append) -> None:
        self.append = append
        self.data = pack(append.events)
        self.answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.stream: Stream
        self.first = self.last = 0
        self.is_stored = self.is_passed_over = False
        self.tries = 0

    def settle(self, answer: AppendResult) -> None:
        if not self.answer.done():  # the caller was cancelled; what is stored stays stored
            self.answer.set_result(answer)

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
