"""Conversations: their events to whoever follows, and what others add to them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from projector.json_text import InvalidJson, decode
from stream import Diverged, NewEvent, SeqConflict, Truncated
from stream.http import EventStream, Once, Problem
from stream.http.bodies import read_body
from stream.http.sse import frame

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from starlette.requests import Request

    from ledger.ledger import Ledger
    from stream import Event
    from stream.http import Service

    Handler = Callable[[Request], Awaitable[Response | EventStream]]

_BLANKS: Final = bytes.maketrans(b"\r\n", b"  ")


class Conversations:
    """The endpoints."""

    def __init__(self, ledger: Ledger, service: Service) -> None:
        self._ledger = ledger
        self._service = service
        self._encode = Once(_encode)

    def routes(self) -> list[tuple[str, Handler, list[str]]]:
        """Path, endpoint, methods."""
        return [
            ("/v1/conversations/{id}/events", self.follow, ["GET"]),
            ("/v1/conversations/{id}/events", self.append, ["POST"]),
        ]

    async def follow(self, request: Request) -> EventStream:
        """The events after a position as they come, each with its seq as id."""
        conversation = request.path_params["id"]
        await self._service.check("read", "conversation", conversation, request)
        return EventStream(self._events(conversation, _cursor(request)), self._service.followers)

    async def append(self, request: Request) -> Response:
        """Takes events in."""
        conversation = request.path_params["id"]
        await self._service.check("append", "conversation", conversation, request)
        body = await read_body(request, self._service.max_body_bytes)
        try:
            given = decode(body, list[dict[str, object]])
        except InvalidJson as error:
            raise Problem(400, "invalid_json", str(error)) from error
        events = [NewEvent(str(each["type"]), msgspec.json.encode(each["data"])) for each in given]
        try:
            result = await self._ledger.record(conversation, events)
        except SeqConflict as error:
            raise Problem(409, "seq_conflict", str(error), head=error.head) from error
        return Response(msgspec.json.encode({"first_seq": result.first_seq, "last_seq": result.last_seq}))

    async def _events(self, conversation: str, after: int) -> AsyncGenerator[bytes, None]:
        while True:
            try:
                with self._service.tails.join(conversation, after=after) as follower:
                    while True:
                        batch = await follower.next()
                        yield self._encode(batch) if batch else b""
            except (Truncated, Diverged):
                raise NotImplementedError from None


def _cursor(request: Request) -> int:
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not given.isascii() or not given.isdecimal():
        raise Problem(400, "invalid_position", f"after must be a whole number, not {given[:40]!r}")
    return int(given)


def _encode(batch: tuple[Event, ...]) -> bytes:
    return b"".join([frame(_line(event.data), event=event.type, id=str(event.seq)) for event in batch])


def _line(data: bytes) -> bytes:
    """A body as one line of JSON: line breaks stand only between tokens."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return msgspec.json.encode({"base64": base64.b64encode(data).decode()})
    return data.translate(_BLANKS)
