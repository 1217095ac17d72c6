"""asyncpg alone: rows of the shape of ours, many in one statement.

The payloads are ours, made before the clock starts, into a table with one index. What many writers wait for goes in as one
statement on one connection, as ours does, or as several of them at once on as many connections, which share the server's syncs.
Read are as many rows of one stream, 1,000 a page, into the events that ours gives.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Self

from benchmarks.floors import CONVERSATIONS, EVENTS
from stream import Event, open_store
from stream.postgres.address import read_address

if TYPE_CHECKING:
    from benchmarks.measuring import Side, SizedSide

_CONNECTIONS: Final = 10
_PAGE: Final = 1000
_WAYS: Final = {1: ((1, 1),), 10: ((1, 10), (2, 5), (10, 1)), 100: ((1, 100), (2, 50), (10, 10))}
_MANY: Final = ((1, 100), (1, 256), (1, 1000), (2, 256), (4, 250))


class PostgresFloor:
    """A `Floor` over a few connections."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = f"{url}{'&' if '?' in url else '?'}schema={schema}"
        self._connections: list[Any] = []
        self._schema = schema
        self._raw = f"{schema}_raw"
        self._last = 0

    @classmethod
    async def open(cls, url: str) -> Self:
        """Has our store look at the server, connects, and makes the table. Raises what either raises."""
        import asyncpg  # noqa: PLC0415 - an extra

        floor = cls(url, f"bench_{secrets.token_hex(4)}")
        async with open_store(floor.url):
            pass
        floor._connections += [await asyncpg.connect(read_address(url).hosts[0]) for _ in range(_CONNECTIONS)]
        await floor._connections[0].execute(f"CREATE SCHEMA {floor._raw}")
        await floor._connections[0].execute(f"""
            CREATE TABLE {floor._raw}.raw (stream bigint NOT NULL, last bigint NOT NULL, at bigint NOT NULL, id bytea NOT NULL,
            type text NOT NULL, data bytea NOT NULL, PRIMARY KEY (stream, last))""")
        return floor

    def ways(self, writers: int) -> dict[str, SizedSide]:
        """See `Floor.ways`."""
        return {
            f"{rows} in a statement, {connections} at once": functools.partial(self._store, connections, rows)
            for connections, rows in _WAYS.get(writers, _MANY)
        }

    async def fill(self, amount: int) -> None:
        """See `Floor.fill`."""
        rows = self._rows([-1] * amount, list(range(1, amount + 1)))
        await self._connections[0].execute(self._insert(), *rows)

    def reads(self, amount: int) -> dict[str, Side]:
        """See `Floor.reads`."""
        return {"pages of 1,000": functools.partial(self._read, amount)}

    async def close(self) -> None:
        """See `Floor.close`."""
        for schema in (self._raw, self._schema):
            await self._connections[0].execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        for connection in self._connections:
            await connection.close()

    async def _store(self, connections: int, rows: int, amount: int) -> float:
        text = self._insert()
        batches = []
        for _ in range(max(connections, amount // rows)):
            numbers = list(range(self._last, self._last + rows))
            self._last += rows
            batches.append(self._rows([number % CONVERSATIONS for number in numbers], numbers))

        async def write(connection: Any, mine: list[tuple[Any, ...]]) -> None:
            for batch in mine:
                await connection.execute(text, *batch)

        shares = [batches[first::connections] for first in range(connections)]
        began = time.perf_counter()
        await asyncio.gather(*map(write, self._connections, shares))
        return len(batches) * rows / (time.perf_counter() - began)

    async def _read(self, amount: int) -> float:
        text = f"SELECT last, at, type, data FROM {self._raw}.raw WHERE stream = -1 AND last > $1 ORDER BY last LIMIT {_PAGE}"
        began, after = time.perf_counter(), 0
        while after < amount:
            rows = await self._connections[0].fetch(text, after)
            events = [Event("raw", last, kind, data, at) for last, at, kind, data in rows]
            after = events[-1].seq
        return after / (time.perf_counter() - began)

    def _insert(self) -> str:
        return f"""INSERT INTO {self._raw}.raw SELECT * FROM
            unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::text[], $6::bytea[])"""

    def _rows(self, streams: list[int], lasts: list[int]) -> tuple[Any, ...]:
        events = [EVENTS[last % len(EVENTS)] for last in lasts]
        at = time.time_ns() // 1_000_000
        return (
            streams, lasts, [at] * len(lasts), [secrets.token_bytes(16) for _ in lasts],
            [event.type for event in events], [event.data for event in events],
        )  # fmt: skip
