"""Servers of the Durable Streams protocol in this process: several on one store know each other as processes do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
from starlette.routing import Route

from stream.http.durable import DurableStreams
from stream.http.durable.paths import ROOT
from stream.http.service import serve_store, wrap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from stream import AppendResult, EventStore, NewEvent

ORIGIN = "http://streams.test"


class Worker(httpx.AsyncClient):
    """A client of a server of its own, with what the server knows."""

    def __init__(self, store: Any, clock_ms: Callable[[], int] | None = None, **options: Any) -> None:
        service = serve_store(store, **{"long_poll_s": 0.2} | options)
        self.endpoint = DurableStreams(service)
        if clock_ms is not None:
            self.endpoint._streams._clock_ms = self.endpoint.expiry._clock_ms = clock_ms
        self.app = wrap([Route(ROOT + "{path:path}", self.endpoint)], service)
        super().__init__(transport=httpx.ASGITransport(self.app), base_url=ORIGIN + ROOT)

    async def make(self, path: str, media: str = "text/plain", content: bytes = b"", **headers: str) -> httpx.Response:
        """PUT; `Stream_TTL="5"` stands for the header."""
        return await self.put(path, content=content, headers={"Content-Type": media} | _named(headers))

    async def add(self, path: str, content: bytes = b"", media: str = "text/plain", **headers: str) -> httpx.Response:
        """POST."""
        return await self.post(path, content=content, headers={"Content-Type": media} | _named(headers))

    async def text(self, path: str, offset: str = "-1") -> str:
        """All that lies behind an offset."""
        answer = await self.get(path, params={"offset": offset})
        assert answer.status_code == 200, answer.text
        return answer.text


class Meddler:
    """A store that lets somebody else act: right before an append of an event of a type, or right behind a look.

    `before` is the type, or `(producer)` or `(bounds)` for the first such look; `(watermark)` is before the first.
    """

    def __init__(self, store: EventStore, before: str, act: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._before = before
        self._act: Callable[[], Awaitable[object]] | None = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, stream_id: str, events: Sequence[NewEvent], **more: Any) -> AppendResult:
        if any(event.type == self._before for event in events):
            await self._once()
        return await self._store.append(stream_id, events, **more)

    async def producer(self, stream_id: str, producer_id: str) -> Any:
        if self._before == "(watermark)":
            await self._once()
        found = await self._store.producer(stream_id, producer_id)
        if self._before == "(producer)":
            await self._once()
        return found

    async def bounds(self, stream_id: str) -> Any:
        found = await self._store.bounds(stream_id)
        if self._before == "(bounds)":
            await self._once()
        return found

    async def _once(self) -> None:
        act, self._act = self._act, None
        if act is not None:
            await act()


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
