"""Faults that an attack on the finished code found, each named after its symptom, so that they stay mended."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import stream.sqlite.database as database_module
from ledger import Ledger, LedgerDiverged, RunEnded, RunLost, open_ledger
from ledger.tables.tables import LedgerTables
from projector import InvalidJson, transcript
from projector.events import validate
from projector.formats import FormatError
from projector.formats.anthropic.stream_reader import AnthropicStream
from stream import Event, InvalidEvent, MemoryStore, NewEvent, SeqConflict, StoreFull, StoreUnusable, open_store
from stream.sqlite import MEMORY, open_database
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backends import Store

pytestmark = pytest.mark.anyio
START = {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}}
TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}


async def texts(ledger: Ledger) -> list[str]:
    return [message.text for message in await ledger.transcript("c")]


async def test_the_same_append_id_on_two_streams_is_two_appends(store: Store) -> None:
    event = [NewEvent("t", b"x")]
    good = store.append("a", event, expected_seq=0, append_id="i")
    bad = store.append("b", event, expected_seq=5, append_id="i")
    first, second = await asyncio.gather(good, bad, return_exceptions=True)
    assert not isinstance(first, BaseException)
    assert isinstance(second, SeqConflict)
    assert (await store.bounds("b")).head == 0


async def test_pages_of_large_appends_decode_only_what_they_need(store: Store) -> None:
    for _ in range(4):
        await store.append("s", [NewEvent("t", str(n).encode()) for n in range(3000)])
    seqs: list[int] = []
    while page := await store.read("s", after=len(seqs), limit=700):
        seqs += [event.seq for event in page]
    assert seqs == list(range(1, 12_001))


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


@pytest.mark.parametrize(
    "data",
    [
        b'{"message_id":"r.1","patch":{"a":"\xff"}}',
        b'{"message_id":"r.1","block":0,"citation":"\xff"}',
        b'{"run_id":"r","outcome":"failed","error":"\xff"}',
    ],
)
def test_bytes_that_are_no_text_are_refused_and_never_make_a_fold_raise(data: bytes) -> None:
    kind = "run.finished" if b"outcome" in data else "block.annotated" if b"block" in data else "message.annotated"
    with pytest.raises(InvalidEvent):
        validate([NewEvent(kind, data)])
    state = transcript.initial
    for seq, event in enumerate([started("r"), *said("r", "r.1", "x"), NewEvent(kind, data)], 1):
        state = transcript.fold(state, Event("s", seq, event.type, event.data, 0))
    assert [anomaly.seq for anomaly in state.anomalies] == [7]


async def test_ids_that_were_taken_stay_with_the_first_and_hide_no_newer_turn() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.record("c", [started("a"), *said("a", "a.1", "one"), finished("a")])
        await ledger.record("c", [started("b", "a.1"), *said("b", "b.1", "two"), *said("b", "a.1", "thief"), finished("b")])
        await ledger.record("c", [started("a", "b.1"), *said("a", "a.9", "again"), finished("a")])
        assert await texts(ledger) == ["one", "two"]
        async with ledger.run("c") as run:
            await run.text("three")
        assert await texts(ledger) == ["one", "two", "three"]


async def test_what_does_not_fit_its_type_is_refused_where_it_is_said() -> None:
    async with open_ledger("memory:") as ledger:
        with pytest.raises(InvalidEvent):
            await ledger.begin_run("c", model=5)  # type: ignore[arg-type]
        async with ledger.run("c") as run:
            with pytest.raises(InvalidEvent):
                await run.message("human", "hi")  # type: ignore[arg-type]
            with pytest.raises(InvalidEvent):
                await run.tool_result("call", "x", status="success")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="no outcome"):
                await run.finish("done")  # type: ignore[arg-type]
            await run.text("fine ")
            with pytest.raises(InvalidEvent):
                await run.message("user", "x" * (65 * 1024 * 1024))
            await run.text("and whole")
        assert [(m.text, m.status) for m in await ledger.transcript("c")] == [("fine and whole", "complete")]


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ["a"]}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": 5, "name": "n", "input": {}}},
        {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": "no"}},
        {"type": "message_start", "message": {"id": "n", "role": "model", "content": []}},
    ],
)
async def test_a_chunk_of_the_wrong_shape_is_refused_and_the_run_does_not_look_complete(chunk: dict[str, Any]) -> None:
    async with open_ledger("memory:") as ledger:

        async def feed() -> None:
            async with ledger.run("c", run_id="r", format="anthropic") as run:
                await run.feed(START)
                await run.feed(TEXT)
                await run.feed(chunk)

        with pytest.raises(FormatError):
            await feed()
        [info] = [run async for run in ledger.runs("c")]
        assert info.status == "failed"


def test_a_start_that_is_refused_leaves_the_stream_as_it_was_and_null_usage_is_no_usage() -> None:
    stream = AnthropicStream("r", lambda: "r.1")
    with pytest.raises(FormatError):
        stream.feed({"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": "much"}})
    bodies = stream.feed({"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": None}})
    assert [body.TYPE for body in bodies] == ["run.step", "message.started"]
    stream.feed({"type": "error", "error": {"type": "overloaded_error"}})
    stream.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": None})
    assert stream.end().outcome == "failed"


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


async def test_a_store_that_is_cancelled_twice_while_it_closes_closes_all_the_same(tmp_path: Path) -> None:
    before = threading.active_count()

    async def use() -> None:
        async with open_ledger(str(tmp_path / "c.db")) as ledger, ledger.run("c") as run:
            await run.text("x")
            await asyncio.sleep(60)

    for _ in range(5):
        task = asyncio.create_task(use())
        await asyncio.sleep(0.1)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])
    with anyio.fail_after(10):
        while threading.active_count() > before:
            await asyncio.sleep(0.01)


async def test_an_opening_that_is_cancelled_does_not_wait_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_store(str(path)):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN EXCLUSIVE")
        begin = time.monotonic()
        with anyio.move_on_after(0.2):
            await open_store(str(path))
        assert time.monotonic() - begin < 10
        raw.execute("ROLLBACK")


async def test_all_that_waits_for_one_lock_shares_one_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_LIMIT_S", 0.4)
    path = tmp_path / "c.db"
    store = await open_store(str(path))
    await store.append("s", [NewEvent("t", b"")])
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        waiting = [asyncio.create_task(store.truncate("s", through=1)) for _ in range(12)]
        with anyio.fail_after(3):
            await asyncio.wait(waiting)
            await store.close()
        raw.execute("ROLLBACK")
    assert all(task.exception() for task in waiting)


async def test_show_lists_anomalies_also_when_it_comes_late(tmp_path: Path) -> None:
    for _ in range(2):  # the second time everything is committed, and known from rows and snapshots
        async with open_ledger(str(tmp_path / "c.db")) as ledger:
            if (await ledger.store.bounds("c")).head == 0:
                late = new("block.delta", message_id="r.1", block=0, text="late")
                await ledger.record("c", [started("r"), *said("r", "r.1", "x"), finished("r"), late])
            assert [anomaly.seq for anomaly in await ledger.anomalies("c")] == [8]
            await ledger.compact("c")


def test_a_redaction_that_holds_no_json_is_an_anomaly() -> None:
    state = transcript.initial
    redaction = new("message.redacted", message_id="r.1", blocks=[{"kind": "text", "opaque": "no json"}])
    for seq, event in enumerate([started("r"), *said("r", "r.1", "x"), redaction], 1):
        state = transcript.fold(state, Event("s", seq, event.type, event.data, 0))
    assert [anomaly.seq for anomaly in state.anomalies] == [7]
    with pytest.raises(InvalidJson):
        transcript.decode(json.dumps({"last_seq": "x"}).encode())


async def test_an_append_that_is_stored_is_acknowledged_whatever_befalls_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stream.sqlite.appender import Appender  # noqa: PLC0415

    async def fail(*_: object) -> bool:
        raise StoreFull("while asking why")

    async with open_store(str(tmp_path / "a.db")) as store:
        await store.append("s", [NewEvent("t", b"")])
        monkeypatch.setattr(Appender, "_explain", fail)
        event = [NewEvent("t", b"x")]
        refused, stored = await asyncio.gather(
            store.append("s", event, expected_seq=9), store.append("s", event), return_exceptions=True
        )
        assert isinstance(refused, StoreFull)
        assert not isinstance(stored, BaseException)
        assert (await store.bounds("s")).head == 2


async def test_a_poll_that_fails_does_not_stop_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stream.sqlite import Database  # noqa: PLC0415

    polled = asyncio.Event()

    async def fail(_: Database) -> None:
        polled.set()
        raise StoreFull("no")

    monkeypatch.setattr(Database, "_look_for_others", fail)
    async with open_store(str(tmp_path / "a.db")) as store:
        waiter = asyncio.create_task(store.wait("s", after=0))
        await polled.wait()
        assert (await store.append("s", [NewEvent("t", b"")])).first_seq == 1
        await waiter
