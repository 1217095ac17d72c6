"""A job is whole or absent, awaits only its statements, and may be run again."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from ledger import open_ledger
from stream import StoreClosed, StoreUnusable
from stream import database as protocols
from stream.sqlite import MEMORY, Database, Sql
from stream.testing import CASES, SqliteBackend, jobs_run_twice
from tests.needles import PROJECTORS, everything, fill
from tests.one_table import ALL, PUT, open_table, put

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from stream.testing import Case

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["file", "memory"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    made = await open_table(tmp_path / "a.db" if request.param == "file" else MEMORY)
    yield made
    await made.close()


async def test_a_database_on_sqlite_is_what_the_protocol_says(database: Database) -> None:
    as_protocol: protocols.Database = database
    assert await as_protocol.transact(put("a")) == [("a",)]


async def stubborn(sql: Sql) -> None:
    with suppress(StoreUnusable):
        await sql(PUT, ("half",))
    await put("more")(sql)


async def test_a_look_changes_nothing(database: Database) -> None:
    for asked in (database.look(put("a")), database.look(stubborn), database.read(PUT, ("a",))):
        with pytest.raises(StoreUnusable, match="can't be written"):
            await asked
    assert await database.transact(put("b")) == [("b",)]


@pytest.mark.parametrize("error", [ValueError, KeyError, StopIteration])
async def test_a_job_that_raises_leaves_nothing_and_its_error_is_the_callers(
    database: Database, error: type[Exception]
) -> None:
    async def job(sql: Sql) -> None:
        await sql(PUT, ("half",))
        raise error

    with pytest.raises(RuntimeError if error is StopIteration else error):
        await database.transact(job)
    assert await database.transact(put("next")) == [("next",)]


async def forget(_: Sql) -> None:
    await asyncio.sleep(0)


async def wait_for_the_loop(_: Sql) -> None:
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("stranger", [forget, wait_for_the_loop])
async def test_a_job_that_awaits_something_else_is_refused_and_rolled_back(
    database: Database, stranger: Callable[[Sql], Awaitable[None]]
) -> None:
    async def job(sql: Sql) -> None:
        await sql(PUT, ("half",))
        await stranger(sql)

    async def stubborn(sql: Sql) -> None:
        try:
            await job(sql)
        except BaseException:
            await sql(PUT, ("more",))
            raise

    for each in (job, stubborn):
        for call in (database.transact, database.look):
            with pytest.raises((RuntimeError, StoreUnusable)) as told:
                await call(each)
            assert call == database.look or "a job awaits only its statements" in str(told.value)
    future = asyncio.get_running_loop().create_future()

    async def on_a_future(sql: Sql) -> None:
        await sql(PUT, ("half",))
        await future

    with pytest.raises(RuntimeError, match="a job awaits only its statements"):
        await database.transact(on_a_future)
    future.cancel()
    assert await database.transact(put("next")) == [("next",)]


async def test_an_interrupt_or_a_cancellation_inside_a_job_leaves_nothing(tmp_path: Path) -> None:
    for number, error in enumerate([asyncio.CancelledError, GeneratorExit]):
        database = await open_table(tmp_path / f"{number}.db")

        async def job(sql: Sql, error: type[BaseException] = error) -> None:
            await sql(PUT, ("half",))
            raise error

        with pytest.raises((StoreClosed, RuntimeError)):
            await database.transact(job)
        await database.close()
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as raw:
            assert raw.execute(ALL).fetchall() == []


async def test_a_cancelled_caller_does_not_cut_its_job(database: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def job(sql: Sql) -> None:
        await sql(PUT, ("a",))
        begun.set()
        assert go_on.wait(10)
        await sql(PUT, ("b",))

    task = asyncio.create_task(database.transact(job))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    go_on.set()
    assert await database.transact(put("c")) == [("a",), ("b",), ("c",)]


async def test_a_job_whose_second_run_differs_is_caught(database: Database) -> None:
    calls: list[int] = []

    async def counting(sql: Sql) -> int:
        calls.append(1)
        await sql(PUT, ("a",))
        return len(calls)

    async def remembering(sql: Sql) -> None:
        calls.append(1)
        await sql(PUT, (str(len(calls)),))

    with jobs_run_twice():
        for job in (counting, remembering):
            with pytest.raises(AssertionError, match="run twice"):
                await database.transact(job)
        assert await database.transact(put("a", "b")) == [("a",), ("b",)]
        assert await database.look(lambda sql: sql(ALL)) == [("a",), ("b",)]
        with pytest.raises(KeyError):
            await database.transact(fail)


async def fail(sql: Sql) -> None:
    await sql(PUT, ("half",))
    raise KeyError("half")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "case", {case.claim: case for case in CASES if "large" not in case.needs}.values(), ids=lambda case: case.claim.__name__
)
async def test_the_contract_holds_where_every_job_is_run_twice(tmp_path: Path, case: Case) -> None:
    backend = SqliteBackend(tmp_path)
    try:
        with jobs_run_twice():
            await case.run(backend)
    finally:
        await backend.close()


@pytest.mark.parametrize("place", ["memory:", "file"])
async def test_a_ledger_is_the_same_where_every_job_is_run_twice(tmp_path: Path, place: str) -> None:
    found = []
    for twice in (False, True):
        url = place if place == "memory:" else str(tmp_path / f"{twice}.db")
        with jobs_run_twice() if twice else nullcontext():
            async with open_ledger(url, projectors=PROJECTORS) as ledger:
                await fill(ledger, "c")
                with mock.patch("ledger.tables.tables.now_ms", return_value=1):  # what lasts is asked from within its job
                    await ledger.compact("c")
                found.append([message.text for message in (await everything(ledger, "c"))[0]])
                with mock.patch("ledger.tables.tables.now_ms", return_value=1):  # a claim takes the time from within its job
                    await ledger.erase("c")
                assert await ledger.transcript("c", branch="all") == []
    assert found[0] == found[1]
    assert found[0]
