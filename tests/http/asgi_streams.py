"""A request to an ASGI application whose answer is read while it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import ASGIApp, Message

LONGEST_S: Final = 20.0
INPUT: Final = {
    "threadId": "c", "runId": "mine", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {},
}  # fmt: skip


class Answer:
    """Status, headers, and what of the body has come. `is_whole`: it has ended well."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.pieces = 0
        """How many pieces of the body have come, heartbeats too."""
        self.is_whole = False
        self.failure: Exception | None = None
        """What the application raised, which a server would log."""
        self.is_over = asyncio.Event()
        self.reads = asyncio.Event()
        """Cleared, the client does not read."""
        self.reads.set()
        self._moved = asyncio.Event()

    async def send(self, message: Message) -> None:
        """The application's side."""
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self.pieces += 1
            self.is_whole = not message.get("more_body", False)
        self._moved.set()

    async def until(self, said: bytes) -> None:
        """Returns when that has come."""
        async with asyncio.timeout(LONGEST_S):
            while said not in self.body:
                assert not self.is_over.is_set(), self.body
                self._moved.clear()
                await self._moved.wait()

    async def more_than(self, pieces: int) -> None:
        """Returns when more pieces of the body have come than that, or nothing comes any more."""
        async with asyncio.timeout(LONGEST_S):
            while self.pieces <= pieces and not self.is_over.is_set():
                self._moved.clear()
                await self._moved.wait()

    async def settle(self, quiet_s: float = 0.01) -> None:
        """Returns when nothing has come for a moment."""
        with contextlib.suppress(TimeoutError):
            while not self.is_over.is_set():
                self._moved.clear()
                await asyncio.wait_for(self._moved.wait(), quiet_s)

    async def end(self) -> None:
        """Returns when nothing comes any more."""
        async with asyncio.timeout(LONGEST_S):
            await self.is_over.wait()

    def finish(self) -> None:
        """The application has returned, or failed."""
        self.is_over.set()
        self._moved.set()

    def data(self) -> list[Any]:
        """What the frames hold, without what is no JSON."""
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@contextlib.asynccontextmanager
async def ask(
    app: ASGIApp, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Answer]:
    """The answer to a request, from its first byte on; who leaves the block goes away."""
    answer = Answer()
    given = [
        {
            "type": "http.request",
            "body": b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode(),
        }
    ]
    gone = asyncio.Event()

    async def receive() -> Any:
        if given:
            return given.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    path, _, query = path.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "scheme": "http", "server": ("test", 80), "client": ("test", 1),
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
    }  # fmt: skip

    async def run() -> None:
        try:
            await app(scope, receive, answer.send)
        except Exception as error:  # noqa: BLE001 - told in the answer
            answer.failure = error
        finally:
            answer.finish()

    task = asyncio.create_task(run())
    try:
        async with asyncio.timeout(LONGEST_S):
            while not answer.status and not answer.is_over.is_set():
                await asyncio.sleep(0.001)
        yield answer
    finally:
        gone.set()
        await asyncio.wait_for(task, LONGEST_S)


def connect(app: ASGIApp, thread: str = "c") -> contextlib.AbstractAsyncContextManager[Answer]:
    return ask(app, "POST", "/v1/agui/connect", INPUT | {"threadId": thread})


def resume(app: ASGIApp, chat: str = "c") -> contextlib.AbstractAsyncContextManager[Answer]:
    return ask(app, "GET", f"/v1/chat/{chat}/stream")
