"""Fills logs: a long one that several workloads share, and others of a given layout."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final

from benchmarks.talk import conversation
from stream import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from stream import EventStore, NewEvent

LONG: Final = "long"
SHORT: Final = "short"
RUN_EVENTS: Final = 1000
_IN_FLIGHT: Final = 500


async def long_log(folder: Path, events: int) -> Path:
    """A file with a stream of `events` events, and one of 1,000; both end in 1,000 appends of a single event.

    Made once for a size; the older part is appended 1,000 events at a time.
    """
    path = folder / f"long-{events}.db"
    if not path.exists():
        async with open_store(str(path)) as store:
            for stream, runs in ((LONG, events // RUN_EVENTS), (SHORT, 1)):
                *older, newest = conversation(runs)
                await append_all(store, stream, older, in_flight=4)
                await append_all(store, stream, batches(newest, 1))
    return path


async def append_all(
    store: EventStore, stream: str, appends: Iterable[Sequence[NewEvent]], *, in_flight: int = _IN_FLIGHT
) -> None:
    """Appends in order, some at a time, so that they share commits."""
    waiting = iter(appends)
    while some := list(itertools.islice(waiting, in_flight)):
        await asyncio.gather(*(store.append(stream, events) for events in some))


def batches(events: Sequence[NewEvent], k: int) -> list[Sequence[NewEvent]]:
    """Appends of `k` events."""
    return [events[start : start + k] for start in range(0, len(events), k)]
