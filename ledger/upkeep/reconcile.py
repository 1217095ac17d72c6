"""Reconcile: where ledger and log disagree, and what mends it.

The log is the authority for order, the ledger for identity: what the log still has is projected again, ids and
parents stay. What is below the floor can't be projected again, and what is gone is named, never called repaired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from ledger.erasure import is_pending
from ledger.errors import LedgerBehind, LedgerDiverged, UnknownConversation
from ledger.moment import look
from ledger.upkeep import repair as mending
from ledger.upkeep.comparison import compare
from ledger.upkeep.verify import Finding, check_tree
from projector import State, open_runs
from stream import CorruptEvent, Truncated
from stream.checks import check_flag
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.engine import Engine
    from ledger.moment import Moment
    from ledger.tables.conversations import Position
    from stream import Bounds

_LOG: Final = structlog.get_logger("tailfold.ledger")


async def reconcile(engine: Engine, conversation: str | None = None, *, repair: bool = False) -> AsyncIterator[Finding]:
    """How each conversation differs between ledger and log: `behind`, `open`, `diverged`, `orphaned`, `hole`.

    With `repair` what can be mended is, and says so in `is_mended`; without, nothing is changed. Raises
    `UnknownConversation`.
    """
    check_flag("repair", repair)
    if conversation is not None:
        check_id("conversation id", conversation)
    for name in [conversation] if conversation is not None else await _all_names(engine):
        position, bounds = await look(engine.store, engine.tables, name, _stand)
        if not bounds.head and not position.projected_seq and conversation is not None:
            raise UnknownConversation(name)
        async for finding in _reconcile_one(engine, name, bounds, position, repair=repair):
            if finding.is_mended:
                _LOG.warning("ledger.repaired", conversation=name, kind=finding.kind)
            yield finding


async def _all_names(engine: Engine) -> list[str]:
    names = set(await engine.tables.names())
    async for info in engine.store.streams():
        names.add(info.stream_id)
    return sorted(names)


async def _stand(moment: Moment) -> tuple[Position, Bounds]:
    """The ledger first: where both are not of one moment, the log has come further meanwhile, and not the ledger."""
    return await moment.position(), await moment.bounds()


async def _reconcile_one(
    engine: Engine, conversation: str, bounds: Bounds, position: Position, *, repair: bool
) -> AsyncIterator[Finding]:
    if is_pending(position.erased):
        if repair:
            await engine.catch_up(conversation)
        yield Finding(conversation, "erasing", "an erase is not finished", "tailfold reconcile --repair", is_mended=repair)
        return
    standing = await _compare_positions(engine, conversation, bounds, position, repair=repair)
    if standing is not None:
        yield standing
    if standing is None or standing.kind != "damaged":
        async for finding in _compare(engine, conversation, repair=repair):
            yield finding
        async for finding in _look_at_open_runs(engine, conversation, repair=repair):
            yield finding


async def _compare_positions(
    engine: Engine, conversation: str, bounds: Bounds, position: Position, *, repair: bool
) -> Finding | None:
    """Whether one of the two is further than the other."""
    if position.projected_seq > bounds.head:
        return await _go_back(engine, conversation, bounds, position, repair=repair)
    if position.projected_seq == bounds.head:
        return None
    try:
        if repair:
            await engine.catch_up(conversation)
        elif await _is_hole(engine, conversation, bounds, position):
            raise LedgerBehind(conversation, max(position.replay_from, bounds.origin), bounds.floor)
    except LedgerBehind as error:
        return await _go_on_behind_hole(engine, conversation, error, repair=repair)
    except CorruptEvent as error:
        return Finding(conversation, "damaged", str(error), "restore the log from a backup")
    what = f"events {position.projected_seq + 1} to {bounds.head} are not taken in"
    return Finding(conversation, "behind", what, "any command takes them in", is_note=not repair, is_mended=repair)


async def _go_back(engine: Engine, conversation: str, bounds: Bounds, position: Position, *, repair: bool) -> Finding:
    """The log ends before the ledger does: it is older, or another's. What the ledger holds stays."""
    if repair:
        await mending.rewind(engine.tables, conversation, bounds.head)
        engine.forget(conversation)
    if not bounds.head:
        what = f"the ledger holds {position.messages} messages, the log has never had an event of it"
        return Finding(conversation, "orphaned", what, "restore the log, or --repair to go on from here", is_mended=repair)
    what = f"the ledger holds events up to {position.projected_seq}, the log ends at {bounds.head}; its messages stay"
    mend = "restore the log that belongs to this ledger, or --repair to go on from here"
    return Finding(conversation, "diverged", what, mend, is_mended=repair)


async def _go_on_behind_hole(engine: Engine, conversation: str, error: LedgerBehind, *, repair: bool) -> Finding:
    what = f"events {error.needed + 1} to {error.floor} are gone, the ledger had not taken them in"
    mend = "restore a newer ledger or an older log; --repair takes in what is behind them"
    if repair:
        await mending.skip_hole(engine.store, engine.tables, conversation, error.needed, error.floor)
        engine.forget(conversation)
        await engine.catch_up(conversation)
        what += ": what comes behind them was taken in, they are lost"
    return Finding(conversation, "hole", what, mend)


async def _is_hole(engine: Engine, conversation: str, bounds: Bounds, position: Position) -> bool:
    snapshot = await engine.store.snapshots.load(conversation, open_runs.name)
    if snapshot is not None and max(bounds.floor, bounds.origin + 1) <= snapshot.last_seq <= position.projected_seq:
        return False
    return max(position.replay_from, bounds.origin) < bounds.floor


async def _compare(engine: Engine, conversation: str, *, repair: bool) -> AsyncIterator[Finding]:
    try:
        compared = await compare(engine, conversation)
    except CorruptEvent as error:
        yield Finding(conversation, "damaged", str(error), "restore the log from a backup")
        return
    except Truncated:
        return
    is_wrong = False
    for difference in compared.differences:
        is_wrong = True
        is_mended = repair and await mending.rewrite(engine.tables, conversation, difference, compared.position)
        what = f"run {difference.run_id}: {difference.why}"
        yield Finding(conversation, "diverged", what, "--repair writes it anew from the log", is_mended=is_mended)
    findings = [finding async for finding in check_tree(engine, conversation) if not finding.is_note]
    if (findings or is_wrong) and repair:
        await mending.rebuild_tree(engine.tables, conversation)
        engine.forget(conversation)
        left = {(finding.kind, finding.what) async for finding in check_tree(engine, conversation)}
        findings = [finding._replace(is_mended=(finding.kind, finding.what) not in left) for finding in findings]
    for finding in findings:
        yield finding


async def _look_at_open_runs(engine: Engine, conversation: str, *, repair: bool) -> AsyncIterator[Finding]:
    listed = [run async for run in engine.tables.runs(conversation, only_open=True)]
    if not listed:
        return
    try:
        state = (await engine.catch_up(conversation)).state if repair else await _fold_open_runs(engine, conversation)
    except (LedgerBehind, LedgerDiverged, CorruptEvent, Truncated):
        return  # told above
    for run in listed:
        if run.run_id in state.open:
            mend = f"tailfold recover {run.run_id} --action commit"
            yield Finding(conversation, "open", f"run {run.run_id} has no end", mend, is_note=True)
        elif not await _has_ended(engine, conversation, run.run_id):
            if repair:
                await mending.end_lost_run(engine.tables, conversation, run.run_id)
            what = f"run {run.run_id} is listed as open, and its events are gone"
            yield Finding(conversation, "orphaned", what, "--repair lists it as failed", is_mended=repair)


async def _has_ended(engine: Engine, conversation: str, run_id: str) -> bool:
    """Taken in meanwhile, or to be taken in: it lies in what the ledger is behind."""
    run = await engine.tables.run(conversation, run_id)
    position = await engine.tables.position(conversation)
    bounds = await engine.store.bounds(conversation)
    return run is None or run.status != "open" or (run.seq > bounds.floor and position.projected_seq < bounds.head)


async def _fold_open_runs(engine: Engine, conversation: str) -> State:
    """The open runs by the log alone, without moving the ledger."""
    bounds = await engine.store.bounds(conversation)
    position = await engine.tables.position(conversation)
    state = State(last_seq=max(position.replay_from, bounds.floor))
    while events := await engine.store.read(conversation, after=state.last_seq):
        for event in events:
            state = open_runs.fold(state, event)
    return state
