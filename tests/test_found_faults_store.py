"""Faults of stores that an attack on the finished code found, each named after its symptom, so that they stay mended."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

import stream.sqlite.database as database_module
from ledger import open_ledger
from stream import NewEvent, SeqConflict, StoreFull, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backends import Store


pytestmark = pytest.mark.anyio


async def test_the_same_append_id_on_two_streams_is_two_appends(store: Store) -> None:
    event = [NewEvent("t", b"x")]
    good = store.append("a", event, expected_seq=0, append_id="i")
    bad = store.append("b", event, expected_seq=5, append_id="i")
    first, second = await asyncio.gather(good, bad, return_exceptions=True)
    assert not isinstance(first, BaseException)
    assert isinstance(second, SeqConflict)
    assert (await store.bounds("b")).head == 0


async def test_pages_of_large_appends_decode_only_what_they_need(store: Store) -> None:
    size = min(3000, store.limits.append_events)
    for _ in range(12_000 // size):
        await store.append("s", [NewEvent("t", str(n).encode()) for n in range(size)])
    seqs: list[int] = []
    while page := await store.read("s", after=len(seqs), limit=700):
        seqs += [event.seq for event in page]
    assert seqs == list(range(1, 12_001))


async def test_a_store_that_is_cancelled_twice_while_it_closes_closes_all_the_same(tmp_path: Path) -> None:
    before = threading.active_count()

    async def use() -> None:
        async with open_ledger(str(tmp_path / "c.db")) as ledger, ledger.run("c") as run:
            await run.text("x")
            await asyncio.sleep(60)

    for _ in range(5):
        task = asyncio.create_task(use())
        await asyncio.sleep(0.1)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])
    with anyio.fail_after(10):
        while threading.active_count() > before:
            await asyncio.sleep(0.01)


async def test_an_opening_that_is_cancelled_does_not_wait_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_store(str(path)):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN EXCLUSIVE")
        begin = time.monotonic()
        with anyio.move_on_after(0.2):
            await open_store(str(path))
        assert time.monotonic() - begin < 10
        raw.execute("ROLLBACK")


async def test_all_that_waits_for_one_lock_shares_one_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_LIMIT_S", 0.4)
    path = tmp_path / "c.db"
    store = await open_store(str(path))
    await store.append("s", [NewEvent("t", b"")])
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        waiting = [asyncio.create_task(store.truncate("s", through=1)) for _ in range(12)]
        with anyio.fail_after(3):
            await asyncio.wait(waiting)
            await store.close()
        raw.execute("ROLLBACK")
    assert all(task.exception() for task in waiting)


async def test_an_append_that_is_stored_is_acknowledged_whatever_befalls_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stream.sqlite.appender import Appender  # noqa: PLC0415

    async def fail(*_: object) -> bool:
        raise StoreFull("while asking why")

    async with open_store(str(tmp_path / "a.db")) as store:
        await store.append("s", [NewEvent("t", b"")])
        monkeypatch.setattr(Appender, "_explain", fail)
        event = [NewEvent("t", b"x")]
        refused, stored = await asyncio.gather(
            store.append("s", event, expected_seq=9), store.append("s", event), return_exceptions=True
        )
        assert isinstance(refused, StoreFull)
        assert not isinstance(stored, BaseException)
        assert (await store.bounds("s")).head == 2


async def test_a_poll_that_fails_does_not_stop_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stream.sqlite import Database  # noqa: PLC0415

    polled = asyncio.Event()

    async def fail(_: Database) -> None:
        polled.set()
        raise StoreFull("no")

    monkeypatch.setattr(Database, "_look_for_others", fail)
    async with open_store(str(tmp_path / "a.db")) as store:
        waiter = asyncio.create_task(store.wait("s", after=0))
        await polled.wait()
        assert (await store.append("s", [NewEvent("t", b"")])).first_seq == 1
        await waiter
