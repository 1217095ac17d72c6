"""Cases of letting go and keeping: `truncate`, `delete`, snapshots."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from stream import (
    AppendResult,
    Bounds,
    NewEvent,
    Producer,
    SeqConflict,
    Snapshot,
    SnapshotInfo,
    SnapshotNeeded,
    Truncated,
    retain,
)
from stream.testing.case import case
from stream.testing.faults import disturb

if TYPE_CHECKING:
    from stream import EventStore
    from stream.testing.backend import Backend


def snapshot(last_seq: int, state: str = "", *, projector: str = "p", stream_id: str = "s") -> Snapshot:
    return Snapshot(stream_id, projector, 1, last_seq, 0, (state or f"state {last_seq}").encode())


async def ten(backend: Backend) -> EventStore:
    """A store with ten events in stream `s`, three appends."""
    opened = await backend.open()
    for texts in ("abcd", "efg", "hij"):
        await opened.append("s", [NewEvent("t", text.encode()) for text in texts])
    return opened


@case(2, 6, begin=ten)
async def truncation_raises_the_floor_and_not_the_head(store: EventStore) -> None:
    for through in range(11):
        assert await store.truncate("s", through=through) == Bounds(through, 10)
        assert [event.seq for event in await store.read("s", after=through)] == list(range(through + 1, 11))


@case(2, 6, begin=ten)
async def truncation_never_lowers_the_floor(store: EventStore) -> None:
    await store.truncate("s", through=6)
    for through in (0, 2, 6):
        assert await store.truncate("s", through=through) == Bounds(6, 10)


@case(2, 6, begin=ten)
async def truncation_never_lowers_the_head(backend: Backend, store: EventStore) -> None:
    """Known fault K1."""
    await store.truncate("s", through=10)
    store = await backend.reopen(store)
    assert await store.bounds("s") == Bounds(10, 10)
    assert await store.append("s", [NewEvent("t", b"k")]) == AppendResult(11, 11)
    with pytest.raises(Truncated):
        await store.read("s")
    assert [event.seq for event in await store.read("s", after=10)] == [11]


@case(2, 6, 7, begin=ten)
async def what_follows_a_full_truncation_goes_on_from_the_snapshot(backend: Backend, store: EventStore) -> None:
    """Known faults K1, K9: there is no event at the snapshot's position any more, and none is needed."""
    await store.snapshots.save(snapshot(10))
    await store.truncate("s", through=10)
    store = await backend.reopen(store)
    assert await store.snapshots.load("s", "p") == snapshot(10)
    assert await store.append("s", [NewEvent("t", b"k")], expected_seq=10) == AppendResult(11, 11)
    assert [(event.seq, event.data) for event in await store.read("s", after=10)] == [(11, b"k")]


@case(2, 6, begin=ten)
async def truncation_beyond_the_head_is_refused(store: EventStore) -> None:
    """Known fault K9."""
    with pytest.raises(ValueError, match="ends at 10"):
        await store.truncate("s", through=11)
    with pytest.raises(ValueError, match="ends at 0"):
        await store.truncate("unknown", through=1)
    assert await store.bounds("s") == Bounds(0, 10)
    assert await store.truncate("unknown", through=0) == Bounds(0, 0)


@case(2, 6, begin=ten)
async def truncations_at_once_leave_the_highest_floor(store: EventStore) -> None:
    await asyncio.gather(*(store.truncate("s", through=through) for through in (3, 9, 1, 7)))
    assert await store.bounds("s") == Bounds(9, 10)


@case(2, begin=ten)
async def no_number_is_used_again_after_a_deletion(backend: Backend, store: EventStore) -> None:
    """Known faults K2, K11."""
    await store.append("s", [NewEvent("t", b"k")], producer=Producer("p", 2, 0))
    await store.snapshots.save(snapshot(5))
    await store.delete("s")
    for _ in range(2):
        assert await store.bounds("s") == Bounds(11, 11, origin=11)
        assert await store.snapshots.list("s") == []
        assert await store.producer("s", "p") == Producer("p", 2, 0)
        store = await backend.reopen(store)
    repeat = await store.append("s", [NewEvent("t", b"k")], producer=Producer("p", 2, 0))
    assert repeat == AppendResult(11, 11, duplicate=True)
    with pytest.raises(SeqConflict):
        await store.append("s", [NewEvent("t", b"l")], expected_seq=0)
    assert await store.append("s", [NewEvent("t", b"l")]) == AppendResult(12, 12)


@case(2, begin=ten)
async def deleting_twice_or_what_is_unknown_does_nothing(store: EventStore) -> None:
    await store.delete("s")
    await store.delete("s")
    await store.delete("unknown")
    assert await store.bounds("s") == Bounds(10, 10, origin=10)
    assert await store.bounds("unknown") == Bounds(0, 0)


@case(2, 3, begin=ten)
async def a_deletion_takes_only_what_was_known(store: EventStore) -> None:
    for expected in (0, 9, 11):
        with pytest.raises(SeqConflict) as conflict:
            await store.delete("s", expected_head=expected)
        assert (conflict.value.expected, conflict.value.head) == (expected, 10)
    assert len(await store.read("s")) == 10
    await store.delete("s", expected_head=10)
    assert await store.bounds("s") == Bounds(10, 10, origin=10)
    await store.append("s", [NewEvent("t", b"new")])
    with pytest.raises(SeqConflict):  # of one who was asleep since
        await store.delete("s", expected_head=10)
    assert [event.data for event in await store.read("s", after=10)] == [b"new"]
    with pytest.raises(SeqConflict):
        await store.delete("unknown", expected_head=1)
    await store.delete("unknown", expected_head=0)
    for odd in (-1, True, 1.5, "1"):
        with pytest.raises(ValueError, match="expected_head"):
            await store.delete("s", expected_head=odd)  # type: ignore[arg-type]


@case(2, begin=ten)
async def deleting_one_stream_leaves_the_others(store: EventStore) -> None:
    await store.append("t", [NewEvent("t", b"x")])
    await store.snapshots.save(snapshot(1, stream_id="t"))
    await store.delete("s")
    assert [event.data for event in await store.read("t")] == [b"x"]
    assert await store.snapshots.load("t", "p") == snapshot(1, stream_id="t")


@case(5, begin=ten)
async def a_snapshot_comes_back_as_it_was(backend: Backend, store: EventStore) -> None:
    given = Snapshot("s", "p", 7, 4, 123, bytes(range(256)))
    assert await store.snapshots.save(given)
    assert await store.snapshots.load("s", "p") == given
    store = await backend.reopen(store)
    assert await store.snapshots.load("s", "p") == given
    assert await store.snapshots.load("s", "other") is None
    assert await store.snapshots.load("other", "p") is None


@case(5, each={"order": [(3, 7), (7, 3)]}, begin=ten)
async def of_two_savers_the_newer_snapshot_wins(store: EventStore, order: tuple[int, int]) -> None:
    """Known fault K6."""
    await asyncio.gather(*(store.snapshots.save(snapshot(last_seq)) for last_seq in order))
    assert await store.snapshots.load("s", "p") == snapshot(7)


@case(5, begin=ten)
async def a_snapshot_never_goes_backwards(store: EventStore) -> None:
    assert await store.snapshots.save(snapshot(7))
    assert not await store.snapshots.save(snapshot(3))
    assert not await store.snapshots.save(snapshot(7, "second"))
    assert await store.snapshots.load("s", "p") == snapshot(7)
    assert await store.snapshots.list("s") == [SnapshotInfo("p", 7, readable=True)]


@case(5, begin=ten)
async def of_the_same_seq_the_higher_version_is_kept(store: EventStore) -> None:
    await store.snapshots.save(snapshot(7))
    higher = replace(snapshot(7, "brought up"), version=2)
    assert await store.snapshots.save(higher)
    assert not await store.snapshots.save(snapshot(7))
    assert await store.snapshots.load("s", "p") == higher
    assert await store.snapshots.list("s") == [SnapshotInfo("p", 7, readable=True)]


@case(5, needs={"damage"}, begin=ten)
async def a_damaged_snapshot_is_passed_over_and_may_be_replaced(backend: Backend, store: EventStore) -> None:
    await store.snapshots.save(snapshot(3))
    await store.snapshots.save(snapshot(7))
    await backend.damage_snapshot("s", "p", 7)
    assert await store.snapshots.load("s", "p") == snapshot(3)
    assert await store.snapshots.list("s") == [SnapshotInfo("p", 3, readable=True), SnapshotInfo("p", 7, readable=False)]
    assert await store.snapshots.save(snapshot(7, "mended"))
    assert await store.snapshots.load("s", "p") == snapshot(7, "mended")


@case(5, each={"last_seq": [-1, 0, 11, 2**63]}, begin=ten)
async def a_snapshot_outside_the_events_is_refused(store: EventStore, last_seq: int) -> None:
    with pytest.raises(ValueError, match=r"last_seq|outside"):
        await store.snapshots.save(snapshot(last_seq))


@case(5, begin=ten)
async def a_snapshot_of_another_life_of_the_stream_is_refused(store: EventStore) -> None:
    await store.delete("s")
    await store.append("s", [NewEvent("t", b"k")])
    with pytest.raises(ValueError, match="outside"):
        await store.snapshots.save(snapshot(10))
    assert await store.snapshots.save(snapshot(11))


@case(6, 7, needs={"damage"}, begin=ten)
async def the_last_base_of_a_truncated_stream_is_not_deleted(backend: Backend, store: EventStore) -> None:
    for last_seq in (4, 6, 8):
        await store.snapshots.save(snapshot(last_seq))
    await store.truncate("s", through=6)
    await backend.damage_snapshot("s", "p", 8)
    with pytest.raises(SnapshotNeeded) as refused:
        await store.snapshots.delete("s", "p", 6)
    assert (refused.value.stream_id, refused.value.projector, refused.value.last_seq) == ("s", "p", 6)
    await store.snapshots.delete("s", "p", 4)
    await store.snapshots.delete("s", "p", 8)
    assert await store.snapshots.load("s", "p") == snapshot(6)
    await store.snapshots.delete("s", "p")  # a retired projector goes by its name
    assert await store.snapshots.list("s") == []


@case(5, begin=ten)
async def a_snapshot_of_a_complete_stream_may_be_dropped(store: EventStore) -> None:
    await store.snapshots.save(snapshot(4))
    await store.snapshots.save(snapshot(4, projector="q"))
    await store.snapshots.delete("s", "p", 4)
    await store.snapshots.delete("s", "p", 99)
    assert await store.snapshots.list("s") == [SnapshotInfo("q", 4, readable=True)]


@case(6, needs={"damage"}, begin=ten)
async def retention_keeps_the_newest_readable_ones(backend: Backend, store: EventStore) -> None:
    for last_seq in (2, 4, 6, 8):
        await store.snapshots.save(snapshot(last_seq))
    await backend.damage_snapshot("s", "p", 8)
    await retain(store.snapshots, "s", "p", keep=2)
    assert [info.last_seq for info in await store.snapshots.list("s")] == [4, 6, 8]
    with pytest.raises(ValueError, match="at least 1"):
        await retain(store.snapshots, "s", "p", keep=0)
    await retain(store.snapshots, "s", "p", keep=1)
    assert await store.snapshots.load("s", "p") == snapshot(6)


@case(5, 6, each={"seed": list(range(6))}, begin=ten)
async def saving_and_retention_in_any_order_keep_the_newest_snapshot(store: EventStore, seed: int) -> None:
    """Known faults K6, K8: every call is held up at random."""
    chance = random.Random(seed)
    late = disturb(store, chance, late=0.6).snapshots
    saved = {0}

    async def save() -> None:
        for last_seq in chance.sample(range(1, 11), 7):
            if await late.save(snapshot(last_seq)):
                saved.add(last_seq)

    async def keep_few() -> None:
        for _ in range(8):
            await retain(late, "s", "p", keep=chance.choice([1, 2]))

    async def look() -> None:
        newest = 0
        for _ in range(20):
            before = max(saved)
            loaded = await late.load("s", "p")
            found = 0 if loaded is None else loaded.last_seq
            assert found >= max(newest, before)
            newest = found

    await asyncio.gather(save(), save(), keep_few(), keep_few(), look())
    assert await store.snapshots.load("s", "p") == snapshot(max(saved))
