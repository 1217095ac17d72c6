"""The log in one SQLite file: rows hold what was appended, the schema holds the rules."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Final, TypeVar

from stream.admission import admit, check_adoption, prepare
from stream.clock import now_ms
from stream.errors import SeqConflict, StoreUnusable
from stream.feed import check_page, open_place, seal_place
from stream.limits import check_id, check_position, check_prefix
from stream.records import AppendResult, Bounds, Changes, Event, NewEvent, Producer, StreamInfo
from stream.sqlite.adoption import adopt
from stream.sqlite.appender import Appender
from stream.sqlite.bounds import check_bounds, raise_floor, read_bounds, read_watermark
from stream.sqlite.feed import NUMBER, read_end, read_feed
from stream.sqlite.pages import read_page
from stream.sqlite.scripts import read_scripts
from stream.sqlite.snapshots import SqliteSnapshots
from stream.sqlite.sweeping import Sweeper
from stream.tasks import finish_anyway
from stream.wakeups import ANY, Wakeups, await_signal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from stream.database import Sql
    from stream.feed import FeedPlace
    from stream.sqlite.database import Database

T = TypeVar("T")
_PAGE_ROWS: Final = 256
_EMPTY: Final = f"""
UPDATE streams SET floor = head, origin = head, changed = {NUMBER}, guard = guard
  + 5 * (head % 1000003 - floor % 1000003) + 7 * (head % 1000003 - origin % 1000003) WHERE name = ? AND head > 0"""  # noqa: S608 - a constant


class SqliteStore:
    """An `EventStore` over a `Database`. Made by `open_store`, or by `attach` over a database that is open."""

    def __init__(self, database: Database, incarnation: str, clock_ms: Callable[[], int], batches: int) -> None:
        self.database = database
        self.incarnation = incarnation
        self.clock_ms = clock_ms
        self._snapshots = SqliteSnapshots(database)
        self._wakeups = Wakeups()
        self._appender = Appender(database, clock_ms, self._wakeups.wake, batches)
        self._sweeper = Sweeper(database)
        self._waiters = 0
        self._seen: FeedPlace | None = None
        self._unwatch: Callable[[], None] | None = None

    @classmethod
    async def attach(cls, database: Database, *, clock_ms: Callable[[], int] = now_ms) -> SqliteStore:
        """Brings the log's tables to their newest form. The store closes the database when it is closed."""
        await database.install("stream", read_scripts("stream.sqlite"))
        minted = secrets.token_hex(16)

        async def identify(sql: Sql) -> tuple[str, int]:
            await sql("INSERT INTO store SELECT ? WHERE NOT EXISTS (SELECT 1 FROM store)", (minted,))
            [(incarnation, batches)] = await sql("SELECT incarnation, (SELECT count(*) FROM batches) FROM store LIMIT 1")
            return str(incarnation), int(batches)

        incarnation, batches = await database.transact(identify)
        store = cls(database, incarnation, clock_ms, batches)
        store._sweeper.resume()
        return store

    @property
    def snapshots(self) -> SqliteSnapshots:
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
            return await self._appender.append(append)
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
        await self.database.transact(lambda sql: adopt(sql, stream_id, events, floor, origin, producers))
        self._wakeups.wake(stream_id)

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """See `EventStore.read`."""
        check_id("stream id", stream_id)
        check_position("after", after)
        check_position("limit", limit)
        return await self.database.look(lambda sql: read_page(sql, stream_id, after, limit))

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

    async def wait(self, stream_id: str, *, after: int) -> None:
        """See `EventStore.wait`."""
        check_position("after", after)
        with self.listen(stream_id) as signal:
            if (await self.bounds(stream_id)).head <= after:
                await await_signal(signal)

    @contextlib.contextmanager
    def listen(self, stream_id: str) -> Iterator[asyncio.Event]:
        """See `EventStore.listen`. Other processes are seen by a poll, one for all who listen to this store."""
        check_id("stream id", stream_id)
        self.database.home.check()
        with self._wakeups.expect(stream_id) as signal, self._watching():
            yield signal

    async def truncate(self, stream_id: str, *, through: int) -> Bounds:
        """See `EventStore.truncate`. The rows are swept behind the caller's back; every reader looks at the floor."""
        check_id("stream id", stream_id)
        check_position("through", through)
        bounds = await self.database.write(lambda sql: raise_floor(sql, stream_id, through))
        self._went(stream_id)
        return bounds

    async def truncate_within(self, stream_id: str, job: Callable[[Sql], Awaitable[T]]) -> T:
        """As `truncate` by a job that decides and calls `raise_floor` in one transaction; gives what the job returns."""
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
            await sql(_EMPTY, (stream_id,))
            await sql("DELETE FROM snapshots WHERE stream = (SELECT id FROM streams WHERE name = ?)", (stream_id,))

        await self.database.transact(job)
        self._went(stream_id)

    async def changes(self, *, after: str = "", limit: int = 1000) -> Changes:
        """See `EventStore.changes`."""
        place = open_place(after, self.incarnation)
        check_page(limit)
        page = await self.database.look(lambda sql: read_feed(sql, self.database.path, place, limit))
        tokens = [seal_place(self.incarnation, each) for each in (page.end, page.begin)]
        return Changes(page.streams, tokens[0], page.spans, tokens[1])

    async def wait_any(self, *, after: str) -> None:
        """See `EventStore.wait_any`."""
        place = open_place(after, self.incarnation)
        self.database.home.check()
        with self._wakeups.expect(ANY) as signal, self._watching():
            if (await self.database.look(read_end)).since <= (place.through or place.since):
                await await_signal(signal)

    async def settle(self) -> None:
        """Waits until rows below the floors are swept; nothing but the file's size depends on it."""
        self.database.home.check()
        await self._sweeper.settled()

    async def streams(self, *, prefix: str = "") -> AsyncIterator[StreamInfo]:
        """See `EventStore.streams`."""
        text = """SELECT name, floor, head, origin, guard FROM streams
            WHERE name > ?1 AND substr(name, 1, length(?2)) = ?2 AND head > 0 ORDER BY name LIMIT ?3"""
        check_prefix("prefix", prefix)
        last = ""
        while rows := await self.database.read(text, (last, prefix, _PAGE_ROWS)):
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

    def _went(self, stream_id: str) -> None:
        self._sweeper.sweep(stream_id)
        self._wakeups.wake(stream_id)  # who keeps what he has read lets go of it

    async def _wake_those_that_moved(self) -> None:
        """Another process has committed. What moved is told by the feed; where that is much, or too long ago, all look.

        So they do where a copy was made anew: what was done to the one before may have had the same numbers.
        """
        seen, self._seen = self._seen, None  # whatever comes in between: the next time all look
        if seen is not None and not self.database.is_private_copy:
            page = await self.database.look(lambda sql: read_feed(sql, self.database.path, seen, _PAGE_ROWS))
            self._seen = page.end
            if not page.end.through:
                for stream_id in page.streams:
                    self._wakeups.wake(stream_id)
                return
        try:
            self._seen = await self.database.look(read_end)
        finally:  # where it fails, each is told so by his own look
            self._wakeups.wake_all()

    async def _close(self) -> None:
        if not self.database.home.has_ended():
            await self._sweeper.close()
            await self._appender.close()
        await self.database.close()
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
