"""Runs every job of a database twice on purpose, as a database does where another process was in the way."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from unittest import mock

from stream.sqlite import Database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from stream.database import Row, Sql

T = TypeVar("T")


class _Attempt(NamedTuple):
    """What one run of a job asked, what it was told, and how it ended."""

    asked: list[tuple[str, tuple[Any, ...], list[Row]]]
    result: Any
    failure: str


@contextmanager
def jobs_run_twice() -> Iterator[None]:
    """Each `transact` and `look` on SQLite runs its job, takes all of it back, and runs it again in the same transaction.

    A job that does not make the same statements with the same parameters, is not told the same, or does not end in the
    same way raises `AssertionError`: it changed something that no rollback takes back, or takes time or chance from
    within. What a `look` changes is taken back anyway.
    """
    transact, look = Database.transact, Database.look

    async def transact_twice(self: Database, job: Callable[[Sql], Awaitable[T]]) -> T:
        return await transact(self, lambda sql: _run_twice(sql, job))

    async def look_twice(self: Database, job: Callable[[Sql], Awaitable[T]]) -> T:
        return await look(self, lambda sql: _run_twice(sql, job))

    with mock.patch.multiple(Database, transact=transact_twice, look=look_twice):
        yield


async def _run_twice(sql: Sql, job: Callable[[Sql], Awaitable[T]]) -> T:
    await sql("SAVEPOINT first")
    first, _ = await _attempt(sql, job)
    await sql("ROLLBACK TO first")
    again, error = await _attempt(sql, job)
    assert again == first, f"a job was run twice, and then it was another one:\n{first}\n{again}"
    if error is not None:
        raise error
    await sql("RELEASE first")
    result: T = again.result
    return result


async def _attempt(sql: Sql, job: Callable[[Sql], Awaitable[Any]]) -> tuple[_Attempt, Exception | None]:
    asked: list[tuple[str, tuple[Any, ...], list[Row]]] = []

    async def noted(text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        rows = await sql(text, parameters)
        asked.append((text, tuple(parameters), rows))
        return rows

    try:
        return _Attempt(asked, await job(noted), ""), None
    except Exception as error:  # noqa: BLE001 - it is the job's end
        return _Attempt(asked, None, f"{type(error).__name__}: {error}"), error
