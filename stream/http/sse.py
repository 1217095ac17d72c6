"""Server-sent events: frames, and a response that lasts until its client goes, the source ends, or the server does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from stream.http.followers import Follower, Followers

HEARTBEAT: Final = b":\n\n"  # a comment: it keeps proxies and clients from giving up
HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
    "x-content-type-options": "nosniff",
}
_SLICE_BYTES: Final = 64 * 1024
T = TypeVar("T")


def frame(data: bytes, *, event: str | None = None, id: str | None = None) -> bytes:  # noqa: A002 - the field's name
    """One event of one line. `data` holds no line break."""
    head = b""
    if id is not None:
        head = b"id: " + id.encode() + b"\n"
    if event is not None:
        head += b"event: " + event.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"


class Once(Generic[T]):
    """Makes bytes of something, and gives them again to whoever asks for the very same thing next."""

    def __init__(self, make: Callable[[T], bytes]) -> None:
        self._make = make
        self._last: tuple[T, bytes] | None = None

    def __call__(self, thing: T) -> bytes:
        """The bytes of it."""
        if self._last is None or self._last[0] is not thing:
            self._last = (thing, self._make(thing))
        return self._last[1]


class BrokenOff(Exception):
    """Raised by a source that can't go on, and must not end as if it were whole: the client comes back."""


class EventStream(Response):
    """A response of whatever `source` yields; `b""` stands for a heartbeat.

    It ends well only where the source ends. Where it is broken off (the server closes, the client does not read, the
    source raises), the connection is cut without an end, so that no client takes a part for the whole. One batch is held
    until the client has taken it. To HEAD it says only what it is.
    """

    def __init__(
        self, source: AsyncGenerator[bytes, None], followers: Followers, headers: Mapping[str, str] | None = None
    ) -> None:
        # No body that is known, so nothing of what the base class makes of one.
        self._source = source
        self._followers = followers
        self.status_code = 200
        self.background = None
        self.raw_headers = [(name.encode(), value.encode()) for name, value in {**HEADERS, **(headers or {})}.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["method"] == "HEAD":
            await self._source.aclose()
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b""})
            return
        is_whole = False
        try:
            with self._followers.enter() as follower:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async with anyio.create_task_group() as group:
                    group.start_soon(await_leaving, receive, group.cancel_scope)
                    await self._send_all(follower, send)
                    is_whole = True
                    group.cancel_scope.cancel()
        except* BrokenOff:
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await self._source.aclose()
        if is_whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, follower: Follower, send: Send) -> None:
        clock = anyio.current_time
        async for chunk in self._source:
            for begin in range(0, len(chunk) or 1, _SLICE_BYTES):  # the connection copies what it is given
                follower.sending_since = clock()
                part = chunk[begin : begin + _SLICE_BYTES] or HEARTBEAT
                await send({"type": "http.response.body", "body": part, "more_body": True})
            follower.sending_since = None


async def await_leaving(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancels the scope when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
