"""Who begins while a run is open waits for it, in the order of the calls, or is told since when that run is silent."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from ledger import Ledger, RunExists, RunOpen, open_ledger
from ledger.runs import queue
from stream import NewEvent, StoreClosed
from tests.ledger_places import EVERYWHERE
from tests.talk import new

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Run

pytestmark = pytest.mark.anyio
everywhere: Final = pytest.mark.parametrize("ledger", EVERYWHERE, indirect=True)


async def turn(ledger: Ledger, name: str, **options: Any) -> None:
    async with ledger.run("c", run_id=name, **options) as run:
        await run.message("user", name)
        await anyio.sleep(0.002)


async def order(ledger: Ledger) -> list[str]:
    return [message.text for message in await ledger.transcript("c")]


async def call_all(ledger: Ledger, names: list[str], **options: Any) -> list[asyncio.Task[None]]:
    """Calls that were made one after the other, and have come as far as a few turns of the loop."""
    calls = []
    for name in names:
        calls.append(asyncio.create_task(turn(ledger, name, **options)))
        await asyncio.sleep(0)
    return calls


@everywhere
async def test_those_who_wait_begin_in_the_order_of_their_call(ledger: Ledger) -> None:
    first = await ledger.begin_run("c", run_id="first")
    await first.message("user", "first")
    names = [f"r{number}" for number in range(12)]
    calls = await call_all(ledger, names, wait=True)
    await anyio.sleep(0.05)
    assert [run.run_id for run in await ledger.open_runs("c")] == ["first"]
    await first.finish()
    with anyio.fail_after(20):
        await asyncio.gather(*calls)
    assert await order(ledger) == ["first", *names]
    runs = [run async for run in ledger.runs("c")]
    assert all(one.end_seq is not None and one.end_seq < next_.seq for one, next_ in itertools.pairwise(runs))


async def test_one_that_was_recovered_is_waited_for_no_longer(ledger: Ledger) -> None:
    await ledger.begin_run("c", run_id="lost")
    [call] = await call_all(ledger, ["next"], wait=True)
    await anyio.sleep(0.05)
    await ledger.recover("c", "lost", "fail")
    with anyio.fail_after(10):
        await call
    assert await order(ledger) == ["next"]


@pytest.mark.parametrize("wait", [False, 0, 0.0, 0.05])
async def test_who_has_waited_long_enough_is_told_which_run_is_open_and_since_when_it_is_silent(
    ledger: Ledger, wait: float
) -> None:
    run = await ledger.begin_run("c", run_id="r")
    await run.text("said")
    await run.flush()
    [last] = [event for event in await ledger.store.read("c") if event.type == "block.delta"]
    await anyio.sleep(0.01)
    await ledger.cancel("c", "r")  # what others say tells nothing of its writer
    began = time.monotonic()
    with pytest.raises(
        RunOpen, match=r"run 'r' .*last wrote at 20\d\d-.* UTC.*wait=True.*if its writer is gone.*recover r"
    ) as told:
        await ledger.run("c", wait=wait)
    assert 0 <= time.monotonic() - began - wait < 5
    assert (told.value.conversation, told.value.run_id, told.value.last_event_at) == ("c", "r", last.at)
    await run.finish()
    await turn(ledger, "next", wait=wait)
    assert await order(ledger) == ["said", "next"]


async def test_a_limit_holds_in_the_line_too(ledger: Ledger) -> None:
    await ledger.begin_run("c", run_id="r")
    [endless] = await call_all(ledger, ["endless"], wait=True)
    with pytest.raises(RunOpen) as told:
        await turn(ledger, "short", wait=0.05)
    assert told.value.run_id == "r"
    endless.cancel()
    await asyncio.wait([endless])
    assert endless.cancelled()
    assert [run.run_id async for run in ledger.runs("c")] == ["r"]


async def test_who_is_called_off_in_the_line_leaves_nothing_and_bars_nobody(ledger: Ledger) -> None:
    first = await ledger.begin_run("c", run_id="first")
    calls = await call_all(ledger, ["a", "b", "c", "d"], wait=True)
    await anyio.sleep(0.02)
    for gone in (calls[0], calls[2]):
        gone.cancel()
    await asyncio.wait([calls[0], calls[2]])
    await first.finish()
    with anyio.fail_after(10):
        await asyncio.gather(calls[1], calls[3])
    assert await order(ledger) == ["b", "d"]


async def test_a_run_beside_the_leaf_waits_for_nobody(ledger: Ledger) -> None:
    await turn(ledger, "first")
    opened = await ledger.begin_run("c", run_id="open")
    [waiting] = await call_all(ledger, ["waiting"], wait=True)
    with anyio.fail_after(5):
        await turn(ledger, "beside", parent="first.1", wait=True)
        await turn(ledger, "root", parent=None, wait=True)
    with pytest.raises(RunExists):  # no waiting would help
        await ledger.run("c", run_id="first", parent=None, wait=True)
    await opened.finish()
    await waiting


async def test_a_ledger_that_closes_tells_those_who_wait(tmp_path: Path) -> None:
    for place in ("memory:", str(tmp_path / "c.db")):
        ledger = await open_ledger(place)
        await ledger.begin_run("c", run_id="open")
        calls = await call_all(ledger, ["a", "b"], wait=True)
        await anyio.sleep(0.02)
        await ledger.close()
        with anyio.fail_after(10):
            told = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in told} == {StoreClosed}


async def test_the_end_of_a_run_in_another_ledger_is_heard(tmp_path: Path) -> None:
    async with open_ledger(str(tmp_path / "c.db")) as one, open_ledger(str(tmp_path / "c.db")) as other:
        run: Run = await other.begin_run("c", run_id="theirs")
        [call] = await call_all(one, ["mine"], wait=30)
        await anyio.sleep(0.05)
        await run.finish()
        with anyio.fail_after(10):
            await call
        assert [run.status async for run in one.runs("c")] == ["committed", "committed"]


async def test_the_last_word_of_a_run_is_found_however_far_back_it_is(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_PAGE_EVENTS", 3)
    run = await ledger.begin_run("c", run_id="r")
    message = await run.message("user", "q")
    await run.flush()
    last = (await ledger.store.read("c"))[-1]
    await anyio.sleep(0.01)
    noted = new("message.annotated", message_id=message, patch={"n": 1})
    await ledger.store.append("c", [NewEvent("custom", b"{}"), noted, NewEvent("run.step", b"[]")] * 4)
    with pytest.raises(RunOpen) as told:
        await ledger.run("c")
    assert told.value.last_event_at == last.at


@everywhere
async def test_of_many_who_wait_each_for_so_long_all_begin_or_are_told(ledger: Ledger) -> None:
    """Limits that run out anywhere: nobody hangs, nobody begins beside another."""
    waits = [0.0, 0.001, 0.003, 0.005, 0.01, 0.02, 0.05, True]
    calls = [asyncio.create_task(turn(ledger, f"r{number}", wait=waits[number % len(waits)])) for number in range(24)]
    with anyio.fail_after(60):
        told = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in told} <= {type(None), RunOpen}
    assert len(await order(ledger)) == told.count(None) >= 3
    assert {run.status async for run in ledger.runs("c")} == {"committed"}
