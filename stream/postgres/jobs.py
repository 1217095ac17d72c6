"""A job on its way: driven to its end on one connection, statement by statement, as a transaction or without one."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg

from stream.errors import StoreUnusable
from stream.postgres.errors import FAILURES, is_again, is_gone, translate
from stream.postgres.statements import told as read_row
from stream.postgres.statements import translate as translate_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from stream.database import Row, Sql
    from stream.errors import StreamError
    from stream.postgres.connection import Connection

T = TypeVar("T")
BEGIN: Final = "BEGIN ISOLATION LEVEL SERIALIZABLE"
BEGIN_LOOK: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_STRANGER: Final = "a job awaits only its statements"


class Newer(Exception):
    """The tables are not those that were installed."""


class TakesMore(Exception):
    """A job has asked a second thing."""


class _Asked:
    """A statement that a job waits for."""

    __slots__ = ("parameters", "text")

    def __init__(self, text: str, parameters: Sequence[Any] = (), /) -> None:
        self.text, self.parameters = text, parameters

    def __await__(self) -> Generator[Any, None, list[Row]]:
        rows: Any = yield self
        return rows  # type: ignore[no-any-return]


class Run:
    """One attempt at a job. `is_ambiguous` while a commit is under way, `trips` are those to the server until now.

    `asked` are the statements of the job, of which there may be `most`; one that `only_reads` can be done again at any time.
    """

    def __init__(self, path: str, collation: str, *, most: int | None = None, only_reads: bool = False) -> None:
        self._path = path
        self._collation = collation
        self._most = most
        self._only_reads = only_reads
        self.is_ambiguous = False
        self.asked = 0
        self.trips = 0

    async def go(self, connection: Connection, job: Callable[[Sql], Awaitable[T]], begin: str | None) -> T:
        """What the job returns. `begin` is a script that begins its transaction; None where each statement is one.

        Raises what the job and the driver raise, `Newer` where that script divides by zero, and `TakesMore`.
        """
        if begin is None:
            return await self._drive(connection, job, is_single=True)
        try:
            try:
                await self._execute(connection, begin)
            except asyncpg.DivisionByZeroError:
                raise Newer from None
            result = await self._drive(connection, job, is_single=False)
        except BaseException:
            if not connection.is_closed():
                with contextlib.suppress(*FAILURES):
                    await self._execute(connection, "ROLLBACK")
            raise
        self.is_ambiguous = not self._only_reads
        told = await self._execute(connection, "COMMIT")
        self.is_ambiguous = False
        if told != "COMMIT":
            raise StoreUnusable(self._path, "a job went on after a statement of it had failed: nothing was stored")
        return result

    async def _drive(self, connection: Connection, job: Callable[[Sql], Awaitable[T]], *, is_single: bool) -> T:
        work = _begin(job)
        rows: Any = None
        refusal: StreamError | None = None
        try:
            while True:
                try:
                    asked = work.send(rows) if refusal is None else work.throw(refusal)
                except StopIteration as returned:
                    return returned.value  # type: ignore[no-any-return]
                refusal = None
                if self.asked == self._most:
                    raise TakesMore
                self.asked += 1
                if not isinstance(asked, _Asked):
                    raise RuntimeError(f"{_STRANGER}, not {asked!r}")  # noqa: TRY004 - as every database says it
                self.is_ambiguous = is_single and not (self._only_reads or asked.text.lstrip().startswith("SELECT"))
                try:
                    rows = await self._fetch(connection, asked)
                    self.is_ambiguous = False
                except FAILURES as error:
                    if is_gone(error) or is_again(error):
                        raise
                    refusal = translate(error, self._path)
        finally:
            work.close()

    async def _fetch(self, connection: Connection, asked: _Asked) -> list[Row]:
        self.trips += 1
        if not asked.parameters and ";" in asked.text.rstrip().rstrip(";"):  # a script
            await connection.execute(asked.text)
            return []
        text, parameters = translate_text(asked.text, asked.parameters, self._collation)
        return [read_row(row) for row in await connection.fetch(text, *parameters)]

    async def _execute(self, connection: Connection, text: str) -> str:
        self.trips += 1
        return str(await connection.execute(text))


async def _begin(job: Callable[[Sql], Awaitable[T]]) -> T:
    return await job(_Asked)


def source(job: Callable[[Sql], Awaitable[T]]) -> object:
    """What is the same for every job that was written at the same place."""
    inner: Any = job
    while isinstance(inner, partial):
        inner = inner.func
    return getattr(inner, "__code__", None)
