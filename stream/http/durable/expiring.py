"""Deletes streams whose time is over, also those that nobody asks for any more."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from stream.clock import now_ms
from stream.errors import CorruptEvent, Diverged, StoreBusy, StoreClosed, StoreFull, StreamError, Truncated
from stream.http.durable.paths import read_id
from stream.http.durable.state import DELETE, OPEN, RETIRE, UNFORK, decode_opened
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from stream.http.durable.streams import Streams
    from stream.store import EventStore

_LOG: Final = Logger("tailfold.http")
_PAUSE_S: Final = 0.5  # between two looks at what has changed: there is no hurry to know of new ones
_RETRY_S: Final = 5.0
_PAGE: Final = 200
_REST: Final = 3  # times as long as a page took: those who are served come first, however many streams there are at the start
_SHORT: Final = 64  # events: of a stream that has no more all are read, for that is one look less
_ENDING: Final = (RETIRE, UNFORK, DELETE)


class Expiry:
    """Knows which streams have an end: each is looked at once when it has come to be, and again when its end has come.

    Until then whoever asks for a stream whose time is over is told so, and ends it; nothing waits for this.
    """

    def __init__(self, store: EventStore, streams: Streams, *, clock_ms: Callable[[], int] = now_ms) -> None:
        self._store = store
        self._streams = streams
        self._clock_ms = clock_ms
        self._token = ""
        self._ends: list[tuple[int, str]] = []

    async def run(self) -> None:
        """Goes on for as long as the store is open."""
        while True:
            try:
                await self.look()
                await self.expire()
                await self._pause()
            except StoreClosed:
                return
            except StreamError as error:  # busy or full: it is done later
                _LOG.warning("durable.expiry_failed", error=type(error).__name__)
                await anyio.sleep(_RETRY_S)

    async def look(self) -> None:
        """Takes in the streams that have come to be since it looked last."""
        while True:
            began = anyio.current_time()
            try:
                page = await self._store.changes(after=self._token, limit=_PAGE)
            except Diverged:  # the file was put back
                self._token, self._ends = "", []
                continue
            for stream, (after, head) in zip(page.streams, page.spans, strict=True):
                if not after and read_id(stream):
                    await self._note(stream, new_head=head)
            self._token = page.token
            if not page.streams:
                return
            await self.expire()
            await anyio.sleep(_REST * (anyio.current_time() - began))

    async def expire(self) -> None:
        """Deletes those whose end has come."""
        while self._ends and self._ends[0][0] <= self._clock_ms():
            _, stream = heapq.heappop(self._ends)
            await self._note(stream)

    async def _note(self, stream_id: str, *, new_head: int = 0) -> None:
        try:
            if new_head and not await self._may_end(stream_id, new_head):
                return
            stream = await self._streams.open(stream_id)
            if self._streams.is_expired(stream) or stream.state.is_gone:
                await self._streams.end(stream, only_expired=True)
            elif stream.state.is_retired:  # who deleted its last fork may have been killed
                await self._streams.settle(stream)
            ends_at_ms = stream.ends_at_ms()
        except CorruptEvent:  # it does not keep the others
            _LOG.error("durable.stream_unreadable", stream_id=stream_id)
            return
        except (StoreBusy, StoreFull):
            ends_at_ms = self._clock_ms() + int(_RETRY_S * 1000)
        if ends_at_ms is not None:
            heapq.heappush(self._ends, (ends_at_ms, stream_id))

    async def _may_end(self, stream_id: str, head: int) -> bool:
        """Whether it has a time to live, or an end that may have been broken off: its first and its last event tell.

        So a long stream costs little more than a short one, and one that nobody asks for takes no memory.
        """
        try:
            events = await self._store.read(stream_id, limit=head if head <= _SHORT else 1)
            if events and events[-1].seq < head:
                events += await self._store.read(stream_id, after=head - 1, limit=1)
            if [event.type for event in events[:1]] != [OPEN] or events[-1].type in _ENDING:
                return True
            opened = decode_opened(events[0].data)
        except Truncated:
            bounds = await self._store.bounds(stream_id)
            return bounds.origin < bounds.head  # else it was deleted, to the end
        except msgspec.MsgspecError:
            return True
        return opened.ttl_s is not None or opened.ends_at_ms is not None

    async def _pause(self) -> None:
        left_s = (self._ends[0][0] - self._clock_ms()) / 1000 if self._ends else None
        with anyio.move_on_after(None if left_s is None else max(left_s, 0)):
            await self._store.wait_any(after=self._token)
            await anyio.sleep(_PAUSE_S)
