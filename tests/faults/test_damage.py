"""Flipped bits and cuts in the file, its write-ahead log and snapshots: the right data, or an error that names it.

A reader either gets exactly what was written, or an error of this package. SQLite keeps copies of names in indexes and
has no checksum over a page, so some damage hides a whole stream from a reader; then `verify` names it. A cut or flipped
write-ahead log of a process that crashed loses its last commits: SQLite can't tell them from commits that never were.
What is left is whole, and a reader that had seen more is told so (`Diverged`).
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from stream import NewEvent, Producer, Snapshot, StreamError, open_store
from stream.sqlite.integrity import check_file
from stream.sqlite.log_integrity import check_snapshots, check_streams
from stream.sqlite.scripts import read_scripts
from tests.batch_rounds import open_packing
from tests.faults.sizes import size

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from stream import EventStore

pytestmark = pytest.mark.anyio
STREAMS = [f"s{n}" for n in range(20)]
Content = dict[str, Any]


async def fill(store: EventStore) -> None:
    """Twenty streams whose appends are packed, but for the last batches; two with producers, one truncated, one deleted."""

    async def write(stream_id: str) -> None:
        for n in range(36):
            said = [hashlib.sha256(f"{stream_id} {n} {part}".encode()).hexdigest() for part in range(2)]  # packs badly
            await store.append(stream_id, [NewEvent("text", text.encode()) for text in said])

    await asyncio.gather(*(write(stream_id) for stream_id in STREAMS))
    for n in range(5):
        await store.append("s0", [NewEvent("t", b"p%d" % n)], producer=Producer("p", 1, n))
        await store.append("s1", [NewEvent("t", b"q%d" % n * 2000)], producer=Producer("q", 0, n))
    for stream_id in ("s1", "s2", "s3"):
        await store.snapshots.save(Snapshot(stream_id, "p", 1, 40, 0, stream_id.encode() * 300))
    await store.truncate("s2", through=33)
    await store.delete("s19")
    await store.settle()  # type: ignore[attr-defined]
    for n in range(4):
        await asyncio.gather(*(store.append(stream_id, [NewEvent("t", b"%d" % n)]) for stream_id in STREAMS))


async def content(store: EventStore, expected: Content | None = None) -> Content:
    """All that a reader may ask for; with `expected` he asks for what he knows to be there."""
    infos = [info async for info in store.streams()]
    found: Content = {"streams": infos}
    for stream_id in STREAMS:
        bounds = await store.bounds(stream_id)
        floor = expected[stream_id][0].floor if expected else bounds.floor
        events = [(event.seq, event.type, event.data, event.at) for event in await store.read(stream_id, after=floor)]
        snapshot = await store.snapshots.load(stream_id, "p")
        found[stream_id] = (
            bounds,
            events,
            await store.producer(stream_id, "p"),
            await store.producer(stream_id, "q"),
            snapshot,
        )
    return found


def verify(path: Path) -> bool:
    """Whether `verify` finds something."""
    known = {"stream": read_scripts("stream.sqlite")}
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        try:
            return any(True for check in (check_file(raw, known), check_streams(raw), check_snapshots(raw)) for _ in check)
        except (sqlite3.DatabaseError, StreamError):
            return True


async def judge(path: Path, expected: Content) -> str:
    """`exact`, `named` with an error, only `verified`, or `silent`."""
    try:
        async with open_store(str(path), create=False) as store:
            found = await content(store, expected)
    except StreamError:
        return "named"
    if found == expected:
        return "exact"
    lost = [stream_id for stream_id in STREAMS if expected[stream_id][4] is not None and found[stream_id][4] is None]
    if lost and found == expected | {stream_id: (*expected[stream_id][:4], None) for stream_id in lost}:
        return "named"  # a snapshot that fails its checksum is none, and listed as unreadable
    return "verified" if await anyio.to_thread.run_sync(partial(verify, path)) else "silent"


@pytest.fixture
async def original(tmp_path: Path) -> tuple[Path, Content]:
    path = tmp_path / "original.db"
    async with open_packing(str(path)) as store:
        await fill(store)
        await store.settle()  # type: ignore[attr-defined]
        return path, await content(store)


def flip_at(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ (1 << bit % 8)]) + data[bit // 8 + 1 :]


def pages_of(data: bytes, root: int) -> list[int]:
    """A page of a table or index and, where it is one that only leads on, those that it leads to."""
    begin = (root - 1) * 4096
    if data[begin] != 5:
        return [root]
    cells = [int.from_bytes(data[begin + 12 + 2 * n :][:2], "big") for n in range(int.from_bytes(data[begin + 3 :][:2], "big"))]
    children = [int.from_bytes(data[place:][:4], "big") for place in (*(begin + cell for cell in cells), begin + 8)]
    return [root, *(page for child in children for page in pages_of(data, child))]


@pytest.mark.heavy
async def test_a_flipped_bit_in_the_file_is_named(original: tuple[Path, Content], chance: random.Random) -> None:
    path, expected = original
    data = path.read_bytes()
    counts = dict.fromkeys(("exact", "named", "verified", "silent"), 0)
    silent: list[int] = []
    for _ in range(size(smoke=150, full=3000)):
        bit = chance.randrange(len(data) * 8)
        damaged = path.with_name("damaged.db")
        damaged.write_bytes(flip_at(data, bit))
        outcome = await judge(damaged, expected)
        counts[outcome] += 1
        if outcome == "silent":
            silent.append(bit)
        for side in ("", "-wal", "-shm"):
            damaged.with_name(f"damaged.db{side}").unlink(missing_ok=True)
    print(f"{len(data)} bytes: {counts}, silent at bits {silent}")
    assert not silent
    assert counts["named"] > sum(counts.values()) / 5


@pytest.mark.parametrize("table", ["streams", "producers", "snapshots", "batches"])
@pytest.mark.heavy
async def test_a_flipped_bit_in_what_a_stream_keeps_apart_is_named(
    original: tuple[Path, Content], chance: random.Random, table: str
) -> None:
    """Heads, floors and watermarks have no checksum of a row: their guards and the schema's rules must do.

    And a batch holds some of every stream.
    """
    path, expected = original
    with closing(sqlite3.connect(path)) as raw:
        look = "SELECT rootpage FROM sqlite_schema WHERE tbl_name = ? AND rootpage > 0"
        roots = [page for (page,) in raw.execute(look, (table,))]
    data = path.read_bytes()
    pages = [page for root in roots for page in pages_of(data, root)]
    counts = dict.fromkeys(("exact", "named", "verified", "silent"), 0)
    for page in pages:
        begin = (page - 1) * 4096
        cells = int.from_bytes(data[begin + 5 : begin + 7], "big")  # what is not free in it
        for _ in range(size(smoke=25, full=700) // (len(pages) if table == "batches" else 1) + 1):
            bit = (begin + chance.randrange(cells, 4096)) * 8 + chance.randrange(8)
            damaged = path.with_name("damaged.db")
            damaged.write_bytes(flip_at(data, bit))
            counts[await judge(damaged, expected)] += 1
            for side in ("", "-wal", "-shm"):
                damaged.with_name(f"damaged.db{side}").unlink(missing_ok=True)
    print(f"{table}: {counts}")
    assert not counts["silent"]


async def test_a_file_that_is_cut_is_named(original: tuple[Path, Content], chance: random.Random) -> None:
    """Known fault K57."""
    path, expected = original
    data = path.read_bytes()
    for _ in range(size(smoke=30, full=500)):
        damaged = path.with_name("damaged.db")
        damaged.write_bytes(data[: chance.randrange(1, len(data))])
        assert await judge(damaged, expected) != "silent"
        for side in ("", "-wal", "-shm"):
            damaged.with_name(f"damaged.db{side}").unlink(missing_ok=True)


async def test_a_damaged_write_ahead_log_leaves_whole_appends_or_a_named_error(tmp_path: Path, chance: random.Random) -> None:
    """Known fault K57: what a process left that crashed, cut or flipped at any place."""
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for n in range(40):
            await store.append("s", [NewEvent("t", f"{n} {part}".encode()) for part in range(3)])
        expected = [(event.seq, event.data) for event in await store.read("s")]
        for side in ("", "-wal"):
            shutil.copy(f"{path}{side}", tmp_path / f"crashed.db{side}")
    log = (tmp_path / "crashed.db-wal").read_bytes()
    shorter = 0
    for number in range(size(smoke=60, full=1500)):
        damaged = tmp_path / "damaged.db"
        shutil.copy(tmp_path / "crashed.db", damaged)
        cut, bit = chance.randrange(len(log)), chance.randrange(len(log) * 8)
        (tmp_path / "damaged.db-wal").write_bytes(log[:cut] if number % 2 else flip_at(log, bit))
        try:
            async with open_store(str(damaged)) as store:
                found = [(event.seq, event.data) for event in await store.read("s")]
                head = (await store.bounds("s")).head
        except StreamError:
            pass
        else:
            assert found == expected[: len(found)]
            assert len(found) == head
            assert len(found) % 3 == 0
            shorter += len(found) < len(expected)
        for side in ("", "-wal", "-shm"):
            (tmp_path / f"damaged.db{side}").unlink(missing_ok=True)
    print(f"{shorter} of the logs lost a tail of whole appends")
    assert shorter
