"""Appends of 1 and of 20 events by 1 to 1,000 writers, against raw transactions and against other libraries.

A closed loop: every writer awaits its append before the next, `append(stream, events)` without options. Writers work
over min(writers, 100) streams, so at 1,000 ten share one. Raw commits as many one-event rows at a time as there are
writers, at most 100, over the same streams; k = 20 is measured in events against that same raw. The other libraries
have 100 writers; they take turns with us and with raw in rounds of their own, on the first event loop: what they leave
in memory burdens the collector of whoever shares their process.
"""

from __future__ import annotations

import asyncio
import functools
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks import peers
from benchmarks.logs import batches
from benchmarks.measuring import compare, interleave, sized
from benchmarks.raw import RawLog
from benchmarks.talk import deltas
from stream import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure, Side, SizedSide
    from benchmarks.peers import Peer
    from stream import EventStore, NewEvent

_EVENTS: Final = deltas(2000)
_KS: Final = (1, 20)
_MAX_STREAMS: Final = 100


class Sizes(NamedTuple):
    """How many writers, rounds and seconds a round; how many events warm a side up."""

    writers: tuple[int, ...]
    rounds: int
    round_s: float
    warm_up: int


FULL: Final = Sizes((1, 10, 100, 1000), 7, 0.5, 2000)
SMOKE: Final = Sizes((1, 100), 3, 0.05, 200)


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of rates: `appends.LOOP.wWRITERS.kK.OTHER`."""
    figures = []
    for loop in bench.loops:
        for writers in sizes.writers:
            place = bench.folder / f"appends-{loop}-{writers}"
            place.mkdir()
            found = bench.run(_measure(place, writers, sizes, with_peers=False), loop=loop)
            where = f"{writers:,} writer{'s' if writers > 1 else ''}, {loop}"
            figures += _figures(f"appends.{loop}.w{writers}", where, found)
            if writers == peers.WRITERS and loop == bench.loops[0] and any(peers.versions().values()):
                place = bench.folder / f"appends-{loop}-peers"
                place.mkdir()
                found = bench.run(_measure(place, writers, sizes, with_peers=True), loop=loop)
                figures += _figures_beside_peers(f"appends.{loop}.w{writers}", where, found)
    return figures


async def _measure(place: Path, writers: int, sizes: Sizes, *, with_peers: bool) -> dict[str, list[float]]:
    streams = min(writers, _MAX_STREAMS)
    raw = RawLog(place / "raw.db")
    others: dict[str, Peer] = {}
    if with_peers:
        others = {name: peers.PEERS[name](place / f"{name}.db") for name, version in peers.versions().items() if version}
    sides: dict[str, Side] = {}
    async with open_store(str(place / "tailfold.db")) as store:

        async def add(name: str, side: SizedSide) -> None:
            sides[name] = await sized(side, seconds=sizes.round_s, warm_up=sizes.warm_up)

        await add("raw", functools.partial(_commit, raw, streams))
        for k in _KS:
            await add(f"k{k}", functools.partial(_append, store, writers, k))
            for name, peer in others.items():
                if k == 1 or name not in peers.BY_STEP:
                    await add(f"k{k}.{name}", functools.partial(peer.store, k=k))
        measured = await interleave(sides, sizes.rounds)
    for peer in others.values():
        await peer.close()
    raw.close()
    return measured


async def _commit(raw: RawLog, streams: int, amount: int) -> float:
    return raw.store(raw.prepare(_EVENTS, amount, streams=streams, rows=streams))


async def _append(store: EventStore, writers: int, k: int, amount: int) -> float:
    """Events a second."""
    calls = max(1, amount // (writers * k))
    appends: list[list[NewEvent]] = [list(batch) for batch in batches(_EVENTS, k)]

    async def write(writer: int) -> None:
        stream = f"conversation-{writer % _MAX_STREAMS}"
        for call in range(writer, writer + calls):
            await store.append(stream, appends[call % len(appends)])

    began = time.perf_counter()
    await asyncio.gather(*(write(writer) for writer in range(writers)))
    return calls * k * writers / (time.perf_counter() - began)


def _figures(prefix: str, where: str, measured: dict[str, list[float]]) -> list[Figure]:
    raw = measured["raw"]
    return [
        compare(f"{prefix}.k{k}.raw", f"k = {k}, {where}", "raw", measured[f"k{k}"], raw, _beside(measured[f"k{k}"], raw))
        for k in _KS
    ]


def _figures_beside_peers(prefix: str, where: str, measured: dict[str, list[float]]) -> list[Figure]:
    figures: list[Figure] = []
    raw = measured["raw"]
    for k in _KS:
        ours, what = measured[f"k{k}"], f"k = {k}, {where}"
        found = {name.partition(".")[2]: rates for name, rates in measured.items() if name.startswith(f"k{k}.")}
        if found:
            best = [max(rates) for rates in zip(*found.values(), strict=True)]
            figures.append(compare(f"{prefix}.k{k}.best", what, "the best peer", ours, best))
        for peer, rates in found.items():
            figures.append(compare(f"{prefix}.k{k}.{peer}", what, peer, ours, rates, _beside(ours, rates)))
            figures.append(compare(f"{prefix}.k{k}.{peer}.raw", f"{peer}, {what}", "raw", rates, raw))
    return figures


def _beside(ours: list[float], theirs: list[float]) -> dict[str, float]:
    return {"events_per_s": statistics.median(ours), "other_per_s": statistics.median(theirs)}
