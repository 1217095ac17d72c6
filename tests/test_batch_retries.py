"""A batch that another process was faster than is tried again before what has come since (laws 1, 3)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from stream import AppendResult, Event, NewEvent, Producer
from tests.test_batch_packing import opened
from tests.test_sqlite_batches import MANY, append_round, check

if TYPE_CHECKING:
    from pathlib import Path

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
        while not store._appender._again:
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
