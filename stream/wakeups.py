"""Wakes those who wait for a stream to grow; a lost signal costs time, never an event."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator

ANY: Final = ""  # no stream is called so: who waits for any waits for this one
MAX_WAIT_S: Final = 20.0  # a waiter looks again after this, whatever was signalled: a thousand of them cost next to nothing


class Wakeups:
    """One signal a waiter, by stream."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def expect(self, stream_id: str) -> Iterator[asyncio.Event]:
        """Listens from entering on, so what happens between a look and the wait is not missed."""
        signal = asyncio.Event()
        waiting = self._waiting.setdefault(stream_id, set())
        waiting.add(signal)
        try:
            yield signal
        finally:
            waiting.discard(signal)
            if not waiting and self._waiting.get(stream_id) is waiting:
                del self._waiting[stream_id]

    def wake(self, stream_id: str) -> None:
        """Wakes all who wait for this stream, or for any."""
        if not self._waiting:  # as a rule, and it is asked of each append
            return
        for name in (stream_id, ANY):
            for signal in self._waiting.get(name, ()):
                signal.set()

    def wake_all(self) -> None:
        """Wakes everyone: something changed, nobody knows where."""
        for waiting in self._waiting.values():
            for signal in waiting:
                signal.set()


async def await_signal(signal: asyncio.Event) -> None:
    """Waits for the signal, but not for ever."""
    with anyio.move_on_after(MAX_WAIT_S):
        await signal.wait()
