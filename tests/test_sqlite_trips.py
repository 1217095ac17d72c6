"""What a job costs: one trip to SQLite's thread, which sees one moment and keeps nothing of it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from stream import NewEvent, Producer, Snapshot, open_store
from stream.sqlite import MEMORY, Database, Sql, SqliteStore
from stream.tables.bounds import read_bounds
from stream.tables.snapshots import load_snapshot
from tests.one_table import ALL, open_table, put

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

pytestmark = pytest.mark.anyio
EVENT: Final = [NewEvent("t", b"x")]


async def trips(database: Database, call: Awaitable[object]) -> int:
    before = database.trips
    await call
    return database.trips - before


@pytest.mark.parametrize("place", ["a.db", MEMORY])
async def test_a_transaction_of_any_length_is_one_trip_and_so_is_a_look(tmp_path: Path, place: str) -> None:
    database = await open_table(place if place == MEMORY else tmp_path / place)
    assert await trips(database, database.transact(put(*"abcdefghij"))) == 1
    assert await trips(database, database.write(put("k", "l"))) == 1

    async def job(sql: Sql) -> int:
        return sum([len(await sql(ALL)) for _ in range(10)])

    assert await trips(database, database.look(job)) == 1
    assert await database.look(job) == 120
    assert await trips(database, database.read(ALL)) == 1
    await database.close()


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
            return bounds.head, snapshot.state, len(await store.read_within(sql, "s", snapshot.last_seq, 1000))

        before = store.database.trips
        assert await store.database.look(job) == (600, b"state", 100)
        assert store.database.trips == before + 1


async def test_a_look_sees_one_moment_whatever_is_committed_meanwhile(tmp_path: Path) -> None:
    database = await open_table(tmp_path / "a.db")
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


class Page(list[bytes]):
    """What is large."""


@pytest.mark.parametrize("place", ["a.db", MEMORY])
async def test_the_thread_of_sqlite_keeps_neither_what_it_was_given_nor_what_it_gave(tmp_path: Path, place: str) -> None:
    database = await open_table(place if place == MEMORY else tmp_path / place)
    kept = []

    async def job(sql: Sql, given: Page) -> Page:
        await sql(ALL)
        return Page(given)

    for call in (database.transact, database.write, database.look):
        given = Page()
        told = await call(partial(job, given=given))
        kept += [weakref.ref(given), weakref.ref(told)]
        del given, told
        await asyncio.sleep(0)  # the loop itself holds what it wakes somebody with
        assert [reference() for reference in kept] == [None] * len(kept)
    await database.close()
