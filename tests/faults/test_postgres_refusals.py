"""Whatever a PostgreSQL server may say, or somebody do to its rows: a typed error at once, and the store goes on after it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import asyncpg
import pytest

from stream import (
    CorruptEvent,
    NewEvent,
    Producer,
    StoreBusy,
    StoreFull,
    StoreUnreachable,
    StoreUnusable,
    follow,
    open_store,
)
from stream.postgres import PostgresDatabase, PostgresStore
from tests.faults.held_feed import event, feed_held, read, server
from tests.faults.postgres_load import Load
from tests.faults.sizes import size
from tests.postgres_server import Shared, running

if TYPE_CHECKING:
    from stream import EventStore

pytestmark = pytest.mark.anyio
AT_ONCE_S = 5.0


async def change(url: str, text: str) -> None:
    """By hand: what the schema does against that is switched off meanwhile."""
    schema = url.partition("schema=")[2].partition("&")[0]
    connection = await asyncpg.connect(f"postgresql://tester@127.0.0.1:{server().port}/postgres")
    try:
        await connection.execute(f"SET search_path = {schema}; SET session_replication_role = replica; {text}")
    finally:
        await connection.close()


def database_of(store: EventStore) -> PostgresDatabase:
    assert isinstance(store, PostgresStore)
    return store.database


async def test_a_limit_on_statements_is_told_and_nothing_is_stored() -> None:
    url = Shared.url()
    async with open_store(f"{url}&statement_timeout=300") as store:
        await store.append("s", event("first"))
        async with feed_held(url):
            began = time.monotonic()
            calls = (*(store.append(f"s{n}", event("x")) for n in range(20)), store.truncate("s", through=1))
            refused = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(each) for each in refused} == {StoreBusy}
            assert "statement timeout" in str(refused[0])
            assert time.monotonic() - began < AT_ONCE_S
        assert (await store.append("s", event("second"))).last_seq == 2
        assert [info.stream_id async for info in store.streams()] == ["s"]


async def test_connections_that_the_server_ends_when_they_rest_are_made_anew() -> None:
    url = Shared.url()
    async with open_store(f"{url}&idle_session_timeout=150") as store, open_store(url) as direct:
        with store.listen("s") as signal:
            for number in range(size(smoke=4, full=40)):
                await store.append("s", event(str(number)))
                await asyncio.sleep(0.14 + 0.01 * (number % 5))
            signal.clear()
            await direct.append("s", event("x"))
            await asyncio.wait_for(signal.wait(), AT_ONCE_S)
        assert len(await store.read("s")) == size(smoke=4, full=40) + 1


@pytest.mark.heavy
async def test_a_server_with_too_many_connections_is_waited_for() -> None:
    with running("max_connections=12", "superuser_reserved_connections=0", "reserved_connections=0") as small:
        async with open_store(small.url()) as store:
            await store.append("s", event("first"))
            others = []
            with contextlib.suppress(asyncpg.TooManyConnectionsError):
                while True:
                    others.append(await asyncpg.connect(f"postgresql://tester@127.0.0.1:{small.port}/postgres"))
            with pytest.raises(StoreUnreachable, match="too many clients"):
                await open_store(small.url())
            looks = [asyncio.ensure_future(store.bounds("s")) for _ in range(20)]
            appends = [asyncio.ensure_future(store.append("s", event("x"))) for _ in range(20)]
            await asyncio.sleep(1)
            await asyncio.gather(*(each.close() for each in others))
            await asyncio.wait_for(asyncio.gather(*looks, *appends), 20)
            assert (await store.bounds("s")).head == 21


async def test_a_full_disk_is_told_at_once_and_the_store_goes_on_when_there_is_room() -> None:
    url = Shared.url()
    async with open_store(url) as store:
        await store.append("s", event("first"))
        await change(url, """
            CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
            CREATE TRIGGER is_full BEFORE INSERT ON appends FOR EACH ROW EXECUTE FUNCTION is_full();
            CREATE TRIGGER is_full BEFORE UPDATE ON streams FOR EACH ROW EXECUTE FUNCTION is_full()""")  # fmt: skip
        before, began = database_of(store).trips, time.monotonic()
        calls = (
            *(store.append("s", event("x"), producer=Producer("p", 0, n)) for n in range(20)),
            store.truncate("s", through=1),
            store.delete("s"),
        )
        refused = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in refused} == {StoreFull}
        assert time.monotonic() - began < AT_ONCE_S
        assert database_of(store).trips - before < 20, "each was tried by itself on a full disk"
        await change(url, "DROP FUNCTION is_full CASCADE")
        await store.append("s", event("second"), producer=Producer("p", 0, 0))
        assert await read(store, "s") == ["first", "second"]


async def test_a_server_that_was_made_read_only_is_read_and_names_the_way_out() -> None:
    url = Shared.url()
    async with open_store(url) as store:
        await store.append("s", event("first"))
    async with open_store(f"{url}&default_transaction_read_only=on") as store:
        assert await read(store, "s") == ["first"]
        for call in (store.append("s", event("x")), store.truncate("s", through=1), store.delete("s")):
            with pytest.raises(StoreUnusable, match="read-only: name the primary"):
                await asyncio.wait_for(call, AT_ONCE_S)


async def test_backends_that_are_ended_in_the_middle_lose_and_double_nothing() -> None:
    url = Shared.url()
    async with open_store(url) as store, open_store(url) as watching:
        load = Load(store, watching, each=4)
        async with load.running():
            for _ in range(size(smoke=15, full=200)):
                await server().ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tailfold'")
                await asyncio.sleep(0.05)
        await load.check(store)
    print(f"pg_terminate_backend: {load}")


async def test_a_schema_that_is_dropped_under_a_store_is_told() -> None:
    url = Shared.url()
    store = await open_store(url)
    await store.append("s", event("first"))
    schema = url.partition("schema=")[2]
    await server().ask(f"DROP SCHEMA {schema} CASCADE")
    for call in (store.append("s", event("x")), store.read("s"), store.delete("s"), store.changes()):
        with pytest.raises(StoreUnusable, match="does not exist"):
            await asyncio.wait_for(call, AT_ONCE_S)
    await asyncio.wait_for(store.close(), AT_ONCE_S)


async def test_a_stream_whose_row_was_changed_is_named_and_harms_no_other() -> None:
    url = Shared.url()
    async with open_store(url) as earlier:
        for name in ("bad", "good"):
            await earlier.append(name, event("first"), producer=Producer("p", 0, 0))
        await change(url, "UPDATE streams SET head = head + 5 WHERE name = 'bad'")
    async with open_store(url) as store:  # it knows nothing of them yet
        bad = store.append("bad", event("x"))
        good = [store.append("good", event(str(n)), producer=Producer("p", 0, n)) for n in range(1, 5)]
        refused, *stored = await asyncio.wait_for(asyncio.gather(bad, *good, return_exceptions=True), AT_ONCE_S)
        assert isinstance(refused, CorruptEvent)
        assert "keeps its floor, head and origin is damaged" in str(refused)
        assert not [each for each in stored if isinstance(each, Exception)]
        for call in (store.read("bad"), store.bounds("bad")):
            with pytest.raises(CorruptEvent, match="is damaged"):
                await call


async def test_a_producer_whose_row_was_changed_is_named_and_harms_no_other() -> None:
    url = Shared.url()
    async with open_store(url) as earlier:
        for name in ("bad", "good"):
            await earlier.append("s", event(name), producer=Producer(name, 0, 0))
        await change(url, "UPDATE producers SET seq = seq + 5 WHERE name = 'bad'")
    async with open_store(url) as store:
        calls = [store.append("s", event("x"), producer=Producer(*its)) for its in (("bad", 0, 6), ("good", 0, 1))]
        refused, stored = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), AT_ONCE_S)
        assert isinstance(refused, CorruptEvent)
        assert "watermark of producer 'bad' is damaged" in str(refused)
        assert not isinstance(stored, Exception)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("UPDATE streams SET floor = floor + 1", "keeps its floor, head and origin is damaged"),
        ("UPDATE streams SET floor = 1, origin = 1", "keeps its floor, head and origin is damaged"),
        ("UPDATE streams SET guard = guard + 1", "keeps its floor, head and origin is damaged"),
        ("UPDATE producers SET seq = seq + 5", "watermark of producer 'p' is damaged"),
        ("UPDATE producers SET epoch = epoch + 1", "watermark of producer 'p' is damaged"),
    ],
)
async def test_a_row_that_is_changed_under_who_knows_it_is_not_gone_on_from(text: str, why: str) -> None:
    url = Shared.url()
    async with open_store(url) as store:
        for seq in range(3):
            await store.append("s", event(str(seq)), producer=Producer("p", 0, seq))
        await change(url, text)
        with pytest.raises(CorruptEvent, match=why):
            await asyncio.wait_for(store.append("s", event("x"), producer=Producer("p", 0, 3)), AT_ONCE_S)
        [(count,)] = await database_of(store).read("SELECT count(*) FROM appends")
        assert count == 3


async def test_rows_that_were_changed_are_named_and_never_read() -> None:
    url = Shared.url()
    async with open_store(url) as store:
        for number in range(5):
            await store.append("s", event(str(number)))
        for text, seq, why in (
            ("UPDATE appends SET data = data || 'x' WHERE last = 3", 3, "the checksum of events 3 to 3 does not fit"),
            ("UPDATE appends SET at = at + 1 WHERE last = 3", 3, "the checksum of events 3 to 3 does not fit"),
            ("DELETE FROM appends WHERE last = 3", 3, "its row is missing"),
            ("DELETE FROM appends WHERE last >= 3", 3, "its row is missing"),
        ):
            await change(url, f"CREATE TABLE IF NOT EXISTS kept AS TABLE appends; {text}")
            with pytest.raises(CorruptEvent, match=why) as refused:
                await store.read("s", after=2)
            assert refused.value.seq == seq
            assert await store.read("s", limit=2) != []
            await change(url, "DELETE FROM appends; INSERT INTO appends TABLE kept")
        assert await read(store, "s") == ["0", "1", "2", "3", "4"]


async def test_a_row_beyond_the_head_is_named_at_once_and_harms_no_other_stream() -> None:
    url = Shared.url()
    async with open_store(url) as store:
        for name in ("bad", "good"):
            for number in range(2):
                await store.append(name, event(str(number)))
        await change(url, "UPDATE streams SET head = 1, guard = guard - 3 WHERE name = 'bad'")
        async with open_store(url) as other:
            calls = [other.append(name, event("x")) for name in ("good", "bad", "good")]
            first, refused, last = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), AT_ONCE_S)
        assert isinstance(refused, CorruptEvent)
        assert "beyond the head" in str(refused)
        assert not isinstance(first, Exception)
        assert not isinstance(last, Exception)
        assert (await store.bounds("good")).head == 4


async def test_behind_a_pooler_nothing_is_prepared_and_others_are_seen_by_asking() -> None:
    url = Shared.url("wake=poll")
    async with open_store(url) as store, open_store(url) as other:
        following = follow(store, "s")
        for number in range(3):
            under_way = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0.1)
            await other.append("s", event(str(number)))
            assert (await asyncio.wait_for(under_way, 2)).seq == number + 1
        await following.aclose()  # type: ignore[attr-defined]
        async with database_of(store).connected() as connection:
            assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
        [(listening,)] = await server().ask(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tailfold' AND query LIKE 'LISTEN%'"
        )
        assert listening == 0


async def test_a_pooler_that_drops_where_the_tables_lie_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresDatabase, "_settings", lambda _: {})
    with pytest.raises(StoreUnusable, match="search_path"):
        await open_store(Shared.url("wake=poll"))


async def test_the_longest_name_of_a_schema_is_listened_to() -> None:
    url = Shared.url().partition("schema=")[0] + "schema="
    with pytest.raises(StoreUnusable, match="at most 54"):
        await open_store(url + "x" * 55)
    async with open_store(url + "x" * 54) as store, open_store(url + "x" * 54) as other:
        with store.listen("s") as signal:
            await asyncio.sleep(0.1)
            signal.clear()
            await other.append("s", [NewEvent("t", b"x")])
            await asyncio.wait_for(signal.wait(), AT_ONCE_S)


@pytest.mark.heavy
async def test_a_server_that_comes_back_less_durable_is_not_written_to() -> None:
    with running() as own:
        async with open_store(own.url()) as store:
            await store.append("s", event("first"))
            own.kill()
            own.settings = ("fsync=off",)
            own.start()
            with pytest.raises(StoreUnusable, match="fsync"):
                await asyncio.wait_for(store.append("s", event("second")), 30)
