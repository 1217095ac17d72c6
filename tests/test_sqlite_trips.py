"""A job is one trip to SQLite's thread, whole or absent, and may be run again; what it costs is counted here."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import anyio
import pytest

from ledger import open_ledger
from stream import NewEvent, Producer, Snapshot, StoreBusy, StoreClosed, StoreUnusable, open_store
from stream import database as protocols
from stream.sqlite import MEMORY, Database, Sql, SqliteStore, open_database
from stream.sqlite import database as database_module
from stream.sqlite.bounds import read_bounds
from stream.sqlite.pages import read_page
from stream.sqlite.snapshots import load_snapshot
from stream.testing import CASES, SqliteBackend, jobs_run_twice
from tests.needles import PROJECTORS, everything, fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from stream.testing import Case

pytestmark = pytest.mark.anyio
EVENT: Final = [NewEvent("t", b"x")]
TABLE: Final = "CREATE TABLE things (name TEXT) STRICT"
PUT: Final = "INSERT INTO things VALUES (?)"
ALL: Final = "SELECT name FROM things ORDER BY rowid"


@pytest.fixture(params=["file", "memory"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    made = await open_database(str(tmp_path / "a.db") if request.param == "file" else MEMORY, create=True)
    await made.write(lambda sql: sql(TABLE))
    yield made
    await made.close()


def put(*names: str) -> Callable[[Sql], Awaitable[list[Any]]]:
    async def job(sql: Sql) -> list[Any]:
        for name in names:
            await sql(PUT, (name,))
        return await sql(ALL)

    return job


async def trips(database: Database, call: Awaitable[object]) -> int:
    before = database.trips
    await call
    return database.trips - before


async def test_a_transaction_of_any_length_is_one_trip_and_so_is_a_look(database: Database) -> None:
    assert await trips(database, database.transact(put(*"abcdefghij"))) == 1
    assert await trips(database, database.write(put("k", "l"))) == 1

    async def job(sql: Sql) -> int:
        return sum([len(await sql(ALL)) for _ in range(10)])

    assert await trips(database, database.look(job)) == 1
    assert await database.look(job) == 120
    assert await trips(database, database.read(ALL)) == 1


async def test_what_a_store_does_is_one_trip_each(tmp_path: Path) -> None:
    store = await open_store(str(tmp_path / "a.db"))
    assert isinstance(store, SqliteStore)
    await store.settle()
    for call, most in [
        (store.append("s", EVENT), 1),
        (store.append("s", EVENT * 3, producer=Producer("p", 0, 0)), 1),
        (store.append("s", EVENT * 3, producer=Producer("p", 0, 0)), 2),  # a repeat: stored it is not, and why
        (store.append("s", [NewEvent("t", bytes(100_000))] * 3), 1),
        (store.append("s", EVENT, expected_seq=7, append_id="i"), 1),
        (store.read("s"), 1),
        (store.bounds("s"), 1),
        (store.producer("s", "p"), 1),
        (store.snapshots.save(Snapshot("s", "p", 1, 8, 0, b"state")), 1),
        (store.snapshots.load("s", "p"), 1),
        (store.snapshots.list("s"), 1),
        (store.truncate("s", through=0), 1),
        (store.delete("unknown"), 1),
    ]:
        assert await trips(store.database, call) <= most
        await store.settle()
    await store.close()


async def test_log_and_tables_beside_it_are_seen_in_one_look(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "a.db")) as store:
        assert isinstance(store, SqliteStore)
        await store.append("s", EVENT * 600)
        await store.snapshots.save(Snapshot("s", "p", 1, 500, 0, b"state"))

        async def job(sql: Sql) -> tuple[Any, ...]:
            bounds, snapshot = await read_bounds(sql, "s"), await load_snapshot(sql, "s", "p")
            assert snapshot is not None
            return bounds.head, snapshot.state, len(await read_page(sql, "s", snapshot.last_seq, 1000))

        before = store.database.trips
        assert await store.database.look(job) == (600, b"state", 100)
        assert store.database.trips == before + 1


async def test_a_look_sees_one_moment_whatever_is_committed_meanwhile(tmp_path: Path) -> None:
    database = await open_database(str(tmp_path / "a.db"), create=True)
    await database.write(lambda sql: sql(TABLE))
    looked, written = threading.Event(), threading.Event()

    async def job(sql: Sql) -> tuple[list[Any], list[Any]]:
        before = await sql(ALL)
        looked.set()
        assert written.wait(10)
        return before, await sql(ALL)

    looking = asyncio.create_task(database.look(job))
    await asyncio.to_thread(looked.wait)
    await database.transact(put("a"))
    written.set()
    assert await looking == ([], [])
    assert await database.read(ALL) == [("a",)]
    await database.close()


async def test_a_look_changes_nothing(database: Database) -> None:
    with suppress(StoreUnusable):  # in memory there is no connection that can't write: it is taken back
        await database.look(put("a"))
    assert await database.read(ALL) == []


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
        database = await open_database(str(tmp_path / f"{number}.db"), create=True)
        await database.write(lambda sql: sql(TABLE))

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


async def test_an_abandoned_job_ends_at_its_next_statement_and_leaves_nothing(tmp_path: Path) -> None:
    database = await open_database(str(tmp_path / "a.db"), create=True)
    await database.write(lambda sql: sql(TABLE))
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


async def test_a_job_waits_for_a_lock_in_the_loop_and_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    database = await open_database(str(path), create=True)
    await database.write(lambda sql: sql(TABLE))
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


async def test_a_job_that_is_abandoned_before_a_lock_ends_in_the_thread_it_ran_in(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    database = await open_database(str(path), create=True)
    await database.write(lambda sql: sql(TABLE))
    threads: list[threading.Thread] = []

    async def job(sql: Sql) -> None:
        threads.append(threading.current_thread())
        try:
            await sql(PUT, ("a",))
        finally:
            threads.append(threading.current_thread())

    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(database.write(job))
        while not threads:
            await asyncio.sleep(0.001)
        await database.abandon()
        raw.execute("ROLLBACK")
    with pytest.raises(StoreClosed, match="outcome unknown"):
        await task
    assert threads[0] == threads[1] != threading.main_thread()


async def test_a_lock_that_is_held_too_long_is_told_to_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_LIMIT_S", 0.1)
    path = tmp_path / "a.db"
    database = await open_database(str(path), create=True)
    await database.write(lambda sql: sql(TABLE))
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        for call in (database.transact, database.write):
            with pytest.raises(StoreBusy, match="nothing was stored"):
                await call(put("a"))
        raw.execute("ROLLBACK")
    assert await database.transact(put("b")) == [("b",)]
    await database.close()


async def test_looks_that_meet_a_lock_do_not_mix_on_their_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = await open_database(str(tmp_path / "a.db"), create=True)
    await database.write(lambda sql: sql(TABLE))
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
    database = await open_database(str(tmp_path / "a.db"), create=True)
    await database.write(lambda sql: sql(TABLE))
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
                await ledger.compact("c")
                found.append([message.text for message in (await everything(ledger, "c"))[0]])
                with mock.patch("ledger.erasure.now_ms", return_value=1):  # a claim takes the time from within its job
                    await ledger.erase("c")
                assert await ledger.transcript("c", branch="all") == []
    assert found[0] == found[1]
    assert found[0]


async def test_a_database_on_sqlite_is_what_the_protocol_says(database: Database) -> None:
    as_protocol: protocols.Database = database
    assert await as_protocol.transact(put("a")) == [("a",)]
