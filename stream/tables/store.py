"""The log in tables: all that an `EventStore` is asked but to append, over whatever database they lie in."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from stream.admission import admit, check_adoption, prepare
from stream.errors import SeqConflict, StoreUnusable
from stream.feed import check_page, open_place, seal_place
from stream.limits import LIMITS, check_id, check_position, check_prefix
from stream.records import AppendResult, Bounds, Changes, Producer, StreamInfo
from stream.tables.adoption import adopt
from stream.tables.bounds import check_bounds, raise_floor, read_bounds, read_watermark
from stream.tables.feed import read_end, read_feed
from stream.tables.moves import Move
from stream.tables.pages import read_page
from stream.tables.snapshots import TableSnapshots, list_snapshots, load_snapshot
from stream.tasks import finish_anyway
from stream.wakeups import ANY, Wakeups, await_signal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from stream.admission import Append
    from stream.database import Database, Sql
    from stream.feed import FeedPlace
    from stream.records import Event, NewEvent, Snapshot, SnapshotInfo
    from stream.tables.feed import FeedTexts
    from stream.tables.pages import Ask

T = TypeVar("T")
_PAGE_ROWS: Final = 256
_EMPTY: Final = Move(
    """floor = head, origin = head,
  guard = guard + 5 * (head % 1000003 - floor % 1000003) + 7 * (head % 1000003 - origin % 1000003)""",
    "name = ?1 AND head > 0",
)
_STREAMS: Final = """
SELECT name, floor, head, origin, guard FROM streams
WHERE name > ?1 AND substr(name, 1, length(?2)) = ?2 AND head > 0 ORDER BY name LIMIT ?3"""
_PRODUCERS: Final = """
SELECT p.name, p.epoch, p.seq FROM producers AS p JOIN streams AS s ON s.id = p.stream
WHERE s.name = ? AND p.epoch IS NOT NULL ORDER BY p.name"""


class Dialect(NamedTuple):
    """What is not said alike everywhere: how a stream moves, the feed, the rows of a page."""

    move: Callable[[Move], str]
    feed: FeedTexts
    ask: Ask


class TableStore:
    """An `EventStore` over a `Database`, which a ledger may keep its tables in, too.

    What ends in `_within` is a part of a job: of a look or of a transaction over both.
    """

    def __init__(self, database: Database, incarnation: str, clock_ms: Callable[[], int], dialect: Dialect) -> None:
        self.database = database
        self.incarnation = incarnation
        self.limits = LIMITS
        self.clock_ms = clock_ms
        self._dialect = dialect
        self._snapshots = TableSnapshots(database)
        self._wakeups = Wakeups()
        self._waiters = 0
        self._seen: FeedPlace | None = None
        self._unwatch: Callable[[], None] | None = None

    @property
    def snapshots(self) -> TableSnapshots:
        """See `EventStore.snapshots`."""
        return self._snapshots

    async def append(
        self,
        stream_id: str,
        events: Sequence[NewEvent],
        *,
        expected_seq: int | None = None,
        append_id: str | None = None,
        producer: Producer | None = None,
    ) -> AppendResult:
        """See `EventStore.append`."""
        append = prepare(stream_id, events, expected_seq=expected_seq, append_id=append_id, producer=producer)
        if append.events:
            self.database.home.check()
            return await self._store(append)
        head = (await self.bounds(stream_id)).head
        return admit(append, head=head, watermark=None, earlier=None) or AppendResult(head + 1, head)

    async def adopt(
        self,
        stream_id: str,
        events: Sequence[Event],
        *,
        floor: int = 0,
        origin: int = 0,
        producers: Sequence[Producer] = (),
    ) -> None:
        """See `EventStore.adopt`."""
        check_adoption(stream_id, events, floor=floor, origin=origin, producers=producers)
        move = self._dialect.move
        await self.database.transact(lambda sql: adopt(sql, move, stream_id, events, floor, origin, producers))
        self._wakeups.wake(stream_id)

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """See `EventStore.read`."""
        check_id("stream id", stream_id)
        check_position("after", after)
        check_position("limit", limit)
        return await self.database.look(lambda sql: self.read_within(sql, stream_id, after, limit))

    async def bounds(self, stream_id: str) -> Bounds:
        """See `EventStore.bounds`."""
        check_id("stream id", stream_id)
        return await read_bounds(self.database.read, stream_id)

    async def producer(self, stream_id: str, producer_id: str) -> Producer | None:
        """See `EventStore.producer`."""
        check_id("stream id", stream_id)
        check_id("producer id", producer_id)
        watermark = await read_watermark(self.database.read, stream_id, producer_id)
        return None if watermark is None else Producer(producer_id, watermark.epoch, watermark.seq)

    async def producers(self, stream_id: str) -> list[Producer]:
        """See `EventStore.producers`."""
        check_id("stream id", stream_id)
        return [Producer(*row) for row in await self.database.read(_PRODUCERS, (stream_id,))]

    async def wait(self, stream_id: str, *, after: int) -> None:
        """See `EventStore.wait`."""
        check_position("after", after)
        with self.listen(stream_id) as signal:
            if (await self.bounds(stream_id)).head <= after:
                await await_signal(signal)

    @contextlib.contextmanager
    def listen(self, stream_id: str) -> Iterator[asyncio.Event]:
        """See `EventStore.listen`. Other processes are seen by the database, once for all who listen to this store."""
        check_id("stream id", stream_id)
        self.database.home.check()
        with self._wakeups.expect(stream_id) as signal, self._watching():
            yield signal

    async def truncate(self, stream_id: str, *, through: int) -> Bounds:
        """See `EventStore.truncate`. The rows are swept behind the caller's back; every reader looks at the floor."""
        check_id("stream id", stream_id)
        check_position("through", through)
        bounds = await self.database.write(lambda sql: self.raise_floor_within(sql, stream_id, through))
        self._went(stream_id)
        return bounds

    async def truncate_within(self, stream_id: str, job: Callable[[Sql], Awaitable[T]]) -> T:
        """As `truncate` by a job that decides and calls `raise_floor_within` in one transaction; gives what it returns."""
        told = await self.database.transact(job)
        self._went(stream_id)
        return told

    async def delete(self, stream_id: str, *, expected_head: int | None = None) -> None:
        """See `EventStore.delete`."""
        check_id("stream id", stream_id)
        if expected_head is not None:
            check_position("expected_head", expected_head)

        async def job(sql: Sql) -> None:
            if expected_head is not None:
                head = (await read_bounds(sql, stream_id)).head
                if head != expected_head:
                    raise SeqConflict(stream_id, expected_head, head)
            await sql(self._dialect.move(_EMPTY), (stream_id,))
            await sql("DELETE FROM snapshots WHERE stream = (SELECT id FROM streams WHERE name = ?)", (stream_id,))

        await self.database.transact(job)
        self._went(stream_id)

    async def changes(self, *, after: str = "", limit: int = 1000) -> Changes:
        """See `EventStore.changes`."""
        place = open_place(after, self.incarnation)
        check_page(limit)
        page = await self.database.look(lambda sql: read_feed(sql, self._dialect.feed, self.database.path, place, limit))
        tokens = [seal_place(self.incarnation, each) for each in (page.end, page.begin)]
        return Changes(page.streams, tokens[0], page.spans, tokens[1])

    async def wait_any(self, *, after: str) -> None:
        """See `EventStore.wait_any`."""
        place = open_place(after, self.incarnation)
        self.database.home.check()
        with self._wakeups.expect(ANY) as signal, self._watching():
            if (await self.database.look(self._read_end)).since <= (place.through or place.since):
                await await_signal(signal)

    async def streams(self, *, prefix: str = "") -> AsyncIterator[StreamInfo]:
        """See `EventStore.streams`."""
        check_prefix("prefix", prefix)
        last = ""
        while rows := await self.database.read(_STREAMS, (last, prefix, _PAGE_ROWS)):
            for name, floor, head, origin, guard in rows:
                if not isinstance(name, str) or name <= last:  # or this would never end
                    raise StoreUnusable(self.database.path, "its index of streams is damaged: run `tailfold verify`")
                check_bounds(name, floor, head, origin, guard)
                yield StreamInfo(name, floor, head, origin)
                last = name

    async def close(self) -> None:
        """See `EventStore.close`."""
        self.database.home.check_closer()
        await finish_anyway(self._close())

    async def bounds_within(self, sql: Sql, stream_id: str) -> Bounds:
        """See `EventStore.bounds`."""
        return await read_bounds(sql, stream_id)

    async def read_within(self, sql: Sql, stream_id: str, after: int, limit: int) -> list[Event]:
        """See `EventStore.read`."""
        return await read_page(sql, self._dialect.ask, stream_id, after, limit)

    async def snapshot_within(self, sql: Sql, stream_id: str, projector: str) -> Snapshot | None:
        """See `SnapshotStore.load`."""
        return await load_snapshot(sql, stream_id, projector)

    async def snapshots_within(self, sql: Sql, stream_id: str) -> list[SnapshotInfo]:
        """See `SnapshotStore.list`."""
        return await list_snapshots(sql, stream_id)

    async def raise_floor_within(self, sql: Sql, stream_id: str, through: int) -> Bounds:
        """Raises the floor to `through`, never lowers it; the bounds then. Raises `ValueError` beyond the head."""
        return await raise_floor(sql, self._dialect.move, stream_id, through)

    async def settle(self) -> None:
        """Waits until rows below the floors are swept; nothing but the room they take depends on it."""
        raise NotImplementedError

    async def count_unswept(self, stream_id: str) -> int:
        """How many rows of a stream lie below its floor."""
        raise NotImplementedError

    def _store(self, append: Append) -> Awaitable[AppendResult]:
        """Appends what is checked, and is not empty; tells when it is durable."""
        raise NotImplementedError

    def _went(self, stream_id: str) -> None:
        """Some of it has gone: who keeps what he has read lets go of it, and rows are swept."""
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError

    async def _read_end(self, sql: Sql) -> FeedPlace:
        return await read_end(sql, self._dialect.feed)

    async def _wake_those_that_moved(self) -> None:
        """Another process has committed. What moved is told by the feed; where that is much, or too long ago, all look.

        So they do where a copy was made anew: what was done to the one before may have had the same numbers.
        """
        seen, self._seen = self._seen, None  # whatever comes in between: the next time all look
        if seen is not None and not self.database.is_private_copy:
            feed, path = self._dialect.feed, self.database.path
            page = await self.database.look(lambda sql: read_feed(sql, feed, path, seen, _PAGE_ROWS))
            self._seen = page.end
            if not page.end.through:
                for stream_id in page.streams:
                    self._wakeups.wake(stream_id)
                return
        try:
            self._seen = await self.database.look(self._read_end)
        finally:  # where it fails, each is told so by his own look
            self._wakeups.wake_all()

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        self._waiters += 1
        if self._unwatch is None:
            self._unwatch = self.database.watch(self._wake_those_that_moved)
        try:
            yield
        finally:
            self._waiters -= 1
            if not self._waiters and self._unwatch is not None:
                self._unwatch()
                self._unwatch = None
