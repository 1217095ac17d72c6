"""One SQLite file: one writer, who works alone in a task of its own, and readers who can't write.

Callers hand over jobs and await a future; cancelling them can't leave a statement half done or a transaction open,
and a crash of theirs does not cut the writer. A job makes one trip to SQLite's thread, however many statements it has.
Where the writer is idle a job may be posted to that thread without the task; it stands in the same line there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

import anyio

from stream.errors import StoreClosed, StreamError
from stream.home import Home
from stream.logger import Logger
from stream.sqlite.blocking import Connect
from stream.sqlite.connection import Connection, Connections
from stream.sqlite.errors import FAILURES, is_busy, translate
from stream.sqlite.handles import MEMORY
from stream.sqlite.migrations import check_owner, migrate
from stream.sqlite.place import Presence, find_place, stamp_of
from stream.sqlite.trips import Busy, Drive, Trip, as_look, as_reading, as_transaction, run_statement

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from stream.database import Row, Sql

T = TypeVar("T")
D = TypeVar("D", bound="Database")
Durability = Literal["full", "normal"]

BUSY_LIMIT_S: Final = 30.0
POLL_INTERVAL_S: Final = 0.025
_AGAIN_S: Final = 1.0  # after a look that failed
_INTERRUPT_INTERVAL_S: Final = 0.02
_READERS: Final = 2
_LOG: Final = Logger("tailfold.stream")


class Database:
    """A file that is open: `stream.database.Database` on SQLite. Made by `open_database`.

    Every method raises `StoreElsewhere` in another event loop than that of its opening, and in a forked process.
    Whatever is asked of a file that was moved, deleted or replaced meanwhile is refused with `StoreUnusable`.
    `trips` counts how often work was handed to a thread of SQLite, by the writer and by readers.
    """

    def __init__(self, path: str, durability: Durability) -> None:
        self.path = path
        self.trips = 0
        self.home = Home(path)
        self._connections = Connections(path)
        self._presence: Presence | None = None
        self._durability = durability
        self._jobs: deque[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = deque()
        self._work = asyncio.Event()
        self._closing = self._abandoned = self._is_working = False
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers: list[Connection] = []
        self._next_reader = 0
        self._patience = _Patience()
        self._seen_version: list[Row] = []
        self._watchers: list[Callable[[], Awaitable[None]]] = []
        self._copying = Connect()
        self._task = asyncio.create_task(self._live(), name=f"tailfold writer of {path}")

    dialect: ClassVar[Literal["sqlite", "postgres"]] = "sqlite"
    is_private_copy: ClassVar = False
    checks_versions: ClassVar = False
    """Whether what is done here is done to a copy only: see `stream.sqlite.private_copy`."""

    async def inspect(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work(connection)`, which only reads, in SQLite's thread, while the writer does nothing else."""
        return await self.hold(lambda _: self._writer.run(work))

    async def transact(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """See `stream.database.Database`. Jobs run one by one, in the order in which they were handed over."""
        return await self.submit(as_transaction(job))

    async def write(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """As `transact`, but each statement commits by itself."""
        return await self.submit(job)

    async def look(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """See `stream.database.Database`: a read transaction on a connection that can't write."""
        return await self._ask(as_look(job))

    async def read(self, text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        """One statement on a connection that can't write; it sees every commit that was acknowledged."""
        reader = self._choose_reader()
        if reader is not None:
            self.trips += 1
            try:  # without a job around it: most of what is asked for is one statement
                return await reader.run(lambda connection: self._look_up(connection, text, parameters))
            except FAILURES as error:
                if not is_busy(error):
                    raise translate(error, self.path) from error
        return await self._ask(lambda sql: sql(text, parameters))

    def submit(self, job: Callable[[Sql], Awaitable[T]]) -> asyncio.Future[T]:
        """As `write`, without waiting for it."""
        return self.hold(lambda trip: trip(job))

    def hold(self, turn: Callable[[Trip], Awaitable[T]]) -> asyncio.Future[T]:
        """Runs `turn(trip)` in the event loop while the writer does nothing else, for work beside its trips."""
        self.home.check()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing or self._task.done():
            future.set_exception(StoreClosed(f"{self.path} is closed"))
            return future
        self._jobs.append((lambda: turn(self._change), future))
        self._work.set()
        return future

    @property
    def is_idle(self) -> bool:
        """Whether no work waits or is under way, but what was posted."""
        return not (self._is_working or self._jobs or self._closing or self._task.done())

    def post(self, text: str, values: Sequence[Any], landed: Callable[[list[Row] | Busy | BaseException], None]) -> None:
        """As a `write` of one statement, at once and with neither task nor job in between; only where it is idle.

        What came of it is handed to `landed` in the event loop: its rows, what was raised, or `Busy` where another
        process holds the lock: then nothing was stored.
        """
        loop = asyncio.get_running_loop()
        self.trips += 1

        def store(connection: sqlite3.Connection) -> list[Row] | Busy:
            return run_statement(self._execute, connection, text, values, self.path, lambda: self._abandoned)

        def go(connection: sqlite3.Connection) -> None:
            try:
                told: list[Row] | Busy | BaseException = self._go(store, connection, begins=True, is_shared=False)
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                told = error
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever waits
                loop.call_soon_threadsafe(landed, told)

        self._writer.post(go)

    def check(self) -> None:
        """Raises `StoreElsewhere`, `StoreUnusable` where the file is not what it was, and `StoreClosed`; asks no file."""
        self.home.check()
        if self._closing or self._task.done():
            raise StoreClosed(f"{self.path} is closed")
        if self._presence is not None:
            self._presence.check()

    def watch(self, watcher: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Awaits `watcher`, which only looks, when another process has committed; returns what ends that."""
        self.home.check()
        self._watchers.append(watcher)
        self._work.set()
        return lambda: self._watchers.remove(watcher)

    async def install(
        self, component: str, scripts: Sequence[str], fill: Mapping[int, Callable[[Sql], Awaitable[None]]] | None = None
    ) -> None:
        """See `stream.database.Database`, and `migrate` for what is kept of an old file."""
        migrating = as_transaction(lambda sql: migrate(sql, self.path, component, scripts, self._copying, fill))
        done = await self.submit(migrating)
        if done is not None and done.before:
            _LOG.info("stream.migrated", path=self.path, component=component, **done._asdict())

    async def close(self) -> None:
        """Finishes the jobs that were handed over, then closes; a cancelled caller does not stop it.

        Raises `StoreElsewhere` and leaves it open, except where its own event loop has ended: then anybody may close it.
        """
        if self.home.has_ended():
            self._closing = True
            await self._connections.close()
            return
        self.home.check()
        self._closing = True
        self._work.set()
        with anyio.CancelScope(shield=True):
            await asyncio.shield(asyncio.wait([self._task]))

    async def abandon(self) -> None:
        """Closes at once: what waits is refused, also what waits for a lock that another process holds."""
        self._abandoned = True
        self._task.cancel()
        closing = asyncio.ensure_future(self.close())
        with anyio.CancelScope(shield=True):
            while not closing.done():  # again and again: an interrupt between two statements hits none
                self._copying.interrupt()
                await asyncio.wait([closing], timeout=_INTERRUPT_INTERVAL_S)

    async def _live(self) -> None:
        async with self._connections:
            try:
                await self._open(self._connections)
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

    async def _open(self, connections: Connections) -> None:
        self._writer = await connections.connect()
        await self._change(self._prepare)
        readers = [] if self.path == MEMORY else [await connections.connect() for _ in range(_READERS)]
        for reader in readers:
            await self._drive(reader, lambda sql: sql("PRAGMA query_only = ON"), _Patience())
        self._readers = readers
        if self.path != MEMORY:
            self._presence = Presence(self.path)

    async def _prepare(self, sql: Sql) -> None:
        """The first openers of a new file meet here."""
        await check_owner(sql, self.path)  # before anything of the file is changed
        if self.path != MEMORY and await sql("PRAGMA user_version") != [(stamp_of(self.path),)]:
            await sql(f"PRAGMA user_version = {stamp_of(self.path)}")
        await sql("PRAGMA journal_mode = WAL")
        await sql(f"PRAGMA synchronous = {self._durability}")
        await sql("PRAGMA foreign_keys = ON")
        await sql("PRAGMA secure_delete = ON")

    async def _serve(self) -> None:
        due = 0.0  # others are looked for then, however much there is to do: who only reads here waits for what they wrote
        while True:
            self._is_working = True
            while self._jobs and (self._closing or not self._is_look_due(due)):
                await self._do(*self._jobs.popleft())
            self._is_working = False
            if not self._jobs:
                if self._closing:
                    return
                self._work.clear()
                self._patience.since = None
                with anyio.move_on_after(due - time.monotonic() if self._watchers else None):
                    await self._work.wait()
            if self._is_look_due(due) and not self._closing:
                interval_s = _AGAIN_S
                with contextlib.suppress(StreamError):
                    await self._look_for_others()
                    interval_s = POLL_INTERVAL_S
                due = time.monotonic() + interval_s

    def _is_look_due(self, due: float) -> bool:
        return bool(self._watchers) and time.monotonic() >= due

    async def _do(self, job: Callable[[], Awaitable[Any]], future: asyncio.Future[Any]) -> None:
        if future.cancelled():  # nobody waits any more, and nothing was begun
            return
        try:
            _settle(future, await job())
        except Exception as error:  # noqa: BLE001 - it is the caller's
            _settle(future, error=error)
        except BaseException:
            _settle(future, error=StoreClosed(f"{self.path} was closed while this was done: outcome unknown"))
            raise

    async def _look_for_others(self) -> None:
        """On the writer's own connection this number moves only when somebody else commits.

        Where it can't be had, or a watcher can't look, all look again the next time: nobody waits for what is never told.
        """
        seen, self._seen_version = self._seen_version, []
        version: list[Row] = []
        try:
            version = await self._change(lambda sql: sql("PRAGMA data_version"))
        finally:
            if version != seen or not version:
                for watcher in list(self._watchers):
                    await watcher()
        self._seen_version = version

    async def _change(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        return await self._drive(self._writer, job, self._patience)

    async def _ask(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        reader = self._choose_reader()
        return await (self.submit(as_reading(job)) if reader is None else self._drive(reader, job, _Patience()))

    def _choose_reader(self) -> Connection | None:
        """None for a database in memory: it has one connection only."""
        self.home.check()
        if self._closing or self._task.done():
            raise StoreClosed(f"{self.path} is closed")
        if not self._readers:
            return None
        self._next_reader = (self._next_reader + 1) % len(self._readers)
        return self._readers[self._next_reader]

    async def _drive(self, connection: Connection, job: Callable[[Sql], Awaitable[T]], patience: _Patience) -> T:
        """Busy means that the statement stored nothing: the job goes on from it after a pause, on a reader from its start."""
        is_shared = connection is not self._writer
        drive = Drive(job, self._execute, self.path, lambda: self._abandoned, is_shared=is_shared)
        refusal: StreamError | None = None
        pause_s, done = 0.001, 0
        try:
            while True:
                if self._closing and is_shared:
                    raise StoreClosed(f"{self.path} is closed")
                self.trips += 1
                told = await connection.run(partial(self._go, partial(drive.go, refusal), begins=not done, is_shared=is_shared))
                if drive.done > done:
                    done, pause_s, patience.since = drive.done, 0.001, None
                if not isinstance(told, Busy):
                    return told
                refusal = told.error if patience.is_over() else None
                if refusal is None:
                    await asyncio.sleep(random.uniform(0.2, 1) * pause_s)  # noqa: S311 - jitter, no secret
                    # Short for as long as it takes: a busy process leaves the lock for a fraction of a millisecond at a time.
                    pause_s = min(pause_s * 1.2, 0.002)
        except (asyncio.CancelledError, StoreClosed):
            connection.post(drive.end)  # behind the trip that is under way
            raise

    def _go(
        self,
        go: Callable[[sqlite3.Connection], T | Busy],
        connection: sqlite3.Connection,
        *,
        begins: bool,
        is_shared: bool,
    ) -> T | Busy:
        """Nothing is acknowledged before its file was seen in its place."""
        if self._presence is None:
            return go(connection)
        if begins:
            self._presence.look()
        try:
            told = go(connection)
        except StreamError:
            self._presence.check()  # it may be what came of that
            raise
        if not is_shared and not isinstance(told, Busy):
            self._presence.check()
        return told

    def _look_up(self, connection: sqlite3.Connection, text: str, parameters: Sequence[Any]) -> list[Row]:
        if self._presence is not None:
            self._presence.look()
        return self._execute(connection, text, parameters)

    def _execute(self, connection: sqlite3.Connection, text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        """The one door for statements, in SQLite's thread: tests that kill between two writes stand here."""
        return connection.execute(text, parameters).fetchall()


class _Patience:
    """How long a lock is waited for: all that waits for one shares one limit."""

    def __init__(self) -> None:
        self.since: float | None = None

    def is_over(self) -> bool:
        self.since = self.since or time.monotonic()
        return time.monotonic() > self.since + BUSY_LIMIT_S


async def open_database(path: str, *, create: bool, durability: Durability = "full") -> Database:
    """Opens the file at `path`; with `create` a missing or empty one becomes a new database.

    Raises `StoreUnusable` for a path that is no Tailfold database or can't be written.
    """
    if durability not in ("full", "normal"):
        raise ValueError(f"durability is 'full' or 'normal', not {durability!r}")
    return await wait_until_open(Database(path if path == MEMORY else find_place(path, create=create), durability))


async def wait_until_open(database: D) -> D:
    """Gives it back when it is open; where that fails, or nobody waits any more, it is closed."""
    try:
        await asyncio.shield(database._opened)  # noqa: SLF001 - its own maker
    except BaseException:
        with anyio.CancelScope(shield=True):
            await database.abandon()
        raise
    return database


def _settle(future: asyncio.Future[Any], result: object = None, *, error: BaseException | None = None) -> None:
    if future.done():  # the caller was cancelled; what was done stays done
        return
    if error is not None:
        future.set_exception(error)
        future.exception()  # retrieved: a caller who never awaits it is not an error of its own
    else:
        future.set_result(result)
