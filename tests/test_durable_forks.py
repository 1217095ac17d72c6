"""Durable Streams that are forks: no place that is told skips anything, whatever was dropped, deleted and created again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stream import NewEvent, open_store
from stream.http.durable import truncate
from stream.http.durable.paths import stream_id
from tests.durable_workers import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stream import EventStore

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventStore]:
    async with open_store("memory:" if request.param == "memory" else str(tmp_path / "log.db")) as store:
        yield store


@pytest.fixture
async def worker(store: EventStore) -> AsyncIterator[Worker]:
    async with Worker(store) as worker:
        yield worker


async def add(worker: Worker, path: str, count: int) -> list[str]:
    """The places behind messages that are added one by one: 0, 1, 2…"""
    return [(await worker.add(path, b"%d" % n)).headers["Stream-Next-Offset"] for n in range(count)]


async def test_a_fork_whose_beginning_was_dropped_is_told_to_begin_at_its_own_first_message(
    store: EventStore, worker: Worker
) -> None:
    await worker.make("source")
    places = await add(worker, "source", 10)
    await worker.make("fork", Stream_Forked_From="source", Stream_Fork_Offset=places[2])
    await worker.make("later", Stream_Forked_From="source", Stream_Fork_Offset=places[8])
    for path in ("fork", "later"):
        for word in (b"a", b"b", b"c", b"d", b"e", b"f"):
            await worker.add(path, word)
    await truncate(store, "source", before=places[6])
    for path, left in (("fork", "abcdef"), ("later", "78abcdef")):
        for place in ("-1", places[0]):
            answer = await worker.get(path, params={"offset": place})
            assert answer.status_code == 410
            assert await worker.text(path, answer.json()["offset"]) == left
