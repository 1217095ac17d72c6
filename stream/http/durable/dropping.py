"""Drops a stream that can't be read any more, so that its path is free, and never from under the forks that read it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from stream.errors import CorruptEvent
from stream.http.durable.state import FORK, UNFORK, VERSION, decode
from stream.http.durable.streams import PROJECTOR
from stream.http.problems import Problem
from stream.logger import Logger

if TYPE_CHECKING:
    from stream.http.durable.streams import Streams
    from stream.store import EventStore

_LOG: Final = Logger("tailfold.http")
_PAGE_EVENTS: Final = 1000


async def drop(store: EventStore, streams: Streams, stream_id: str) -> None:
    """Deletes this life of a path, whatever it holds. Raises `Problem` 409 where forks read of it."""
    forks = [fork for fork in await _read_forks(store, stream_id) if await streams.is_forked_as(fork, stream_id)]
    if forks:
        _LOG.error("durable.damaged_and_forked", stream_id=stream_id, forks=forks)
        why = f"the stream can't be read any more, but {len(forks)} forks read of it, which the server's log names"
        raise Problem(409, "damaged", f"{why}: delete them first, or restore a backup")
    await store.delete(stream_id)
    _LOG.warning("durable.damaged_dropped", stream_id=stream_id)
    await streams.end(await streams.open(stream_id))


async def _read_forks(store: EventStore, stream_id: str) -> list[str]:
    """The forks that it was told of, as far as that can be read: event by event where something is wrong."""
    forks: dict[str, int] = {}
    snapshot = await store.snapshots.load(stream_id, PROJECTOR)
    if snapshot is not None and snapshot.version == VERSION:
        forks |= decode(snapshot.state).forks
    bounds = await store.bounds(stream_id)
    after, limit = bounds.floor, _PAGE_EVENTS
    while after < bounds.head:
        try:
            events = await store.read(stream_id, after=after, limit=limit)
        except CorruptEvent:
            if limit == 1:
                after += 1
            limit = 1
            continue
        for event in events:
            with contextlib.suppress(UnicodeDecodeError):
                if event.type == FORK:
                    forks[event.data.decode()] = event.seq
                elif event.type == UNFORK:
                    forks.pop(event.data.decode(), None)
        after, limit = after + max(len(events), 1), min(2 * limit, _PAGE_EVENTS)
    return list(forks)
