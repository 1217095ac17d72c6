"""What all endpoints share while a server runs, and the shell around each of them: errors, CORS, safe headers."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from stream.errors import StreamError
from stream.http.access import Access, Tickets, allow_all, check_access
from stream.http.followers import Followers
from stream.http.hosts import check_host
from stream.http.problems import Problem, answer_error
from stream.logger import Logger
from stream.tail import Tails

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence

    from starlette.requests import HTTPConnection
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from stream.http.access import Action, Authorize
    from stream.store import EventStore

ErrorHandler: TypeAlias = "Callable[[Request, Any], Awaitable[Response]]"
_LOG: Final = Logger("tailfold.http")
_NONE: Final[Mapping[type[Exception], Any]] = {}
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
LONG_POLL_S: Final = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """One server's parts. Times in seconds."""

    store: EventStore
    tails: Tails
    followers: Followers
    authorize: Authorize = allow_all
    tickets: Tickets = dataclasses.field(default_factory=Tickets)
    cors_origins: tuple[str, ...] = ()
    """Whose pages may use it from a browser: origins, or `*`."""
    hosts: tuple[str, ...] = ()
    """The names it is reached by: for a server that asks nobody who he is, so that no page of others gets in. Else all."""
    max_body_bytes: int = MAX_BODY_BYTES
    long_poll_s: float = LONG_POLL_S
    tasks: list[Callable[[], Coroutine[Any, Any, None]]] = dataclasses.field(default_factory=list)
    """What goes on for as long as it runs."""

    async def check(self, action: Action, kind: Any, stream: str | None, connection: HTTPConnection) -> tuple[str, ...] | None:
        """Raises `Problem` unless the request may do this. Of a list, the prefixes of ids that it may show, or None for all."""
        return await check_access(self.authorize, self.tickets, Access(action, kind, stream, connection))


def serve_store(store: EventStore, **options: Any) -> Service:
    """The parts of a server of this store; `options` as the fields of `Service`."""
    return Service(store=store, tails=Tails(store), followers=Followers(), **options)


@contextlib.asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """While the block lasts, those who never read are let go and its tasks run; at its end all who follow are ended.

    A task that fails is logged and ends alone: what it does is missing then, and everything else is served.
    """
    async with anyio.create_task_group() as group:
        group.start_soon(service.followers.watch)
        for task in service.tasks:
            group.start_soon(_run, task)
        try:
            yield
        finally:
            service.followers.close()
            group.cancel_scope.cancel()


async def _run(task: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await task()
    except Exception as error:  # noqa: BLE001 - it is told, and the others go on
        _LOG.exception("http.task_failed", error=type(error).__name__)


def wrap(
    routes: Sequence[BaseRoute], service: Service, *, handlers: Mapping[type[Exception], ErrorHandler] = _NONE, **more: Any
) -> Starlette:
    """An application of these routes, to be run or mounted: problems for errors, headers, CORS; `handlers` of more errors."""
    known: dict[Any, Any] = dict.fromkeys((Problem, HTTPException, StreamError), answer_error) | dict(handlers)
    shell = Middleware(Wrapped, origins=service.cors_origins, hosts=service.hosts)
    return Starlette(routes=list(routes), exception_handlers=known, middleware=[shell], **more)


class Wrapped:
    """Puts on every answer, errors too, what browsers want to see; answers their preflights."""

    METHODS: Final = "GET, HEAD, POST, PUT, DELETE, OPTIONS"
    TAKEN: Final = (
        "authorization, content-type, if-none-match, last-event-id, expected-seq, idempotency-key, producer-id, "
        "producer-epoch, producer-seq, stream-ttl, stream-expires-at, stream-closed, stream-seq, stream-forked-from, "
        "stream-fork-offset, stream-fork-sub-offset"
    )
    SHOWN: Final = (
        "etag, location, stream-next-offset, stream-up-to-date, stream-closed, stream-cursor, stream-ttl, "
        "stream-expires-at, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq, "
        "stream-sse-data-encoding, x-vercel-ai-ui-message-stream, tailfold-incarnation, retry-after"
    )

    def __init__(self, app: ASGIApp, origins: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> None:
        self._app = app
        self._origins = origins
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        added = self._headers(dict(scope["headers"]).get(b"origin"))
        has_begun = False

        async def send_more(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                there = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in there)]
            await send(message)

        try:
            check_host(scope, self._hosts, self._origins)
            if scope["method"] == "OPTIONS":
                await Response(status_code=204)(scope, receive, send_more)
            else:
                await self._app(scope, receive, send_more)
        except Exception as error:
            if has_begun:  # what was sent of it is cut off, and the server logs why
                raise
            await (await answer_error(Request(scope), error))(scope, receive, send_more)

    def _headers(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        # What there is is told to everybody; leave is what --cors gives.
        headers = [
            (b"x-content-type-options", b"nosniff"),
            (b"access-control-allow-methods", self.METHODS.encode()),
            (b"access-control-allow-headers", self.TAKEN.encode()),
        ]
        allowed = b"*" if "*" in self._origins else origin if origin and origin.decode("latin-1") in self._origins else None
        headers.append((b"cross-origin-resource-policy", b"cross-origin" if allowed else b"same-origin"))
        if self._origins and allowed != b"*":
            headers.append((b"vary", b"Origin"))
        if allowed:
            headers += [
                (b"access-control-allow-origin", allowed),
                (b"access-control-expose-headers", self.SHOWN.encode()),
                (b"access-control-max-age", b"600"),
            ]
        return headers
