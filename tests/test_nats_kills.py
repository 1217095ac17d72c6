"""A NATS server that is killed, and many writers: nothing that was acknowledged is lost, nothing is stored twice."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from stream import Event, NewEvent, Producer, StoreUnreachable, StreamError, follow, follow_all, open_store
from stream.nats import client, open_nats
from stream.testing.killing import Record, kill_while
from tests.faults.sizes import size
from tests.faults.tcp_proxy import Proxy
from tests.nats_server import NatsServer, running, three_running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stream import EventStore
    from stream.testing.killing import Job

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.heavy]
STREAMS = ("s", "own a", "own b", "own c")


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with running() as started:
        yield started


async def append_on(store: EventStore, name: str, kind: str, done: asyncio.Event, told: dict[bytes, int]) -> None:
    """Appends one after the other, by a producer, by name, or where it is expected, and repeats what is not known."""
    n = 0
    head = 0
    while not done.is_set():
        data = f"{name} {n}".encode()
        while True:
            try:
                if kind == "producer":
                    result = await store.append("s", [NewEvent("t", data)], producer=Producer(name, 0, n))
                elif kind == "name":
                    events = [NewEvent("t", data), NewEvent("t", data + b"+")]
                    result = await store.append(f"own {name}", events, expected_seq=head, append_id=data.decode())
                    head = result.last_seq
                else:
                    result = await store.append("s", [NewEvent("t", data)])
            except StreamError:
                continue
            break
        told[data] = result.first_seq
        n += 1


async def watch(store: EventStore, stream_id: str, done: asyncio.Event, seen: dict[int, bytes]) -> None:
    """Follows until nothing more comes behind what was there at the end; each number once."""
    while True:
        with suppress(StoreUnreachable):
            async with aclosing(follow(store, stream_id, after=max(seen, default=0))) as events:  # type: ignore[type-var]
                async for event in events:
                    assert event.seq == max(seen, default=0) + 1
                    seen[event.seq] = event.data
                    if done.is_set() and event.data == b"last":
                        return


async def watch_all(store: EventStore, seen: dict[str, list[Event]]) -> None:
    """Follows all streams until each has ended; no event is left out, and none comes twice."""
    token, ended = "", 0
    while True:
        with suppress(StoreUnreachable):
            async with aclosing(follow_all(store, after=token)) as events:  # type: ignore[type-var]
                async for event, place in events:
                    assert isinstance(event, Event)
                    of_it = seen.setdefault(event.stream_id, [])
                    assert event.seq == len(of_it) + 1
                    of_it.append(event)
                    token = place
                    ended += event.data == b"last"
                    if ended == len(STREAMS):
                        return


Fault = Callable[[random.Random], Awaitable[None]]


async def check_beside_kills(url: str, kill: Fault, times: int) -> None:
    """Writers and followers live through it. What was acknowledged is there once, and who follows sees each number once."""
    chance = random.Random(7)
    writers = [await open_nats(url) for _ in range(3)]
    reader = await open_nats(url)
    done = asyncio.Event()
    told: dict[bytes, int] = {}
    seen: dict[int, bytes] = {}
    own: dict[int, bytes] = {}
    everything: dict[str, list[Event]] = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, reader, "s", done, seen)
        tasks.start_soon(watch, reader, "own b", done, own)
        tasks.start_soon(watch_all, writers[1], everything)
        async with anyio.create_task_group() as writing:
            for number, store in enumerate(writers):
                writing.start_soon(append_on, store, f"p{number}", "producer", done, told)
                writing.start_soon(append_on, store, f"any{number}", "any", done, told)
                writing.start_soon(append_on, store, "abc"[number], "name", done, told)
            for _ in range(times):
                await asyncio.sleep(chance.uniform(0.3, 1.0))
                await kill(chance)
                before = len(told)
                with anyio.fail_after(60):
                    while len(told) <= before:
                        await asyncio.sleep(0.02)
            done.set()
        for stream_id in STREAMS:
            await writers[0].append(stream_id, [NewEvent("t", b"last")])
    for stream_id, view in (("s", seen), ("own b", own)):
        head = (await reader.bounds(stream_id)).head
        assert sorted(view) == list(range(1, head + 1))
    assert sorted(everything) == sorted(STREAMS)
    for stream_id, events in everything.items():
        assert len(events) == (await reader.bounds(stream_id)).head
        after = 0
        while page := await reader.read(stream_id, after=after):
            assert page == events[after : after + len(page)]
            after = page[-1].seq
    stored = [event.data for events in everything.values() for event in events]
    counts = Counter(stored)
    assert {counts[data] for data in told} == {1}
    print(f"{len(told)} acknowledged, 0 lost, 0 doubled, {len(stored)} seen once by who follows all")
    for data, seq in told.items():
        if data.startswith((b"p", b"any")):
            assert seen[seq] == data
    for store in (*writers, reader):
        await store.close()


@pytest.mark.slow
async def test_kills_of_the_server_lose_nothing_and_double_nothing(server: NatsServer) -> None:
    async def kill(chance: random.Random) -> None:
        server.kill()
        await asyncio.sleep(chance.uniform(0, 0.3))
        server.start()

    await check_beside_kills(server.url("kills", "shards=2"), kill, times=size(smoke=4, full=20))


@pytest.mark.heavy
async def test_kills_of_the_leader_of_three_lose_nothing_and_double_nothing() -> None:
    with three_running() as cluster:
        probe = await open_nats(cluster.url("three", "shards=2"))

        async def kill(chance: random.Random) -> None:
            info = await probe._client.ask("STREAM.INFO.three_0")
            [leader] = [node for n, node in enumerate(cluster.nodes) if info["cluster"]["leader"] == f"n{n}"]
            leader.kill()
            await asyncio.sleep(chance.uniform(0, 1.5))
            leader.start()

        await check_beside_kills(cluster.url("three"), kill, times=size(smoke=4, full=12))
        await probe.close()


async def test_a_leader_of_three_that_stops_and_goes_on_loses_nothing_and_doubles_nothing() -> None:
    """What it was sent while it stood still comes to it late, when others may lead, and was sent again to them."""
    with three_running() as cluster:
        probe = await open_nats(cluster.url("three"))

        async def stop(chance: random.Random) -> None:
            info = await probe._client.ask("STREAM.INFO.three_0")
            [leader] = [node for n, node in enumerate(cluster.nodes) if info["cluster"]["leader"] == f"n{n}"]
            leader.signal(signal.SIGSTOP)
            await asyncio.sleep(chance.uniform(1, 8))
            leader.signal(signal.SIGCONT)

        await check_beside_kills(cluster.url("three"), stop, times=size(smoke=2, full=12))
        await probe.close()


async def test_a_server_that_falls_silent_is_left_for_another_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose machine has lost its power: its connections do not end, and nothing comes from it."""
    monkeypatch.setattr(client, "_PING_S", 1)
    with three_running() as cluster:
        async with Proxy(cluster.nodes[0].port) as proxy:
            store = await open_nats(proxy.url(cluster.url("three", node=0)))
            await store.append("s", [NewEvent("t", b"x")])
            assert store._client.driver.connected_url is not None
            assert store._client.driver.connected_url.port == proxy.port
            proxy.hold()
            with anyio.fail_after(15):
                assert (await store.append("s", [NewEvent("t", b"y")])).last_seq == 2
            assert [event.data for event in await store.read("s")] == [b"x", b"y"]
            await store.close()


async def test_connections_to_a_server_that_is_silent_for_a_while_are_not_left_open(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_CONNECT_S", 1)
    async with Proxy(server.port) as proxy:
        store = await open_nats(proxy.url(server.url()))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(2):
                proxy.hold()
                proxy.cut_all()
                await anyio.sleep(3)  # a connection is made, and nothing comes through it
                proxy.release()
                with anyio.fail_after(15):
                    await store.append("s", [NewEvent("t", b"x")])
            await store.close()
            gc.collect()
        assert not [each.message for each in told if each.category is ResourceWarning]


@pytest.mark.slow
@pytest.mark.parametrize(
    "job", ["all", *(pytest.param(job, marks=pytest.mark.heavy) for job in ("write", "many", "sweep", "snapshot"))]
)
async def test_what_a_killed_process_was_told_is_true(server: NatsServer, job: Job) -> None:
    """The writing process is killed, and every third time the server right after it."""
    chance, record, url = random.Random(), Record(), server.url()
    rounds, longest_s = 0, 0.5
    while rounds < size(smoke=4, full=40) or not record.acknowledged:
        seed, after_s = chance.randrange(2**32), chance.uniform(0, longest_s)
        record.add(await anyio.to_thread.run_sync(partial(kill_while, url, job, seed=seed, after_s=after_s)))
        if chance.random() < 0.33:
            server.kill()
            server.start()
        async with open_store(url) as store:
            await record.check(store)
            await record.retry(store)
            await record.check(store)
        rounds += 1
        assert rounds < 200, "nothing was ever acknowledged"
        longest_s += 0 if record.acknowledged else 0.2
    print(f"{job}: {rounds} kills, {record.acknowledged} acknowledgements, 0 lost")


async def open_other_and_lose_it(server: NatsServer) -> EventStore:
    server.start()
    store = await open_nats(server.url())
    server.kill()
    return store


async def test_a_server_that_stays_away_is_told(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", 1.0)
    monkeypatch.setattr(client, "_REQUEST_S", 0.5)
    monkeypatch.setattr(client, "_ANSWER_S", 0.5)
    monkeypatch.setattr("stream.nats.appender.PATIENCE_S", 1.0)
    async with open_store(server.url()) as store:
        await store.append("s", [NewEvent("t", b"x")])
        server.kill()
        with anyio.fail_after(20):
            for call in (
                lambda: store.append("s", [NewEvent("t", b"y")]),
                lambda: store.read("s"),
                lambda: store.bounds("s"),
                lambda: store.truncate("s", through=1),
                store.changes,
            ):
                with pytest.raises(StoreUnreachable, match=r"server answers|has said"):
                    await call()
        other = await open_other_and_lose_it(server)
        with anyio.fail_after(5):
            await other.close()
        server.start()
        with anyio.fail_after(20):
            while True:
                with suppress(StoreUnreachable):
                    assert (await store.bounds("s")).head in (1, 2)
                    break
