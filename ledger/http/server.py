"""Runs the application in this process under uvicorn, until it is told to stop."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Final

from stream.extras import needs
from stream.http import EventStream, Problem, Wrapped
from stream.http.sse import BrokenOff

with needs("server", "ledger.http.server"):
    import uvicorn

    from ledger.http.connections import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

KEEP_ALIVE_S: Final = 75  # longer than the pools of clients keep a connection, so that none is closed under a request
MAX_HEAD_BYTES: Final = 32 * 1024  # of a request's first line and headers
_UNREAD_MS: Final = 60_000
_BACKLOG: Final = 2048
_OPEN_FILES: Final = 65_536
_COME_BACK_S: Final = 5


class Server(uvicorn.Server):
    """Ends those who follow first, so that it need not wait for them."""

    def __init__(self, app: Starlette, *, max_connections: int | None = None) -> None:
        self._app = app
        self._service = app.state.service
        self._max_connections = max_connections
        self._refusal = Wrapped(self._refuse, self._service.cors_origins, self._service.hosts)
        super().__init__(
            uvicorn.Config(
                self._serve_one,
                interface="asgi3",
                log_config=None,
                access_log=False,
                lifespan="on",
                server_header=False,
                http=Connection,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                ws="none",
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=5,
            )
        )
        logging.getLogger("uvicorn.error").addFilter(_is_news)

    async def _serve_one(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_full = self._max_connections is not None and len(self.server_state.connections) > self._max_connections
        await (self._refusal if is_full and scope["type"] == "http" else self._app)(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An EventSource takes any other answer than 200 for the last one: it gets that, and is cut off to come back."""
        if scope["method"] == "GET" and b"text/event-stream" in dict(scope["headers"]).get(b"accept", b""):
            await EventStream(_come_back(), self._service.followers)(scope, receive, send)
            return
        why = f"{self._max_connections} connections are all that this server takes at once"
        headers = {"Retry-After": str(_COME_BACK_S), "Connection": "close"}
        await Problem(503, "too_many_connections", why, headers=headers).answer()(scope, receive, send)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal ends the server and not the process, which has a ledger to close."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends all who follow, then everything else."""
        self._service.followers.close()
        await super().shutdown(sockets)


async def _come_back() -> AsyncGenerator[bytes, None]:
    yield b"retry: %d\n\n" % (_COME_BACK_S * 1000)
    raise BrokenOff


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Whoever does not read for a minute loses his connection. Raises `OSError` with the address.

    From then on this process may have as many open files as the system allows it: each connection is one.
    """
    _allow_open_files()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, so that the loop sees that it is TCP, and sends small answers without waiting for more.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(f"can't listen on {host}:{port}: {error.strerror or error}: name another --port or --host") from error
    return listener


def _allow_open_files() -> None:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ModuleNotFoundError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _is_news(record: logging.LogRecord) -> bool:
    """A response that was broken off is meant to be."""
    return "without completing response" not in record.getMessage()
