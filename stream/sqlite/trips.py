"""A job on its way: driven to its end in SQLite's thread, in one trip unless another process holds the lock."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from stream.errors import StoreClosed
from stream.sqlite.errors import FAILURES, is_busy, translate

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence

    from stream.database import Row, Sql
    from stream.errors import StreamError

T = TypeVar("T")
_STRANGER: Final = "a job awaits only its statements"
_NO_LOOP: Final = "no running event loop"  # what most else of asyncio says in SQLite's thread


class Trip(Protocol):
    """Runs a job whose statements commit by themselves, in one trip; what holds the writer is given it."""

    def __call__(self, job: Callable[[Sql], Awaitable[T]], /) -> Coroutine[Any, Any, T]:
        """Gives what the job returns, and raises what it raises."""
        ...


class Door(Protocol):
    """Runs one statement in SQLite's thread; every statement of a database goes through it."""

    def __call__(self, connection: sqlite3.Connection, text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        """All rows of the statement."""
        ...


class Busy(NamedTuple):
    """Another process holds the lock. Nothing was stored by the statement that met it."""

    error: StreamError


class Drive(Generic[T]):
    """One job. Its statements never suspend, except before a lock: waiting is done in the event loop, not in the thread.

    `go` and `end` run in SQLite's thread. `is_cut` says whether the database was abandoned: then no further statement begins.
    With `is_shared` others use the connection while this one waits: then it lets go of all that it saw, and begins again.
    """

    def __init__(
        self, job: Callable[[Sql], Awaitable[T]], execute: Door, path: str, is_cut: Callable[[], bool], *, is_shared: bool
    ) -> None:
        self.done = 0
        """How many statements are through: a lock met after more of them is another wait."""
        self._job, self._execute, self._path, self._is_cut, self._is_shared = job, execute, path, is_cut, is_shared
        self._work: Coroutine[Any, Any, T] | None = None
        self._connection: sqlite3.Connection

    def go(self, refusal: StreamError | None, connection: sqlite3.Connection) -> T | Busy:
        """Runs the job from where it stands; with a `refusal` the statement that met a lock raises that.

        Whatever the job raises, also for a cancellation or an interrupt, no transaction stays open.
        """
        self._connection = connection
        try:
            told = self._go(refusal)
        except BaseException:
            self.end(connection)
            raise
        if self._is_shared and isinstance(told, Busy):
            self.end(connection)
            self._work, self.done = None, 0
        return told

    def end(self, connection: sqlite3.Connection) -> None:
        """Ends a job that will not go on; what it has not committed is rolled back."""
        try:
            if self._work is not None:
                self._work.close()
        finally:
            if connection.in_transaction:
                self._execute(connection, "ROLLBACK")

    def _go(self, refusal: StreamError | None) -> T | Busy:
        try:
            if self._work is None:
                if refusal is not None:
                    raise refusal
                self._work = self._begin()
            asked = self._work.send(None) if refusal is None else self._work.throw(refusal)
        except StopIteration as returned:
            return returned.value  # type: ignore[no-any-return]
        except RuntimeError as error:
            if str(error) == _NO_LOOP:
                raise RuntimeError(_STRANGER) from error
            raise
        if isinstance(asked, Busy):
            return asked
        raise RuntimeError(f"{_STRANGER}, not {asked!r}")

    async def _begin(self) -> T:
        return await self._job(self._sql)

    @types.coroutine
    def _sql(self, text: str, parameters: Sequence[Any] = (), /) -> Generator[Any, None, list[Row]]:
        while isinstance(
            told := run_statement(self._execute, self._connection, text, parameters, self._path, self._is_cut), Busy
        ):
            yield told
        self.done += 1
        return told


def run_statement(
    execute: Door, connection: sqlite3.Connection, text: str, parameters: Sequence[Any], path: str, is_cut: Callable[[], bool]
) -> list[Row] | Busy:
    """Its rows, in SQLite's thread. Outside of a transaction it commits by itself, and whatever it raises leaves none open."""
    if is_cut():
        raise StoreClosed(f"{path} was closed while this was done")
    try:
        return execute(connection, text, parameters)
    except FAILURES as error:
        failure = translate(error, path)
        if not is_busy(error):
            raise failure from error
        failure.__cause__ = error
        return Busy(failure)


def as_transaction(job: Callable[[Sql], Awaitable[T]]) -> Callable[[Sql], Awaitable[T]]:
    """The same job, whole or absent."""

    async def transaction(sql: Sql) -> T:
        await sql("BEGIN IMMEDIATE")
        result = await job(sql)
        await sql("COMMIT")
        return result

    return transaction


def as_look(job: Callable[[Sql], Awaitable[T]]) -> Callable[[Sql], Awaitable[T]]:
    """The same job, whose statements see one moment and change nothing."""

    async def look(sql: Sql) -> T:
        await sql("BEGIN")
        result = await job(sql)
        await sql("ROLLBACK")
        return result

    return look


def as_reading(job: Callable[[Sql], Awaitable[T]]) -> Callable[[Sql], Awaitable[T]]:
    """The same job on the connection that writes, which refuses to meanwhile."""

    async def reading(sql: Sql) -> T:
        await sql("PRAGMA query_only = ON")
        try:
            return await job(sql)
        finally:
            await sql("PRAGMA query_only = OFF")

    return reading
