"""Which statements store what waits: small appends of many streams go into one row, any other into a row of its own."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stream.admission import Append
from stream.records import AppendResult
from stream.sqlite.batches import MAX_DATA_BYTES, MAX_LAST, has_room, pack_batch, pack_mark
from stream.sqlite.key_cache import Stream
from stream.tables.chunks import append_place, checksum
from stream.tables.known_producers import Known

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from stream.database import Row, Sql
    from stream.sqlite.batches import Unplaced
    from stream.sqlite.key_cache import KeyCache

MIN_BATCH: Final = 8
"""Fewer appends at once are rows of their own: a batch would gain little, and must be packed soon."""

_MAX_BYTES_OF_A_STREAM: Final = 20_000
"""As an event takes five bytes and more, these are no more than fit in one chunk."""

_CLOSED: Final = _MAX_BYTES_OF_A_STREAM + 1
_INSERT_BATCH: Final = "INSERT INTO batches (heads, marks, places, again, data) VALUES (?, ?, ?, ?, ?) RETURNING pos"
_INSERT_ROWS: Final = "INSERT INTO appends (stream, last, n, at, append_id, producer, epoch, producer_seq, crc, data) VALUES "
_NO_STREAM: Final = Stream("", 0, 0, 0, 0)
_NO_PRODUCER: Final = Known(0, None, None)
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Request(msgspec.Struct, eq=False):
    """An append that waits for its answer, and its `data` as it is stored.

    `stream`, `known` (of its producer), `first` and `last` are told by what plans it.
    """

    append: Append
    data: bytes
    answer: asyncio.Future[AppendResult]
    stream: Stream = _NO_STREAM
    known: Known = _NO_PRODUCER
    first: int = 0
    last: int = 0
    is_stored: bool = False
    is_passed_over: bool = False
    is_stale: bool = False
    tries: int = 0

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
        producer, expected, n = append.producer, append.expected_seq, len(append.events)
        request.stream = stream = streams[append.stream_id]
        key, head = stream.key, stream.head
        goes_on = True
        if expected is not None:
            goes_on, head = expected == head, expected
        request.first, request.last = head + 1, (last := head + n)
        if producer is not None:
            known = request.known = keys.producers[key, producer.id]
            goes_on = goes_on and known.goes_on_with(producer)
            if goes_on:
                known.epoch, known.seq = producer.epoch, producer.seq
        if goes_on:
            stream.head = last
        size_bytes = len(data)
        of_stream = sizes.get(key, 0) + size_bytes
        if (
            goes_on
            and size_bytes <= MAX_DATA_BYTES
            and last < MAX_LAST
            and of_stream <= _MAX_BYTES_OF_A_STREAM
            and (producer is None or has_room(producer))
        ):
            joined.append(request)
            placed.append((key, append.stream_id, last, n, append.aid, data))
            sizes[key] = of_stream
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
