"""Connections to SQLite, each with a thread of its own to which whole functions are handed: each is one trip."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import aiosqlite

from stream.home import Home
from stream.sqlite.handles import Handle, open_handle

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")
_ITER_ROWS: Final = 64
_CACHED_STATEMENTS: Final = 256
_DEAD_THREAD_S: Final = 0.05


class Connection(aiosqlite.Connection):
    """In autocommit. It never waits for a lock: that is done with jitter in the event loop, not asleep in the thread."""

    def __init__(self, path: str) -> None:
        # Only its thread uses the handle, and who closes it when that has died: see `end`.
        connect = partial(open_handle, path, timeout=0, cached_statements=_CACHED_STATEMENTS, check_same_thread=False)
        super().__init__(connect, _ITER_ROWS)
        self._stopping: asyncio.Future[Any] | None = None

    def stop(self) -> asyncio.Future[Any] | None:
        """As aiosqlite calls it, also where it could not connect; see `stopped`."""
        self._stopping = super().stop()
        return self._stopping and asyncio.shield(self._stopping)  # whoever waits for it and is cancelled would cancel it

    async def stopped(self) -> None:
        """Returns when the thread of a connection that was stopped asks nothing of the event loop any more.

        However often it is cancelled meanwhile: the thread would answer an event loop that has ended.
        """
        cancelled = None
        while self._stopping is not None and not self._stopping.done():
            try:
                await asyncio.wait([self._stopping])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def finish(self) -> None:
        """As `close`, and whoever cancels it waits for the thread."""
        try:
            await self.close()
        finally:
            await self.stopped()

    async def end(self) -> None:
        """As `close`, also where the event loop has ended that its thread has an answer for: of that the thread dies."""
        handle = self._connection
        if handle is None:
            return
        closing = asyncio.get_running_loop().create_task(self.close())
        while not closing.done():
            await asyncio.wait([closing], timeout=_DEAD_THREAD_S)
            if closing.done() or self._thread.is_alive():
                continue
            while not closing.done():
                closing.cancel()
                await asyncio.sleep(0)
            handle.close()
            return
        await closing

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a function in SQLite's thread, after what was handed over before; a cancelled caller does not cut it."""
        # In a box: the thread holds on to what it was handed last, and to what that gave, until it is asked again.
        box: list[Any] = [function]
        await self._execute(lambda handle: box.append(_use(handle, box.pop())), self._conn)  # type: ignore[no-untyped-call]
        result: T = box.pop()
        return result

    def post(self, function: Callable[[sqlite3.Connection], object]) -> None:
        """As `run`, and nobody waits for it; where it is closed nothing is done."""
        if self._connection is not None:
            self._tx.put_nowait((None, partial(_use, self._connection, function)))


def _use(handle: sqlite3.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
    assert isinstance(handle, Handle)
    with handle.busy:
        return function(handle)


class Connections:
    """Opens connections and surely closes them: one that is left open would keep the interpreter from exiting."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._home = Home(path)
        self._open: list[Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Readers first, so that the writer may fold the WAL back. In a forked child they are the parent's.

        All of them, also where one can't be closed, and where this is cancelled, as by Ctrl-C that ends the event loop.
        """
        if self._home.is_forked():
            return
        errors: list[BaseException] = []
        for connection in reversed(self._open):
            try:
                await (connection.end() if self._home.has_ended() else connection.finish())
            except BaseException as error:  # noqa: BLE001 - it is raised when all are closed
                errors.append(error)
        if errors:
            raise errors[0]

    async def connect(self) -> Connection:
        """Another connection, with nothing set yet."""
        connection = Connection(self._path)
        self._open.append(connection)
        connecting = asyncio.ensure_future(connection)
        try:
            await asyncio.shield(connecting)
        except BaseException:
            await asyncio.wait([connecting])  # cut off half way, aiosqlite would leave its thread behind
            await connection.stopped()  # and one that could not connect would answer an event loop that may have ended
            raise
        return connection
