"""A ledger is used where it was opened: another event loop and a forked process are told so at once, and harm nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import traceback
import warnings
from typing import TYPE_CHECKING

import pytest

from ledger import open_ledger
from stream import NewEvent, StoreElsewhere, StoreUnusable, StreamError, open_store
from stream.sqlite import SqliteStore, handles
from stream.sqlite.backup import back_up

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ledger import Ledger
    from ledger.runs.run import Run
    from stream.sqlite import Sql

pytestmark = pytest.mark.anyio
EVENT = [NewEvent("t", b"x")]


def fork(job: Callable[[], Awaitable[object]]) -> str:
    """What the job gives in a child, in an event loop of its own."""
    out, into = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            asyncio.events._set_running_loop(None)
            told = str(asyncio.run(asyncio.wait_for(job(), 20)))
        except BaseException as error:  # noqa: BLE001 - it is the parent's
            told = f"{type(error).__name__}: {error}" if isinstance(error, StreamError) else traceback.format_exc()
        os.write(into, told.encode())
        os._exit(0)
    os.close(into)
    with open(out, encoding="utf-8") as pipe:  # noqa: PTH123 - no path
        told = pipe.read()
    os.waitpid(child, 0)
    return told


async def opened(path: Path) -> str:
    async with open_store(str(path)) as store:
        return f"at {(await store.append('s', EVENT)).last_seq}"


async def test_a_file_that_was_open_before_a_fork_is_refused_behind_it(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    async with open_store(str(path)) as store:
        await store.append("s", EVENT)
        told = await asyncio.to_thread(fork, lambda: opened(path))
        assert told.startswith("StoreUnusable")
        assert "forkserver" in told
        (tmp_path / "link.db").symlink_to(path)
        assert fork(lambda: opened(tmp_path / "link.db")).startswith("StoreUnusable")
        assert fork(lambda: back_up(str(path), str(tmp_path / "copy.db"))).startswith("StoreUnusable")
        assert fork(lambda: opened(other)) == "at 1"

        async def nested() -> str:
            return fork(lambda: opened(path))

        assert fork(nested).startswith("StoreUnusable")
        assert (await store.append("s", EVENT)).last_seq == 2
    assert fork(lambda: opened(path)) == "at 3"  # closed before the fork


async def test_a_fork_in_the_middle_of_a_statement_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread was in the middle of stays locked in the child: it would wait for ever."""
    monkeypatch.setattr(handles, "_WAIT_FOR_TRIPS_S", 0.01)
    handle = handles.open_handle(str(tmp_path / "a.db"))
    try:
        with handle.busy:
            assert "was running" in fork(lambda: opened(tmp_path / "b.db"))
        assert fork(lambda: opened(tmp_path / "b.db")) == "at 1"
    finally:
        handle.close()


async def use(ledger: Ledger, run: Run) -> list[str]:
    """How the calls of a ledger end, each at once."""
    ends = []

    async def begin() -> None:
        async with ledger.run("c") as begun:
            await begun.message("user", "elsewhere")

    calls: list[Callable[[], Awaitable[object]]] = [
        begin, lambda: ledger.record("c", EVENT), lambda: ledger.transcript("c"), lambda: ledger.compact("c"),
        lambda: ledger.open_runs("c"), lambda: ledger.erase("c"), lambda: ledger.backup("copy.db"), ledger.statistics,
        lambda: ledger.catch_up("c"), lambda: run.message("user", "x"), lambda: run.text("x"), run.flush, run.finish,
        run.close, lambda: ledger.describe("c", title="x"), ledger.close, ledger.close,
    ]  # fmt: skip
    for call in calls:
        try:
            await asyncio.wait_for(call(), 5)
            ends.append("worked")
        except Exception as error:  # noqa: BLE001 - looked at below
            ends.append(type(error).__name__)
    return ends


@pytest.mark.parametrize("place", ["memory:", "file"])
@pytest.mark.parametrize("where", ["thread", "fork"])
async def test_a_ledger_elsewhere_refuses_every_call_and_lives_on(tmp_path: Path, place: str, where: str) -> None:
    async with open_ledger(place if place == "memory:" else str(tmp_path / "c.db")) as ledger:
        async with ledger.run("c") as run:
            await run.message("user", "before")
            if where == "thread":
                ends = await asyncio.to_thread(lambda: asyncio.run(use(ledger, run)))
                assert set(ends) == {"StoreElsewhere"}
            else:
                assert set(fork(lambda: use(ledger, run))[1:-1].split(", ")) == {"'StoreElsewhere'"}
            await run.message("user", "after")
        async with ledger.run("c") as run:
            await run.message("user", "and then")
        assert len(await ledger.transcript("c")) == 3


def test_two_loops_by_turns_and_a_loop_that_has_ended(tmp_path: Path) -> None:
    one, two = asyncio.new_event_loop(), asyncio.new_event_loop()
    store = one.run_until_complete(open_store(str(tmp_path / "a.db")).__aenter__())
    try:
        with pytest.raises(StoreElsewhere, match="run_coroutine_threadsafe"):
            two.run_until_complete(store.append("s", EVENT))
        with pytest.raises(StoreElsewhere):
            two.run_until_complete(store.close())
        assert one.run_until_complete(store.append("s", EVENT)).last_seq == 1
        assert isinstance(store, SqliteStore)
        one.run_until_complete(store.settle())  # no thread has an answer for a loop that has ended
        for task in asyncio.all_tasks(one):  # as a program does that forgets them
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        one.close()
        with pytest.raises(StoreElsewhere, match="has ended"):
            two.run_until_complete(store.append("s", EVENT))
        two.run_until_complete(store.close())  # or its threads would keep the program from ending
        assert two.run_until_complete(opened(tmp_path / "a.db")) == "at 2"
    finally:
        one.close()
        two.close()


# What dies with the loop that has ended: aiosqlite's thread, and the tasks that nobody ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_store_is_closed_though_its_threads_had_answers_for_a_loop_that_has_ended(tmp_path: Path) -> None:
    one, two = asyncio.new_event_loop(), asyncio.new_event_loop()
    store = one.run_until_complete(open_store(str(tmp_path / "a.db")).__aenter__())
    assert isinstance(store, SqliteStore)
    one.run_until_complete(store.append("s", EVENT))
    one.run_until_complete(store.settle())

    async def slow(sql: Sql) -> None:
        time.sleep(0.2)
        await sql("SELECT 1")

    reading = one.create_task(store.database.look(slow))
    one.run_until_complete(asyncio.sleep(0.05))
    for task in {reading, *asyncio.all_tasks(one)}:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    one.close()
    try:
        two.run_until_complete(asyncio.wait_for(store.close(), 10))
        assert two.run_until_complete(opened(tmp_path / "a.db")) == "at 2"
    finally:
        two.close()
    del store, reading, task
    gc.collect()


async def test_a_child_that_ends_in_the_block_of_its_parent_closes_nothing(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "a.db")) as store:
        await store.append("s", EVENT)

        async def leave() -> None:
            opening = open_store("memory:")
            opening._made = store
            await opening.__aexit__(ValueError, ValueError(), None)
            await opening.__aexit__(None, None, None)

        assert fork(leave).startswith("StoreElsewhere")
        assert (await store.append("s", EVENT)).last_seq == 2


async def test_the_refusal_comes_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(str(path)) as store:
        await store.append("s", EVENT)
        handles._INHERITED.add((path.stat().st_dev, path.stat().st_ino))
        try:
            with pytest.raises(StoreUnusable, match="forked"):
                await open_store(str(path))
            with pytest.raises(StoreUnusable, match="forked"):
                await back_up(str(path), str(tmp_path / "copy.db"))
        finally:
            handles._INHERITED.clear()
