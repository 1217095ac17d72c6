"""How reconcile mends, step by step; each is one transaction on the ledger's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ledger.records import RunInfo
from ledger.tables import branches, choices, conversations, messages, runs
from ledger.tables.calls import drop_calls, fill_calls, start_over
from ledger.tables.commit import apply, tell
from ledger.tables.messages import Placed
from projector import State, open_runs
from projector.folds import project
from projector.loading import restore
from stream import SnapshotUnreadable

if TYPE_CHECKING:
    from ledger.tables.commit import Note
    from ledger.tables.conversations import Position
    from ledger.tables.tables import LedgerTables
    from ledger.upkeep.comparison import Difference
    from projector.effects import Effect
    from stream import EventStore
    from stream.sqlite import Sql


async def rewind(tables: LedgerTables, conversation: str, head: int) -> None:
    """Puts the position back to the end of a log that is shorter; messages that are committed stay.

    What was chosen behind that end goes: the seqs it has are given to others.
    """

    async def job(sql: Sql) -> None:
        await conversations.rewind(sql, conversation, head)
        await choices.drop_behind(sql, conversation, head)
        await branches.drop_behind(sql, await _require_key(sql, conversation), head)

    await tables.transact(job)


async def skip_hole(store: EventStore, tables: LedgerTables, conversation: str, after: int, floor: int) -> None:
    """Goes on behind events that are gone, and remembers which.

    Runs that were open at a snapshot behind the hole are known; of what ended before it only what began there, too.
    """
    state = State(last_seq=floor)
    effects: list[Effect] = []
    base = await _base(store, conversation, floor)
    while base is not None and state.last_seq < base.last_seq:
        for event in await store.read(conversation, after=state.last_seq, limit=min(1000, base.last_seq - state.last_seq)):
            state, effect = project(state, event)
            effects += [] if effect is None else [effect]
    start = floor if base is None else base.last_seq
    replay_from = min([start, *(run.seq - 1 for run in base.open.values() if run.seq > floor)]) if base else floor

    async def job(sql: Sql) -> list[Note]:
        key = await conversations.skip(sql, conversation, [after, floor], start, replay_from)
        if key is None or not effects:
            return []
        await conversations.mark(sql, key, 0)
        return await apply(sql, key, conversation, effects)

    tell(conversation, await tables.transact(job))


async def _base(store: EventStore, conversation: str, floor: int) -> State | None:
    snapshot = await store.snapshots.load(conversation, open_runs.name)
    if snapshot is None or snapshot.last_seq < floor:
        return None
    try:
        return restore(open_runs, snapshot)
    except SnapshotUnreadable:
        return None


async def rewrite(tables: LedgerTables, conversation: str, difference: Difference, seen: Position) -> bool:
    """Writes what a run leaves anew; messages that are there keep their parents.

    False, and nothing changed, where the ledger has moved on from where it was `seen`: it may say more by now, or have
    been erased.
    """

    async def job(sql: Sql) -> bool:
        if not (await conversations.position(sql, conversation)).is_at(seen):
            return False
        key = await _require_key(sql, conversation)
        if difference.ended is not None:
            await _write_run(sql, key, conversation, difference)
        else:
            for message, _ in difference.messages:
                await messages.put(sql, key, None, message)
        if difference.usage is not None:
            await runs.put_usage(sql, key, difference.run_id, difference.usage)
        return True

    return await tables.transact(job)


async def _write_run(sql: Sql, key: int, conversation: str, difference: Difference) -> None:
    assert difference.ended is not None
    run, end = difference.ended
    parents = await messages.drop_run(sql, key, run.run_id)
    await drop_calls(sql, key, [*parents, *(message.id for message, _ in difference.messages)])
    await runs.drop(sql, key, run.run_id)
    path = [message for message, on_path in difference.messages if on_path]
    await runs.put(sql, key, RunInfo.of(conversation, run, end, len(path)), path[0].id if path else None)
    is_committed = end.status != "failed"
    said = (
        (replace(message, parent_id=parents.get(message.id, message.parent_id)), on_path)
        for message, on_path in difference.messages
    )
    await messages.add(sql, key, [Placed(message, on_path, run.seq, is_committed) for message, on_path in said])


async def rebuild_tree(tables: LedgerTables, conversation: str) -> None:
    """Works out leaf, counts, chosen turns, labels and tool calls from what is there."""

    async def job(sql: Sql) -> None:
        key = await _require_key(sql, conversation)
        await branches.rebuild(sql, key)
        await conversations.rebuild_labels(sql, key)

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


async def end_lost_run(tables: LedgerTables, conversation: str, run_id: str) -> None:
    """Lists a run as failed whose events are gone, so that nobody waits for it."""

    async def job(sql: Sql) -> None:
        await runs.fail(sql, await _require_key(sql, conversation), run_id, '"its events are gone"')

    await tables.transact(job)


async def _require_key(sql: Sql, conversation: str) -> int:
    key = await conversations.key_of(sql, conversation)
    assert key is not None
    return key
