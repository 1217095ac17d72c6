"""Holds: whoever reads a log for long keeps compaction from it, in every process, for as long as it lives."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from stream.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.tables.tables import LedgerTables
    from stream.sqlite import Sql

_LEASE_S: Final = 60.0
_PUT: Final = "INSERT INTO holds (token, conversation, through, until) VALUES (?1, ?2, ?3, ?4)"


@asynccontextmanager
async def hold(tables: LedgerTables, conversation: str | None, through: int) -> AsyncIterator[str]:
    """While the block lasts, no compaction goes beyond `through` of a conversation, or of any.

    A process that is killed lets go a minute later.
    """
    name = secrets.token_hex(8)
    await _put(tables, name, conversation, through)
    renewing = asyncio.create_task(_renew(tables, name, conversation, through), name=f"tailfold hold {name}")
    try:
        yield name
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        with anyio.CancelScope(shield=True):
            await tables.transact(lambda sql: sql("DELETE FROM holds WHERE token = ?1", (name,)))


async def held(sql: Sql, conversation: str, now: int) -> dict[str, int]:
    """The holds on a conversation at a time (ms): how far each lets the log go."""
    text = "SELECT token, through FROM holds WHERE until >= ?2 AND (conversation IS NULL OR conversation = ?1)"
    return dict(await sql(text, (conversation, now)))


async def _renew(tables: LedgerTables, name: str, conversation: str | None, through: int) -> None:
    while True:
        await asyncio.sleep(_LEASE_S / 4)
        await _put(tables, name, conversation, through)


async def _put(tables: LedgerTables, name: str, conversation: str | None, through: int) -> None:
    now = now_ms()

    async def job(sql: Sql) -> None:
        await sql("DELETE FROM holds WHERE token = ?1 OR until < ?2", (name, now))
        await sql(_PUT, (name, conversation, through, now + int(_LEASE_S * 1000)))

    await tables.transact(job)
