"""What PostgreSQL alone has is used where it is, and nothing depends on it: the rules are in the statements."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import pytest

from ledger import open_ledger
from stream import NewEvent, StoreUnusable, open_store
from stream.postgres import PostgresStore, own_changes
from stream.postgres.dialects import PORTABLE, POSTGRES, ServerDialect
from stream.postgres.server import check_server
from tests.postgres_server import PostgresServer, Shared

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio
OPTIONS: Final = {"postgres": (), "portable": ("dialect=portable",)}
VERSIONS: Final = {
    "PostgreSQL 18.1 on x86_64-pc-linux-gnu, compiled by gcc 12.2.0, 64-bit": POSTGRES,  # Aurora and Citus say it so, too
    "PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6": PORTABLE,
    "CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/06/04, go1.23.7)": PORTABLE,
    "something else": PORTABLE,
}
_OURS: Final = "(SELECT oid FROM pg_namespace WHERE nspname = '{}')"
ONLY_POSTGRES: Final = {
    "functions": "SELECT proname FROM pg_proc WHERE pronamespace = {}",
    "triggers": """SELECT tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE c.relnamespace = {} AND NOT tgisinternal""",
    "collations": """SELECT attname FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
        WHERE c.relnamespace = {} AND attcollation NOT IN (0, 100)""",
    "settings of tables": "SELECT relname FROM pg_class WHERE relnamespace = {} AND reloptions IS NOT NULL",
}
FOREIGN_HANDS: Final = (
    "UPDATE streams SET head = head - 1, changed = changed + 1",
    "UPDATE streams SET floor = 0, changed = changed + 1",
    "UPDATE streams SET name = 'another', changed = changed + 1",
    "UPDATE streams SET head = head + 1",
    "UPDATE streams SET head = head + 1, changed = changed - 1",
    "UPDATE appends SET data = ''",
    "DELETE FROM appends",
    "UPDATE conversations SET projected_seq = 0, replay_from = 0",
    "UPDATE runs SET status = 'open'",
)
"""What no statement of ours does."""


def server() -> PostgresServer:
    assert Shared.server is not None
    return Shared.server


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


class Saying:
    """A connection to a server that says what it is, and otherwise is as it must be."""

    def __init__(self, version: str, *, is_ordered: bool = True) -> None:
        self._row = [180_000, "18", "on", "on", "on", "UTF8", False, "s", is_ordered, version]

    async def fetchrow(self, text: str) -> list[Any]:
        assert "'B'::text < 'a'::text, version()" in text
        return self._row


@pytest.mark.parametrize(("version", "dialect"), VERSIONS.items())
async def test_a_server_is_known_by_what_it_says_it_is_unless_it_is_said_to_be_another(
    version: str, dialect: ServerDialect
) -> None:
    said = Saying(version)
    assert await check_server(said, "x", "s", "", is_durable=True) is dialect
    for name in ("postgres", "portable"):
        assert (await check_server(said, "x", "s", name, is_durable=True)).name == name


@pytest.mark.parametrize("dialect", OPTIONS)
async def test_only_postgresql_is_given_what_only_it_has(dialect: str) -> None:
    url = Shared.url(*OPTIONS[dialect])
    async with open_ledger(url):
        pass
    for what, text in ONLY_POSTGRES.items():
        found = await server().ask(text.format(_OURS.format(schema_of(url))))
        assert bool(found) is (dialect == "postgres"), what


@pytest.mark.parametrize(("option", "tells"), [("wake=listen", True), ("wake=poll", True), ("dialect=portable", False)])
async def test_who_listens_is_told_also_by_who_may_not_listen_himself(option: str, tells: bool) -> None:  # noqa: FBT001
    url = Shared.url(option)
    channel, heard = f"tailfold_{schema_of(url)}", asyncio.Event()
    async with open_store(url) as store:
        connection: Any = await asyncpg.connect(server().url().partition("?")[0])
        await connection.add_listener(channel, lambda *_: heard.set())
        await store.append("s", [NewEvent("t", b"x")])
        await connection.fetchval("SELECT 1")  # what was told before comes before its answer
        await connection.close()
    assert heard.is_set() is tells


@pytest.mark.parametrize("option", ["wake=poll", "dialect=portable"])
async def test_who_asks_again_and_again_looks_for_what_others_changed_only(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(own_changes, "_LANDS_S", 10.0)
    url, looks = Shared.url(option), 0

    async def look() -> None:
        nonlocal looks
        looks += 1

    async with open_store(url) as store, open_store(url) as other:
        assert isinstance(store, PostgresStore)
        end = store.database.watch(look)
        await seen_after(lambda: looks, 0)
        for _ in range(20):
            await asyncio.gather(*(store.append(f"s{number}", [NewEvent("t", b"x")]) for number in range(3)))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert looks == 1
        await other.append("s1", [NewEvent("t", b"x")])
        await seen_after(lambda: looks, 1)
        end()


async def test_numbers_that_are_drawn_once_more_are_not_ones_own() -> None:
    own = own_changes.OwnChanges()
    for number in (4, 5):
        with own.drawing() as note:
            note(number)
    assert await own.are_all(3, 5)
    assert not await own.are_all(5, 3)  # a server that has lost the newest
    assert not await own.are_all(3, 4)


async def seen_after(count: Callable[[], int], before: int) -> None:
    async with asyncio.timeout(20):
        while count() <= before:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("text", FOREIGN_HANDS)
async def test_on_postgresql_foreign_hands_are_refused(text: str) -> None:
    async with open_ledger(Shared.url()) as ledger:
        async with ledger.run("c") as run:
            await run.message("user", "hi")
        await ledger.transcript("c")
        await ledger.store.append("other", [NewEvent("t", b"x")] * 2)
        await ledger.store.truncate("other", through=1)
        before = await ledger.transcript("c")
        with pytest.raises(StoreUnusable, match=r"never|stays ended"):
            await ledger.tables.database.write(lambda sql: sql(text))
        assert await ledger.transcript("c") == before


async def test_a_portable_schema_is_opened_as_what_the_server_is_and_the_other_way_round() -> None:
    """Which of the two a process says is no matter of what lies there."""
    for first, then in (("postgres", "portable"), ("portable", "postgres")):
        url = Shared.url(*OPTIONS[first])
        other = "&".join([url.partition("&")[0], *OPTIONS[then]])
        async with open_ledger(url) as one, open_ledger(other) as two:
            for number, ledger in enumerate((one, two, one, two)):
                async with ledger.run("c", run_id=f"r{number}") as run:
                    await run.message("user", f"{number}")
            assert [message.text for message in await one.transcript("c")] == ["0", "1", "2", "3"]
            assert await one.transcript("c") == await two.transcript("c")
        async with open_store(url.partition("&")[0]) as store:  # as which it was made: else its indexes would be of no use
            assert isinstance(store, PostgresStore)
            assert store.database.server.name == first


async def test_texts_that_the_database_orders_by_a_language_are_refused_where_no_other_order_can_be_asked_for() -> None:
    for version, dialect in VERSIONS.items():
        said = Saying(version, is_ordered=False)
        await check_server(said, "x", "s", "postgres", is_durable=True)
        for asked in ("portable",) if dialect is POSTGRES else ("portable", ""):
            with pytest.raises(StoreUnusable, match="by a language"):
                await check_server(said, "x", "s", asked, is_durable=True)


async def test_a_stream_is_marked_where_it_first_changes_among_many_whoever_moves_it() -> None:
    """A mark that is missing would have the feed say that a stream stood elsewhere than it did."""
    async with open_store(Shared.url("dialect=portable")) as store:
        assert isinstance(store, PostgresStore)
        await store.append("s", [NewEvent("t", b"x")])
        for number in (1, 2, 1022, 1023, 2047, 5000):
            await store.database.write(lambda sql, n=number: sql("UPDATE feed SET number = ? WHERE number < ?1", (n,)))  # type: ignore[misc]
            await store.append("s", [NewEvent("t", b"x")])
        marks = await store.database.read("SELECT number, head FROM marks ORDER BY number")
        assert marks == [(1, 0), (1024, 4), (2048, 5), (5001, 6)]
