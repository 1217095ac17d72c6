"""What keeps the log on NATS from being told wrong, each guard by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import nats.errors
import pytest

from stream import (
    AppendResult,
    Bounds,
    Diverged,
    Event,
    InvalidEvent,
    Producer,
    SeqConflict,
    Snapshot,
    StoreFull,
    StoreUnreachable,
    StoreUnusable,
    open_store,
)
from stream.nats import NatsStore
from stream.nats.client import HEADER, Raw
from stream.nats.errors import Unclear
from stream.nats.feed import FeedPlace
from stream.nats.state import State, write_state
from stream.tables.chunks import checksum, chunk_place
from tests.nats_logs import new, opened_log, store
from tests.nats_server import three_running

__all__ = ["store"]
pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


async def test_what_was_stored_with_no_answer_and_truncated_since_is_not_stored_again(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was stored can't be seen any more; a producer's append is known by its watermark."""
    send = store._client.send

    async def send_unheard(*words: Any, **options: Any) -> int:
        monkeypatch.undo()
        await send(*words, **options)
        async with open_store(store.path) as other:
            assert isinstance(other, NatsStore)
            await other.truncate("s", through=(await other.bounds("s")).head)
            await other.settle()
        raise Unclear("lost on purpose")

    for seq, producer in enumerate((None, Producer("p", 0, 0)), 1):
        monkeypatch.setattr(store._client, "send", send_unheard)
        if producer is None:
            with pytest.raises(StoreUnreachable, match="truncated"):
                await store.append("s", new("x"))
        else:
            assert await store.append("s", new("x"), producer=producer) == AppendResult(seq, seq, duplicate=True)
        assert (await store.bounds("s")).head == seq


async def test_what_was_stored_with_no_answer_and_is_truncated_while_it_is_looked_for_is_not_stored_again(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, message = store._client.send, store._log.message

    async def send_unheard(*words: Any, **options: Any) -> int:
        monkeypatch.setattr(store._client, "send", send)
        await send(*words, **options)
        async with open_store(store.path) as other:
            await other.append("s", new("behind"))
        raise Unclear("lost on purpose")

    async def look_late(*words: Any) -> Any:
        monkeypatch.setattr(store._log, "message", message)
        async with open_store(store.path) as other:
            assert isinstance(other, NatsStore)
            await other.truncate("s", through=3)
            await other.settle()
        return await message(*words)

    await store.append("s", new("first"))
    monkeypatch.setattr(store._client, "send", send_unheard)
    monkeypatch.setattr(store._log, "message", look_late)
    with pytest.raises(StoreUnreachable, match="truncated"):
        await store.append("s", new("x"))
    assert await store.bounds("s") == Bounds(3, 3, 0)


@pytest.mark.parametrize("way", ["one server", "a cluster", "connected anew", "it is there"])
async def test_a_refusal_says_nothing_of_an_attempt_before_it_that_may_still_come(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Who is told that there is no room would write it once more elsewhere. One server has judged it before the refusal."""
    send, client = store._client.send, store._client

    async def send_full(*words: Any, **options: Any) -> int:
        if way == "connected anew":
            client.driver.stats["reconnects"] += 1
        if way == "it is there":  # it has come since the look
            await send(*words, **options)
        raise StoreFull("no room")

    async def send_unheard(*_: Any, **__: Any) -> int:
        monkeypatch.setattr(client, "send", send_full)
        raise Unclear("lost on purpose")

    monkeypatch.setattr(client, "send", send_unheard)
    monkeypatch.setattr(type(client), "is_clustered", way == "a cluster")
    if way == "it is there":
        assert await store.append("s", new("x")) == AppendResult(1, 1)
        return
    with pytest.raises(StoreFull if way == "one server" else StoreUnreachable):
        await store.append("s", new("x"))
    monkeypatch.undo()
    assert await store.append("s", new("y")) == AppendResult(1, 1)


async def test_what_was_sent_on_a_connection_before_is_not_taken_for_judged(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is connected anew before the sender hears that nobody has answered."""
    client = store._client

    async def send_full(*_: Any, **__: Any) -> int:
        raise StoreFull("no room")

    async def send_unheard(*_: Any, **__: Any) -> int:
        monkeypatch.setattr(client, "send", send_full)
        client.driver.stats["reconnects"] += 1
        raise Unclear("lost on purpose")

    monkeypatch.setattr(client, "send", send_unheard)
    with pytest.raises(StoreUnreachable, match="nobody has said"):
        await store.append("s", new("x"))


async def test_a_cluster_behind_one_address_is_known_as_one() -> None:
    with three_running(secret=True) as cluster:
        async with open_store(cluster.url(node=0)) as opened:
            assert isinstance(opened, NatsStore)
            assert len(opened._client.driver.servers) == 1
            assert opened._client.is_clustered
    async with opened_log() as alone:
        assert not alone._client.is_clustered


@pytest.mark.parametrize("goes_on", [False, True], ids=["alone", "somebody goes on"])
async def test_a_deletion_that_was_stored_unheard_leaves_no_snapshot(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
) -> None:
    """What was saved since of the stream that has come in its place stays."""
    send = store._client.send
    later = Snapshot("s", "p", 1, 2, 0, b"later")
    await store.append("s", new("x"))
    await store.snapshots.save(Snapshot("s", "p", 1, 1, 0, b"secret"))

    async def send_unheard(*words: Any, **options: Any) -> int:
        monkeypatch.undo()
        await send(*words, **options)
        if goes_on:
            await store.append("s", new("y"), expected_seq=1)
            assert await store.snapshots.save(later)
        raise Unclear("lost on purpose")

    monkeypatch.setattr(store._client, "send", send_unheard)
    await store.delete("s")
    bodies = await store._log.subjects(0, store._log.layout.body("s"))
    assert len(bodies) == int(goes_on)
    assert await store.snapshots.load("s", "p") == (later if goes_on else None)


@pytest.mark.parametrize("call", ["append", "bounds", "read"])
async def test_what_nobody_answers_is_asked_again_soon(store: NatsStore, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """As while the servers elect a leader: what is asked meanwhile is lost."""
    request = store._client.driver.request
    lost = 0

    async def request_or_lose(subject: str, data: bytes, *, timeout: float, **options: Any) -> Any:
        nonlocal lost
        lost += 1
        if lost > 2:
            return await request(subject, data, timeout=timeout, **options)
        await asyncio.sleep(timeout)
        raise nats.errors.TimeoutError

    await store.append("s", new("x"))
    monkeypatch.setattr(store._client.driver, "request", request_or_lose)
    async with asyncio.timeout(4):
        if call == "append":
            assert await store.append("s", new("y")) == AppendResult(2, 2)
        elif call == "bounds":
            assert await store.bounds("s") == Bounds(0, 1)
        else:
            assert [event.data for event in await store.read("s")] == [b"x"]


async def test_servers_that_are_always_slower_than_they_are_waited_for_at_first_store_each_append_once(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = store._client.driver.request

    async def request_slowly(subject: str, data: bytes, *, timeout: float, **options: Any) -> Any:
        answer = await request(subject, data, timeout=timeout, **options)
        await asyncio.sleep(min(timeout, 0.3))
        if timeout < 0.3:
            raise nats.errors.TimeoutError
        return answer

    monkeypatch.setattr("stream.nats.client._ANSWER_S", 0.1)
    monkeypatch.setattr("stream.nats.client._HURRY_S", 0.5)
    monkeypatch.setattr(store._client.driver, "request", request_slowly)
    for seq, text in enumerate("abc", 1):
        assert await store.append("s", new(text)) == AppendResult(seq, seq)
    many = await asyncio.gather(*(store.append(f"s{n}", new("x")) for n in range(20)))
    assert {result.last_seq for result in many} == {1}
    assert [event.data for event in await store.read("s")] == [b"a", b"b", b"c"]


async def test_who_leaves_while_another_is_under_way_has_appended_nothing(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, let_go, begun = store._client.send, asyncio.Event(), asyncio.Event()

    async def send_held(*words: Any, **options: Any) -> int:
        begun.set()
        await let_go.wait()
        return await send(*words, **options)

    monkeypatch.setattr(store._client, "send", send_held)
    first = asyncio.ensure_future(store.append("s", new("first")))
    await begun.wait()
    leaves, stays = (asyncio.ensure_future(store.append("s", new(text))) for text in ("leaves", "stays"))
    await asyncio.sleep(0.01)
    leaves.cancel()
    await asyncio.sleep(0.01)
    let_go.set()
    assert (await first, await stays) == (AppendResult(1, 1), AppendResult(2, 2))
    assert [event.data for event in await store.read("s")] == [b"first", b"stays"]


async def test_a_batch_of_which_more_was_under_way_is_not_taken_for_torn(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sees the beginning of it lets pass what was sent before he asks whether the rest will come."""
    send, layout = store._client.send, store._log.layout
    subject = layout.log("s")
    await send(subject, b"", {HEADER: write_state(State(5, 0, 5, left=1))}, expected=0)

    async def send_behind(to: str, *words: Any, **options: Any) -> int:
        if to == layout.fence(layout.shard_of("s")):
            crc = checksum(chunk_place("s", 5), b"")
            await send(subject, b"", {HEADER: write_state(State(5, 0, 5, crc=crc))})
        return await send(to, *words, **options)

    monkeypatch.setattr(store._client, "send", send_behind)
    assert await store.bounds("s") == Bounds(5, 5, 0)


async def test_subjects_that_come_in_pages_are_all_told(store: NatsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{n}" for n in range(7)]

    async def ask(_: str, question: Any) -> dict[str, Any]:
        page = names[question["offset"] :][:3]
        return {"total": len(names), "state": {"subjects": dict.fromkeys(page, 1)} if page else {}}

    monkeypatch.setattr(store._client, "ask", ask)
    assert await store._log.subjects(0, ">") == names


async def test_what_a_server_that_lags_behind_has_not_yet_is_asked_of_the_leader(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await store.append("s", new(str(number)))

    async def scan(*_: Any, **__: Any) -> tuple[list[Raw], bool]:
        return [], False

    monkeypatch.setattr(store._client, "scan", scan)
    assert [event.data for event in await store.read("s")] == [b"0", b"1", b"2", b"3", b"4"]
    assert (await store.changes()).spans == [(0, 5)]


async def test_a_place_behind_the_end_of_the_feed_or_of_other_shards_is_told(store: NatsStore) -> None:
    """As after a server was restored from an older backup."""
    await store.append("s", new("x"))
    feed = store._feed
    for place in (FeedPlace((1000,)), FeedPlace((0,), (1000,), "s")):
        with pytest.raises(Diverged):
            await store.changes(after=feed._seal(place))
    for place in (FeedPlace((0, 0)), FeedPlace((0,), (1, 1), "s"), FeedPlace(())):
        with pytest.raises(ValueError, match="another number of shards"):
            await store.changes(after=feed._seal(place))


async def test_an_adoption_that_was_stored_unheard_is_done_and_one_like_it_is_refused(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = store._client

    def unheard(name: str) -> None:
        send = getattr(client, name)

        async def send_unheard(*words: Any, **options: Any) -> int:
            monkeypatch.undo()
            await send(*words, **options)
            raise Unclear("lost on purpose")

        monkeypatch.setattr(client, name, send_unheard)

    large = [Event("many", seq, "t", bytes(200_000), 0) for seq in range(1, 5)]
    for stream_id, events, floor, way in (("none", [], 5, "send"), ("many", large, 0, "send_batch")):
        unheard(way)
        await store.adopt(stream_id, events, floor=floor)
        assert await store.bounds(stream_id) == Bounds(floor, floor + len(events), 0)
        with pytest.raises(SeqConflict):
            await store.adopt(stream_id, events, floor=floor)


async def test_the_feed_tells_an_adopted_stream_from_its_beginning(store: NatsStore) -> None:
    await store.adopt("t", [Event("t", 3, "t", b"x", 0)], floor=2)
    assert (await store.changes()).spans == [(0, 3)]


async def test_an_adoption_of_more_than_a_batch_or_a_message_takes_is_refused_whole(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [Event("t", seq, "t", bytes(200_000), 0) for seq in range(1, 5)]
    monkeypatch.setattr("stream.nats.adoption._MAX_MESSAGES", 3)
    with pytest.raises(InvalidEvent, match="truncate it before"):
        await store.adopt("t", events)
    with pytest.raises(InvalidEvent, match="leave out those that have ended"):
        await store.adopt("t", events[:1], producers=[Producer(f"{n}" * 50, 0, 0) for n in range(1000)])
    assert await store.bounds("t") == Bounds(0, 0, 0)
    await store.adopt("t", events[:3])
    assert (await store.bounds("t")).head == 3


@pytest.mark.parametrize("way", ["send", "send_batch"])
async def test_an_adoption_never_comes_behind_an_append_that_was_faster(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    send = getattr(store._client, way)

    async def send_behind(*words: Any, **options: Any) -> int:
        monkeypatch.undo()
        async with open_store(store.path) as other:
            await other.append("s", new("first"))
        return int(await send(*words, **options))

    monkeypatch.setattr(store._client, way, send_behind)
    size_bytes = 200_000 if way == "send_batch" else 1
    with pytest.raises(SeqConflict):
        await store.adopt("s", [Event("s", seq, "t", bytes(size_bytes), 0) for seq in range(1, 5)])
    assert [event.data for event in await store.read("s")] == [b"first"]


async def test_a_page_of_the_feed_tells_of_no_stream_that_has_come_since(store: NatsStore) -> None:
    for name in "ab":
        await store.append(name, new("x"))
    page = await store.changes(limit=1)
    for _ in range(2):
        await store.append("z", new("x"))
    await store.truncate("z", through=1)
    await store.settle()
    rest = await store.changes(after=page.token)
    assert (rest.streams, rest.spans) == (["b"], [(0, 1)])
    assert (await store.changes(after=rest.token)).spans == [(0, 2)]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ('Permissions Violation for Publish to "{}"', StoreUnusable),
        ('Permissions Violation for Subscription to "_INBOX.x"', StoreUnusable),
        ('Permissions Violation for Publish to "$JS.API.STREAM.PURGE.x"', Unclear),
    ],
)
async def test_what_was_forbidden_to_another_is_not_taken_for_the_answer(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch, said: str, error: type[Exception]
) -> None:
    """It is told to the connection: an append that is under way then may have been stored."""
    subject = store._log.layout.log("s")

    async def request(*_: Any, **__: Any) -> Any:
        await store._client._hear(Exception(said.format(subject)))
        raise nats.errors.TimeoutError

    monkeypatch.setattr(store._client.driver, "request", request)
    with pytest.raises(error):
        await store._client.send(subject, b"", {}, expected=0)
