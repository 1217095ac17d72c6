"""`python -m benchmarks.sharding STORE`: a million conversations like those of a store, spread over shards by their ids.

Read once from the store: of each conversation how many runs it has, how many events and bytes each. Then conversations are
drawn from these, with ids of their own, and put where the hash of the id says. It counts what lies on the fullest shard
against the mean. For traffic, runs begin at random moments, in conversations that are chosen by how many runs they have, and
stream their events at a pace, so many that all shards together take `--events-per-s` on average. It counts the busiest
second of a shard, against a mean one of all, and in events.
"""

from __future__ import annotations

import argparse
import asyncio
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from projector.events import RunStarted
from stream import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARDS: Final = (1, 2, 4, 8, 16, 32)
_SECONDS: Final = 300
_PACE_PER_S: Final = 50
"""Events of a run that streams."""


class Recorded(NamedTuple):
    """A conversation: the events of each of its runs, and all its bytes."""

    runs: tuple[int, ...]
    size_bytes: int


class Load(NamedTuple):
    """Of a number of shards: the fullest one against the mean, in conversations, events and bytes; the busiest second too."""

    shards: int
    conversations: float
    events: float
    size_bytes: float
    busiest: float


async def read(url: str) -> list[Recorded]:
    """What the store holds of conversations; one without a run is none."""
    found: list[Recorded] = []
    async with open_store(url, create=False) as store:
        async for info in store.streams():
            runs, size_bytes, after = [0], 0, info.floor
            while events := await store.read(info.stream_id, after=after):
                for event in events:
                    if event.type == RunStarted.TYPE:
                        runs.append(0)
                    runs[-1] += 1
                    size_bytes += len(event.data)
                after = events[-1].seq
            if len(runs) > 1:
                found.append(Recorded(tuple(runs[1:]), size_bytes))
    return found


def simulate(
    recorded: Sequence[Recorded], conversations: int, shards: Sequence[int], *, events_per_s: int, seed: int
) -> list[Load]:
    """Spreads so many conversations, each drawn from the recorded ones, and events as they come."""
    chance = np.random.default_rng(seed)
    drawn = chance.integers(len(recorded), size=conversations)
    hashes = np.fromiter((place_of(f"conversation-{number}") for number in range(conversations)), np.uint32, conversations)
    events = np.array([sum(one.runs) for one in recorded])[drawn]
    sizes = np.array([one.size_bytes for one in recorded])[drawn]
    chosen, begins, lengths = _traffic(chance, recorded, drawn, events_per_s)
    loads = []
    for count in shards:
        place = hashes % count
        busiest = _busiest(place[chosen], begins, lengths, count)
        full = (_fullest(np.bincount(place, weights=weights, minlength=count)) for weights in (None, events, sizes))
        loads.append(Load(count, next(full), next(full), next(full), busiest))
    return loads


def place_of(stream_id: str) -> int:
    """The hash by which a log is spread."""
    return zlib.crc32(stream_id.encode())


def _traffic(chance: Any, recorded: Sequence[Recorded], drawn: Any, events_per_s: int) -> tuple[Any, Any, Any]:
    """Runs that begin within the time, as many as bring so many events: in which conversation, at which second, how long."""
    counts = np.array([len(one.runs) for one in recorded])
    runs = np.concatenate([one.runs for one in recorded])
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    weights = counts[drawn] / counts[drawn].sum()
    mean = float((weights * np.array([np.mean(one.runs) for one in recorded])[drawn]).sum())
    chosen = chance.choice(len(drawn), size=max(1, round(events_per_s * _SECONDS / mean)), p=weights)
    which = (chance.random(len(chosen)) * counts[drawn[chosen]]).astype(int)
    return chosen, chance.integers(_SECONDS, size=len(chosen)), runs[first[drawn[chosen]] + which]


def _busiest(place: Any, begins: Any, lengths: Any, count: int) -> float:
    """The events of the busiest second of any shard against those of a mean second of a mean shard; time is a circle."""
    grid = np.zeros((count, _SECONDS))
    left, now = lengths.astype(float), begins
    while len(left):
        np.add.at(grid, (place, now % _SECONDS), np.minimum(left, _PACE_PER_S))
        goes_on = left > _PACE_PER_S
        place, now, left = place[goes_on], now[goes_on] + 1, left[goes_on] - _PACE_PER_S
    return float(grid.max() / grid.mean())


def _fullest(counts: Any) -> float:
    return float(counts.max() / counts.mean())


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser("python -m benchmarks.sharding", description=__doc__)
    parser.add_argument("store", help="the URL of a log that holds recorded conversations: import some")
    parser.add_argument("--conversations", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, nargs="+", default=list(_SHARDS))
    parser.add_argument("--events-per-s", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    recorded = asyncio.run(read(options.store))
    if not recorded:
        parser.error(f"{options.store} holds no conversation: import some first")
    events = sorted(sum(one.runs) for one in recorded)
    said = f"events p50 {events[len(events) // 2]:,}, p99 {events[len(events) * 99 // 100]:,}, most {events[-1]:,}"
    title = f"{options.conversations:,} conversations, drawn from {len(recorded):,}: {said}"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    busiest = f"events/s there, of {options.events_per_s:,}"
    for name in ("shards", "conversations", "events", "bytes", "busiest second", busiest):
        table.add_column(name, justify="right")
    loads = simulate(recorded, options.conversations, options.shards, events_per_s=options.events_per_s, seed=options.seed)
    for load in loads:
        peak = load.busiest * options.events_per_s / load.shards
        table.add_row(str(load.shards), *(f"{value:.3f}" for value in load[1:4]), f"{load.busiest:.2f}", f"{peak:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
