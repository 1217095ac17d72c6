"""How reconcile mends: each step is one transaction on the ledger's tables."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ledger.projection import project
from ledger.records import RunInfo
from ledger.tables.commit import NEW_CONVERSATION, apply, put
from projector import State, open_runs
from projector.json_text import decode, encode
from projector.loading import restore
from projector.tree import Node, leaf_of, select
from stream import SnapshotUnreadable

if TYPE_CHECKING:
    from ledger.projection import Effect
    from ledger.tables.tables import LedgerTables
    from ledger.upkeep.comparison import Difference
    from stream import EventStore
    from stream.sqlite import Sql

_KEY = "SELECT id FROM conversations WHERE name = ?"


async def rewind(tables: LedgerTables, conversation: str, head: int) -> None:
    """Puts the position back to the end of a log that is shorter; messages that are committed stay."""

    async def job(sql: Sql) -> None:
        await sql(
            """UPDATE conversations SET projected_seq = ?2, replay_from = min(replay_from, ?2), rewound = rewound + 1
              WHERE name = ?1 AND projected_seq > ?2""",
            (conversation, head),
        )
        await sql(
            "DELETE FROM choices WHERE conversation = (SELECT id FROM conversations WHERE name = ?) AND seq > ?",
            (conversation, head),
        )

    await tables.database.transact(job)


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
    await _skip(tables, conversation, [after, floor], (start, replay_from), effects)


async def _base(store: EventStore, conversation: str, floor: int) -> State | None:
    snapshot = await store.snapshots.load(conversation, open_runs.name)
    if snapshot is None or snapshot.last_seq < floor:
        return None
    try:
        return restore(open_runs, snapshot)
    except SnapshotUnreadable:
        return None


async def _skip(tables: LedgerTables, conversation: str, hole: list[int], to: tuple[int, int], effects: list[Effect]) -> None:
    async def job(sql: Sql) -> None:
        await sql(NEW_CONVERSATION, (conversation,))
        look = "SELECT id, projected_seq, holes FROM conversations WHERE name = ?"
        [(key, projected_seq, holes)] = await sql(look, (conversation,))
        if projected_seq >= to[0]:
            return
        known = [*json.loads(holes or "[]"), hole]
        await sql(
            "UPDATE conversations SET projected_seq = ?2, replay_from = ?3, holes = ?4, rewound = rewound + 1 WHERE id = ?1",
            (key, *to, json.dumps(known)),
        )
        await apply(sql, key, conversation, effects)

    await tables.database.transact(job)


async def rewrite(tables: LedgerTables, conversation: str, difference: Difference) -> None:
    """Writes what a run leaves anew; messages that are there keep their parents."""

    async def job(sql: Sql) -> None:
        [(key,)] = await sql(_KEY, (conversation,))
        if difference.ended is not None:
            await _write_run(sql, key, conversation, difference)
        else:
            for message, _ in difference.messages:
                await put(sql, key, message)
        if difference.usage is not None:
            rows = await sql("SELECT body FROM runs WHERE conversation = ? AND id = ?", (key, difference.run_id))
            info = replace(decode(rows[0][0], RunInfo), usage=difference.usage)
            await sql("UPDATE runs SET body = ?3 WHERE conversation = ?1 AND id = ?2", (key, difference.run_id, encode(info)))

    await tables.database.transact(job)


async def _write_run(sql: Sql, key: int, conversation: str, difference: Difference) -> None:
    assert difference.ended is not None
    run, end = difference.ended
    look = "SELECT id, parent FROM messages WHERE conversation = ? AND run = ?"
    parents: dict[str, str | None] = dict(await sql(look, (key, run.run_id)))
    await sql("DELETE FROM messages WHERE conversation = ? AND run = ?", (key, run.run_id))
    await sql("DELETE FROM runs WHERE conversation = ? AND id = ?", (key, run.run_id))
    path = [message for message, on_path in difference.messages if on_path]
    info = RunInfo.of(conversation, run, end, len(path))
    await sql(
        "INSERT INTO runs (conversation, id, seq, status, body, first) VALUES (?, ?, ?, ?, ?, ?)",
        (key, run.run_id, run.seq, info.status, encode(info), path[0].id if path else None),
    )
    for said, on_path in difference.messages:
        message = replace(said, parent_id=parents.get(said.id, said.parent_id))
        body = encode(message)
        await sql(
            """INSERT INTO messages (conversation, id, run, parent, seq, on_path, started, is_committed, crc, body)
              VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                key, message.id, run.run_id, message.parent_id, message.seq, int(on_path), run.seq,
                int(end.status != "failed"), zlib.crc32(body), body,
            ),
        )  # fmt: skip


async def rebuild_tree(tables: LedgerTables, conversation: str) -> None:
    """Works out leaf, counts and chosen turns from the messages and selections that are there."""

    async def job(sql: Sql) -> None:
        [(key,)] = await sql(_KEY, (conversation,))
        rows = await sql(
            "SELECT id, parent, started, is_committed FROM messages WHERE conversation = ? AND on_path ORDER BY seq", (key,)
        )
        nodes = [Node(row[0], row[1], row[2], bool(row[3])) for row in rows]
        for seq, message_id in await sql("SELECT seq, message FROM selections WHERE conversation = ? ORDER BY seq", (key,)):
            nodes = select(nodes, message_id, seq)
        await sql("UPDATE messages SET selected = 0 WHERE conversation = ? AND selected", (key,))
        for node in nodes:
            if node.selected:
                mark = "UPDATE messages SET selected = ?3 WHERE conversation = ?1 AND id = ?2"
                await sql(mark, (key, node.id, node.selected))
        known = {node.id for node in nodes}
        orphans = sum(1 for node in nodes if node.parent_id is not None and node.parent_id not in known)
        await sql(
            """UPDATE conversations SET leaf = ?2, messages = ?3, orphans = ?4,
              runs = (SELECT count(*) FROM runs WHERE conversation = ?1) WHERE id = ?1""",
            (key, leaf_of(nodes), len(nodes), orphans),
        )

    await tables.database.transact(job)


async def end_lost_run(tables: LedgerTables, conversation: str, run_id: str) -> None:
    """Lists a run as failed whose events are gone, so that nobody waits for it."""

    async def job(sql: Sql) -> None:
        [(key,)] = await sql(_KEY, (conversation,))
        for (body,) in await sql("SELECT body FROM runs WHERE conversation = ? AND id = ? AND status = 'open'", (key, run_id)):
            info: RunInfo = decode(body, RunInfo)
            told = replace(info, status="failed", outcome="failed", error='"its events are gone"')
            done = "UPDATE runs SET status = 'failed', body = ?3 WHERE conversation = ?1 AND id = ?2"
            await sql(done, (key, run_id, encode(told)))

    await tables.database.transact(job)
