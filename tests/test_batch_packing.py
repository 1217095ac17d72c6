"""Batches become chunks: what is below a floor goes, what is damaged stays and bars nothing else (laws 2, 6, 16)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING
from unittest.mock import patch

import anyio
import pytest

from stream import CorruptEvent, NewEvent, SeqConflict, StoreClosed, open_store
from stream.sqlite import SqliteStore, batch_packing, packing
from stream.sqlite.batch_packing import pack_batches, pack_prepared, prepare_batches
from stream.sqlite.log_integrity import check_streams
from stream.sqlite.statistics import stream_statistics
from stream.sqlite.sweeping import Sweeper
from tests.backends import flip
from tests.batch_rounds import MANY, append_round, check, counts, pack_early

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from stream.database import Sql

pytestmark = pytest.mark.anyio
NEEDLE = b"a needle in the third stream"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(str(path)) as store:
        assert isinstance(store, SqliteStore)
        yield store


async def pack(store: SqliteStore) -> None:
    """All batches there are, for the sake of a stream that has something below its floor in the newest of them."""
    await append_round(store, 0, range(100, 100 + MANY))
    await append_round(store, 0, range(100, 100 + MANY))
    await store.truncate("s100", through=(await store.bounds("s100")).head)
    await store.settle()


async def test_what_was_deleted_is_not_taken_along_by_what_comes_behind_it(tmp_path: Path) -> None:
    """A small chunk is written anew together with what follows it: not where it lies below the floor, and is to go."""
    path = tmp_path / "log.db"
    async with opened(path) as store:
        await append_round(store, 1)
        await asyncio.gather(*(store.append(f"s{n}", [NewEvent("t", NEEDLE)]) for n in range(MANY)))
        await pack(store)
        assert counts(path)[0] == 0
        with patch.object(Sweeper, "sweep"):  # as if the process were killed before it came to that
            await store.delete("s3")
            await append_round(store, 3)
            await store.truncate("s19", through=3)  # is swept first, and with it all of the batch is packed
        assert counts(path)[0] == 1
    async with opened(path) as store:
        await store.settle()

        await check(store, 3, [3], after=2)
        assert counts(path)[0] == 0
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute(
            "SELECT last, n FROM chunks AS c JOIN streams AS s ON s.id = stream WHERE name = 's3'"
        ).fetchall() == [(3, 1)]


DAMAGE = {
    "floor": "UPDATE streams SET floor = 4, changed = changed + 1 WHERE name = 's3'",
    "head": "UPDATE streams SET head = 2 WHERE name = 's3'",
    "row": "UPDATE appends SET n = 3 WHERE last = 7 AND stream = (SELECT id FROM streams WHERE name = 's3')",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_number_of_a_stream_costs_no_event_and_bars_no_other_batch(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log.db"
    others = [n for n in range(MANY) if n != 3]
    async with opened(path) as store:
        for number in range(1, 7):
            await append_round(store, number)
        await store.append("s3", [NewEvent("t", b"3.7")])
        with closing(sqlite3.connect(path)) as raw:
            before = raw.execute("SELECT * FROM streams WHERE name = 's3'").fetchall()
            harm(raw, DAMAGE[damage])
        with pack_early():
            for number in range(7, 120):
                await append_round(store, number, others)
            await store.append("other", [NewEvent("t", b"")])
        assert counts(path)[0] < 40
        await check(store, 119, others)
        with pytest.raises(CorruptEvent):
            await check(store, 7, [3])
    with closing(sqlite3.connect(path)) as raw:  # nothing of it was taken for what was to go
        if damage == "row":
            harm(raw, DAMAGE["row"].replace("n = 3", "n = 1"))
        else:
            harm(raw, "UPDATE streams SET head = ?, floor = ? WHERE name = 's3'", *before[0][2:4])
    async with opened(path) as store:
        await check(store, 7, [3])


async def test_events_of_a_stream_whose_name_was_damaged_are_nobody_elses_behind_a_packing(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as store:
        await append_round(store, 1)
        await append_round(store, 2)
    with closing(sqlite3.connect(path)) as raw:
        harm(raw, "UPDATE streams SET name = 't3', changed = changed + 100 WHERE name = 's3'")
    others = [n for n in range(MANY) if n != 3]
    async with opened(path) as store:
        await pack_all(store)
        await check(store, 2, others)
        with pytest.raises(CorruptEvent):
            await store.read("t3")


async def pack_all(store: SqliteStore) -> None:
    await store.database.transact(lambda sql: pack_batches(sql, 0))


def harm(raw: sqlite3.Connection, statement: str, *parameters: object) -> None:
    for trigger in (
        "batches_never_change",
        "chunks_never_change",
        "events_never_change",
        "head_floor_and_origin_never_fall_and_each_change_is_numbered",
    ):
        raw.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    assert raw.execute(statement, parameters).rowcount == 1
    raw.commit()


async def test_a_sweep_comes_to_its_end_beside_writers_that_never_rest(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as store:
        for number in range(1, 6):
            await append_round(store, number)
        packs, transact = 0, store.database.transact

        async def transact_beside_others(job: Callable[[Sql], Awaitable[object]]) -> object:
            """Whenever it has packed, there is another batch that holds some of every stream."""
            nonlocal packs
            told = await transact(job)
            packs += 1
            await append_round(store, packs + 5)
            if packs > 3:
                raise StoreClosed("it would never end")
            return told

        with patch.object(store.database, "transact", transact_beside_others):
            await store.truncate("s3", through=3)
            await store.settle()
        assert packs == 1
        await check(store, 6, after=3)


async def test_where_a_batch_does_not_tell_a_retry_is_told_so_and_those_beside_it_hear_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as store:
        for number in range(1, 5):
            await append_round(store, number)
        with closing(sqlite3.connect(path)) as raw:
            harm(raw, "UPDATE batches SET places = x'00', again = x'00' WHERE pos = 2")
        event = [NewEvent("t", b"")]
        retries = [store.append("s3", event, expected_seq=seq, append_id="i") for seq in (1, 2, 3)]
        others = [store.append(f"s{n}", event, expected_seq=9) for n in range(4, MANY)]
        told = await asyncio.gather(*retries, *others, return_exceptions=True)
        assert [type(each) for each in told] == [CorruptEvent, *[SeqConflict] * (MANY - 2)]
        assert isinstance(told[0], CorruptEvent)
        assert (told[0].stream_id, told[0].seq) == ("s3", 2)


async def test_what_can_not_be_swept_is_counted(tmp_path: Path) -> None:
    """Or an erasure would be told to be proven while its bytes lie there."""
    path = tmp_path / "log.db"
    async with opened(path) as store:
        for number in range(1, 5):
            await append_round(store, number)
        with closing(sqlite3.connect(path)) as raw:
            harm(raw, "UPDATE batches SET places = x'00', again = x'00' WHERE pos = 2")
        await store.delete("s3")
        await store.settle()
        held = await stream_statistics(store.database, "s3")
        assert held is not None
        assert (held.rows, held.unswept_rows) == (1, 1)


async def test_a_damaged_append_takes_no_other_of_its_stream_along_into_its_chunk(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as store:
        await append_round(store, 1)
        tries = [store.append("s3", [NewEvent("t", b"3.%d" % number)] * 2) for number in range(100)]
        await asyncio.gather(*tries)
        with closing(sqlite3.connect(path)) as raw:
            [(pos, data)] = raw.execute("SELECT pos, data FROM batches ORDER BY length(data) DESC LIMIT 1")
            place = data.index(b"3.50")
            harm(raw, "UPDATE batches SET data = ? WHERE pos = ?", flip(data[: place + 1]) + data[place + 1 :], pos)
        await store.truncate("s3", through=2)  # within an append
        for is_packed in (False, True):
            if is_packed:
                await pack(store)
                assert counts(path)[0] == 0
            with pytest.raises(CorruptEvent) as refused:
                await store.read("s3", after=2)
            damaged = refused.value.seq
            assert [event.seq for event in await store.read("s3", after=2, limit=damaged - 3)] == [*range(3, damaged)]
            assert [event.seq for event in await store.read("s3", after=damaged + 1)] == [*range(damaged + 2, 202)]
        with closing(sqlite3.connect(path)) as raw:
            assert [fault.kind for fault in check_streams(raw)] == ["damaged"]


@pytest.mark.parametrize("pieces", [[(2, 50), (51, 100)], [(2, 100)], [(2, 201)], [(1, 201)], [(2, 50), (52, 201)], [(3, 201)]])
async def test_a_batch_goes_only_where_chunks_hold_all_of_it(tmp_path: Path, pieces: list[tuple[int, int]]) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as store:
        await append_round(store, 1)
        await pack(store)
        await asyncio.gather(*(store.append("s3", [NewEvent("t", b"")] * 2) for _ in range(100)))
        assert counts(path)[0] == 1
    with closing(sqlite3.connect(path)) as raw:
        [(key,)] = raw.execute("SELECT id FROM streams WHERE name = 's3'")
        for first, last in pieces:
            raw.execute(
                "INSERT INTO chunks (stream, last, n, crc, data) VALUES (?, ?, ?, 0, x'90')", (key, last, last - first + 1)
            )
        if pieces in ([(2, 201)], [(1, 201)]):
            assert raw.execute("DELETE FROM batches").rowcount == 1
        else:
            with pytest.raises(sqlite3.IntegrityError):
                raw.execute("DELETE FROM batches")
        for first, last in ((101, 201), (51, 51), (2, 2)):  # what was missing
            raw.execute(
                "INSERT INTO chunks (stream, last, n, crc, data) VALUES (?, ?, ?, 0, x'90')", (key, last, last - first + 1)
            )
        if pieces == [(2, 50), (51, 100)]:
            assert raw.execute("DELETE FROM batches").rowcount == 1


async def test_a_damaged_chunk_stays_by_itself_and_keeps_nothing_behind_it_from_being_packed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as store:
        await append_round(store, 1)
        await pack(store)
        with closing(sqlite3.connect(path)) as raw:
            harm(raw, "UPDATE chunks SET crc = crc + 1 WHERE stream = (SELECT id FROM streams WHERE name = 's3')")
        await append_round(store, 2)
        await append_round(store, 3)
        await pack(store)
        assert counts(path)[0] == 0
        await check(store, 3, [n for n in range(MANY) if n != 3])
        await check(store, 3, [3], after=1)
        with pytest.raises(CorruptEvent):
            await check(store, 3, [3])


@pytest.mark.heavy
async def test_a_packing_takes_no_more_streams_than_are_quickly_written(tmp_path: Path) -> None:
    """Of batches that have few streams in common one transaction takes a few, and the next one goes on."""
    path = tmp_path / "log.db"
    async with open_store(str(path), durability="normal") as store:
        for begin in range(0, 2_400, 400):
            await append_round(store, 1, range(begin, begin + 400))
        assert counts(path) == (6, 0, 0)
        for left in (4, 2, 0):
            assert (await store.database.transact(partial(pack_batches, after=0))).seen == 2  # type: ignore[union-attr]
            assert counts(path)[0] == left
        await check(store, 1, range(0, 2_400, 7))
        with pack_early():
            for begin in range(0, 400 * 45, 400):  # they are packed as fast as they come
                await append_round(store, 2, range(begin % 2_400, begin % 2_400 + 400))
            await store.append("other", [NewEvent("t", b"")])
    assert counts(path)[0] < 40


async def test_a_packing_takes_no_more_bytes_than_it_may_have_in_memory_and_one_batch_at_least(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as store:
        for number in (1, 2, 3):
            await append_round(store, number)
        [(size_bytes,)] = await store.database.read("SELECT max(length(data)) FROM batches")
        for most, seen in ((size_bytes + 1, 2), (1, 1)):
            with patch.object(batch_packing, "_BYTES_AT_ONCE", most):
                assert (await store.database.transact(partial(pack_batches, after=0))).seen == seen
        await check(store, 3)


async def test_batches_are_packed_when_there_are_many_or_much_is_in_them_or_nothing_comes_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def are_packed_after(rounds: int) -> bool:
        async with opened(path) as store:
            for _ in range(rounds):
                head = (await store.bounds("s0")).head
                await append_round(store, head + 1)
            await anyio.sleep(0.2)
            left = counts(path)[0]
            await check(store, head + 1)
        return left == 0

    with patch.object(packing, "_QUIET_BATCHES", 4), patch.object(packing, "_DUE_BATCHES", 6):
        with patch.object(packing, "_QUIET_S", 60):
            assert not await are_packed_after(5)
            assert await are_packed_after(1)
            with patch.object(packing, "_DUE_BYTES", 1):
                assert await are_packed_after(1)
        with patch.object(packing, "_QUIET_S", 0.05):
            assert not await are_packed_after(3)
            assert await are_packed_after(1)


@pytest.mark.parametrize("meanwhile", ["packed", "truncated", "deleted", "grown"])
async def test_what_was_prepared_is_looked_at_anew_where_something_has_moved_since(tmp_path: Path, meanwhile: str) -> None:
    """Nothing is lost or there twice, and what was let go meanwhile is not taken along by what came behind it."""
    path = tmp_path / "log.db"
    async with opened(path) as store, opened(path) as other:
        await append_round(store, 1)
        await pack(store)
        for number in (2, 3):
            await append_round(store, number)
        with patch.object(Sweeper, "sweep"):
            prepared = await store.database.look(partial(prepare_batches, after=0))
            assert len(prepared.rows) == MANY
            if meanwhile == "packed":
                await other.database.transact(partial(pack_batches, after=0))
            elif meanwhile == "truncated":
                await other.truncate("s3", through=2)
            elif meanwhile == "deleted":
                await other.delete("s3")
            else:
                await append_round(other, 4)
            await store.database.transact(partial(pack_prepared, prepared=prepared))
        floor = {"truncated": 2, "deleted": 3}.get(meanwhile, 0)
        assert counts(path)[0] == (meanwhile == "grown")
        head = 3 + (meanwhile == "grown")
        await check(store, head, [n for n in range(MANY) if n != 3])
        await check(store, head, [3], after=floor)
        with closing(sqlite3.connect(path)) as raw:
            assert not list(check_streams(raw))
            chunks = raw.execute(
                "SELECT last, n FROM chunks AS c JOIN streams AS s ON s.id = stream WHERE name = 's3'"
            ).fetchall()
        assert chunks == {"truncated": [(1, 1), (3, 1)], "deleted": [(1, 1)]}.get(meanwhile, [(3, 3)])
