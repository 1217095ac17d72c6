"""Holds: whoever reads a log for long keeps compaction from it, in every process, for as long as it lives.

A hold ends with its lease, unless it is renewed. Who was asleep for longer has lost it, for somebody may have compacted
meanwhile: what has run out is never taken for one that lasts, nor is an end that no lease reaches, set by a clock that was
wrong. Each is decided in the transaction that it matters to.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from ledger.errors import HoldLost
from stream import StoreClosed, StreamError
from stream.limits import check_id, check_position
from stream.logger import Logger
from stream.tasks import finish_anyway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ledger.tables.tables import LedgerTables
    from stream.database import Sql

_LOG: Final = Logger("tailfold.ledger")
_LEASE_MS: Final = 60_000
_FLOOR_LEASE_MS: Final = 5_000
_LEFT: Final[set[asyncio.Task[None]]] = set()  # the loop itself holds tasks only weakly
_RENEWALS: Final = 4  # in one lease
_ATTEMPTS: Final = 20
_POLL_S: Final = 0.02
_LASTS: Final = f"until >= ?1 AND until <= ?1 + {_LEASE_MS}"
_DROP_OLD: Final = f"DELETE FROM holds WHERE NOT ({_LASTS})"  # noqa: S608 - constants
_PUT: Final = "INSERT INTO holds (token, conversation, through, until, is_floor) VALUES (?1, ?2, ?3, ?4, ?5)"
_RENEW: Final = f"UPDATE holds SET until = ?2 WHERE token = ?3 AND {_LASTS} RETURNING 1"  # noqa: S608
_END: Final = "DELETE FROM holds WHERE token = ?1 RETURNING until"
_HELD: Final = f"""
SELECT token, through FROM holds WHERE {_LASTS} AND is_floor = 0 AND (conversation IS NULL OR conversation = ?2)"""  # noqa: S608
_FLOORS: Final = f"""
SELECT 1 FROM holds WHERE {_LASTS} AND is_floor = 1 AND (?2 IS NULL OR conversation = ?2) AND through > ?3"""  # noqa: S608


@asynccontextmanager
async def hold(tables: LedgerTables, conversation: str | None, through: int) -> AsyncIterator[str]:
    """While the block lasts, no compaction goes beyond `through` of a conversation, or of any.

    A process that is killed lets go a minute later. Raises `HoldLost`, and cancels the block, where it could not be
    renewed in time.
    """
    if conversation is not None:
        check_id("conversation id", conversation)
    check_position("through", through)
    token = mint_token()
    await _take(tables, token, conversation, through)
    renewing = asyncio.create_task(_renew(tables, token, _LEASE_MS), name=f"tailfold hold {token}")
    with anyio.CancelScope() as block:
        renewing.add_done_callback(lambda ended: None if ended.cancelled() else block.cancel())
        try:
            yield token
        finally:
            is_lost = renewing.done()
            with anyio.CancelScope(shield=True):
                renewing.cancel()
                await asyncio.wait([renewing])
                is_lost = not await _end(tables, token) or is_lost
    if is_lost:
        raise HoldLost(conversation, through)


async def held(tables: LedgerTables, sql: Sql, conversation: str) -> dict[str, int]:
    """The holds on a conversation, and how far each lets the log go."""
    return dict(await sql(_HELD, (await tables.now(sql), conversation)))


def mint_token() -> str:
    """What a hold or a floor is known by."""
    return secrets.token_hex(8)


async def announce_floor(tables: LedgerTables, sql: Sql, token: str, conversation: str, through: int) -> None:
    """Says that the floor of a log in another file is raised to `through` now: holds below wait until it has risen."""
    await sql(_PUT, (token, conversation, through, await tables.now(sql) + _FLOOR_LEASE_MS, 1))


@asynccontextmanager
async def rising(tables: LedgerTables, token: str, settled: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """While the block lasts a floor that was announced stays so, however long it takes to rise.

    Whoever leaves the block in its middle has cut nothing: then it stays so until `settled`, and nobody waits for that.
    """
    renewing = asyncio.create_task(_renew(tables, token, _FLOOR_LEASE_MS), name=f"tailfold floor {token}")

    async def end(*, is_settled: bool) -> None:
        try:
            if not is_settled:
                await settled()
            await tables.transact(lambda sql: sql(_END, (token,)))
        except StreamError as why:  # it ends by itself before long
            _LOG.warning("floor.left", token=token, error=type(why).__name__)
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    try:
        yield
    except BaseException:
        left = asyncio.create_task(end(is_settled=False))
        _LEFT.add(left)
        left.add_done_callback(_LEFT.discard)
        raise
    await finish_anyway(end(is_settled=True))


async def _take(tables: LedgerTables, token: str, conversation: str | None, through: int) -> None:
    async def job(sql: Sql) -> bool:
        now = await tables.now(sql)
        await sql(_DROP_OLD, (now,))
        if await sql(_FLOORS, (now, conversation, through)):
            return False
        await sql(_PUT, (token, conversation, through, now + _LEASE_MS, 0))
        return True

    while True:
        if await tables.transact(job):
            return
        await asyncio.sleep(_POLL_S)  # a compaction is under way, which did not know of this hold


async def _renew(tables: LedgerTables, token: str, lease_ms: int) -> None:
    """Until it is cancelled, or the hold is lost. What fails is tried again for as long as the lease lasts."""

    async def job(sql: Sql) -> bool:
        now = await tables.now(sql)
        return bool(await sql(_RENEW, (now, now + lease_ms, token)))

    lease_s, is_renewed = lease_ms / 1000, True
    while is_renewed:
        await asyncio.sleep(lease_s / _RENEWALS)
        until = time.monotonic() + lease_s * (1 - 1 / _RENEWALS)
        while True:
            try:
                is_renewed = await tables.transact(job)
                break
            except StoreClosed:
                return
            except StreamError:
                if time.monotonic() > until:
                    return
                await asyncio.sleep(lease_s / _RENEWALS / _ATTEMPTS)


async def _end(tables: LedgerTables, token: str) -> bool:
    """Whether it has lasted until now."""

    async def job(sql: Sql) -> bool:
        ended = await sql(_END, (token,))
        return bool(ended) and ended[0][0] >= await tables.now(sql)

    try:
        return await tables.transact(job)
    except StreamError as why:  # it lets go by itself before long
        _LOG.warning("hold.left", token=token, error=type(why).__name__)
        return True
