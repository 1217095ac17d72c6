"""The log on NATS JetStream, beyond what every store promises: answers that are lost, and what it keeps where."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from stream import AppendResult, Bounds, CorruptEvent, Event, Producer, ProducerFenced, SeqConflict, Snapshot, Truncated
from stream.nats import NatsStore, open_nats
from stream.nats.client import HEADER
from stream.nats.errors import Unclear
from stream.nats.state import Mark, State, write_state
from tests.nats_logs import Lossy, new, store, texts
from tests.nats_server import SharedNats

__all__ = ["store"]
pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


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
