"""Loading and compaction over both stores: snapshot plus tail, and never the bare tail (DESIGN, laws 6 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from projector import compact, load, open_runs, transcript
from projector.compaction import drop_older, floor_after, save_snapshot
from stream import Snapshot, SnapshotInfo, SnapshotUnreadable
from tests.talk import conversation, finished

if TYPE_CHECKING:
    from tests.backends import Backend, Store

pytestmark = pytest.mark.anyio


async def test_a_load_is_the_same_with_a_snapshot_at_every_position_before_and_after_truncation(backend: Backend) -> None:
    store = await backend.open(clock_ms=lambda: 0)  # times are information, not content
    events = conversation()
    await store.append("whole", events)
    whole = transcript.encode((await load(transcript, store, store.snapshots, "whole")).state)
    for cut in range(1, len(events) + 1):
        stream = f"cut {cut}"
        await store.append(stream, events[:cut])
        await save_snapshot(transcript, store, store.snapshots, stream)
        if events[cut:]:
            await store.append(stream, events[cut:])
        assert transcript.encode((await load(transcript, store, store.snapshots, stream)).state) == whole
        await store.truncate(stream, through=cut)
        assert transcript.encode((await load(transcript, store, store.snapshots, stream)).state) == whole


async def test_a_truncated_log_without_a_readable_base_is_never_folded_from_its_tail(store: Store, backend: Backend) -> None:
    await store.append("s", conversation())
    await store.truncate("s", through=5)
    with pytest.raises(SnapshotUnreadable):
        await load(transcript, store, store.snapshots, "s")
    await store.append("t", conversation())
    await compact([transcript], store, store.snapshots, "t")
    head = (await store.bounds("t")).head
    await backend.damage_snapshot("t", "transcript", head)
    with pytest.raises(SnapshotUnreadable):
        await load(transcript, store, store.snapshots, "t")


async def test_a_snapshot_below_the_floor_is_no_base_record(store: Store) -> None:
    await store.append("s", conversation()[:4])
    await save_snapshot(transcript, store, store.snapshots, "s")
    await store.append("s", conversation()[4:])
    await store.truncate("s", through=6)
    with pytest.raises(SnapshotUnreadable), anyio.fail_after(5):
        await load(transcript, store, store.snapshots, "s")


async def test_a_projector_of_a_new_version_is_compacted_though_nothing_came_since(store: Store) -> None:
    await store.append("s", conversation())
    await save_snapshot(transcript, store, store.snapshots, "s")
    second = transcript._replace(version=2)
    head = (await store.bounds("s")).head
    assert (await compact([second], store, store.snapshots, "s", drop_unkept=True)).floor == head
    loaded = await store.snapshots.load("s", "transcript")
    assert loaded is not None
    assert loaded.version == 2
    with pytest.raises(SnapshotUnreadable, match="upgrade it"):
        await compact([transcript], store, store.snapshots, "s")


async def test_what_a_compaction_keeps_is_of_the_version_that_it_was_made_with(store: Store) -> None:
    await store.append("s", conversation())
    whole = transcript.encode((await load(transcript, store, store.snapshots, "s")).state)
    await compact([transcript], store, store.snapshots, "s", drop_unkept=True)
    for version in (2, 3, 4):  # each program knows the version before it alone
        newer = transcript._replace(version=version, upcast={version - 1: lambda data: data})
        assert (await compact([newer], store, store.snapshots, "s")).binds is None
        assert transcript.encode((await load(newer, store, store.snapshots, "s")).state) == whole


async def test_a_complete_log_passes_over_a_damaged_snapshot_and_the_next_one_replaces_it(
    store: Store, backend: Backend
) -> None:
    await store.append("s", conversation())
    await save_snapshot(transcript, store, store.snapshots, "s")
    head = (await store.bounds("s")).head
    before = transcript.encode((await load(transcript, store, store.snapshots, "s")).state)
    await backend.damage_snapshot("s", "transcript", head)
    assert transcript.encode((await load(transcript, store, store.snapshots, "s")).state) == before
    await save_snapshot(transcript, store, store.snapshots, "s")
    assert [info.readable for info in await store.snapshots.list("s")] == [True]


async def test_a_snapshot_of_another_version_is_not_folded_on(store: Store) -> None:
    await store.append("s", conversation())
    newer = transcript._replace(version=2)
    await save_snapshot(transcript, store, store.snapshots, "s")
    assert (await load(newer, store, store.snapshots, "s")).last_seq == (await store.bounds("s")).head
    await store.truncate("s", through=3)
    with pytest.raises(SnapshotUnreadable, match="nothing brings version 1 up"):
        await load(newer, store, store.snapshots, "s")
    upcast = newer._replace(upcast={1: lambda data: data})
    assert (await load(upcast, store, store.snapshots, "s")).state.all_messages()


async def test_compaction_keeps_what_a_projector_with_a_snapshot_still_needs(store: Store) -> None:
    await store.append("s", conversation())
    await store.snapshots.save(Snapshot("s", "search", 1, 7, 0, b"state"))
    done = await compact([open_runs], store, store.snapshots, "s")
    assert (done.floor, done.binds) == (7, "snapshot:search")
    await store.snapshots.delete("s", "search")  # retired by its name
    head = (await store.bounds("s")).head
    done = await compact([open_runs], store, store.snapshots, "s")
    assert (done.floor, done.binds) == (head - 1, "unkept")  # the last event is a custom one


async def test_a_dry_run_changes_nothing_and_says_what_would_be(store: Store) -> None:
    await store.append("s", conversation())
    told = await compact([open_runs], store, store.snapshots, "s", pins={"ledger": 9}, dry_run=True)
    assert (told.floor, told.binds) == (9, "ledger")
    assert (await store.bounds("s")).floor == 0
    assert await store.snapshots.list("s") == []
    assert await compact([open_runs], store, store.snapshots, "s", pins={"ledger": 9}) == told


async def test_after_a_deletion_a_stream_begins_anew_behind_its_origin(store: Store) -> None:
    await store.append("s", conversation())
    await save_snapshot(transcript, store, store.snapshots, "s")
    await store.delete("s")
    await store.append("s", [*conversation(), finished("r2")])
    loaded = await load(transcript, store, store.snapshots, "s")
    assert next(run.seq for run in loaded.state.ended.values()) == len(conversation()) + 1


def test_an_unreadable_snapshot_lets_nothing_go() -> None:
    stored = [SnapshotInfo("a", 90, readable=True), SnapshotInfo("b", 50, readable=False)]
    assert floor_after(100, 0, stored, {}, {}) == (0, "snapshot:b")
    assert floor_after(100, 0, [], {}, {}) == (0, "snapshot")
    assert floor_after(100, 40, [SnapshotInfo("a", 20, readable=True)], {}, {}) == (40, "snapshot:a")


async def test_a_compaction_leaves_the_newest_snapshot_and_no_older_one_wherever_the_floor_is_bound(store: Store) -> None:
    events = conversation()
    for cut, event in enumerate(events, 1):
        await store.append("s", [event])
        if cut % 5 == 0:
            await save_snapshot(transcript, store, store.snapshots, "s")
    head = len(events)
    assert len(await store.snapshots.list("s")) > 2
    for bound in (0, 3, head):
        assert (
            await compact([transcript], store, store.snapshots, "s", pins={"ledger": bound}, drop_unkept=True)
        ).floor == bound
        assert await store.snapshots.list("s") == [SnapshotInfo("transcript", head, readable=True)]


async def test_an_older_snapshot_stays_where_the_newer_one_has_become_unreadable(store: Store, backend: Backend) -> None:
    """It is looked at again in the transaction that would drop the older one: that may be the base record."""
    events = conversation()
    await store.append("s", events[:6])
    await save_snapshot(transcript, store, store.snapshots, "s")
    await store.append("s", events[6:])
    await save_snapshot(transcript, store, store.snapshots, "s")
    await store.truncate("s", through=6)
    stored = await store.snapshots.list("s")
    await backend.damage_snapshot("s", "transcript", len(events))
    await drop_older(store.snapshots, "s", "transcript", stored)
    assert [info.readable for info in await store.snapshots.list("s")] == [True, False]
    assert (await load(transcript, store, store.snapshots, "s")).last_seq == len(events)
