"""Jobs that meet a lock wait for it in the event loop, or end; so do those of a database that is abandoned."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from stream import StoreBusy, StoreClosed
from stream.sqlite import Sql
from stream.sqlite import database as database_module
from tests.one_table import ALL, PUT, open_table, put

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_a_job_waits_for_a_lock_in_the_loop_and_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    database = await open_table(path)
    begun = 0

    async def job(sql: Sql) -> list[Any]:
        nonlocal begun
        begun += 1
        return await put("a", "b")(sql)

    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        tasks = [asyncio.create_task(call(job)) for call in (database.transact, database.write)]
        before = database.trips
        for _ in range(20):
            await asyncio.sleep(0.005)  # the loop goes on
            assert await database.read(ALL) == []
        assert database.trips > before + 25
        raw.execute("ROLLBACK")
        assert await tasks[0] == [("a",), ("b",)]
        assert await tasks[1] == [("a",), ("b",), ("a",), ("b",)]
    assert begun == 2
    await database.close()


async def test_a_lock_that_is_held_too_long_is_told_to_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_LIMIT_S", 0.1)
    path = tmp_path / "a.db"
    database = await open_table(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        for call in (database.transact, database.write):
            with pytest.raises(StoreBusy, match="nothing was stored"):
                await call(put("a"))
        raw.execute("ROLLBACK")
    assert await database.transact(put("b")) == [("b",)]
    await database.close()


async def test_looks_that_meet_a_lock_do_not_mix_on_their_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = await open_table(tmp_path / "a.db")
    locks = 0

    def execute(connection: sqlite3.Connection, text: str, parameters: Sequence[Any] = ()) -> list[Any]:
        nonlocal locks
        if text == ALL and locks:  # a look begins without a lock: it is met by its first statement
            locks -= 1
            raise busy()
        return connection.execute(text, parameters).fetchall()

    async def job(sql: Sql) -> bool:
        return await sql(ALL) == await sql(ALL)

    monkeypatch.setattr(database, "_execute", execute)
    for locks in range(12):
        looking = [asyncio.create_task(database.look(job)) for _ in range(5)]
        writing = asyncio.create_task(database.transact(lambda sql: sql(PUT, ("a",))))
        await asyncio.sleep(0.001 * (locks % 4))
        looking[0].cancel()
        assert await asyncio.gather(*looking[1:]) == [True] * 4
        await writing
        locks = 0  # noqa: PLW2901 - whatever the cancelled one has left of them
        assert len(await database.read(ALL)) == len(await database.read(ALL)) == len(await database.transact(put())) > 0
    monkeypatch.setattr(database_module, "BUSY_LIMIT_S", 0.05)
    locks = 1_000_000
    with pytest.raises(StoreBusy, match="another process held the lock too long"):
        await database.look(job)
    await database.close()


def busy() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


async def test_a_cancelled_look_leaves_a_reader_that_reads(tmp_path: Path) -> None:
    database = await open_table(tmp_path / "a.db")
    for steps in range(30):
        task = asyncio.create_task(database.look(lambda sql: sql(ALL)))
        for _ in range(steps % 6):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert len(await database.transact(put("a"))) == steps + 1
        assert len(await database.look(lambda sql: sql(ALL))) == steps + 1
    await database.close()


async def test_an_abandoned_job_ends_at_its_next_statement_and_leaves_nothing(tmp_path: Path) -> None:
    database = await open_table(tmp_path / "a.db")
    begun = threading.Event()

    async def job(sql: Sql) -> None:
        while True:
            await sql(PUT, ("a",))
            begun.set()

    task = asyncio.create_task(database.transact(job))
    await asyncio.to_thread(begun.wait)
    with anyio.fail_after(10):
        await database.abandon()
    with pytest.raises(StoreClosed, match="outcome unknown"):
        await task
    with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
        assert raw.execute(ALL).fetchall() == []


async def test_a_statement_that_was_posted_is_not_begun_once_its_database_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await open_table(tmp_path / "a.db")
    execute, begun, may_end = database._execute, threading.Event(), threading.Event()

    def wait_then_execute(connection: sqlite3.Connection, text: str, parameters: Sequence[Any] = (), /) -> list[Any]:
        begun.set()
        assert may_end.wait(10)
        return execute(connection, text, parameters)

    monkeypatch.setattr(database, "_execute", wait_then_execute)
    told: list[object] = []
    database.post(PUT, ("under way",), told.append)
    database.post(PUT, ("behind it",), told.append)
    await asyncio.to_thread(begun.wait)
    closing_it = asyncio.create_task(database.abandon())
    await asyncio.sleep(0)
    may_end.set()
    await closing_it
    assert [type(one) for one in told] == [list, StoreClosed]
    with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
        assert raw.execute(ALL).fetchall() == [("under way",)]


async def test_a_job_that_is_abandoned_before_a_lock_ends_in_the_thread_it_ran_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    database = await open_table(path)
    threads: list[threading.Thread] = []
    waiting = asyncio.Event()

    async def job(sql: Sql) -> None:
        threads.append(threading.current_thread())
        try:
            await sql(PUT, ("a",))
        finally:
            threads.append(threading.current_thread())

    def long(*_: float) -> float:
        waiting.set()
        return 1_000_000

    monkeypatch.setattr(database_module, "random", SimpleNamespace(uniform=long))
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(database.write(job))
        await waiting.wait()
        await database.abandon()
        raw.execute("ROLLBACK")
    with pytest.raises(StoreClosed, match="outcome unknown"):
        await task
    assert threads[0] == threads[1] != threading.main_thread()
