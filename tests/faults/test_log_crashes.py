"""SIGKILL before and after each write of what a log does: it is whole, or absent, or done again and then whole."""

from __future__ import annotations

import asyncio
import gzip
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

import pytest

from stream import Event, NewEvent, Producer, SeqConflict, Snapshot, open_store
from stream.sqlite import SqliteStore, open_database, packing
from tests.faults.dying import Deadly, die_everywhere, kill_everywhere
from tests.faults.sizes import FULL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio
MANY: Final = [f"many {n}" for n in range(10)]
STREAMS: Final = ("s", "new", "packed", *MANY)
PACKED: Final = 32
ROUNDS: Final = 4
VERSION_1: Final = Path(__file__).parents[1] / "fixtures" / "version_1.db.gz"
MOMENTS: Final = ["before", "after", "while"] if FULL else ["after"]
"""Who dies after a write that nobody has heard of leaves what one leaves that dies before the next write."""


class Scene(NamedTuple):
    """An operation, which may be repeated, and how many writes it had at least when this was written."""

    act: Callable[[SqliteStore], Awaitable[object]]
    writes: int
    is_whole: bool = True


def batch(name: str) -> list[NewEvent]:
    return [NewEvent(str(part), name.encode()) for part in range(3)]


async def adopt(store: SqliteStore) -> None:
    events = [Event("x", seq, "t", b"%d" % seq * 60_000, seq // 4) for seq in range(6, 16)]
    with suppress(SeqConflict):  # it was done
        await store.adopt("new", events, floor=5, origin=2, producers=[Producer("p", 1, 3), Producer("q", 0, 0)])


async def fill_packed(store: SqliteStore, first: int, end: int) -> None:
    for number in range(first, end):
        await store.append("packed", [NewEvent("t", b"%d" % number)], producer=Producer("p", 0, number))


async def write_until_it_is_packed(store: SqliteStore) -> None:
    with patch.object(packing, "_LATE_APPENDS", PACKED):
        await fill_packed(store, PACKED - 1, PACKED + 5)
        await store.append("s", batch("behind"), producer=Producer("behind", 0, 0))  # the packing was before it


async def append_to_many(store: SqliteStore, first: int, end: int) -> None:
    """What is appended at once to so many streams is one row."""
    for number in range(first, end):
        await asyncio.gather(*(store.append(each, batch(f"{number}"), producer=Producer("p", 0, number)) for each in MANY))


async def write_until_batches_are_packed(store: SqliteStore) -> None:
    with patch.object(packing, "_DUE_BATCHES", ROUNDS):
        await append_to_many(store, ROUNDS, ROUNDS + 3)
        await store.append("s", batch("behind"), producer=Producer("behind", 0, 0))
        while await store.database.read("SELECT 1 FROM batches LIMIT ? OFFSET ?", (1, ROUNDS - 1)):
            await asyncio.sleep(0.001)


async def write_beside_another(store: SqliteStore) -> None:
    """What the store knows is out of date: its rows are passed over, and go in behind what came meanwhile."""
    async with open_store(store.database.path) as other:
        await other.append("s", batch("other"), producer=Producer("other", 0, 0))
    await asyncio.gather(*(store.append("s", batch(name), producer=Producer(name, 0, 0)) for name in ("a", "b")))


SCENES: Final = {
    "append": Scene(lambda store: store.append("s", batch("a"), producer=Producer("p", 1, 0)), 1),
    "append to a new stream": Scene(lambda store: store.append("new", batch("a"), producer=Producer("p", 0, 0)), 3),
    "named append": Scene(lambda store: store.append("s", batch("a"), expected_seq=30, append_id="a"), 1),
    "append beside another": Scene(write_beside_another, 3, is_whole=False),
    "pack": Scene(write_until_it_is_packed, 9, is_whole=False),
    "append to many": Scene(lambda store: append_to_many(store, ROUNDS, ROUNDS + 1), 1),
    "pack batches": Scene(write_until_batches_are_packed, 8, is_whole=False),
    "truncate one of many": Scene(lambda store: store.truncate("many 3", through=7), 6),
    "delete one of many": Scene(lambda store: store.delete("many 3"), 8),
    "truncate": Scene(lambda store: store.truncate("s", through=21), 4),
    "delete": Scene(lambda store: store.delete("s"), 6),
    "save": Scene(lambda store: store.snapshots.save(Snapshot("s", "p", 1, 29, 0, b"new")), 3),
    "drop": Scene(lambda store: store.snapshots.delete("s", "p", 20), 2),
    "adopt": Scene(adopt, 12),
}


async def content(store: SqliteStore) -> list[Any]:
    found: list[Any] = [[info async for info in store.streams()]]
    for stream_id in STREAMS:
        bounds = await store.bounds(stream_id)
        events = [(event.seq, event.type, event.data) for event in await store.read(stream_id, after=bounds.floor)]
        producers = [await store.producer(stream_id, producer_id) for producer_id in ("p", "q", "a", "b", "other")]
        snapshots = [await store.snapshots.load(stream_id, "p"), await store.snapshots.list(stream_id)]
        found.append([events, producers, snapshots])
    return found


async def opened(folder: str) -> SqliteStore:
    store = await open_store(f"{folder}/log.db")
    assert isinstance(store, SqliteStore)
    return store


async def live(folder: str, operation: str, at: int, moment: str) -> None:
    store = await opened(folder)
    Deadly(at, moment).watch(store.database)
    await SCENES[operation].act(store)
    Path(f"{folder}/told").touch()
    await store.settle()
    os._exit(0)


def die(folder: str, files: str, operation: str, moment: str) -> None:
    die_everywhere(folder, files, lambda copy, at: live(copy, operation, at, moment))


@pytest.mark.heavy
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("operation", SCENES)
async def test_a_kill_at_any_write_leaves_all_or_nothing(tmp_path: Path, operation: str, moment: str) -> None:
    scene = SCENES[operation]
    (tmp_path / "template").mkdir()
    store = await opened(f"{tmp_path}/template")
    for number in range(10):
        await store.append("s", batch(str(number)), producer=Producer("p", 0, number))
    await fill_packed(store, 0, PACKED - 1)
    await append_to_many(store, 0, ROUNDS)
    for last_seq in (20, 25):
        await store.snapshots.save(Snapshot("s", "p", 1, last_seq, 0, b"old"))
    before = await content(store)
    await store.close()
    writes = await kill_everywhere(die, tmp_path, "copied", operation, moment)
    print(f"{operation}: {writes} writes, killed {moment} each")
    assert writes >= scene.writes
    store = await opened(f"{tmp_path}/{writes + 1}")  # the one that survived
    after = await content(store)
    await store.close()
    assert after != before
    for number in range(writes + 1):
        store = await opened(f"{tmp_path}/{number}")
        found = await content(store)
        is_told = (tmp_path / str(number) / "told").exists()
        assert found == after if is_told else (found in (before, after) or not scene.is_whole), f"killed {moment} {number}"
        await scene.act(store)
        if operation != "append beside another":  # there the order of what goes in is any
            assert await content(store) == after
        await store.settle()
        await store.append("s", batch("goes on"))
        await store.close()


async def migrate(folder: str, at: int, moment: str) -> None:
    database = await open_database(f"{folder}/log.db", create=False)
    Deadly(at, moment).watch(database)
    await SqliteStore.attach(database)
    os._exit(0)


def die_migrating(folder: str, files: str, moment: str) -> None:
    die_everywhere(folder, files, lambda copy, at: migrate(copy, at, moment))


@pytest.mark.parametrize("moment", [moment for moment in MOMENTS if moment != "while"])
@pytest.mark.heavy
async def test_a_kill_at_any_write_of_a_migration_leaves_the_old_file_or_the_new(tmp_path: Path, moment: str) -> None:
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "log.db").write_bytes(gzip.decompress(VERSION_1.read_bytes()))
    writes = await kill_everywhere(die_migrating, tmp_path, "copied", moment)
    print(f"migration: {writes} writes, killed {moment} each")
    assert writes >= 17
    for number in range(writes + 2):
        store = await opened(f"{tmp_path}/{number}")
        assert [event.data for event in await store.read("whole")] == [b"%d" % n for n in range(1, 25)]
        assert (await store.append("whole", batch("goes on"))).first_seq == 25
        await store.close()
