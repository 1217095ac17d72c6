"""How often a ledger goes to a server: the fewest trips that a commit takes, however many conversations there are."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import Ledger, open_ledger
from stream import NewEvent, StoreUnusable, open_store
from stream.postgres import PostgresStore
from stream.postgres.database import PostgresDatabase
from tests.faults.tcp_proxy import Proxy
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from stream.database import Sql

pytestmark = pytest.mark.anyio


async def trips(ledger: Ledger, call: Awaitable[object]) -> int:
    before = ledger.tables.database.trips
    await call
    return ledger.tables.database.trips - before


async def turn(ledger: Ledger, conversation: str) -> int:
    """The end of a run of three messages, and its catch-up."""
    run = await ledger.begin_run(conversation)
    for number in range(3):
        await run.message("user", f"{number}")
    await run.flush()
    return await trips(ledger, run.finish())


async def test_a_commit_of_three_messages_takes_twelve_trips_at_many_conversations_as_at_few() -> None:
    async with open_ledger(Shared.url()) as ledger:
        await turn(ledger, "c")
        few = await turn(ledger, "c")
        for number in range(30):
            await turn(ledger, f"d{number}")
        assert await turn(ledger, "c") == few <= 12
        run = await ledger.begin_run("c")
        assert await trips(ledger, run.finish()) <= 12
        assert await trips(ledger, ledger.transcript("c")) <= 8
        assert len(await ledger.transcript("c")) == 9


async def test_the_trips_that_are_counted_are_all_that_there_are() -> None:
    """A proxy counts what goes to the server; the first times statements are prepared, which is a trip of the driver's."""
    url = Shared.url()
    assert Shared.server is not None
    async with Proxy(Shared.server.port) as proxy, open_ledger(proxy.url(url)) as ledger:
        for _ in range(3):
            await turn(ledger, "c")
            await ledger.transcript("c")
        run = await ledger.begin_run("c")
        for number in range(3):
            await run.message("user", f"{number}")
        await run.flush()
        before = proxy.asked
        assert await trips(ledger, run.finish()) == proxy.asked - before
        before = proxy.asked
        assert await trips(ledger, ledger.transcript("c")) == proxy.asked - before > 0


async def test_a_look_of_one_statement_is_one_trip_from_the_second_time_on() -> None:
    async with open_store(Shared.url()) as store:
        assert isinstance(store, PostgresStore)
        await store.settle()  # what is looked for at an opening is counted, too
        for most in (3, 1, 1):
            before = store.database.trips
            assert await store.read("s") == []
            assert store.database.trips - before == most


async def test_a_look_that_once_took_one_statement_sees_one_moment_when_it_takes_more() -> None:
    url = Shared.url()
    async with open_store(url) as store, open_store(url) as other:
        assert isinstance(store, PostgresStore)
        await store.append("s", [NewEvent("t", b"")])
        more: list[str] = []

        async def job(sql: Sql) -> list[object]:
            text = "SELECT head FROM streams"
            return [await sql(each) for each in (text, *more, text)[: 3 if more else 1]]

        for _ in range(2):
            assert await store.database.look(job) == [[(1,)]]
        more.append("SELECT pg_sleep(0.3)::text")
        before = store.database.trips
        looking = store.database.ongoing.begin(store.database.look(job))
        await _seen(other, "pg_sleep")
        await other.append("s", [NewEvent("t", b"")])
        first, _, last = await looking
        assert first == last
        assert store.database.trips - before == 6


async def _seen(store: object, text: str) -> None:
    """Waits until the server is busy with it."""
    assert isinstance(store, PostgresStore)
    asked = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE ? AND pid <> pg_backend_pid()"
    while not await store.database.read(asked, (f"%{text}%",)):
        pass


async def test_tables_of_a_newer_program_are_refused_by_the_next_transaction() -> None:
    url = Shared.url()
    async with open_ledger(url) as ledger:
        await turn(ledger, "c")
        await ledger.tables.database.write(lambda sql: sql("UPDATE components SET version = 9 WHERE name = 'ledger'"))
        with pytest.raises(StoreUnusable, match="its ledger tables have version 9, this Tailfold knows 1: upgrade Tailfold"):
            await ledger.add_media("c", b"x", "image/png")
        assert len(await ledger.transcript("c")) == 3
    with pytest.raises(StoreUnusable, match="upgrade Tailfold"):
        await open_ledger(url)


LEFT: Final = """
SELECT 'setting ' || name FROM pg_settings WHERE source = 'session' AND setting <> reset_val
UNION ALL SELECT 'cursor ' || name FROM pg_cursors UNION ALL SELECT 'channel ' || pg_listening_channels() UNION ALL
SELECT 'lock' FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"""
"""What the next user of a connection would find of the one before; pg_cursors shows this very statement without a name."""


async def left_in(connection: Any) -> list[str]:
    found = [str(each) for (each,) in await connection.fetch(LEFT)]
    return [each for each in found if each != "cursor "]


async def test_nothing_of_ours_changes_a_session_for_who_has_the_connection_next() -> None:
    """A connection that is given back is not asked to forget: that would be a trip more for each statement."""
    async with open_ledger(Shared.url()) as ledger:
        database = ledger.tables.database
        assert isinstance(database, PostgresDatabase)
        await asyncio.gather(*(turn(ledger, f"c{number}") for number in range(20)))
        await ledger.erase("c1")
        await ledger.store.delete("other")
        async with contextlib.AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(database.connected()) for _ in range(8)]
            assert [await left_in(connection) for connection in connections] == [[]] * 8
            connection = connections[0]
            for text in ("SET work_mem = '8MB'", "LISTEN somebody", "SELECT pg_advisory_lock(1)"):
                await connection.execute(text)
            assert sorted(await left_in(connection)) == ["channel somebody", "lock", "setting work_mem"]
            await connection.execute("RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()")


async def test_what_is_sent_to_the_server_is_what_is_counted() -> None:
    async with open_store(Shared.url()) as store:
        assert isinstance(store, PostgresStore)
        await store.settle()
        sent: list[str] = []
        async with contextlib.AsyncExitStack() as stack:
            for connection in [await stack.enter_async_context(store.database.connected()) for _ in range(8)]:
                connection.add_query_logger(lambda record: sent.append(record.query))
        for is_first in (True, False):
            before = store.database.trips
            await store.append("s", [NewEvent("t", b"x")])
            await store.read("s")
            if not is_first:  # then the driver asks for what types there are
                assert len(sent) == store.database.trips - before > 0
            sent.clear()
