"""A client follows a server through all that breaks: each event once, in order, and an end only where nothing helps."""

from __future__ import annotations

import asyncio
import random
import sys
import tracemalloc
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from ledger import open_ledger
from stream import NewEvent, open_store
from stream.client import RemoteEvent, RemoteOutOfOrder, RemoteRefused, RemoteSnapshot, RemoteUnreadable, follow_remote
from stream.client.pauses import FIRST_S, LONGEST_S, Pauses
from tests.broken_lines import HEAD, answering, asked_after, breaking, frame, frames, refusal, serving
from tests.serving import serve

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.client.pauses.FIRST_S", 0.001)
    monkeypatch.setattr("stream.client.pauses.LONGEST_S", 0.01)


async def pull(url: str, last: int, **options: Any) -> list[RemoteEvent | RemoteSnapshot]:
    """What comes until the event `last`."""
    taken: list[RemoteEvent | RemoteSnapshot] = []
    with anyio.fail_after(50):
        async with aclosing(follow_remote(url, **options)) as events:
            async for event in events:
                taken.append(event)
                if event.seq == last:
                    break
    return taken


def check(taken: list[RemoteEvent | RemoteSnapshot], last: int, *, after: int = 0) -> None:
    """Each once, in order, and its own body."""
    assert taken == [RemoteEvent(seq, "n.n", b'{"n":%d}' % seq) for seq in range(after + 1, last + 1)]


def numbered(first: int, last: int) -> list[NewEvent]:
    return [NewEvent("n.n", b'{"n":%d}' % number) for number in range(first, last + 1)]


async def test_an_answer_cut_at_any_byte_is_gone_on_from_the_last_whole_event(short_pauses: None) -> None:
    del short_pauses
    whole = HEAD + b"retry: 100\n\n:\n\n" + frames(1, 3)
    cut = 0

    def answer(number: int, request: bytes) -> bytes:
        return whole[:cut] if number % 2 else HEAD + frames(asked_after(request) + 1, 3) + frame(4)

    async with answering(answer) as (url, requests), httpx.AsyncClient() as client:
        for cut in range(len(whole)):  # noqa: B007 - the server looks at it
            check(await pull(url, 4, client=client), 4)
            if len(requests) % 2:
                requests.append(b"")
    assert len(requests) == 2 * len(whole)


@pytest.mark.heavy
async def test_behind_a_proxy_that_breaks_everything_each_event_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_pauses: None
) -> None:
    del monkeypatch, short_pauses
    chance = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    database = tmp_path / "talks.db"
    async with open_store(str(database)) as store:
        await store.append("c", numbered(1, 1000))
        with serve(database) as server:
            async with breaking(server.port, chance, most_bytes=9000) as (url, done), anyio.create_task_group() as tasks:

                async def write() -> None:
                    for number in range(1001, 2001, 20):
                        await store.append("c", numbered(number, number + 19))
                        await asyncio.sleep(0.01)

                tasks.start_soon(write)
                check(await pull(f"{url}/v1/conversations/c/events", 2000, silent_s=0.3), 2000)
    assert set(done) == {"cut", "reset", "stall", "garbage"}


WRITER = """
import asyncio, sys
from ledger import open_ledger
from stream import NewEvent, open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        for number in range(1, 3001, 10):
            events = [NewEvent("n.n", b'{"n":%d}' % each) for each in range(number, number + 10)]
            await store.append("c", events, expected_seq=number - 1 + 1)
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


@pytest.mark.heavy
async def test_over_kills_of_the_server_each_event_of_another_process_comes_once(tmp_path: Path) -> None:
    database, taken, broken = tmp_path / "talks.db", list[RemoteEvent | RemoteSnapshot](), list[str]()
    async with open_store(str(database)) as store:
        await store.append("c", numbered(0, 0))
    with serve(database) as server, anyio.fail_after(60):

        async def follow() -> None:
            url = f"{server.url}/v1/conversations/c/events"
            async with aclosing(follow_remote(url, after=1, broken=broken.append)) as events:
                async for event in events:
                    taken.append(event)
                    if event.seq == 3001:
                        break

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            tasks.start_soon(anyio.run_process, [sys.executable, "-c", WRITER, str(database)])
            for share in (500, 1200, 2000):
                while len(taken) < share:
                    await asyncio.sleep(0.005)
                await asyncio.to_thread(server.restart)
    assert taken == [RemoteEvent(seq, "n.n", b'{"n":%d}' % (seq - 1)) for seq in range(2, 3002)]
    assert len(broken) >= 3


async def test_it_asks_from_where_it_is_with_what_it_was_given(short_pauses: None) -> None:
    del short_pauses

    def answer(number: int, request: bytes) -> bytes:
        after = asked_after(request)
        head = HEAD.replace(b"\r\n\r\n", b"\r\nTailfold-Incarnation: abc\r\n\r\n")
        return head + frames(after + 1, after + 2) if number < 3 else refusal(204)

    async with answering(answer) as (url, requests):
        taken = [each async for each in follow_remote(f"{url}/e?x=1", after=5, headers={"Authorization": "Bearer t"})]
    check(taken, 9, after=5)
    assert [asked_after(request) for request in requests] == [5, 7, 9]
    assert all(b"authorization: bearer t\r\n" in request.lower() for request in requests)
    assert [request.split()[1] for request in requests] == [b"/e?x=1", b"/e?x=1&incarnation=abc", b"/e?x=1&incarnation=abc"]


@pytest.mark.parametrize(
    ("status", "way_out"), [(400, "mend"), (401, "token"), (403, "covers"), (404, "address"), (410, "mend")]
)
async def test_what_means_no_is_raised_with_what_the_server_says(status: int, way_out: str) -> None:
    body = b'{"status":%d,"detail":"because of that"}' % status
    async with answering(lambda _, __: refusal(status, body=body)) as (url, requests):
        with pytest.raises(RemoteRefused) as told:
            await anext(follow_remote(f"{url}/events?ticket=secret"))
    assert (told.value.status, told.value.url, told.value.detail) == (status, f"{url}/events", "because of that")
    assert way_out in str(told.value)
    assert "secret" not in str(told.value)
    assert len(requests) == 1


async def test_it_follows_no_redirection_with_its_token() -> None:
    for place in ("http://elsewhere/events", "http://u:secret@elsewhere/events?ticket=secret#secret"):
        async with answering(lambda _, __, place=place: refusal(302, f"Location: {place}")) as (url, requests):  # type: ignore[misc]
            with pytest.raises(RemoteRefused, match="http://elsewhere/events") as told:
                await anext(follow_remote(url, headers={"Authorization": "Bearer t"}))
        assert len(requests) == 1
        assert "secret" not in f"{told.value} {told.value.detail}"


async def test_the_kind_of_an_answer_is_written_in_any_case(short_pauses: None) -> None:
    del short_pauses
    kind = b"Text/Event-Stream; charset=latin-1"
    said = '"ü"'.encode()
    async with answering(lambda _, __: HEAD.replace(b"text/event-stream", kind) + frame(1, said)) as (url, _):
        assert await pull(url, 1) == [RemoteEvent(1, "n.n", said)]


async def test_an_answer_of_another_kind_is_none() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"
    async with answering(lambda _, __: page) as (url, _):
        with pytest.raises(RemoteUnreadable, match="text/html"):
            await anext(follow_remote(url))


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_what_passes_is_waited_for(status: int, short_pauses: None) -> None:
    del short_pauses
    broken: list[str] = []
    async with answering(lambda number, _: refusal(status) if number < 5 else HEAD + frame(1)) as (url, _):
        check(await pull(url, 1, broken=broken.append), 1)
    assert len(broken) == 4
    assert str(status) in broken[0]


async def test_it_waits_as_long_as_the_server_asks(short_pauses: None) -> None:
    del short_pauses
    began = anyio.current_time()
    async with answering(lambda number, _: refusal(503, "Retry-After: 1") if number < 2 else HEAD + frame(1)) as (url, _):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("stream.client.pauses.LONGEST_S", 0.5)
            check(await pull(url, 1), 1)
    assert 0.5 <= anyio.current_time() - began < 5


@pytest.mark.parametrize("wrong", [1, 2, 5, "", "x", "-3", "9" * 30], ids=str)
async def test_another_number_than_the_next_is_not_handed_on(wrong: int | str, short_pauses: None) -> None:
    """Once it is asked for again; where that does not help, it is said."""
    del short_pauses
    odd = frames(1, 2) + f"id: {wrong}\nevent: n.n\ndata: 1\n\n".encode()
    async with answering(lambda n, request: HEAD + (odd if n == 1 else frames(asked_after(request) + 1, 4))) as (url, requests):
        check(await pull(url, 4), 4)
    assert [asked_after(request) for request in requests] == [0, 2]
    async with answering(lambda n, _: HEAD + (odd if n == 1 else odd[len(frames(1, 2)) :])) as (url, requests):
        events = follow_remote(url)
        check([await anext(events), await anext(events)], 2)
        with pytest.raises(RemoteOutOfOrder) as told:
            await anext(events)
    assert told.value.expected == 3
    assert len(requests) == 3


async def test_a_snapshot_stands_for_what_can_not_be_had(short_pauses: None) -> None:
    del short_pauses
    said = b'{"seq":40,"incarnation":"new","messages":[],"open_runs":[]}'
    named = frame(42, b'{"text":"it is only called so"}', event="snapshot")

    def answer(number: int, request: bytes) -> bytes:
        if number == 1:
            return HEAD + frame(40, said, event="snapshot") + frame(41) + named
        return HEAD + frames(asked_after(request) + 1, 43)

    async with answering(answer) as (url, requests):
        taken = await pull(url, 43, after=7, incarnation="old")
    assert taken[0] == RemoteSnapshot(40, "new", said)
    assert [(each.seq, getattr(each, "type", "")) for each in taken[1:]] == [(41, "n.n"), (42, "snapshot"), (43, "n.n")]
    assert [(asked_after(each), each.split()[1]) for each in requests] == [
        (7, b"/?incarnation=old"),
        (42, b"/?incarnation=new"),
    ]


async def test_a_position_below_the_floor_or_of_another_store_gets_a_snapshot_of_the_server(tmp_path: Path) -> None:
    database = tmp_path / "talks.db"
    async with open_ledger(str(database)) as ledger:
        async with ledger.run("c", run_id="r1") as run:
            await run.message("user", "hello")
        await ledger.compact("c")
        bounds = await ledger.store.bounds("c")
        assert bounds.floor > 1
        with serve(database) as server:
            url = f"{server.url}/v1/conversations/c/events"
            for options in ({"after": 1}, {"after": bounds.head, "incarnation": "another"}, {"after": bounds.head + 9}):
                async with aclosing(follow_remote(url, **options)) as events:
                    with anyio.fail_after(20):
                        snapshot = await anext(events)
                        assert isinstance(snapshot, RemoteSnapshot)
                        assert (snapshot.seq, snapshot.incarnation) == (bounds.head, ledger.store.incarnation)
                        assert b"hello" in snapshot.data
                        await ledger.record("c", numbered(1, 1))
                        event = await anext(events)
                assert isinstance(event, RemoteEvent)
                assert event.seq == bounds.head + 1
                bounds = await ledger.store.bounds("c")


@pytest.mark.heavy
async def test_nothing_is_a_position_only_for_who_was_told_so(tmp_path: Path, short_pauses: None) -> None:
    """An unknown conversation is refused; one that went with an older copy of the store is waited for."""
    del short_pauses
    with serve(tmp_path / "talks.db") as server:
        url = f"{server.url}/v1/conversations/c/events"
        with pytest.raises(RemoteRefused):
            await anext(follow_remote(url))
        async with aclosing(follow_remote(url, after=4)) as events:
            with anyio.fail_after(30):
                assert (await anext(events)).seq == 0
                await asyncio.to_thread(server.restart)
                following = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.5)
                async with open_store(server.database) as store:
                    await store.append("c", numbered(1, 1))
                assert await following == RemoteEvent(1, "n.n", b'{"n":1}')


async def test_the_position_is_the_one_that_is_given_and_not_one_in_the_address(short_pauses: None) -> None:
    del short_pauses
    async with answering(lambda _, request: HEAD + frames(asked_after(request) + 1, 2)) as (url, requests):
        check(await pull(f"{url}/events?after=1&x=%2F", 2), 2)
    assert b"/events?x=" in requests[0]
    assert b"after" not in requests[0]


@pytest.mark.heavy
async def test_a_silent_connection_is_given_up_and_a_heartbeat_keeps_one(short_pauses: None) -> None:
    del short_pauses
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        if connections == 1:
            await asyncio.sleep(30)
        for _ in range(10):
            writer.write(b":\n\n")
            await asyncio.sleep(0.1)
        writer.write(frame(1))
        await asyncio.sleep(30)

    broken: list[str] = []
    async with serving(handle) as url:
        check(await pull(url, 1, silent_s=0.4, broken=broken.append), 1)
    assert connections == 2
    assert len(broken) == 1
    assert "too long" in broken[0]


async def test_memory_does_not_depend_on_how_much_comes() -> None:
    """Two megabytes of heartbeats, and 20 of events that are taken one by one, slower than they are sent."""
    many = 2000

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        for _ in range(20):
            writer.write(b":\n\n" * 30_000)
            await writer.drain()
        for seq in range(1, many + 1):
            writer.write(frame(seq, b"%010000d" % seq))
            await writer.drain()

    async with serving(handle) as url:
        count = 0
        async with aclosing(follow_remote(url)) as events:
            async for event in events:
                count += 1
                assert event.seq == count
                if count == 1:
                    tracemalloc.start()
                if count == many:
                    break
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 3_000_000


def test_pauses_grow_are_never_the_same_and_begin_short_again() -> None:
    pauses = Pauses()
    taken = [pauses.next_s() for _ in range(200)]
    assert all(0 < each <= LONGEST_S for each in taken)
    assert taken[0] <= FIRST_S
    assert len(set(taken)) == 200
    assert sum(taken[50:]) / 150 > LONGEST_S / 3
    assert LONGEST_S <= pauses.next_s(at_least_s=3600) <= 2 * LONGEST_S
    pauses.reset()
    assert pauses.next_s() <= FIRST_S


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://x/", {}), ("x", {}), ("http://", {}), ("http://[::1", {}), ("http://x/", {"after": -1}),
        ("http://x/", {"after": "1"}), ("http://x/", {"silent_s": 0}), ("http://x/", {"headers": {"a": "b\r\nc: d"}}),
    ],
)  # fmt: skip
async def test_what_can_not_be_asked_is_refused_at_once(url: str, options: dict[str, Any]) -> None:
    with anyio.fail_after(5), pytest.raises(ValueError, match=r"url|after|silent_s|asked"):
        await anext(follow_remote(url, **options))


async def test_a_server_that_is_not_there_yet_is_waited_for(short_pauses: None) -> None:
    del short_pauses
    async with answering(lambda _, __: b"") as (url, _):
        pass
    broken: list[str] = []

    def enough(why: str) -> None:
        broken.append(why)
        if len(broken) == 5:
            scope.cancel()

    with anyio.CancelScope() as scope:
        await anext(follow_remote(url, broken=enough))
    assert len(broken) == 5
    assert url in broken[0]
