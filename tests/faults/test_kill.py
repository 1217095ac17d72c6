"""SIGKILL at any moment, again and again on one file: whatever a process was told is true (laws 1, 2, 3, 5)."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from stream import AppendResult, open_store
from stream.testing.killing import Broken, Job, Record, kill_while
from tests.batch_rounds import open_packing
from tests.faults.sizes import size

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stream.testing.killing import Opener

pytestmark = pytest.mark.anyio


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as raw:
        return str(raw.execute("PRAGMA integrity_check").fetchone()[0])


async def live_and_die(
    path: Path, job: Job, record: Record, chance: random.Random, *, longest_s: float = 0.2, opener: Opener = open_packing
) -> None:
    """One life of a process, and what its successor finds. Every third time the next one is killed first."""
    seed, after_s = chance.randrange(2**32), chance.uniform(0, longest_s)
    record.add(await anyio.to_thread.run_sync(partial(kill_while, str(path), job, seed=seed, after_s=after_s, opener=opener)))
    if chance.random() < 0.33 or not path.exists():
        return
    async with open_store(str(path)) as store:
        await record.check(store)
        await record.retry(store)
        await record.check(store)
    assert integrity(path) == "ok"


def packed(path: Path) -> int:
    with closing(sqlite3.connect(path)) as raw:
        return int(raw.execute("SELECT count(*) FROM chunks").fetchone()[0])


def has_met_all(job: Job, path: Path, record: Record) -> bool:
    """Whether something was acknowledged yet, and packed where that is what the job is for."""
    return record.acknowledged > 0 and (job != "many" or packed(path) > 0)


@pytest.mark.parametrize(
    "job", ["all", *(pytest.param(job, marks=pytest.mark.heavy) for job in ("write", "many", "sweep", "snapshot"))]
)
async def test_what_a_killed_process_was_told_is_true(tmp_path: Path, chance: random.Random, job: Job) -> None:
    """Known faults K1, K2, K6, K8, K11, K16, K18, K20: one file lives through all rounds, so that recoveries pile up."""
    path, record = tmp_path / "log.db", Record()
    rounds, longest_s = 0, 0.2
    while rounds < size(smoke=6, full=40) or not has_met_all(job, path, record):
        await live_and_die(path, job, record, chance, longest_s=longest_s)
        rounds += 1
        assert rounds < 200, "nothing was ever acknowledged, or nothing packed"
        if not has_met_all(job, path, record):  # on a busy machine a process needs longer to get anywhere
            longest_s = min(longest_s + 0.1, 5)
    async with open_store(str(path)) as store:
        await record.check(store)
    print(f"{job}: {rounds} kills, {record.acknowledged} acknowledgements, {packed(path)} chunks, 0 lost")


class _Hasty:
    """A store that acknowledges an append before it is stored."""

    def __init__(self, store: Any, tasks: anyio.abc.TaskGroup) -> None:
        self._store, self._tasks = store, tasks
        self._heads: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, stream_id: str, events: list[Any], **options: Any) -> AppendResult:
        if stream_id not in self._heads:
            self._heads[stream_id] = (await self._store.bounds(stream_id)).head
        first = self._heads[stream_id] + 1
        self._heads[stream_id] += len(events)
        self._tasks.start_soon(partial(self._store.append, stream_id, events, **options))
        await anyio.sleep(0)
        return AppendResult(first, self._heads[stream_id])


@asynccontextmanager
async def open_hasty_store(url: str) -> AsyncIterator[Any]:
    async with open_store(url) as store, anyio.create_task_group() as tasks:
        yield _Hasty(store, tasks)


async def test_canary_a_store_that_acknowledges_too_early_is_caught(tmp_path: Path, chance: random.Random) -> None:
    record = Record()

    async def many_lives() -> None:
        for number in range(60):  # on a busy machine a process needs longer to get anywhere
            longest_s = 0.2 if number < 20 else 2
            await live_and_die(tmp_path / "log.db", "write", record, chance, opener=open_hasty_store, longest_s=longest_s)

    with pytest.raises(Broken):
        await many_lives()
