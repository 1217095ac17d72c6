"""Durable Streams: whatever two processes do at the same moment, one of them is first, and the other one sees it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from stream import NewEvent
from stream.http.durable.paths import stream_id
from tests.http.durable_workers import Meddler, Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stream import EventStore

    Meddle = Callable[[str, Callable[[], Awaitable[object]]], Worker]

pytestmark = pytest.mark.anyio


@pytest.fixture
def other(worker: Worker) -> Worker:
    """The process that is there at the same moment."""
    return worker


def meddle(store: EventStore, before: str, act: Callable[[], Awaitable[object]]) -> Worker:
    """A server to which something happens right before it appends."""
    return Worker(Meddler(store, before, act))


async def test_nothing_is_appended_behind_a_close_of_another_process(store: EventStore, other: Worker) -> None:
    await other.make("a")
    async with meddle(store, "data", lambda: other.add("a", b"last", Stream_Closed="true")) as worker:
        answer = await worker.add("a", b"late")
        assert (answer.status_code, answer.headers["Stream-Closed"]) == (409, "true")
        assert await worker.text("a") == "last"


async def test_nothing_is_appended_to_a_life_that_another_process_ended(store: EventStore, other: Worker) -> None:
    await other.make("a", content=b"old")

    async def replace() -> None:
        assert (await other.delete("a")).status_code == 204
        assert (await other.make("a")).status_code == 201

    async with meddle(store, "data", replace) as worker:
        assert (await worker.add("a", b"x")).status_code == 204
        assert await other.text("a") == "x", "acknowledged means there, in the stream that lives"


async def test_what_was_decided_before_another_request_of_the_same_process_is_decided_again(store: EventStore) -> None:
    worker: Worker

    async def end() -> None:
        assert (await worker.delete("a")).status_code == 204

    async with meddle(store, "(producer)", end) as worker:
        await worker.make("a")
        told = {"Producer_Id": "p", "Producer_Epoch": "0", "Producer_Seq": "0"}
        assert (await worker.add("a", b"x", **told)).status_code == 404


async def test_a_sequence_is_taken_once(store: EventStore, other: Worker) -> None:
    await other.make("a")
    async with meddle(store, "data", lambda: other.add("a", b"first", Stream_Seq="1")) as worker:
        assert (await worker.add("a", b"second", Stream_Seq="1")).status_code == 409
        assert await worker.text("a") == "first"


async def test_a_repeat_that_reaches_two_processes_is_stored_once(store: EventStore, other: Worker) -> None:
    await other.make("a")
    told = {"Producer_Id": "p", "Producer_Epoch": "3", "Producer_Seq": "0"}
    async with meddle(store, "data", lambda: other.add("a", b"x", **told)) as worker:
        answer = await worker.add("a", b"x", **told)
        assert (answer.status_code, answer.headers["Producer-Seq"]) == (204, "0")
        assert await worker.text("a") == "x"


@pytest.mark.parametrize(("media", "status"), [("text/plain", 200), ("text/html", 409)])
async def test_a_path_is_created_once(store: EventStore, other: Worker, media: str, status: int) -> None:
    async with meddle(store, "open", lambda: other.make("a", content=b"other")) as worker:
        assert (await worker.make("a", media, content=b"mine")).status_code == status
        assert await worker.text("a") == "other"


async def test_a_path_that_was_free_a_moment_ago_gets_no_second_life_beside_the_first(store: EventStore, other: Worker) -> None:
    async with meddle(store, "(bounds)", lambda: other.make("a", content=b"other")) as worker:
        assert (await worker.make("a", content=b"mine")).status_code == 200
        assert await worker.text("a") == "other"
        assert not (await store.bounds(stream_id("a", 2))).head


async def test_many_processes_create_one_life_after_another(store: EventStore) -> None:
    workers = [Worker(store) for _ in range(4)]
    for life in range(1, 12):
        answers = await asyncio.gather(*(worker.make("a", content=b"%d" % life) for worker in workers))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
        assert await workers[0].text("a") == str(life)
        deleted = await asyncio.gather(*(worker.delete("a") for worker in workers))
        assert {answer.status_code for answer in deleted} <= {204, 404}
        assert (await workers[1].get("a")).status_code == 404
    assert (await store.bounds(stream_id("a", 11))).origin > 0
    assert not (await store.bounds(stream_id("a", 12))).head
    async with Worker(store) as fresh:
        assert (await fresh.get("a")).status_code == 404
        assert (await fresh.make("a")).status_code == 201


async def test_a_fork_of_what_is_deleted_meanwhile_is_not_there(store: EventStore, other: Worker) -> None:
    """The source knew of it, and takes its place, so that it never reads what has gone."""
    await other.make("source", content=b"text")
    async with meddle(store, "open", lambda: other.delete("source")) as worker:
        answer = await worker.make("fork", Stream_Forked_From="/v1/stream/source")
        assert answer.status_code == 404
        assert (await worker.get("fork")).status_code == 404
        assert (await other.get("source")).status_code == 404
        assert (await worker.make("fork")).status_code == 201


async def test_a_source_that_is_forked_while_it_is_deleted_is_kept(store: EventStore, other: Worker) -> None:
    await other.make("source", content=b"text")
    forking = lambda: other.make("fork", Stream_Forked_From="/v1/stream/source")  # noqa: E731
    async with meddle(store, "delete", forking) as worker:
        assert (await worker.delete("source")).status_code == 204
        assert (await worker.get("source")).status_code == 410
        assert await worker.text("fork") == "text"


async def test_a_fork_that_comes_while_the_others_are_looked_at_is_not_overlooked(store: EventStore) -> None:
    worker: Worker

    async def fork() -> None:
        assert (await worker.make("fork", Stream_Forked_From="/v1/stream/source")).status_code == 201

    async with meddle(store, "delete", fork) as worker:
        await worker.make("source", content=b"text")
        await store.append(stream_id("source", 1), [NewEvent("fork", stream_id("ghost", 1).encode())])  # and never created
        assert (await worker.delete("source")).status_code == 204
        assert await worker.text("fork") == "text"
        assert (await worker.delete("fork")).status_code == 204
        assert (await worker.get("source")).status_code == 404
        assert (await worker.make("ghost")).status_code == 201


async def test_a_deletion_that_was_broken_off_is_finished_by_whoever_comes(store: EventStore, other: Worker) -> None:
    await other.make("source", content=b"text")
    await other.make("fork", Stream_Forked_From="/v1/stream/source")
    await other.delete("source")
    head = (await store.bounds(stream_id("fork", 1))).head
    await store.append(stream_id("fork", 1), [NewEvent("delete", b"")], expected_seq=head)  # and then it was killed
    async with Worker(store) as worker:
        assert (await worker.get("fork")).status_code == 404
        assert (await worker.get("source")).status_code == 404
        for path in ("fork", "source"):
            bounds = await store.bounds(stream_id(path, 1))
            assert bounds.origin == bounds.head > 0, "its events are dropped"


async def test_a_chain_of_forks_goes_with_its_last(other: Worker) -> None:
    await other.make("f0", content=b"0")
    for n in range(1, 60):
        made = await other.make(f"f{n}", content=b"," + str(n).encode(), Stream_Forked_From=f"/v1/stream/f{n - 1}")
        assert made.status_code == 201
    assert await other.text("f59") == ",".join(map(str, range(60)))
    for n in range(59):
        assert (await other.delete(f"f{n}")).status_code == 204
    assert (await other.get("f58")).status_code == 410
    assert await other.text("f59") == ",".join(map(str, range(60)))
    assert (await other.delete("f59")).status_code == 204
    for n in range(60):
        assert (await other.get(f"f{n}")).status_code == 404


async def test_whatever_happens_at_once_nothing_fails_and_nothing_is_left(store: EventStore) -> None:
    """Three processes create, fork, append to, read and delete the same few paths; in the end every life has ended."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    workers = [Worker(store) for _ in range(3)]
    paths = ["a", "b", "c", "d"]

    async def act() -> None:
        for _ in range(40):
            worker, path, other = chance.choice(workers), chance.choice(paths), chance.choice(paths)
            fork: dict[str, Any] = {"Stream_Forked_From": other}
            ways: list[tuple[str, dict[str, Any]]] = [
                    ("make", {"content": b"begin"}), ("make", fork | {"content": b"fork"}), ("make", fork), ("get", {}),
                    ("add", {"content": b"more"}), ("add", {"content": b"last", "Stream_Closed": "true"}), ("delete", {}),
                    ("delete", {}),
                ]  # fmt: skip
            name, more = chance.choice(ways)
            answer = await getattr(worker, name)(path, **more)
            assert answer.status_code in (200, 201, 204, 404, 409, 410), answer.text

    await asyncio.gather(*(act() for _ in range(6)))
    for _ in range(len(paths)):  # a fork may hold another
        for path in paths:
            await workers[0].delete(path)
    for path in paths:
        assert (await workers[1].get(path)).status_code == 404
    lives = [info async for info in store.streams(prefix="ds:")]
    assert len(lives) > len(paths)
    assert [info.stream_id for info in lives if info.origin != info.head] == []
