"""The append path: whatever waits goes into one statement, and the schema says which rows went in.

An append is a row of a multi-row INSERT in autocommit: one commit for all, and nothing that a cancelled caller
could split. Rows are matched by append id, never by place. Without an expectation an append is chained behind the
head this process knows, and tried again where another process was faster.

Each batch is one trip to SQLite's thread. While it is stored there, this thread answers the one before and takes what
its callers append next.
"""

from __future__ import annotations

import asyncio
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
    from collections.abc import Callable, Coroutine, Iterable

    from stream.admission import Watermark
    from stream.database import Row, Sql
    from stream.sqlite.database import Database
    from stream.sqlite.trips import Trip

_MAX_ROWS: Final = 512
_MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
_MAX_CHAIN: Final = 16  # batches in one turn of the writer, before other jobs have theirs
_YIELD_ROWS: Final = 16
_YIELD_S: Final = 30e-6  # SQLite's thread needs the interpreter to begin; without this it waits until this one is idle
_INSERT: Final = "INSERT INTO appends (stream, last, n, at, aid, producer, epoch, producer_seq, crc, data) VALUES "
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EARLIER: Final = "SELECT n FROM appends WHERE stream = ? AND last = ? AND aid = ?"
_EARLIER_CHUNK: Final = "SELECT last, n, crc, data FROM chunks WHERE stream = ? AND last >= ? ORDER BY last LIMIT 1"


class Appender:
    """Collects appends and stores them in batches, in turns of the database's writer."""

    def __init__(self, database: Database, clock_ms: Callable[[], int], stored: Callable[[str], None]) -> None:
        self._database = database
        self._clock_ms = clock_ms
        self._stored = stored
        self._waiting: deque[_Request] = deque()
        self._scheduled = False
        self._keys = KeyCache()
        self._packer = Packer(database)
        self._texts: dict[int, str] = {}

    async def append(self, append: Append) -> AppendResult:
        """Returns when the append is durable, or raises why it was refused."""
        request = _Request(append)
        self._waiting.append(request)
        if not self._scheduled:
            self._schedule()
        return await request.answer

    def _schedule(self) -> None:
        self._scheduled = True
        self._database.hold(self._take_turn).add_done_callback(self._end_turn)

    def _end_turn(self, turn: asyncio.Future[None]) -> None:
        self._scheduled = False
        error = asyncio.CancelledError() if turn.cancelled() else turn.exception()
        if error is not None:  # a closed database takes no batch: nobody may wait for ever
            _refuse(self._waiting, error)
            self._waiting.clear()
        self._packer.pack_due()
        if self._waiting:
            self._schedule()

    async def _take_turn(self, trip: Trip) -> None:
        batch = self._take()
        if not batch:
            return
        storing: Coroutine[Any, Any, None] | asyncio.Task[None] = self._store(trip, batch)
        try:
            for _ in range(_MAX_CHAIN - 1):
                await storing
                landed = batch
                try:
                    await self._let_half_go_on(landed)
                    batch = self._take()
                    if not batch:
                        return
                    storing = asyncio.create_task(self._store(trip, batch))
                    await asyncio.sleep(0)  # lets it begin
                    if len(batch) >= _YIELD_ROWS:
                        time.sleep(_YIELD_S)  # noqa: ASYNC251 - shorter than any other task takes
                finally:
                    self._accept(landed)
            await storing
            self._accept(batch)
        except BaseException:
            if isinstance(storing, asyncio.Task):
                storing.cancel()
            _refuse(batch, StoreClosed("the store was closed while this was appended: outcome unknown"))
            raise

    def _take(self) -> list[_Request]:
        batch: list[_Request] = []
        size_bytes = 0
        while self._waiting and len(batch) < _MAX_ROWS and size_bytes < _MAX_BATCH_BYTES:
            request = self._waiting.popleft()
            if not request.answer.done():  # a caller that is gone before anything was begun: absent
                batch.append(request)
                size_bytes += len(request.data)
        return batch

    async def _let_half_go_on(self, landed: list[_Request]) -> None:
        """Callers that append in step: half of them first, so that something is stored while the others are answered."""
        half = len(landed) // 2
        if len(self._waiting) < half:
            self._accept(landed[:half])
            await asyncio.sleep(0)

    def _accept(self, batch: Iterable[_Request]) -> None:
        for request in batch:
            if request.is_stored and not request.answer.done():
                request.answer.set_result(AppendResult(request.first, request.last))

    async def _store(self, trip: Trip, batch: list[_Request]) -> None:
        """Afterwards each request is stored, answered, or waiting again before all others."""
        try:
            if not await self._insert(trip, batch):
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
        values, text = self._values(batch, at), self._text(len(batch))
        if values is None:
            rows = await trip(lambda sql: self._know_and_insert(sql, text, batch, at))
        else:
            rows = await trip(lambda sql: sql(text, values))
        stored = {row[0] for row in rows}
        for request in batch:
            if request.append.aid in stored:
                request.is_stored = True
                request.stream.head = request.last
                self._stored(request.append.stream_id)
                self._packer.count(request.stream)
        return len(rows) == len(batch)

    async def _know_and_insert(self, sql: Sql, text: str, batch: list[_Request], at: int) -> list[Row]:
        for request in batch:
            await self._keys.know(sql, request.append)
        values = self._values(batch, at)
        assert values is not None
        return await sql(text, values)

    def _values(self, batch: list[_Request], at: int) -> list[Any] | None:
        """The rows of the batch, as the streams were last seen; None if a stream or a producer is not known yet."""
        known, heads = self._keys.streams, dict[int, int]()
        values: list[Any] = []
        for request in batch:
            append, producer = request.append, request.append.producer
            stream = known.get(append.stream_id)
            if stream is None:
                return None
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
                known_key = self._keys.producers.get((key, producer.id))
                if known_key is None:
                    return None
                values += (known_key, producer.epoch, producer.seq)
            values += (checksum(append_place(append.stream_id, last, at, append.aid), request.data), request.data)
        return values

    def _text(self, rows: int) -> str:
        """One text for each size of batch, so that SQLite keeps it prepared."""
        text = self._texts.get(rows)
        if text is None:
            text = self._texts[rows] = _INSERT + ", ".join([_ROW] * rows) + " RETURNING aid"
        return text

    async def _sort_out(self, trip: Trip, batch: list[_Request]) -> None:
        again = []
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
        request.passed_over += 1
        if request.passed_over > 1 and append.expected_seq is not None:  # the schema refuses what it ought to take
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
    __slots__ = ("answer", "append", "data", "first", "is_stored", "last", "passed_over", "stream")

    def __init__(self, append: Append) -> None:
        self.append = append
        self.data = pack(append.events)
        self.answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.stream: Stream
        self.first = self.last = 0
        self.is_stored = False
        self.passed_over = 0

    def settle(self, answer: AppendResult) -> None:
        if not self.answer.done():  # the caller was cancelled; what is stored stays stored
            self.answer.set_result(answer)

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
