"""Follows all streams of a store at once: one feed for read models, that goes on from a token whatever happened meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stream.checks import check_store, check_text
from stream.errors import Truncated
from stream.feed import seal, unseal
from stream.limits import PROTOCOL_PREFIX, check_prefix
from stream.records import Event, Gap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stream.store import EventStore

_PAGE_STREAMS: Final = 100
_PAGE_EVENTS: Final = 1000
_MARK: Final = "~"
_REACHED: Final = msgspec.msgpack.Decoder(tuple[str, int])


async def follow_all(store: EventStore, *, after: str = "", prefix: str = "") -> AsyncIterator[tuple[Event | Gap, str]]:
    """Yields what is appended to any stream, each with a token, and goes on waiting for more; stop it by leaving the loop.

    Keep the token with what was made of the event: `after=token` goes on behind it. What comes then was appended since
    or had not been yielded; nothing else comes again. Each stream is in order, between streams there is none. A `Gap`
    comes where events were truncated, deleted or erased before they could be yielded. Streams whose id begins with `ds:`
    come only with a `prefix` that begins so.

    Without a token it begins with all that is there, streams without end one after the other. Holds one page of events,
    however far behind it is. Raises `Diverged` for a token of another life of the store, or of a later state than it is
    in, `ValueError` for what is no token or no store (that of a ledger is `ledger.store`), `CorruptEvent` where a stream
    is damaged, and `StoreClosed` when the store is closed under it.
    """
    check_store("store", store)
    check_prefix("prefix", prefix)
    token, reached = _open(after)
    while True:
        page = await store.changes(after=token, limit=_PAGE_STREAMS)
        first = page.streams.index(reached.stream_id) if reached is not None and reached.stream_id in page.streams else 0
        moves = list(zip(page.streams, page.spans, strict=True))[first:]
        for stream_id, (since, head) in moves:
            if not stream_id.startswith(prefix) or (
                stream_id.startswith(PROTOCOL_PREFIX) and not prefix.startswith(PROTOCOL_PREFIX)
            ):
                continue
            begin = max(since, reached.seq) if reached is not None and reached.stream_id == stream_id else since
            async for said, seq in _read_on(store, stream_id, begin, head):
                is_last = stream_id == page.streams[-1] and seq >= head
                yield said, page.token + _MARK if is_last else page.begin + _MARK + seal((stream_id, seq))
        token, reached = page.token, None
        if not page.streams:
            await store.wait_any(after=token)


class _Reached(NamedTuple):
    """How far one stream of a page has come; those before it are done."""

    stream_id: str
    seq: int


def _open(after: str) -> tuple[str, _Reached | None]:
    token, mark, reached = check_text("after", after).rpartition(_MARK)
    if not mark:
        return after, None
    return token, _Reached(*unseal(reached, _REACHED)) if reached else None


async def _read_on(store: EventStore, stream_id: str, after: int, head: int) -> AsyncIterator[tuple[Event | Gap, int]]:
    """What is left between the two, and how far it has come with each of it."""
    while after < head:
        try:
            events = await store.read(stream_id, after=after, limit=min(_PAGE_EVENTS, head - after))
        except Truncated:
            bounds = await store.bounds(stream_id)
            after = min(bounds.floor, head)  # what lies behind is told with the page that it moved in, and not twice
            yield Gap(stream_id, after, bounds.head), after
            continue
        for event in events:
            after = event.seq
            yield event, after
