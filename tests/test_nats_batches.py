"""Which messages of a NATS log go together, and which at once: what a server is asked, without a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from stream.nats.batches import Batches
from stream.nats.errors import Moved, Unclear

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from stream.nats.client import Client

pytestmark = pytest.mark.anyio


class Server:
    """Keeps count of what is under way; a subject in `silent` is answered when it `speaks`, one in `moved` is refused."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.under_way = self.most = 0
        self.silent: set[str] = set()
        self.moved: set[str] = set()
        self.speaks = asyncio.Event()

    async def send(self, subject: str, *_: object, expected: int) -> int:
        return await self._take([subject], expected)

    async def send_batch(self, messages: list[tuple[Any, ...]], *, name: str) -> int:
        assert name
        return await self._take([message[0] for message in messages], 0) + len(messages) - 1

    async def _take(self, subjects: list[str], expected: int) -> int:
        self.sent.append(subjects)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await (self.speaks.wait() if self.silent.intersection(subjects) else asyncio.sleep(0.001))
        finally:
            self.under_way -= 1
        if self.moved.intersection(subjects):
            raise Moved
        return expected


def made(server: Server) -> Batches:
    return Batches(cast("Client", server))


def calls(batches: Batches, count: int) -> list[Coroutine[Any, Any, int]]:
    return [batches.send(f"s{n}", b"", {}, expected=n) for n in range(count)]


async def send(batches: Batches, count: int) -> list[int | BaseException]:
    return await asyncio.gather(*calls(batches, count), return_exceptions=True)


async def test_few_go_at_once_and_many_as_one_batch() -> None:
    server = Server()
    assert await send(made(server), 7) == list(range(7))
    assert server.sent == [[f"s{n}"] for n in range(7)]
    assert server.most == 7
    server.sent.clear()
    await send(made(server), 8)
    assert [len(subjects) for subjects in server.sent] == [8]


async def test_who_is_alone_is_sent_at_once_unless_others_are_under_way() -> None:
    server = Server()
    batches = made(server)
    assert await batches.send("alone", b"", {}, expected=1, is_alone=True) == 1
    assert batches._task is None
    first = asyncio.ensure_future(batches.send("first", b"", {}, expected=2))
    await asyncio.sleep(0)
    assert await batches.send("second", b"", {}, expected=3, is_alone=True) == 3
    assert await first == 2
    server.moved = {"alone"}
    with pytest.raises(Moved):
        await batches.send("alone", b"", {}, expected=1, is_alone=True)


async def test_a_batch_that_is_refused_tells_only_the_sender_whose_message_can_t_go_in() -> None:
    server = Server()
    server.moved = {"s3"}
    results = await send(made(server), 20)
    assert [n for n, result in enumerate(results) if isinstance(result, Moved)] == [3]
    assert [result for n, result in enumerate(results) if n != 3] == [n for n in range(20) if n != 3]
    assert not any(isinstance(result, Unclear) for result in results)
