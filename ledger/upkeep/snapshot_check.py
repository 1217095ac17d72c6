"""Snapshots against their events: what a projector's snapshot should hold, found by folding again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector import open_runs
from projector.loading import restore
from stream import SnapshotUnreadable

if TYPE_CHECKING:
    from ledger.engine import Engine
    from projector import Projector

_PAGE_EVENTS: Final = 1000


async def differing_snapshots(engine: Engine, conversation: str) -> list[str]:
    """What is wrong with the newest snapshot of each projector that this ledger knows, as far as the log can tell.

    Of a truncated log an older snapshot is what to begin with; without one the newest can't be proven.
    """
    found = []
    for projector in (open_runs, *engine.projectors):
        why = await _look_at(engine, conversation, projector)
        if why is not None:
            found.append(f"snapshot of {projector.name}: {why}")
    return found


async def _look_at(engine: Engine, conversation: str, projector: Projector[Any]) -> str | None:
    newest = await engine.store.snapshots.load(conversation, projector.name)
    bounds = await engine.store.bounds(conversation)  # afterwards, for the log may grow meanwhile
    if newest is None or newest.version != projector.version or bounds.floor > bounds.origin:
        return None
    if not bounds.origin < newest.last_seq <= bounds.head:
        return None if newest.last_seq <= bounds.origin else f"it reaches to {newest.last_seq}, the log to {bounds.head}"
    state, last_seq = projector.initial, bounds.origin
    while events := await engine.store.read(conversation, after=last_seq, limit=min(_PAGE_EVENTS, newest.last_seq - last_seq)):
        for event in events:
            state = projector.fold(state, event)
        last_seq = events[-1].seq
        if last_seq == newest.last_seq:
            break
    try:
        said = restore(projector, newest)
    except SnapshotUnreadable as error:
        return error.why
    return (
        None
        if said == state or projector.encode(state) == projector.encode(said)
        else f"at {newest.last_seq} it differs from its events"
    )
