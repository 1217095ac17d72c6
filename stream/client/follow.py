"""The loop: connects, hands on what comes, and goes on from there when the connection breaks."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final

import anyio
import httpx
from httpx_sse import EventSource

from stream.client.answers import MEDIA_TYPE, Passing, check_answer, explain, without_secrets
from stream.client.cursor import Cursor
from stream.client.pauses import LONGEST_S, Pauses

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from httpx_sse import ServerSentEvent

    from stream.client.records import RemoteEvent, RemoteSnapshot

INCARNATION_HEADER: Final = "tailfold-incarnation"
SILENT_S: Final = 45.0  # three heartbeats of a server
_CONNECT_S: Final = 10.0


async def follow_remote(
    url: str,
    *,
    after: int = 0,
    incarnation: str | None = None,
    headers: Mapping[str, str] | None = None,
    client: httpx.AsyncClient | None = None,
    silent_s: float = SILENT_S,
    broken: Callable[[str], None] | None = None,
) -> AsyncGenerator[RemoteEvent | RemoteSnapshot, None]:
    """Yields every event after `after` and goes on waiting for more: each once, in order; stop it by leaving the loop.

    `url` is that of the events, `…/v1/conversations/{id}/events` of `tailfold serve`. They are server-sent events as the
    HTML standard has them (9.2): the id of each is its number, and `Last-Event-ID` says from where to go on. Where the
    server can't continue the position (it lies below the floor, beyond the head, or belongs to another `incarnation` of
    the store) a `RemoteSnapshot` comes first, and then what follows it. An event of another number than the next one is
    not yielded: the connection is given up, and it is asked for again.

    It connects anew by itself, for as long as it takes, whatever broke: a connection that is refused, cut, or silent for
    `silent_s` seconds, and answers that pass (408, 425, 429, 5xx). The pauses in between grow to ten seconds, are never
    the same, and begin short again when something has come. `broken` is called with why, before each pause. It ends
    where the server answers 204. Events are held for no longer than they are taken: who takes them slowly holds up the
    server.

    `headers` go with each request, as `{"Authorization": "Bearer …"}`; a `client` is used as it is and stays open.

    Raises `RemoteRefused` for every other answer than 200, with what the server says; `RemoteUnreadable` for another
    content type than that of events, and for a certificate that can't be trusted; `RemoteOutOfOrder` where the number is
    wrong three times without an event in between. `ValueError` for an address, header, or position that is none.
    """
    place = _Place(url, headers, silent_s)
    cursor = Cursor(place.shown, after, incarnation)
    pauses = Pauses()
    async with contextlib.AsyncExitStack() as stack:
        if client is None:
            client = await stack.enter_async_context(httpx.AsyncClient())
        while True:
            began, at_least_s, why = anyio.current_time(), 0.0, "the connection has ended"
            try:
                async with _ask(client, place, cursor) as frames:
                    if frames is None:
                        return
                    async for frame in frames:
                        if (taken := cursor.take(frame)) is not None:
                            pauses.reset()
                            yield taken
            except Passing as error:
                why, at_least_s = str(error), error.at_least_s
            if anyio.current_time() - began > LONGEST_S:  # it was there, though nothing happened
                pauses.reset()
            if broken is not None:
                broken(f"{place.shown}: {why}: trying again")
            await anyio.sleep(pauses.next_s(at_least_s=at_least_s))


class _Place:
    """Where is asked, and how. `shown` is the address without what may be secret in it."""

    def __init__(self, url: str, headers: Mapping[str, str] | None, silent_s: float) -> None:
        self.url = _read_url(url)
        self.shown = without_secrets(self.url)
        if not 0 < silent_s < math.inf:
            raise ValueError(f"silent_s is above 0 seconds, not {silent_s}")
        self.timeout = httpx.Timeout(silent_s, connect=min(_CONNECT_S, silent_s), pool=None)
        for name, value in httpx.Headers(headers).multi_items():
            if any(sign in name + value for sign in "\r\n\0"):
                raise ValueError(f"header {name!r} holds a line break: nothing of this kind can be asked")
        # What is packed on its way is held back until it is worth packing.
        self.headers = {**(headers or {}), "Accept": MEDIA_TYPE, "Accept-Encoding": "identity", "Cache-Control": "no-store"}


@contextlib.asynccontextmanager
async def _ask(
    client: httpx.AsyncClient, place: _Place, cursor: Cursor
) -> AsyncIterator[AsyncGenerator[ServerSentEvent, None] | None]:
    """The frames behind the cursor, while the block lasts; None where the server says that there are no more.

    Raises `Passing` for what may go well the next time, from the block too.
    """
    url = place.url
    if cursor.incarnation is not None:
        url = url.copy_merge_params({"incarnation": cursor.incarnation})
    headers = place.headers | ({"Last-Event-ID": str(cursor.last)} if cursor.is_told else {})
    try:
        async with client.stream("GET", url, headers=headers, timeout=place.timeout, follow_redirects=False) as answer:
            if not await check_answer(place.shown, answer):
                yield None
                return
            cursor.meet(answer.headers.get(INCARNATION_HEADER))
            async with contextlib.aclosing(EventSource(answer).aiter_sse()) as frames:
                yield frames
    except httpx.RequestError as error:
        raise Passing(explain(place.shown, error)) from error


def _read_url(url: str) -> httpx.URL:
    try:
        place = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ValueError(f"url {str(url)[:80]!r} is none: {error}") from error
    if place.scheme not in ("http", "https") or not place.host:
        raise ValueError(f"url {str(url)[:80]!r} must begin with http:// or https:// and name a host")
    return place.copy_remove_param("after") if "after" in place.params else place  # the position is what was given
