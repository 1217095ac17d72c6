"""Wakes those who wait: the server tells of each message that comes to a log. A hint, and data comes from reading."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from stream.nats.errors import FAILURES
from stream.wakeups import ANY, Wakeups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from stream.nats.client import Client
    from stream.nats.layout import Layout

_SPREAD_S: Final = 0.5
"""Behind this the other servers of a cluster know who listens."""


class Signals:
    """Listens to the server for whom somebody here listens to."""

    def __init__(self, client: Client, layout: Layout) -> None:
        self.wakeups = Wakeups()
        self._client = client
        self._layout = layout
        self._ears: dict[str, _Ear] = {}
        client.connected_again = self.wakeups.wake_all

    def tell(self, stream_id: str, js: int) -> None:
        """A message of this process has come to a log: who listens is woken now, and not again when the server tells."""
        ear = self._ears.get(stream_id)
        if ear is None:
            self.wakeups.wake(stream_id)
        else:
            ear.tell(js)

    @contextlib.contextmanager
    def expect(self, stream_id: str) -> Iterator[asyncio.Event]:
        """As `Wakeups.expect`, told of other processes too."""
        with self.wakeups.expect(stream_id) as signal:
            ear = self._ears.get(stream_id)
            if ear is None:
                subject = self._layout.signal(None if stream_id == ANY else stream_id)
                ear = self._ears[stream_id] = _Ear(self._client, self.wakeups, stream_id, subject)
            ear.listeners += 1
            try:
                yield signal
            finally:
                ear.listeners -= 1
                if not ear.listeners and self._ears.pop(stream_id, None) is not None:
                    ear.close()

    async def close(self) -> None:
        """Wakes all, and hears nothing any more."""
        self.wakeups.wake_all()
        tasks = [ear.task for ear in self._ears.values()]
        for ear in list(self._ears.values()):
            ear.close()
        if tasks:
            await asyncio.wait(tasks)


class _Ear:
    def __init__(self, client: Client, wakeups: Wakeups, stream_id: str, subject: str) -> None:
        self.listeners = 0
        self._client = client
        self._wakeups = wakeups
        self._stream_id = stream_id
        self._subject = subject
        self._over = asyncio.Event()
        self._told = 0
        self.task = asyncio.create_task(self._listen())

    def tell(self, js: int) -> None:
        """The message of this number is there; of any, those of several JetStream streams are."""
        if js > self._told or self._stream_id == ANY:
            self._told = js
            self._wakeups.wake(self._stream_id)

    def close(self) -> None:
        """Nobody listens."""
        self._over.set()

    async def _listen(self) -> None:
        """What is said first is heard first: whoever looks from now on looks when this server knows who listens."""
        subscription: Subscription | None = None
        with contextlib.suppress(*FAILURES):
            subscription = await self._client.driver.subscribe(self._subject, cb=self._hear)
        if self._client.is_clustered:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _SPREAD_S)
            self._wakeups.wake(self._stream_id)
        await self._over.wait()
        if subscription is not None:
            with contextlib.suppress(*FAILURES):
                await subscription.unsubscribe()

    async def _hear(self, message: Msg) -> None:
        self.tell(int((message.headers or {}).get("Nats-Sequence", 0)) or self._told + 1)
