"""Which statements store what waits: small appends of many streams go into one row, any other into a row of its own."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from stream.records import AppendResult
from stream.sqlite.batches import fits, pack_batch, pack_mark
from stream.sqlite.chunks import append_place, checksum, pack

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Sequence

    from stream.admission import Append
    from stream.database import Row, Sql
    from stream.sqlite.batches import Unplaced
    from stream.sqlite.key_cache import KeyCache, Known, Stream

MIN_BATCH: Final = 8
"""Fewer appends at once are rows of their own: a batch would gain little, and must be packed soon."""

_MAX_BYTES_OF_A_STREAM: Final = 20_000
"""As an event takes five bytes and more, these are no more than fit in one chunk."""

_CLOSED: Final = _MAX_BYTES_OF_A_STREAM + 1
_INSERT_BATCH: Final = "INSERT INTO batches (heads, marks, places, again, data) VALUES (?, ?, ?, ?, ?) RETURNING pos"
_INSERT_ROWS: Final = "INSERT INTO appends (stream, last, n, at, append_id, producer, epoch, producer_seq, crc, data) VALUES "
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Request:
    """An append that waits for its answer."""

    __slots__ = ("answer", "append", "data", "first", "is_passed_over", "is_stale", "is_stored", "known", "last", "stream",
        "tries")  # fmt: skip

    def __init__(self, append: Append, answer: asyncio.Future[AppendResult]) -> None:
        self.append = append
        self.data = pack(append.events)
        self.answer = answer
        self.stream: Stream
        self.known: Known
        self.first = self.last = 0
        self.is_stored = self.is_passed_over = self.is_stale = False
        self.tries = 0

    def accept(self) -> None:
        """Answers it as stored; whoever was cancelled needs no answer. Its stream and its producer are at least so far."""
        self.is_stored = True
        stream, last, producer = self.stream, self.last, self.append.producer
        stream.head = max(stream.head, last)
        if producer is not None:
            self.known.note(producer)
        if not self.answer.done():
            self.answer.set_result(AppendResult(self.first, last))

    def settle(self, answer: AppendResult) -> None:
        """Answers it, unless its caller was cancelled; what is stored stays stored."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, error: BaseException) -> None:
        """As `settle`, with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Insert:
    """One statement, and the requests that it stores; as a batch all of them or none."""

    __slots__ = ("is_batch", "requests", "text", "values")

    def __init__(self, requests: list[Request], text: str, values: Sequence[Any], *, is_batch: bool) -> None:
        self.requests, self.text, self.values, self.is_batch = requests, text, values, is_batch

    def run(self, sql: Sql) -> Awaitable[list[Row]]:
        """The job that it is."""
        return sql(self.text, self.values)

    def stored(self, rows: Sequence[Row]) -> list[Request]:
        """Those that the statement stored, by what it returned; of the others is marked what has to be looked at."""
        if self.is_batch:
            if rows:
                return self.requests
            for request in self.requests:
                request.is_stale = True
            return []
        names = {row[0] for row in rows}
        for request in self.requests:
            request.is_passed_over = request.append.aid not in names
        return [request for request in self.requests if not request.is_passed_over]


def plan_inserts(requests: Sequence[Request], keys: KeyCache, at: int, *, together: bool = True) -> list[Insert]:
    """The statements for these, as their streams were last seen, which are known; to be run in this order.

    Unless `together` each has a row of its own. What `keys` has of them afterwards is how they will be if all of it is stored.
    """
    joined: list[Request] = []
    alone: list[Request] = []
    placed: list[Unplaced] = []
    marks: dict[int, int] = {}
    sizes: dict[int, int] = {}  # of each stream, what the batch holds; nothing more once it is closed
    streams = keys.streams
    for request in requests:
        append, data = request.append, request.data
        producer, n, stream = append.producer, len(append.events), streams[append.stream_id]
        key, head = stream.key, stream.head
        goes_on = True
        if append.expected_seq is not None:
            goes_on, head = append.expected_seq == head, append.expected_seq
        request.stream, request.first = stream, head + 1
        request.last = last = head + n
        if producer is not None:
            known = request.known = keys.producers[key, producer.id]
            goes_on = goes_on and known.goes_on_with(producer)
            if goes_on:
                known.epoch, known.seq = producer.epoch, producer.seq
        if goes_on:
            stream.head = last
        size_bytes = sizes.get(key, 0) + len(data)
        if goes_on and size_bytes <= _MAX_BYTES_OF_A_STREAM and fits(last, len(data), producer):
            joined.append(request)
            placed.append((key, append.stream_id, last, n, append.aid, data))
            sizes[key] = size_bytes
            if producer is not None:
                marks[request.known.key] = pack_mark(producer, n)
                sizes[key] = _CLOSED  # a mark is of the last append of its stream
        else:
            alone.append(request)
            sizes[key] = _CLOSED
    if not together or len(joined) < MIN_BATCH:
        return [_insert_rows(requests, at)]
    inserts = [Insert(joined, _INSERT_BATCH, pack_batch(at, placed, marks), is_batch=True)]
    return [*inserts, _insert_rows(alone, at)] if alone else inserts


def _insert_rows(requests: Sequence[Request], at: int) -> Insert:
    values: list[Any] = []
    for request in requests:
        append, producer, last = request.append, request.append.producer, request.last
        values += (request.stream.key, last, len(append.events), at, append.aid)
        values += (None, None, None) if producer is None else (request.known.key, producer.epoch, producer.seq)
        values += (checksum(append_place(append.stream_id, last, at, append.aid), request.data), request.data)
    return Insert(list(requests), _text(len(requests)), values, is_batch=False)


@lru_cache(maxsize=1024)
def _text(rows: int) -> str:
    """One text for each size of batch, so that SQLite keeps it prepared."""
    return _INSERT_ROWS + ", ".join([_ROW] * rows) + " RETURNING append_id"
