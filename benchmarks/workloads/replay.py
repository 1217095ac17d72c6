"""Cold replay of a stream from its first event: read and decode, and read and fold, each against a raw scan.

Raw holds the same events in rows of one event and decodes every body. Ours reads by pages through `store.read`; the
fold is `load(transcript, ...)` without a snapshot. Two layouts: appended one by one, which lies in chunks that are packed
and compressed but for the last batches, and 20 at a time, which are rows of their own. Beside the rates stand the bytes of
an event in the file: what is said here repeats itself, and is a good deal smaller compressed than what people say.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.logs import RUN_EVENTS, append_all, batches
from benchmarks.measuring import compare, interleave
from benchmarks.raw import RawLog, fill
from benchmarks.talk import conversation
from projector import load, transcript
from projector.events import read_body
from stream import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure, Side
    from stream import EventStore


class Sizes(NamedTuple):
    """How many events, how often."""

    events: int
    rounds: int


FULL: Final = Sizes(100_000, 9)
SMOKE: Final = Sizes(5_000, 2)
_STREAM: Final = "replayed"
_KS: Final = (1, 20)


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of rates: `replay.kK.read`, `replay.kK.fold`."""
    found = bench.run(_measure(bench.folder, sizes))
    figures = []
    for name in (f"k{k}.{what}" for k in _KS for what in ("read", "fold")):
        k, _, what = name[1:].partition(".")
        label = f"replay of {sizes.events:,} events, k = {k}: read and {'decode' if what == 'read' else what}"
        beside = {"events_per_s": statistics.median(found[name]), "other_per_s": statistics.median(found["raw"])}
        beside["bytes_per_event"] = (bench.folder / f"replay-{k}.db").stat().st_size / sizes.events
        figures.append(compare(f"replay.{name}", label, "raw scan + decode", found[name], found["raw"], beside))
    return figures


async def _measure(folder: Path, sizes: Sizes) -> dict[str, list[float]]:
    raw = RawLog(folder / "replay-raw.db")
    fill(raw, itertools.chain.from_iterable(conversation(sizes.events // RUN_EVENTS)))
    stores = {k: await open_store(str(folder / f"replay-{k}.db")) for k in _KS}
    for k, store in stores.items():
        for run in conversation(sizes.events // RUN_EVENTS):
            await append_all(store, _STREAM, batches(run, k))

    async def scan() -> float:
        began = time.perf_counter()
        return raw.scan() / (time.perf_counter() - began)

    async def read(store: EventStore) -> float:
        began = time.perf_counter()
        return await _read(store) / (time.perf_counter() - began)

    async def fold(store: EventStore) -> float:
        began = time.perf_counter()
        loaded = await load(transcript, store, store.snapshots, _STREAM)
        assert not list(loaded.state.anomalies)
        return loaded.last_seq / (time.perf_counter() - began)

    sides: dict[str, Side] = {"raw": scan}
    for k, store in stores.items():
        sides[f"k{k}.read"] = functools.partial(read, store)
        sides[f"k{k}.fold"] = functools.partial(fold, store)
    await interleave(sides, 1)  # warms up
    measured = await interleave(sides, sizes.rounds)
    for store in stores.values():
        await store.close()
    raw.close()
    return measured


async def _read(store: EventStore) -> int:
    after = 0
    while events := await store.read(_STREAM, after=after):
        for event in events:
            read_body(event.type, event.data)
        after = events[-1].seq
    return after
