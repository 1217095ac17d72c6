"""The append path: whatever waits goes into one statement or two, and the schema says what went in.

An append is in autocommit, a row of its own or one of those that a row holds together: one commit for all, and nothing
that a cancelled caller could split. Rows are matched by append id, never by place. Without an expectation an append is
chained behind the head this process knows, and tried again where another process was faster.

Each statement is one trip to SQLite's thread, with no task in between. While it runs there, whatever is appended gathers
for the next one. What was not stored at once has a turn of the database's writer, which waits
for locks and asks why: an append of an unknown stream or producer, and one that was passed over. A turn comes behind all
that is on its way, so that nobody overtakes what met a lock there.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from stream.admission import Append, admit
from stream.errors import CorruptEvent, StoreClosed, StreamError
from stream.records import AppendResult
from stream.sqlite.batches import OF_STREAM, appends_of
from stream.sqlite.inserts import Insert, Request, plan_inserts
from stream.sqlite.key_cache import KeyCache, Stream
from stream.sqlite.packing import Packer
from stream.tables.bounds import read_watermark
from stream.tables.chunks import holds_append, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stream.admission import Watermark
    from stream.database import Row, Sql
    from stream.sqlite.database import Database
    from stream.sqlite.trips import Busy, Trip

_MAX_ROWS: Final = 512
_MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
_YIELD_ROWS: Final = 16
_YIELD_S: Final = 30e-6  # SQLite's thread needs the interpreter to begin; without this it waits until this one is idle
_EARLIER: Final = "SELECT n FROM appends WHERE stream = ? AND last = ? AND append_id = ?"
_EARLIER_CHUNK: Final = "SELECT last, n, crc, data FROM chunks WHERE stream = ? AND last >= ? ORDER BY last LIMIT 1"


class Appender:
    """Collects appends and stores them, those that wait together at once."""

    def __init__(self, database: Database, clock_ms: Callable[[], int], stored: Callable[[str], None], batches: int) -> None:
        self._database = database
        self._clock_ms = clock_ms
        self._stored = stored
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Request] = deque()
        self._again: list[Request] = []
        self._on_their_way = 0
        self._is_planned = self._is_held = False
        self._is_alone = False
        self._keys = KeyCache()
        self._packer = Packer(database, batches)

    def append(self, append: Append) -> asyncio.Future[AppendResult]:
        """Tells when the append is durable, or why it was refused."""
        answer: asyncio.Future[AppendResult] = self._loop.create_future()
        self._waiting.append(Request(append, pack(append.events), answer))
        if not self._is_planned:
            if self._is_alone and not self._on_their_way:
                self._flush()
            else:  # who appends in the same round of the loop goes with it
                self._is_planned = True
                self._loop.call_soon(self._flush)
        return answer

    def _flush(self) -> None:
        """Hands what waits to SQLite's thread, when nothing is there: two batches of half the size would be two commits.

        What can't go so has a turn of the writer; what is to be tried again goes first, however many come meanwhile.
        """
        self._is_planned = False
        if self._on_their_way or self._is_held:
            return
        batch = self._take()
        if not batch:
            return
        self._is_alone = len(batch) == 1
        self._keys.trim()
        ready = [request for request in batch if self._keys.has(request.append)] if self._database.is_idle else []
        if ready:
            self._post(ready)
        if len(ready) < len(batch):
            chosen = set(map(id, ready))
            self._waiting.extendleft(request for request in reversed(batch) if id(request) not in chosen)
            self._hold()

    async def close(self) -> None:
        """Stops what packs; appends are taken until the database is closed."""
        await self._packer.close()

    def _post(self, batch: list[Request]) -> None:
        for insert in plan_inserts(batch, self._keys, self._clock_ms()):
            self._on_their_way += 1
            self._database.post(insert.text, insert.values, partial(self._land, insert))
        if len(batch) >= _YIELD_ROWS:
            time.sleep(_YIELD_S)

    def _land(self, insert: Insert, told: list[Row] | Busy | BaseException) -> None:
        """Answers what was stored; the others wait for a turn, behind those that were handed over before them."""
        self._on_their_way -= 1
        batch = insert.requests
        if isinstance(told, list):
            self._accept(insert, told)
        elif isinstance(told, BaseException) and (len(batch) == 1 or not isinstance(told, StreamError)):
            _refuse(batch, told)
        else:
            for request in batch:
                request.is_stale = True
        self._again += [request for request in batch if not request.answer.done()]
        self._is_held = self._is_held or bool(self._again)
        self._packer.pack_due()
        if not self._is_held:
            if self._waiting and not self._is_planned:  # who was just answered, and appends again, goes with them
                self._is_planned = True
                self._loop.call_soon(self._flush)
        elif not self._on_their_way:
            self._waiting.extendleft(reversed(self._again))
            self._again.clear()
            self._ask_for_turn()

    def _hold(self) -> None:
        """Nothing else is handed over until a turn of the writer is over, which comes behind all that is on its way."""
        self._is_held = True
        if not self._on_their_way:
            self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        self._database.hold(self._take_turn).add_done_callback(self._end_turn)

    def _end_turn(self, turn: asyncio.Future[None]) -> None:
        self._is_held = False
        error = asyncio.CancelledError() if turn.cancelled() else turn.exception()
        if error is not None:  # a closed database takes no batch: nobody may wait for ever
            _refuse(self._waiting, error)
            self._waiting.clear()
        self._packer.pack_due()
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

    def _take(self) -> list[Request]:
        batch: list[Request] = []
        size_bytes = 0
        while self._waiting and len(batch) < _MAX_ROWS and size_bytes < _MAX_BATCH_BYTES:
            request = self._waiting.popleft()
            if not request.answer.done():  # a caller that is gone before anything was begun: absent
                batch.append(request)
                size_bytes += len(request.data)
        return batch

    def _accept(self, insert: Insert, rows: list[Row]) -> None:
        """Answers those that were stored; whoever was cancelled meanwhile needs none."""
        stored, wake = insert.stored(rows), self._stored
        for request in stored:
            request.accept()
            wake(request.append.stream_id)
        self._packer.count(insert, stored)

    async def _store(self, trip: Trip, batch: list[Request]) -> None:
        """Afterwards each request is stored, answered, or waiting again before all others."""
        try:
            if (batch and batch[0].is_passed_over) or not await self._insert(trip, batch):
                await self._sort_out(trip, batch)
        except Exception as error:  # noqa: BLE001 - it is the callers'
            for request in batch:  # what is remembered of its stream is as if it were stored
                request.is_stale = True
            if isinstance(error, StreamError) and len(batch) > 1:
                await self._store_singly(trip, [request for request in batch if not request.is_stored])
            else:
                _refuse((request for request in batch if not request.is_stored), error)

    async def _store_singly(self, trip: Trip, batch: list[Request]) -> None:
        """One bad row fails the statement for all: each alone, so that its fault hits its own caller."""
        for index, request in enumerate(batch):
            await self._store(trip, [request])
            if not request.is_stored and not request.answer.done():  # it waits again, so those behind it do
                self._waiting.popleft()
                self._waiting.extendleft(reversed(batch[index:]))
                return

    async def _insert(self, trip: Trip, batch: list[Request]) -> bool:
        """Whether all of the batch was stored."""
        self._keys.trim()
        at = self._clock_ms()

        left = batch
        while left:
            together = not any(request.is_stale for request in left)
            inserts, rows = await trip(partial(self._know_and_insert, left, at, together=together))
            self._accept(inserts[0], rows)
            for insert in inserts[1:]:
                self._accept(insert, await trip(insert.run))
            left = [request for request in left if request.is_stale] if together else []
        return all(request.is_stored for request in batch)

    async def _know_and_insert(
        self, batch: list[Request], at: int, sql: Sql, *, together: bool
    ) -> tuple[list[Insert], list[Row]]:
        """All statements of the batch, and what the first of them gave."""
        for request in batch:
            await (self._keys.look_again if request.is_stale else self._keys.know)(sql, request.append)
            request.is_stale = False
        inserts = plan_inserts(batch, self._keys, at, together=together)
        return inserts, await inserts[0].run(sql)

    async def _sort_out(self, trip: Trip, batch: list[Request]) -> None:
        again: list[Request] = []
        behind: set[tuple[str, str]] = set()  # producers whose earlier append is tried again: the later one waits for it
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

    async def _explain(self, trip: Trip, request: Request) -> bool:
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
        stream = await self._keys.look_again(sql, append)
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
    if not found:
        in_batches = appends_of(await sql(OF_STREAM, (append.stream_id,)))
        held = next((held for held in in_batches if held.last >= last), None)
        if held is not None:
            unpack(append.stream_id, held)
            found = (held.last, held.n, held.aid) == (last, count, append.aid)
    return AppendResult(append.expected_seq + 1, last) if found else None


def _refuse(requests: Iterable[Request], error: BaseException) -> None:
    for request in requests:
        request.refuse(error)
