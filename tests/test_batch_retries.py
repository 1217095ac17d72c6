"""A batch that another process was faster than is tried again before what has come since (laws 1, 3)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from stream import AppendResult, CorruptEvent, Event, NewEvent, Producer
from tests.batch_rounds import MANY, append_round, check
from tests.test_batch_packing import opened

if TYPE_CHECKING:
    from pathlib import Path

    from stream.database import Sql

pytestmark = pytest.mark.anyio


async def test_what_was_refused_as_a_whole_goes_before_what_came_later(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    first, second, third = range(MANY), range(100, 100 + MANY), range(200, 200 + MANY)
    async with opened(path) as store, opened(path) as other:
        for streams in (first, second, third):
            await append_round(store, 1, streams)
        plain, gate = store.database._execute, threading.Semaphore(0)

        def behind_gate(connection: Any, text: str, parameters: Any = ()) -> list[Any]:
            if text.startswith("INSERT INTO batches"):
                assert gate.acquire(timeout=10)
            return plain(connection, text, parameters)

        store.database._execute = behind_gate  # type: ignore[method-assign]
        sent = []
        for streams in (first, second):
            sent.append(asyncio.create_task(append_round(store, 2, streams)))
            await asyncio.sleep(0.01)
        await other.append("s3", [NewEvent("t", b"3.2")])
        gate.release()
        while not store._appender._is_held:
            await asyncio.sleep(0.001)
        sent.append(asyncio.create_task(append_round(store, 2, third)))
        await asyncio.sleep(0.01)
        gate.release(10)
        await asyncio.gather(*sent)
        await check(store, 2, [n for n in (*first, *second, *third) if n != 3])
        changed: dict[str, int] = dict(await store.database.read("SELECT name, changed FROM streams"))
        assert max(changed[f"s{n}"] for n in first) < min(changed[f"s{n}"] for n in third)


async def test_a_producer_hears_its_own_numbers_again_whatever_came_behind_it_in_the_same_moment(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as store:
        await append_round(store, 1)
        for seq, before, behind in ((0, 0, 1), (1, 2, 0), (2, 1, 2)):

            async def send(n: int, seq: int, before: int, behind: int) -> AppendResult:
                event = NewEvent("t", b"")
                others = [asyncio.create_task(store.append(f"s{n}", [event])) for _ in range(before)]
                own = asyncio.create_task(store.append(f"s{n}", [event, event], producer=Producer("p", 0, seq)))
                others += [asyncio.create_task(store.append(f"s{n}", [event])) for _ in range(behind)]
                await asyncio.gather(*others)
                return await own

            async def repeat(n: int, seq: int) -> AppendResult:
                return await store.append(f"s{n}", [NewEvent("t", b"")], producer=Producer("p", 0, seq))

            first = await asyncio.gather(*(send(n, seq, before, behind) for n in range(MANY)))
            again = await asyncio.gather(*(repeat(n, seq) for n in range(MANY)))
            assert again == [AppendResult(each.first_seq, each.last_seq, duplicate=True) for each in first]


@pytest.mark.parametrize(("epoch", "seq"), [(0, 2**30 - 2), (2**20 - 1, 5), (2**20, 5), (2**21, 5)])
async def test_numbers_of_a_producer_that_do_not_fit_into_a_batch_are_kept_all_the_same(
    tmp_path: Path, epoch: int, seq: int
) -> None:
    async with opened(tmp_path / "log.db") as store:
        for n in range(MANY):
            await store.adopt(f"s{n}", [Event("x", 1, "t", b"%d.1" % n, 0)], producers=[Producer("p", epoch, seq - 1)])
        for number in range(3):
            await append_round(store, number + 2, producer=Producer("p", epoch, seq + number))
        await append_round(store, 5, producer=Producer("p", epoch + 1, 0))
        await check(store, 5)
        assert {await store.producer(f"s{n}", "p") for n in range(MANY)} == {Producer("p", epoch + 1, 0)}


async def test_an_append_never_gets_into_a_transaction_of_somebody_else_that_waits_for_a_lock(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as store:
        await append_round(store, 1)
        plain, met = store.database._execute, 0

        def busy_at_first(connection: Any, text: str, parameters: Any = ()) -> list[Any]:
            nonlocal met
            if text == "SELECT 'in between'" and met < 20:
                met += 1
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error
            return plain(connection, text, parameters)

        async def fail(sql: Sql) -> None:
            await sql("SELECT 'in between'")
            raise ValueError("all of it is rolled back")

        store.database._execute = busy_at_first  # type: ignore[method-assign]
        failing = asyncio.create_task(store.database.transact(fail))
        await asyncio.sleep(0.003)
        await append_round(store, 2)
        with pytest.raises(ValueError, match="rolled back"):
            await failing
        assert met == 20
        await check(store, 2)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE streams SET guard = guard + 1, changed = changed + 1000 WHERE name = 's3'",
        "UPDATE producers SET guard = guard + 1 WHERE stream = (SELECT id FROM streams WHERE name = 's3')",
    ],
    ids=["stream", "producer"],
)
async def test_a_batch_moves_no_number_that_is_damaged_and_numbers_each_change(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as store:
        for seq in range(2):
            await append_round(store, seq + 1, producer=Producer("p", 0, seq))
            numbers = await store.database.read("SELECT changed FROM streams")
            assert numbers == [((seq + 1) * MANY,)] * MANY  # one for all of a batch, which counts each of them
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("DROP TRIGGER watermarks_never_fall")
            raw.execute(damage)
        tries = [store.append(f"s{n}", [NewEvent("t", b"%d.3" % n)], producer=Producer("p", 0, 2)) for n in range(MANY)]
        told = await asyncio.gather(*tries, return_exceptions=True)
        assert [isinstance(each, CorruptEvent) for each in told] == [n == 3 for n in range(MANY)]
        await check(store, 3, [n for n in range(MANY) if n != 3])
