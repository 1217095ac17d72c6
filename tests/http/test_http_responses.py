"""A response that goes on: slices for slow readers, a connection that says nothing, one that says it is only a HEAD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger.http import connections
from ledger.http.connections import Connection
from ledger.http.server import Server, listen
from stream import open_store
from stream.http import EventStream, Followers
from stream.http.service import running, serve_store, wrap

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.anyio


async def never() -> dict[str, Any]:
    await anyio.sleep_forever()
    raise AssertionError


async def source(*chunks: bytes) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk


async def respond(method: str, *chunks: bytes) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await EventStream(source(*chunks), Followers())({"type": "http", "method": method}, never, send)
    return sent


async def test_what_is_large_goes_out_in_slices_for_a_connection_copies_what_it_is_given() -> None:
    large = bytes(range(256)) * 4096
    sent = await respond("GET", b"small", large, b"")
    bodies = [message["body"] for message in sent[1:]]
    assert b"".join(bodies) == b"small" + large + b":\n\n"
    assert max(map(len, bodies)) <= 64 * 1024


async def test_a_head_is_answered_and_ends() -> None:
    sent = await respond("HEAD", b"never sent")
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert (sent[0]["status"], sent[1]["body"]) == (200, b"")


async def test_a_task_that_fails_ends_nobody_who_follows() -> None:
    async def fail() -> None:
        raise RuntimeError("it fails")

    async with open_store("memory:") as store:
        service = serve_store(store)
        service.tasks.append(fail)
        async with running(service):
            with service.followers.enter() as follower:
                await anyio.sleep(0.05)
            assert not service.followers.is_closed
            assert not follower.scope.cancel_called
        assert service.followers.is_closed


@pytest.mark.heavy
async def test_a_connection_on_which_no_request_becomes_whole_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with listen("127.0.0.1", 0) as listener:
        async with open_store("memory:") as store, anyio.create_task_group() as group:
            app = wrap([], service := serve_store(store))
            app.state.service = service
            server = Server(app)
            assert server.config.http is Connection
            group.start_soon(server.serve, [listener])
            host, port = listener.getsockname()
            whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for begun in ([], [whole[:20]], [whole[:5], whole[5:20]], [whole, whole[:20]]):
                async with await anyio.connect_tcp(host, port) as client:
                    seen = b""
                    for piece in begun:
                        await client.send(piece)
                        seen += await client.receive() if piece == whole else b""
                    with anyio.fail_after(5):
                        seen += b"".join([chunk async for chunk in client])
                    assert seen.count(b"HTTP/1.1 404") == begun.count(whole)
            async with await anyio.connect_tcp(host, port) as client:
                for _ in range(3):  # one that is asked again now and then stays
                    await client.send(whole)
                    assert (await client.receive()).startswith(b"HTTP/1.1 404")
                    await anyio.sleep(0.4)
            server.should_exit = True
