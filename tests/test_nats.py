"""The log on NATS JetStream, beyond what every store promises: answers that are lost, what it keeps where, what it can't be."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger import open_ledger
from ledger.transfer.jsonl import event_line, header_line
from stream import (
    AppendResult,
    Bounds,
    CorruptEvent,
    Event,
    InvalidEvent,
    NewEvent,
    Producer,
    ProducerFenced,
    SeqConflict,
    Snapshot,
    StoreBusy,
    StoreFull,
    StoreUnreachable,
    StoreUnusable,
    Truncated,
    open_store,
)
from stream.nats import NatsStore, open_nats
from stream.nats.address import read_address
from stream.nats.client import HEADER, Client
from stream.nats.errors import Moved, Unclear
from stream.nats.server import check_version
from stream.nats.state import Mark, State, write_state
from tests.nats_server import SharedNats, free_ports, running
from tests.test_house_rules import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from ledger import Ledger
    from projector import Message

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


@pytest.fixture
async def store(anyio_backend: object) -> AsyncIterator[NatsStore]:
    del anyio_backend
    opened = await open_nats(SharedNats.url())
    yield opened
    await opened.close()


def new(*texts: str) -> list[NewEvent]:
    return [NewEvent("t", text.encode()) for text in texts]


async def texts(store: NatsStore, stream_id: str = "s") -> list[str]:
    after = (await store.bounds(stream_id)).floor
    found: list[Event] = []
    while page := await store.read(stream_id, after=after):
        found += page
        after = page[-1].seq
    return [event.data.decode() for event in found]


class Lossy:
    """Messages whose answers are lost: sent or not, or sent a while later, as by a connection that is given up."""

    def __init__(self, store: NatsStore, chance: random.Random, share: float = 0.4) -> None:
        self._send = store._client.send
        self._chance = chance
        self._share = share
        self.late: list[asyncio.Task[Any]] = []
        store._client.send = self.send  # type: ignore[method-assign]

    async def send(self, *words: Any, **options: Any) -> int:
        if self._chance.random() > self._share:
            return await self._send(*words, **options)
        fate = self._chance.randrange(3)
        if fate == 0:
            await self._send(*words, **options)
        elif fate == 1:
            self.late.append(asyncio.create_task(self._send_late(*words, **options)))
        raise Unclear("lost on purpose")

    async def _send_late(self, *words: Any, **options: Any) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.01))
        await asyncio.gather(self._send(*words, **options), return_exceptions=True)


@pytest.mark.parametrize("seed", range(4))
async def test_lost_answers_double_nothing_and_lose_nothing(store: NatsStore, seed: int) -> None:
    lossy = Lossy(store, random.Random(seed))
    other = await open_nats(store.path)

    async def write(name: str, *, by_producer: bool) -> list[tuple[int, str]]:
        told = []
        for n in range(15):
            producer = Producer(name, 0, n) if by_producer else None
            result = await store.append("s", new(f"{name}.{n}"), producer=producer)
            told.append((result.first_seq, f"{name}.{n}"))
        return told

    async def disturb() -> None:
        for n in range(30):
            await other.append("s", new(f"other.{n}"))
            await asyncio.sleep(0.001)

    writers = [write("a", by_producer=True), write("b", by_producer=True), write("c", by_producer=False)]
    *told, _ = await asyncio.gather(*writers, disturb())
    await asyncio.gather(*lossy.late)
    found = await texts(store)
    assert len(found) == len(set(found)) == 75
    assert all(found[seq - 1] == text for each in told if each for seq, text in each)
    await other.close()


async def test_a_message_that_comes_in_late_is_known_again(store: NatsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender has looked, has not found it, and has sent it again: only then the first one comes in."""
    send = store._client.send
    sent: list[tuple[Any, Any]] = []

    async def send_late(*words: Any, **options: Any) -> int:
        sent.append((words, options))
        if len(sent) == 1:
            raise Unclear("under way")
        if len(sent) == 2:
            await send(*sent[0][0], **sent[0][1])
        return await send(*words, **options)

    monkeypatch.setattr(store._client, "send", send_late)
    tries = [store.append("s", new("x")), store.append("s", new("y"), producer=Producer("p", 0, 0))]
    assert await asyncio.gather(*tries) == [AppendResult(1, 1), AppendResult(2, 2)]
    assert await texts(store) == ["x", "y"]


async def test_lost_answers_leave_truncations_deletions_and_snapshots_whole(store: NatsStore) -> None:
    lossy = Lossy(store, random.Random(3), 0.5)
    for n in range(12):
        await store.append("s", new(*"abc"))
        head = (await store.bounds("s")).head
        assert await store.snapshots.save(Snapshot("s", "p", 1, head, 0, b"%d" % n))
        assert await store.truncate("s", through=head - 1) == Bounds(head - 1, head, 3 * n)
        await store.delete("s")
        assert await store.bounds("s") == Bounds(head, head, head)
        assert await store.snapshots.list("s") == []
    await store.adopt("t", [Event("x", 3, "t", b"y", 7)], floor=2, producers=[Producer("p", 1, 1)])
    assert await store.bounds("t") == Bounds(2, 3, 0)
    await asyncio.gather(*lossy.late)
    assert await store.bounds("s") == Bounds(36, 36, 36)


async def test_watermarks_are_kept_for_more_producers_than_a_message_says(store: NatsStore) -> None:
    for n in range(12):
        await store.append("s", new("x"), producer=Producer(f"p{n}", n, 0))
    await store.truncate("s", through=12)
    await store.settle()
    await store.append("s", new("y"), producer=Producer("p3", 3, 1))
    await store.delete("s")
    again = await open_nats(store.path)
    for n in range(12):
        assert await again.producer("s", f"p{n}") == Producer(f"p{n}", n, int(n == 3))
        with pytest.raises(ProducerFenced):
            await again.append("s", new("z"), producer=Producer(f"p{n}", n - 1, 0) if n else Producer("p11", 0, 0))
    repeat = await again.append("s", new("y"), producer=Producer("p3", 3, 1))
    assert repeat == AppendResult(13, 13, duplicate=True)
    await again.close()


async def test_a_watermark_beside_the_log_never_falls(store: NatsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two processes that push the same one out, the slower one has looked, and has the older."""
    log, send = store._log, store._client.send

    async def send_behind(*words: Any, **options: Any) -> int:
        monkeypatch.undo()
        await log.keep_mark("s", Mark("p", 0, 19, 19, 19))
        return await send(*words, **options)

    monkeypatch.setattr(store._client, "send", send_behind)
    await log.keep_mark("s", Mark("p", 0, 4, 4, 4))
    await store.append("s", new("x"))
    assert await store.producer("s", "p") == Producer("p", 0, 19)


async def test_many_producers_at_once_go_into_few_messages(store: NatsStore) -> None:
    names = [f"p{n}" for n in range(60)]
    results = await asyncio.gather(*(store.append("s", new(name), producer=Producer(name, 0, 0)) for name in names))
    assert sorted(result.first_seq for result in results) == list(range(1, 61))
    assert [await store.producer("s", name) for name in names] == [Producer(name, 0, 0) for name in names]
    [raw] = [await store._client.last(store._log.layout.home("s"), store._log.layout.log("s"))]
    assert raw is not None
    assert raw.js < 60 + 60


async def test_what_is_truncated_and_deleted_leaves_the_server(store: NatsStore) -> None:
    for n in range(30):
        await store.append("s", new(f"secret {n}"))
        await store.append("t", new("other"))
    await store.snapshots.save(Snapshot("s", "p", 1, 20, 0, b"secret" * 300_000))
    await store.truncate("s", through=29)
    await store.settle()
    layout = store._log.layout
    subjects = await store._client.ask("STREAM.INFO." + layout.home("s"), {"subjects_filter": f"{layout.name}.>"})
    assert subjects["state"]["subjects"][layout.log("s")] == 2
    await store.delete("s")
    subjects = await store._client.ask("STREAM.INFO." + layout.home("s"), {"subjects_filter": f"{layout.name}.>"})
    assert subjects["state"]["subjects"] == {layout.log("s"): 1, layout.log("t"): 30}
    assert await texts(store, "t") == ["other"] * 30


async def test_any_place_is_found_without_an_index(store: NatsStore) -> None:
    chance = random.Random(5)
    for _ in range(120):
        await asyncio.gather(
            *(store.append(name, new(*"x" * chance.choice([1, 1, 5]))) for name in chance.choices("stuv", [6, 3, 1, 0.1], k=4))
        )
    await store.truncate("s", through=40)
    fresh = await open_nats(store.path)
    for name in "stu":
        bounds = await fresh.bounds(name)
        for after in chance.sample(range(bounds.floor, bounds.head), 12):
            events = await fresh.read(name, after=after, limit=3)
            assert [event.seq for event in events] == list(range(after + 1, min(after + 3, bounds.head) + 1))
    await fresh.close()


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


async def test_a_snapshot_larger_than_a_message_comes_back(store: NatsStore) -> None:
    await store.append("s", new("x"))
    given = Snapshot("s", "p", 1, 1, 0, random.Random(1).randbytes(5_000_000))
    assert await store.snapshots.save(given)
    assert await store.snapshots.load("s", "p") == given


async def test_a_batch_that_was_torn_is_no_stream(store: NatsStore) -> None:
    """As a server leaves it that died while it stored an adoption: what is stored behind it tells that nothing follows."""
    subject = store._log.layout.log("s")
    await store._client.send(subject, b"", {HEADER: write_state(State(5, 0, 2, left=3))}, expected=0)
    assert (await store.changes()).streams == []
    assert [info async for info in store.streams()] == []
    assert await store.bounds("s") == Bounds(0, 0)
    assert await store.append("s", new("x")) == AppendResult(1, 1)
    assert await texts(store) == ["x"]
    assert (await store.changes()).spans == [(0, 1)]


async def test_damage_is_named(store: NatsStore) -> None:
    await store.append("s", new("x"))
    place = await store._log.place("s")
    subject, state = store._log.layout.log("s"), State(2, 1, 0, 0, place.js, 12345)
    await store._client.send(subject, place.data, {HEADER: write_state(state)}, expected=place.js)
    with pytest.raises(CorruptEvent, match="event 2"):
        await store.read("s", after=1)
    await store._client.send(subject, b"", {HEADER: "nothing of ours"})
    with pytest.raises(CorruptEvent):
        await store.bounds("s")


async def test_a_reader_that_is_overtaken_is_told(store: NatsStore) -> None:
    """The messages go while he is looking for them."""
    for n in range(20):
        await store.append("s", new(str(n)))
    place = await store._log.place("s")
    await store.truncate("s", through=15)
    await store.settle()
    assert await store._log.events("s", place, 3, 20) == []
    with pytest.raises(Truncated):
        await store.read("s", after=3)


async def test_a_page_of_the_feed_is_the_same_after_what_it_told_of_is_gone(store: NatsStore) -> None:
    """In another process, which has not walked through it yet."""
    await store.append("before", new("x"))
    first = await store.changes()
    for name in "abcde":
        await store.append(name, new("x", "y"))
    await store.delete("e")
    await store.append("before", new("y"))
    page = await store.changes(after=first.token, limit=2)
    assert (page.streams, page.spans) == (["a", "b"], [(0, 2), (0, 2)])
    await store.delete("a")
    await store.truncate("b", through=2)
    await store.delete("c")
    await store.append("c", new("z"))
    await store.delete("d")
    await store.delete("d")
    await store.settle()
    again = await open_nats(store.path)
    assert (await again.changes(after=page.begin, limit=2)).spans == page.spans
    rest = await again.changes(after=page.token)
    assert (rest.streams, rest.spans) == (["before", "c", "d", "e"], [(1, 2), (0, 2), (0, 2), (0, 2)])
    last = await again.changes(after=rest.token)
    assert (last.streams, last.spans) == (["a", "b", "c", "d"], [(2, 2), (2, 2), (2, 3), (2, 2)])
    assert (await again.changes(after=last.token)).streams == []
    await again.close()


async def test_a_ledger_keeps_its_log_there(tmp_path: Path) -> None:
    log = SharedNats.url("shards=2")
    async with open_ledger(str(tmp_path / "ledger.db"), log=log) as ledger:
        async with ledger.run("c") as run:
            await run.message("user", "a question")
            for _ in range(40):
                await run.text("\x01" * 20_000)  # six bytes each, as JSON
        [_, answer] = await ledger.transcript("c")
        assert len(answer.text) == 800_000
        with pytest.raises(InvalidEvent, match="limit"):
            async with ledger.run("c", on_error="incomplete") as run:
                await run.message("user", "x" * 1_000_000)
        await ledger.compact("c")
        assert (await ledger.store.bounds("c")).floor > 0
    async with open_ledger(str(tmp_path / "ledger.db"), log=log) as ledger:
        assert len((await ledger.transcript("c"))[1].text) == 800_000
    with pytest.raises(StoreUnusable, match="log="):
        open_ledger(log)


@pytest.mark.parametrize("lasting", [1, 2, 3, 5, 8])
async def test_an_import_that_breaks_off_goes_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: int) -> None:
    """A run that is larger than an append goes in parts, the same ones each time."""
    said = [{"role": "user", "content": "all of it"}]
    said += [{"role": "assistant", "content": f"{n} " + "x" * (700_000 if n == 30 else 30_000)} for n in range(60)]
    path = tmp_path / "long.json"
    path.write_text(json.dumps(said))
    async with open_ledger("memory:") as whole, open_ledger(str(tmp_path / "l.db"), log=SharedNats.url()) as ledger:
        await whole.import_file(str(path))
        append, left = ledger.store.append, [lasting]

        async def fail(*words: Any, **options: Any) -> AppendResult:
            left[0] -= 1
            if left[0] < 0:
                raise StoreUnreachable("nats://there", "gone")
            return await append(*words, **options)

        monkeypatch.setattr(ledger.store, "append", fail)
        with pytest.raises(StoreUnreachable):
            await ledger.import_file(str(path))
        monkeypatch.setattr(ledger.store, "append", append)
        await ledger.import_file(str(path))
        assert said_in(await ledger.transcript("long")) == said_in(await whole.transcript("long"))
        assert (await ledger.store.bounds("long")).head == (await whole.store.bounds("long")).head


async def test_what_is_erased_is_in_no_message_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what a sweep has left that was broken off."""
    async with open_ledger(str(tmp_path / "l.db"), log=SharedNats.url("shards=2")) as ledger:
        store = ledger.store
        assert isinstance(store, NatsStore)

        async def found() -> int:
            layout, count = store._log.layout, 0
            for shard in range(layout.shards):
                for pattern in layout.subjects(shard):
                    async for raw in store._log.walk(layout.stream(shard), pattern, 1, 10**9):
                        count += b"needle" in raw.data or b"bmVlZGxl" in raw.data
            return count

        for name in "abcd":
            async with ledger.run(name) as run:
                await run.message("user", "a needle")
                await run.text("no needle")
            await store.snapshots.save(Snapshot(name, "p", 1, 1, 0, b"needle"))
        assert await found() >= 8
        monkeypatch.setattr(store._log, "drop_below", lost)
        await ledger.compact("a")
        await ledger.compact("b", drop_unkept=True)
        monkeypatch.undo()
        assert await found() >= 8
        for name in "abcd":
            erased = await ledger.erase(name)
            assert erased.is_proven
            assert "files of the NATS servers" in str(erased.why)
        assert await found() == 0


async def lost(*_: object) -> None:
    raise StoreUnreachable("nats://there", "gone")


def said_in(messages: Sequence[Message]) -> list[tuple[str, str | None, str, str, str]]:
    return [(each.id, each.parent_id, each.role, each.status, each.text) for each in messages]


async def whole_of(ledger: Ledger) -> list[tuple[int, str, bytes]]:
    return [(each.seq, each.type, each.data) for each in await ledger.store.read("c", limit=100_000)]


async def test_an_export_is_taken_in_as_it_is(tmp_path: Path) -> None:
    async with open_ledger("memory:") as whole, open_ledger(str(tmp_path / "l.db"), log=SharedNats.url()) as ledger:
        for n in range(3):
            async with whole.run("c") as run:
                await run.message("user", f"{n}" * 200_000)
                for part in range(700):
                    await run.message("assistant", f"{part}")
        for n, path in enumerate((tmp_path / "1.jsonl", tmp_path / "2.jsonl")):
            bounds, events = await whole.store.bounds("c"), await whole.store.read("c", limit=100_000)
            path.write_text("".join(f"{line}\n" for line in (header_line("c", bounds), *map(event_line, events))))
            await ledger.import_file(str(path))
            assert await whole_of(ledger) == await whole_of(whole)
            async with whole.run("c") as run:
                for part in range(500):
                    await run.message("assistant", f"{n} {part}")


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


async def test_commands_take_a_log_there(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text('[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]')
    url, said = SharedNats.url(), []
    for words in ("import kept.json", "conversations --json", "compact kept", "verify", "show kept"):
        command = [sys.executable, "-m", "ledger.admin", "--data", "l.db", "--log", url, *words.split()]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = await anyio.run_process(command, cwd=tmp_path, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.decode())
    assert "Hello!" in said[-1]


@pytest.mark.parametrize("lossy", [False, True])
async def test_of_appends_to_many_streams_at_once_each_gets_its_own_answer(store: NatsStore, *, lossy: bool) -> None:
    """They go in batches, which the server refuses as a whole where one of them can't go in."""
    other = await open_nats(store.path)
    names = [f"s{n}" for n in range(40)]
    await asyncio.gather(*(store.append(name, new("first")) for name in names))
    for name in names[::7]:  # this process does not know of it
        await other.append(name, new("other"))
    send, batches = store._client.send_batch, list[int]()

    async def count(messages: Any, **options: Any) -> int:
        batches.append(len(messages))
        return await send(messages, **options)

    store._client.send_batch = count  # type: ignore[method-assign]
    late = Lossy(store, random.Random(1), 0.5 if lossy else 0)
    tries = [store.append(name, new("mine"), expected_seq=1) for name in names]
    results = await asyncio.gather(*tries, return_exceptions=True)
    await asyncio.gather(*late.late)
    for n, (name, result) in enumerate(zip(names, results, strict=True)):
        if n % 7:
            assert result == AppendResult(2, 2)
            assert await texts(other, name) == ["first", "mine"]
        else:
            assert isinstance(result, SeqConflict)
            assert await texts(other, name) == ["first", "other"]
    assert max(batches) > 30
    await other.close()


async def test_two_openers_at_once_make_one_store() -> None:
    url = SharedNats.url("shards=3")
    stores = await asyncio.gather(*(open_nats(url) for _ in range(6)))
    assert len({each.incarnation for each in stores}) == 1
    tries = [each.append("s", new("x"), expected_seq=0) for each in stores]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, SeqConflict) for each in results) == 5
    for each in stores:
        await each.close()
