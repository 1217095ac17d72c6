"""Several processes on one file: first openings at a barrier, followers, sweeps, packing, a writer that was paused."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from stream import NewEvent, Producer, ProducerFenced, SeqConflict, Snapshot, follow, open_store
from tests.faults.children import Child, Parent, together
from tests.faults.sizes import size

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def open_files(_: Parent, folder: str, name: str, files: int) -> list[list[Any]]:
    """Opens one new file after the other, at once with all the others, and appends twice to each."""
    results = []
    for number in range(files):
        async with open_store(f"{folder}/{number}.db") as store:
            seqs = [(await store.append("s", [NewEvent(name, b"x")])).first_seq for _ in range(2)]
            results.append([store.incarnation, *seqs])
    return results


@pytest.mark.heavy
def test_eight_processes_open_the_same_new_files_at_once(tmp_path: Path) -> None:
    """Known faults K41, K66: no error, one incarnation, no number twice."""
    files = size(smoke=5, full=50)
    answers = together(open_files, [(str(tmp_path), f"w{n}", files) for n in range(8)])
    for number in range(files):
        of_file = [answer[number] for answer in answers]
        assert len({incarnation for incarnation, *_ in of_file}) == 1
        assert sorted(seq for _, *seqs in of_file for seq in seqs) == list(range(1, 17))


async def read_then_append(_: Parent, path: str, name: str, count: int) -> int:
    conflicts = 0
    async with open_store(path) as store:
        for number in range(count):
            while True:
                head = (await store.bounds("s")).head
                await store.read("s", after=max(0, head - 5))
                try:
                    await store.append("s", [NewEvent(name, b"%d" % number)], expected_seq=head)
                except SeqConflict:
                    conflicts += 1
                else:
                    break
    return conflicts


async def test_two_processes_that_read_and_then_append_meet_no_lock(tmp_path: Path) -> None:
    """Known fault K36: the only error is a conflict, and its retry works."""
    path, count = str(tmp_path / "log.db"), size(smoke=60, full=200)
    conflicts = await asyncio.to_thread(together, read_then_append, [(path, name, count) for name in ("a", "b")])
    print(f"{sum(conflicts)} conflicts")
    async with open_store(path) as store:
        events = await store.read("s")
    assert [event.seq for event in events] == list(range(1, 2 * count + 1))
    for name in ("a", "b"):
        assert [event.data for event in events if event.type == name] == [b"%d" % n for n in range(count)]


async def work_and_follow(_: Parent, path: str, number: int, count: int, total: int) -> list[Any]:
    """Appends in several ways and sweeps, and follows what all of them append; gives what it was told and saw."""
    chance = random.Random(number)
    told: list[tuple[int, str]] = []
    seen: list[tuple[int, str]] = []
    async with open_store(path) as store:

        async def watch() -> None:
            async with aclosing(follow(store, "s")) as events:  # type: ignore[type-var]
                async for event in events:
                    seen.append((event.seq, event.data.decode()))
                    if len(seen) == total:
                        return

        async def write() -> None:
            for n in range(count):
                name = f"{number}.{n}"
                producer = Producer(f"p{number}", 0, n) if number % 2 else None
                answer = await store.append("s", [NewEvent("t", name.encode())], producer=producer)
                told.append((answer.first_seq, name))
                await store.append(f"swept {number % 2}", [NewEvent("t", b"x" * chance.choice([5, 3000]))] * 3)
                if n % 5 == 0:
                    bounds = await store.bounds(f"swept {number % 2}")
                    await store.truncate(f"swept {number % 2}", through=chance.randint(bounds.floor, bounds.head))
                if n % 40 == 0:
                    bounds = await store.bounds(f"swept {number % 2}")
                    if bounds.head > bounds.floor:
                        await store.snapshots.save(Snapshot(f"swept {number % 2}", "p", 1, bounds.head, 0, b"state"))

        await asyncio.wait_for(asyncio.gather(watch(), write()), timeout=100)
    return [told, seen]


@pytest.mark.heavy
def test_followers_in_four_processes_see_what_all_of_them_append_beside_sweeps(tmp_path: Path) -> None:
    """Known faults K14, K16, K23: each seq once, in order, everywhere the same; what was acknowledged is where it says."""
    count = size(smoke=100, full=1000)
    path = str(tmp_path / "log.db")
    answers = together(work_and_follow, [(path, number, count, 4 * count) for number in range(4)])
    [(_, seen), *others] = answers
    assert [seq for seq, _ in seen] == list(range(1, 4 * count + 1))
    assert all(other == seen for _, other in others)
    assert sorted(entry for told, _ in answers for entry in told) == sorted(seen)


async def paused_writer(parent: Parent, path: str) -> str:
    async with open_store(path) as store:
        await store.append("s", [NewEvent("t", b"mine")], producer=Producer("run", 0, 0))
        parent.say("written")
        await parent.hear()
        try:
            await store.append("s", [NewEvent("t", b"late")], producer=Producer("run", 0, 1))
        except ProducerFenced as fenced:
            return f"fenced by epoch {fenced.epoch}"
        return "stored"


async def test_a_writer_that_was_paused_and_replaced_is_fenced_when_it_wakes(tmp_path: Path) -> None:
    """Known fault K19."""
    path = str(tmp_path / "log.db")
    child = Child(paused_writer, path)
    try:
        child.say("go")
        assert child.hear() == "written"
        os.kill(child.pid, signal.SIGSTOP)
        async with open_store(path) as store:
            await store.append("s", [NewEvent("t", b"other")], producer=Producer("run", 1, 0))
            os.kill(child.pid, signal.SIGCONT)
            child.say("go on")
            assert child.result() == "fenced by epoch 1"
            assert [event.data for event in await store.read("s")] == [b"mine", b"other"]
    finally:
        child.end()
