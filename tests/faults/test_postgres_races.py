"""Many stores over one schema of PostgreSQL: one winner of each race, a feed that misses nothing, nobody in a circle."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from stream import Event, NewEvent, Producer, SeqConflict, StreamError, open_store
from stream.postgres import PostgresStore
from tests.faults.children import Parent, together
from tests.faults.held_feed import server
from tests.faults.sizes import size
from tests.postgres_server import Shared

if TYPE_CHECKING:
    import random

    from stream import EventStore
    from stream.database import Sql

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
STORES = 6
WRITERS = 18
dialects = pytest.mark.parametrize("dialect", ["postgres", "portable"])


async def open_all(stack: AsyncExitStack, url: str, count: int = STORES) -> list[EventStore]:
    return [await stack.enter_async_context(open_store(url)) for _ in range(count)]


async def test_of_eighteen_writers_for_one_head_each_time_one_wins() -> None:
    races = size(smoke=60, full=900)
    async with AsyncExitStack() as stack:
        stores = await open_all(stack, Shared.url())

        async def try_it(number: int, head: int) -> int:
            data = [NewEvent("t", b"%d at %d" % (number, head))]
            try:
                done = await stores[number % STORES].append("s", data, expected_seq=head)
            except SeqConflict as conflict:
                return 0 if conflict.head == head + 1 else WRITERS
            assert (done.first_seq, done.duplicate) == (head + 1, False)
            return 1

        async with asyncio.timeout(60 + races):
            for head in range(races):
                assert sum(await asyncio.gather(*(try_it(n, head) for n in range(WRITERS)))) == 1
        bounds = await stores[0].bounds("s")
        assert bounds.head == races


async def race(_: Parent, url: str, number: int, races: int) -> list[int]:
    """The heads at which this process won."""
    won = []
    async with open_store(url) as store:
        for head in range(races):
            try:
                await store.append("s", [NewEvent("t", b"%d" % number)], expected_seq=head)
            except SeqConflict:
                async with asyncio.timeout(60):
                    while (await store.bounds("s")).head <= head:
                        await asyncio.sleep(0)
            else:
                won.append(head)
    return won


@pytest.mark.heavy
def test_of_six_processes_for_one_head_each_time_one_wins() -> None:
    races = size(smoke=60, full=900)
    url = Shared.url()
    won = together(race, [(url, number, races) for number in range(STORES)])
    assert sorted(head for each in won for head in each) == list(range(races))


async def open_schemas(_: Parent, urls: list[str], name: str) -> list[list[object]]:
    """Opens one new schema after the other, at once with all the others, and appends twice to each."""
    results: list[list[object]] = []
    for url in urls:
        async with open_store(url) as store:
            seqs = [(await store.append("s", [NewEvent(name, b"x")])).first_seq for _ in range(2)]
            results.append([store.incarnation, *seqs])
    return results


@pytest.mark.heavy
def test_eight_processes_open_the_same_new_schemas_at_once() -> None:
    """No error, one incarnation, no number twice."""
    urls = [Shared.url() for _ in range(size(smoke=6, full=50))]
    answers = together(open_schemas, [(urls, f"w{n}") for n in range(8)])
    for number in range(len(urls)):
        of_schema = [answer[number] for answer in answers]
        assert len({incarnation for incarnation, *_ in of_schema}) == 1
        assert sorted(seq for _, *seqs in of_schema for seq in seqs if isinstance(seq, int)) == list(range(1, 17))


class Melee:
    """Everything at once on a few streams, from several stores, while others read the feed and follow it."""

    def __init__(self, stores: list[EventStore], watching: list[EventStore], chance: random.Random) -> None:
        self.stores, self.watching, self.chance = stores, watching, chance
        self.names = [f"s{n}" for n in range(5)]
        self.appended: Counter[str] = Counter()
        self.done = asyncio.Event()
        self.heads: list[dict[str, int]] = [{} for _ in watching]
        self.adopted: list[str] = []

    async def run(self, steps: int) -> None:
        async with asyncio.TaskGroup() as readers:
            for store, heads in zip(self.watching, self.heads, strict=True):
                readers.create_task(self._read_feed(store, heads))
            async with asyncio.timeout(60 + steps), asyncio.TaskGroup() as writers:
                for number, store in enumerate(self.stores):
                    for kind in (self._append, self._produce, self._shorten, self._adopt):
                        writers.create_task(kind(store, number, steps))
            self.done.set()

    async def check(self) -> None:
        store = self.stores[0]
        infos = {info.stream_id: info async for info in store.streams()}
        for name in self.names:
            assert infos[name].head == self.appended[name]
        for heads in self.heads:
            missed = {name: (info.head, heads.get(name)) for name, info in infos.items() if heads.get(name) != info.head}
            assert not missed
        assert set(self.adopted) <= set(infos)

    async def _append(self, store: EventStore, number: int, steps: int) -> None:
        for step in range(steps):
            name = self.chance.choice(self.names)
            count = self.chance.randint(1, 3)
            await store.append(name, [NewEvent("t", b"%d %d" % (number, step))] * count)
            self.appended[name] += count

    async def _produce(self, store: EventStore, number: int, steps: int) -> None:
        for step in range(steps):
            done = await store.append(self.names[0], [NewEvent("t", b"x")], producer=Producer(f"p{number}", 0, step))
            assert not done.duplicate
            self.appended[self.names[0]] += 1

    async def _shorten(self, store: EventStore, number: int, steps: int) -> None:
        for step in range(steps // 3):
            name = self.names[(number + step) % len(self.names)]
            bounds = await store.bounds(name)
            if self.chance.random() < 0.5:
                await store.truncate(name, through=self.chance.randint(bounds.floor, bounds.head))
            else:
                with contextlib.suppress(SeqConflict):
                    await store.delete(name, expected_head=self.chance.choice([None, bounds.head]))
            await asyncio.sleep(0)

    async def _adopt(self, store: EventStore, number: int, steps: int) -> None:
        for step in range(steps // 3):
            name = f"adopted {step} {number % 2}"
            events = [Event(name, seq, "t", b"x" * 100, 0) for seq in range(1, 4)]
            with contextlib.suppress(SeqConflict):
                await store.adopt(name, events)
                self.adopted.append(name)

    async def _read_feed(self, store: EventStore, heads: dict[str, int]) -> None:
        token = ""
        while True:
            was_done = self.done.is_set()
            page = await store.changes(after=token, limit=self.chance.randint(1, 5))
            for name, (after, head) in zip(page.streams, page.spans, strict=True):
                assert after <= heads.get(name, 0) or name not in heads
                heads[name] = max(heads.get(name, 0), head)
            token = page.token
            if not page.streams:
                if was_done:
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(store.wait_any(after=token), 0.2)


async def melee(url: str, chance: random.Random, steps: int) -> Melee:
    async with AsyncExitStack() as stack:
        stores, watching = await open_all(stack, url, 4), await open_all(stack, url, 2)
        everything = Melee(stores, watching, chance)
        await everything.run(steps)
        await everything.check()
        return everything


@dialects
async def test_everything_at_once_is_seen_by_the_feed_and_nobody_is_told_of_a_deadlock(
    chance: random.Random, dialect: str
) -> None:
    everything = await melee(Shared.url(f"dialect={dialect}"), chance, size(smoke=40, full=400))
    print(f"{sum(everything.appended.values())} events, {len(everything.adopted)} adopted")


async def slow_commits(url: str) -> None:
    """Now and then a commit takes a while longer."""
    schema = url.partition("schema=")[2].partition("&")[0]
    for text in (
        f"""CREATE FUNCTION {schema}.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(random() * 0.02); RETURN NULL; END $$""",
        f"""CREATE CONSTRAINT TRIGGER dawdles AFTER UPDATE ON {schema}.streams DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION {schema}.dawdle()""",
    ):
        await server().ask(text)


async def draw_without_lock(url: str) -> None:
    """As a sequence would: numbers that become visible in any order."""
    schema = url.partition("schema=")[2].partition("&")[0]
    for text in (
        f"CREATE SEQUENCE {schema}.numbers START 1000",
        f"ALTER TABLE {schema}.feed RENAME TO locked_feed",
        f"CREATE VIEW {schema}.feed AS SELECT coalesce(max(changed), 0) AS number FROM {schema}.streams",
        f"""CREATE FUNCTION {schema}.draw() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.number = nextval('{schema}.numbers'); RETURN NEW; END $$""",
        f"CREATE TRIGGER draws INSTEAD OF UPDATE ON {schema}.feed FOR EACH ROW EXECUTE FUNCTION {schema}.draw()",
    ):
        await server().ask(text)


async def feed_of(url: str, chance: random.Random) -> None:
    """Writers of streams of their own, whose commits overtake each other where nothing keeps them in order."""
    async with AsyncExitStack() as stack:
        stores, (watching,) = await open_all(stack, url), await open_all(stack, url, 1)
        heads: dict[str, int] = {}
        done = asyncio.Event()

        async def write(number: int, store: EventStore) -> None:
            for _ in range(25):
                await store.append(f"s{number} {chance.randrange(3)}", [NewEvent("t", b"x")])

        async def read() -> None:
            token = ""
            while True:
                was_done = done.is_set()
                page = await watching.changes(after=token)
                for name, (_, head) in zip(page.streams, page.spans, strict=True):
                    heads[name] = max(heads.get(name, 0), head)
                if was_done and not page.streams:
                    return
                token = page.token

        reading = asyncio.ensure_future(read())
        await asyncio.wait_for(asyncio.gather(*(write(n, store) for n, store in enumerate(stores))), 60)
        done.set()
        await asyncio.wait_for(reading, 30)
        there = {info.stream_id: info.head async for info in watching.streams()}
        assert heads == there


@dialects
async def test_the_feed_misses_nothing_whichever_commit_takes_longer(chance: random.Random, dialect: str) -> None:
    url = Shared.url(f"dialect={dialect}")
    async with open_store(url):
        await slow_commits(url)
    await feed_of(url, chance)


@dialects
async def test_canary_a_feed_whose_number_is_drawn_without_a_lock_is_caught(chance: random.Random, dialect: str) -> None:
    url = Shared.url(f"dialect={dialect}")
    async with open_store(url):
        await slow_commits(url)
        await draw_without_lock(url)

    async def many_times() -> None:
        for _ in range(20):
            await feed_of(url, chance)

    with pytest.raises((AssertionError, StreamError)):  # the schema's own rules may hear it first
        await many_times()


@dialects
async def test_a_transaction_comes_through_beside_appends_that_never_rest(dialect: str) -> None:
    """Whoever was met by others a few times keeps them out for once; where he can't, he comes through all the same."""
    async with AsyncExitStack() as stack:
        stores = await open_all(stack, Shared.url(f"dialect={dialect}"))
        await stores[0].append("gone", [NewEvent("t", b"x")])
        resting = False
        appended = 0

        async def write(number: int, store: EventStore) -> None:
            nonlocal appended
            while not resting:
                await store.append(f"s{number}", [NewEvent("t", b"x")])
                appended += 1

        writers = [asyncio.ensure_future(write(number, store)) for number, store in enumerate(stores) for _ in range(3)]
        runs: list[int] = []
        for number in range(size(smoke=10, full=100)):
            times = 0

            async def job(sql: Sql) -> None:
                nonlocal times
                times += 1
                await sql("SELECT head FROM streams WHERE name = 'gone'")
                for _ in range(10):  # it takes its time
                    await sql("SELECT count(*) FROM appends")
                [(number,)] = await sql("UPDATE feed SET number = number + 1 RETURNING number")
                await sql("UPDATE streams SET changed = ? WHERE name = 'gone'", (number,))

            store = stores[number % STORES]
            assert isinstance(store, PostgresStore)
            await asyncio.wait_for(store.database.transact(job), 25)
            runs.append(times)
        resting = True
        await asyncio.wait_for(asyncio.gather(*writers), 30)
        print(f"{appended} appends; a transaction was run {max(runs)} times at most")
        assert dialect == "portable" or max(runs) <= 5
