"""Raises the floor of a log, as far as everything allows at that moment and not at the one when it was worked out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledger.tables import holds
from ledger.tables.conversations import position
from projector.compaction import floor_after
from stream.tables.store import TableStore

if TYPE_CHECKING:
    from ledger.engine import Engine
    from ledger.tables.tables import LedgerTables
    from stream.database import Sql


async def truncate(engine: Engine, conversation: str, floor: int, binds: str | None) -> tuple[int, str | None]:
    """Raises it at most to `floor`, which `binds` binds; returns where it is then, and what binds it.

    In one database holds, the ledger's position and the snapshots are looked at in the transaction that raises it. Where the
    log lies elsewhere it is announced in the ledger first: a hold that is taken meanwhile waits.
    """
    store, tables = engine.store, engine.tables
    if isinstance(store, TableStore) and store.database is tables.database:

        async def job(sql: Sql) -> tuple[int, str | None]:
            stored, bounds = await store.snapshots_within(sql, conversation), await store.bounds_within(sql, conversation)
            allowed, why = floor_after(floor, bounds.floor, stored, await _pins(tables, sql, conversation), {})
            return (await store.raise_floor_within(sql, conversation, allowed)).floor, why if allowed < floor else binds

        return await store.truncate_within(conversation, job)

    token = holds.mint_token()

    async def announce(sql: Sql) -> tuple[int, str | None]:
        pins = await _pins(tables, sql, conversation)
        lowest = min(pins, key=lambda reason: pins[reason])
        allowed, why = (pins[lowest], lowest) if pins[lowest] < floor else (floor, binds)
        await holds.announce_floor(tables, sql, token, conversation, allowed)
        return allowed, why

    allowed, why = await tables.transact(announce)
    async with holds.rising(tables, token, partial(store.bounds, conversation)):  # which waits for what was left of it
        return (await store.truncate(conversation, through=allowed)).floor, why


async def _pins(tables: LedgerTables, sql: Sql, conversation: str) -> dict[str, int]:
    """What may have moved."""
    held = await holds.held(tables, sql, conversation)
    projected_seq = (await position(sql, conversation)).projected_seq
    return {"ledger": projected_seq} | {f"hold:{token}": through for token, through in held.items()}
