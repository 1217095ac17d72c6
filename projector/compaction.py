"""Compaction: what may leave the log, once its state is kept elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from projector.foreign import count_unkept, first_unkept
from projector.loading import Loaded, load, restore
from projector.projector import Projector
from stream import Snapshot, SnapshotNeeded, SnapshotUnreadable
from stream.checks import check_flag, check_kind, check_list, check_mapping, shown
from stream.clock import now_ms
from stream.limits import check_position
from stream.logger import Logger
from stream.snapshots import outdated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stream import Bounds, EventStore, SnapshotInfo, SnapshotStore

S = TypeVar("S")
Truncate = Callable[[int, str | None], Awaitable[tuple[int, str | None]]]
"""Raises the floor at most to what it is given, which the reason beside it binds; says where it is then, and what binds it."""
_LOG = Logger("tailfold.projector")
UNKEPT: Final = "unkept"


class Compaction(NamedTuple):
    """The floor before and after, and what binds it; None if nothing does, or several.

    What binds is a pin's reason, `snapshot:NAME`, or `unkept`: the event behind the floor is of a type that nothing but
    the log keeps. `unkept` counts the events of such types that went all the same.
    """

    floor_before: int
    floor: int
    head: int
    binds: str | None
    unkept: int = 0


async def compact(
    projectors: Sequence[Projector[Any]],
    store: EventStore,
    snapshots: SnapshotStore,
    stream_id: str,
    *,
    pins: Mapping[str, int] | None = None,
    known: Mapping[str, Loaded[Any]] | None = None,
    bounds: Bounds | None = None,
    drop_unkept: bool = False,
    dry_run: bool = False,
    truncate: Truncate | None = None,
) -> Compaction:
    """Saves a snapshot of each projector, reads it back, and raises the floor as far as everything allows.

    Of each of them the newest readable snapshot stays, and no older one.

    `pins` maps a reason to the highest seq that may go. A projector that has a snapshot of this stream binds too,
    named here or not. `known` are states of projectors, by name, that the caller has folded from the whole log, so that
    they are not loaded, and `bounds` those that it has just looked at. With `dry_run` nothing is written: the answer is
    what would be done. `truncate` is for a caller whose pins move: it looks at them again in the transaction that raises
    the floor.

    Events of types that are neither of the vocabulary nor among what a projector `keeps` hold the floor below them, and so
    does one that can't be read; with `drop_unkept` they go, and are counted. Raises what `load` raises.
    """
    _check(projectors, pins, dry_run=dry_run, drop_unkept=drop_unkept)
    for projector in () if dry_run else projectors:
        await save_snapshot(projector, store, snapshots, stream_id, (known or {}).get(projector.name))
    bounds = bounds or await store.bounds(stream_id)
    stored = await snapshots.list(stream_id)
    saved = {projector.name: bounds.head for projector in projectors} if dry_run else {}
    floor, binds = floor_after(bounds.head, bounds.floor, stored, pins or {}, saved)
    keeps = {kind for projector in projectors for kind in projector.keeps}  # their snapshots were read back above
    unkept = 0
    if drop_unkept:
        unkept = await count_unkept(store, stream_id, bounds.floor, floor, keeps)
    elif (seq := await first_unkept(store, stream_id, bounds.floor, floor, keeps)) is not None:
        floor, binds = seq - 1, UNKEPT
    if floor > bounds.floor and not dry_run:
        allowed = floor
        if truncate is not None:
            floor, binds = await truncate(floor, binds)
        else:
            floor = (await store.truncate(stream_id, through=floor)).floor
        if unkept:
            unkept -= await count_unkept(store, stream_id, floor, allowed, keeps)  # those that stayed after all
        _LOG.info("stream.compacted", stream_id=stream_id, floor=floor, head=bounds.head, binds=binds, unkept=unkept)
    for projector in () if dry_run else projectors:
        await drop_older(snapshots, stream_id, projector.name, stored)
    return Compaction(bounds.floor, floor, bounds.head, binds, unkept)


def _check(projectors: object, pins: object, **flags: object) -> None:
    for number, projector in enumerate(check_list("projectors", projectors, "Projectors")):
        check_kind(f"projectors[{number}]", projector, Projector, "a Projector")
    for reason, last_seq in check_mapping("pins", pins or {}, "reasons and positions").items():
        check_position(f"pins[{shown(reason)}]", last_seq)
    for name, flag in flags.items():
        check_flag(name, flag)


async def save_snapshot(
    projector: Projector[S], store: EventStore, snapshots: SnapshotStore, stream_id: str, known: Loaded[S] | None = None
) -> None:
    """Keeps the state, loaded where it is not `known`; what is found again is proven to be readable.

    Raises what `load` raises, and `SnapshotUnreadable` for what can't be read back.
    """
    state, last_seq = known or await load(projector, store, snapshots, stream_id)
    try:
        await keep(projector, snapshots, stream_id, state, last_seq)
    except (ValueError, SnapshotUnreadable):
        if last_seq > (await store.bounds(stream_id)).origin:  # or what it is of was deleted, and it with that
            raise


async def keep(projector: Projector[S], snapshots: SnapshotStore, stream_id: str, state: S, last_seq: int) -> None:
    """Saves a state after `last_seq` and reads it back. Raises `SnapshotUnreadable`."""
    created_at = now_ms()
    data = projector.encode(state)
    await snapshots.save(Snapshot(stream_id, projector.name, projector.version, last_seq, created_at, data))
    found = await snapshots.load(stream_id, projector.name)
    if found is None:
        raise SnapshotUnreadable(stream_id, projector.name, "what was saved can't be read back")
    restore(projector, found)


async def drop_older(
    snapshots: SnapshotStore, stream_id: str, projector: str, stored: Sequence[SnapshotInfo] | None = None
) -> None:
    """Lets the snapshots go that lie before the newest readable one; `stored` are those there are, if they are known.

    One by one, and each is looked at again in the transaction that drops it: what the log can't be loaded without stays.
    """
    with suppress(SnapshotNeeded):
        for last_seq in outdated(await snapshots.list(stream_id) if stored is None else stored, projector, keep=1):
            await snapshots.delete(stream_id, projector, last_seq)


def floor_after(
    head: int,
    floor: int,
    stored: Sequence[SnapshotInfo],
    pins: Mapping[str, int],
    saved: Mapping[str, int],
) -> tuple[int, str | None]:
    """The floor that everything allows, and what binds it. `saved` are snapshots that a dry run takes as made."""
    newest: dict[str, int] = dict(saved)
    for info in stored:
        readable = info.last_seq if info.readable else 0
        newest[info.projector] = max(newest.get(info.projector, 0), readable)
    limits = {f"snapshot:{name}": last_seq for name, last_seq in newest.items()} or {"snapshot": 0}
    limits |= pins
    lowest = min(limits.values())
    binding = [reason for reason, last_seq in limits.items() if last_seq == lowest]
    return max(floor, min(lowest, head)), binding[0] if lowest < head and len(binding) == 1 else None
