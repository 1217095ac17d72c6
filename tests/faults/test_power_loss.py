"""Power loss, by the model of `power.py`: nothing acknowledged is lost with `durability="full"` (law 1)."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from stream import StreamError, open_store
from stream.testing.killing import Job, Record, Told, work
from tests.batch_rounds import pack_early
from tests.faults.power import TOLD, Disk, Entry, build_recorder, read_entries
from tests.faults.sizes import size

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Iterator

    from stream import EventStore
    from stream.testing.killing import Opener

pytestmark = pytest.mark.anyio
ROOT: Final = Path(__file__).parents[2]
CUTS: Final = size(smoke=20, full=320)
NEW_LIFE: Final = b"-\n"
ROUNDS: Final[dict[str, int]] = {"write": 40, "many": 70, "sweep": 8, "snapshot": 80, "all": 15}


@asynccontextmanager
async def open_unsynced(url: str) -> AsyncIterator[Any]:
    """A store that never syncs: what every test of durability must be able to see."""
    async with open_store(url) as store:
        await store.database.write(lambda sql: sql("PRAGMA synchronous = OFF"))  # type: ignore[union-attr]
        yield store


OPENERS: Final[dict[str, Opener]] = {
    "full": open_store,
    "normal": partial(open_store, durability="normal"),
    "off": open_unsynced,
}


def act(folder: str, job: Job, durability: str, seed: str) -> None:
    """Runs in the recorded process: two lives of a store, so that a clean close is recorded too."""
    told = os.open(f"{folder}/{TOLD}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def tell(each: Told) -> None:
        os.write(told, msgspec.json.encode(each) + b"\n")

    for life in range(2):
        os.write(told, NEW_LIFE)
        with pack_early():
            asyncio.run(
                work(f"{folder}/log.db", job, seed=int(seed) + life, tell=tell, opener=OPENERS[durability], rounds=ROUNDS[job])
            )


def record(tmp_path: Path, job: Job, durability: str, chance: random.Random) -> list[Entry]:
    """Lets a process work and gives what it did to its folder; the recording must be complete."""
    folder, log = tmp_path / "recorded", tmp_path / "entries"
    folder.mkdir()
    program = "import sys; from tests.faults.test_power_loss import act; act(*sys.argv[1:])"
    command = [sys.executable, "-c", program, str(folder), job, durability, str(chance.randrange(2**31))]
    own = {"LD_PRELOAD": str(build_recorder(tmp_path)), "TAILFOLD_RECORD_FOLDER": str(folder), "TAILFOLD_RECORD_LOG": str(log)}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    entries = list(read_entries(log))
    disk = Disk()
    for entry in entries:
        disk.do(entry)
    assert disk.written() == {path.name: path.read_bytes() for path in folder.iterdir()}, "a write was not recorded"
    if job == "many":
        with closing(sqlite3.connect(folder / "log.db")) as raw:
            assert raw.execute("SELECT count(*) FROM chunks").fetchone()[0], "nothing was packed"
    return entries


class Cuts:
    """Cuts the power at random places of a recording and says what became of what had been acknowledged by then."""

    def __init__(self, tmp_path: Path, entries: list[Entry], chance: random.Random) -> None:
        self._tmp_path, self._entries, self._chance = tmp_path, entries, chance

    def __iter__(self) -> Iterator[tuple[Path, list[list[Told]]]]:
        disk, told, done = Disk(), b"", 0
        for number, place in enumerate(sorted(self._chance.randrange(len(self._entries) + 1) for _ in range(CUTS))):
            for entry in self._entries[done:place]:
                disk.do(entry)
                told += entry.data if entry.name == TOLD else b""
            done = place
            folder = self._tmp_path / str(number)
            folder.mkdir()
            for name, content in disk.cut(self._chance).items():
                (folder / name).write_bytes(content)
            lives = [life.splitlines() for life in told.split(NEW_LIFE)]
            yield folder / "log.db", [[msgspec.json.decode(line, type=Told) for line in life] for life in lives]


async def check(path: Path, lives: list[list[Told]]) -> int:
    """Raises `Broken` unless all is true that the processes were told; returns how much that was."""
    record = Record()
    for told in lives:
        record.add(told)
    async with open_store(str(path)) as store:
        await record.check(store)
        await record.retry(store)
        await record.check(store)
    assert integrity(path) == "ok"
    return record.acknowledged


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as raw:
        return str(raw.execute("PRAGMA integrity_check").fetchone()[0])


@pytest.mark.parametrize(
    "job", ["all", *(pytest.param(job, marks=pytest.mark.heavy) for job in ("write", "many", "sweep", "snapshot"))]
)
async def test_nothing_acknowledged_is_lost_to_a_power_cut(tmp_path: Path, chance: random.Random, job: Job) -> None:
    acknowledged = 0
    for path, lives in Cuts(tmp_path, record(tmp_path, job, "full", chance), chance):
        acknowledged += await check(path, lives)
    print(f"full, {job}: {CUTS} cuts, {acknowledged} acknowledgements checked, 0 lost")
    assert acknowledged


async def whole_and_lost(store: EventStore, told: list[Told], final: dict[str, list[bytes]]) -> int:
    """How many acknowledged appends are gone; of each stream only a tail may be."""
    heads = {}
    for stream_id, whole in final.items():
        kept = [event.data for event in await store.read(stream_id, limit=100_000)]
        assert kept == whole[: len(kept)], f"stream {stream_id!r} holds something else than it did"
        heads[stream_id] = (await store.bounds(stream_id)).head
        assert heads[stream_id] == len(kept)
    return sum(each.seq > heads[each.stream_id] for each in told)


@pytest.mark.heavy
async def test_a_power_cut_with_normal_durability_takes_a_tail_and_nothing_else(tmp_path: Path, chance: random.Random) -> None:
    """That something is lost here shows that the model of power loss models something."""
    entries = record(tmp_path, "write", "normal", chance)
    async with open_store(str(tmp_path / "recorded" / "log.db")) as store:
        ids = [info.stream_id async for info in store.streams()]
        final = {stream_id: [event.data for event in await store.read(stream_id, limit=100_000)] for stream_id in ids}
    lost = acknowledged = 0
    for path, lives in Cuts(tmp_path, entries, chance):
        told = [each for life in lives for each in life]
        async with open_store(str(path)) as store:
            lost += await whole_and_lost(store, told, final)
        acknowledged += len(told)
        assert integrity(path) == "ok"
    print(f"normal: {CUTS} cuts, {acknowledged} acknowledgements checked, {lost} lost, all of them tails")
    assert 0 < lost < acknowledged


@pytest.mark.heavy
async def test_canary_a_store_that_never_syncs_is_caught(tmp_path: Path, chance: random.Random) -> None:
    caught = 0
    for path, lives in Cuts(tmp_path, record(tmp_path, "write", "off", chance), chance):
        try:
            await check(path, lives)
        except (AssertionError, StreamError, sqlite3.DatabaseError):
            caught += 1
    print(f"off: {caught} of {CUTS} cuts lost something")
    assert caught > CUTS // 4
