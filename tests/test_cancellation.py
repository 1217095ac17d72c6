"""A cancelled append is whole or absent, and the store goes on working (laws 1 and 3)."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from stream import NewEvent, Producer, StoreClosed, StreamError, open_store
from stream.sqlite import SqliteStore, connection

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backends import Store

pytestmark = pytest.mark.anyio
BATCH = 3


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return "asyncio", {"use_uvloop": request.param}


def batch(name: str) -> list[NewEvent]:
    return [NewEvent(str(part), name.encode()) for part in range(BATCH)]


async def stored_batches(store: Store, stream_id: str = "s") -> list[str]:
    """The names of the batches in order; fails on a gap or a batch that is not whole."""
    events = await store.read(stream_id, limit=100_000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (await store.bounds(stream_id)).head == len(events)
    names = []
    for start in range(0, len(events), BATCH):
        whole = events[start : start + BATCH]
        assert [event.type for event in whole] == [str(part) for part in range(BATCH)]
        assert len({event.data for event in whole}) == 1
        names.append(whole[0].data.decode())
    return names


async def outcome(task: asyncio.Task[object]) -> bool:
    """True if the append was acknowledged, False if it was cancelled."""
    try:
        await task
    except asyncio.CancelledError:
        return False
    return True


@pytest.mark.parametrize("steps", range(13))
async def test_an_append_cancelled_after_any_number_of_steps_is_whole_or_absent(store: Store, steps: int) -> None:
    acknowledged = []
    for n in range(20):
        task = asyncio.ensure_future(store.append("s", batch(f"cancelled {n}")))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        if await outcome(task):
            acknowledged.append(f"cancelled {n}")
        await store.append("s", batch(f"after {n}"))
        acknowledged.append(f"after {n}")
    names = await stored_batches(store)
    assert len(set(names)) == len(names)
    assert [name for name in names if name in acknowledged] == acknowledged


async def test_several_hundred_appends_cancelled_at_random_leave_no_half_batch(store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged: set[str] = set()

    async def write(name: str, patience_s: float) -> None:
        with anyio.move_on_after(patience_s):
            await store.append("s", batch(name))
            acknowledged.add(name)

    for wave in range(20):
        async with anyio.create_task_group() as tasks:
            for n in range(20):
                tasks.start_soon(write, f"{wave} {n}", chance.choice([0, chance.uniform(0, 0.003)]))
            with anyio.CancelScope() as scope:
                scope.cancel()
                await write(f"{wave} under a cancelled scope", 1)
            if chance.random() < 0.3:
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        await store.append("s", batch(f"after {wave}"))
        acknowledged.add(f"after {wave}")
    names = await stored_batches(store)
    assert len(set(names)) == len(names)
    assert acknowledged <= set(names)


async def test_a_producer_that_repeats_its_cancelled_append_stores_it_once(store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for n in range(200):
        producer = Producer("p", 0, n)
        task = asyncio.ensure_future(store.append("s", batch(str(n)), producer=producer))
        if chance.random() < 0.5:
            await asyncio.sleep(chance.uniform(0, 0.002))
        else:
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
        task.cancel()
        await outcome(task)
        answer = await store.append("s", batch(str(n)), producer=producer)
        assert (answer.first_seq, answer.last_seq) == (n * BATCH + 1, (n + 1) * BATCH)
    assert await stored_batches(store) == [str(n) for n in range(200)]


async def test_two_producers_that_repeat_cancelled_appends_side_by_side_store_each_once(store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")

    async def produce(name: str, chance: random.Random) -> None:
        for n in range(60):
            while True:
                with anyio.move_on_after(chance.uniform(0, 0.004)) as scope:
                    await store.append("s", batch(f"{name} {n}"), producer=Producer(name, 0, n))
                if not scope.cancelled_caught:
                    break
                if chance.random() < 0.5:  # at the latest now it goes through
                    await store.append("s", batch(f"{name} {n}"), producer=Producer(name, 0, n))
                    break

    async with anyio.create_task_group() as tasks:
        for name in ("p", "q"):
            tasks.start_soon(produce, name, random.Random(f"{seed} {name}"))
    names = await stored_batches(store)
    for name in ("p", "q"):
        assert [entry for entry in names if entry.startswith(name)] == [f"{name} {n}" for n in range(60)]


async def test_a_named_append_repeated_after_its_cancel_is_stored_once(store: Store) -> None:
    for n in range(60):
        expected, name = n * BATCH, str(n)
        task = asyncio.ensure_future(store.append("s", batch(name), expected_seq=expected, append_id=name))
        for _ in range(n % 12):
            await asyncio.sleep(0)
        task.cancel()
        await outcome(task)
        answer = await store.append("s", batch(name), expected_seq=expected, append_id=name)
        assert (answer.first_seq, answer.last_seq) == (expected + 1, expected + BATCH)
    assert await stored_batches(store) == [str(n) for n in range(60)]


@pytest.mark.parametrize("steps", range(10))
async def test_a_cancelled_delete_or_truncate_leaves_no_open_transaction(store: Store, steps: int) -> None:
    for n in range(5):
        await store.append("s", batch(str(n)))
        head = (await store.bounds("s")).head
        for call in (lambda through=head - 1: store.truncate("s", through=through), lambda: store.delete("s")):
            task = asyncio.ensure_future(call())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await outcome(task)
            await store.append("t", batch("after"))  # behind whatever the cancelled call had begun
            bounds = await store.bounds("s")
            assert len(await store.read("s", after=bounds.floor)) == bounds.head - bounds.floor
            assert bounds.head == head
    assert await stored_batches(store, "t") == ["after"] * 10


async def test_what_was_acknowledged_before_a_cancelled_body_is_there(tmp_path: Path) -> None:
    url = str(tmp_path / "log.db")

    async def body() -> None:
        async with open_store(url) as store:
            await store.append("s", batch("there"))
            pending = [asyncio.ensure_future(store.append("s", batch(str(n)))) for n in range(20)]
            scope.cancel()
            await asyncio.gather(*pending)

    with anyio.CancelScope() as scope:
        await body()
    assert scope.cancelled_caught
    async with open_store(url) as store:
        names = await stored_batches(store)
        assert names[0] == "there"
        assert len(set(names)) == len(names)


async def test_a_store_abandoned_while_it_commits_ends_and_says_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    """The COMMIT goes on in SQLite's thread: a ROLLBACK behind it has nothing to roll back, and must not raise."""
    for n in range(40):
        store = await open_store(str(tmp_path / f"{n}.db"))
        assert isinstance(store, SqliteStore)
        statements, committing = store.database._execute, threading.Event()

        def told(connection: Any, text: str, *words: Any, statements: Any = statements, committing: Any = committing) -> Any:
            if text == "COMMIT":
                committing.set()
            return statements(connection, text, *words)

        store.database._execute = told  # type: ignore[method-assign]
        deletion = asyncio.ensure_future(store.delete("s"))
        while not committing.is_set():
            await asyncio.sleep(0)
        with anyio.fail_after(10):
            await store.database.abandon()
            with suppress(StoreClosed):  # or it was done just before
                await deletion
        await store.close()


def test_a_file_that_can_not_be_opened_leaves_no_thread_that_answers_a_loop_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no such place")

    async def open_one() -> None:
        async with open_store(str(tmp_path / "log.db")):
            pass

    died: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    monkeypatch.setattr(connection, "open_handle", refuse)
    before = threading.active_count()
    for _ in range(50):
        with pytest.raises((OSError, StreamError)):
            asyncio.run(open_one())
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert not died


async def test_all_connections_are_closed_where_that_is_cancelled(tmp_path: Path) -> None:
    """Ctrl-C cancels every task of an event loop, also the one that closes: a thread that is left would bar the exit."""
    path = str(tmp_path / "chat.db")
    for rounds in range(4):
        connections = connection.Connections(path)
        opened = [await connections.connect() for _ in range(3)]
        closing = asyncio.ensure_future(connections.close())
        for _ in range(rounds):
            await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        if rounds:  # it had begun
            for one in opened:
                one._thread.join(5)
                assert not one._thread.is_alive()
        await connections.close()


@pytest.mark.parametrize("cancels", [1, 2, 3])
def test_a_connection_that_is_cancelled_while_it_closes_answers_no_loop_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancels: int
) -> None:
    died: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", died.append)

    async def cut_off() -> None:
        one = await connection.Connections(str(tmp_path / "log.db")).connect()
        one._tx.put_nowait((None, lambda: time.sleep(0.2)))
        finishing = asyncio.ensure_future(one.finish())
        await asyncio.sleep(0)
        for _ in range(cancels):
            finishing.cancel()
            await asyncio.sleep(0)
        with suppress(asyncio.CancelledError):
            await finishing

    asyncio.run(cut_off())
    time.sleep(0.3)
    assert not died
