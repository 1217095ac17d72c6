"""Which endpoint a request is for: its path is read as it was sent, so that an id may hold a slash, and nothing hides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from starlette.routing import Match, Route

from stream.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    Handler = Callable[[Request], Awaitable[ASGIApp]]

_BROKEN: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class Endpoint(Route):
    """One path and what each method of it does. `{name}` stands for one segment, which may hold `%2F`.

    Raises `Problem` (400) for a segment that is no UTF-8 once it is decoded.
    """

    def __init__(self, path: str, handlers: Mapping[str, Handler]) -> None:
        """Where there is a GET there is a HEAD, too."""
        self.handlers = dict(handlers)
        super().__init__(path, self._dispatch, methods=list(handlers))
        self._segments = path.encode().split(b"/")[1:]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the request is for this path, and the segments by name."""
        if scope["type"] != "http":
            return Match.NONE, {}
        sent = _sent_path(scope)
        if len(sent) != len(self._segments):
            return Match.NONE, {}
        found = {}
        for wanted, segment in zip(self._segments, sent, strict=True):
            if wanted[:1] == b"{" and segment:
                found[wanted[1:-1].decode()] = segment
            elif wanted != unquote_to_bytes(segment):
                return Match.NONE, {}
        params = {name: _read(segment) for name, segment in found.items()}
        match = Match.FULL if not self.methods or scope["method"] in self.methods else Match.PARTIAL
        return match, {"endpoint": self.endpoint, "path_params": {**scope.get("path_params", {}), **params}}

    async def _dispatch(self, request: Request) -> ASGIApp:
        return await self.handlers["GET" if request.method == "HEAD" else request.method](request)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application. Raises `Problem` (405)."""
        if self.methods and scope["method"] not in self.methods:
            allowed = ", ".join(sorted(self.methods))
            raise Problem(405, "method_not_allowed", f"this path takes {allowed}", headers={"Allow": allowed})
        await super().handle(scope, receive, send)


def make_routes(listed: Iterable[tuple[str, Handler, list[str]]]) -> list[Endpoint]:
    """One route a path of (path, endpoint, methods)."""
    by_path: dict[str, dict[str, Handler]] = {}
    for path, handler, methods in listed:
        by_path.setdefault(path, {}).update(dict.fromkeys(methods, handler))
    return [Endpoint(path, handlers) for path, handlers in by_path.items()]


def _sent_path(scope: Scope) -> list[bytes]:
    """The segments behind the place where the application is mounted, as they came over the wire."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.partition(b"?")[0].split(b"/")[1 + scope.get("root_path", "").rstrip("/").count("/") :]


def _read(segment: bytes) -> str:
    try:
        if not _BROKEN.search(segment):
            return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        pass
    raise Problem(400, "invalid_path", f"{segment[:80].decode('latin-1')!r} is no percent-encoded UTF-8")
