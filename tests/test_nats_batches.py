"""Which messages of a NATS log go together, one behind the other, or at once: what a server is asked, without a server."""

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


def made(server: Server, *, is_replicated: bool) -> Batches:
    return Batches(cast("Client", server), is_replicated=is_replicated)


def calls(batches: Batches, count: int) -> list[Coroutine[Any, Any, int]]:
    return [batches.send(f"s{n}", b"", {}, expected=n) for n in range(count)]


async def send(batches: Batches, count: int) -> list[int | BaseException]:
    return await asyncio.gather(*calls(batches, count), return_exceptions=True)


@pytest.mark.parametrize(("is_replicated", "most"), [(False, 1), (True, 7)])
async def test_few_go_one_behind_the_other_to_one_server_and_at_once_to_several(*, is_replicated: bool, most: int) -> None:
    server = Server()
    assert await send(made(server, is_replicated=is_replicated), 7) == list(range(7))
    assert server.sent == [[f"s{n}"] for n in range(7)]
    assert server.most == most


@pytest.mark.parametrize(("is_replicated", "fewest"), [(False, 16), (True, 8)])
async def test_many_go_as_one_batch(*, is_replicated: bool, fewest: int) -> None:
    server = Server()
    await send(made(server, is_replicated=is_replicated), fewest - 1)
    assert {len(subjects) for subjects in server.sent} == {1}
    server.sent.clear()
    await send(made(server, is_replicated=is_replicated), fewest)
    assert [len(subjects) for subjects in server.sent] == [fewest]


async def test_one_that_nobody_answers_holds_the_others_up_for_a_moment_only() -> None:
    server = Server()
    server.silent = {"s0", "s2"}
    sent = [asyncio.ensure_future(each) for each in calls(made(server, is_replicated=False), 6)]
    done, waiting = await asyncio.wait(sent, timeout=1)
    assert len(done) == 4
    assert server.under_way == 2
    server.speaks.set()
    assert sorted(await asyncio.gather(*waiting)) == [0, 2]


async def test_who_is_alone_is_sent_at_once_unless_others_are_under_way() -> None:
    server = Server()
    batches = made(server, is_replicated=False)
    assert await batches.send("alone", b"", {}, expected=1, is_alone=True) == 1
    assert batches._task is None
    first = asyncio.ensure_future(batches.send("first", b"", {}, expected=2))
    await asyncio.sleep(0)
    assert await batches.send("second", b"", {}, expected=3, is_alone=True) == 3
    assert await first == 2
    assert server.most == 1
    server.moved = {"alone"}
    with pytest.raises(Moved):
        await batches.send("alone", b"", {}, expected=1, is_alone=True)


async def test_a_batch_that_is_refused_tells_only_the_sender_whose_message_can_t_go_in() -> None:
    server = Server()
    server.moved = {"s3"}
    results = await send(made(server, is_replicated=False), 20)
    assert [n for n, result in enumerate(results) if isinstance(result, Moved)] == [3]
    assert [result for n, result in enumerate(results) if n != 3] == [n for n in range(20) if n != 3]
    assert not any(isinstance(result, Unclear) for result in results)
