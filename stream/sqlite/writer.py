"""The append path: whatever waits goes into one statement, and the schema says which rows went in.

An append is a row of a multi-row INSERT in autocommit: one commit for all, and nothing that a cancelled caller
could split. Rows are matched by append id, never by place. Without an expectation an append is chained behind the
head this process knows, and tried again where another process was faster.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from stream.admission import Append, Watermark, admit
from stream.errors import CorruptEvent, StoreClosed, StreamError
from stream.records import AppendResult
from stream.sqlite.chunks import checksum, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from stream.sqlite.database import Database, Sql

_MAX_ROWS: Final = 512
_MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
_MAX_CACHED_KEYS: Final = 50_000
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EARLIER: Final = "SELECT n FROM chunks WHERE stream = ? AND last = ? AND aid = ?"


class Writer:
    """Collects appends and stores them in batches, one job of the database's writer each."""

    def __init__(self, database: Database, clock_ms: Callable[[], int], stored: Callable[[str], None]) -> None:
        self._database = database
        self._clock_ms = clock_ms
        self._stored = stored
        self._waiting: deque[_Request] = deque()
        self._scheduled = False
        self._streams: dict[str, _Stream] = {}
        self._producers: dict[tuple[int, str], int] = {}

    async def append(self, append: Append) -> AppendResult:
        """Returns when the append is durable, or raises why it was refused."""
        request = _Request(append)
        self._waiting.append(request)
        self._schedule()
        return await request.answer

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._database.submit(self._store_batch).add_done_callback(self._fail_all)

    def _fail_all(self, batch: asyncio.Future[None]) -> None:
        """A closed database takes no batch: nobody may wait for ever."""
        error = asyncio.CancelledError() if batch.cancelled() else batch.exception()
        if error is not None:
            self._scheduled = False
            while self._waiting:
                self._waiting.popleft().refuse(error)

    async def _store_batch(self, sql: Sql) -> None:
        self._scheduled = False
        batch = self._take()
        try:
            await self._store(sql, batch)
        except Exception as error:  # noqa: BLE001 - it is the callers'
            for request in batch:
                request.refuse(error)
        except BaseException:
            for request in batch:
                request.refuse(StoreClosed("the store was closed while this was appended: outcome unknown"))
            raise
        if self._waiting:
            self._schedule()

    def _take(self) -> list[_Request]:
        batch: list[_Request] = []
        size_bytes = 0
        while self._waiting and len(batch) < _MAX_ROWS and size_bytes < _MAX_BATCH_BYTES:
            request = self._waiting.popleft()
            if not request.answer.done():  # a caller that is gone before anything was begun: absent
                batch.append(request)
                size_bytes += len(request.data)
        return batch

    async def _store(self, sql: Sql, batch: list[_Request]) -> None:
        try:
            stored = await self._insert(sql, batch)
        except StreamError:
            if len(batch) < 2:
                raise
            # One bad row fails the statement for all: each alone, so that its fault hits its own caller.
            for request in batch:
                try:
                    await self._store(sql, [request])
                except StreamError as own:
                    request.refuse(own)
            return
        await self._answer(sql, batch, stored)

    async def _answer(self, sql: Sql, batch: list[_Request], stored: set[bytes]) -> None:
        again = []
        behind: set[tuple[str, str]] = set()  # producers whose earlier append is tried again: the later one waits for it
        for request in batch:  # first of all: what is stored is acknowledged, whatever becomes of the others
            if request.append.aid in stored:
                request.accept()
                self._streams[request.append.stream_id].head = request.last
                self._stored(request.append.stream_id)
        for request in batch:
            if request.append.aid in stored:
                continue
            place = (request.append.stream_id, request.append.producer.id if request.append.producer else "")
            try:
                if (place[1] and place in behind) or not await self._explain(sql, request):
                    again.append(request)
                    behind.add(place)
            except StreamError as error:
                request.refuse(error)
        self._waiting.extendleft(reversed(again))

    async def _insert(self, sql: Sql, batch: list[_Request]) -> set[bytes]:
        if len(self._streams) + len(self._producers) > _MAX_CACHED_KEYS:
            self._streams.clear()
            self._producers.clear()
        heads: dict[int, int] = {}
        values: list[Any] = []
        at = self._clock_ms()
        for request in batch:
            append, producer = request.append, request.append.producer
            stream = self._streams.get(append.stream_id) or await self._know_stream(sql, append.stream_id)
            head = heads.get(stream.key, stream.head)
            request.first = (head if append.expected_seq is None else append.expected_seq) + 1
            if request.first == head + 1:
                heads[stream.key] = request.last
            key = producer and await self._know_producer(sql, stream.key, producer.id)
            values += (stream.key, request.last, len(append.events), at, append.aid)
            values += (key, producer.epoch, producer.seq) if producer else (None, None, None)
            values += (checksum(append.stream_id, request.last, request.data), request.data)
        text = "INSERT INTO chunks (stream, last, n, at, aid, producer, epoch, pseq, crc, data) VALUES "
        return {aid for (aid,) in await sql(text + ", ".join([_ROW] * len(batch)) + " RETURNING aid", values)}

    async def _explain(self, sql: Sql, request: _Request) -> bool:
        """Answers a request whose row was passed over; False if it would go in now and is to be tried again."""
        append, producer = request.append, request.append.producer
        stream = await self._know_stream(sql, append.stream_id)
        watermark = earlier = None
        if producer is not None:
            key = await self._know_producer(sql, stream.key, producer.id)
            [row] = await sql("SELECT epoch, seq, first, last FROM producers WHERE id = ?", (key,))
            watermark = None if row[0] is None else Watermark(*row)
        if append.named and append.expected_seq is not None and append.expected_seq >= stream.floor:
            last = append.expected_seq + len(append.events)
            if await sql(_EARLIER, (stream.key, last, append.aid)):
                earlier = AppendResult(append.expected_seq + 1, last)
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

    async def _know_stream(self, sql: Sql, name: str) -> _Stream:
        look = "SELECT id, head, floor FROM streams WHERE name = ?"
        rows = await sql(look, (name,))
        if not rows:
            await sql("INSERT INTO streams (name) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM streams WHERE name = ?1)", (name,))
            rows = await sql(look, (name,))
        stream = self._streams[name] = _Stream(*rows[0])
        return stream

    async def _know_producer(self, sql: Sql, stream: int, name: str) -> int:
        key = self._producers.get((stream, name))
        if key is None:
            look, place = "SELECT id FROM producers WHERE stream = ? AND name = ?", (stream, name)
            rows = await sql(look, place)
            if not rows:
                await sql(f"INSERT INTO producers (stream, name) SELECT ?1, ?2 WHERE NOT EXISTS ({look})", (*place, *place))
                rows = await sql(look, place)
            key = self._producers[stream, name] = int(rows[0][0])
        return key


class _Stream:
    """What this process last knew of a stream; only a starting point, the schema decides."""

    def __init__(self, key: int, head: int, floor: int) -> None:
        self.key, self.head, self.floor = key, head, floor


class _Request:
    def __init__(self, append: Append) -> None:
        self.append = append
        self.data = pack(append.events)
        self.answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.first = 0
        self.passed_over = 0

    @property
    def last(self) -> int:
        return self.first + len(self.append.events) - 1

    def accept(self) -> None:
        self.settle(AppendResult(self.first, self.last))

    def settle(self, answer: AppendResult) -> None:
        if not self.answer.done():  # the caller was cancelled; what is stored stays stored
            self.answer.set_result(answer)

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
