"""What is measured of a log on a server, by turns with the driver alone."""

from __future__ import annotations

import asyncio
import functools
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.floors import CONVERSATIONS, EVENTS, READ
from benchmarks.measuring import interleave, sized
from stream import NewEvent, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.floors import Floor
    from benchmarks.measuring import SizedSide
    from stream import EventStore

_TAIL: Final = "tail"
_LISTENS_S: Final = 0.02


class Sizes(NamedTuple):
    """How much is done: a round of appends takes `round_s`, `read` events are read, `latencies` taken."""

    rounds: int
    round_s: float
    warm_up: int
    read: int
    latencies: int


FULL: Final = Sizes(rounds=7, round_s=0.5, warm_up=300, read=5000, latencies=140)
SMOKE: Final = Sizes(rounds=1, round_s=0.02, warm_up=20, read=300, latencies=5)
WRITERS: Final = (1, 10, 100, 1000)


class Row(NamedTuple):
    """A figure: ours and the floor's, round by round, and what the floor did."""

    what: str
    ours: list[float]
    floor: list[float]
    way: str

    @property
    def ratios(self) -> list[float]:
        """Ours of the floor's, from the lowest to the highest."""
        return sorted(mine / other for mine, other in zip(self.ours, self.floor, strict=True))


async def measure(floor: Floor, sizes: Sizes) -> AsyncIterator[Row]:
    """Each figure as it comes."""
    async with open_store(floor.url) as store, open_store(floor.url) as other:
        for writers in WRITERS:
            ways: dict[str, SizedSide] = {"": functools.partial(append, store, writers), **floor.ways(writers)}
            sides = {
                name: await sized(way, seconds=sizes.round_s, warm_up=max(sizes.warm_up, writers)) for name, way in ways.items()
            }
            found = await interleave(sides, sizes.rounds)
            yield _row(f"appends, {writers:,} writer{'s'[: writers - 1]}: events/s", found)
        for number in range(sizes.read):
            await store.append(READ, [EVENTS[number % len(EVENTS)]])
        await floor.fill(sizes.read)
        found = await interleave({"": functools.partial(read, store, sizes.read), **floor.reads(sizes.read)}, sizes.rounds)
        yield _row("read of one stream, an event an append: events/s", found)
        took = await latencies_ms(store, other, sizes.latencies)
        single = [1000 / await append(store, 1, sizes.latencies // sizes.rounds) for _ in range(sizes.rounds)]
        what = "append until another store has read it: ms, of an append"
        yield Row(what, [statistics.median(took)] * sizes.rounds, single, "our own append")


async def append(store: EventStore, writers: int, amount: int) -> float:
    """A closed loop: every writer awaits its append before the next; events a second."""
    calls = max(1, amount // writers)

    async def write(writer: int) -> None:
        for call in range(writer, writer + calls):
            await store.append(f"conversation-{writer % CONVERSATIONS}", [EVENTS[call % len(EVENTS)]])

    began = time.perf_counter()
    await asyncio.gather(*(write(writer) for writer in range(writers)))
    return calls * writers / (time.perf_counter() - began)


async def read(store: EventStore, amount: int) -> float:
    """All of one stream from its first event on; events a second."""
    began, after = time.perf_counter(), 0
    while after < amount:
        after = (await store.read(READ, after=after))[-1].seq
    return after / (time.perf_counter() - began)


async def latencies_ms(store: EventStore, other: EventStore, count: int) -> list[float]:
    """From an append by one store until another one, which follows, has read it."""
    took: list[float] = []
    for _ in range(count):
        head = (await other.bounds(_TAIL)).head
        waiting = asyncio.create_task(_wait(other, head))
        await asyncio.sleep(_LISTENS_S)
        began = time.perf_counter()
        await store.append(_TAIL, [NewEvent("t", b"x")])
        await waiting
        took.append(1000 * (time.perf_counter() - began))
    return took


async def _wait(store: EventStore, head: int) -> None:
    while not await store.read(_TAIL, after=head):
        await store.wait(_TAIL, after=head)


def _row(what: str, found: dict[str, list[float]]) -> Row:
    """Ours, which has no name, beside the fastest of the others."""
    ours = found.pop("")
    way = max(found, key=lambda name: statistics.median(found[name]))
    return Row(what, ours, found[way], way)
