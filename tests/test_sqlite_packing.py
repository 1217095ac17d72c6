"""Appends of busy streams are packed into chunks; no reader, retry or truncation can tell (laws 1, 3, 6, 14)."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from stream import AppendResult, Bounds, CorruptEvent, Event, NewEvent, Producer, SeqConflict, StoreFull, open_store
from stream.limits import MAX_PAGE_BYTES
from tests.backends import flip
from tests.batch_rounds import open_packing

if TYPE_CHECKING:
    from pathlib import Path

    from stream import EventStore

pytestmark = pytest.mark.anyio


def counts(path: Path) -> tuple[int, int]:
    """Rows in `appends`, and in `chunks`."""
    with closing(sqlite3.connect(path)) as raw:
        [(appends, chunks)] = raw.execute("SELECT (SELECT count(*) FROM appends), (SELECT count(*) FROM chunks)")
    return appends, chunks


def numbered(first: int, last: int) -> list[NewEvent]:
    return [NewEvent("n", b"%d" % seq) for seq in range(first, last + 1)]


async def fill(store: EventStore, events: int, stream_id: str = "s") -> None:
    """One event an append, one after the other."""
    head = (await store.bounds(stream_id)).head
    for seq in range(head + 1, head + events + 1):
        await store.append(stream_id, numbered(seq, seq))


def check(events: list[Event], first: int, last: int) -> None:
    assert [event.seq for event in events] == list(range(first, last + 1))
    assert [event.data for event in events] == [event.data for event in numbered(first, last)]


async def test_a_busy_stream_becomes_chunks_and_reads_as_before(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await fill(store, 600)
    assert counts(path) == (600 - 2 * 256, 2)
    async with open_store(str(path)) as store:
        for after in range(0, 601, 5):
            for limit in (1, 7, 256, 1000):
                check(await store.read("s", after=after, limit=limit), after + 1, min(600, after + limit))


async def test_streams_side_by_side_are_packed_together(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_packing(str(path)) as store:
        await asyncio.gather(*(fill(store, 40, f"s{n}") for n in range(50)))
        for n in range(50):
            check(await store.read(f"s{n}"), 1, 40)
    appends, chunks = counts(path)
    assert chunks > 30
    assert appends < 50 * 25


async def test_large_appends_stay_where_they_are_between_chunks(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    given = []
    async with open_store(str(path)) as store:
        for n in range(600):
            given.append(bytes([n % 256]) * (5_000 if n % 20 == 7 else 9))
            await store.append("s", [NewEvent("t", given[-1])])
        for after in (0, 6, 7, 8, 100, 599):
            assert [event.data for event in await store.read("s", after=after)] == given[after:]
        assert [event.data for n in range(0, 600, 10) for event in await store.read("s", after=n, limit=10)] == given
    _, chunks = counts(path)
    assert chunks >= 10


async def test_the_time_of_each_append_is_kept(tmp_path: Path) -> None:
    from stream.sqlite import SqliteStore, open_database  # noqa: PLC0415

    ticks = iter(range(1000, 2000))
    store = await SqliteStore.attach(await open_database(str(tmp_path / "log.db"), create=True), clock_ms=lambda: next(ticks))
    await fill(store, 300)
    assert [event.at for event in await store.read("s")] == list(range(1000, 1300))
    await store.close()


async def test_a_named_append_in_a_chunk_still_gets_its_first_answer(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await fill(store, 3)
        first = await store.append("s", numbered(4, 5), expected_seq=3, append_id="i")
        await fill(store, 295)
    assert counts(path)[1] == 1
    async with open_store(str(path)) as store:
        assert await store.append("s", numbered(4, 5), expected_seq=3, append_id="i") == first == AppendResult(4, 5)
        for expected, events in ((3, numbered(4, 4)), (4, numbered(5, 6)), (2, numbered(3, 4)), (3, numbered(4, 6))):
            with pytest.raises(SeqConflict):
                await store.append("s", events, expected_seq=expected, append_id="i")
        with pytest.raises(SeqConflict):  # the rest of the chunk has other names, or none
            await store.append("s", numbered(6, 6), expected_seq=5, append_id="j")
        await store.truncate("s", through=4)
        with pytest.raises(SeqConflict):
            await store.append("s", numbered(4, 5), expected_seq=3, append_id="i")


async def test_a_producers_watermark_does_not_depend_on_its_rows(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "log.db")) as store:
        for n in range(300):
            await store.append("s", numbered(n + 1, n + 1), producer=Producer("p", 0, n))
        repeat = await store.append("s", numbered(300, 300), producer=Producer("p", 0, 299))
        assert repeat == AppendResult(300, 300, duplicate=True)
        check(await store.read("s"), 1, 300)


@pytest.mark.parametrize("through", [1, 100, 255, 256, 257, 400])
async def test_a_floor_inside_a_chunk_hides_its_first_events(tmp_path: Path, through: int) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await fill(store, 400)
        await store.truncate("s", through=through)
        check(await store.read("s", after=through), through + 1, 400)
        await fill(store, 300)
        check(await store.read("s", after=through), through + 1, 700)
        await store.delete("s")
        await fill(store, 300)
        check(await store.read("s", after=700), 701, 1000)
        assert await store.bounds("s") == Bounds(700, 1000, 700)


async def test_a_damaged_append_is_not_packed_and_stays_named(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await fill(store, 20)
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("DROP TRIGGER events_never_change")
            raw.execute("UPDATE appends SET at = at + 1 WHERE last = 5")
        await fill(store, 280)
        with pytest.raises(CorruptEvent, match="events 5 to 5"):
            await store.read("s")
        check(await store.read("s", limit=4), 1, 4)
        check(await store.read("s", after=5), 6, 300)


async def test_every_flipped_byte_of_a_chunk_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await fill(store, 256)
        await store.append("other", numbered(1, 1))  # behind the packing
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("DROP TRIGGER chunks_never_change")
            [(data,)] = raw.execute("SELECT data FROM chunks")
        for place in range(0, len(data), 29):
            with closing(sqlite3.connect(path)) as raw, raw:
                raw.execute("UPDATE chunks SET data = ?", (flip(data[: place + 1]) + data[place + 1 :],))
            with pytest.raises(CorruptEvent):
                await store.read("s")


async def test_two_processes_that_pack_the_same_streams_lose_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "log.db")
    async with open_store(url) as one, open_store(url) as two:

        async def write(store: EventStore, name: str) -> None:
            for n in range(600):
                await store.append("s", [NewEvent(name, b"%d" % n)])

        await asyncio.gather(write(one, "one"), write(two, "two"))
        for store in (one, two):
            events = await store.read("s", limit=2000)
            assert [event.seq for event in events] == list(range(1, 1201))
            for name in ("one", "two"):
                assert [event.data for event in events if event.type == name] == [b"%d" % n for n in range(600)]
    assert counts(tmp_path / "log.db")[1] >= 2


async def test_random_histories_read_the_same_packed_or_not(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    given: dict[str, list[bytes]] = {"a": [], "b": [], "c": []}
    floors = dict.fromkeys(given, 0)
    async with open_store(str(tmp_path / "log.db"), durability="normal") as store:
        for _ in range(1500):
            stream_id = chance.choice("aaabc")
            batch = [chance.randbytes(chance.choice([3, 40, 300, 700, 9000])) for _ in range(chance.choice([1, 1, 1, 1, 5]))]
            given[stream_id] += batch
            await store.append(stream_id, [NewEvent("t", data) for data in batch])
            if chance.random() < 0.02:
                floors[stream_id] = chance.randrange(floors[stream_id], len(given[stream_id]) + 1)
                await store.truncate(stream_id, through=floors[stream_id])
        for stream_id, wanted in given.items():
            after = floors[stream_id]
            while page := await store.read(stream_id, after=after, limit=chance.randrange(1, 200)):
                assert page[0].seq == after + 1
                assert [event.data for event in page] == wanted[after : after + len(page)]
                after = page[-1].seq
            assert after == len(wanted)


async def test_a_page_of_large_events_is_bounded_in_bytes(tmp_path: Path) -> None:
    piece = MAX_PAGE_BYTES // 4
    async with open_store(str(tmp_path / "log.db"), durability="normal") as store, open_store("memory:") as model:
        for filled in (store, model):
            for n in range(11):
                await filled.append("s", [NewEvent("t", bytes([n]) * piece)])
            seen: list[int] = []
            while page := await filled.read("s", after=len(seen)):
                assert len(page) <= 4
                seen += [event.data[0] for event in page]
            assert seen == list(range(11))


async def test_a_producer_that_sends_ahead_is_stored_in_order_across_batches(tmp_path: Path) -> None:
    url = str(tmp_path / "log.db")
    async with open_store(url) as store, open_store(url) as other:
        sent = [asyncio.create_task(store.append("s", numbered(n, n), producer=Producer("p", 0, n))) for n in range(10)]
        for n in range(10, 600):
            if n % 7 == 0:  # what the store remembers of the head is out of date
                await other.append("s", [NewEvent("other", b"")])
            sent.append(asyncio.create_task(store.append("s", numbered(n, n), producer=Producer("p", 0, n))))
            if n % 11 == 0:
                await asyncio.sleep(0)
        answers = await asyncio.gather(*sent)
        assert sorted(answers, key=lambda answer: answer.first_seq) == answers
        own = [event for event in await store.read("s") if event.type == "n"]
        assert [event.data for event in own] == [b"%d" % n for n in range(600)]


@pytest.mark.heavy
async def test_an_append_of_many_large_events_is_read_in_bounded_pages(tmp_path: Path) -> None:
    piece = MAX_PAGE_BYTES // 16
    async with open_store(str(tmp_path / "log.db"), durability="normal") as store:
        await store.append("s", [NewEvent("t", bytes([n]) * piece) for n in range(50)])
        assert len(await store.read("s")) == 16
        assert [event.data[0] for event in await store.read("s", after=40)] == list(range(40, 50))


async def test_what_is_deleted_is_never_packed_behind_the_sweepers_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk below the floor would stay until the next deletion, with what was to be gone."""
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await fill(store, 255)
        monkeypatch.setattr("stream.sqlite.sweeping.Sweeper.sweep", lambda *_: None)
        await store.delete("s")
        await fill(store, 1)  # the 256th: they are packed now
        await store.append("other", numbered(1, 1))
        assert counts(path)[1] == 0
    async with open_store(str(path)) as store:
        await store.settle()  # type: ignore[union-attr]
        assert counts(path) == (2, 0)
        check(await store.read("s", after=255), 256, 256)


async def test_a_pack_that_fails_is_tried_again_later(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        statements = store.database._execute  # type: ignore[union-attr]

        def without_room(connection: Any, text: str, *parameters: Any) -> Any:
            if text.startswith("INSERT INTO chunks"):
                raise StoreFull("there is no room")
            return statements(connection, text, *parameters)

        store.database._execute = without_room  # type: ignore[union-attr,method-assign]
        await fill(store, 300)
        assert counts(path) == (300, 0)
        store.database._execute = statements  # type: ignore[union-attr,method-assign]
        await fill(store, 300)
        check(await store.read("s"), 1, 600)
    assert counts(path)[1] >= 1
    assert counts(path)[0] < 300


async def test_what_waits_again_keeps_its_order_when_each_is_stored_alone(tmp_path: Path) -> None:
    """A batch whose statement fails is stored one by one; who is passed over then goes before those behind it."""
    url = str(tmp_path / "log.db")
    async with open_store(url) as store, open_store(url) as other:
        await store.append("s", numbered(1, 1))
        await other.append("s", numbered(2, 2))  # what the first store remembers is out of date
        statements, calls = store.database._execute, 0  # type: ignore[union-attr]

        def fails_once(connection: Any, text: str, *parameters: Any) -> Any:
            nonlocal calls
            calls += text.startswith("INSERT INTO appends")
            if calls == 1:
                calls += 1
                raise StoreFull("there is no room for so many")
            return statements(connection, text, *parameters)

        store.database._execute = fails_once  # type: ignore[union-attr,method-assign]
        sent = [store.append("s", numbered(3 + n, 3 + n), producer=Producer("p", 0, n)) for n in range(5)]
        assert [answer.first_seq for answer in await asyncio.gather(*sent)] == [3, 4, 5, 6, 7]
        check(await store.read("s"), 1, 7)


async def test_a_producer_that_sends_on_while_another_process_has_the_lock_is_stored_in_order(tmp_path: Path) -> None:
    """What met the lock goes first: the next one does not come before it, by whatever way it is handed over."""
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await store.append("s", numbered(0, 0), producer=Producer("p", 0, 0))
        with closing(sqlite3.connect(path, isolation_level=None)) as raw:
            raw.execute("BEGIN IMMEDIATE")
            sent = [asyncio.create_task(store.append("s", numbered(1, 1), producer=Producer("p", 0, 1)))]
            sent.append(asyncio.create_task(store.append("unknown", numbered(1, 1))))
            await asyncio.sleep(0)
            sent.append(asyncio.create_task(store.append("s", numbered(2, 2), producer=Producer("p", 0, 2))))
            await asyncio.sleep(0.05)
            raw.execute("ROLLBACK")
        assert [answer.first_seq for answer in await asyncio.gather(*sent)] == [2, 1, 3]
        assert [event.data for event in await store.read("s")] == [b"0", b"1", b"2"]
