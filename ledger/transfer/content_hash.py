"""What a conversation holds in 64 letters: equal wherever the same is kept, whatever engine keeps it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ledger.transfer.archive import write_lines

if TYPE_CHECKING:
    from ledger.engine import Engine
    from stream import EventStore

_PAGE_EVENTS = 1000


async def hash_messages(ledger: Engine, conversation: str) -> str:
    """SHA-256 of all that the ledger keeps of a conversation but runs that are open: branches, runs, media, choices.

    Raises `UnknownConversation`, and `LedgerError` where it was erased in the meantime.
    """
    digest = hashlib.sha256()
    async for line in write_lines(ledger, conversation):
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


async def hash_log(store: EventStore, stream_id: str, *, through: int | None = None) -> str:
    """SHA-256 of a stream's origin and floor, and of its events with their numbers, types, bytes and times.

    With `through` those behind that seq are left out. Raises `Truncated` where it is cut in the meantime.
    """
    bounds = await store.bounds(stream_id)
    end = bounds.head if through is None else min(through, bounds.head)
    digest = hashlib.sha256(f"{bounds.origin} {bounds.floor}\n".encode())
    after = bounds.floor
    while after < end and (events := await store.read(stream_id, after=after, limit=min(_PAGE_EVENTS, end - after))):
        for event in events:
            digest.update(f"{event.seq} {event.at} {event.type} {len(event.data)}\n".encode())
            digest.update(event.data)
        after = events[-1].seq
    return digest.hexdigest()
