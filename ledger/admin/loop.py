"""The event loop of a command, which Ctrl-C ends without a word of its own."""

from __future__ import annotations

import asyncio
import signal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from ledger.early_interrupt import end_on_interrupt, raise_on_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def run_in_loop(main: Callable[..., Coroutine[Any, Any, T]], *args: object, fast: bool = False) -> T:
    """What `main(*args)` returns. With `fast` in an event loop of uvloop, where that is installed.

    Raises `KeyboardInterrupt` where `main` was cancelled by Ctrl-C. While the loop is made and taken apart, Ctrl-C ends the
    process: as an exception it would come out of whatever is done just then, which may print it and go on.
    """
    is_heard = end_on_interrupt()
    interrupts = _Interrupts()

    async def job() -> T:
        if not is_heard:
            return await main(*args)
        with interrupts:
            return await main(*args)

    try:
        with asyncio.Runner(loop_factory=_fast_loop if fast and find_spec("uvloop") is not None else None) as runner:
            return runner.run(job())
    except asyncio.CancelledError:
        if interrupts.count:
            raise KeyboardInterrupt from None
        raise
    finally:
        raise_on_interrupt()


class _Interrupts:
    """The first one cancels the task, as asyncio would, which hears them from before the task is there until it has gone."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        """To be entered in the task."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._before = signal.signal(signal.SIGINT, self._hear)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _hear(self, *_: object) -> None:
        self.count += 1
        if self.count > 1 or self._task is None:
            raise KeyboardInterrupt
        self._task.cancel()
        self._loop.call_soon_threadsafe(lambda: None)  # wakes it


def _fast_loop() -> asyncio.AbstractEventLoop:
    from uvloop import new_event_loop  # noqa: PLC0415 - an extra that may be missing

    return new_event_loop()
