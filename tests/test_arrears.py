"""What a listing takes in first: all that has moved since the last one, whoever moved it, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ledger import Ledger, open_ledger
from ledger.catchup import CatchUp
from ledger.upkeep.backup import known_scripts
from stream.sqlite import Database, SqliteStore
from stream.sqlite.backup import back_up, restore
from stream.sqlite.scripts import read_scripts, split
from stream.testing import cancel_after
from tests.talk import finished, said, started

if TYPE_CHECKING:
    from pathlib import Path

    from stream import NewEvent, Opening

pytestmark = pytest.mark.anyio
EVERYWHERE = pytest.mark.parametrize("elsewhere", [False, True], ids=["one_file", "log_elsewhere"])


def open_one(folder: Path, *, elsewhere: bool) -> Opening[Ledger]:
    return open_ledger(str(folder / "chat.db"), log=str(folder / "log.db") if elsewhere else None)


def turn(run_id: str, parent: str | None = None) -> list[NewEvent]:
    return [
        started(run_id, parent),
        *said(run_id, f"{run_id}.1", "hello", role="user"),
        finished(run_id),
    ]


async def say(ledger: Ledger, conversation: str) -> None:
    """The first turn of a conversation, in its log and not taken in."""
    await ledger.store.append(conversation, turn(f"{conversation}-run"))


async def listed(ledger: Ledger) -> dict[str, int]:
    return {info.conversation: info.messages async for info in ledger.conversations()}


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each conversation was caught up with."""
    counts: Counter[str] = Counter()
    run = CatchUp.run

    async def counted(self: CatchUp, conversation: str) -> object:
        counts[conversation] += 1
        return await run(self, conversation)

    monkeypatch.setattr(CatchUp, "run", counted)
    return counts


@EVERYWHERE
async def test_a_listing_looks_at_what_has_moved_since_the_last_one(
    tmp_path: Path, caught: Counter[str], *, elsewhere: bool
) -> None:
    async with open_one(tmp_path, elsewhere=elsewhere) as one, open_one(tmp_path, elsewhere=elsewhere) as two:
        for n in range(30):
            await say(one, f"c{n}")
        assert len(await listed(two)) == 30
        caught.clear()
        assert len(await listed(two)) == 30
        assert not caught
        await one.store.append("c7", turn("late", "c7-run.1"))
        await one.store.append("new", turn("first"))
        assert await listed(two) == {f"c{n}": 1 for n in range(30)} | {"c7": 2, "new": 1}
        assert await two.find_run("first") == "new"
        assert set(caught) == {"c7", "new"}
        caught.clear()
        assert (await listed(one))["c7"] == 2  # which has taken nothing in itself
        assert not caught


@EVERYWHERE
@pytest.mark.heavy
async def test_the_trips_of_a_listing_do_not_grow(tmp_path: Path, *, elsewhere: bool) -> None:
    async with open_one(tmp_path, elsewhere=elsewhere) as ledger:
        trips = []
        for count in (10, 300):
            for n in range(count):
                await say(ledger, f"{count}-{n}")
            await listed(ledger)
            before = trips_of(ledger)
            assert len([info async for info in ledger.conversations(limit=5)]) == 5
            assert await ledger.find_run("10-3-run") == "10-3"
            assert not [run async for run in ledger.runs(status="open")]
            trips.append(trips_of(ledger) - before)
        assert trips[0] == trips[1] <= 6


def trips_of(ledger: Ledger) -> int:
    assert isinstance(ledger.store, SqliteStore)
    assert isinstance(ledger.tables.database, Database)
    return sum(database.trips for database in {ledger.store.database, ledger.tables.database})


def flip(log: Path, conversation: str, by: int) -> None:
    """What is stored of its newest append is another, or the old one again."""
    with closing(sqlite3.connect(log)) as raw, raw:
        raw.execute("DROP TRIGGER events_never_change")
        raw.execute(
            """UPDATE appends SET crc = crc + ?2 WHERE last = (SELECT head FROM streams WHERE name = ?1)
            AND stream = (SELECT id FROM streams WHERE name = ?1)""",
            (conversation, by),
        )
        for script in read_scripts("stream.sqlite"):
            [made] = [text for text in split(script) if "TRIGGER events_never_change BEFORE UPDATE ON appends" in text] or [""]
            raw.execute(made)


@EVERYWHERE
async def test_what_could_not_be_taken_in_stays_due(tmp_path: Path, caught: Counter[str], *, elsewhere: bool) -> None:
    """A log that is mended is taken in by the next listing, though nobody has written since."""
    log = tmp_path / ("log.db" if elsewhere else "chat.db")
    async with open_one(tmp_path, elsewhere=elsewhere) as ledger:
        await say(ledger, "good")
        await say(ledger, "bad")
        await listed(ledger)
        await ledger.store.append("bad", turn("late", "bad-run.1"))
        await ledger.store.append("good", turn("late-too", "good-run.1"))
        flip(log, "bad", 1)
        for _ in range(2):
            assert await listed(ledger) == {"good": 2, "bad": 1}
        assert caught["bad"] >= 2
        flip(log, "bad", -1)
        assert await listed(ledger) == {"good": 2, "bad": 2}
        caught.clear()
        await listed(ledger)
        assert not caught


@EVERYWHERE
async def test_who_is_cancelled_leaves_what_was_due_to_the_next(tmp_path: Path, *, elsewhere: bool) -> None:
    async with open_one(tmp_path, elsewhere=elsewhere) as ledger:
        for steps in range(0, 60, 3):
            await say(ledger, f"c{steps}")
            await say(ledger, f"d{steps}")
            await cancel_after(steps, listed(ledger))
        said_by = {f"{name}{steps}": 1 for steps in range(0, 60, 3) for name in "cd"}
        assert await listed(ledger) == said_by


async def test_who_lists_beside_another_waits_for_what_that_one_found_due(tmp_path: Path) -> None:
    async with open_ledger(str(tmp_path / "chat.db")) as ledger:
        for n in range(20):
            await say(ledger, f"c{n}")
        assert await asyncio.gather(*(listed(ledger) for _ in range(4))) == [{f"c{n}": 1 for n in range(20)}] * 4


async def test_what_was_restored_erased_and_begun_anew_is_listed(tmp_path: Path) -> None:
    path, copy, again = (str(tmp_path / name) for name in ("chat.db", "copy.db", "again.db"))
    async with open_ledger(path) as ledger, open_ledger(path) as other:
        await say(ledger, "kept")
        await say(ledger, "gone")
        assert await listed(ledger) == await listed(other) == {"kept": 1, "gone": 1}
        await back_up(path, copy)
        await other.erase("gone")
        assert await listed(ledger) == {"kept": 1, "gone": 0}
        await other.store.append("gone", turn("new life"))
        assert await listed(ledger) == await listed(other) == {"kept": 1, "gone": 1}
    await restore(copy, again, known_scripts())
    async with open_ledger(again) as ledger:
        assert await listed(ledger) == {"kept": 1, "gone": 1}
        assert await ledger.find_run("gone-run") == "gone"
