"""`tailfold sql` shows what lies in the tables, compressed or not, and changes nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ledger import open_ledger
from ledger.tables.inspection import page_item
from stream.sqlite.inspection import unzip
from tests.ledger_commands import fill, record, refuse_each, run_each, talk, turns
from tests.needles import say
from tests.test_commands import Shell

if TYPE_CHECKING:
    from ledger import Ledger

FIXTURES = Path(__file__).parent / "fixtures"
BODIES = "SELECT id, body FROM messages UNION ALL SELECT id, body FROM runs ORDER BY id"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def asked(shell: Shell, statement: str) -> list[dict[str, Any]]:
    [(code, out, err)] = run_each(shell, [["sql", statement, "--json"]])
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_a_body_is_the_same_before_and_after_it_is_moved(shell: Shell) -> None:
    async def more(ledger: Ledger) -> None:
        await talk(ledger)
        await record(ledger, "d", turns(300))

    fill(shell, more)
    before = asked(shell, BODIES)
    assert len(before) == 3 + 4 + 2 * 300
    assert all(json.loads(row["body"])["run_id"] in row["id"] for row in before)

    async def compact(ledger: Ledger) -> None:
        await ledger.compact("d")

    fill(shell, compact)
    assert asked(shell, "SELECT count(*) AS n FROM snapshots WHERE instr(envelope, CAST('open_runs' AS BLOB)) > 0") != [
        {"n": 0}
    ]
    after = asked(shell, BODIES)
    assert after == before
    found = asked(
        shell, "SELECT count(*) AS n, min(json_extract(body, '$.role')) AS role FROM messages WHERE body LIKE '%turn 7%'"
    )
    assert found == [{"n": 11, "role": "assistant"}]


def test_events_of_packed_chunks_can_be_looked_for(shell: Shell) -> None:
    async def many(ledger: Ledger) -> None:
        async with ledger.run("c", flush_ms=0) as run:
            for number in range(400):
                await run.text(f"word {number} ")
                await run.flush()

    fill(shell, many)
    assert asked(shell, "SELECT count(*) > 0 AS packed FROM chunks") == [{"packed": 1}]
    text = "SELECT count(*) AS n FROM chunks WHERE instr(data, CAST('word 20 ' AS BLOB)) > 0"
    assert asked(shell, text) == [{"n": 1}]


def test_people_see_a_table_and_programs_an_object_a_line(shell: Shell) -> None:
    fill(shell, talk)
    [(code, out, _)] = run_each(shell, [["sql", "SELECT id, body FROM messages WHERE id = 'r2.1'"]])
    assert (code, "r2.1" in out, "Paris" in out) == (0, True, True)
    text = "SELECT NULL AS a, 1 AS b, 1e999 AS c, x'00ff' AS d, x'c3b6' AS e, 'a' || char(27) AS f, CAST(x'ff' AS TEXT) AS g"
    assert asked(shell, text) == [{"a": None, "b": 1, "c": "inf", "d": "x'00ff'", "e": "ö", "f": "a\x1b", "g": "\\xff"}]
    [(_, out, _)] = run_each(shell, [["sql", text]])
    assert "\x1b" not in out
    assert asked(shell, "SELECT 1 WHERE 0") == []
    assert (
        len(asked(shell, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i FROM n"))
        == 2000
    )
    assert asked(shell, "PRAGMA table_info(messages)")[-1]["name"] == "body"
    assert asked(shell, "EXPLAIN QUERY PLAN SELECT body FROM messages")


@pytest.mark.parametrize("is_open", [False, True], ids=["alone", "beside a program"])
def test_nothing_can_be_changed(shell: Shell, tmp_path: Path, is_open: bool) -> None:  # noqa: FBT001 - a case
    fill(shell, talk)
    statements = (
        "DELETE FROM messages", "DELETE FROM main.messages", "UPDATE main.conversations SET title = 'x'", "DROP TABLE runs",
        "INSERT INTO streams (name) VALUES ('x')", "CREATE TABLE x (a)", "CREATE TEMP TABLE x (a)", "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA user_version = 7",
        "VACUUM", f"VACUUM INTO '{tmp_path}/x.db'", f"ATTACH '{tmp_path}/y.db' AS y", "BEGIN IMMEDIATE", "REINDEX", "ANALYZE",
        "DROP VIEW messages", "SELECT load_extension('x')", "selec", "SELECT 1; DELETE FROM main.messages", "", "/* nothing */",
    )  # fmt: skip
    there = asked(shell, "SELECT * FROM main.messages")

    async def refused() -> list[str]:
        if not is_open:
            return await asyncio.to_thread(refuse_each, shell, [["sql", statement] for statement in statements])
        async with open_ledger(str(shell.data)) as ledger:
            done = await asyncio.to_thread(run_each, shell, [["sql", statement] for statement in statements])
            assert {code for code, _, _ in done} == {2}
            await say(ledger, "goes on", "other")
            return [err for _, _, err in done]

    told = asyncio.run(refused())
    assert "nothing but reading is done here" in told[1]
    assert "syntax error" in told[-4]
    assert [row for row in asked(shell, "SELECT * FROM main.messages") if row in there] == there
    assert {path.suffix for path in tmp_path.iterdir()} <= {".db", ".db-wal", ".db-shm"}
    assert not {"x.db", "y.db"} & {path.name for path in tmp_path.iterdir()}


def test_what_can_not_be_asked_is_one_line(shell: Shell, tmp_path: Path) -> None:
    assert "there is no such file" in refuse_each(shell, [["sql", "SELECT 1"]])[0]
    fill(shell, talk)
    [twice, no_rows] = refuse_each(shell, [["sql", "SELECT 1 AS a, 2 AS a", "--json"], ["sql", "SELECT x FROM messages"]])
    assert "two columns are called a: name one of them with AS" in twice
    assert "no such column: x" in no_rows
    shell.data = Path("memory:")
    assert "what is kept in memory has no file" in shell.run("sql", "SELECT 1", code=2)
    shell.data = tmp_path / "diary"
    shell.data.write_bytes(b"my diary\n" * 1000)
    assert "this is no Tailfold database" in refuse_each(shell, [["sql", "SELECT * FROM messages"]])[0]


@pytest.mark.parametrize("version", range(1, 6))
def test_a_file_of_an_older_version_is_read_as_it_is(shell: Shell, version: int) -> None:
    shell.data.write_bytes(gzip.decompress((FIXTURES / f"version_{version}.db.gz").read_bytes()))
    found = asked(shell, "SELECT id, json_extract(body, '$.id') AS own FROM messages")
    assert len(found) > 1
    assert all(row["id"] == row["own"] for row in found)
    assert asked(shell, "SELECT version FROM components WHERE name = 'ledger'") == [{"version": version}]
    table = "chunks" if version == 1 else "appends"
    assert asked(shell, f"SELECT typeof(data) AS kind FROM {table} LIMIT 1") == [{"kind": "blob"}]


def test_the_tables_of_a_log_elsewhere_are_there_too(shell: Shell, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_ledger(str(shell.data), log=str(tmp_path / "log.db")) as ledger:
            await say(ledger, "hello")

    asyncio.run(main())
    text = "SELECT s.head, c.messages FROM streams AS s JOIN conversations AS c ON c.stream_id = s.name"
    [(code, out, _)] = run_each(shell, [["--log", str(tmp_path / "log.db"), "sql", text, "--json"]])
    assert (code, json.loads(out)["messages"]) == (0, 1)
    assert "no such table: streams" in refuse_each(shell, [["sql", text]])[0]


def test_what_is_damaged_is_null(shell: Shell) -> None:
    whole = zlib.compress(msgspec.msgpack.encode([b"a" * 50, b"", b'{"b":1}']))
    assert [page_item(whole, slot) for slot in (0, 1, 2, 3, -1, None, "0")] == [
        "a" * 50,
        None,
        '{"b":1}',
        None,
        None,
        None,
        None,
    ]
    damaged = (
        whole[:-1],
        whole[:9] + b"\xff" + whole[10:],
        whole + b"x",
        b"x",
        b"\x78\x9c",
        zlib.compress(b"\xc1"),
        "text",
        None,
        7,
    )
    assert [page_item(data, 0) for data in damaged] == [None] * len(damaged)
    assert (unzip(b"\x93abc"), unzip(None), unzip("x"), unzip(zlib.compress(b"x"))) == (b"\x93abc", None, "x", b"x")
    assert [unzip(data) for data in damaged[:3]] == [None] * 3
    assert unzip(b"\x78" * 32 + zlib.compress(b"x"), 32) == b"\x78" * 32 + b"x"
    assert (unzip(b"\x78" * 32 + b"\x85x", 32), unzip(b"x", 32), unzip(b"\x78" * 40, 32)) == (
        b"\x78" * 32 + b"\x85x",
        b"x",
        None,
    )

    async def compacted(ledger: Ledger) -> None:
        await record(ledger, "d", turns(100))
        await ledger.compact("d")

    fill(shell, compacted)
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        [(page,)] = raw.execute("SELECT min(id) FROM pages")
        raw.execute("UPDATE pages SET packed = substr(packed, 1, 40) WHERE id = ?", (page,))
    bodies = "SELECT body FROM messages UNION ALL SELECT body FROM runs"
    [told] = asked(shell, f"SELECT count(*) AS n, count(body) AS readable FROM ({bodies})")
    [lost] = asked(shell, f"SELECT count(*) AS n FROM main.messages WHERE place / 64 = {page}")
    assert (told["n"], told["readable"]) == (200, 200 - lost["n"])
    assert lost["n"] > 10
