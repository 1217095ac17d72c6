"""Faults of ledgers that an attack on the finished code found, each named after its symptom, so that they stay mended."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger import Ledger, LedgerDiverged, RunEnded, RunLost, open_ledger
from ledger.tables.tables import LedgerTables
from stream import MemoryStore, StoreFull, StoreUnusable
from stream.sqlite import MEMORY, open_database
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.anyio


async def texts(ledger: Ledger) -> list[str]:
    return [message.text for message in await ledger.transcript("c")]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_delta_is_durable_in_time_on_every_loop(loop: str) -> None:
    async def main() -> None:
        async with open_ledger("memory:") as ledger:
            for n in range(20):
                run = await ledger.begin_run(f"c{n}", flush_ms=7)
                await run.text("x")
                before = run.acknowledged_seq
                with anyio.fail_after(5):
                    while run.acknowledged_seq == before:
                        await anyio.sleep(0.001)

    anyio.run(main, backend_options={"use_uvloop": loop == "uvloop"})


async def test_an_empty_delta_says_nothing_and_holds_nobody_up() -> None:
    async with open_ledger("memory:") as ledger:
        with anyio.fail_after(5):
            async with ledger.run("c") as run:
                await run.text("")
                await run.flush()
                await run.text("a")
        assert await texts(ledger) == ["a"]


async def test_a_feeder_that_met_a_full_store_goes_on_when_there_is_room() -> None:
    class Full(MemoryStore):
        full = False

        async def append(self, *words: Any, **options: Any) -> Any:
            if self.full:
                raise StoreFull("full")
            return await super().append(*words, **options)

    store = Full()
    ledger = Ledger(store, await LedgerTables.attach(await open_database(MEMORY, create=True)))
    run = await ledger.begin_run("c")
    store.full = True
    fed = errors = 0
    with anyio.fail_after(10):
        while errors < 4 or fed < 60:
            store.full = errors < 4
            try:
                await run.text("x" * 20_000)
                fed += 1
            except StoreFull:
                errors += 1
        with suppress(StoreFull):
            await run.flush()
        await run.finish()
    assert await texts(ledger) == ["x" * 20_000 * fed]
    await ledger.close()


async def test_a_process_goes_on_after_another_one_has_compacted(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as one, open_ledger(path) as two:
        for ledger in (one, two, two, one, one):
            async with ledger.run("c") as run:
                await run.text("x")
            await two.compact("c")
        assert await texts(one) == await texts(two) == ["x"] * 5


async def test_a_log_that_is_older_than_the_ledger_is_told(tmp_path: Path) -> None:
    ledger_path, log = str(tmp_path / "ledger.db"), tmp_path / "log.db"
    for turn in range(2):
        async with open_ledger(ledger_path, log=str(log)) as ledger, ledger.run("c") as run:
            await run.text("x")
        if turn == 0:
            shutil.copy(log, tmp_path / "old.db")
    shutil.copy(tmp_path / "old.db", log)
    async with open_ledger(ledger_path, log=str(log)) as ledger:
        with pytest.raises(LedgerDiverged), anyio.fail_after(10):
            await ledger.begin_run("c")
        assert await texts(ledger) == ["x", "x"]


async def test_a_run_that_names_its_own_message_as_parent_does_not_hang_the_transcript() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.record("c", [started("r", "r.1"), *said("r", "r.1", "me"), finished("r")])
        with anyio.fail_after(5):
            assert await texts(ledger) == []  # it hangs on nothing but itself
            assert [message.text for message in await ledger.transcript("c", branch="all")] == ["me"]


async def test_ids_that_were_taken_stay_with_the_first_and_hide_no_newer_turn() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.record("c", [started("a"), *said("a", "a.1", "one"), finished("a")])
        await ledger.record("c", [started("b", "a.1"), *said("b", "b.1", "two"), *said("b", "a.1", "thief"), finished("b")])
        await ledger.record("c", [started("a", "b.1"), *said("a", "a.9", "again"), finished("a")])
        assert await texts(ledger) == ["one", "two"]
        async with ledger.run("c") as run:
            await run.text("three")
        assert await texts(ledger) == ["one", "two", "three"]


async def test_a_conversation_whose_snapshots_were_lost_is_compacted_again(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        async with ledger.run("c") as run:
            await run.text("x")
        await ledger.compact("c")
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("UPDATE snapshots SET envelope = zeroblob(40)")
        async with ledger.run("c") as run:
            await run.text("y")
        assert (await ledger.compact("c")).floor == (await ledger.store.bounds("c")).head
        assert await texts(ledger) == ["x", "y"]


async def test_a_feeder_that_waited_while_the_run_ended_is_told() -> None:
    gate = asyncio.Event()
    gate.set()

    class Slow(MemoryStore):
        async def append(self, *words: Any, **options: Any) -> Any:
            await gate.wait()
            return await super().append(*words, **options)

    ledger = Ledger(Slow(), await LedgerTables.attach(await open_database(MEMORY, create=True)))
    run = await ledger.begin_run("c")
    gate.clear()

    fed = 0

    async def feed() -> None:
        nonlocal fed
        while True:
            await run.text("x" * 50_000)
            fed += 1

    feeder = asyncio.create_task(feed())
    await asyncio.sleep(0.05)
    ending = asyncio.create_task(run.finish())
    await asyncio.sleep(0.01)
    gate.set()
    await ending
    with pytest.raises(RunEnded):
        await feeder
    assert await texts(ledger) == ["x" * 50_000 * fed]  # what feed has taken is in the transcript
    await ledger.close()


async def test_runs_that_were_lost_leave_no_task_behind() -> None:
    async with open_ledger("memory:") as ledger:
        run = await ledger.begin_run("c", run_id="r")
        await ledger.recover("c", "r", "commit")
        with pytest.raises(RunLost):
            await run.finish()
        assert not [task for task in asyncio.all_tasks() if "outbox" in task.get_name()]


async def test_a_ledger_that_cannot_be_opened_leaves_no_thread_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    async with open_ledger(path, log=str(tmp_path / "log.db")):
        pass
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE components SET version = 99")
    before = threading.active_count()
    with pytest.raises(StoreUnusable):
        await open_ledger(path, log=str(tmp_path / "log.db"))
    with anyio.fail_after(10):
        while threading.active_count() > before:
            await asyncio.sleep(0.01)


async def test_a_damaged_conversation_does_not_bar_the_others(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await ledger.record("bad", [started("b"), *said("b", "b.1", "x"), finished("b")])
        await ledger.record("c", [started("r"), *said("r", "r.1", "x"), finished("r")])
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("DROP TRIGGER events_never_change")
            raw.execute("UPDATE appends SET crc = 0 WHERE stream = (SELECT id FROM streams WHERE name = 'bad')")
        assert await ledger.find_run("r") == "c"
        assert [run.run_id async for run in ledger.runs()] == ["r"]


async def test_show_lists_anomalies_also_when_it_comes_late(tmp_path: Path) -> None:
    for _ in range(2):  # the second time everything is committed, and known from rows and snapshots
        async with open_ledger(str(tmp_path / "c.db")) as ledger:
            if (await ledger.store.bounds("c")).head == 0:
                late = new("block.delta", message_id="r.1", block=0, text="late")
                await ledger.record("c", [started("r"), *said("r", "r.1", "x"), finished("r"), late])
            assert [anomaly.seq for anomaly in await ledger.anomalies("c")] == [8]
            await ledger.compact("c")
