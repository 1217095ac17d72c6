"""Lets a log go as far as the ledger holds it, and keeps what projectors know of what goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ledger.errors import UnknownConversation
from ledger.pins import pins_of
from ledger.tables.holds import held
from projector import compact as compact_stream
from projector import load, open_runs
from projector.compaction import keep
from stream import SnapshotUnreadable
from stream.limits import check_id

if TYPE_CHECKING:
    from ledger.engine import Engine
    from projector import Compaction, Projector, State

S = TypeVar("S")


async def compact(engine: Engine, conversation: str, *, replay_window: int, dry_run: bool) -> Compaction:
    """See `Ledger.compact`."""
    store = engine.store
    state = (await engine.require(conversation)).state
    pins = pins_of(
        (await store.bounds(conversation)).head,
        projected_seq=(await engine.tables.position(conversation)).projected_seq,
        open_runs={run.run_id: run.seq for run in state.open.values()},
        replay_window=replay_window,
        holds=await held(engine.tables, conversation),
    )
    if not dry_run:
        await _mend_base(engine, conversation, state)
    projectors = [open_runs, *engine.projectors]
    return await compact_stream(projectors, store, store.snapshots, conversation, pins=pins, dry_run=dry_run)


async def project(engine: Engine, projector: Projector[S], conversation: str) -> S:
    """See `Ledger.project`."""
    if (await engine.store.bounds(check_id("conversation id", conversation))).head == 0:
        raise UnknownConversation(conversation)
    return (await load(projector, engine.store, engine.store.snapshots, conversation)).state


async def _mend_base(engine: Engine, conversation: str, state: State) -> None:
    """Where the log is truncated and its snapshots are lost, the ledger's own position is a base record."""
    try:
        await load(open_runs, engine.store, engine.store.snapshots, conversation)
    except SnapshotUnreadable:
        await keep(open_runs, engine.store.snapshots, conversation, state, state.last_seq)
