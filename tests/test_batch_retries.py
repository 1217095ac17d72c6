"""A batch that another process was faster than is tried again before what has come since (laws 1, 3)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from stream import NewEvent
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
