"""Thousands of cheap clients in a process of their own: bare sockets, that look only for the times in what they get.

A sender writes the time into each event (`"t":` and nanoseconds of the clock that all processes of a machine share), and
a client keeps how long ago that was when the event was there.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import re
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import uvloop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

STAMP: Final = '"t":"%019d"'
_STAMP: Final = re.compile(rb'"t":"(\d{19})"')
_STAMP_BYTES: Final = 25
_AT_ONCE: Final = 50
_PATIENCE_S: Final = 120


class Sending(NamedTuple):
    """So many `posts`, `per_s` in a second, to one path after the other; bodies hold `STAMP` where the time belongs."""

    paths: Sequence[str]
    body: str
    posts: int
    per_s: float
    is_json: bool = True


class Told(NamedTuple):
    """Milliseconds from the sending of an event to its arrival, and of each post from request to answer."""

    arrivals_ms: list[float]
    posts_ms: list[float]


class Followers:
    """The process; its clients follow paths of a server on loopback."""

    def __init__(self, port: str) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_run, args=(theirs, int(port)), daemon=True)
        self._process.start()
        theirs.close()

    def follow(self, paths: Sequence[str]) -> None:
        """One client more for each path; returns when all of them are answered."""
        self._ask("follow", paths)

    def send(self, sending: Sending, expected: int) -> Told:
        """Posts, and returns when the clients have got `expected` events."""
        return Told(*self._ask("send", (sending, expected)))

    @contextlib.contextmanager
    def expecting(self, expected: int) -> Iterator[Told]:
        """While the block lasts others send; it is left when the clients have got `expected` events, and filled then."""
        self._pipe.send(("expect", expected))
        told = Told([], [])
        yield told
        arrivals_ms, _ = self._receive("expect")
        told.arrivals_ms.extend(arrivals_ms)

    def _ask(self, what: str, given: Any) -> Any:
        self._pipe.send((what, given))
        return self._receive(what)

    def _receive(self, what: str) -> Any:
        if not self._pipe.poll(_PATIENCE_S):
            raise RuntimeError(f"the clients did not come to the end of {what!r}")
        told = self._pipe.recv()
        if isinstance(told, Exception):
            raise told
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


class _Load:
    def __init__(self, port: int) -> None:
        self.port = port
        self.arrivals: list[int] = []
        self.clients: list[_Client] = []
        self.expected = 0
        self.is_enough = asyncio.Event()

    async def follow(self, paths: Sequence[str]) -> None:
        for at in range(0, len(paths), _AT_ONCE):
            await asyncio.gather(*(self._connect(path) for path in paths[at : at + _AT_ONCE]))

    async def send(self, given: tuple[Sending, int]) -> tuple[list[float], list[float]]:
        sending, expected = given
        self._begin(expected)
        posts_ms = []
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        began = time.perf_counter()
        kind = "application/json" if sending.is_json else "text/plain"
        for number in range(sending.posts):
            await asyncio.sleep(max(0.0, began + number / sending.per_s - time.perf_counter()))
            at = time.monotonic_ns()
            body = (sending.body % at).encode()
            path = sending.paths[number % len(sending.paths)]
            lines = [
                f"POST {path} HTTP/1.1",
                f"Host: 127.0.0.1:{self.port}",
                f"Content-Type: {kind}",
                f"Content-Length: {len(body)}",
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            head_told = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b" 200 " not in head_told[:16]:
                raise RuntimeError(f"the server answered {head_told!r}")
            await reader.readexactly(int(head_told.partition(b"content-length:")[2].split()[0]))
            posts_ms.append((time.monotonic_ns() - at) / 1e6)
        writer.close()
        await self._end()
        return [each / 1e6 for each in self.arrivals], posts_ms

    async def expect(self, expected: int) -> tuple[list[float], list[float]]:
        self._begin(expected)
        await self._end()
        return [each / 1e6 for each in self.arrivals], []

    def _begin(self, expected: int) -> None:
        self.arrivals.clear()
        self.expected = expected
        self.is_enough.clear()

    async def _end(self) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while len(self.arrivals) < self.expected:
                await self.is_enough.wait()
                self.is_enough.clear()

    async def _connect(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: _Client(self, path), "127.0.0.1", self.port)
        await client.answered
        self.clients.append(client)


class _Client(asyncio.Protocol):
    def __init__(self, load: _Load, path: str) -> None:
        self._load = load
        self._path = path
        self._rest = b""
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writing = cast("asyncio.Transport", transport)
        writing.write(f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1:{self._load.port}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self.answered.done():
            if b" 200 " not in data[:16]:
                self.answered.set_exception(RuntimeError(f"the server answered {data[:200]!r}"))
                return
            self.answered.set_result(None)
        data = self._rest + data
        end = 0
        for found in _STAMP.finditer(data):
            end = found.end()
            self._load.arrivals.append(now - int(found[1]))
        self._rest = data[max(end, len(data) - _STAMP_BYTES) :]
        if end and len(self._load.arrivals) >= self._load.expected:
            self._load.is_enough.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self.answered.done():
            self.answered.set_exception(RuntimeError("the server closed the connection"))


def _run(pipe: Connection, port: int) -> None:
    async def main() -> None:
        load = _Load(port)
        while True:
            what, given = await asyncio.to_thread(pipe.recv)
            try:
                told = await getattr(load, what)(given)
            except Exception as error:  # noqa: BLE001 - it is raised there
                told = RuntimeError(f"{type(error).__name__}: {error}")
            pipe.send(told)

    uvloop.run(main())
