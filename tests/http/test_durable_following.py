"""Durable Streams that are followed: they live as long, what ends them ends quietly, and the end is told where it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import structlog

from stream import CorruptEvent, NewEvent
from stream.http.durable.paths import stream_id
from stream.memory import MemoryStore
from tests.http.asgi_streams import Answer, ask
from tests.http.durable_workers import Clock, Worker

if TYPE_CHECKING:
    import contextlib

    from stream import Event

pytestmark = pytest.mark.anyio


def follow(worker: Worker, path: str, live: str = "sse", offset: str = "-1") -> contextlib.AbstractAsyncContextManager[Answer]:
    return ask(worker.app, "GET", f"/v1/stream/{path}?offset={offset}&live={live}", headers={"host": "streams.test"})


def controls(answer: Answer) -> list[dict[str, Any]]:
    """What the control events say."""
    lines = answer.body.decode().split("\n")
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:{")]


async def wait_in_time(worker: Worker, clock: Clock) -> None:
    """More than its time to live, in steps that are shorter; each time another process hears that it is wanted."""
    for _ in range(2):
        clock.pass_s(0.6)
        before = (await worker.endpoint._streams.open(stream_id("a", 1))).head
        with anyio.fail_after(2):
            while (await worker.endpoint._streams.open(stream_id("a", 1))).head == before:
                await anyio.sleep(0.01)
        await worker.endpoint.expiry.expire()


async def test_a_stream_that_is_followed_outlives_its_time_to_live() -> None:
    clock = Clock()
    store = MemoryStore(clock_ms=clock)
    async with Worker(store, clock) as worker, Worker(store, clock) as other:
        await worker.make("a", Stream_TTL="1")
        await other.endpoint.expiry.look()
        async with follow(worker, "a") as answer:
            await answer.until(b"upToDate")
            await wait_in_time(other, clock)
            await other.add("a", b"late", Stream_Closed="true")
            await answer.end()
            assert b"data:late" in answer.body
        clock.pass_s(3)
        assert (await other.get("a")).status_code == 404, "nobody follows it any more"


async def test_so_does_one_that_is_waited_for() -> None:
    clock = Clock()
    store = MemoryStore(clock_ms=clock)
    async with Worker(store, clock, long_poll_s=20) as worker, Worker(store, clock) as other:
        await worker.make("a", Stream_TTL="1")
        await other.endpoint.expiry.look()
        answers: list[Any] = []
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                answers.append(await worker.get("a", params={"offset": "-1", "live": "long-poll"}))

            group.start_soon(wait)
            await wait_in_time(other, clock)
            await other.add("a", b"late")
        assert (answers[0].status_code, answers[0].text) == (200, "late")


class Held:
    """A store whose second page of a stream comes only when it is let, or never."""

    def __init__(self, store: MemoryStore, failure: Exception | None = None) -> None:
        self._store = store
        self._failure = failure
        self._reads = 0
        self.is_asked = anyio.Event()
        self.is_let = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        if after > 1:
            self.is_asked.set()
            await self.is_let.wait()
            if self._failure is not None:
                raise self._failure
        return await self._store.read(stream, after=after, limit=limit)


class Counting:
    """A store that counts the bytes that are read of it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        found = await self._store.read(stream, after=after, limit=limit)
        self.bytes += sum(len(event.data) for event in found)
        return found


async def make_long(worker: Worker) -> None:
    await worker.make("a")
    for _ in range(3):
        await worker.add("a", b"x" * (1 << 20))


async def test_a_deletion_while_one_catches_up_ends_it_without_a_failure() -> None:
    store = MemoryStore()
    async with Worker(store) as other:
        await make_long(other)
        held = Held(store)
        async with Worker(held) as worker, follow(worker, "a") as answer:
            await held.is_asked.wait()
            assert (await other.delete("a")).status_code == 204
            held.is_let.set()
            await answer.end()
            assert (answer.status, answer.failure, answer.is_whole) == (200, None, True)
            assert (await worker.get("a")).status_code == 404


async def test_a_stream_that_turns_out_to_be_damaged_is_broken_off_and_the_log_says_which() -> None:
    store = MemoryStore()
    async with Worker(store) as other:
        await make_long(other)
        held = Held(store, CorruptEvent(stream_id("a", 1), 3, "a bit is wrong"))
        held.is_let.set()
        async with Worker(held) as worker:
            with structlog.testing.capture_logs() as logs:
                async with follow(worker, "a") as answer:
                    await answer.end()
    assert (answer.failure, answer.is_whole) == (None, False)
    assert [(log["event"], log["stream_id"]) for log in logs] == [("durable.follow_failed", stream_id("a", 1))]


async def test_the_end_is_told_where_it_is_and_not_behind_each_part_of_what_came_at_once() -> None:
    async with Worker(MemoryStore()) as worker:
        await worker.make("a", "application/json")
        async with follow(worker, "a") as answer, follow(worker, "a") as second:
            for one in (answer, second):
                await one.until(b"upToDate")
            sent = json.dumps(["x" * 50_000] * 4).encode()
            tail = (await worker.add("a", sent, "application/json")).headers["Stream-Next-Offset"]
            for one in (answer, second):
                await one.until(tail.encode())
                ends = [said["streamNextOffset"] for said in controls(one)[1:] if "upToDate" in said]
                assert ends == [tail]


async def test_the_end_is_told_though_what_came_last_is_no_message() -> None:
    """An event that nobody is shown lies behind the message, in the next batch."""
    store = MemoryStore()
    async with Worker(store) as worker:
        await worker.make("a", "application/json")
        async with follow(worker, "a") as answer:
            await answer.until(b"upToDate")
            kinds = [("data", b'"%s"' % (b"x" * 70_000)), ("touch", b"")]
            await store.append(stream_id("a", 1), [NewEvent(kind, data) for kind, data in kinds])
            await anyio.sleep(0.05)
        said = controls(answer)
        assert said[-1]["streamNextOffset"] == (await worker.head("a")).headers["Stream-Next-Offset"]
        assert said[-1]["upToDate"]


async def test_a_full_page_that_was_the_end_is_another_one_when_more_has_come() -> None:
    """A cache that was told 304 keeps the headers it has, and whoever reads to the end would stop there."""
    async with Worker(MemoryStore()) as worker:
        await worker.make("a", content=b"x" * (1 << 20))
        page = await worker.get("a")
        assert page.headers["Stream-Up-To-Date"] == "true"
        known = {"If-None-Match": page.headers["ETag"]}
        assert (await worker.get("a", headers=known)).status_code == 304
        await worker.add("a", b"more")
        again = await worker.get("a", headers=known)
        assert (again.status_code, again.headers.get("Stream-Up-To-Date")) == (200, None)


@pytest.mark.parametrize("size", [500, 10_000, 200_000])
async def test_who_catches_up_is_given_little_at_once(size: int) -> None:
    """A page of a megabyte for each of those who do not read would fill the memory."""
    counting = Counting(MemoryStore())
    async with Worker(counting) as worker:
        await worker.make("a")
        for n in range(min(200, 1_000_000 // size)):
            await worker.add("a", b"%06d" % n + b"x" * (size - 6))
        wanted = await worker.text("a")
        counting.bytes = 0
        async with follow(worker, "a") as answer:
            await answer.until(b"upToDate")
        assert counting.bytes < 5 * len(wanted), "and next to nothing is read in vain"
        parts = [part.partition(b"\n\n")[0] for part in answer.body.split(b"event: data\ndata:")[1:]]
        assert b"".join(parts).decode() == wanted
        assert max(map(len, parts)) <= 64 * 1024 + size
        assert len([said for said in controls(answer) if "upToDate" in said]) == 1
