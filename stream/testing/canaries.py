"""Stores that are broken on purpose: a kit that lets one of them pass would prove nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stream.admission import prepare
from stream.errors import SeqConflict, SnapshotNeeded, StoreElsewhere
from stream.home import Home
from stream.limits import MAX_INTEGER
from stream.memory import MemorySnapshots, MemoryStore
from stream.records import Changes, NewEvent
from stream.snapshots import seal
from stream.testing.backend import MemoryBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stream.records import AppendResult, Bounds, Event, Snapshot
    from stream.store import EventStore


class Canary(NamedTuple):
    """`law` is the number of the law in `LAWS` that it breaks, `caught_by` the claim of that law that must not hold for it."""

    name: str
    law: int
    caught_by: str
    make_backend: Callable[[], MemoryBackend]


class _LosesItsTail(MemoryBackend):
    """What was appended last is gone after a reopening, though it was acknowledged."""

    async def reopen(self, store: EventStore) -> EventStore:
        for stream in self.stores[-1]._streams.values():  # noqa: SLF001 - it breaks what it knows
            if stream.events:
                stream.events.pop()
                stream.head -= 1
        return store


class _ForgetsWatermarks(MemoryBackend):
    """After a reopening a producer's repeat is stored again."""

    async def reopen(self, store: EventStore) -> EventStore:
        for stream in self.stores[-1]._streams.values():  # noqa: SLF001
            stream.watermarks.clear()
        return store


class _ReusesNumbers(MemoryStore):
    """A deleted stream begins at 1 again."""

    async def delete(self, stream_id: str, *, expected_head: int | None = None) -> None:
        if expected_head is None:
            self.stream(stream_id)
            self._streams.pop(stream_id, None)
        else:
            await super().delete(stream_id, expected_head=expected_head)


class _DeletesWhatCameSince(MemoryStore):
    """A deletion takes what nobody has looked at, too."""

    async def delete(self, stream_id: str, *, expected_head: int | None = None) -> None:
        del expected_head
        await super().delete(stream_id)


class _TearsBatches(MemoryStore):
    """A cancelled append leaves its first half."""

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        if len(events) < 2 or options:
            return await super().append(stream_id, events, **options)
        first = await super().append(stream_id, events[:1])
        await asyncio.sleep(0)
        last = await super().append(stream_id, events[1:])
        return type(first)(first.first_seq, last.last_seq)


class _Reorders(MemoryStore):
    """Order is by time, and the clock is not always right."""

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        return sorted(await super().read(stream_id, after=after, limit=limit), key=lambda event: event.at)


class _SkipsWhatCameMeanwhile(MemoryStore):
    """A reader that is far behind is given what is newest: its follower goes live and leaves a gap."""

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        events = await super().read(stream_id, after=after, limit=limit)
        return events[-20:] if after > 0 else events


class _ResumesSilently(MemoryStore):
    """A cursor below the floor goes on from the earliest event that is left."""

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        return await super().read(stream_id, after=max(after, self.stream(stream_id).floor), limit=limit)


class _LeavesHoles(MemoryStore):
    """An expectation beyond the head is taken for the head."""

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        try:
            return await super().append(stream_id, events, **options)
        except SeqConflict as conflict:
            if conflict.expected < conflict.head or options.get("append_id") is not None:
                raise
            return await super().append(stream_id, events, **{**options, "expected_seq": conflict.head})


class _LosesAnAppend(MemoryStore):
    """Of appends at once all are acknowledged, and not all are stored."""

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        head = self.stream(stream_id).head
        await asyncio.sleep(0)
        result = await super().append(stream_id, events, **options)
        if result.first_seq > head + 1 and not options:
            stream = self.stream(stream_id)
            del stream.events[-len(events) :]
            stream.head -= len(events)
        return result


class _LowersTheFloor(MemoryStore):
    """The floor is where the last truncation put it."""

    async def truncate(self, stream_id: str, *, through: int) -> Bounds:
        bounds = await super().truncate(stream_id, through=through)
        self.stream(stream_id).floor = through
        return type(bounds)(through, bounds.head, bounds.origin)


class _StoresRepeats(MemoryStore):
    """A named append that is repeated is stored again, behind the first."""

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        head = self.stream(stream_id).head
        result = await super().append(stream_id, events, **options)
        if result.first_seq > head or options.get("append_id") is None:
            return result
        return await super().append(stream_id, events)


class _SnapshotsGoBackwards(MemoryStore):
    """The snapshot that was saved last counts, not the newest."""

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms=clock_ms)
        self._snapshots = _LastSavedCounts(self)


class _LastSavedCounts(MemorySnapshots):
    async def save(self, snapshot: Snapshot) -> bool:
        if not await super().save(snapshot):
            envelopes = self._store.stream(snapshot.stream_id).envelopes
            for key in [key for key in envelopes if key[0] == snapshot.projector]:
                del envelopes[key]
            envelopes[snapshot.projector, snapshot.last_seq] = seal(snapshot)
        return True


class _KeepsTheFirst(MemoryStore):
    """Of the same seq the snapshot that was there first is kept, of whatever version."""

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms=clock_ms)
        self._snapshots = _FirstSavedCounts(self)


class _FirstSavedCounts(MemorySnapshots):
    async def save(self, snapshot: Snapshot) -> bool:
        newest = await self.load(snapshot.stream_id, snapshot.projector)
        return (newest is None or snapshot.last_seq > newest.last_seq) and await super().save(snapshot)


class _ForgetsItsBase(MemoryStore):
    """The last snapshot that a truncated stream can be loaded from is deleted like any other."""

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms=clock_ms)
        self._snapshots = _AllAreDispensable(self)


class _AllAreDispensable(MemorySnapshots):
    async def delete(self, stream_id: str, projector: str, last_seq: int | None = None) -> None:
        try:
            await super().delete(stream_id, projector, last_seq)
        except SnapshotNeeded as needed:
            del self._store.stream(stream_id).envelopes[projector, needed.last_seq]


class _ReadsEverything(MemoryStore):
    """A page is as long as the stream."""

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        await super().read(stream_id, after=after, limit=limit)
        return await super().read(stream_id, after=after, limit=MAX_INTEGER) if limit else []


class _CleansPayloads(MemoryStore):
    """What can't be shown is left out."""

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        prepare(stream_id, events, expected_seq=None, append_id=None, producer=None)
        cleaned = [NewEvent(event.type, event.data.replace(b"\0", b"")) for event in events]
        return await super().append(stream_id, cleaned, **options)


class _ForgetsADeletion(MemoryStore):
    """Who asks what has changed is not told of what was deleted."""

    async def delete(self, stream_id: str, *, expected_head: int | None = None) -> None:
        number = self._feed.number
        await super().delete(stream_id, expected_head=expected_head)
        if self._feed.number > number:
            del self._feed._by_change[self._feed.number]  # noqa: SLF001 - it breaks what it knows


class _TellsAllAgain(MemoryStore):
    """A stream that has changed is told from its beginning."""

    async def changes(self, *, after: str = "", limit: int = 1000) -> Changes:
        page = await super().changes(after=after, limit=limit)
        return Changes(page.streams, page.token, [(0, head) for _, head in page.spans], page.begin)


class SharedMemory(MemoryBackend):
    """Stores over one place in memory, as processes over a file."""

    flags = MemoryBackend.flags | {"share"}

    def make(self, clock_ms: Callable[[], int]) -> MemoryStore:
        store = self.make_one(clock_ms)
        if self.stores:
            for shared in ("_streams", "_wakeups", "_feed"):
                setattr(store, shared, getattr(self.stores[0], shared))
            store.incarnation = self.stores[0].incarnation
        return store

    def make_one(self, clock_ms: Callable[[], int]) -> MemoryStore:
        return MemoryStore(clock_ms=clock_ms)


class _LooksThenDeletes(MemoryStore):
    """Between the look at the head and the deletion it may be stopped."""

    async def delete(self, stream_id: str, *, expected_head: int | None = None) -> None:
        if expected_head is not None and self.stream(stream_id).head != expected_head:
            raise SeqConflict(stream_id, expected_head, self.stream(stream_id).head)
        await asyncio.sleep(0)
        await super().delete(stream_id)


class _LosesWhatIsLate(MemoryStore):
    """Of two events that one counts whose clock is ahead."""

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        newest = max((event.at for event in self.stream(stream_id).events), default=0)
        result = await super().append(stream_id, events, **options)
        stream = self.stream(stream_id)
        if stream.events and stream.events[-1].at < newest:
            del stream.events[-len(events) :]
            stream.head -= len(events)
        return result


class _DeletesLate(SharedMemory):
    def make_one(self, clock_ms: Callable[[], int]) -> MemoryStore:
        return _LooksThenDeletes(clock_ms=clock_ms)


class _BelievesClocks(SharedMemory):
    def make_one(self, clock_ms: Callable[[], int]) -> MemoryStore:
        return _LosesWhatIsLate(clock_ms=clock_ms)


class _WorksForkedToo(MemoryStore):
    """In a forked process it takes in what its parent will never see."""

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms=clock_ms)
        self.home = _Forkless("this store in memory")


class _Forkless(Home):
    __slots__ = ()

    def check(self) -> None:
        if not self.is_forked():
            super().check()


class _WaitsForItsOwnLoop(MemoryStore):
    """In another event loop it waits for what only its own could give."""

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms=clock_ms)
        self.home = _Loopless("this store in memory")
        self._turn = asyncio.get_running_loop().create_future() if _has_loop() else None

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        if self._turn is not None and self._turn.get_loop() is not asyncio.get_running_loop():
            await asyncio.Event().wait()
        return await super().append(stream_id, events, **options)


class _ClosesForAll(_WaitsForItsOwnLoop):
    """Who closes it in another loop is refused, and has closed it all the same."""

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        return await MemoryStore.append(self, stream_id, events, **options)

    async def close(self) -> None:
        await super().close()
        if self._turn is not None and self._turn.get_loop() is not asyncio.get_running_loop():
            raise StoreElsewhere("this store", "is another's")


class _Loopless(Home):
    __slots__ = ()

    def check(self) -> None:
        if self.is_forked():
            super().check()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _with(store: Callable[..., MemoryStore]) -> Callable[[], MemoryBackend]:
    class Broken(MemoryBackend):
        def make(self, clock_ms: Callable[[], int]) -> MemoryStore:
            return store(clock_ms=clock_ms)

    return Broken


CANARIES: Final = (
    Canary("lost tail", 1, "what_was_acknowledged_is_there_after_reopening", _LosesItsTail),
    Canary("lost append", 1, "what_was_acknowledged_in_any_interleaving_is_where_it_says", _with(_LosesAnAppend)),
    Canary("torn batch", 1, "an_append_cancelled_after_any_number_of_steps_is_whole_or_absent", _with(_TearsBatches)),
    Canary("reused numbers", 2, "no_number_is_used_again_after_a_deletion", _with(_ReusesNumbers)),
    Canary("deletion of what came since", 3, "a_deletion_takes_only_what_was_known", _with(_DeletesWhatCameSince)),
    Canary("hole", 3, "a_wrong_expectation_conflicts_and_stores_nothing", _with(_LeavesHoles)),
    Canary("repeat stored twice", 3, "a_named_append_repeated_gets_its_first_answer", _with(_StoresRepeats)),
    Canary("watermark that forgets", 3, "a_producers_repeat_is_acknowledged_once_stored", _ForgetsWatermarks),
    Canary("stopped deletion", 3, "who_is_stopped_and_goes_on_undoes_nothing_that_came_since", _DeletesLate),
    Canary("order by clocks", 5, "clocks_that_are_wrong_change_no_order_and_bar_nobody", _BelievesClocks),
    Canary("reordered events", 5, "order_is_by_number_when_the_clock_runs_backwards", _with(_Reorders)),
    Canary("snapshot that goes backwards", 5, "a_snapshot_never_goes_backwards", _with(_SnapshotsGoBackwards)),
    Canary("version that is lost", 5, "of_the_same_seq_the_higher_version_is_kept", _with(_KeepsTheFirst)),
    Canary("floor that falls", 6, "truncation_never_lowers_the_floor", _with(_LowersTheFloor)),
    Canary("base record deleted", 7, "the_last_base_of_a_truncated_stream_is_not_deleted", _with(_ForgetsItsBase)),
    Canary("silent resume", 8, "pages_of_any_size_give_each_event_once_above_the_floor", _with(_ResumesSilently)),
    Canary("follower that skips a gap", 9, "a_follower_that_stalls_goes_on_where_it_was", _with(_SkipsWhatCameMeanwhile)),
    Canary("deletion that is not told", 9, "each_way_a_stream_can_change_is_told", _with(_ForgetsADeletion)),
    Canary("feed that begins again", 9, "a_change_tells_where_a_stream_stood", _with(_TellsAllAgain)),
    Canary("endless page", 13, "pages_of_any_size_give_each_event_once_above_the_floor", _with(_ReadsEverything)),
    Canary("cleaned payload", 14, "what_is_read_is_what_was_appended", _with(_CleansPayloads)),
    Canary("fork that half works", 16, "in_a_forked_process_a_store_works_or_refuses_at_once", _with(_WorksForkedToo)),
    Canary("loop that waits for ever", 16, "in_another_loop_a_store_works_or_refuses_at_once", _with(_WaitsForItsOwnLoop)),
    Canary(
        "close that is refused and done", 16, "a_store_is_closed_where_it_was_opened_or_closed_for_all", _with(_ClosesForAll)
    ),
)
"""All of them, by law."""
