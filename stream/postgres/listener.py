"""Notices that others have committed: the server tells, or is asked now and then. A hint, and data comes from reading."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from stream.errors import StreamError
from stream.postgres.errors import FAILURES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from stream.database import Row
    from stream.postgres.address import Address
    from stream.postgres.own_changes import OwnChanges

POLL_INTERVAL_S: Final = 0.025
_LOOK_INTERVAL_S: Final = 1.0  # where the server tells: what it did not tell is seen then
_AGAIN_S: Final = 0.2
_NUMBER: Final = "SELECT number FROM feed"


class Listened(Protocol):
    """The database that is listened to."""

    path: str
    address: Address
    own_changes: OwnChanges

    @property
    def polls(self) -> bool:
        """Whether there is nothing to listen to."""
        ...

    @property
    def processes(self) -> Collection[int]:
        """Those of the server that work for this one."""
        ...

    async def connect(self) -> Any:
        """A connection of its own."""
        ...

    async def read(self, text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        """One statement."""
        ...


class Listener:
    """Runs while there are watchers."""

    def __init__(self, database: Listened) -> None:
        self._database = database
        self._watchers: list[Callable[[], Awaitable[None]]] = []
        self._told = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, watcher: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Returns what ends it."""
        self._watchers.append(watcher)
        self._told.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"tailfold listener of {self._database.path}")
        return lambda: self._watchers.remove(watcher)

    async def close(self) -> None:
        """Ends it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        """Listens before it looks, so nothing is missed in between; a connection that breaks is made anew."""
        while True:
            try:
                if self._database.polls:
                    await self._look_again_and_again(POLL_INTERVAL_S)
                connection = await self._database.connect()
                try:
                    await connection.add_listener(f"tailfold_{self._database.address.schema}", self._hear_of)
                    connection.add_termination_listener(self._hear)
                    await self._look_again_and_again(_LOOK_INTERVAL_S, connection)
                finally:
                    connection.terminate()
            except (*FAILURES, StreamError):
                with contextlib.suppress(StreamError):  # whoever waits is told by his own look
                    await self._wake()
                await asyncio.sleep(_AGAIN_S)

    async def _look_again_and_again(self, interval_s: float, connection: Any = None) -> None:
        seen: int | None = None
        is_told = False
        while connection is None or not connection.is_closed():
            if self._watchers:
                [(number,)] = await self._database.read(_NUMBER)
                if number != seen and (is_told or seen is None or not await self._database.own_changes.are_all(seen, number)):
                    await self._wake()
                seen = number
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):  # `wait_for` may lose a cancellation that comes with the news
                    await self._told.wait()
            is_told = self._told.is_set()
            self._told.clear()

    async def _wake(self) -> None:
        for watcher in list(self._watchers):
            await watcher()

    def _hear(self, *_: object) -> None:
        self._told.set()

    def _hear_of(self, _connection: object, process: int, *_: object) -> None:
        """Who waits here was told of what was done here, and need not look again."""
        if process not in self._database.processes:
            self._told.set()
