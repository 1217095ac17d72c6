"""A thousand clients come back at once: each reads the 20 events it missed, then waits for the next.

All follow one stream. The time is until the last one has its events, while the others wait already, which asks for the
head once more; raw reads the same rows as often, one after the other in one thread. The wake-up is the time from an
append until all have read it.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.logs import LONG, RUN_EVENTS, SHORT, long_log
from benchmarks.measuring import compare, interleave
from benchmarks.raw import RawLog, fill
from benchmarks.talk import conversation, deltas
from stream import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure
    from stream import EventStore


class Sizes(NamedTuple):
    """How many events behind them, clients, rounds."""

    events: int
    clients: int
    rounds: int


FULL: Final = Sizes(1_000_000, 1000, 7)
SMOKE: Final = Sizes(20_000, 200, 2)
_MISSED: Final = 20


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """`reconnect.raw` is a ratio of rates, `reconnect.flat` one of times."""
    path = bench.run(long_log(bench.folder, sizes.events))
    raw = RawLog(bench.folder / "reconnect-raw.db")
    fill(raw, itertools.chain.from_iterable(conversation(sizes.events // RUN_EVENTS)))
    times, wake_ups = bench.run(_measure(path, raw, sizes))
    raw.close()
    what = f"{sizes.clients:,} clients reconnect behind {sizes.events:,} events"
    beside = {
        "total_ms": 1000 * statistics.median(times[LONG]),
        "per_client_us": 1e6 * statistics.median(times[LONG]) / sizes.clients,
        "wake_up_all_ms": 1000 * statistics.median(wake_ups),
    }
    return [
        compare("reconnect.raw", f"{what}: rate", "raw reads", times["raw"], times[LONG], beside),
        compare("reconnect.flat", f"{what}: time", f"behind {RUN_EVENTS:,}", times[LONG], times[SHORT]),
    ]


async def _measure(path: Path, raw: RawLog, sizes: Sizes) -> tuple[dict[str, list[float]], list[float]]:
    wake_ups: list[float] = []
    async with open_store(str(path), create=False) as store:

        async def read_raw() -> float:
            began = time.perf_counter()
            for _ in range(sizes.clients):
                assert len(raw.read(after=sizes.events - _MISSED)) == _MISSED
            return time.perf_counter() - began

        async def long() -> float:
            reconnected, woken = await _reconnect(store, LONG, sizes.clients)
            wake_ups.append(woken)
            return reconnected

        async def short() -> float:
            return (await _reconnect(store, SHORT, sizes.clients))[0]

        sides = {"raw": read_raw, SHORT: short, LONG: long}
        await interleave(sides, 1)
        return await interleave(sides, sizes.rounds), wake_ups


async def _reconnect(store: EventStore, stream: str, clients: int) -> tuple[float, float]:
    """Seconds until all have what they missed, and from an append until all have read it."""
    head = (await store.bounds(stream)).head
    waiting = asyncio.Semaphore(0)

    async def client() -> None:
        missed = await store.read(stream, after=head - _MISSED)
        assert [event.seq for event in missed] == list(range(head - _MISSED + 1, head + 1))
        waiting.release()
        while not await store.read(stream, after=head):
            await store.wait(stream, after=head)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
        for _ in range(clients):
            await waiting.acquire()
        reconnected = time.perf_counter() - began
        await asyncio.sleep(0.1)  # so that all wait
        began = time.perf_counter()
        await store.append(stream, deltas(1))
    return reconnected, time.perf_counter() - began
