"""Deletes streams whose time is over, also those that nobody asks for any more."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from stream.clock import now_ms
from stream.errors import CorruptEvent, Diverged, StoreBusy, StoreClosed, StoreFull, StreamError
from stream.http.durable.paths import read_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from stream.http.durable.streams import Streams
    from stream.store import EventStore

_LOG: Final = structlog.get_logger("tailfold.http")
_PAUSE_S: Final = 0.5  # between two looks at what has changed: there is no hurry to know of new ones
_RETRY_S: Final = 5.0
_PAGE: Final = 1000


class Expiry:
    """Knows which streams have an end: each is looked at once when it has come to be, and again when its end has come."""

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
            try:
                page = await self._store.changes(after=self._token, limit=_PAGE)
            except Diverged:  # the file was put back
                self._token, self._ends = "", []
                continue
            for stream, (after, _) in zip(page.streams, page.spans, strict=True):
                if not after and read_id(stream):
                    await self._note(stream)
            self._token = page.token
            if not page.streams:
                return

    async def expire(self) -> None:
        """Deletes those whose end has come."""
        while self._ends and self._ends[0][0] <= self._clock_ms():
            _, stream = heapq.heappop(self._ends)
            await self._note(stream)

    async def _note(self, stream_id: str) -> None:
        try:
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

    async def _pause(self) -> None:
        left_s = (self._ends[0][0] - self._clock_ms()) / 1000 if self._ends else None
        with anyio.move_on_after(None if left_s is None else max(left_s, 0)):
            await self._store.wait_any(after=self._token)
            await anyio.sleep(_PAUSE_S)
