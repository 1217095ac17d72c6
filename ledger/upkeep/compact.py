"""Lets a log go as far as the ledger holds it, keeps what projectors know of what goes, and packs what has been said."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ledger.errors import LedgerDamaged, UnknownConversation
from ledger.kinds import is_reserved, require_conversation
from ledger.pins import pins_of
from ledger.tables import bodies, choices
from ledger.tables.conversations import Position, position
from ledger.tables.holds import held
from ledger.upkeep import floor
from projector import Projector, load, open_runs
from projector import compact as compact_stream
from projector.loading import Loaded
from stream import SnapshotUnreadable
from stream.checks import check_flag, check_kind
from stream.limits import check_id, check_position

if TYPE_CHECKING:
    from ledger.catchup import Caught
    from ledger.engine import Engine
    from projector import Compaction, State
    from stream.database import Sql

S = TypeVar("S")


async def compact(engine: Engine, conversation: str, *, replay_window: int, drop_unkept: bool, dry_run: bool) -> Compaction:
    """See `Ledger.compact`."""
    check_position("replay_window", replay_window)
    check_flag("dry_run", dry_run)
    store = (engine if dry_run else engine.writing).store
    if is_reserved(check_id("conversation id", conversation)):  # nothing of it is taken in
        await require_conversation(store, conversation, Position(), await store.bounds(conversation))
    caught = await engine.require(conversation)
    state = caught.state

    async def job(sql: Sql) -> tuple[Position, dict[str, int], bool]:
        is_stale = False
        with suppress(LedgerDamaged):  # a row that can't be read is told by `verify`, and stops nothing here
            known = await choices.choices(sql, conversation)
            is_stale = bool(known) and await choices.without_redacted(sql, conversation) != known
        return await position(sql, conversation), await held(engine.tables, sql, conversation), is_stale

    standing, holds, is_stale = await engine.tables.look(job)
    await require_conversation(store, conversation, standing, caught.bounds)
    pins = pins_of(
        state.last_seq,
        projected_seq=min(standing.projected_seq, state.last_seq),  # what came since may hold runs that are open
        open_runs={run.run_id: run.seq for run in state.open.values()},
        replay_window=replay_window,
        holds=holds,
    )
    known = {} if dry_run else {open_runs.name: await _base(engine, conversation, caught)}
    projectors = [open_runs, *engine.projectors]
    if is_stale and not dry_run:  # what the log lets go of a redacted text is not to live on in what was made of it
        await engine.tables.transact(lambda sql: choices.forget_redacted(sql, conversation))
    done = await compact_stream(
        projectors, store, store.snapshots, conversation, pins=pins, known=known, bounds=caught.bounds,
        drop_unkept=drop_unkept, dry_run=dry_run, truncate=partial(floor.truncate, engine, conversation),
    )  # fmt: skip
    while not dry_run and await engine.tables.transact(partial(bodies.move_bodies, conversation=conversation)):
        pass
    return done


async def project(engine: Engine, projector: Projector[S], conversation: str) -> S:
    """See `Ledger.project`."""
    check_kind("projector", projector, Projector, "a Projector")
    if (await engine.store.bounds(check_id("conversation id", conversation))).head == 0:
        raise UnknownConversation(conversation)
    return (await load(projector, engine.store, engine.store.snapshots, conversation)).state


async def _base(engine: Engine, conversation: str, caught: Caught) -> Loaded[State]:
    """The open runs as the whole log has them. Where it is truncated and its snapshots are lost, the ledger's own are it."""
    if not caught.exact:
        with suppress(SnapshotUnreadable):
            return await load(open_runs, engine.store, engine.store.snapshots, conversation)
    return Loaded(caught.state, caught.state.last_seq)
