"""A log on a NATS server for tests that look into it, and answers that are lost on the way."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from stream import Event, NewEvent
from stream.nats import NatsStore, open_nats
from stream.nats.errors import Unclear
from tests.nats_server import SharedNats

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def opened_log() -> AsyncIterator[NatsStore]:
    """One of its own, on the server of this process's tests."""
    opened = await open_nats(SharedNats.url())
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def store(anyio_backend: object) -> AsyncIterator[NatsStore]:
    """The same, for one test."""
    del anyio_backend
    async with opened_log() as opened:
        yield opened


def new(*texts: str) -> list[NewEvent]:
    return [NewEvent("t", text.encode()) for text in texts]


async def texts(store: NatsStore, stream_id: str = "s") -> list[str]:
    after = (await store.bounds(stream_id)).floor
    found: list[Event] = []
    while page := await store.read(stream_id, after=after):
        found += page
        after = page[-1].seq
    return [event.data.decode() for event in found]


class Lossy:
    """Messages whose answers are lost: sent or not, or sent a while later, as by a connection that is given up."""

    def __init__(self, store: NatsStore, chance: random.Random, share: float = 0.4) -> None:
        self._send = store._client.send
        self._chance = chance
        self._share = share
        self.late: list[asyncio.Task[Any]] = []
        store._client.send = self.send  # type: ignore[method-assign]

    async def send(self, *words: Any, **options: Any) -> int:
        if self._chance.random() > self._share:
            return await self._send(*words, **options)
        fate = self._chance.randrange(3)
        if fate == 0:
            await self._send(*words, **options)
        elif fate == 1:
            self.late.append(asyncio.create_task(self._send_late(*words, **options)))
        raise Unclear("lost on purpose")

    async def _send_late(self, *words: Any, **options: Any) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.01))
        await asyncio.gather(self._send(*words, **options), return_exceptions=True)
