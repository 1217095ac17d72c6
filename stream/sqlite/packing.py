"""Packs the appends of busy streams into chunks, so that the table that appends go to stays small.

An index that holds every append of every stream costs a page a stream and commit: most of what a log writes. So
appends go to a small table, and whenever a stream has some dozens of them they become one row of the large one. A
chunk replaces its appends in one statement, so a reader sees either them or it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any, Final

from stream.errors import CorruptEvent, StoreClosed
from stream.logger import Logger
from stream.sqlite.batch_packing import pack_prepared, prepare_batches
from stream.tables.chunks import MAX_CHUNK_BYTES, MAX_CHUNK_EVENTS, StoredAppend, checksum, chunk_place, compress, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stream.database import Row, Sql
    from stream.sqlite.batch_packing import Packed
    from stream.sqlite.database import Database
    from stream.sqlite.inserts import Insert, Request
    from stream.sqlite.key_cache import Stream

_LOG: Final = Logger("tailfold.stream")
_DUE_BATCHES: Final = 128  # the more at once, the fewer and larger rows, and the longer who reads their streams looks
_DUE_BYTES: Final = 8 * 1024 * 1024
_QUIET_BATCHES: Final = 32  # as many go, too, when nothing is appended for a while
_QUIET_S: Final = 0.25
_DUE_APPENDS: Final = 32
_FEW_STREAMS: Final = 16  # fewer wait until one of them has a lot: a commit is dear, and a few streams need it less
_LATE_APPENDS: Final = 256
_PACK_STREAMS: Final = 32  # in one statement: the more, the fewer pages a row costs, and the longer appends wait
_PACK_ROWS: Final = 2_000
_MIN_RUN: Final = 8
_MAX_APPEND_BYTES: Final = 512  # what is larger gains little by being moved
_LOOK: Final = """
SELECT a.stream, a.pos, a.last, a.n, a.at, a.append_id, a.crc, CASE WHEN length(a.data) <= ?2 THEN a.data END
FROM json_each(?1) AS due
CROSS JOIN streams AS s ON s.id = json_extract(due.value, '$[0]')
CROSS JOIN appends AS a ON a.stream = s.id AND a.last > max(s.floor, json_extract(due.value, '$[1]')) LIMIT ?3"""
_INSERT: Final = "INSERT INTO chunks (stream, last, n, crc, data) VALUES "


class Packer:
    """Packs the streams of which this process has appended enough."""

    def __init__(self, database: Database, batches: int) -> None:
        """`batches`: as many were left by others."""
        self._database = database
        self._due: list[Stream] = []
        self._is_late = False
        self._is_packing = self._is_closing = False
        self._batches, self._batch_bytes = batches, 0
        self._damaged = 0
        self._quiet: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Packed] | None = None

    def count(self, insert: Insert, stored: Sequence[Request]) -> None:
        """What was stored is to be packed one day."""
        if not insert.is_batch:
            for request in stored:
                self._count(request.stream)
        elif stored:
            self._batches += 1
            self._batch_bytes += len(insert.values[-1])

    def _count(self, stream: Stream) -> None:
        stream.unpacked += 1
        if stream.unpacked >= _DUE_APPENDS and not stream.is_due:
            stream.is_due = True
            self._due.append(stream)
        if stream.unpacked >= _LATE_APPENDS:
            self._is_late = True

    def pack_due(self) -> None:
        """Hands the batches, and the streams that have enough, to the writer, without waiting for it."""
        if self._batches >= _DUE_BATCHES or self._batch_bytes >= _DUE_BYTES:
            self._begin_batches()
        elif self._batches >= _QUIET_BATCHES and self._quiet is None and not self._is_closing:
            loop = asyncio.get_running_loop()
            self._quiet = loop.call_later(_QUIET_S, self._pack_if_quiet, self._batches, self._batch_bytes)
        if (len(self._due) >= _FEW_STREAMS or self._is_late) and not self._is_packing:
            self._is_packing, self._is_late = True, False
            streams, self._due = self._due[:_PACK_STREAMS], self._due[_PACK_STREAMS:]
            for stream in streams:  # whatever becomes of it: what fails is not tried again at once
                stream.unpacked, stream.is_due = 0, False
            job = self._database.submit(lambda sql: _pack(sql, streams))
            job.add_done_callback(lambda done: self._packed(streams, done))

    async def close(self) -> None:
        """Ends what is under way, and begins no more: so the batches of many short-lived processes are packed, too."""
        self._is_packing = self._is_closing = True
        if self._quiet is not None:
            self._quiet.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _begin_batches(self) -> None:
        if not self._is_packing:
            self._is_packing = True
            self._task = asyncio.create_task(self._pack_batches(), name=f"tailfold packer of {self._database.path}")
            self._task.add_done_callback(self._packed_batches)

    def _pack_if_quiet(self, *before: int) -> None:
        """Nobody gathers any more, and whoever reads looks through what lies there."""
        self._quiet = None
        if before == (self._batches, self._batch_bytes):
            self._begin_batches()
        else:
            self.pack_due()

    async def _pack_batches(self) -> Packed:
        """The writer is held, and the lock with it, for no longer than it takes to put in what is ready."""
        prepared = await self._database.look(lambda sql: prepare_batches(sql, self._damaged))
        return await self._database.transact(lambda sql: pack_prepared(sql, prepared))

    def _packed_batches(self, job: asyncio.Future[Packed]) -> None:
        self._is_packing = self._is_closing
        if self._has_failed(job):
            self._batches = self._batch_bytes = 0  # it is not tried again at once
            return
        seen, self._damaged = job.result()
        left = max(0, self._batches - seen) if seen else 0
        self._batches, self._batch_bytes = left, left and self._batch_bytes * left // self._batches
        self.pack_due()

    def _packed(self, streams: Sequence[Stream], job: asyncio.Future[dict[int, int]]) -> None:
        self._is_packing = self._is_closing
        if self._has_failed(job):
            return
        for stream in streams:
            stream.packed = job.result().get(stream.key, stream.packed)
        self.pack_due()

    def _has_failed(self, job: asyncio.Future[Any]) -> bool:
        """What was to be packed lies where it lay then, and will be due again."""
        error = asyncio.CancelledError() if job.cancelled() else job.exception()
        if error is not None and not isinstance(error, StoreClosed | asyncio.CancelledError):
            _LOG.warning("stream.pack_failed", path=self._database.path, error=type(error).__name__)
        return error is not None


async def _pack(sql: Sql, streams: Sequence[Stream]) -> dict[int, int]:
    """Looks, and packs in one statement, so that no lock is held meanwhile; returns how far each stream was looked through.

    What lies below the floor is left to the sweeper: in a chunk nobody would look for it.
    """
    names = {stream.key: stream.name for stream in streams}
    after = json.dumps(list({stream.key: (stream.key, stream.packed) for stream in streams}.values()))
    chunks: list[object] = []
    rows = sorted(await sql(_LOOK, (after, _MAX_APPEND_BYTES, _PACK_ROWS)), key=lambda row: (row[0], row[2]))
    for key, of_stream in itertools.groupby(rows, key=lambda row: int(row[0])):
        for run in _runs(of_stream):
            try:
                chunks += _merge_run(key, names[key], run)
            except CorruptEvent:  # stays where it is, for whoever reads it to be told
                continue
    if chunks:
        await sql(_INSERT + ", ".join(["(?, ?, ?, ?, ?)"] * (len(chunks) // 5)), chunks)
    return {row[0]: row[2] for row in rows}


def _merge_run(key: int, name: str, run: Sequence[Row]) -> tuple[int, int, int, int, bytes]:
    appends = [StoredAppend(*row[2:]) for row in run]
    data = compress(merge(name, appends))
    last, events = appends[-1].last, sum(append.n for append in appends)
    return key, last, events, checksum(chunk_place(name, last), data), data


def _runs(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """The rows that follow each other with nothing large between, in pieces of a good size."""
    run: list[Row] = []
    size_bytes = events = end = 0
    for row in rows:
        _, _, last, n, _, _, _, data = row
        goes_on = (
            data is not None
            and last - n == end
            and size_bytes + len(data) <= MAX_CHUNK_BYTES
            and events + n <= MAX_CHUNK_EVENTS
        )
        if not goes_on:
            if len(run) >= _MIN_RUN:
                yield run
            run, size_bytes, events = [], 0, 0
        end = last
        if data is not None:
            run.append(row)
            size_bytes += len(data)
            events += n
    if len(run) >= _MIN_RUN:
        yield run
