"""The tail that all followers of a stream share: each seq once, in order, on each store, and one read for all of them."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import TYPE_CHECKING, Any, Final, cast
from unittest import mock

import anyio
import pytest

from stream import Diverged, Event, MemoryStore, NewEvent, StoreBusy, StoreClosed, Truncated, open_store
from stream import tail as tail_module
from stream.limits import LIMITS
from stream.sqlite import SqliteStore
from stream.tail import Tails
from stream.testing import disturb, lost_wakeups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.backends import Backend, Store

pytestmark = pytest.mark.anyio

_PATIENCE_S: Final = 20


def new(count: int, size: int = 0) -> list[NewEvent]:
    return [NewEvent("n", b"x" * size)] * count


async def pull(tails: Tails, last: int, *, after: int = 0, pause: Callable[[], float] = lambda: 0.0) -> list[int]:
    """The seqs that a follower is given until `last`."""
    seen: list[int] = []
    with anyio.fail_after(_PATIENCE_S), tails.join("s", after=after) as follower:
        while (seen or [after])[-1] < last:
            seen += [event.seq for event in await follower.next()]
            await asyncio.sleep(pause())
    return seen


async def law(store: Store, tails: Tails, *, appends: int = 60) -> None:
    """Followers that come at any moment, fast and slow, are given what is behind their position once, in order."""
    chance = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    seen: list[tuple[int, list[int]]] = []
    last = 3 * appends

    async def write() -> None:
        for _ in range(appends):
            await store.append("s", new(3, 2000))
            await asyncio.sleep(chance.choice((0, 0, 0.002)))

    async def follow(number: int) -> None:
        await asyncio.sleep(0.003 * number)
        after = chance.randrange((await store.bounds("s")).head + 1)
        slow = number % 3 == 0
        seen.append((after, await pull(tails, last, after=after, pause=lambda: chance.random() * 0.02 if slow else 0.0)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for number in range(12):
            tasks.start_soon(follow, number)
    assert len(seen) == 12
    for after, its in seen:
        assert its == list(range(after + 1, last + 1))


async def test_each_follower_sees_each_event_once_in_order(store: Store) -> None:
    await law(store, Tails(store))


async def test_it_is_so_where_every_call_is_held_up_and_every_signal_lost(store: Store) -> None:
    with lost_wakeups(wait_s=0.01):
        await law(disturb(store, random.Random(1), late=0.5), Tails(store, idle_s=0.01), appends=20)


async def test_it_is_so_where_next_to_nothing_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "_KEEP_ALL_BYTES", 5000)
    await law(store, Tails(store))


def _repeats(self: Any, after: int) -> tuple[Event, ...]:
    return tuple(event for batch, _ in self.batches if batch[-1].seq > after for event in batch)


def _skips(self: Any, after: int) -> tuple[Event, ...]:
    return self.batches[-1][0] if self.batches and after < self.head else ()


@pytest.mark.parametrize("fault", [_repeats, _skips])
async def test_canary_a_tail_that_repeats_or_skips_is_seen(fault: Callable[..., Any]) -> None:
    store = MemoryStore()
    with mock.patch.object(tail_module._Tail, "behind", fault), pytest.raises((AssertionError, ExceptionGroup)):
        await law(store, Tails(store))


class Counted:
    """A store that counts what it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, stream_id: str, **options: Any) -> list[Event]:
        self.reads.append(stream_id)
        return await self._store.read(stream_id, **options)

    async def bounds(self, stream_id: str) -> Any:
        self.reads.append(stream_id)
        return await self._store.bounds(stream_id)


async def joined(tails: Tails, streams: list[str], tasks: Any, seen: list[tuple[str, tuple[Event, ...]]]) -> None:
    """A follower of each, that is where its stream is."""

    async def follow(stream: str) -> None:
        with tails.join(stream, after=(await tails._store.bounds(stream)).head) as follower:
            while True:
                seen.append((stream, await follower.next()))

    for stream in streams:
        tasks.start_soon(follow, stream)
    with anyio.fail_after(_PATIENCE_S):
        while sum(tail.followers for tail in tails._tails.values()) < len(streams):
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)


async def until(done: Callable[[], bool]) -> None:
    with anyio.fail_after(_PATIENCE_S):
        while not done():
            await asyncio.sleep(0.005)


async def test_what_comes_is_read_once_for_all_and_handed_on_as_it_is(store: Store) -> None:
    counted, seen = Counted(store), list[tuple[str, tuple[Event, ...]]]()
    async with anyio.create_task_group() as tasks:
        await joined(Tails(counted), ["s"] * 100, tasks, seen)
        counted.reads.clear()
        for number in range(1, 21):
            await store.append("s", new(1))
            await until(lambda number=number: len(seen) == 100 * number)  # type: ignore[misc]
        tasks.cancel_scope.cancel()
    assert len({id(batch) for _, batch in seen}) == 20
    # The events, and whether something has gone, which is asked now and then besides; each by himself would be 2,000.
    assert len(counted.reads) <= 4 * 20


WRITER: Final = """
import asyncio, sys
from stream import NewEvent, open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        for number in range(int(sys.argv[2])):
            await store.append("moves", [NewEvent("n", b"")])
            await asyncio.sleep(0.05)

asyncio.run(main())
"""


async def test_a_commit_of_another_process_wakes_those_whose_stream_has_moved(tmp_path: Path) -> None:
    path, count, seen = str(tmp_path / "log.db"), 20, list[tuple[str, tuple[Event, ...]]]()
    async with open_store(path) as store:
        for stream in ("moves", *(still := [f"still-{number}" for number in range(50)])):
            await store.append(stream, new(1))
        counted = Counted(store)
        async with anyio.create_task_group() as tasks:
            await joined(Tails(counted), ["moves", *still], tasks, seen)
            counted.reads.clear()
            tasks.start_soon(anyio.run_process, [sys.executable, "-c", WRITER, path, str(count)])
            await until(lambda: sum(len(batch) for _, batch in seen) >= count)
            tasks.cancel_scope.cancel()
    assert [event.seq for stream, batch in seen for event in batch if stream == "moves"] == list(range(2, count + 2))
    assert {stream for stream, _ in seen} == {"moves"}
    assert "moves" in counted.reads
    assert len([stream for stream in counted.reads if stream != "moves"]) == 0


async def test_what_comes_while_it_looks_is_not_missed(store: Store) -> None:
    """The signal is heard while the answer of the last look is still on its way."""
    seen = list[tuple[str, tuple[Event, ...]]]()

    class Late(Counted):
        async def bounds(self, stream_id: str) -> Any:
            told = await super().bounds(stream_id)
            if told.head == 1:
                await store.append("s", new(1))
                await asyncio.sleep(0.05)
            return told

    async with anyio.create_task_group() as tasks:
        await joined(Tails(cast("Store", Late(store))), ["s"], tasks, seen)
        await store.append("s", new(1))
        with anyio.fail_after(5):
            while len(seen) < 2:
                await asyncio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert [event.seq for _, batch in seen for event in batch] == [1, 2]


async def test_a_look_at_the_feed_that_fails_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen, failed = str(tmp_path / "log.db"), list[tuple[str, tuple[Event, ...]]](), list[str]()
    async with open_store(path) as store, open_store(path) as other, anyio.create_task_group() as tasks:
        await store.append("s", new(1))
        await joined(Tails(store), ["s"], tasks, seen)

        async def fail(*_: object) -> None:
            failed.append("once")
            monkeypatch.undo()
            raise StoreBusy("for a moment")

        monkeypatch.setattr("stream.tables.store.read_feed", fail)
        await other.append("s", new(1))
        with anyio.fail_after(5):
            while not seen:
                await asyncio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert failed


async def test_a_process_that_always_has_something_to_do_hears_of_others_all_the_same(tmp_path: Path) -> None:
    path, seen = str(tmp_path / "log.db"), list[tuple[str, tuple[Event, ...]]]()
    async with open_store(path) as store, open_store(path) as other, anyio.create_task_group() as tasks:
        assert isinstance(store, SqliteStore)
        database = store.database

        async def work() -> None:
            while True:
                await database.write(lambda sql: sql("SELECT 1"))

        await store.append("s", new(1))
        await joined(Tails(store), ["s"], tasks, seen)
        for _ in range(3):
            tasks.start_soon(work)
        await asyncio.sleep(0.1)
        seen.clear()
        await other.append("s", new(1))
        with anyio.fail_after(5):
            while not seen:
                await asyncio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert [event.seq for _, batch in seen for event in batch] == [2]


async def test_nothing_is_asked_while_nothing_moves(store: Store) -> None:
    counted = Counted(store)
    async with anyio.create_task_group() as tasks:
        await joined(Tails(counted), [f"{n}" for n in range(100)], tasks, [])
        await asyncio.sleep(0.5)  # who begins to listen to a server looks once more
        counted.reads.clear()
        await asyncio.sleep(1.2)
        tasks.cancel_scope.cancel()
    assert not counted.reads


async def test_slow_followers_hold_nothing(store: Store) -> None:
    """What is kept is bounded, whoever is behind; each page is small, and the slow one is given all the same."""
    tails = Tails(store)
    with anyio.fail_after(_PATIENCE_S), tails.join("s") as slow, tails.join("s") as fast:
        sizes, after = [], 0
        for _ in range(30):
            await store.append("s", new(100, 3000))
            while after < (await store.bounds("s")).head:
                batch = await fast.next()
                after = batch[-1].seq if batch else after
        assert tails._kept_bytes <= 1024 * 1024
        seen: list[int] = []
        while len(seen) < 3000:
            batch = await slow.next()
            seen += [event.seq for event in batch]
            sizes.append(sum(len(event.data) for event in batch))
    assert seen == list(range(1, 3001))
    assert max(sizes) <= 64 * 1024
    assert tails._kept_bytes == 0  # nobody is left


@pytest.mark.heavy
async def test_a_slow_follower_holds_no_page_of_large_events_behind_many_small_ones(store: Store) -> None:
    events = [*new(3000), *new(40, 300_000), *new(10)]
    size = len(events) if store.limits == LIMITS else 1
    await asyncio.gather(*(store.append("s", events[at : at + size]) for at in range(0, len(events), size)))
    seen, sizes = list[int](), list[int]()
    with anyio.fail_after(_PATIENCE_S), Tails(store).join("s") as slow:
        while len(seen) < 3050:
            batch = await slow.next()
            seen += [event.seq for event in batch]
            sizes.append(sum(len(event.data) for event in batch))
    assert seen == list(range(1, 3051))
    assert max(sizes) == 300_000


async def test_all_streams_together_are_kept_within_a_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "_KEEP_ALL_BYTES", 100_000)
    tails, seen = Tails(store), list[tuple[str, tuple[Event, ...]]]()
    async with anyio.create_task_group() as tasks:
        await joined(tails, [f"{n}" for n in range(20)], tasks, seen)
        for number in range(20):
            await store.append(f"{number}", new(10, 2000))
        await until(lambda: sum(len(batch) for _, batch in seen) == 200)
        assert 0 < tails._kept_bytes <= 100_000
        tasks.cancel_scope.cancel()


async def test_what_was_kept_goes_when_the_stream_is_still(store: Store) -> None:
    tails = Tails(store, idle_s=0.05)
    with anyio.fail_after(_PATIENCE_S), tails.join("s") as follower:
        await follower._tail.started()
        await store.append("s", new(1, 500))
        while not await follower.next():
            pass
        assert tails._kept_bytes > 500
        assert await follower.next() == ()  # a sign of life
        assert tails._kept_bytes == 0
        await store.append("s", new(1))
        while not (batch := await follower.next()):
            pass
        assert batch[0].seq == 2


async def test_a_floor_that_overtakes_is_told_to_those_it_has_overtaken(store: Store) -> None:
    tails = Tails(store)
    with anyio.fail_after(_PATIENCE_S), tails.join("s") as behind, tails.join("s") as ahead:
        await store.append("s", new(10))
        while ahead.after < 10:
            await ahead.next()
        await store.truncate("s", through=8)
        while await ahead.next():  # nothing comes, and it is told of no error
            pass
        with pytest.raises(Truncated) as told:
            await behind.next()
        assert (told.value.after, told.value.floor) == (0, 8)
        await store.append("s", new(1))
        while not (batch := await ahead.next()):
            pass
        assert batch[0].seq == 11


async def test_what_is_deleted_is_given_to_nobody_though_more_comes_at_once(store: Store) -> None:
    """It was read a moment ago, and is still in memory when the next event is there."""
    tails = Tails(store)
    with anyio.fail_after(_PATIENCE_S), tails.join("s") as behind, tails.join("s") as ahead:
        await ahead._tail.started()
        await store.append("s", new(10))
        while ahead.after < 10:
            await ahead.next()
        assert tails._kept_bytes
        await store.delete("s")
        await store.append("s", new(1))
        while ahead.after < 11:
            await ahead.next()
        await asyncio.sleep(0.2)
        with pytest.raises(Truncated):
            await behind.next()


async def test_positions_that_are_none_are_refused(store: Store) -> None:
    await store.append("s", new(3))
    tails = Tails(store)
    with tails.join("s", after=4) as follower, pytest.raises(Diverged) as told:
        await follower.next()
    assert (told.value.after, told.value.head) == (4, 3)
    with tails.join("s", after=1, incarnation="another") as follower, pytest.raises(Diverged):
        await follower.next()
    with tails.join("s", after=1, incarnation=store.incarnation) as follower:
        assert [event.seq for event in await follower.next()] == [2, 3]
    with pytest.raises(ValueError, match="after"), tails.join("s", after=-1):
        pass


async def test_a_closed_store_ends_each_follower_with_an_error(backend: Backend) -> None:
    store = await backend.open()
    tails = Tails(store)
    with anyio.fail_after(_PATIENCE_S), tails.join("s") as one, tails.join("s") as other:
        first = asyncio.ensure_future(one.next())
        await asyncio.sleep(0.05)
        await store.close()
        for waiting in (first, other.next()):
            with pytest.raises(StoreClosed):
                await waiting
