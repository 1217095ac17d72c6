"""Work that goes on where its caller is cancelled: whoever asks afterwards asks behind it, and sees what became of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class OngoingWork:
    """All work of a store on a server; `check` raises where no more is to be begun."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits `work` in a task of its own, behind what cancelled callers have left: cancelling this one does not cut it."""
        try:
            await self.pass_left()
        except BaseException:
            work.close()
            raise
        task = self.begin(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.leave(task)
            raise

    async def pass_left(self) -> None:
        """Returns when what cancelled callers have left is over. Raises what `check` raises."""
        self._check()
        if self._left:
            await asyncio.wait(set(self._left))
            self._check()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that is waited for before the store is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._retire)
        return task

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Nobody waits for it any more."""
        if not task.done():
            self._left.add(task)

    async def settled(self) -> None:
        """Waits until all is over that was begun."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def cancel(self) -> None:
        """Cuts all of it: it has an unknown outcome."""
        for task in self._tasks:
            task.cancel()

    def _retire(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # told to the caller, or to nobody if it is gone
