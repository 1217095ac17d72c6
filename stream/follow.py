"""Follows a stream: everything after a position, each event once, in order, then what comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream.checks import check_store, check_text
from stream.errors import Diverged
from stream.limits import check_position

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stream.records import Event
    from stream.store import EventStore


async def follow(store: EventStore, stream_id: str, *, after: int = 0, incarnation: str | None = None) -> AsyncIterator[Event]:
    """Yields every event after `after` and goes on waiting for more; stop it by leaving the loop.

    A position that is kept for later is kept with the `incarnation` of its store: in a store that was restored since,
    the same number may be another event. Catching up and going live are the same loop over `read`, so there is no
    moment between them. Raises `Truncated` if the position lies below the floor, also when the floor overtakes a slow
    reader, `Diverged` if it lies beyond the head or belongs to another incarnation, `StoreClosed` when the store is
    closed under it, and `ValueError` for what is no store.
    """
    check_store("store", store)
    check_position("after", after)
    if incarnation is not None:
        check_text("incarnation", incarnation)
    head = (await store.bounds(stream_id)).head
    if after > head or incarnation not in (None, store.incarnation):
        raise Diverged(stream_id, after, head, incarnation=None if incarnation == store.incarnation else incarnation)
    while True:
        events = await store.read(stream_id, after=after)
        for event in events:
            yield event
            after = event.seq
        if not events:
            await store.wait(stream_id, after=after)
