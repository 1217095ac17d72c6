"""How a run writes: joined deltas, back-pressure, failures, cancellation, and two processes that commit (DESIGN §4)."""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger import Ledger, LedgerDamaged, RunOpen, catchup, open_ledger
from ledger.tables.tables import LedgerTables
from ledger.upkeep.verify import verify
from stream import AppendResult, MemoryStore, NewEvent, Producer, StoreBusy, StoreFull, StreamError
from stream.sqlite import MEMORY, open_database
from stream.tables.store import TableStore
from tests.talk import finished, said, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from stream import Event
    from stream.sqlite import Sql

pytestmark = pytest.mark.anyio


class Troubled(MemoryStore):
    """A store that fails or waits on demand, before or after it has stored."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[tuple[str, StreamError]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.appends = 0

    async def append(
        self,
        stream_id: str,
        events: Sequence[NewEvent],
        *,
        expected_seq: int | None = None,
        append_id: str | None = None,
        producer: Producer | None = None,
    ) -> AppendResult:
        await self.gate.wait()
        self.appends += 1
        when, error = self.errors.pop(0) if self.errors else ("never", StreamError())
        if when == "before":
            raise error
        result = await super().append(stream_id, events, expected_seq=expected_seq, append_id=append_id, producer=producer)
        if when == "after":
            raise error
        return result


@pytest.fixture
async def troubled(anyio_backend: object) -> AsyncIterator[tuple[Ledger, Troubled]]:
    del anyio_backend
    store = Troubled()
    database = await open_database(MEMORY, create=True)
    ledger = Ledger(store, await LedgerTables.attach(database))
    yield ledger, store
    store.gate.set()
    await ledger.close()


async def texts(ledger: Ledger) -> list[str]:
    return [message.text for message in await ledger.transcript("c")]


async def deltas(ledger: Ledger) -> list[str]:
    from projector.events import BlockDelta  # noqa: PLC0415
    from projector.json_text import decode  # noqa: PLC0415

    events = await ledger.store.read("c", limit=10_000)
    return [decode(event.data, BlockDelta).text for event in events if event.type == "block.delta"]


async def test_adjacent_deltas_are_joined_and_other_events_take_them_along(troubled: tuple[Ledger, Troubled]) -> None:
    ledger, store = troubled
    async with ledger.run("c", flush_ms=60_000) as run:
        for piece in "abcdef":
            await run.text(piece)
        await run.message("user", "q")
    assert await deltas(ledger) == ["abcdef", "q"]
    assert store.appends <= 4


async def test_with_flush_0_each_delta_is_kept(troubled: tuple[Ledger, Troubled]) -> None:
    ledger, _ = troubled
    async with ledger.run("c", flush_ms=0) as run:
        for piece in "abc":
            await run.text(piece)
    assert await deltas(ledger) == ["a", "b", "c"]


async def test_a_delta_is_durable_in_time_without_a_flush(troubled: tuple[Ledger, Troubled]) -> None:
    ledger, _ = troubled
    run = await ledger.begin_run("c", flush_ms=20)
    await run.text("a")
    await run.flush()
    before = run.acknowledged_seq
    await run.text("b")
    with anyio.fail_after(5):
        while run.acknowledged_seq == before:
            await anyio.sleep(0.005)
    assert await deltas(ledger) == ["a", "b"]


async def test_runs_flush_together_up_to_a_fifth_early_and_never_late(
    troubled: tuple[Ledger, Troubled], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = troubled
    loop, clock = asyncio.get_running_loop(), 1_000_000.0
    runs = [await ledger.begin_run(f"c{number}", flush_ms=10_000) for number in range(30)]
    due: list[float] = []

    def call_at(when: float, _: Callable[[], None]) -> asyncio.Handle:
        due.append(when)
        return loop.call_soon(lambda: None)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: clock)
        patched.setattr(loop, "call_at", call_at)
        for run in runs:
            before = len(due)
            await run.text("said")  # begins the message, and goes at once
            await run.flush()
            await run.text("later")
            assert len(due) == before + 1
            assert 8.0 - 1e-6 <= due[-1] - clock <= 10.0 + 1e-6
            clock += 0.25
    assert len(set(due)) <= 1 + math.ceil(30 * 0.25 / 2.0)
    for run in runs:
        await run.finish()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failed_append_is_told_and_tried_again_and_nothing_is_lost_or_doubled(
    troubled: tuple[Ledger, Troubled], when: str
) -> None:
    ledger, store = troubled
    run = await ledger.begin_run("c")
    await run.text("one ")
    await run.flush()
    store.errors = [(when, StoreFull("full")), (when, StoreBusy("busy"))]
    await run.text("two ")
    for error in (StoreFull, StoreBusy):
        with pytest.raises(error):
            await run.flush()
    await run.text("three")
    await run.finish()
    assert await texts(ledger) == ["one two three"]


async def test_a_run_whose_end_cannot_be_written_stays_open_and_can_be_finished_later(
    troubled: tuple[Ledger, Troubled],
) -> None:
    ledger, store = troubled
    run = await ledger.begin_run("c", run_id="r")
    await run.text("x")
    await run.flush()
    store.errors = [("before", StoreFull("full"))]
    with pytest.raises(StoreFull):
        await run.finish()
    with pytest.raises(RunOpen):
        await ledger.begin_run("c")
    await run.finish()
    assert await texts(ledger) == ["x"]


async def test_the_error_of_the_body_is_what_the_caller_hears_when_the_end_fails_too(troubled: tuple[Ledger, Troubled]) -> None:
    ledger, store = troubled

    async def fail() -> None:
        async with ledger.run("c") as run:
            await run.text("x")
            await run.flush()
            store.errors = [("before", StoreFull("full"))] * 3
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await fail()
    assert len(await ledger.open_runs("c")) == 1


async def test_a_run_ends_by_an_exception_that_can_not_say_what_it_is(troubled: tuple[Ledger, Troubled]) -> None:
    ledger, _ = troubled

    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async def fail() -> None:
        async with ledger.run("c", on_error="incomplete") as run:
            await run.text("x")
            raise SpeechlessError

    with pytest.raises(SpeechlessError):
        await fail()
    [run] = [run async for run in ledger.runs("c")]
    assert (run.outcome, run.error) == ("incomplete", '{"type":"SpeechlessError","message":""}')
    assert await texts(ledger) == ["x"]


async def test_feeding_waits_when_the_store_is_slow_and_memory_stays_bounded(troubled: tuple[Ledger, Troubled]) -> None:
    ledger, store = troubled
    run = await ledger.begin_run("c")
    store.gate.clear()
    fed = 0
    with anyio.move_on_after(0.5) as scope:
        while True:
            await run.text("x" * 10_000)
            fed += 1
    assert scope.cancelled_caught
    assert fed < 100  # about two buffers of 256 kB, whatever is fed
    store.gate.set()
    await run.finish()
    assert await texts(ledger) == ["x" * 10_000 * fed]


async def test_a_cancelled_call_is_whole_or_absent(tmp_path: Path) -> None:
    """At every step of begin, text, flush and finish: what is in the log is a prefix of what was said."""
    seed = random.randrange(2**32)
    print("seed", seed)
    choose = random.Random(seed)
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        for turn in range(60):
            said: list[str] = []

            async def speak(said: list[str] = said, turn: int = turn) -> None:
                async with ledger.run("c", run_id=f"r{turn}", flush_ms=1) as run:
                    for n in range(20):
                        said.append(f"{n},")
                        await run.text(said[-1])
                        if n % 5 == 0:
                            await run.flush()

            task = asyncio.create_task(speak())
            for _ in range(choose.randrange(40)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or not task.exception() or isinstance(task.exception(), RunOpen)
            with anyio.fail_after(10):  # a run that nobody holds is ended behind the caller's back
                while (await ledger.store.bounds("c")).head and await ledger.open_runs("c"):
                    await anyio.sleep(0.001)
            kept = "".join(m.text for m in await _messages(ledger) if m.run_id == f"r{turn}")
            assert "".join(said).startswith(kept)
        assert not [finding async for finding in verify(ledger)]
        while True:
            try:
                async with ledger.run("c") as run:
                    await run.text("goes on")
                break
            except RunOpen:  # the last cancelled call is still on its way
                await anyio.sleep(0.001)
        assert (await texts(ledger))[-1] == "goes on"


async def test_two_ledgers_over_one_file_commit_each_run_once(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as one, open_ledger(path) as two:

        async def turns(ledger: Ledger, name: str) -> None:
            done = 0
            while done < 8:
                try:
                    async with ledger.run("c", run_id=f"{name}{done}") as run:
                        await run.text(f"{name}{done}")
                    done += 1
                except RunOpen:
                    await anyio.sleep(0.002)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turns, one, "a")
            tasks.start_soon(turns, two, "b")
        said = await texts(one)
        assert said == await texts(two)
        assert sorted(said) == sorted(f"{name}{n}" for name in "ab" for n in range(8))
        messages = await one.transcript("c")
        assert [message.parent_id for message in messages[1:]] == [message.id for message in messages[:-1]]
        assert not [finding async for finding in verify(one)]


async def test_catch_up_leaves_snapshots_that_are_never_ahead_and_goes_on_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catchup, "_SNAPSHOT_EVERY_EVENTS", 10)
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as ledger:
        for turn in range(6):
            async with ledger.run("c") as run:
                await run.text(f"{turn}")
        left = await ledger.begin_run("c", run_id="left")
        stored: list[int] = []
        for n in range(6):  # far enough for a snapshot behind the beginning of the open run
            await left.message("user", f"open {n}")
            await left.flush()
            await ledger.catch_up("c")
            stored += [info.last_seq for info in await ledger.store.snapshots.list("c")]
        assert len(stored) == 6  # there is one, at any time
        assert len(set(stored)) >= 3
        position = await ledger.tables.position("c")
        assert position.replay_from < max(stored) <= position.projected_seq
        assert (await ledger.store.snapshots.list("c"))[0].projector == "open_runs"
    async with open_ledger(path) as again:
        read: list[int] = []
        real = TableStore.read_within

        async def watch(self: TableStore, sql: Sql, stream_id: str, after: int, limit: int) -> list[Event]:
            read.append(after)
            return await real(self, sql, stream_id, after, limit)

        monkeypatch.setattr(TableStore, "read_within", watch)
        assert [run.run_id for run in await again.open_runs("c")] == ["left"]
        assert read[0] == max(stored)  # the snapshot and what came behind it, not the whole log
        await again.recover("c", "left", "commit")
        assert await texts(again) == ["0", "1", "2", "3", "4", "5", *(f"open {n}" for n in range(6))]


async def test_a_recovery_that_another_overtakes_before_it_knows_its_epoch_adds_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_ledger(str(tmp_path / "c.db")) as ledger, open_ledger(str(tmp_path / "c.db")) as other:
        run = await ledger.begin_run("c", run_id="r")
        await run.text("x")
        await run.flush()
        real = ledger.store.producer

        async def overtaken(stream_id: str, producer_id: str) -> Producer | None:
            monkeypatch.undo()
            await other.recover("c", "r", "commit")
            return await real(stream_id, producer_id)

        monkeypatch.setattr(ledger.store, "producer", overtaken)
        assert (await ledger.recover("c", "r", "cancel")).recovered == "commit"
        assert [event.type for event in await ledger.store.read("c")].count("run.recovered") == 1
        await run.close()


async def test_verify_finds_a_transcript_that_is_not_what_the_events_say(tmp_path: Path) -> None:
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        async with ledger.run("c", run_id="r") as run:
            await run.text("true")
        assert not [finding async for finding in verify(ledger)]
        await ledger.store.append("c", [NewEvent("block.delta", b'{"message_id": "r.1", "block": 0, "text": "late"}')])
        [note] = [finding async for finding in verify(ledger)]
        assert note.is_note
        assert note.kind == "anomaly"
        change = "UPDATE messages SET row_body = CAST(replace(row_body, 'true', 'false') AS BLOB)"
        await ledger.tables.database.write(lambda sql: sql(change))
        assert [finding.kind async for finding in verify(ledger) if not finding.is_note] == ["damaged"]
        with pytest.raises(LedgerDamaged):
            await ledger.transcript("c")
        await ledger.compact("c")
        assert [finding.kind async for finding in verify(ledger)] == ["damaged"]
        await ledger.tables.database.write(lambda sql: sql("UPDATE conversations SET leaf = NULL"))
        assert [finding.kind async for finding in verify(ledger)] == ["damaged", "leaf"]


async def test_verify_misses_no_message_that_its_events_promise(tmp_path: Path) -> None:
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        async with ledger.run("c", run_id="r") as run:
            await run.text("true")
        await ledger.tables.database.write(lambda sql: sql("DELETE FROM messages"))
        assert "differs" in [finding.kind async for finding in verify(ledger)]


async def _messages(ledger: Ledger) -> list[Any]:
    return await ledger.transcript("c") if (await ledger.store.bounds("c")).head else []


async def test_a_page_of_the_log_is_taken_in_whole_however_it_is_sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event for n in range(6) for event in (started(f"r{n}"), *said(f"r{n}", f"r{n}.1", f"{n}"), finished(f"r{n}"))]
    for page, cut in ((4000, 7), (4000, 1), (10, 3)):
        monkeypatch.setattr(catchup, "_PAGE_EVENTS", page)
        monkeypatch.setattr(catchup, "_SLICE_EVENTS", cut)
        async with open_ledger("memory:") as ledger:
            await ledger.store.append("c", events)
            assert [message.text for message in await ledger.transcript("c", branch="all")] == [f"{n}" for n in range(6)]
            assert [run.status async for run in ledger.runs("c")] == ["superseded"] * 5 + ["committed"]
