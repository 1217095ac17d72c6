"""The change feed of a file: across processes, kills and restores, its rules held by the schema, and who is woken by it."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from ledger.upkeep.backup import known_scripts
from stream import Diverged, Event, Gap, NewEvent, follow, follow_all, open_store
from stream.feed import open_place
from stream.sqlite import SqliteStore
from stream.sqlite.backup import back_up, restore
from stream.sqlite.log_integrity import check_streams
from stream.testing.contract.changing import places, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stream import Bounds, EventStore

pytestmark = pytest.mark.anyio
ROOT: Final = Path(__file__).parents[1]
WRITER: Final = """
import asyncio, sys
from stream import NewEvent, open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(int(sys.argv[3])):
            await asyncio.gather(*(store.append(f"{sys.argv[2]}{k}", [NewEvent("n", b"%d" % n)]) for k in range(n % 10 + 1)))
            if n % 20 == 19:
                await store.truncate(f"{sys.argv[2]}0", through=(await store.bounds(f"{sys.argv[2]}0")).head)
    print("done", flush=True)

asyncio.run(main())
"""
READER: Final = """
import asyncio, json, sys
from stream import Event, follow_all, open_store

async def main():
    with open(sys.argv[2], "a+", buffering=1) as kept:  # the token beside what was made of the event, in one write
        kept.seek(0)
        lines = [line for line in kept.read().split("\\n") if line]
        async with open_store(sys.argv[1]) as store:
            async for item, token in follow_all(store, after=json.loads(lines[-1])[3] if lines else ""):
                is_event = isinstance(item, Event)
                said = [item.stream_id, is_event, item.seq if is_event else item.floor, token]
                kept.write(json.dumps(said) + "\\n")

asyncio.run(main())
"""


def start(program: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def end(*children: subprocess.Popen[str]) -> list[int]:
    for child in children:
        child.communicate(timeout=60)
    return [child.returncode for child in children]


async def test_a_reader_that_is_killed_again_and_again_misses_and_repeats_nothing(tmp_path: Path) -> None:
    path, kept = str(tmp_path / "log.db"), tmp_path / "kept.jsonl"
    kept.touch()
    writers = [start(WRITER, path, name, "120") for name in ("a", "b")]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdin is not None
        writer.stdout.readline()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for _ in range(4):
        reader = start(READER, path, str(kept))
        before = kept.stat().st_size
        with anyio.fail_after(30):
            while kept.stat().st_size == before and any(writer.poll() is None for writer in writers):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        reader.send_signal(signal.SIGKILL)
        reader.communicate()
    assert end(*writers) == [0, 0]
    async with open_store(path) as store:
        heads = {info.stream_id: info.head async for info in store.streams()}
        lines = [json.loads(line) for line in kept.read_text().split("\n")[:-1]]
        items = await told(store, lines[-1][3] if lines else "")
        lines += [[name, seq > 0, abs(seq), ""] for name, seq in places(items)]
    reached = dict.fromkeys(heads, 0)
    for stream_id, is_event, seq, _ in lines:
        assert seq == reached[stream_id] + 1 if is_event else seq > reached[stream_id]
        reached[stream_id] = seq
    assert reached == heads
    assert len(heads) == 20


async def test_a_follower_of_all_sees_what_another_process_appends(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    seen: Counter[str] = Counter()
    async with open_store(path) as store:
        writers = [start(WRITER, path, name, "10") for name in ("a", "b")]
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        with anyio.fail_after(30):
            async with aclosing(follow_all(store)) as feed:  # type: ignore[type-var]
                async for item, _ in feed:
                    assert isinstance(item, Event)
                    seen[item.stream_id] += 1
                    if sum(seen.values()) == 110:
                        break
        assert end(*writers) == [0, 0]
        assert seen == {info.stream_id: info.head async for info in store.streams()}


async def test_a_token_of_a_file_that_was_put_back_is_told_so(tmp_path: Path) -> None:
    """Its numbers will be given to other changes, which would be passed over."""
    path = tmp_path / "log.db"
    tokens = []
    for _ in range(3):
        async with open_store(str(path)) as store:
            await store.append("s", [NewEvent("t", b"")])
            await store.append("t", [NewEvent("t", b"")])
            tokens.append((await store.changes()).token)
            tokens.append((await store.changes(limit=1)).token)
        if len(tokens) == 4:
            copied = path.read_bytes()
    path.write_bytes(copied)
    async with open_store(str(path)) as store:
        for token in tokens[:4]:
            await store.changes(after=token)
        await store.append("s", [NewEvent("t", b"")])
        for token in tokens[4:]:
            with pytest.raises(Diverged, match="put back") as diverged:
                await store.changes(after=token)
            assert (diverged.value.after, diverged.value.head) == (6, 5)
            with pytest.raises(Diverged):
                await anext(follow_all(store, after=token))


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[SqliteStore]]:
    """Two over one file, each with a writer of its own, as in two processes."""
    both = [await open_store(str(tmp_path / "log.db")) for _ in range(2)]
    yield [store for store in both if isinstance(store, SqliteStore)]
    for store in both:
        await store.close()


async def test_only_followers_of_what_moved_look_again(stores: list[SqliteStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.wakeups.MAX_WAIT_S", 60.0)
    watching, writing = stores
    names = [f"s{n}" for n in range(40)]
    looks: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    bounds = watching.bounds

    async def counted(stream_id: str) -> Bounds:
        looks[stream_id] += 1
        return await bounds(stream_id)

    async def watch(name: str) -> None:
        async for _ in follow(watching, name):
            seen[name] += 1

    async def until(name: str, count: int) -> None:
        with anyio.fail_after(10):
            while seen[name] < count:
                await asyncio.sleep(0.005)

    async with anyio.create_task_group() as tasks:
        for name in names:
            await writing.append(name, [NewEvent("n", b"")])
            tasks.start_soon(watch, name)
        for name in names:
            await until(name, 1)
        await writing.append("s0", [NewEvent("n", b"")])  # from here on it is known what has been seen
        await until("s0", 2)
        monkeypatch.setattr(watching, "bounds", counted)
        looks["?"] = 1
        while looks:  # until those who were woken by the first appends have looked
            looks.clear()
            await asyncio.sleep(0.3)
        for count in range(2, 6):
            await writing.append("s7", [NewEvent("n", b"")])
            await until("s7", count)
        await asyncio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert 4 <= looks.pop("s7") <= 8
    assert not looks


@pytest.mark.heavy
async def test_where_much_has_moved_all_followers_look(stores: list[SqliteStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a page of streams, and the one that is followed behind them."""
    monkeypatch.setattr("stream.wakeups.MAX_WAIT_S", 60.0)
    watching, writing = stores
    with anyio.fail_after(20):
        for turn in range(3):
            name = f"{turn} followed"
            async with aclosing(follow(watching, name)) as events:  # type: ignore[type-var]
                first = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.1)
                others = [writing.append(f"{turn} {n}", [NewEvent("n", b"")]) for n in range(600)]
                await asyncio.gather(*others, writing.append(name, [NewEvent("n", b"")]))
                assert (await first).seq == 1


async def test_a_token_is_of_no_use_for_a_store_that_was_restored(tmp_path: Path) -> None:
    path, copy, again = (str(tmp_path / name) for name in ("log.db", "copy.db", "again.db"))
    async with open_store(path) as store:
        await store.append("s", [NewEvent("n", b"")])
        token = (await store.changes()).token
        await back_up(path, copy)
    await restore(copy, again, known_scripts())
    async with open_store(again) as store:
        with pytest.raises(Diverged, match="another life"):
            await store.changes(after=token)
        assert (await store.changes()).streams == ["s"]


ATTACKS: Final = (
    "UPDATE streams SET head = head",
    "UPDATE streams SET changed = changed - 1",
    "UPDATE streams SET changed = 0",
    "UPDATE streams SET changed = NULL",
    "UPDATE streams SET floor = floor + 1, guard = guard + 5 WHERE name = 's'",
    "UPDATE marks SET head = 0",
    "DELETE FROM marks",
    "INSERT OR REPLACE INTO marks SELECT stream, number, 7, 0 FROM marks",
)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_the_schema_refuses_a_change_that_the_feed_would_not_tell(tmp_path: Path, attack: str) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await store.append("s", [NewEvent("n", b"")] * 3)
        await store.append("t", [NewEvent("n", b"")] * 3)
    with closing(sqlite3.connect(path)) as raw:
        before = list(raw.iterdump())
        with pytest.raises(sqlite3.Error), raw:
            raw.execute(attack)
        assert list(raw.iterdump()) == before


async def change(store: EventStore, stream_id: str, count: int) -> None:
    """So many changes: what is appended at once to one stream, and is not little, would be one of it."""
    for begin in range(0, count, 5):
        await asyncio.gather(*(store.append(stream_id, [NewEvent("n", b"")]) for _ in range(begin, min(begin + 5, count))))


async def test_a_mark_that_is_damaged_is_named_and_makes_nobody_miss_anything(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        await store.append("s", [NewEvent("n", b"")] * 3)
        await change(store, "t", 1030)
        token = (await store.changes()).token
        await store.append("s", [NewEvent("n", b"")] * 2)
        assert (await store.changes(after=token)).spans == [(3, 5)]
    with closing(sqlite3.connect(path)) as raw:
        assert not list(check_streams(raw))
        with raw:
            raw.execute("DROP TRIGGER marks_never_change")
            raw.execute("UPDATE marks SET head = 4 WHERE head = 3")
        assert [(fault.stream_id, fault.kind) for fault in check_streams(raw)] == [("s", "damaged")]
        assert not list(check_streams(raw, "t"))
    async with open_store(str(path)) as store:
        assert (await store.changes(after=token)).spans == [(0, 5)]


async def test_a_follower_of_all_reads_page_by_page_and_nothing_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(str(tmp_path / "log.db")) as store:
        for _ in range(5):
            await store.append("long", [NewEvent("n", b"")] * 1000)
        pages: list[int] = []
        read = store.read

        async def counted(stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
            events = await read(stream_id, after=after, limit=limit)
            pages.append(len(events))
            return events

        monkeypatch.setattr(store, "read", counted)
        async with aclosing(follow_all(store)) as feed:  # type: ignore[type-var]
            for number in range(1, 4001):
                await anext(feed)
                assert len(pages) == (number + 999) // 1000
        assert max(pages) == 1000


@pytest.mark.heavy
async def test_what_the_feed_asks_does_not_grow_with_the_streams(tmp_path: Path) -> None:
    """By the steps of SQLite's machine: a page of two changes in a file of 100 streams, and of 3,000."""
    steps: list[int] = []
    for count in (100, 3_000):
        async with open_store(str(tmp_path / f"{count}.db")) as store:
            assert isinstance(store, SqliteStore)
            await asyncio.gather(*(store.append(f"s{n}", [NewEvent("n", b"")]) for n in range(count)))
            await change(store, "s5", 1030)  # others are long ago
            token = (await store.changes(limit=count + 1)).token
            await store.append("s7", [NewEvent("n", b"")])
            await store.append("s1", [NewEvent("n", b"")])
            steps.append(await steps_of(store, token))
    assert steps[1] <= 1.2 * steps[0]
    assert steps[0] < 100


@pytest.mark.heavy
async def test_a_token_does_not_grow_with_the_streams_of_batches(tmp_path: Path) -> None:
    """It holds the heads of those that have changed since the last mark, which are few however many go into a batch."""
    async with open_store(str(tmp_path / "log.db")) as store:
        for turn in range(1, 4):
            await asyncio.gather(*(store.append(f"s{n}", [NewEvent("n", b"")]) for n in range(4_000)))
            page = await store.changes(limit=5_000)
            assert len(page.streams) == 4_000
            place = open_place(page.token, store.incarnation)
            assert len(place.known) < 1024 + 512
            assert (await store.changes(after=page.token)).streams == []
            await store.append("s7", [NewEvent("n", b"")])
            assert (await store.changes(after=page.token)).spans == [(2 * turn - 1, 2 * turn)]


async def steps_of(store: SqliteStore, token: str) -> int:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    for reader in store.database._readers:
        await reader.run(lambda connection: connection.set_progress_handler(step, 10))
    assert sorted((await store.changes(after=token)).streams) == ["s1", "s7"]
    return count


async def test_a_gap_that_grows_while_it_is_told_tells_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(str(tmp_path / "log.db")) as store:
        await store.append("s", [NewEvent("n", b"")] * 3)
        real, said = store.changes, []

        async def then_let_go(**options: Any) -> Any:
            page = await real(**options)
            monkeypatch.setattr(store, "changes", real)
            await store.append("s", [NewEvent("n", b"")] * 2)
            await store.truncate("s", through=5)
            return page

        monkeypatch.setattr(store, "changes", then_let_go)
        async with aclosing(follow_all(store)) as feed:  # type: ignore[type-var]
            async for item, token in feed:
                assert isinstance(item, Gap)
                said.append((item.floor, token))
                if item.floor == 5:
                    break
        assert [floor for floor, _ in said] == [3, 5]
        assert places(await told(store, said[0][1])) == [("s", -5)]
        assert places(await told(store, said[1][1])) == []
