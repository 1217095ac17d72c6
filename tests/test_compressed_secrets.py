"""What is erased or redacted is gone from what is compressed, too, and a proof that would miss it there is none (law 15)."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ledger import erasure, open_ledger
from ledger.tables import messages
from stream import NewEvent, open_store
from stream.sqlite import SqliteStore, vacuum
from tests.needles import PLACES, found, needle, say, texts, wrong
from tests.raw_bytes import readable, traces
from tests.sqlite_files import database_of
from tests.test_erase import empty_wal_only

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from stream import Opening
    from stream.sqlite import Database

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
SECRET = needle("c", "secret")


def opened(folder: Path, place: str = "one file") -> Opening[Ledger]:
    """Without projectors, whose snapshots would hold as much as a log does."""
    log = f"{folder}/log.db" if place == "two files" else None
    return open_ledger(f"{folder}/ledger.db", log=log, durability="normal")


def plain(folder: Path) -> bytes:
    """The bytes of all files as they lie."""
    return subprocess.run(["cat", "--", *folder.iterdir()], capture_output=True, check=True).stdout


async def vacuumed(ledger: Ledger) -> None:
    assert isinstance(ledger.store, SqliteStore)
    await ledger.store.settle()
    for database in {database_of(ledger), ledger.store.database}:
        assert await vacuum.clean_file(database) is None


async def compacted(ledger: Ledger, *, length: int = 0) -> list[str]:
    """Many messages in pages, all of the log gone, one with a secret: the ids."""
    chance = random.Random(length)
    more = ["".join(chr(chance.randrange(40, 90)) for _ in range(length)) for _ in range(60)]
    ids = [await say(ledger, f"{number} says {SECRET if number == 20 else 'nothing'} {more[number]}") for number in range(60)]
    await ledger.compact("c")
    await vacuumed(ledger)
    return ids


def break_statement(database: Database, monkeypatch: pytest.MonkeyPatch, text: str, instead: str) -> None:
    execute = database._execute

    def broken(connection: Any, asked: str, parameters: Any = ()) -> list[Any]:
        return execute(connection, instead if asked == text else asked, parameters)

    monkeypatch.setattr(database, "_execute", broken)


@pytest.mark.parametrize("place", PLACES)
async def test_what_lies_in_pages_is_erased(tmp_path: Path, place: str) -> None:
    async with opened(tmp_path, place) as ledger:
        await say(ledger, "another", "kept")
        await ledger.compact("kept")
        await compacted(ledger)
        assert SECRET.encode() not in plain(tmp_path)  # it is compressed
        assert found(tmp_path, "c") == {"secret"}
        [trace] = traces(SECRET.encode(), *tmp_path.iterdir())
        assert (await ledger.erase("c")).is_proven
        assert found(tmp_path, "c") == set()
        assert trace not in plain(tmp_path)
        assert await texts(ledger, "kept") == ["another"]
        assert await wrong(ledger) == []


async def test_canary_one_page_that_is_left_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as ledger:
        await compacted(ledger)
        all_pages = "DELETE FROM pages WHERE conversation = ?1"
        but_one = f"{all_pages} AND id <> (SELECT min(id) FROM pages)"
        break_statement(database_of(ledger), monkeypatch, all_pages, but_one)
        assert (await ledger.erase("c")).is_proven  # as it believes
        assert found(tmp_path, "c") == {"secret"}
        assert SECRET.encode() not in plain(tmp_path)


async def test_canary_a_page_that_is_not_overwritten_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "clean_file", empty_wal_only)
    async with opened(tmp_path) as ledger:
        await compacted(ledger, length=2_000)
        [trace] = traces(SECRET.encode(), *tmp_path.iterdir())
        await ledger.tables.database.write(lambda sql: sql("PRAGMA secure_delete = OFF"))
        assert (await ledger.erase("c")).is_proven
        assert trace in plain(tmp_path)


@pytest.mark.parametrize("is_moved", [False, True], ids=["in its row", "in a page"])
@pytest.mark.parametrize("place", PLACES)
async def test_what_is_redacted_is_gone_once_the_log_is_compacted_and_the_file_written_anew(
    tmp_path: Path,
    place: str,
    is_moved: bool,  # noqa: FBT001 - a case
) -> None:
    async with opened(tmp_path, place) as ledger:
        if is_moved:
            ids = await compacted(ledger)
        else:
            ids = [await say(ledger, f"{number} says {SECRET if number == 20 else 'nothing'}") for number in range(60)]
        assert found(tmp_path, "c") == {"secret"}
        held = traces(SECRET.encode(), *tmp_path.iterdir())
        assert len(held) >= is_moved
        await ledger.redact("c", ids[20])
        await ledger.compact("c")
        await vacuumed(ledger)
        assert found(tmp_path, "c") == set()
        assert not [trace for trace in held if trace in plain(tmp_path)]
        said = await texts(ledger)
        assert (said[20], len(said), [text.split()[0] for text in said if text]) == (
            "",
            60,
            [str(n) for n in range(60) if n != 20],
        )
        assert await wrong(ledger) == []


async def test_canary_a_redaction_that_leaves_its_page_as_it_is_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(messages, "take_out", nothing)
    async with opened(tmp_path) as ledger:
        ids = await compacted(ledger)
        await ledger.redact("c", ids[20])
        await ledger.compact("c")
        await vacuumed(ledger)
        assert "" in await texts(ledger)
        assert found(tmp_path, "c") == {"secret"}


async def test_what_lies_in_chunks_is_found_until_it_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        assert isinstance(store, SqliteStore)
        for number in range(600):
            await store.append("s", [NewEvent("t", f"{number} {SECRET if number == 20 else 'nothing'}".encode())])
        await store.settle()
        await vacuum.vacuum(store)
        held = SECRET.encode()
        assert held in readable(path)
        await store.database.write(lambda sql: sql("PRAGMA secure_delete = OFF"))
        await store.delete("s")
        await store.settle()
        assert held in readable(path)
        await vacuum.vacuum(store)
        assert held not in readable(path)
