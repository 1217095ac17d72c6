"""One SQLite file: one writer, who works alone in a task of its own, and readers who can't write.

Callers hand over jobs and await a future; cancelling them can't leave a statement half done or a transaction open,
and a crash of theirs does not cut the writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

import anyio

from stream.errors import StoreClosed, StreamError
from stream.sqlite.connection import Connection
from stream.sqlite.errors import FAILURES, is_busy, translate
from stream.sqlite.files import check_place
from stream.sqlite.migrations import check_owner, migrate

if TYPE_CHECKING:
    import sqlite3
    from types import TracebackType

T = TypeVar("T")
Row = tuple[Any, ...]
Sql = Callable[..., Awaitable[list[Row]]]
"""Runs one statement: `await sql(text, parameters)`."""
Durability = Literal["full", "normal"]

MEMORY: Final = ":memory:"
BUSY_LIMIT_S: Final = 30.0
POLL_INTERVAL_S: Final = 0.025
_READERS: Final = 2


class Database:
    """A file that is open. Made by `open_database`; public to `ledger`, which keeps its own tables in it."""

    def __init__(self, path: str, durability: Durability) -> None:
        self.path = path
        self._durability = durability
        self._jobs: deque[tuple[Callable[[Sql], Awaitable[Any]], asyncio.Future[Any]]] = deque()
        self._work = asyncio.Event()
        self._closing = False
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers: list[Connection] = []
        self._next_reader = 0
        self._busy_since: float | None = None  # all that waits for one lock shares one limit
        self._seen_version: list[Row] = []
        self._watchers: list[Callable[[], None]] = []
        self._task = asyncio.create_task(self._live(), name=f"tailfold writer of {path}")

    async def write(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """Runs `job(sql)` inside the writer, after what was handed over before; each statement commits by itself.

        Raises what the job raises, and `StoreFull`, `StoreBusy`, `StoreUnusable`, `StoreClosed`.
        """
        return await self.submit(job)

    async def transact(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """As `write`, in one transaction that is whole or absent."""
        return await self.submit(self.whole(job))

    def whole(self, job: Callable[[Sql], Awaitable[T]]) -> Callable[[Sql], Awaitable[T]]:
        """The same job as one transaction, to be handed to `submit`."""

        async def transaction(sql: Sql) -> T:
            await sql("BEGIN IMMEDIATE")
            try:
                result = await job(sql)
                await sql("COMMIT")
            except BaseException:
                await self._roll_back()
                raise
            return result

        return transaction

    def submit(self, job: Callable[[Sql], Awaitable[T]]) -> asyncio.Future[T]:
        """Hands a job over without waiting for it."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing or self._task.done():
            future.set_exception(StoreClosed(f"{self.path} is closed"))
            return future
        self._jobs.append((job, future))
        self._work.set()
        return future

    async def read(self, text: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """One statement on a connection that can't write; it sees every commit that was acknowledged."""
        if self._closing or self._task.done():
            raise StoreClosed(f"{self.path} is closed")
        if not self._readers:  # a database in memory has one connection only

            async def job(sql: Sql) -> list[Row]:
                return await sql(text, parameters)

            return await self.submit(job)
        self._next_reader = (self._next_reader + 1) % len(self._readers)
        try:
            reader = self._readers[self._next_reader]
            return await reader.run(lambda connection: self._execute(connection, text, parameters))
        except FAILURES as error:
            raise translate(error, self.path) from error
        except ValueError as error:  # aiosqlite: closed while this call was on its way
            raise StoreClosed(f"{self.path} is closed") from error

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Calls `watcher` when another process has committed; returns what ends that."""
        self._watchers.append(watcher)
        self._work.set()
        return lambda: self._watchers.remove(watcher)

    async def close(self) -> None:
        """Finishes the jobs that were handed over, then closes; a cancelled caller does not stop it."""
        self._closing = True
        self._work.set()
        with anyio.CancelScope(shield=True):
            await asyncio.shield(asyncio.wait([self._task]))

    async def abandon(self) -> None:
        """Closes at once: what waits is refused, also what waits for a lock that another process holds."""
        self._task.cancel()
        await self.close()

    async def install(self, component: str, scripts: Sequence[str]) -> None:
        """Brings the tables of `component` to their newest form; see `migrate`."""
        await self.transact(lambda sql: migrate(sql, self.path, component, scripts))

    async def _live(self) -> None:
        async with _Connections(self.path, self._durability) as connections:
            try:
                self._writer = await connections.open_writer()
                self._readers = await connections.open_readers()
            except BaseException as error:  # noqa: BLE001 - it is the opener's
                self._closing = True
                _settle(self._opened, error=translate(error, self.path) if isinstance(error, FAILURES) else error)
                return
            _settle(self._opened, None)
            try:
                await self._serve()
            finally:
                self._closing = True
                while self._jobs:
                    _settle(self._jobs.popleft()[1], error=StoreClosed(f"{self.path} was closed before this was done"))

    async def _serve(self) -> None:
        while True:
            while self._jobs:
                await self._do(*self._jobs.popleft())
            if self._closing:
                return
            self._work.clear()
            self._busy_since = None
            if not self._watchers:
                await self._work.wait()
                continue
            with anyio.move_on_after(POLL_INTERVAL_S):
                await self._work.wait()
            if not self._jobs:
                with contextlib.suppress(StreamError):  # whoever waits looks by itself before long
                    await self._look_for_others()

    async def _do(self, job: Callable[[Sql], Awaitable[Any]], future: asyncio.Future[Any]) -> None:
        if future.cancelled():  # nobody waits any more, and nothing was begun
            return
        try:
            _settle(future, await job(self._sql))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            _settle(future, error=error)
        except BaseException:
            _settle(future, error=StoreClosed(f"{self.path} was closed while this was done: outcome unknown"))
            raise

    async def _look_for_others(self) -> None:
        """On the writer's own connection this number moves only when somebody else commits."""
        version = await self._sql("PRAGMA data_version")
        if version != self._seen_version:
            self._seen_version = version
            for watcher in list(self._watchers):
                watcher()

    def _execute(self, connection: sqlite3.Connection, text: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """The one door for statements, in SQLite's thread: tests that kill between two writes stand here."""
        return connection.execute(text, parameters).fetchall()

    async def _sql(self, text: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """One statement on the writer's connection. Busy means nothing was stored, so it is tried again."""
        pause_s = 0.001
        while True:
            try:
                rows = await self._writer.run(lambda connection: self._execute(connection, text, parameters))
            except FAILURES as error:
                if not is_busy(error):
                    raise translate(error, self.path) from error
                self._busy_since = self._busy_since or time.monotonic()
                if time.monotonic() > self._busy_since + BUSY_LIMIT_S:
                    raise translate(error, self.path) from error
            else:
                self._busy_since = None
                return rows
            await asyncio.sleep(random.uniform(0.2, 1) * pause_s)  # noqa: S311 - jitter, no secret
            # Short for as long as it takes: a busy process leaves the lock for a fraction of a millisecond at a time.
            pause_s = min(pause_s * 1.2, 0.002)

    async def _roll_back(self) -> None:
        # A statement that was cut off by a cancellation still runs. If it is the COMMIT, there is nothing to roll back.
        await self._writer.execute_fetchall("SELECT 1")
        if self._writer.in_transaction:
            await self._writer.run(lambda connection: self._execute(connection, "ROLLBACK"))


async def open_database(path: str, *, create: bool, durability: Durability = "full") -> Database:
    """Opens the file at `path`; with `create` a missing or empty one becomes a new database.

    Raises `StoreUnusable` for a path that is no Tailfold database or can't be written.
    """
    if durability not in ("full", "normal"):
        raise ValueError(f"durability is 'full' or 'normal', not {durability!r}")
    if path != MEMORY:
        check_place(path, create=create)
    database = Database(path, durability)
    try:
        await asyncio.shield(database._opened)  # noqa: SLF001 - its own maker
    except BaseException:
        with anyio.CancelScope(shield=True):
            await database.abandon()
        raise
    return database


class _Connections:
    """Opens connections and surely closes them: one that is left open would keep the interpreter from exiting."""

    def __init__(self, path: str, durability: Durability) -> None:
        self._path = path
        self._durability = durability
        self._open: list[Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in reversed(self._open):  # readers first, so that the writer may fold the WAL back
            await connection.close()

    async def open_writer(self) -> Connection:
        writer = await self._connect()
        await _patiently(lambda: check_owner(writer, self._path))  # before anything of the file is changed
        await _patiently(lambda: writer.execute_fetchall("PRAGMA journal_mode = WAL"))
        await writer.execute_fetchall(f"PRAGMA synchronous = {self._durability}")
        await writer.execute_fetchall("PRAGMA foreign_keys = ON")
        await writer.execute_fetchall("PRAGMA secure_delete = ON")
        return writer

    async def open_readers(self) -> list[Connection]:
        readers = [] if self._path == MEMORY else [await self._connect() for _ in range(_READERS)]
        for reader in readers:
            await reader.execute_fetchall("PRAGMA query_only = ON")
        return readers

    async def _connect(self) -> Connection:
        connection = Connection(self._path)
        self._open.append(connection)
        connecting = asyncio.ensure_future(connection)
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            await asyncio.wait([connecting])  # cut off half way, aiosqlite would leave its thread behind
            raise
        return connection


async def _patiently(step: Callable[[], Awaitable[object]]) -> None:
    """Tries again while another process holds the lock: the first openers of a new file meet here."""
    deadline = time.monotonic() + BUSY_LIMIT_S
    while True:
        try:
            await step()
        except FAILURES as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        else:
            return
        await asyncio.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - jitter, no secret


def _settle(future: asyncio.Future[Any], result: object = None, *, error: BaseException | None = None) -> None:
    if future.done():  # the caller was cancelled; what was done stays done
        return
    if error is not None:
        future.set_exception(error)
        future.exception()  # retrieved: a caller who never awaits it is not an error of its own
    else:
        future.set_result(result)
