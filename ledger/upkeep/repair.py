"""How reconcile mends, step by step; each is one transaction on the ledger's tables.

Between a look and its step others go on, and the process may have slept: so each step asks, in its transaction, whether
the ledger still is as it was seen, and else leaves it alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ledger.records import RunInfo
from ledger.tables import bodies, branches, choices, conversations, messages, order, runs
from ledger.tables.calls import drop_calls, fill_calls, start_over
from ledger.tables.commit import apply, tell
from ledger.tables.messages import Placed
from ledger.tables.run_rows import rows_of
from projector import State, open_runs
from projector.folds import project
from projector.loading import restore
from stream import SnapshotUnreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.tables.commit import Note
    from ledger.tables.conversations import Position
    from ledger.tables.order import Listed
    from ledger.tables.tables import LedgerTables
    from ledger.upkeep.comparison import Difference
    from projector.effects import Effect
    from stream import EventStore
    from stream.database import Sql

_PAGE_EVENTS: Final = 1000
_AT_ONCE: Final = 200  # runs that one transaction writes


async def rewind(tables: LedgerTables, conversation: str, head: int, seen: Position) -> bool:
    """Puts the position back to the end of a log that is shorter; messages that are committed stay.

    What was chosen behind that end goes: the seqs it has are given to others. False, and nothing changed, where the
    ledger is not where it was `seen` any more.
    """

    async def job(sql: Sql) -> bool:
        if not (await conversations.position(sql, conversation)).is_at(seen):
            return False
        await conversations.rewind(sql, conversation, head)
        await choices.drop_behind(sql, conversation, head)
        await branches.drop_behind(sql, await _require_key(sql, conversation), head)
        return True

    return await tables.transact(job)


async def skip_hole(store: EventStore, tables: LedgerTables, conversation: str, hole: tuple[int, int], seen: Position) -> bool:
    """Goes on behind events that are gone, and remembers which: (after, through).

    Runs that were open at a snapshot behind the hole are known; of what ended before it only what began there, too.
    False, and nothing changed, where the ledger is not where it was `seen` any more. Raises `Truncated`, `CorruptEvent`.
    """
    _, floor = hole
    state = State(last_seq=floor)
    effects: list[Effect] = []
    base = await _base(store, conversation, floor)
    while base is not None and state.last_seq < base.last_seq:
        limit = min(_PAGE_EVENTS, base.last_seq - state.last_seq)
        events = await store.read(conversation, after=state.last_seq, limit=limit)
        if not events:  # a snapshot of what this log never had
            base, effects = None, []
        for event in events:
            state, effect = project(state, event)
            effects += [] if effect is None else [effect]
    start = floor if base is None else base.last_seq
    replay_from = min([start, *(run.seq - 1 for run in base.open.values() if run.seq > floor)]) if base else floor

    async def job(sql: Sql) -> list[Note] | None:
        if not (await conversations.position(sql, conversation)).is_at(seen):
            return None
        key = await conversations.skip(sql, conversation, hole, start, replay_from)
        if not effects:
            return []
        await conversations.mark(sql, key, 0)
        return await apply(sql, key, conversation, effects)

    notes = await tables.transact(job)
    tell(conversation, notes or ())
    return notes is not None


async def _base(store: EventStore, conversation: str, floor: int) -> State | None:
    snapshot = await store.snapshots.load(conversation, open_runs.name)
    if snapshot is None or snapshot.last_seq < floor:
        return None
    try:
        return restore(open_runs, snapshot)
    except SnapshotUnreadable:
        return None


async def rewrite(tables: LedgerTables, conversation: str, differences: Sequence[Difference], seen: Position) -> set[str]:
    """Writes what runs leave anew, and says which; messages that are there keep their parents.

    Only over the rows that were held against the log: what an amendment or another repair has changed since stays, and
    nothing is written to a conversation that was erased or put back since it was `seen`.
    """
    written: set[str] = set()
    for first in range(0, len(differences), _AT_ONCE):
        some = differences[first : first + _AT_ONCE]
        written |= await tables.transact(partial(_rewrite_some, conversation=conversation, differences=some, seen=seen))
    return written


async def _rewrite_some(sql: Sql, conversation: str, differences: Sequence[Difference], seen: Position) -> set[str]:
    """With the tree that follows from it, so that nobody meets half of it."""
    position = await conversations.position(sql, conversation)
    written: set[str] = set()
    if position.rewound != seen.rewound:
        return written
    key = await _require_key(sql, conversation)
    is_another_tree = False
    for difference in differences:
        if await rows_of(sql, key, difference.run_id) == difference.rows:
            await _write(sql, key, conversation, difference)
            written.add(difference.run_id)
            is_another_tree |= (await rows_of(sql, key, difference.run_id)).shape != difference.rows.shape
            is_another_tree |= difference.rows.run is None
    if is_another_tree:
        await branches.rebuild(sql, key)
    if written:
        await bodies.start_over(sql, key)
    return written


async def _write(sql: Sql, key: int, conversation: str, difference: Difference) -> None:
    said = [message for message, _ in difference.messages]
    if difference.ended is None:
        for message in said:
            await messages.put(sql, key, None, message)
    else:
        run, end = difference.ended
        parents = difference.rows.parents
        said = [replace(message, parent_id=parents.get(message.id, message.parent_id)) for message in said]
        placed = [
            Placed(message, on_path, run.seq, end.status != "failed")
            for message, (_, on_path) in zip(said, difference.messages, strict=True)
        ]
        if difference.rows.shape == [(one.message.id, one.on_path, one.started, one.is_committed) for one in placed]:
            for message in said:  # which turn was chosen stays with them
                await messages.put(sql, key, None, message)
        else:
            await messages.drop(sql, key, list(parents))
            await drop_calls(sql, key, [*parents, *(message.id for message in said)])
            await messages.add(sql, key, placed)
        path = [one.message.id for one in placed if one.on_path]
        await runs.drop(sql, key, run.run_id)
        await runs.put(sql, key, RunInfo.of(conversation, run, end, len(path)), path[0] if path else None)
    if difference.usage is not None:
        await runs.put_usage(sql, key, difference.run_id, difference.usage)


async def put_in_order(tables: LedgerTables, conversation: str, misplaced: Sequence[Listed]) -> None:
    """Lists messages where they say they are; those that others have changed since stay as they are."""

    async def job(sql: Sql) -> None:
        await order.put_in_order(sql, await _require_key(sql, conversation), misplaced)

    await tables.transact(job)


async def rebuild_tree(tables: LedgerTables, conversation: str) -> None:
    """Works out leaf, counts, chosen turns, labels and calls from what is there; bodies that no row names leave their pages."""

    async def job(sql: Sql) -> None:
        key = await _require_key(sql, conversation)
        await branches.rebuild(sql, key)
        await conversations.rebuild_labels(sql, key)
        await bodies.drop_unnamed(sql, key)

    await tables.transact(job)
    if await tables.lacks_calls(conversation):
        await _rebuild_calls(tables, conversation)


async def _rebuild_calls(tables: LedgerTables, conversation: str) -> None:
    """In steps; whoever asks meanwhile looks at the messages themselves."""

    async def begin(sql: Sql) -> int:
        return await start_over(sql, await _require_key(sql, conversation))

    async def step(sql: Sql) -> int:
        return await fill_calls(sql, await _require_key(sql, conversation))

    left = await tables.transact(begin)
    while left:
        left = await tables.transact(step)


async def end_lost_run(tables: LedgerTables, conversation: str, lost: RunInfo) -> bool:
    """Lists a run as failed whose events are gone, so that nobody waits for it. False where it is not open any more."""

    async def job(sql: Sql) -> bool:
        return await runs.fail(sql, await _require_key(sql, conversation), lost, '"its events are gone"')

    return await tables.transact(job)


async def _require_key(sql: Sql, conversation: str) -> int:
    key = await conversations.key_of(sql, conversation)
    assert key is not None
    return key
