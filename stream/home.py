"""Where something was opened, and the only place where it works: one event loop of one process."""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import _get_running_loop as _running_loop  # None where there is none: to catch an error costs more
from typing import Final

from stream.errors import StoreElsewhere

_FORKED: Final = "was opened before this process was forked, and stays its parent's: {way_out}"
_OTHER_LOOP: Final = (
    "works only in the event loop in which it was opened ({where}): open another one in this loop, "
    "or hand the work over with asyncio.run_coroutine_threadsafe"
)
FORK_WAY_OUT: Final = (
    "start the process with another method than 'fork' (multiprocessing's 'spawn' or 'forkserver'), "
    "or open the file only behind the fork"
)


class Home:
    """The event loop and the process of whoever makes one; made outside of a loop, those of the first who asks.

    Asking costs a comparison, so every public call may do it first of all.
    """

    __slots__ = ("_forks", "_loop", "_thread", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._forks = _Process.forks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settle(_running_loop())

    def check(self) -> None:
        """Raises `StoreElsewhere` in another event loop, and in a process that was forked from the one of this."""
        if self._forks != _Process.forks:
            raise StoreElsewhere(self._what, _FORKED.format(way_out=FORK_WAY_OUT))
        loop = _running_loop()
        if loop is not self._loop and loop is not None:  # without a loop nobody can wait for anything either
            if self._loop is None:
                self._settle(loop)
                return
            where = "which has ended" if self._loop.is_closed() else f"in thread {self._thread!r}"
            raise StoreElsewhere(self._what, _OTHER_LOOP.format(where=where))

    def check_closer(self) -> None:
        """As `check`; but when its event loop has ended, anybody may clear up."""
        if not self.has_ended():
            self.check()

    def is_forked(self) -> bool:
        """Whether this process is a child of the one that this is of."""
        return self._forks != _Process.forks

    def has_ended(self) -> bool:
        """Whether its event loop was closed: nothing of it runs any more, so that anybody may clear up."""
        return not self.is_forked() and self._loop is not None and self._loop.is_closed()

    def _settle(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._thread = threading.current_thread().name


class _Process:
    forks = 0
    """How often the process was forked on the way from the first to this one; cheaper to ask than its number."""


def _count_fork() -> None:
    _Process.forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_count_fork)
