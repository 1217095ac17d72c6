"""The server of tests that break its connections, and a feed that is held so that whatever writes waits behind it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from stream import NewEvent
from tests.postgres_server import PostgresServer, Shared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stream import EventStore


def server() -> PostgresServer:
    assert Shared.server is not None
    return Shared.server


def event(data: str) -> list[NewEvent]:
    return [NewEvent("t", data.encode())]


async def read(store: EventStore, stream_id: str) -> list[str]:
    return [each.data.decode() for each in await store.read(stream_id)]


async def backends_behind_a_lock(application: str = "tailfold") -> int:
    [(count,)] = await server().ask(
        f"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '{application}'"
    )
    assert isinstance(count, int)
    return count


@asynccontextmanager
async def feed_held(url: str) -> AsyncIterator[asyncio.Event]:
    """Every append waits at the server, until the event is set."""
    schema = url.partition("schema=")[2].partition("&")[0]
    connection = await asyncpg.connect(f"postgresql://tester@127.0.0.1:{server().port}/postgres")
    let_go = asyncio.Event()

    async def hold() -> None:
        await let_go.wait()
        await connection.execute("ROLLBACK")

    await connection.execute(f"BEGIN; UPDATE {schema}.feed SET number = number")
    task = asyncio.create_task(hold())
    try:
        yield let_go
    finally:
        let_go.set()
        await task
        await connection.close()


async def until_behind_a_lock(count: int) -> None:
    async with asyncio.timeout(20):
        while await backends_behind_a_lock() < count:
            await asyncio.sleep(0.01)
