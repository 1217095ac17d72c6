"""Calls on PostgreSQL that are cancelled anywhere, closed, forked away or stopped: no transaction stays open, nobody hangs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest

from stream import NewEvent, Producer, SeqConflict, StoreClosed, open_store
from stream.errors import StoreElsewhere
from stream.postgres import PostgresStore
from stream.testing import cancel_after
from tests.faults.children import Child, Parent
from tests.faults.held_feed import event, feed_held, read, server, until_behind_a_lock
from tests.faults.sizes import size
from tests.faults.test_cancel import History
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from stream import EventStore
    from stream.database import Sql

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
SEEDS = size(smoke=60, full=1000)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return "asyncio", {"use_uvloop": request.param}


def opened(store: EventStore) -> PostgresStore:
    assert isinstance(store, PostgresStore)
    return store


async def open_transactions() -> int:
    [(count,)] = await server().ask(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tailfold' AND state LIKE 'idle in transaction%'"
    )
    assert isinstance(count, int)
    return count


async def check_pool(store: PostgresStore) -> None:
    """Eight can be had at once, and none is in a transaction."""
    at_once = asyncio.Barrier(8)

    async def hold() -> None:
        async with store.database.connected() as connection:
            await at_once.wait()
            assert not connection.is_in_transaction()

    await asyncio.wait_for(asyncio.gather(*(hold() for _ in range(8))), 20)
    assert await open_transactions() == 0


async def test_calls_cancelled_anywhere_are_whole_or_absent(chance: random.Random) -> None:
    first = chance.randrange(2**32)
    async with open_store(Shared.url()) as store:
        history = History(store)
        for seed in range(first, first + SEEDS):
            print(f"seed {seed}")
            own = random.Random(seed)
            call = own.choice(history.calls(own))
            with suppress(SeqConflict, ValueError):  # a snapshot or a floor beyond the head
                await cancel_after(own.choice([own.randrange(25), own.randrange(25), 2000]), call())
            await asyncio.wait_for(history.check(), 30)
        await history._append("not cancelled")
        await history.check()
        assert "not cancelled" in history.seen
        await check_pool(opened(store))


async def test_one_who_left_a_batch_does_not_hold_up_the_rest_of_it() -> None:
    """Whatever is asked waits for what was left; the batch that is waited for must not ask so itself."""
    url = Shared.url()
    async with open_store(url) as store:
        await store.append("s", event("first"))
        async with feed_held(url) as let_go:
            before = asyncio.ensure_future(store.append("s", event("before")))
            await until_behind_a_lock(1)
            leaves = asyncio.ensure_future(store.append("s", event("leaves")))
            odd = asyncio.ensure_future(store.append("t", event("odd"), expected_seq=7))
            repeat = asyncio.ensure_future(store.append("u", event("x"), producer=Producer("p", 0, 3)))
            named = asyncio.ensure_future(store.append("s", event("n"), expected_seq=0, append_id="n"))
            await asyncio.sleep(0)
            let_go.set()
            await before
            async with feed_held(url) as again:
                with suppress(TimeoutError):
                    await asyncio.wait_for(until_behind_a_lock(1), 2)
                leaves.cancel()
                await asyncio.sleep(0.05)
                again.set()
        outcomes = await asyncio.wait_for(asyncio.gather(odd, repeat, named, return_exceptions=True), 20)
        assert [type(outcome).__name__ for outcome in outcomes] == ["SeqConflict", "ProducerGap", "SeqConflict"]
        assert (await read(store, "s"))[:2] == ["first", "before"]


async def test_a_close_finishes_what_was_begun_and_refuses_the_rest() -> None:
    url = Shared.url()
    store = opened(await open_store(url))
    await store.append("s", event("0"))
    async with feed_held(url) as let_go:
        under_way = [asyncio.ensure_future(store.append("s", event(str(n)), expected_seq=n)) for n in (1, 2, 3)]
        truncation = asyncio.ensure_future(store.truncate("s", through=1))
        await until_behind_a_lock(2)
        closings = [asyncio.ensure_future(store.close()) for _ in range(2)]
        await asyncio.sleep(0.05)
        closings[0].cancel()
        with pytest.raises(StoreClosed):
            await store.append("s", event("late"))
        let_go.set()
        done = await asyncio.wait_for(asyncio.gather(*under_way, truncation, *closings, return_exceptions=True), 30)
    assert not [each for each in done if isinstance(each, Exception)]
    with pytest.raises(StoreClosed):
        await store.bounds("s")
    async with open_store(url) as again:
        assert (await again.bounds("s")).head == 4
        assert (await again.bounds("s")).floor == 1


async def test_a_close_that_comes_with_news_is_not_missed_by_who_listens() -> None:
    url = Shared.url()
    for steps in range(6):
        async with open_store(url) as store:
            listener = opened(store).database._listener
            with store.listen("s"):
                await asyncio.sleep(0.1)
                listener._hear()
                for _ in range(steps):
                    await asyncio.sleep(0)
                closing = asyncio.ensure_future(listener.close())
                done, _ = await asyncio.wait([closing], timeout=5)
                if not done and listener._task is not None:  # so that this ends, too
                    listener._task.cancel()
                assert done


async def stop_in_transaction(parent: Parent, url: str) -> str:
    """Stops with the feed locked, and tells what it was told when it went on."""
    async with open_store(url) as store:
        runs = 0

        async def job(sql: Sql) -> None:
            nonlocal runs
            runs += 1
            await sql("UPDATE feed SET number = number + 1")
            if runs == 1:
                parent.say("stopped")
                os.kill(os.getpid(), signal.SIGSTOP)
            await sql("INSERT INTO snapshots SELECT id, 'p', 1, ''::bytea FROM streams WHERE name = 's'")

        await opened(store).database.transact(job)
        return f"{runs} runs"


async def test_a_process_stopped_in_a_transaction_holds_up_the_others_for_a_while_only() -> None:
    """Going on, it does the whole of it again, once."""
    url = Shared.url()
    async with open_store(url) as store:
        await store.append("s", event("first"))
        child = Child(stop_in_transaction, url)
        try:
            child.say("go")
            assert await anyio.to_thread.run_sync(child.hear) == "stopped"
            began = asyncio.get_running_loop().time()
            await asyncio.wait_for(store.append("s", event("second")), 25)
            print(f"others waited {asyncio.get_running_loop().time() - began:.1f} s")
            os.kill(child.pid, signal.SIGCONT)
            assert await anyio.to_thread.run_sync(child.result) == "2 runs"
        finally:
            child.end()
        assert await read(store, "s") == ["first", "second"]
        assert len(await store.snapshots.list("s")) == 1


async def test_another_event_loop_is_refused_at_once() -> None:
    async with open_store(Shared.url()) as store:
        await store.append("s", event("first"))
        refused: list[str] = []

        async def use() -> None:
            for call in (store.append("s", event("x")), store.read("s"), store.truncate("s", through=1), store.close()):
                try:
                    await asyncio.wait_for(call, 5)
                except StoreElsewhere:
                    refused.append("refused")

        thread = threading.Thread(target=lambda: asyncio.run(use()))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert refused == ["refused"] * 4
        assert await read(store, "s") == ["first"]


async def fork_and_go_on(parent: Parent, url: str) -> list[str]:
    """The child is refused and ends as processes end; what this one does goes on."""
    del parent
    async with open_store(url) as store:
        await store.append("s", event("before"))
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            answer = "refused"
            try:
                for call in (store.append("s", event("child")), store.read("s"), store.close()):
                    with suppress(StoreElsewhere):
                        call.send(None)
                        answer = "worked"
            finally:
                os.write(tell, answer.encode())
                os._exit(0)
        await asyncio.to_thread(os.waitpid, pid, 0)
        answer = os.read(told, 100).decode()
        await store.append("s", event("behind"))
        return [answer, *await read(store, "s")]


async def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on() -> None:
    child = Child(fork_and_go_on, Shared.url())
    child.say("go")
    assert await anyio.to_thread.run_sync(child.result) == ["refused", "before", "behind"]


async def leave_open(parent: Parent, url: str, calls: str) -> str:
    """Ends with calls under way, and closes nothing."""
    del parent
    store = opened(await open_store(url))
    if calls == "appends":
        for number in range(300):
            asyncio.ensure_future(store.append("s", event(str(number))))  # noqa: RUF006 - nobody waits for it
    elif calls == "jobs":
        for _ in range(20):
            asyncio.ensure_future(store.delete("s"))  # noqa: RUF006
    else:
        asyncio.ensure_future(store.wait("s", after=10))  # noqa: RUF006
    await asyncio.sleep(0.5)
    return "ended"


@pytest.mark.parametrize("calls", ["appends", "jobs", "listens"])
async def test_a_program_that_ends_without_closing_ends(calls: str) -> None:
    """Whatever is under way when its loop is taken down."""
    url = Shared.url()
    async with open_store(url) as store:
        await store.append("s", event("first"))
    child = Child(leave_open, url, calls)
    try:
        async with feed_held(url):
            child.say("go")
            with anyio.fail_after(20):
                assert await anyio.to_thread.run_sync(child.result, abandon_on_cancel=True) == "ended"
    finally:
        child.end()


async def test_a_job_that_goes_on_behind_a_failed_statement_is_not_taken_for_done() -> None:
    async with open_store(Shared.url()) as store:

        async def job(sql: Sql) -> None:
            await sql("INSERT INTO marks VALUES (1, 1, 1, 1)")
            with suppress(Exception):
                await sql("SELECT * FROM nothing_of_that_name")

        with pytest.raises(Exception, match="nothing was stored"):
            await opened(store).database.transact(job)
        assert len(await opened(store).database.read("SELECT 1 FROM marks")) == 0
        await check_pool(opened(store))


async def test_a_cancelled_opening_leaves_no_connection() -> None:
    url = Shared.url("sslmode=disable")  # with it, the driver leaves a future of its own with nobody to ask for it
    async with open_store(url) as store:
        await store.append("s", [NewEvent("t", b"x")])

    async def open_it() -> None:
        async with open_store(url):
            pass

    for steps in range(40):
        await cancel_after(steps * 2, open_it())
    async with asyncio.timeout(20):
        while (await server().ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tailfold'"))[0] != (0,):
            await asyncio.sleep(0.05)
