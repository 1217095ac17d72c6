"""Where messages are listed: a run's are found by where it started, and what is listed elsewhere than it says is named."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from ledger import open_ledger
from ledger.tables.bodies import move_bodies
from ledger.upkeep.verify import verify
from tests.paged_talks import PLACE, change, everything, talk, wrong
from tests.sqlite_files import database_of

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("log", ["whole", "compacted"])
@pytest.mark.parametrize("column", ["seq", "started", "seq = seq + 7, started"])
async def test_a_message_that_is_listed_elsewhere_than_it_says_is_named_and_put_back(
    tmp_path: Path, column: str, log: str
) -> None:
    """Whatever its log still has. What a run said is looked for where it started: a repair must not miss such a row."""
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3)
        async with ledger.fork(PLACE, (await ledger.transcript(PLACE))[1].id) as run:
            await run.text("another answer")
        before = await everything(ledger)
        if log == "compacted":
            await ledger.compact(PLACE)
    change(path, f"UPDATE messages SET {column} = {column[-7:].strip()} + 64 WHERE id IN ('r0.2', 'r1.1')")
    async with open_ledger(str(path)) as ledger:
        named = [finding.what async for finding in verify(ledger, PLACE) if finding.kind == "damaged"]
        assert [any(f"'{message_id}'" in what for what in named) for message_id in ("r0.2", "r1.1")] == [True, True]
        assert len(named) == 2
        findings = [finding async for finding in ledger.reconcile(PLACE, repair=True) if "is listed at" in finding.what]
        assert [finding.is_mended for finding in findings] == [True, True]
        assert not [finding async for finding in ledger.reconcile(PLACE)]
        assert await everything(ledger) == before
    assert not await wrong(path)


async def test_a_message_that_can_not_be_read_is_put_where_its_run_started_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3)
        before = await everything(ledger)
        assert not await ledger.tables.transact(partial(move_bodies, conversation=PLACE))  # the log stays
    change(path, "UPDATE messages SET started = started + 1, crc = crc + 1 WHERE id = 'r1.2'")
    async with open_ledger(str(path)) as ledger:
        assert all([finding.is_mended async for finding in ledger.reconcile(PLACE, repair=True)])
        assert await everything(ledger) == before
    assert not await wrong(path)


@pytest.mark.parametrize("change_of_run", ["DELETE FROM runs", "UPDATE runs SET seq = seq + 1", "UPDATE runs SET seq = 1"])
async def test_what_a_run_said_is_found_though_it_is_not_listed_or_elsewhere(tmp_path: Path, change_of_run: str) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3)
        before = [await ledger.tables.messages_of(PLACE, f"r{number}") for number in range(3)]
        assert [len(found) for found in before] == [2, 2, 2]
    change(path, "DROP TRIGGER an_ended_run_stays_ended")
    change(path, f"{change_of_run} WHERE id = 'r1'")
    async with open_ledger(str(path)) as ledger:
        assert [await ledger.tables.messages_of(PLACE, f"r{number}") for number in range(3)] == before


@pytest.mark.heavy
async def test_a_run_is_found_in_as_many_steps_however_long_the_talk_and_whatever_its_id(tmp_path: Path) -> None:
    """With what it said. Imported ids may be alike to the last letters, and a run may have said nothing."""
    steps = []
    for turns in (10, 400):
        async with open_ledger(str(tmp_path / f"{turns}.db")) as ledger:
            for number in range(turns):
                async with ledger.run(PLACE, run_id=f"session-of-today-{number:06}-assistant") as run:
                    if number != 3:
                        await run.text(f"answer {number}")
            for number, said in ((3, 0), (4, 1)):
                found, count = await steps_of(ledger, f"session-of-today-{number:06}-assistant")
                assert found == said
                steps.append(count)
    assert max(steps) < 2 * min(steps)


async def steps_of(ledger: Ledger, run_id: str) -> tuple[int, int]:
    """How many messages of a run are found, and in how many steps of SQLite's machine they are, and the run is."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    for reader in database_of(ledger)._readers:
        await reader.run(lambda connection: connection.set_progress_handler(step, 1))
    found = await ledger.tables.messages_of(PLACE, run_id)
    assert await ledger.tables.run(PLACE, run_id) is not None
    assert count
    return len(found), count
