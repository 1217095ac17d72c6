"""Which statements store what waits: small appends of many streams go into one row, any other into a row of its own."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from stream.sqlite.batches import Mark, fits, pack_batch
from stream.sqlite.chunks import append_place, checksum, pack

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from stream.admission import Append
    from stream.database import Row
    from stream.records import AppendResult
    from stream.sqlite.key_cache import KeyCache, Known, Stream

MIN_BATCH: Final = 8
"""Fewer appends at once are rows of their own: a batch would gain little, and must be packed soon."""

_MAX_OF_A_STREAM: Final = 4_000  # events: with its bytes what fits in one chunk
_MAX_BYTES_OF_A_STREAM: Final = 32 * 1024
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

    def note(self, rows: Sequence[Row]) -> None:
        """Marks what was stored by what the statement returned; of the others what has to be looked at."""
        if self.is_batch:
            for request in self.requests:
                request.is_stored = bool(rows)
                request.is_stale = not rows
        else:
            stored = {row[0] for row in rows}
            for request in self.requests:
                request.is_stored = request.append.aid in stored
                request.is_passed_over = not request.is_stored


def plan_inserts(requests: Sequence[Request], keys: KeyCache, at: int, *, together: bool = True) -> list[Insert]:
    """The statements for these, as their streams were last seen, which are known; to be run in this order.

    Unless `together` each has a row of its own. What `keys` has of them afterwards is how they will be if all of it is stored.
    """
    joined: list[Request] = []
    alone: list[Request] = []
    marks: list[Mark] = []
    parts: dict[int, _Part] = {}
    streams = keys.streams
    for request in requests:
        append = request.append
        producer, n, stream = append.producer, len(append.events), streams[append.stream_id]
        head = stream.head if append.expected_seq is None else append.expected_seq
        request.stream, request.first, request.last = stream, head + 1, head + n
        goes_on, mark = head == stream.head, None
        if producer is not None:
            known = request.known = keys.producers[stream.key, producer.id]
            goes_on = goes_on and known.goes_on_with(producer)
            mark = Mark(known.key, producer.epoch, producer.seq, n)
            if goes_on:
                known.epoch, known.seq = producer.epoch, producer.seq
        if goes_on:
            stream.head = request.last
        size_bytes = len(request.data)
        part = parts.get(stream.key)
        if part is None:  # as a rule
            part = parts[stream.key] = _Part()
        if goes_on and part.takes(n, size_bytes) and fits(request.last, n, size_bytes, mark):
            joined.append(request)
            if mark is not None:
                marks.append(mark)
                part.is_closed = True  # a mark is of the last append of its stream
        else:
            alone.append(request)
            part.is_closed = True
    if not together or len(joined) < MIN_BATCH:
        return [_insert_rows(requests, at)]
    inserts = [_insert_batch(joined, marks, at)]
    return [*inserts, _insert_rows(alone, at)] if alone else inserts


class _Part:
    """What a batch holds of one stream; nothing more once it is closed."""

    __slots__ = ("events", "is_closed", "size_bytes")

    def __init__(self) -> None:
        self.events = self.size_bytes = 0
        self.is_closed = False

    def takes(self, n: int, size_bytes: int) -> bool:
        self.events += n
        self.size_bytes += size_bytes
        return not self.is_closed and self.events <= _MAX_OF_A_STREAM and self.size_bytes <= _MAX_BYTES_OF_A_STREAM


def _insert_batch(requests: list[Request], marks: Sequence[Mark], at: int) -> Insert:
    appends = [
        (
            request.stream.key,
            request.stream.name,
            request.last,
            request.last - request.first + 1,
            request.append.aid,
            request.data,
        )
        for request in requests
    ]
    return Insert(requests, _INSERT_BATCH, pack_batch(at, appends, marks), is_batch=True)


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
