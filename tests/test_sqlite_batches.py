"""Small appends at once share a row; no reader, retry, truncation or other process can tell (laws 1, 2, 3, 6, 14)."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from stream import AppendResult, Bounds, NewEvent, Producer, ProducerFenced, SeqConflict, open_store
from stream.sqlite.batches import MAX_DATA_BYTES
from stream.sqlite.inserts import MIN_BATCH
from tests.batch_rounds import MANY, append_round, check, counts, know, pack_early
from tests.raw_bytes import readable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stream import EventStore

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _few_batches_are_enough() -> Iterator[None]:
    with pack_early():
        yield


async def test_what_is_appended_at_once_is_one_row_and_reads_as_before(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for number in range(1, 11):
            await append_round(store, number)
        assert counts(path) == (10, 0, 0)
        await check(store, 10)
        for after in range(11):
            await check(store, 10, [0, 7, MANY - 1], after)
            assert [event.seq for event in await store.read("s3", after=after, limit=2)] == [
                *range(after + 1, min(after + 3, 11))
            ]
    async with open_store(str(path)) as store:
        await check(store, 10)
        await append_round(store, 11)
        await check(store, 11)


@pytest.mark.parametrize("rounds", [31, 32, 33, 100])
async def test_many_batches_are_packed_by_stream(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for number in range(1, rounds + 1):
            await append_round(store, number)
        await store.append("other", [NewEvent("t", b"")])  # behind the packing
        await check(store, rounds)
        batches, appends, chunks = counts(path)
        assert batches < 33
        assert appends == 1
        assert chunks >= (MANY if rounds >= 33 else 0)
    async with open_store(str(path)) as store:
        await check(store, rounds)


@pytest.mark.heavy
async def test_what_comes_seldom_grows_together_in_one_chunk(tmp_path: Path) -> None:
    """Forty streams that append now and then, and as many others: no row for each of their appends."""
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for number in range(1, 21):
            await append_round(store, number)
            for other in range(32):
                await append_round(store, other, range(100 + other * MANY, 100 + (other + 1) * MANY))
        await store.append("other", [NewEvent("t", b"")])
        await check(store, 20)
        with closing(sqlite3.connect(path)) as raw:
            [(rows,)] = raw.execute("SELECT count(*) FROM chunks WHERE stream = (SELECT id FROM streams WHERE name = 's3')")
    assert rows < 5


async def test_large_ones_and_few_have_rows_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await know(store)
        await append_round(store, 2, range(MIN_BATCH - 1))
        assert counts(path) == (1, MIN_BATCH - 1, 0)
        datas = [bytes(MAX_DATA_BYTES if n % 2 else 3) for n in range(MANY)]
        await asyncio.gather(*(store.append("s0", [NewEvent("t", data)]) for data in datas))
        assert [event.data for event in await store.read("s0", after=2)] == datas


async def test_appends_to_one_stream_at_once_get_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await know(store)
        tries = [store.append("s0", [NewEvent("t", b"%d" % n)] * (1 + n % 3)) for n in range(200)]
        answers = await asyncio.gather(*tries)
        events = await store.read("s0", after=1)
        for n, answer in enumerate(answers):
            found = [event for event in events if answer.first_seq <= event.seq <= answer.last_seq]
            assert [event.data for event in found] == [b"%d" % n] * (1 + n % 3)
        assert len(events) == sum(1 + n % 3 for n in range(200))
        assert counts(path)[0] > 1


async def test_a_named_append_in_a_batch_gets_its_first_answer_again(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await know(store)
        for seq in (1, 2):
            await append_round(store, seq + 1, expected_seq=seq, append_id="i")
        assert counts(path) == (3, 0, 0)
    async with open_store(str(path)) as store:
        for _ in range(2):  # in batches, then in chunks
            for n in range(MANY):
                event = [NewEvent("t", b"%d.2" % n)]
                assert await store.append(f"s{n}", event, expected_seq=1, append_id="i") == AppendResult(2, 2)
                with pytest.raises(SeqConflict):
                    await store.append(f"s{n}", event, expected_seq=1, append_id="j")
                with pytest.raises(SeqConflict):
                    await store.append(f"s{n}", event, expected_seq=2, append_id="i")
            await check(store, 3)
            for _ in range(40):
                await append_round(store, 0, range(100, 100 + MANY))


async def test_a_producers_watermark_moves_with_its_batch(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for seq in range(6):
            await append_round(store, seq + 1, producer=Producer("p", 1, seq))
        assert counts(path)[0] >= 5
    async with open_store(str(path)) as store:
        for n in range(MANY):
            assert await store.producer(f"s{n}", "p") == Producer("p", 1, 5)
            again = await store.append(f"s{n}", [NewEvent("t", b"")], producer=Producer("p", 1, 5))
            assert again == AppendResult(6, 6, duplicate=True)
        repeats = [store.append(f"s{n}", [NewEvent("t", b"")], producer=Producer("p", 1, 4)) for n in range(MANY)]
        assert await asyncio.gather(*repeats) == [AppendResult(7, 6, duplicate=True)] * MANY
        fenced = [store.append(f"s{n}", [NewEvent("t", b"")], producer=Producer("p", 0, 9)) for n in range(MANY)]
        assert all(isinstance(error, ProducerFenced) for error in await asyncio.gather(*fenced, return_exceptions=True))
        await append_round(store, 7, producer=Producer("p", 2**40, 0))  # too large for a batch
        await append_round(store, 8, producer=Producer("p", 2**40, 1))
        await check(store, 8)


async def test_producers_that_send_ahead_are_stored_in_order(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "log.db")) as store:
        await know(store)
        sent = [
            asyncio.create_task(store.append(f"s{n}", [NewEvent("t", b"%d" % seq)], producer=Producer(f"p{n % 3}", 0, seq)))
            for seq in range(30)
            for n in range(MANY)
        ]
        await asyncio.gather(*sent)
        for n in range(MANY):
            assert [event.data for event in await store.read(f"s{n}", after=1)] == [b"%d" % seq for seq in range(30)]


async def test_one_that_does_not_fit_does_not_harm_those_beside_it(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "log.db")) as store:
        await know(store)
        expected = [7 if n % 5 == 0 else 1 for n in range(MANY)]
        tries = [store.append(f"s{n}", [NewEvent("t", b"%d.2" % n)], expected_seq=seq) for n, seq in enumerate(expected)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert [isinstance(result, SeqConflict) for result in results] == [n % 5 == 0 for n in range(MANY)]
        await check(store, 2, [n for n in range(MANY) if n % 5])
        await check(store, 1, range(0, MANY, 5))


async def test_what_another_process_appended_meanwhile_costs_a_second_try_and_nothing_else(tmp_path: Path) -> None:
    url = str(tmp_path / "log.db")
    async with open_store(url) as one, open_store(url) as two:
        await know(one)
        for number in range(2, 60):
            store, other = (one, two) if number % 3 else (two, one)
            if number % 4 == 0:
                await other.append("s5", [NewEvent("t", b"5.%d" % number)])
                await append_round(store, number, [n for n in range(MANY) if n != 5])
            else:
                await append_round(store, number)
        for store in (one, two):
            await check(store, 59)


async def test_several_writers_of_one_file_lose_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "log.db")
    async with open_store(url) as one, open_store(url) as two:

        async def write(store: EventStore, name: str, n: int) -> None:
            for seq in range(40):
                await store.append(f"s{n}", [NewEvent(name, b"%d" % seq)], producer=Producer(name, 0, seq))

        await asyncio.gather(*(write(store, name, n) for n in range(MANY) for store, name in ((one, "one"), (two, "two"))))
        for n in range(MANY):
            events = await two.read(f"s{n}")
            assert [event.seq for event in events] == [*range(1, 81)]
            for name in ("one", "two"):
                assert [event.data for event in events if event.type == name] == [b"%d" % seq for seq in range(40)]


async def test_what_lies_below_a_floor_goes_from_its_batch(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    needle = b"needle in the third stream"
    async with open_store(str(path)) as store:
        for number in range(1, 6):
            await append_round(store, number, [n for n in range(MANY) if n != 3])
            await asyncio.gather(
                *(store.append(f"s{n}", [NewEvent("t", needle)]) for n in [3]),
                append_round(store, number, range(100, 100 + MANY)),
            )
        await store.truncate("s7", through=2)
        await store.delete("s3")
        await store.settle()  # type: ignore[union-attr]
        assert counts(path)[0] == 0
        assert await store.bounds("s3") == Bounds(5, 5, 5)
        await check(store, 5, [1, 2, 4])
        await check(store, 5, [7], after=2)
        await store.append("s3", [NewEvent("t", b"3.6")])
        await check(store, 6, [3], after=5)
    assert needle not in readable(path)


async def test_what_a_crash_left_below_a_floor_goes_after_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for number in range(1, 4):
            await append_round(store, number)
        with monkeypatch.context() as patched:
            patched.setattr("stream.sqlite.sweeping.Sweeper.sweep", lambda *_: None)
            await store.truncate("s1", through=2)
            await store.delete("s2")
    assert counts(path) == (3, 0, 0)
    data = b"\xc4\x03" + b"2.3"  # with its length ahead: or it is found in that of the twelfth
    assert data in readable(path)
    async with open_store(str(path)) as store:
        await store.settle()  # type: ignore[union-attr]
        await check(store, 3, [n for n in range(MANY) if n not in (1, 2)])
        await check(store, 3, [1], after=2)
    assert counts(path)[0] == 0
    assert data not in readable(path)
    async with open_store(str(path)) as store:
        await append_round(store, 4)
        await store.truncate("s1", through=3)  # of what lies in a batch nothing is below it
        await store.settle()  # type: ignore[union-attr]
    assert counts(path)[0] == 1


async def test_batches_that_a_crash_left_are_packed_with_the_next_ones(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    for number in range(1, 41):
        async with open_store(str(path)) as store:
            await append_round(store, number)
    assert counts(path)[0] < 33
    async with open_store(str(path)) as store:
        await check(store, 40)


async def test_random_histories_read_the_same_in_batches_or_not(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    given: dict[str, list[bytes]] = {f"s{n}": [] for n in range(MANY)}
    floors = dict.fromkeys(given, 0)
    url = str(tmp_path / "log.db")
    async with open_store(url, durability="normal") as one, open_store(url, durability="normal") as two:
        for _ in range(250):
            store = chance.choice([one, one, one, two])
            sent = []
            for stream_id in chance.sample(sorted(given), chance.choice([1, 4, 12, MANY])):
                sizes = [chance.choice([3, 40, 300, 900, 9000]) for _ in range(chance.choice([1, 1, 1, 5]))]
                datas = [chance.randbytes(size) for size in sizes]
                given[stream_id] += datas
                sent.append(store.append(stream_id, [NewEvent("t", data) for data in datas]))
            await asyncio.gather(*sent)
            if chance.random() < 0.1:
                stream_id = chance.choice(sorted(given))
                floors[stream_id] = chance.randrange(floors[stream_id], len(given[stream_id]) + 1)
                await store.truncate(stream_id, through=floors[stream_id])
            if chance.random() < 0.1:
                stream_id = chance.choice(sorted(given))
                after = chance.randrange(floors[stream_id], len(given[stream_id]) + 1)
                page = await store.read(stream_id, after=after, limit=chance.randrange(1, 50))
                assert [event.data for event in page] == given[stream_id][after : after + len(page)]
        for stream_id, wanted in given.items():
            after = floors[stream_id]
            while page := await two.read(stream_id, after=after, limit=chance.randrange(1, 200)):
                assert page[0].seq == after + 1
                assert [event.data for event in page] == wanted[after : after + len(page)]
                after = page[-1].seq
            assert after == len(wanted)
