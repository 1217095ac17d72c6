"""Loads a state: the newest snapshot, and the events behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from projector.json_text import InvalidJson
from projector.projector import Projector
from stream import Snapshot, SnapshotUnreadable, Truncated
from stream.checks import check_kind
from stream.logger import Logger

if TYPE_CHECKING:
    from stream import EventStore, SnapshotStore

S = TypeVar("S")
_LOG = Logger("tailfold.projector")


class Loaded(NamedTuple, Generic[S]):
    """A state after all events up to `last_seq`."""

    state: S
    last_seq: int


async def load(projector: Projector[S], store: EventStore, snapshots: SnapshotStore, stream_id: str) -> Loaded[S]:
    """The state after all events that were there when it was called, and perhaps a few more.

    With a complete log a snapshot only saves time; one that can't be read is passed over. With a truncated log it
    is the base record: raises `SnapshotUnreadable` where none reaches down to the floor, never folds the
    bare tail. A log that is truncated meanwhile is loaded again.
    """
    check_kind("projector", projector, Projector, "a Projector")
    while True:
        base = await _base(projector, store, snapshots, stream_id)
        try:
            return await catch_up(projector, store, stream_id, base)
        except Truncated as error:
            _LOG.info("projector.load_restarted", stream_id=stream_id, floor=error.floor)


async def catch_up(projector: Projector[S], store: EventStore, stream_id: str, base: Loaded[S]) -> Loaded[S]:
    """Folds what came after `base`, page by page. Raises `Truncated` if the floor lies above it."""
    state, last_seq = base
    while events := await store.read(stream_id, after=last_seq):
        for event in events:
            state = projector.fold(state, event)
        last_seq = events[-1].seq
    return Loaded(state, last_seq)


def restore(projector: Projector[S], snapshot: Snapshot) -> S:
    """The state in a snapshot, brought up to the projector's version. Raises `SnapshotUnreadable`."""
    data = snapshot.state
    for version in range(snapshot.version, projector.version):
        if version not in projector.upcast:
            why = f"the snapshot has version {snapshot.version}, and nothing brings version {version} up"
            raise SnapshotUnreadable(snapshot.stream_id, projector.name, why)
        data = projector.upcast[version](data)
    if snapshot.version > projector.version:
        why = f"the snapshot has version {snapshot.version}, this program knows {projector.version}: upgrade it"
        raise SnapshotUnreadable(snapshot.stream_id, projector.name, why)
    try:
        return projector.decode(data)
    except InvalidJson as error:
        raise SnapshotUnreadable(snapshot.stream_id, projector.name, str(error)) from error


async def _base(projector: Projector[S], store: EventStore, snapshots: SnapshotStore, stream_id: str) -> Loaded[S]:
    snapshot = await snapshots.load(stream_id, projector.name)
    bounds = await store.bounds(stream_id)
    why = "the log is truncated and there is no readable snapshot at or above its floor"
    if snapshot is not None and bounds.floor <= snapshot.last_seq and snapshot.last_seq > bounds.origin:
        try:
            return Loaded(restore(projector, snapshot), snapshot.last_seq)
        except SnapshotUnreadable as error:
            why = error.why
            _LOG.warning("projector.snapshot_passed_over", stream_id=stream_id, projector=projector.name, why=why)
    if bounds.floor > bounds.origin:
        raise SnapshotUnreadable(stream_id, projector.name, why)
    return Loaded(projector.initial, bounds.origin)
