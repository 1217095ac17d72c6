"""The endpoint of the protocol: every method of `/v1/stream/{path}`, over whatever store holds the streams."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from stream.errors import CorruptEvent
from stream.http.bodies import read_body
from stream.http.durable import descriptions
from stream.http.durable.appending import Request, append
from stream.http.durable.creating import answer_existing, create, create_fork, read_wanted
from stream.http.durable.dropping import drop
from stream.http.durable.expiring import Expiry
from stream.http.durable.getting import Reader, read_query
from stream.http.durable.headers import about
from stream.http.durable.paths import ROOT, path_of, raw_path, read_id, source_of
from stream.http.durable.streams import Streams
from stream.http.openapi import described_as
from stream.http.problems import Problem
from stream.http.service import running, serve_store, wrap
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

    from stream.http.durable.streams import Stream
    from stream.http.service import Service
    from stream.store import EventStore

_LOG: Final = Logger("tailfold.http")
_DAMAGED: Final = (
    "the stream, or one that it is a fork of, can't be read: `tailfold verify` names what is wrong, a backup may have it whole"
)
_WAY_OUT: Final = "; DELETE drops what is there, and then its path is free"
_METHODS: Final = "GET, HEAD, POST, PUT, DELETE, OPTIONS"


def make_app(store: EventStore, **options: Any) -> Starlette:
    """An ASGI application that serves the protocol's streams of this store, and nothing else.

    `options` are the fields of `stream.http.Service`. Mounted in another application, that one's lifespan has to enter
    `stream.http.running(app.state.service)`.
    """
    service = serve_store(store, **options)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with running(service):
            yield

    app = wrap([make_route(service)], service, lifespan=lifespan)
    app.state.service = service
    return app


class StreamRoute(Route):
    """The route of all streams."""

    def __init__(self, endpoint: DurableStreams) -> None:
        super().__init__(ROOT + "{path:path}", endpoint)
        self.handlers: dict[str, Callable[..., Any]] = dict(endpoint.handlers)


def make_route(service: Service) -> StreamRoute:
    """The route, for an application that serves more than this; expired streams are deleted while the service runs."""
    endpoint = DurableStreams(service)
    service.tasks.append(endpoint.expiry.run)
    return StreamRoute(endpoint)


class DurableStreams:
    """The ASGI application behind the route."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._streams = Streams(service.store)
        self._reader = Reader(service, self._streams)
        self.expiry = Expiry(service.store, self._streams)
        self.handlers = {
            "GET": self._get, "HEAD": self._head, "POST": self._post, "PUT": self._put, "DELETE": self._delete,
        }  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        request = HttpRequest(scope, receive)
        handle = self.handlers.get(request.method)
        if handle is None:
            raise Problem(405, "method_not_allowed", f"a stream takes {_METHODS}", headers={"Allow": _METHODS})
        path = path_of(scope)
        try:
            answer = await handle(request, path)
        except CorruptEvent as error:
            _LOG.error("durable.stream_unreadable", stream_id=error.stream_id, seq=error.seq)
            raise Problem(500, "damaged", _DAMAGED + ("" if request.method == "DELETE" else _WAY_OUT)) from error
        await answer(scope, receive, send)

    @described_as(descriptions.CREATE)
    async def _put(self, request: HttpRequest, path: str) -> Response:
        await self._service.check("create", "stream", path, request)
        named = request.headers.get("Stream-Forked-From")
        source_path = source_of(request.scope, named) if named is not None else None
        if source_path is not None:
            await self._service.check("read", "stream", source_path, request)
        wanted = read_wanted(request.headers, await read_body(request, self._service.max_body_bytes), source_path)
        while True:
            there = await self._streams.find(path)
            if there is not None and not there.state.is_gone:
                return answer_existing(there, wanted)
            number = 1 if there is None else there.number + 1  # of what was seen: a newer one would be another's
            if source_path is None:
                made = await create(self._streams, path, number, wanted)
            else:
                source = await self._streams.find(source_path)
                made = await create_fork(self._service.store, self._streams, source, path, number, wanted)
            if made is not None:
                location = f"{request.url.scheme}://{request.url.netloc}{raw_path(request.scope)}"
                told = about(made.state) | {"Content-Type": made.state.config.media, "Location": location}
                return Response(status_code=201, headers=told)

    @described_as(descriptions.APPEND)
    async def _post(self, request: HttpRequest, path: str) -> Response:
        await self._service.check("append", "stream", path, request)
        asked = Request(request.headers, await read_body(request, self._service.max_body_bytes))
        answer = None
        while answer is None:
            answer = await append(self._streams, await self._find(path), asked)
        return answer

    @described_as(descriptions.READ)
    async def _get(self, request: HttpRequest, path: str) -> ASGIApp:
        await self._service.check("read", "stream", path, request)
        query = read_query(request.query_params)
        stream = await self._find(path)
        await self._streams.renew(stream)
        if query.live == "sse":
            return await self._reader.follow(stream, query)
        if query.live is None:
            return await self._reader.read(stream, query, request.headers)
        answer = await self._reader.poll(stream, query, request.receive)
        if answer is None:
            await self._find(path)
            raise Problem(410, "gone", "the stream was deleted while you waited, and another one is there now")
        await self._streams.renew(stream)
        return answer

    @described_as(descriptions.LOOK)
    async def _head(self, request: HttpRequest, path: str) -> Response:
        await self._service.check("read", "stream", path, request)
        stream = await self._find(path)
        config = stream.state.config
        told = about(stream.state) | {"Content-Type": config.media, "Cache-Control": "no-store"}
        told |= {"Stream-TTL": str(config.ttl_s)} if config.ttl_s is not None else {}
        told |= {"Stream-Expires-At": config.expires_at} if config.expires_at is not None else {}
        answer = Response(status_code=200, headers=told)
        del answer.headers["Content-Length"]  # of what a GET would give nothing is said
        return answer

    @described_as(descriptions.DELETE)
    async def _delete(self, request: HttpRequest, path: str) -> Response:
        await self._service.check("delete", "stream", path, request)
        try:
            await self._streams.end(await self._find(path))
        except CorruptEvent as error:
            if path != (read_id(error.stream_id) or ("", 0))[0]:
                raise
            await drop(self._service.store, self._streams, error.stream_id)
        return Response(status_code=204)

    async def _find(self, path: str) -> Stream:
        stream = await self._streams.find(path)
        if stream is None or stream.state.is_gone:
            raise Problem(404, "unknown_stream", "there is no such stream: PUT creates it")
        if stream.state.is_retired:
            raise Problem(410, "deleted", "the stream was deleted, and is kept for its forks only")
        return stream
