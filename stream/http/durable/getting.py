"""GET: what lies behind an offset, a page at once, or as it comes: by long-poll or by server-sent events."""

from __future__ import annotations

import base64
import contextlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import msgspec
from starlette.responses import Response

from stream.errors import StreamError, Truncated
from stream.http.durable import messages
from stream.http.durable.headers import CLOSED, CURSOR, NEXT_OFFSET, UP_TO_DATE
from stream.http.durable.offsets import Offset, next_cursor, read_offset
from stream.http.durable.reading import PAGE_BYTES, Page, messages_of, read_page
from stream.http.durable.state import CLOSE, DELETE, RETIRE
from stream.http.durable.streams import Framed
from stream.http.problems import Problem
from stream.http.sse import BrokenOff, EventStream, await_leaving
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from starlette.datastructures import Headers, QueryParams
    from starlette.types import Receive

    from stream.http.durable.state import State
    from stream.http.durable.streams import Stream, Streams
    from stream.http.service import Service
    from stream.records import Event

_LOG: Final = Logger("tailfold.http")
_PART_BYTES: Final = 64 * 1024  # of who catches up by server-sent events, and may read slowly: he holds no more
ROTATE_S: Final = 60.0  # a connection of server-sent events lasts so long, then the client comes again
_FRESH: Final = "private, max-age=60, stale-while-revalidate=300"  # what the protocol proposes (2.7)
_GROWING: Final = "private, no-cache"  # the next look at the end shall see what was appended since
_BREAKS: Final = re.compile(rb"(?:\r\n|\r|\n)( ?)")
_ENDS: Final = (DELETE, RETIRE)


class Query(NamedTuple):
    """What a GET asks for. `after` is None for the end of the stream as it is now."""

    after: Offset | None
    live: str | None
    cursor: str | None


def read_query(given: QueryParams) -> Query:
    """The parameters of a request. Raises `Problem` 400; unknown ones are passed over."""
    offsets, live = given.getlist("offset"), given.get("live")
    if len(offsets) > 1:
        raise Problem(400, "invalid_offset", "send one offset")
    if live not in (None, "long-poll", "sse"):
        raise Problem(400, "invalid_live", "live is long-poll or sse")
    if live and not offsets:
        raise Problem(400, "invalid_offset", f"live={live} needs an offset: -1 for the beginning, now for the end")
    text = offsets[0] if offsets else "-1"
    return Query(None if text == "now" else read_offset(text), live, given.get("cursor"))


class Reader:
    """Answers the GETs of one server."""

    def __init__(self, service: Service, streams: Streams, *, rotate_s: float = ROTATE_S) -> None:
        self._service = service
        self._streams = streams
        self._rotate_s = rotate_s

    async def read(self, stream: Stream, query: Query, headers: Headers) -> Response:
        """A page (2.7)."""
        state = stream.state
        if query.after is None:
            told = {NEXT_OFFSET: str(state.end), UP_TO_DATE: "true", "Cache-Control": "no-store"}
            told |= {CLOSED: "true"} if state.is_closed else {}
            return _answer(stream, b"[]" if messages.is_json(state.config.media) else b"", told)
        page = await read_page(self._service.store, stream, query.after)
        etag = self._etag(stream, query.after, page)
        told = _about(page) | {"ETag": etag, "Cache-Control": _GROWING if page.is_at_end and not page.is_closed else _FRESH}
        if _is_known(headers, etag):
            return Response(status_code=304, headers=told)
        return _answer(stream, messages.join(page.messages, state.config.media), told)

    async def poll(self, stream: Stream, query: Query, receive: Receive) -> Response | None:
        """A page as soon as there is something in it, or 204 (2.8); None where the stream ends meanwhile."""
        page: Page | None = await self._first(stream, query)
        if page is not None and not page.messages and not page.is_closed:
            page = await self._await_page(stream, page, receive)
        if page is None:
            return None
        told = _about(page) | {CURSOR: next_cursor(query.cursor), "Cache-Control": "no-store"}
        if not page.messages:
            return Response(status_code=204, headers=told)
        return _answer(stream, messages.join(page.messages, stream.state.config.media), told)

    async def follow(self, stream: Stream, query: Query) -> EventStream:
        """Server-sent events (2.9)."""
        page = await self._first(stream, query, max_bytes=_PART_BYTES)
        media = stream.state.config.media
        told = {} if messages.is_text(media) else {"stream-sse-data-encoding": "base64"}
        return EventStream(self._frames(stream, page, query.cursor), self._service.followers, told)

    async def _first(self, stream: Stream, query: Query, *, max_bytes: int = PAGE_BYTES) -> Page:
        if query.after is None:
            state = stream.state
            return Page([], state.end, is_at_end=True, is_closed=state.is_closed, head=stream.head)
        return await read_page(self._service.store, stream, query.after, max_bytes=max_bytes)

    async def _await_page(self, stream: Stream, page: Page, receive: Receive) -> Page | None:
        """The next page; the same if none comes in time, the client goes, or the server closes; None where nothing follows."""
        found: Page | None = page
        failure: Exception | None = None
        with self._service.followers.enter():
            async with anyio.create_task_group() as group:
                group.start_soon(await_leaving, receive, group.cancel_scope)
                group.start_soon(self._hold, stream)
                with anyio.move_on_after(self._service.long_poll_s):
                    try:
                        found = await self._next_page(stream, page)
                    except Exception as error:  # noqa: BLE001 - a group would wrap it
                        failure = error
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return found

    async def _hold(self, stream: Stream) -> None:
        with contextlib.suppress(StreamError):  # who waits is told by what he waits for
            pause_s = await self._streams.hold(stream)
            while pause_s is not None:
                await anyio.sleep(pause_s)
                pause_s = await self._streams.hold(stream)

    async def _next_page(self, stream: Stream, page: Page) -> Page | None:
        with self._service.tails.join(stream.id, after=page.head) as follower:
            while True:
                try:
                    batch = await follower.next()
                except Truncated:
                    return None
                pages, is_over = _pages_of(stream.state, batch, page.next, is_last=not follower.is_behind)
                if pages or is_over:
                    return pages[0] if pages else None

    async def _frames(self, stream: Stream, page: Page, cursor: str | None) -> AsyncGenerator[bytes, None]:
        media = stream.state.config.media
        ends_at = anyio.current_time() + self._rotate_s
        try:
            while True:
                frame = _frame(page, media, next_cursor(cursor))
                page = page._replace(messages=[])  # not held beside it while it is sent
                yield frame
                if page.is_closed:
                    return
                if page.is_at_end:
                    break
                await self._streams.hold(stream)
                page = await read_page(self._service.store, stream, page.next, max_bytes=_PART_BYTES)
            frame = b""  # nor while it waits
            async with contextlib.aclosing(self._frames_behind(stream, page, cursor, ends_at)) as frames:
                async for each in frames:
                    yield each
        except (Problem, Truncated):  # it has gone, or what would come next has: who asks again is told so
            return
        except StreamError as error:
            _LOG.error("durable.follow_failed", stream_id=stream.id, error=type(error).__name__)
            raise BrokenOff from error

    async def _frames_behind(
        self, stream: Stream, page: Page, cursor: str | None, ends_at: float
    ) -> AsyncGenerator[bytes, None]:
        """What comes behind the end as it was, until then."""
        place, is_told = page.next, True
        with self._service.tails.join(stream.id, after=page.head) as follower:
            try:
                while (left_s := ends_at - anyio.current_time()) > 0:
                    hold_s = await self._streams.hold(stream)
                    batch: Sequence[Event] | None = None
                    with anyio.move_on_after(left_s if hold_s is None else min(left_s, hold_s)):
                        batch = await follower.next()
                    if batch is None:
                        continue
                    is_last = not follower.is_behind
                    told = _frames_of(stream, batch, place, next_cursor(cursor), is_last=is_last)
                    place = told.place
                    for each in told.frames:
                        yield each
                    if told.is_over:
                        return
                    if not batch:
                        stream.framed = None  # nobody is about to ask for it
                        yield b""
                    if told.frames:
                        is_told = told.is_last
                    if is_last and not is_told:  # what came last was no message
                        is_told = True
                        yield _frame(Page([], place, is_at_end=True, is_closed=False, head=0), "", next_cursor(cursor))
            finally:
                stream.framed = None  # others make it once more

    def _etag(self, stream: Stream, after: Offset, page: Page) -> str:
        """Of this life of the path, in this store, of the stretch, and of whether it is the last: so far, or for ever.

        A full page is the same when more has come behind it, but who keeps it must not go on to take it for the last.
        """
        end = ":c" if page.is_closed else ":e" if page.is_at_end else ""
        return f'"{self._service.store.incarnation[:8]}:{stream.number}:{after}:{page.next}{end}"'


def _pages_of(state: State, batch: Sequence[Event], after: Offset, *, is_last: bool) -> tuple[list[Page], bool]:
    """What has come behind a place as pages; and whether nothing comes any more. `is_last`: for now, nothing does."""
    pages: list[Page] = []
    held: list[bytes] = []
    place = after  # another process may have written what came: of where it ends, `state` need not know yet
    size_bytes = 0
    is_closed = any(event.type == CLOSE for event in batch)
    head = batch[-1].seq if batch else 0
    for message, behind in messages_of(state, batch):
        if size_bytes >= PAGE_BYTES:
            pages.append(Page(held, place, is_at_end=False, is_closed=False, head=head))
            held, size_bytes = [], 0
        held.append(message)
        place = behind
        size_bytes += len(message)
    if held or is_closed:
        pages.append(Page(held, place, is_at_end=is_last or is_closed, is_closed=is_closed, head=head))
    return pages, is_closed or any(event.type in _ENDS for event in batch)


def _about(page: Page) -> dict[str, str]:
    told = {NEXT_OFFSET: str(page.next)}
    told |= {UP_TO_DATE: "true"} if page.is_at_end else {}
    return told | ({CLOSED: "true"} if page.is_closed else {})


def _answer(stream: Stream, body: bytes, told: dict[str, str]) -> Response:
    # What others wrote is shown by no browser as a page of this origin.
    safe = {"Content-Type": stream.state.config.media, "Content-Security-Policy": "sandbox; default-src 'none'"}
    return Response(body, headers=told | safe)


def _is_known(headers: Headers, etag: str) -> bool:
    given = [each.strip().removeprefix("W/") for value in headers.getlist("If-None-Match") for each in value.split(",")]
    return etag in given or "*" in given


def _frames_of(stream: Stream, batch: Sequence[Event], after: Offset, cursor: str, *, is_last: bool) -> Framed:
    """What has come behind a place as events of the connection."""
    known = stream.framed
    if known is None or known.batch is not batch or known.cursor != cursor:
        pages, is_over = _pages_of(stream.state, batch, after, is_last=is_last)
        frames = [_frame(page, stream.state.config.media, cursor) for page in pages]
        known = Framed(batch, cursor, frames, pages[-1].next if pages else after, is_last, is_over)
        if batch:
            stream.framed = known
    return known


def _frame(page: Page, media: str, cursor: str) -> bytes:
    control: dict[str, Any] = {"streamNextOffset": str(page.next)}
    if page.is_closed:
        control["streamClosed"] = True
    else:
        control["streamCursor"] = cursor
    if page.is_at_end:
        control["upToDate"] = True
    told = b"event: control\ndata:" + msgspec.json.encode(control) + b"\n\n"
    return (_data(page.messages, media) if page.messages else b"") + told


def _data(found: Sequence[bytes], media: str) -> bytes:
    """An event of these messages: a line of data for each of their lines (2.9).

    No blank stands before it unless it begins with one itself: whoever reads it takes one away.
    """
    body = messages.join(found, media)
    if not messages.is_text(media):
        body = base64.b64encode(body)
    return b"event: data" + _BREAKS.sub(rb"\ndata:\1\1", b"\n" + body) + b"\n\n"
