"""The commands on a server: each works, or says in one line what does it there; no password is ever shown."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx
import pytest
from structlog.testing import capture_logs

from ledger import open_ledger
from stream import StoreClosed, StoreUnusable, open_store
from stream.postgres import PostgresStore
from stream.urls import shown_url
from tests import fixed_talks
from tests.postgres_server import Shared
from tests.serving import serve
from tests.test_commands import Shell

pytestmark = pytest.mark.anyio
SECRET: Final = "g3heim"
ROOT: Final = Path(__file__).parents[1]


class ServerShell(Shell):
    """Runs commands on a schema of its own; the password is asked for by nobody."""

    def __init__(self, url: str) -> None:
        self.url = url

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "ledger.admin", "--data", self.url, *words]

    def run(self, *words: str, code: int = 0) -> str:
        told = super().run(*words, code=code)
        assert SECRET not in told
        return told

    def refused(self, *words: str) -> str:
        """One line, exit code 2."""
        told = self.run(*words, code=2)
        assert told.startswith("tailfold: ")
        assert len(told.splitlines()) == 1
        return told


def secret_url(*options: str) -> str:
    return with_secret(Shared.url(*options))


def with_secret(url: str) -> str:
    return url.replace("tester@", f"tester:{SECRET}@")


@pytest.fixture
async def shell(anyio_backend: object) -> ServerShell:
    del anyio_backend
    url = secret_url()
    async with open_ledger(url) as ledger:
        await fixed_talks.fill(ledger)
    return ServerShell(url)


def test_commands_that_look_and_that_change_work(shell: ServerShell, tmp_path: Path) -> None:
    assert "A trip to Lyon" in shell.run("conversations")
    assert "trip" in shell.run("conversations", "--label", "work")
    for words in (("show", "trip"), ("tree", "trip"), ("runs",), ("events", "trip"), ("context", "trip"), ("reconcile",)):
        assert shell.run(*words)
    assert shell.run("verify") == "everything is as it should be\n"
    counted = shell.read("stats", "--exact")
    assert (counted["conversations"], counted["runs"], counted["streams"], counted["unswept_rows"]) == (5, 7, 5, 0)
    assert counted["rows"] > 0
    assert counted["table_bytes"] > counted["payload_bytes"] > 0
    assert shell.read("stats", "trip")["events"] == 54
    shell.run("describe", "trip", "--title", "T")
    shell.run("select", "trip", "r1.2")
    shell.run("recover", "r4", "--action", "commit")
    assert "keeps none" in shell.run("compact", "trip")
    assert shell.run("snapshot", "trip")
    exported = tmp_path / "plans.jsonl"
    exported.write_text(shell.run("export", "plans"))
    other = ServerShell(secret_url())
    assert "plans" in other.run("import", str(exported))
    assert other.run("show", "plans", "--json") == shell.run("show", "plans", "--json")
    assert shell.run("verify") == "everything is as it should be\n"


@pytest.mark.parametrize(
    ("words", "tool"),
    [
        (("backup", "f.db"), "pg_dump"),
        (("restore", "f.db"), "pg_restore"),
        (("vacuum",), "vacuumdb"),
        (("sql", "SELECT 1"), "psql"),
    ],
)
def test_what_the_server_does_better_is_said(shell: ServerShell, words: tuple[str, ...], tool: str) -> None:
    told = shell.refused(*words)
    assert f"on a server {tool} does it" in told
    assert "--read-only" not in shell.refused("stats", "--read-only")


async def test_an_erasure_leaves_nothing_to_be_found_and_says_what_a_server_keeps(shell: ServerShell) -> None:
    schema = shell.url.partition("schema=")[2]
    assert await found(schema, "cellar") > 0
    async with open_ledger(shell.url) as ledger:
        told = await ledger.erase("plans")
        assert told.is_proven
        assert "dead rows lie on the server's disk until vacuumed" in (told.why or "")
        assert await ledger.tables.media_of("plans") == []
    assert await found(schema, "cellar") == 0
    said = shell.run("erase", "trip", "--yes")
    assert "are gone\nno statement finds any of it; dead rows lie" in said
    assert json.loads(shell.run("erase", "trip", "--yes", "--json"))["is_proven"] is True


async def found(schema: str, word: str) -> int:
    """In how many rows of all tables of a schema a word lies, of those that are not packed."""
    server = Shared.server
    assert server is not None
    tables = await server.ask(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    needles = [word, word.encode().hex()]
    counts = [
        await server.ask(f"SELECT count(*) FROM {schema}.{table} AS t WHERE t::text LIKE '%{needle}%'")
        for (table,) in tables
        for needle in needles
    ]
    return sum(int(str(rows[0][0])) for rows in counts)


def test_what_can_not_be_opened_is_one_clear_line_without_the_password(tmp_path: Path) -> None:
    url = secret_url()
    assert Shared.server is not None
    port = f":{Shared.server.port}/"
    for broken, why in {
        url.replace(port, ":1/"): "Connect call failed",
        url.replace("/postgres?", "/nothing?"): 'database "nothing" does not exist: make it first',
        url.replace("tester:", "stranger:"): 'role "stranger" does not exist: give user and password',
        url.replace("schema=", "schema=No"): "is none: small letters",
        url + "&wake=never": "wake='never' is unknown",
        url + f"&password={SECRET}": "there is no Tailfold in schema",
        url + f"&password=x&{SECRET}={SECRET}": "an option of the URL is no setting of the server",
        url.replace(port, ":port/"): "this can't be read",
        url.replace(SECRET, f"{SECRET}/{SECRET}@{SECRET}"): "this can't be read",
        url.replace("127.0.0.1", "[::1"): "this can't be read",
        url.replace("postgresql:", "mysql:"): "mysql: is no kind of store",
        url.replace("postgresql://", "postgresql:/"): "postgresql: is no kind of store",
        url + "&sslmode=never": "`sslmode` parameter must be one of",
    }.items():
        assert why in ServerShell(broken).refused("conversations")
    for words in (("backup", str(tmp_path / "x")), ("stats", "--read-only"), ("vacuum",), ("verify",)):
        ServerShell(url).refused(*words)
        ServerShell(url.replace("postgresql:", "mysql:")).refused(*words)


@pytest.mark.parametrize("words", [("backup",), ("import",), ("export", "--all", "--output")])
async def test_where_a_file_is_meant_a_server_is_refused_without_its_password(words: tuple[str, ...], tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    async with open_ledger(path):
        pass
    assert "is a server" in ServerShell(path).run(*words, f"postgresql://tester:{SECRET}@127.0.0.1/postgres", code=2)
    assert [each.name for each in tmp_path.iterdir()] == ["a.db"]


async def test_a_wrong_password_and_a_poor_user_are_told_so() -> None:
    url = secret_url()
    server = Shared.server
    assert server is not None
    rules = server.data / "pg_hba.conf"
    for role in ("locked", "poor"):
        await server.ask(f"DROP ROLE IF EXISTS {role}")
    await server.ask("CREATE ROLE locked LOGIN PASSWORD 'another'")
    await server.ask("CREATE ROLE poor LOGIN")
    kept = rules.read_text()
    try:
        rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + kept)
        await server.ask("SELECT pg_reload_conf()")
        told = ServerShell(url.replace("tester:", "locked:")).refused("conversations")
        assert 'password authentication failed for user "locked": give user and password' in told
    finally:
        rules.write_text(kept)
        await server.ask("SELECT pg_reload_conf()")
    with pytest.raises(StoreUnusable, match="permission denied for database postgres: let this user make the schema"):
        await open_store(url.replace("tester:", "poor:"))


async def test_tables_of_a_newer_program_are_refused(shell: ServerShell) -> None:
    async with open_ledger(shell.url) as ledger:
        await ledger.tables.database.write(lambda sql: sql("UPDATE components SET version = 9 WHERE name = 'stream'"))
    assert "its stream tables have version 9, this Tailfold knows 1: upgrade Tailfold" in shell.refused("conversations")


def test_without_the_driver_it_is_said_which_extra_brings_it() -> None:
    program = "import sys; sys.modules['asyncpg'] = None; from ledger.admin import main; main()"
    command = [sys.executable, "-c", program, "--data", f"postgresql://u:{SECRET}@h/d", "conversations"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tailfold: stream.postgres needs asyncpg: pip install 'tailfold[postgres]'\n"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("chat.db", "chat.db"), ("sqlite:////a/b.db", "sqlite:////a/b.db"), ("memory:", "memory:"),
        ("nats:talk.db", "nats:talk.db"),
        ("postgresql://h:1/d?schema=s", "postgresql://h:1/d?schema=s"),
        (f"postgresql://u:{SECRET}@h:1/d", "postgresql://u@h:1/d"),
        (f"postgresql://u:{SECRET}@h/d?password={SECRET}&schema=s", "postgresql://u@h/d?schema=s"),
        (f"postgresql://h/d?schema=s&sslpassword={SECRET}", "postgresql://h/d?schema=s"),
        (f"postgresql://u:{SECRET}/x@y#{SECRET}?@h/d", "postgresql://u@h/d"),
        (f"postgresql://:{SECRET}@h/d", "postgresql://@h/d"),
        (f"postgresql:/u:{SECRET}@h/d", "postgresql:/u@h/d"), (f"Nats:u:{SECRET}@h?password={SECRET}", "Nats:u@h"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


async def test_what_is_told_in_logs_names_of_tasks_and_errors_has_no_password() -> None:
    url = secret_url()
    with capture_logs() as logs:
        async with open_ledger(url) as ledger:
            async with ledger.run("c") as run:
                await run.message("user", "q")
            with ledger.store.listen("c"):
                names = [task.get_name() for task in asyncio.all_tasks()]
            assert isinstance(ledger.store, PostgresStore)
            told = [repr(ledger.store.database.address), ledger.store.database.path]
    with pytest.raises(StoreClosed) as closed:
        await ledger.transcript("c")
    assert any("tailfold listener of postgresql://tester@" in name for name in names)
    assert SECRET not in repr((logs, names, told, str(closed.value)))


async def test_a_schema_is_served() -> None:
    url = secret_url()
    with serve(url) as served:
        async with open_ledger(url) as ledger, ledger.run("c") as run:
            await run.message("user", "hello from another process")
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{served.url}/v1/conversations/c/transcript")
    assert "hello from another process" in answer.text
