"""What an event store promises, whatever it is built on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractContextManager

    from stream.limits import Limits
    from stream.records import AppendResult, Bounds, Changes, Event, NewEvent, Producer, StreamInfo
    from stream.snapshots import SnapshotStore


class EventStore(Protocol):
    """An append-only log per stream, with gap-free numbers from 1.

    Every method raises `InvalidId` for an id that can't be stored, `ValueError` for a negative position, and
    `StoreClosed` after `close`. A cancelled call has an unknown outcome, but is never half done. In another event loop
    or thread than that of its opening, and in a process that was forked since, a store works, or every method raises
    `StoreElsewhere` at once, `close` too; where it was opened it lives on.
    """

    @property
    def incarnation(self) -> str:
        """A random id of this store, minted when it was created."""
        ...

    @property
    def limits(self) -> Limits:
        """What one event and one append may be here: who has more cuts it. What is beyond is refused by `InvalidEvent`."""
        ...

    @property
    def snapshots(self) -> SnapshotStore:
        """The snapshots that belong to this log."""
        ...

    async def append(
        self,
        stream_id: str,
        events: Sequence[NewEvent],
        *,
        expected_seq: int | None = None,
        append_id: str | None = None,
        producer: Producer | None = None,
    ) -> AppendResult:
        """Stores the events as one whole behind the head; returns when they are durable, with their numbers.

        With `expected_seq` only where that is the head; the answer to no events is `(head + 1, head)`.
        Retries are safe: the same `append_id`, `expected_seq` and content give the first answer again; a
        producer's repeat is answered as `duplicate`. Raises `SeqConflict`, `ProducerFenced`, `ProducerGap`,
        `InvalidEvent`, `StoreFull`, `StoreBusy`, and `ValueError` for an `append_id` without `expected_seq` or
        beside a producer.
        """
        ...

    async def adopt(
        self,
        stream_id: str,
        events: Sequence[Event],
        *,
        floor: int = 0,
        origin: int = 0,
        producers: Sequence[Producer] = (),
    ) -> None:
        """Takes in a stream of another store as a whole: numbers, times, floor, origin and watermarks are kept.

        Only for an id that never had an event: raises `SeqConflict` otherwise. Raises `InvalidEvent` for events that
        do not go on from the floor without a gap, and `ValueError` for neither events nor a floor.
        """
        ...

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """At most `limit` events with `seq > after`, in order; `[]` at or beyond the head and of an unknown stream.

        Fewer where their data reaches `MAX_PAGE_BYTES`, at least one though: only `[]` says that there are no more.
        Raises `Truncated` if `after` lies below the floor, `CorruptEvent` if what is stored is damaged.
        """
        ...

    async def bounds(self, stream_id: str) -> Bounds:
        """Floor, head and origin as they are now; all 0 for an unknown stream."""
        ...

    async def producer(self, stream_id: str, producer_id: str) -> Producer | None:
        """The watermark of a producer: its newest epoch and the number of its newest append there; None if unknown."""
        ...

    async def producers(self, stream_id: str) -> list[Producer]:
        """The watermarks of all its producers, by name."""
        ...

    async def wait(self, stream_id: str, *, after: int) -> None:
        """Returns when there may be events after `after`, and now and then without: a hint, never data."""
        ...

    def listen(self, stream_id: str) -> AbstractContextManager[asyncio.Event]:
        """While the block lasts, what it gives is set when the stream may have changed: a hint, never data.

        Clear it, then look, then wait for it: what happens in between is not missed.
        """
        ...

    async def truncate(self, stream_id: str, *, through: int) -> Bounds:
        """Raises the floor to `through` at once, never lowers it; the rows go later. Gives the bounds from then on.

        What is truncated is gone for good: `ledger.compact` asks before who needs it. Raises `ValueError` beyond the head.
        """
        ...

    async def delete(self, stream_id: str, *, expected_head: int | None = None) -> None:
        """Drops all events and snapshots. Head and watermarks stay, so no number is ever used again; an unknown one is fine.

        With `expected_head` only what was known goes: raises `SeqConflict`, and drops nothing, where the head is another.
        """
        ...

    async def changes(self, *, after: str = "", limit: int = 1000) -> Changes:
        """Which streams were appended to, adopted, truncated or deleted since the place that the token `after` names.

        Each at least once, in no order of time, at most `limit` in a page. A page without streams says that there was
        nothing more; so does one with fewer than `limit`, of what there was when the first page was asked for with the
        token of a last one. Keep the token to go on from there, for as long as you like: it belongs to this incarnation.
        It is some hundred characters, or some thousand where thousands of streams have changed one after the other.
        Raises `Diverged` for a token of another one, and of a file that was put back to what it was before; `ValueError`
        for what is no token.
        """
        ...

    async def wait_any(self, *, after: str) -> None:
        """Returns when something may have changed since the token `after`, and now and then without: a hint."""
        ...

    def streams(self, *, prefix: str = "") -> AsyncIterator[StreamInfo]:
        """All streams that ever had an event, in the order of their ids: those whose id begins with `prefix`."""
        ...

    async def close(self) -> None:
        """Finishes what was begun, then closes. May be called twice."""
        ...
