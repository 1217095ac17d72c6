"""Runs that begin, end and are called off at once: each is paid for once, and what was called off before it began is gone."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from ledger import Ledger, Run, RunOpen, catchup, open_ledger
from projector.folds import project
from stream import NewEvent, SeqConflict, StoreClosed
from stream.memory import MemoryStore
from stream.sqlite import SqliteStore
from tests.faults.sizes import FULL

if TYPE_CHECKING:
    from pathlib import Path

    from stream import AppendResult

pytestmark = pytest.mark.anyio


async def begin_many(ledger: Ledger, count: int) -> list[asyncio.Task[Run]]:
    """Calls that have been made, and have come as far as one turn of the loop."""

    async def begin(number: int) -> Run:
        return await ledger.begin_run("c", run_id=f"r{number}", parent=None)

    calls = [asyncio.create_task(begin(number)) for number in range(count)]
    await asyncio.sleep(0)
    return calls


async def test_no_begin_makes_another_of_its_process_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = 0
    real = SqliteStore.append

    async def counted(*words: object, **named: object) -> AppendResult:
        nonlocal refused
        try:
            return await real(*words, **named)  # type: ignore[arg-type]
        except SeqConflict:
            refused += 1
            raise

    monkeypatch.setattr(SqliteStore, "append", counted)
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        await asyncio.gather(*await begin_many(ledger, 20))
    assert refused == 0


async def test_what_comes_at_once_is_folded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = 0

    def counted(*words: Any) -> Any:
        nonlocal folded
        folded += 1
        return project(*words)

    monkeypatch.setattr(catchup, "project", counted)
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        runs = await asyncio.gather(*await begin_many(ledger, 20))
        await asyncio.gather(*(run.finish() for run in runs))
        await asyncio.gather(*(ledger.transcript("c") for _ in range(20)))
        assert {run.status async for run in ledger.runs("c")} == {"committed"}
        assert folded == (await ledger.store.bounds("c")).head


async def test_begins_that_are_called_off_leave_nothing(tmp_path: Path) -> None:
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        calls = await begin_many(ledger, 50)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        assert (await ledger.store.bounds("c")).head == 0


@pytest.mark.parametrize("url", ["memory:", "c.db"])
@pytest.mark.heavy
async def test_a_begin_that_is_called_off_anywhere_is_gone_or_ended_as_cancelled(tmp_path: Path, url: str) -> None:
    found = set()
    moments = range(40) if FULL or url == "memory:" else [0, *sorted(random.sample(range(1, 40), 12))]
    print("moments", moments)
    for turns in moments:
        place = url if url == "memory:" else str(tmp_path / f"{turns}.db")
        async with open_ledger(place) as ledger:
            first, *others = await begin_many(ledger, 3)
            for _ in range(turns):
                await asyncio.sleep(0)
            first.cancel()
            begun = await asyncio.gather(*others)
            await asyncio.wait([first])
            await ledger._runs.close()
            known = {run.run_id: run.status async for run in ledger.runs("c")}
            if first.cancelled():
                found.add(known.get("r0"))
                assert known.get("r0") in (None, "cancelled")
            assert {run.run_id for run in begun} <= known.keys()
    assert None in found


async def test_a_begin_whose_event_is_on_its_way_is_ended_as_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    handed, may_go_on = asyncio.Event(), asyncio.Event()
    real = MemoryStore.append

    async def held_up(*words: object, **named: object) -> AppendResult:
        handed.set()
        await may_go_on.wait()
        return await real(*words, **named)  # type: ignore[arg-type]

    async with open_ledger("memory:") as ledger:
        monkeypatch.setattr(MemoryStore, "append", held_up)
        first, second = await begin_many(ledger, 2)
        await handed.wait()
        first.cancel()
        await asyncio.wait([first])
        may_go_on.set()
        assert (await second).run_id == "r1"
        await ledger._runs.close()
        assert [(run.run_id, run.status) async for run in ledger.runs("c")] == [("r0", "cancelled"), ("r1", "created")]


async def test_of_those_that_continue_the_leaf_one_begins_and_the_others_are_told() -> None:
    async with open_ledger("memory:") as ledger:
        calls = [asyncio.ensure_future(begin(ledger)) for _ in range(10)]
        told = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in told].count(Run) == 1
    assert [type(each) for each in told].count(RunOpen) == 9


async def begin(ledger: Ledger) -> Run:
    return await ledger.begin_run("c")


async def test_a_ledger_that_closes_tells_those_that_wait_to_begin(tmp_path: Path) -> None:
    ledger = await open_ledger(str(tmp_path / "c.db"))
    calls = await begin_many(ledger, 20)
    await ledger.close()
    told = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in told} <= {Run, StoreClosed}


async def test_a_begin_that_is_called_off_and_then_refused_by_the_log_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    handed, may_go_on = asyncio.Event(), asyncio.Event()
    real = MemoryStore.append

    async def overtaken(*words: Any, **named: Any) -> AppendResult:
        monkeypatch.undo()
        handed.set()
        await may_go_on.wait()
        await real(words[0], "c", [NewEvent("custom", b"{}")])
        return await real(*words, **named)

    async with open_ledger("memory:") as ledger:
        monkeypatch.setattr(MemoryStore, "append", overtaken)
        call = asyncio.create_task(ledger.begin_run("c", run_id="r"))
        await handed.wait()
        call.cancel()
        await asyncio.wait([call])
        may_go_on.set()
        await ledger._runs.close()
        assert [event.type for event in await ledger.store.read("c")] == ["custom"]
