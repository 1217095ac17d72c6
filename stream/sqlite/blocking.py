"""Long work on a file of its own accord: in a thread, on connections of its own, beside the writer and the readers."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from stream.sqlite.handles import open_handle
from stream.sqlite.untouched import untouched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_BUSY_LIMIT_S: Final = 30.0
_INTERRUPT_INTERVAL_S: Final = 0.02


class Connect:
    """Opens connections for work in a thread: `with connect(path) as connection`."""

    def __init__(self) -> None:
        self._open: list[sqlite3.Connection] = []

    def __call__(self, path: str) -> AbstractContextManager[sqlite3.Connection]:
        """A connection in autocommit, closed at the end of the block."""
        return self._connect(path)

    @contextmanager
    def untouched(self, path: str) -> Iterator[sqlite3.Connection]:
        """The same to a file that is only read, without a trace; see `stream.sqlite.untouched`."""
        with untouched(path) as address, self._connect(path, address=address, uri=True) as connection:
            yield connection

    @contextmanager
    def _connect(self, path: str, **options: Any) -> Iterator[sqlite3.Connection]:
        handle = open_handle(path, timeout=_BUSY_LIMIT_S, check_same_thread=False, **options)
        self._open.append(handle)
        try:
            with handle.busy:
                yield handle
        finally:
            self._open.remove(handle)
            handle.close()

    def interrupt(self) -> None:
        """Ends the statements that run; called from another thread."""
        for connection in list(self._open):
            with suppress(sqlite3.ProgrammingError):  # closed meanwhile
                connection.interrupt()


async def run_blocking(work: Callable[[Connect], T]) -> T:
    """Runs `work(connect)` in a thread. A cancelled caller interrupts its statement and waits until it has cleaned up."""
    connect = Connect()
    task = asyncio.ensure_future(asyncio.to_thread(work, connect))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            while not task.done():  # again and again: an interrupt between two statements hits none
                connect.interrupt()
                await asyncio.wait([task], timeout=_INTERRUPT_INTERVAL_S)
        if not task.cancelled():
            task.exception()  # nobody is left to be told
        raise
