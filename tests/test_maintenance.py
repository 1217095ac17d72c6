"""What a file holds is counted and checked beside a writer, and its room is given back (K40)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger.upkeep.backup import known_scripts
from stream import AppendResult, CorruptEvent, Event, NewEvent, Producer, Snapshot, StoreBusy, open_store
from stream.sqlite import SqliteStore
from stream.sqlite import vacuum as vacuuming
from stream.sqlite.blocking import Connect, run_blocking
from stream.sqlite.integrity import Fault, check_file
from stream.sqlite.log_integrity import check_snapshots, check_streams
from stream.sqlite.statistics import store_statistics, stream_statistics
from stream.sqlite.vacuum import vacuum

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(str(path)) as store:
        assert isinstance(store, SqliteStore)
        yield store


async def fill(store: SqliteStore) -> None:
    """`s`: 4 events and one more, truncated through 2, two producers; `packed`: 264 appends; `gone`: deleted."""
    await store.append("s", [NewEvent("t", b"ab")] * 4, producer=Producer("p", 0, 0))
    await store.append("s", [NewEvent("t", b"c")], producer=Producer("q", 1, 0))
    for number in range(264):
        await store.append("packed", [NewEvent("t", b"%d" % number)], producer=Producer("p", 0, number))
    await store.append("gone", [NewEvent("t", b"x")])
    await store.truncate("s", through=2)
    await store.delete("gone")
    await store.snapshots.save(Snapshot("s", "p", 1, 3, 0, b"state"))
    await store.settle()


async def test_a_store_is_counted(store: SqliteStore, path: Path) -> None:
    await fill(store)
    counted = await store_statistics(store.database)
    assert (counted.streams, counted.events, counted.numbered, counted.producers) == (3, 267, 270, 3)
    assert (counted.snapshots, counted.unswept_rows, counted.rows, counted.payload_bytes) == (1, 0, None, None)
    assert counted.snapshot_bytes > len(b"state")
    assert counted.incarnation == store.incarnation
    assert counted.sqlite == sqlite3.sqlite_version
    assert counted.versions == {"stream": len(known_scripts()["stream"])}
    assert counted.pages * counted.page_bytes >= counted.file_bytes == path.stat().st_size
    assert counted.wal_bytes == path.with_name("log.db-wal").stat().st_size > 0
    first, last = (await store.read("s", after=2))[0].at, (await store.read("packed"))[-1].at
    assert counted.first_at is not None
    assert counted.last_at is not None
    assert first <= counted.first_at <= last <= counted.last_at
    exact = await store_statistics(store.database, exact=True)
    streams = [await stream_statistics(store.database, stream_id) for stream_id in ("s", "packed", "gone")]
    assert exact.rows == sum(stream.rows for stream in streams if stream)
    assert exact.payload_bytes == sum(stream.payload_bytes for stream in streams if stream)


async def test_an_empty_store_is_counted(store: SqliteStore) -> None:
    counted = await store_statistics(store.database, exact=True)
    assert (counted.streams, counted.events, counted.rows, counted.payload_bytes) == (0, 0, 0, 0)
    assert counted.first_at is counted.last_at is None


async def test_a_stream_is_counted(store: SqliteStore) -> None:
    await fill(store)
    counted = await stream_statistics(store.database, "s")
    assert counted is not None
    assert (counted.floor, counted.head, counted.origin, counted.events) == (2, 5, 0, 3)
    assert (counted.rows, counted.unswept_rows, counted.producers, counted.snapshots) == (2, 0, 2, 1)
    assert counted.payload_bytes > 5
    assert counted.first_at == (await store.read("s", after=2))[0].at
    packed = await stream_statistics(store.database, "packed")
    assert packed is not None
    assert (packed.events, packed.rows) == (264, 9)  # 256 appends are one row
    assert packed.last_at == (await store.read("packed"))[-1].at
    gone = await stream_statistics(store.database, "gone")
    assert gone is not None
    assert (gone.events, gone.head, gone.rows, gone.first_at, gone.last_at) == (0, 1, 0, None, None)
    assert await stream_statistics(store.database, "unknown") is None


async def test_what_is_not_yet_swept_is_counted(store: SqliteStore) -> None:
    await fill(store)
    await store.database.write(
        lambda sql: sql("UPDATE streams SET floor = head, guard = guard + 5 * head, changed = 9999 WHERE name = 'packed'")
    )
    counted = await store_statistics(store.database)
    stream = await stream_statistics(store.database, "packed")
    assert stream is not None
    assert counted.unswept_rows == stream.unswept_rows == 9


async def test_counting_looks_at_no_payload_unless_asked(store: SqliteStore) -> None:
    """The pages of a large store are not read: as many steps of the machine as for a small one."""
    steps = []
    for count in (10, 3000):
        await store.adopt(f"s{count}", [Event(f"s{count}", n, "t", b"x" * 100, n) for n in range(1, count + 1)])
        await store.append("s", [NewEvent("t", b"x")] * 2)
        await store.truncate("s", through=1)
        counter = 0

        def count_step() -> None:
            nonlocal counter
            counter += 1

        reader = store.database._readers
        for connection in reader:
            await connection.set_progress_handler(count_step, 1)
        await store_statistics(store.database)
        for connection in reader:
            await connection.set_progress_handler(None, 1)  # type: ignore[arg-type]
        steps.append(counter)
    assert steps[1] < 2 * steps[0]


async def test_room_is_given_back_and_numbers_go_on(store: SqliteStore, path: Path) -> None:
    for number in range(20):
        await store.append("s", [NewEvent("t", bytes(50_000))] * 2, producer=Producer("p", 0, number))
    await store.append("kept", [NewEvent("t", b"kept")])
    await store.truncate("s", through=40)
    done = await vacuum(store)
    assert done.before_bytes > 2_000_000
    assert done.after_bytes == path.stat().st_size < 200_000
    assert path.with_name("log.db-wal").stat().st_size == 0
    assert await store.append("s", [NewEvent("t", b"x")], producer=Producer("p", 0, 20)) == AppendResult(41, 41)
    assert await store.append("kept", [NewEvent("t", b"x")]) == AppendResult(2, 2)
    assert [event.data for event in await store.read("kept")] == [b"kept", b"x"]
    assert await faults(path) == []


@pytest.mark.heavy
async def test_a_vacuum_beside_appends_and_readers_loses_none(store: SqliteStore, path: Path) -> None:
    await fill(store)
    stored = []

    async def write() -> None:
        async with open_store(str(path)) as other:
            for number in range(200):
                writer = (store, other)[number % 2]
                stored.append((await writer.append("live", [NewEvent("t", b"%d" % number)])).last_seq)
                assert len(await other.read("live")) == number + 1

    writing = asyncio.create_task(write())
    while not writing.done():
        await vacuum(store)
    await writing
    assert stored == list(range(1, 201))
    assert await faults(path) == []


async def test_a_vacuum_under_a_reader_that_stalls_says_so_and_appends_go_on(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuuming, "_BUSY_LIMIT_S", 0.2)
    await fill(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as stalled:
        stalled.execute("BEGIN")
        stalled.execute("SELECT * FROM streams").fetchall()
        vacuuming_now = asyncio.create_task(vacuum(store))
        await asyncio.sleep(0.05)
        assert await store.append("s", [NewEvent("t", b"x")]) == AppendResult(6, 6)
        with pytest.raises(StoreBusy, match="another process reads the file"):
            await vacuuming_now
        stalled.execute("COMMIT")
        await vacuum(store)


async def faults(path: Path) -> list[Fault]:
    def check(connect: Connect) -> list[Fault]:
        with connect(str(path)) as connection:
            known = known_scripts()
            return [*check_file(connection, known), *check_streams(connection), *check_snapshots(connection)]

    return await run_blocking(check)


TRIGGERS: Final = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"

DAMAGE: Final = [
    ("DELETE FROM appends WHERE stream = 1 AND last = 4", "missing", "events 3 to 4 of stream 's' are missing"),
    ("DELETE FROM appends WHERE stream = 1 AND last = 5", "missing", "events 5 to 5 of stream 's' are missing"),
    ("DELETE FROM chunks", "missing", "events 1 to 256 of stream 'packed' are missing"),
    ("DELETE FROM appends WHERE stream = 1", "missing", "events 3 to 5 of stream 's' are missing"),
    ("UPDATE appends SET last = 6, n = 2 WHERE stream = 1 AND last = 5", "damaged", "beyond its head"),
    ("UPDATE appends SET n = 2 WHERE stream = 1 AND last = 5", "damaged", "are there twice"),
    ("UPDATE appends SET n = 3 WHERE stream = 1 AND last = 4", "damaged", "holds 4 events instead of 3"),
    ("UPDATE appends SET data = zeroblob(3) WHERE stream = 1 AND last = 4", "damaged", "event 1 of stream 's' is damaged"),
    ("UPDATE appends SET at = at + 1 WHERE stream = 1 AND last = 4", "damaged", "event 1 of stream 's' is damaged"),
    ("UPDATE chunks SET data = zeroblob(300)", "damaged", "event 1 of stream 'packed' is damaged"),
    ("UPDATE chunks SET crc = crc + 1", "damaged", "event 1 of stream 'packed' is damaged"),
    ("UPDATE streams SET head = head + 1 WHERE name = 's'", "missing", "events 6 to 6 of stream 's' are missing"),
    ("UPDATE producers SET seq = 262 WHERE stream = 2", "producer", "has forgotten its append 0/263"),
    ("UPDATE producers SET epoch = 0 WHERE name = 'q'", "producer", "has forgotten its append 1/0"),
    ("UPDATE producers SET epoch = NULL WHERE name = 'q'", "producer", "has forgotten its append 1/0"),
    ("UPDATE producers SET last = 99 WHERE name = 'q'", "producer", "events 5 to 99, the head is 5"),
    ("UPDATE producers SET seq = -1 WHERE stream = 1", "producer", "is at 0/-1"),
    ("UPDATE appends SET producer = 3 WHERE stream = 1 AND last = 5", "reference", "of a producer of another stream"),
    ("DELETE FROM producers WHERE name = 'q'", "reference", "of a producer that is not there"),
    ("UPDATE appends SET stream = 9 WHERE stream = 1", "reference", "of a stream that is not there, 9"),
    ("UPDATE chunks SET stream = 9", "reference", "row of streams that is not there"),
    ("UPDATE producers SET stream = 9 WHERE name = 'q'", "reference", "row of streams that is not there"),
    ("UPDATE snapshots SET last_seq = 6", "snapshot", "lies outside its events 1 to 5"),
    ("UPDATE snapshots SET envelope = zeroblob(60)", "snapshot", "snapshot 3 of p of stream 's' fails its checksum"),
    ("UPDATE snapshots SET stream = 9", "reference", "row of streams that is not there"),
    ("DELETE FROM store", "schema", "which incarnation"),
    ("DROP TRIGGER events_never_change", "schema", "trigger events_never_change is missing"),
    ("DROP TABLE snapshots", "schema", "table snapshots is missing"),
    ("CREATE TABLE mine (x)", "schema", "table mine is none of ours"),
    ("ALTER TABLE snapshots ADD COLUMN mine TEXT", "schema", "table snapshots was changed"),
]


@pytest.mark.parametrize(("statement", "kind", "what"), DAMAGE, ids=[statement for statement, _, _ in DAMAGE])
async def test_whatever_is_wrong_in_a_file_is_named(path: Path, statement: str, kind: str, what: str) -> None:
    async with open_store(str(path)) as store:
        assert isinstance(store, SqliteStore)
        await fill(store)
    assert await faults(path) == []
    with closing(sqlite3.connect(path)) as raw, raw:
        triggers: list[Any] = raw.execute(TRIGGERS).fetchall()
        for name, _ in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        if statement.startswith("DROP TRIGGER"):
            triggers = [trigger for trigger in triggers if trigger[0] != "events_never_change"]
        else:
            raw.execute(statement)
        for _, sql in triggers:
            raw.execute(sql)
    found = await faults(path)
    assert kind in {fault.kind for fault in found}
    assert any(what in fault.what for fault in found), found


async def test_every_damaged_row_is_named_and_every_page_of_rows_is_looked_at(path: Path, store: SqliteStore) -> None:
    await store.adopt("long", [Event("long", seq, "t", b"x", seq) for seq in range(1, 1001)])  # a row each
    places = (1, 256, 257, 512, 513, 1000)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DROP TRIGGER events_never_change")
        raw.execute(f"UPDATE appends SET crc = crc + 1 WHERE last IN {places}")
    found = [fault for fault in await faults(path) if fault.kind == "damaged"]
    assert [fault.what.split()[1] for fault in found] == [str(place) for place in places]
    with pytest.raises(CorruptEvent):
        await store.read("long")


async def test_a_check_beside_writers_and_sweepers_finds_nothing(path: Path, store: SqliteStore) -> None:
    await store.adopt("long", [Event("long", seq, "t", b"x", seq) for seq in range(1, 3001)])
    stop = asyncio.Event()

    async def work() -> None:
        number = 0
        while not stop.is_set():
            await store.append("live", [NewEvent("t", b"x")] * 3, producer=Producer("p", 0, number))
            await store.append("long", [NewEvent("t", b"x")])
            await store.truncate("long", through=min(3000, number * 20))
            number += 1

    working = asyncio.create_task(work())
    try:
        for _ in range(10):
            assert await faults(path) == []
    finally:
        stop.set()
        await working


@pytest.mark.parametrize(
    "name",
    ["appends", "chunks", "streams", "snapshots", "producers", "sqlite_autoindex_appends_1", "sqlite_autoindex_chunks_1",
     "sqlite_autoindex_streams_1", "sqlite_autoindex_producers_1", "sqlite_autoindex_snapshots_1"],
)  # fmt: skip
async def test_a_damaged_page_is_named(path: Path, name: str) -> None:
    async with open_store(str(path)) as store:
        assert isinstance(store, SqliteStore)
        await fill(store)
    with closing(sqlite3.connect(path)) as raw:
        [(root,)] = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,))
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    found = await faults(path)
    assert "file" in {fault.kind for fault in found}
    if name == "appends":
        assert ("s", "damaged") in {(fault.stream_id, fault.kind) for fault in found}
