"""Several processes share one file: numbers without gaps, acknowledged is stored, everyone sees everything (laws 1, 2, 9)."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from stream import NewEvent, follow, open_store

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
ROOT: Final = Path(__file__).parents[1]

PROGRAM: Final = """
import asyncio, json, sys
from stream import NewEvent, Producer, SeqConflict, open_store

path, job, name, count = sys.argv[1:5]
count = int(count)

async def appends(store):
    first = []
    for n in range(count):
        first.append((await store.append("s", [NewEvent(name, b"%d" % n)] * 2)).first_seq)
    return first

async def concurrent(store):
    results = await asyncio.gather(*(store.append("s", [NewEvent(name, b"%d" % n)] * 2) for n in range(count)))
    return [result.first_seq for result in results]

async def expected(store):
    first = []
    for n in range(count):
        while True:
            head = (await store.bounds("s")).head
            try:
                first.append((await store.append("s", [NewEvent(name, b"%d" % n)] * 2, expected_seq=head)).first_seq)
                break
            except SeqConflict as conflict:
                assert conflict.head > head
    return first

async def produces(store):
    first = []
    for n in range(count):
        for _ in range(2):
            result = await store.append("s", [NewEvent(name, b"%d" % n)] * 2, producer=Producer(name, 0, n))
        assert result.duplicate
        first.append(result.first_seq)
    return first

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    async with open_store(path) as store:
        print(json.dumps([store.incarnation, await globals()[job](store)]))

asyncio.run(main())
"""


def start(path: Path, job: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(path), job, name, str(count)]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def run_together(children: list[subprocess.Popen[str]]) -> list[Any]:
    """Lets all children go at once; gives what each printed."""

    def work() -> list[Any]:
        try:
            for child in children:
                assert child.stdout
                assert child.stdout.readline() == "ready\n"
            for child in children:
                assert child.stdin
                child.stdin.write("go\n")
                child.stdin.flush()
            results = []
            for child in children:
                out, err = child.communicate(timeout=50)
                assert child.returncode == 0, err
                results.append(json.loads(out))
        finally:
            for child in children:
                child.kill()
                child.communicate()
        return results

    return await anyio.to_thread.run_sync(work)


@pytest.mark.parametrize("job", ["appends", "concurrent", "expected", "produces"])
async def test_four_processes_leave_no_gap_and_lose_nothing(tmp_path: Path, job: str) -> None:
    path, count = tmp_path / "log.db", 30
    names = [f"w{n}" for n in range(4)]
    results = await run_together([start(path, job, name, count) for name in names])
    async with open_store(str(path)) as store:
        events = await store.read("s")
    assert [event.seq for event in events] == list(range(1, 4 * count * 2 + 1))
    for name, (_, firsts) in zip(names, results, strict=True):
        for n, first in enumerate(firsts):
            for event in events[first - 1 : first + 1]:
                assert (event.type, event.data) == (name, b"%d" % n)


async def test_two_stores_on_one_file_append_without_losing_anything(tmp_path: Path) -> None:
    url = str(tmp_path / "log.db")
    async with open_store(url) as one, open_store(url) as two:
        assert one.incarnation == two.incarnation
        for n in range(20):  # the head that each remembers is always out of date
            assert (await one.append("s", [NewEvent("t", b"one")])).first_seq == 2 * n + 1
            assert (await two.append("s", [NewEvent("t", b"two")])).first_seq == 2 * n + 2
            assert len(await one.read("s")) == 2 * n + 2


@pytest.mark.parametrize("attempt", range(3))
async def test_six_processes_open_the_same_new_file_at_once(tmp_path: Path, attempt: int) -> None:
    path = tmp_path / f"{attempt}.db"
    results = await run_together([start(path, "appends", f"w{n}", 1) for n in range(6)])
    assert len({incarnation for incarnation, _ in results}) == 1
    assert sorted(first for _, [first] in results) == [1, 3, 5, 7, 9, 11]


async def test_a_follower_sees_what_another_process_appends(tmp_path: Path) -> None:
    path, count = tmp_path / "log.db", 25
    seen: list[int] = []
    async with open_store(str(path)) as store, anyio.create_task_group() as tasks:

        async def watch() -> None:
            async with aclosing(follow(store, "s")) as events:  # type: ignore[type-var]
                async for event in events:
                    seen.append(event.seq)
                    if event.seq == 2 * count:
                        return

        tasks.start_soon(watch)
        with anyio.fail_after(30):
            await run_together([start(path, "appends", "w", count)])
            while len(seen) < 2 * count:
                await anyio.sleep(0.005)
    assert seen == list(range(1, 2 * count + 1))


async def test_a_commit_of_another_process_wakes_a_waiter_by_the_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.wakeups.MAX_WAIT_S", 60)
    url = str(tmp_path / "log.db")
    async with open_store(url) as mine, open_store(url) as theirs:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: mine.wait("s", after=0))
                await anyio.sleep(0.1)
                await theirs.append("s", [NewEvent("t", b"x")])


TWICE: Final = """
import asyncio, os, signal, sys
from stream import NewEvent, open_store

async def main():
    store = await open_store(sys.argv[1])
    await store.append("s", [NewEvent("t", b"1")])
    async with open_store(sys.argv[1]):
        pass
    print("ready", flush=True)
    sys.stdin.readline()
    print((await store.append("s", [NewEvent("t", b"2")])).last_seq, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_second_opening_in_one_process_keeps_the_lock_of_the_first(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops a process's locks on it: the last of the others then deletes the log."""
    path = str(tmp_path / "log.db")
    with subprocess.Popen(
        [sys.executable, "-c", TWICE, path], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        assert child.stdin
        assert child.stdout.readline() == "ready\n"
        async with open_store(path) as store:
            assert (await store.bounds("s")).head == 1
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "2\n"
        child.wait(timeout=20)
    async with open_store(path) as store:
        assert [event.data for event in await store.read("s")] == [b"1", b"2"]
