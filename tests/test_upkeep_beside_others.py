"""Whoever verifies or repairs a file is not alone with it: others write, compact and erase between any two of its looks."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import Ledger, open_ledger
from ledger.upkeep.backup import known_scripts
from ledger.upkeep.verify import verify
from stream.sqlite import SqliteStore
from stream.sqlite.integrity import check_file
from tests.meanwhile import Meanwhile
from tests.needles import PROJECTORS, everything, fill, open_at
from tests.sqlite_files import database_of
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def write(ledger: Ledger) -> None:
    call = new("block.started", message_id="mine.1", block=0, kind="tool_call", name="f", tool_call_id="call")
    answer = [
        new("message.started", run_id="mine", message_id="mine.1", role="assistant"),
        call,
        new("block.sealed", message_id="mine.1", block=0, parse="ok"),
        new("message.finished", message_id="mine.1", status="complete"),
    ]
    await ledger.record("c", [started("mine", "turn0.1"), *answer, finished("mine")])
    await ledger.annotate("c", "turn0.1", {"note": 1})
    await ledger.describe("c", labels=["another"])
    await ledger.record("new", [started("n"), *said("n", "n.1", "new"), finished("n")])
    await ledger.catch_up("new")


async def compact(ledger: Ledger) -> None:
    await write(ledger)
    await ledger.recover("c", "open", "commit")
    await ledger.compact("c")


async def erase(ledger: Ledger) -> None:
    await ledger.erase("c")


PLACES: Final = ("one file", "two files")
OTHERS: Final[dict[str, Callable[[Ledger], Awaitable[None]]]] = {"writes": write, "compacts": compact, "erases": erase}
each_time: Final = pytest.mark.parametrize(
    ("other", "place", "stride"),
    [
        pytest.param(other, place, stride, marks=[pytest.mark.heavy] if stride == 1 else [])
        for other in OTHERS
        for place in PLACES
        for stride in (11, 1)
    ],
)


@pytest.fixture
async def template(anyio_backend: object, tmp_path: Path, place: str) -> Path:
    del anyio_backend
    folder = tmp_path / "template"
    folder.mkdir()
    async with open_at(folder, place) as ledger:
        await fill(ledger, "c", deltas=1)
    return folder


async def each_moment(template: Path, place: str, stride: int, other: str) -> AsyncIterator[tuple[Ledger, Ledger, Meanwhile]]:
    """A ledger of its own for every look of what is done with it, before which another one does something."""
    for at in itertools.count(0, stride):
        folder = template.with_name(str(at))
        shutil.copytree(template, folder)
        async with open_at(folder, place) as beside, open_at(folder, place) as ledger:
            assert isinstance(ledger.store, SqliteStore)
            databases = {database_of(ledger), ledger.store.database}
            meanwhile = Meanwhile(databases, at, partial(OTHERS[other], beside))
            yield ledger, beside, meanwhile
            if not meanwhile.is_over:
                print(f"{other}: {at} looks at most")
                assert at > 20
                return


@pytest.mark.heavy
@each_time
async def test_beside_others_nothing_is_found_that_is_not_there(template: Path, other: str, place: str, stride: int) -> None:
    async for ledger, _, _ in each_moment(template, place, stride, other):
        found = [finding async for finding in verify(ledger) if not finding.is_note]
        found += [finding async for finding in ledger.reconcile() if not finding.is_note]
        assert found == []


@pytest.mark.heavy
@each_time
async def test_what_is_mended_beside_others_is_what_the_log_says(template: Path, other: str, place: str, stride: int) -> None:
    async with open_at(template, place) as ledger:
        await ledger.tables.database.write(
            lambda sql: sql("UPDATE messages SET row_body = CAST('{}' AS BLOB) WHERE run = 'turn1'")
        )
        await ledger.tables.database.write(lambda sql: sql("DELETE FROM runs WHERE id IN ('r', 'turn0')"))
    async for ledger, beside, meanwhile in each_moment(template, place, stride, other):
        mended = [finding async for finding in ledger.reconcile(repair=True) if not finding.is_note]
        if not meanwhile.is_over:  # nobody came
            assert mended
            assert all(finding.is_mended for finding in mended)
        _ = [finding async for finding in ledger.reconcile(repair=True)]  # what was overtaken
        left = {finding.kind async for finding in verify(beside) if not finding.is_note}
        assert left <= ({"damaged"} if other == "compacts" else set())  # what has left the log can't be projected again
        if other == "erases" and meanwhile.is_over:
            assert await beside.transcript("c", branch="all") == []
        elif other == "writes":
            async with open_ledger("memory:", projectors=PROJECTORS) as again:
                await again.store.adopt("c", await beside.store.read("c"))
                told, expected = await everything(beside, "c"), await everything(again, "c")
                assert [*told[:2], *told[3:]] == [
                    *expected[:2],
                    *expected[3:],
                ]  # a tree that was rebuilt has its marks elsewhere


class Meeting(sqlite3.Connection):
    """Another program brings a table to its next form between any two statements of this one."""

    path = ""

    def execute(self, text: str, *words: Any) -> sqlite3.Cursor:
        cursor = super().execute(text, *words)
        if "components" in text:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
                [(version,)] = other.execute("SELECT version FROM components WHERE name = 'later'").fetchall()
                other.execute("BEGIN")
                other.execute(f"CREATE TABLE later_{version + 1} (id INTEGER)")
                other.execute("UPDATE components SET version = version + 1 WHERE name = 'later'")
                other.execute("COMMIT")
        return cursor


async def test_a_migration_of_another_program_is_no_change_of_the_schema(tmp_path: Path) -> None:
    Meeting.path = str(tmp_path / "a.db")
    async with open_ledger(Meeting.path):
        pass
    with closing(sqlite3.connect(Meeting.path, isolation_level=None)) as other:
        other.execute("INSERT INTO components (name, version) VALUES ('later', 0)")
    known = known_scripts() | {"later": tuple(f"CREATE TABLE later_{version} (id INTEGER);" for version in range(1, 9))}
    with closing(sqlite3.connect(Meeting.path, isolation_level=None, factory=Meeting)) as connection:
        assert list(check_file(connection, known)) == []
        assert connection.execute("SELECT version FROM components WHERE name = 'later'").fetchone()[0] > 1
