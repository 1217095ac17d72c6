"""What the log on NATS JetStream does not take: URLs, servers, users, settings, and what is too large."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from stream import (
    AppendResult,
    Bounds,
    Event,
    InvalidEvent,
    NewEvent,
    Producer,
    StoreBusy,
    StoreFull,
    StoreUnreachable,
    StoreUnusable,
    open_store,
)
from stream.nats import NatsStore
from stream.nats.address import read_address
from stream.nats.client import Client
from stream.nats.errors import Moved
from stream.nats.server import check_version
from tests.nats_logs import new, store
from tests.nats_server import free_ports, running

__all__ = ["store"]
pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


async def test_the_largest_event_and_append_come_back_and_larger_ones_are_refused_by_name(store: NatsStore) -> None:
    limits = store.limits
    assert limits.event_bytes > 900_000
    data = random.Random(1).randbytes(limits.event_bytes)
    producers = [Producer("é" * 120 + str(n), 2**60, 0) for n in range(5)]
    for producer in producers:
        await store.append("s", [NewEvent("t" * 64, data)], producer=producer)
    share = limits.append_bytes // limits.append_events
    await store.append("s", [NewEvent("t" * 64, bytes(share))] * limits.append_events)
    assert (await store.read("s"))[0].data == data
    with pytest.raises(InvalidEvent, match=str(limits.event_bytes)):
        await store.append("s", [NewEvent("t", data + b"x")])
    with pytest.raises(InvalidEvent, match=str(limits.append_events)):
        await store.append("s", new("x") * (limits.append_events + 1))
    with pytest.raises(InvalidEvent, match="split it"):
        await store.append("s", [NewEvent("t", data), NewEvent("t", b"x")])
    assert await store.bounds("s") == Bounds(0, 5 + limits.append_events)
    with pytest.raises(InvalidEvent):
        await store.adopt("t", [Event("x", 1, "t", data + b"x", 1)])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nats://h:1?stream=a.b", "stream="),
        ("nats://h:1?stream=", "stream="),
        ("nats://h:1?replicas=2", "replicas="),
        ("nats://h:1?shards=0", "shards="),
        ("nats://h:1?shards=x", "shards="),
        ("nats://h:1?sync=never", "sync="),
        ("nats://h:1?monitor=0", "monitor="),
        ("nats://h:1?schema=x", "schema="),
        ("nats://h:1/path", "is meant"),
        ("nats://", "is meant"),
    ],
)
async def test_a_url_that_can_t_be_meant_is_refused(url: str, why: str) -> None:
    with pytest.raises(StoreUnusable, match=why) as refused:
        await open_store(url)
    assert refused.value.place.startswith("nats://")


def test_a_url_tells_all_servers_and_hides_the_password() -> None:
    address = read_address("nats://ada:secret@a:1,b:2?stream=x&monitor=8,9")
    assert address.servers == ["nats://ada:secret@a:1", "nats://ada:secret@b:2"]
    assert address.monitors == [("a", 8), ("b", 9)]
    assert "secret" not in address.name


async def test_no_server_is_told() -> None:
    [port] = free_ports(1)
    with pytest.raises(StoreUnreachable, match=str(port)):
        await open_store(f"nats://127.0.0.1:{port}")


@pytest.mark.parametrize("version", ["<nats server v2.9.10>", "2.11.9", "", None])
def test_a_server_that_is_too_old_is_refused(version: str | None) -> None:
    with pytest.raises(StoreUnusable, match=r"2\.12"):
        check_version(version, "nats://h")
    check_version("<nats server v2.12.0>", "nats://h")


async def test_a_server_without_jetstream_is_refused() -> None:
    with running(jetstream=False) as server, pytest.raises(StoreUnusable, match="JetStream is off"):
        await open_store(server.url())


async def test_a_server_that_does_not_wait_for_its_disk_is_refused_unless_it_is_to_be_trusted() -> None:
    with running(sync="2m") as server:
        with pytest.raises(StoreUnusable, match="sync_interval: always"):
            await open_store(server.url())
        with pytest.raises(StoreUnusable, match="sync=trusted"):
            await open_store(server.url().replace(str(server.monitor), "1"))
        for url, durability in ((server.url("t", "sync=trusted"), "full"), (server.url(), "normal")):
            async with open_store(url, durability=durability) as store:  # type: ignore[arg-type]
                await store.append("s", new("x"))


ACCOUNTS = """
accounts { A { jetstream: { max_streams: 1, max_file: 200K }, users: [
  { user: ada, password: right },
  { user: eve, password: right, permissions: { publish: ["$JS.API.INFO", "$JS.API.STREAM.INFO.*"], subscribe: [">"] } }
] } }
"""


async def delete_stream(url: str, name: str) -> None:
    client = Client(read_address(url))
    await client.connect()
    await client.ask(f"STREAM.DELETE.{name}")
    await client.close()


async def test_users_and_accounts_that_may_not_are_told_so() -> None:
    with running(more=ACCOUNTS) as server:
        with pytest.raises(StoreUnusable, match="name and password"):
            await open_store(server.url(user="ada:wrong@"))
        with pytest.raises(StoreUnusable, match="may not do that"):
            await open_store(server.url(user="eve:right@"))
        with pytest.raises(StoreUnusable, match="max_streams"):
            await open_store(server.url("many", "shards=2", user="ada:right@"))
        await delete_stream(server.url("many", user="ada:right@"), "many_0")
        async with open_store(server.url("one", user="ada:right@")) as store:
            assert isinstance(store, NatsStore)
            tries = [store.append(name, [NewEvent("t", bytes(50_000))]) for name in "stuvwxyzs"]
            refused = [
                each for each in await asyncio.gather(*tries, return_exceptions=True) if not isinstance(each, AppendResult)
            ]
            assert refused
            assert all(isinstance(each, StoreFull) and "make room" in str(each) for each in refused)
            head = (await store.bounds("s")).head
            assert len(await store.read("s")) == head
            await store.delete("s")
            await store.append("s", new("x"))


async def test_what_it_was_made_with_stays(store: NatsStore) -> None:
    for option, why in (("shards=2", "shards=1"), ("replicas=3", "num_replicas")):
        with pytest.raises(StoreUnusable, match=why):
            await open_store(f"{store.path}&{option}")
    async with open_store(f"{store.path}&shards=1&replicas=1") as again:
        assert again.incarnation == store.incarnation
    port = store.path.split("?")[0].rpartition(":")[2]
    with pytest.raises(StoreUnusable, match="replicas"):
        await open_store(f"nats://127.0.0.1:{port}?stream=three&replicas=3&sync=trusted")
    with pytest.raises(StoreUnusable, match="create"):
        await open_store(f"nats://127.0.0.1:{port}?stream=none&sync=trusted", create=False)


async def test_a_stream_of_somebody_else_or_with_other_settings_is_refused(store: NatsStore) -> None:
    await store._client.ask("STREAM.CREATE.theirs_0", {"name": "theirs_0", "subjects": ["theirs.>"], "storage": "file"})
    base = store.path.split("stream=", maxsplit=1)[0]
    with pytest.raises(StoreUnusable, match="not one of this"):
        await open_store(f"{base}stream=theirs&sync=trusted")
    info = await store._client.ask("STREAM.INFO." + store._log.layout.stream(0))
    for change in (
        {"max_age": 10**12},
        {"max_msgs_per_subject": 5},
        {"max_msg_size": 5000},
        {"discard": "old", "max_bytes": 10**6},
    ):
        await store._client.ask("STREAM.UPDATE." + store._log.layout.stream(0), info["config"] | change)
        with pytest.raises(StoreUnusable, match=next(iter(change))):
            await open_store(store.path)
    await store._client.ask("STREAM.UPDATE." + store._log.layout.stream(0), info["config"] | {"max_bytes": 10**9})
    await (await open_store(store.path)).close()


async def test_who_is_never_the_first_is_told_so(store: NatsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(*_: Any, **__: Any) -> int:
        raise Moved("others")

    await store.append("s", new("x"))
    monkeypatch.setattr(store._client, "send", send)
    monkeypatch.setattr("stream.nats.client.PATIENCE_S", 0.3)
    monkeypatch.setattr("stream.nats.appender.PATIENCE_S", 0.3)
    for call in (store.append("s", new("y")), store.truncate("s", through=1), store.delete("s")):
        with pytest.raises(StoreBusy, match="others were in the way"):
            await call
