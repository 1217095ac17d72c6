"""`python -m benchmarks.engines URL`: a log on a server, beside the server's own driver doing the same durable work.

Both sides take turns in one process against one server. The floor for appends is the driver alone: the same payloads in rows
(or messages) of the same shape, as many in one statement as there are writers, without any rule, head or answer to match; for
reads the same rows, fetched and unpacked. What is written stays in a schema of its own, which is dropped at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import uvloop
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.measuring import interleave, sized
from benchmarks.talk import deltas
from stream import NewEvent, open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stream import EventStore

_EVENTS: Final = deltas(2000)
_WRITERS: Final = (1, 10, 100, 1000)
_MAX_TOGETHER: Final = 256
_READ: Final = 20_000
_ROUND_S: Final = 0.5
_WARM_UP: Final = 300


class Floor(Protocol):
    """A driver, alone."""

    async def store(self, amount: int, together: int) -> float:
        """Stores so many events, `together` in one statement; events a second."""
        ...

    async def read(self, amount: int) -> float:
        """Reads so many events of one stream; events a second."""
        ...

    async def close(self) -> None:
        """Leaves nothing behind."""
        ...


class PostgresFloor:
    """asyncpg on one connection, into a table of the shape of ours."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection, self._schema = connection, schema
        self._last = 0

    @classmethod
    async def open(cls, dsn: str, schema: str) -> PostgresFloor:
        """Makes the table."""
        import asyncpg  # noqa: PLC0415 - an extra

        connection = await asyncpg.connect(dsn)
        await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(f"""
            CREATE TABLE {schema}.raw (stream bigint NOT NULL, last bigint NOT NULL, at bigint NOT NULL, id bytea NOT NULL,
            type text NOT NULL, data bytea NOT NULL, PRIMARY KEY (stream, last))""")
        return cls(connection, schema)

    async def store(self, amount: int, together: int) -> float:
        """See `Floor.store`."""
        text = f"""INSERT INTO {self._schema}.raw SELECT * FROM
            unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::text[], $6::bytea[])"""
        batches = []
        for _ in range(max(1, amount // together)):
            self._last += 1
            events = [_EVENTS[(self._last + number) % len(_EVENTS)] for number in range(together)]
            at, places = time.time_ns() // 1_000_000, range(together)
            batches.append((
                [*places], [self._last] * together, [at] * together, [secrets.token_bytes(16) for _ in places],
                [event.type for event in events], [event.data for event in events],
            ))  # fmt: skip
        began = time.perf_counter()
        for batch in batches:
            await self._connection.execute(text, *batch)
        return len(batches) * together / (time.perf_counter() - began)

    async def read(self, amount: int) -> float:
        """See `Floor.read`."""
        text = f"SELECT last, at, type, data FROM {self._schema}.raw WHERE stream = 0 AND last > $1 ORDER BY last LIMIT 1000"
        began, count, after = time.perf_counter(), 0, 0
        while count < amount:
            rows = [tuple(row) for row in await self._connection.fetch(text, after)]
            if not rows:
                break
            count, after = count + len(rows), rows[-1][0]
        return count / (time.perf_counter() - began)

    async def close(self) -> None:
        """See `Floor.close`."""
        await self._connection.execute(f"DROP SCHEMA {self._schema} CASCADE")
        await self._connection.close()


async def append(store: EventStore, writers: int, amount: int) -> float:
    """A closed loop: every writer awaits its append before the next; events a second."""
    calls = max(1, amount // writers)

    async def write(writer: int) -> None:
        for call in range(writer, writer + calls):
            await store.append(f"conversation-{writer % 100}", [_EVENTS[call % len(_EVENTS)]])

    began = time.perf_counter()
    await asyncio.gather(*(write(writer) for writer in range(writers)))
    return calls * writers / (time.perf_counter() - began)


async def read(store: EventStore, amount: int) -> float:
    """All of one stream from its first event on; events a second."""
    began, after = time.perf_counter(), 0
    while after < amount and (events := await store.read("read", after=after)):
        after = events[-1].seq
    return after / (time.perf_counter() - began)


async def latency_ms(store: EventStore, other: EventStore, count: int) -> list[float]:
    """From an append by one store until another one, which follows, has read it."""
    took: list[float] = []
    for _ in range(count):
        head = (await other.bounds("tail")).head
        waiting = asyncio.create_task(_wait(other, head))
        await asyncio.sleep(0.02)
        began = time.perf_counter()
        await store.append("tail", [NewEvent("t", b"x")])
        await waiting
        took.append(1000 * (time.perf_counter() - began))
    return took


async def _wait(store: EventStore, head: int) -> None:
    while not await store.read("tail", after=head):
        await store.wait("tail", after=head)


async def measure(url: str, rounds: int, say: Callable[[str, list[float], list[float]], None]) -> None:
    """Takes all figures, and says each as it comes: its name, ours and theirs by rounds."""
    schema = f"bench_{secrets.token_hex(4)}"
    separator = "&" if "?" in url else "?"
    floor: Floor = await PostgresFloor.open(url, f"{schema}_raw")
    try:
        async with (
            open_store(f"{url}{separator}schema={schema}") as store,
            open_store(f"{url}{separator}schema={schema}") as other,
        ):
            for writers in _WRITERS:
                together = min(writers, 100)
                sides: dict[str, Callable[[], Awaitable[float]]] = {
                    "ours": await sized(lambda amount, n=writers: append(store, n, amount), seconds=_ROUND_S, warm_up=_WARM_UP),  # type: ignore[misc]
                    "raw": await sized(lambda amount, n=together: floor.store(amount, n), seconds=_ROUND_S, warm_up=_WARM_UP),  # type: ignore[misc]
                }
                found = await interleave(sides, rounds)
                say(f"appends, {writers:,} writers: events/s", found["ours"], found["raw"])
            for first in range(0, _READ, _MAX_TOGETHER):
                await asyncio.gather(*(store.append("read", [_EVENTS[n % 2000]]) for n in range(first, first + _MAX_TOGETHER)))
            await floor.store(_READ, 1)
            found = await interleave({"ours": lambda: read(store, _READ), "raw": lambda: floor.read(_READ)}, rounds)
            say("read of one stream: events/s", found["ours"], found["raw"])
            took = await latency_ms(store, other, 20 * rounds)
            single = [1000 / await append(store, 1, 20) for _ in range(rounds)]
            say("append until another one has read it: ms, of an append", [statistics.median(took)] * rounds, single)
    finally:
        await floor.close()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser("python -m benchmarks.engines", description=__doc__)
    parser.add_argument("url", help="a server to be measured: postgresql://user@host/database")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    table = Table(title="Ours against the driver alone, medians", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("what", "ours", "driver", "ratio", "lowest to highest"):
        table.add_column(name, justify="left" if name == "what" else "right")

    def say(what: str, ours: list[float], theirs: list[float]) -> None:
        ratios = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
        table.add_row(
            what, f"{statistics.median(ours):,.0f}", f"{statistics.median(theirs):,.0f}", f"{statistics.median(ratios):.2f}",
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        )  # fmt: skip

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(options.url, options.rounds, say))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
