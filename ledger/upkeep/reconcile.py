"""Reconcile: where ledger and log disagree, and what mends it.

The log is the authority for order, the ledger for identity: what the log still has is projected again, ids and
parents stay. What is below the floor can't be projected again, and what is gone is named, never called repaired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.catchup import find_base
from ledger.erasure import is_pending, is_under_way
from ledger.errors import LedgerBehind, UnknownConversation
from ledger.kinds import is_let_go_by_others, is_reserved
from ledger.moment import look, stand
from ledger.tables import conversations, runs
from ledger.upkeep import repair as mending
from ledger.upkeep.comparison import compare
from ledger.upkeep.verify import Finding, check_tree
from projector import open_runs
from stream import CorruptEvent, Truncated
from stream.checks import check_flag
from stream.limits import check_id
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.engine import Engine
    from ledger.moment import Moment
    from ledger.records import RunInfo
    from ledger.tables.conversations import Position
    from ledger.upkeep.comparison import Comparison
    from projector import State
    from stream import Bounds
    from stream.database import Sql

_LOG: Final = Logger("tailfold.ledger")
_PAGE_EVENTS: Final = 1000
_TRIES: Final = 20  # each is missed only where somebody amends that very run between the look and the step


async def reconcile(engine: Engine, conversation: str | None = None, *, repair: bool = False) -> AsyncIterator[Finding]:
    """How each conversation differs between ledger and log: `behind`, `open`, `diverged`, `orphaned`, `hole`.

    With `repair` what can be mended is, and says so in `is_mended`; without, nothing is changed. Others may write, compact,
    erase and repair meanwhile: what they do is no difference and is not taken back. Raises `UnknownConversation`.
    """
    check_flag("repair", repair)
    if conversation is not None:
        check_id("conversation id", conversation)
    for name in [conversation] if conversation is not None else await _all_names(engine):
        position, bounds = await look(engine.store, engine.tables, name, stand)
        if not bounds.head and not position.projected_seq and conversation is not None:
            raise UnknownConversation(name)
        if is_reserved(name) and not position.projected_seq:  # nothing of it is taken in
            continue
        async for finding in _reconcile_one(engine, name, position, repair=repair):
            if finding.is_mended and not finding.is_note:
                _LOG.warning("ledger.repaired", conversation=name, kind=finding.kind)
            yield finding


async def _all_names(engine: Engine) -> list[str]:
    names = set(await engine.tables.names())
    async for info in engine.store.streams():
        names.add(info.stream_id)
    return sorted(names)


async def _reconcile_one(engine: Engine, conversation: str, position: Position, *, repair: bool) -> AsyncIterator[Finding]:
    if is_pending(position.erased):
        yield await _look_at_erasure(engine, conversation, position, repair=repair)
        return
    standing = await _compare_positions(engine, conversation, repair=repair)
    if standing is not None:
        yield standing
    async for finding in _look_at_order(engine, conversation, repair=repair):
        yield finding
    if standing is None or standing.kind != "damaged":
        async for finding in _compare(engine, conversation, repair=repair):
            yield finding
        async for finding in _look_at_open_runs(engine, conversation, repair=repair):
            yield finding


async def _look_at_erasure(engine: Engine, conversation: str, position: Position, *, repair: bool) -> Finding:
    if is_under_way(position.erased, await engine.tables.look(engine.tables.now)):
        return Finding(conversation, "erasing", "it is being erased", "nothing: whoever does it is at work", is_note=True)
    if repair:
        await engine.catch_up(conversation)
    return Finding(conversation, "erasing", "an erase is not finished", "tailfold reconcile --repair", is_mended=repair)


async def _compare_positions(engine: Engine, conversation: str, *, repair: bool) -> Finding | None:
    """Whether one of the two is further than the other. Where others have moved them before a step, it looks again."""
    while True:
        position, bounds = await look(engine.store, engine.tables, conversation, stand)
        if position.projected_seq == bounds.head or is_pending(position.erased):
            return None
        try:
            if position.projected_seq > bounds.head:
                found = await _go_back(engine, conversation, bounds, position, repair=repair)
            elif repair:
                await engine.catch_up(conversation)
                found = _behind(conversation, bounds, position, is_mended=True)
            elif await _is_hole(engine, conversation, bounds, position):
                raise LedgerBehind(conversation, max(position.replay_from, bounds.origin), bounds.floor)
            else:
                found = _behind(conversation, bounds, position, is_mended=False)
        except LedgerBehind as error:
            if not (await engine.tables.position(conversation)).is_at(position):
                continue
            found = await _go_on_behind_hole(engine, conversation, error, position, repair=repair)
        except CorruptEvent as error:
            return Finding(conversation, "damaged", str(error), "restore the log from a backup")
        if found is not None:
            return found


def _behind(conversation: str, bounds: Bounds, position: Position, *, is_mended: bool) -> Finding:
    what = f"events {position.projected_seq + 1} to {bounds.head} are not taken in"
    return Finding(conversation, "behind", what, "any command takes them in", is_note=True, is_mended=is_mended)


async def _go_back(engine: Engine, conversation: str, bounds: Bounds, position: Position, *, repair: bool) -> Finding | None:
    """The log ends before the ledger does: it is older, or another's. What the ledger holds stays. None: look again."""
    if repair:
        if not await mending.rewind(engine.tables, conversation, bounds.head, position):
            return None
        engine.forget(conversation)
    if not bounds.head:
        what = f"the ledger holds {position.messages} messages, the log has never had an event of it"
        return Finding(conversation, "orphaned", what, "restore the log, or --repair to go on from here", is_mended=repair)
    what = f"the ledger holds events up to {position.projected_seq}, the log ends at {bounds.head}; its messages stay"
    mend = "restore the log that belongs to this ledger, or --repair to go on from here"
    return Finding(conversation, "diverged", what, mend, is_mended=repair)


async def _go_on_behind_hole(
    engine: Engine, conversation: str, error: LedgerBehind, position: Position, *, repair: bool
) -> Finding | None:
    """None: look again."""
    what = f"events {error.needed + 1} to {error.floor} are gone, the ledger had not taken them in"
    mend = "restore a newer ledger or an older log; --repair takes in what is behind them"
    if repair:
        hole = (error.needed, error.floor)
        try:
            if not await mending.skip_hole(engine.store, engine.tables, conversation, hole, position):
                return None
        except Truncated:
            return None
        engine.forget(conversation)
        await engine.catch_up(conversation)
        what += ": what comes behind them was taken in, they are lost"
    return Finding(conversation, "hole", what, mend)


async def _is_hole(engine: Engine, conversation: str, bounds: Bounds, position: Position) -> bool:
    snapshot = await engine.store.snapshots.load(conversation, open_runs.name)
    if snapshot is not None and max(bounds.floor, bounds.origin + 1) <= snapshot.last_seq <= position.projected_seq:
        return False
    left = await engine.store.read(conversation, after=bounds.floor)
    if is_let_go_by_others(position, snapshot, left):
        return False
    return max(position.replay_from, bounds.origin) < bounds.floor


async def _look_at_order(engine: Engine, conversation: str, *, repair: bool) -> AsyncIterator[Finding]:
    """Ahead of the comparison: what a run said is looked for where it started."""
    misplaced = await engine.tables.misplaced(conversation)
    if misplaced and repair:
        await mending.put_in_order(engine.tables, conversation, misplaced)
        engine.forget(conversation)
    still = {one.message_id for one in await engine.tables.misplaced(conversation)} if misplaced else set()
    for one in misplaced:
        (seq, start), (true_seq, true_start) = one.at, one.told
        what = f"message {one.message_id} is listed at {seq} of a run at {start}, by what is said {true_seq} of {true_start}"
        yield Finding(conversation, "diverged", what, "--repair lists it there", is_mended=one.message_id not in still)


async def _compare(engine: Engine, conversation: str, *, repair: bool) -> AsyncIterator[Finding]:
    try:
        compared = await compare(engine, conversation)
        told = compared.differences
        mended = await _rewrite(engine, conversation, compared) if repair and told else set()
    except CorruptEvent as error:
        yield Finding(conversation, "damaged", str(error), "restore the log from a backup")
        return
    for difference in told:
        what = f"run {difference.run_id}: {difference.why}"
        is_mended = difference.run_id in mended
        yield Finding(conversation, "diverged", what, "--repair writes it anew from the log", is_mended=is_mended)
    findings = [finding async for finding in check_tree(engine, conversation) if not finding.is_note]
    if findings and repair:
        await mending.rebuild_tree(engine.tables, conversation)
        engine.forget(conversation)
        still = {(finding.kind, finding.what) async for finding in check_tree(engine, conversation)}
        findings = [finding._replace(is_mended=(finding.kind, finding.what) not in still) for finding in findings]
    for finding in findings:
        yield finding


async def _rewrite(engine: Engine, conversation: str, compared: Comparison) -> set[str]:
    """Writes anew what differs, until nothing does; the runs that are what the log says then, whoever has mended them."""
    wrong = {difference.run_id for difference in compared.differences}
    written: set[str] = set()
    untold: set[str] = set()
    for _ in range(_TRIES):
        written |= await mending.rewrite(engine.tables, conversation, compared.differences, compared.position)
        try:
            await compared.look_again()
        except Truncated:
            untold = wrong - written  # what they should be is gone
            compared = await compare(engine, conversation)
        if not compared.differences:
            break
    engine.forget(conversation)
    return wrong - untold - {difference.run_id for difference in compared.differences}


async def _look_at_open_runs(engine: Engine, conversation: str, *, repair: bool) -> AsyncIterator[Finding]:
    """Runs that are listed as open, held against the log up to where the ledger was at that moment."""

    async def job(sql: Sql) -> tuple[Position, list[RunInfo]]:
        return await conversations.position(sql, conversation), await runs.list_open(sql, conversation)

    state: State | None = None
    while state is None:
        position, listed = await engine.tables.look(job)
        if not listed:
            return
        try:
            state = await _open_at(engine, conversation, position)
        except CorruptEvent:
            return  # told above
        except (LedgerBehind, Truncated):
            if (await engine.tables.position(conversation)).is_at(position):
                return  # told above
    for run in listed:
        if run.run_id in state.open:
            mend = f"tailfold recover {run.run_id} --action commit"
            yield Finding(conversation, "open", f"run {run.run_id} has no end", mend, is_note=True)
        elif not repair or await mending.end_lost_run(engine.tables, conversation, run):
            what = f"run {run.run_id} is listed as open, and its events are gone"
            yield Finding(conversation, "orphaned", what, "--repair lists it as failed", is_mended=repair)


async def _open_at(engine: Engine, conversation: str, position: Position) -> State:
    """The open runs by the log alone, where the ledger was, and without moving it.

    Raises `LedgerBehind` and `Truncated` where what it needs is gone, `CorruptEvent`.
    """

    async def job(moment: Moment) -> State:
        known, _ = await find_base(moment, conversation, position, await moment.bounds())
        return known.state

    state = await look(engine.store, engine.tables, conversation, job)
    if state.last_seq > position.projected_seq:
        raise Truncated(conversation, position.projected_seq, state.last_seq)
    while state.last_seq < position.projected_seq:
        limit = min(_PAGE_EVENTS, position.projected_seq - state.last_seq)
        events = await engine.store.read(conversation, after=state.last_seq, limit=limit)
        for event in events:
            state = open_runs.fold(state, event)
        if not events:  # the log ends before the ledger does
            break
    return state
