"""`python -m benchmarks.echo`: the least that sends events to those who wait: Starlette and uvicorn, nothing kept.

`GET /{name}` is a `StreamingResponse` of what comes, `POST /{name}` hands its body as it is to all who wait there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

_WAITING: dict[str, set[asyncio.Queue[bytes]]] = {}


async def follow(request: Request) -> Response:
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    waiting = _WAITING.setdefault(request.path_params["name"], set())

    async def frames() -> AsyncIterator[bytes]:
        waiting.add(queue)
        try:
            yield b"retry: 1000\n\n"
            while True:
                yield await queue.get()
        finally:
            waiting.discard(queue)

    return StreamingResponse(frames(), media_type="text/event-stream")


async def hand_on(request: Request) -> Response:
    body = await request.body()
    for queue in _WAITING.get(request.path_params["name"], ()):
        queue.put_nowait(body)
    return Response()


def main() -> None:
    app = Starlette(routes=[Route("/{name}", follow), Route("/{name}", hand_on, methods=["POST"])])
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        print(f"serving nothing at http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
