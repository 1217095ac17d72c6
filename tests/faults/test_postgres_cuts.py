"""Connections to PostgreSQL that are cut at any piece, before or behind the server, or fall silent: nothing is stored twice."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from stream import AppendResult, Event, Producer, SeqConflict, StoreUnreachable, open_store
from stream.postgres import PostgresStore
from tests.faults.held_feed import event, feed_held, read, server, until_behind_a_lock
from tests.faults.sizes import FULL, size
from tests.faults.tcp_proxy import WAYS, How, Proxy
from tests.postgres_server import Shared

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from stream import EventStore
    from stream.database import Sql

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


class Work:
    """A little of everything on a stream of its own, through a proxy that cuts once; then what must be there."""

    def __init__(self, store: EventStore, direct: EventStore, number: int) -> None:
        self.store, self.direct = store, direct
        self.name = f"s{number}"
        self.unknown = 0

    async def run(self) -> None:
        store, s = self.store, self.name
        first = await store.append(s, event("a") + event("b"))
        assert (first.first_seq, first.last_seq) == (1, 2)
        for _ in range(2):
            named = await store.append(s, event("named"), expected_seq=2, append_id="n")
            assert (named.first_seq, named.last_seq) == (3, 3)
        for seq in (0, 1):
            produced = await store.append(s, event(f"p{seq}"), producer=Producer("p", 0, seq))
            assert (produced.first_seq, produced.last_seq) == (4 + seq, 4 + seq)
        assert (await store.append(s, event("at"), expected_seq=5)).last_seq == 6
        three = await asyncio.gather(*(store.append(s, event(f"g{n}")) for n in range(3)))
        assert sorted(each.last_seq for each in three) == [7, 8, 9]
        await self.again(lambda: store.truncate(s, through=2))
        old = [Event(f"{s}.old", seq, "t", b"", 0) for seq in (1, 2)]
        with contextlib.suppress(SeqConflict):  # it is known where a commit was, but could not be told
            await self.again(lambda: store.adopt(f"{s}.old", old))
        await self.again(lambda: store.delete(f"{s}.old"))
        assert [each.data for each in await store.read(s, after=2)][:4] == [b"named", b"p0", b"p1", b"at"]

    async def again(self, call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except StoreUnreachable:
            self.unknown += 1
            await call()

    async def check(self) -> None:
        events = await self.direct.read(self.name, after=2)
        assert [each.data.decode() for each in events][:4] == ["named", "p0", "p1", "at"]
        assert sorted(each.data.decode() for each in events[4:]) == ["g0", "g1", "g2"]
        assert [each.seq for each in events] == list(range(3, 10))
        bounds = await self.direct.bounds(f"{self.name}.old")
        assert (bounds.floor, bounds.head, bounds.origin) == (2, 2, 2)


@pytest.mark.parametrize("how", WAYS)
async def test_a_connection_cut_at_any_piece_loses_nothing_and_doubles_nothing(how: How, chance: random.Random) -> None:
    url = Shared.url()
    unknown = cuts = 0
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store, open_store(url) as direct:
        for number in (-2, -1, 0):  # the first ones are longer: statements are prepared
            quiet, before = Work(store, direct, number), proxy.pieces
            await quiet.run()
            await quiet.check()
        pieces = proxy.pieces - before
        places = range(pieces) if FULL else sorted(chance.sample(range(pieces), size(smoke=12, full=pieces)))
        for number, place in enumerate(places, 1):
            print(f"{how} at {place}")
            work = Work(store, direct, number)
            proxy.cut(place, how)
            await asyncio.wait_for(work.run(), 60)
            await work.check()
            unknown += work.unknown
        cuts = proxy.cuts
    assert cuts > len(places) / 2
    print(f"{how}: {cuts} cuts among {pieces} pieces, {unknown} transactions of unknown outcome, 0 lost, 0 doubled")


async def test_whoever_is_told_unreachable_finds_out_by_saying_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is out of reach for longer than it is waited for, from the moment when the statement was there."""
    monkeypatch.setattr("stream.postgres.appender.PATIENCE_S", 0.3)
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store, open_store(url) as direct:
        await store.append("s", event("first"))
        calls: dict[str, Callable[[], Awaitable[AppendResult]]] = {
            "named": lambda: store.append("s", event("named"), expected_seq=1, append_id="n"),
            "produced": lambda: store.append("s", event("produced"), producer=Producer("p", 0, 0)),
        }
        for number, (name, call) in enumerate(calls.items(), 2):
            async with feed_held(url) as let_go:
                under_way = asyncio.ensure_future(call())
                await until_behind_a_lock(1)
                proxy.refusing = True
                proxy.cut_all()
                with pytest.raises(StoreUnreachable, match="not known"):
                    await asyncio.wait_for(under_way, 20)
                let_go.set()
            proxy.refusing = False
            done = await asyncio.wait_for(call(), 20)
            assert (done.first_seq, done.last_seq, done.duplicate) == (number, number, name == "produced")
        assert await read(direct, "s") == ["first", "named", "produced"]


async def test_a_server_that_says_nothing_for_a_while_is_waited_for() -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        await store.append("s", event("0"))
        proxy.hold()
        under_way = [asyncio.ensure_future(store.append("s", event(str(n)), expected_seq=n)) for n in range(1, 4)]
        looks = asyncio.ensure_future(store.bounds("other"))
        await asyncio.sleep(1)
        assert not any(each.done() for each in (*under_way, looks))
        proxy.release()
        await asyncio.wait_for(asyncio.gather(*under_way, looks), 20)
        assert await read(store, "s") == ["0", "1", "2", "3"]


async def test_a_connection_that_breaks_behind_a_commit_does_not_have_it_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent between the answer and the next use of the connection is no part of what was asked.

    Nothing is, unless the driver has to end a transaction: so something is sent here.
    """

    async def ask(connection: Any) -> None:
        await connection.execute("SELECT 1")

    monkeypatch.setattr("stream.postgres.database._leave", ask)
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        assert isinstance(store, PostgresStore)
        await store.settle()  # what is looked for at an opening goes through here, too
        runs = 0

        async def job(sql: Sql) -> None:
            nonlocal runs
            runs += 1
            await sql("SELECT 1 FROM streams LIMIT 1")

        for how in WAYS:
            for _ in range(3):
                before = proxy.pieces
                await store.database.transact(job)
            last = proxy.pieces - before - 1  # the answer to what gives the connection back
            runs, cuts = 0, proxy.cuts
            proxy.cut(last if how == "answer" else last - 1, how)
            await asyncio.wait_for(store.database.transact(job), 20)
            assert (runs, proxy.cuts) == (1, cuts + 1)


async def test_a_commit_of_which_nobody_heard_is_not_done_again_but_told() -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        assert isinstance(store, PostgresStore)
        await store.settle()
        runs = 0

        async def job(sql: Sql) -> None:
            nonlocal runs
            runs += 1
            await sql("INSERT INTO components VALUES (?, 1)", (f"run {runs}",))

        for _ in range(3):
            before = proxy.pieces
            await store.database.transact(job)
        proxy.cut(proxy.pieces - before - 1, "answer")
        runs = 10
        with pytest.raises(StoreUnreachable, match="lost during the commit"):
            await asyncio.wait_for(store.database.transact(job), 20)
        assert (runs, proxy.cuts) == (11, 1)
        assert await store.database.read("SELECT name FROM components WHERE name LIKE 'run 1_'") == [("run 11",)]


async def test_others_commits_are_still_heard_behind_a_long_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.postgres.database.PATIENCE_S", 0.2)
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store, open_store(url) as direct:
        with store.listen("s") as signal:
            await direct.append("s", event("a"))
            await asyncio.wait_for(signal.wait(), 10)
            proxy.refusing = True
            proxy.cut_all()
            await asyncio.sleep(1.5)
            proxy.refusing = False
            await asyncio.sleep(1.0)
            signal.clear()
            await direct.append("s", event("b"))
            await asyncio.wait_for(signal.wait(), 5)
