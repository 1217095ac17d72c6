"""A server of raw bytes, and a proxy that breaks what goes through it: for clients that are to bear that."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
GARBAGE: Final = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nno\n",
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    b"\x16\x03\x01\x02 what is this?\r\n\r\n",
    b"",
)


def frame(seq: int, data: bytes | None = None, *, event: str = "n.n") -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, event.encode(), b'{"n":%d}' % seq if data is None else data)


def frames(first: int, last: int) -> bytes:
    return b"".join(frame(seq) for seq in range(first, last + 1))


def refusal(status: int, *lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} No", *lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def asked_after(request: bytes) -> int:
    """The position in a request."""
    return int(request.lower().partition(b"last-event-id: ")[2].split(b"\r\n")[0] or 0)


@contextlib.asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[str]:
    """The address of a server whose connections are handled so, and then closed."""
    tasks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        with contextlib.suppress(OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            await handle(reader, writer)
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def answering(answer: Callable[[int, bytes], bytes | float]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives `answer(number of the connection, request)`, or waits so many seconds; and the requests."""
    requests: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        told = answer(len(requests), requests[-1])
        if isinstance(told, bytes):
            writer.write(told)
            await writer.drain()
        else:
            await asyncio.sleep(told)

    async with serving(handle) as url:
        yield url, requests


@contextlib.asynccontextmanager
async def breaking(port: int, chance: random.Random, *, most_bytes: int) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy before a server on loopback, and what it did to each connection."""
    done: list[str] = []
    each = ["cut", "reset", "stall", "garbage"]
    chance.shuffle(each)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        kind = each[len(done)] if len(done) < len(each) else chance.choice(("cut", "cut", "cut", "reset", "stall", "garbage"))
        done.append(kind)
        if kind == "garbage":
            writer.write(chance.choice(GARBAGE))
            await writer.drain()
            return
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
        try:
            ours.write(request)
            left = chance.randrange(most_bytes)
            while left and (chunk := await theirs.read(min(left, 1024))):
                writer.write(chunk)
                await writer.drain()
                left -= len(chunk)
        finally:
            ours.close()
        if kind == "stall":
            await asyncio.sleep(30)
        if kind == "reset":
            line: socket.socket = writer.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with serving(handle) as url:
        yield url, done
