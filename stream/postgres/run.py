"""One attempt at a job: driven statement by statement, it awaits nothing else."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stream.errors import StoreUnusable, StreamError
from stream.postgres.errors import FAILURES, is_again, is_gone, translate
from stream.postgres.statements import translate as translate_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from stream.database import Row, Sql
    from stream.postgres.connection import Connection

T = TypeVar("T")
BEGIN: Final = "BEGIN ISOLATION LEVEL SERIALIZABLE"
BEGIN_LOOK: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_STRANGER: Final = "a job awaits only its statements"


class Run:
    """One attempt at a job, on the database that is called `name`.

    `is_ambiguous` while a commit is under way; `trips` counts round trips to the server.
    """

    def __init__(self, name: str, gate: str | None) -> None:
        self.trips = 0
        self._name = name
        self._gate = gate
        self.is_ambiguous = False

    async def go(self, connection: Connection, job: Callable[[Sql], Awaitable[T]], begin: str | None) -> T:
        """What the job returns, `begin` its transaction if it is one. Raises what the job raises, and what the driver does."""
        if begin is None:
            return await self._drive(connection, job, is_single=True)
        await self._execute(connection, begin)
        try:
            if self._gate is not None:  # before anything is seen
                await self._execute(connection, self._gate)
            result = await self._drive(connection, job, is_single=False)
        except BaseException:
            if not connection.is_closed():
                with contextlib.suppress(*FAILURES):
                    await self._execute(connection, "ROLLBACK")
            raise
        self.is_ambiguous = begin != BEGIN_LOOK
        told = await self._execute(connection, "COMMIT")
        self.is_ambiguous = False
        if told != "COMMIT":
            raise StoreUnusable(self._name, "a job went on after a statement of it had failed: nothing was stored")
        return result

    async def _drive(self, connection: Connection, job: Callable[[Sql], Awaitable[T]], *, is_single: bool) -> T:
        work = _begin(job)
        told: Any = None
        refusal: StreamError | None = None
        try:
            while True:
                try:
                    asked = work.send(told) if refusal is None else work.throw(refusal)
                except StopIteration as returned:
                    return returned.value  # type: ignore[no-any-return]
                refusal = None
                if not isinstance(asked, _Asked):
                    raise RuntimeError(f"{_STRANGER}, not {asked!r}")  # noqa: TRY004 - as every database says it
                self.is_ambiguous = is_single and not asked.text.lstrip().startswith("SELECT")
                try:
                    told = await self._fetch(connection, asked)
                    self.is_ambiguous = False
                except FAILURES as error:
                    if is_gone(error) or is_again(error):
                        raise
                    refusal = translate(error, self._name)
        finally:
            work.close()

    async def _fetch(self, connection: Connection, asked: _Asked) -> list[Row]:
        self.trips += 1
        if not asked.parameters and ";" in asked.text.rstrip().rstrip(";"):  # a script
            await connection.execute(asked.text)
            return []
        text, parameters = translate_text(asked.text, asked.parameters)
        return [tuple(row) for row in await connection.fetch(text, *parameters)]

    async def _execute(self, connection: Connection, text: str) -> str:
        self.trips += 1
        return str(await connection.execute(text))


class _Asked:
    """A statement that a job waits for."""

    __slots__ = ("parameters", "text")

    def __init__(self, text: str, parameters: Sequence[Any] = (), /) -> None:
        self.text, self.parameters = text, parameters

    def __await__(self) -> Generator[Any, None, list[Row]]:
        told: Any = yield self
        return told  # type: ignore[no-any-return]


async def _begin(job: Callable[[Sql], Awaitable[T]]) -> T:
    return await job(_Asked)
