"""Drops the oldest messages of a stream for good; who reads on from among them is told where to begin instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream.http.durable.offsets import read_offset
from stream.http.durable.paths import read_path
from stream.http.durable.streams import Streams

if TYPE_CHECKING:
    from stream.store import EventStore


async def truncate(store: EventStore, path: str, *, before: str) -> None:
    """Drops what lies before the offset, which is one of the stream's own messages; its configuration stays known.

    Its forks lose what they read of that too. Raises `LookupError` where there is no such stream, `ValueError` for an
    offset that does not lie in it, and `Problem` for what is no path or no offset.
    """
    streams = Streams(store)
    stream = await streams.find(read_path(path))
    if stream is None or stream.state.is_gone:
        raise LookupError(f"there is no stream {path!r}")
    offset, own = read_offset(before), stream.state.own_part(stream.id)
    if offset.generation != own.generation or not own.start < offset.position <= own.start + own.through:
        raise ValueError(f"{before} is no offset of a message of the stream {path!r} itself")
    await streams.save(stream)
    await store.truncate(stream.id, through=offset.position - own.start)
