"""Damaged bodies, places and pages: they are named, harm no others, and a repair leaves nothing behind."""

from __future__ import annotations

import random
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from ledger import LedgerDamaged, open_ledger
from ledger.tables.bodies import MOST_BODIES, move_bodies
from ledger.upkeep.verify import verify
from stream.sqlite.driver import connect
from tests.faults.sizes import size
from tests.paged_talks import PLACE, SECRET, change, everything, look, packed, read_anew, talk, unpacked, unzip, wrong

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.anyio


CELLS: Final = {
    "pages": ("packed", "crc"),
    "messages": ("row_body", "crc", "place", "seq", "started"),
    "runs": ("row_body", "crc", "place"),
}


async def test_a_run_in_its_row_that_is_not_what_was_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 2)
    change(path, "UPDATE runs SET row_body = CAST(replace(row_body, 'submit', 'summit') AS BLOB) WHERE id = 'r1'")
    async with open_ledger(str(path)) as ledger:
        with pytest.raises(LedgerDamaged, match="run 'r1' of conversation 'c'"):
            await ledger.tables.run(PLACE, "r1")
        assert any("run 'r1'" in what for what in await wrong(path))


async def test_a_repair_leaves_nothing_of_what_it_takes_away_in_a_page(tmp_path: Path) -> None:
    """Neither of rows that it writes over, nor of those that it drops; a page that can't be read goes as a whole."""
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3, words=SECRET)
        assert not await ledger.tables.transact(partial(move_bodies, conversation=PLACE))  # the log stays
        before = await everything(ledger)
    change(path, "UPDATE messages SET crc = crc + 1 WHERE run = 'r1'")
    change(path, "DELETE FROM messages WHERE run = 'r2' AND id = (SELECT max(id) FROM messages WHERE run = 'r2')")
    async with open_ledger(str(path)) as ledger:
        assert [finding async for finding in ledger.reconcile(PLACE, repair=True)]
        assert await everything(ledger) == before
    places = look(path, "SELECT place FROM messages WHERE place IS NOT NULL")
    held = [body for data in packed(path) for body in msgspec.msgpack.decode(unzip(data))]
    of_messages = [body for body in held if body and b'"role"' in body]
    assert len(of_messages) <= len(places) + 1  # the row that was deleted by hand has left its body behind
    change(path, "UPDATE pages SET packed = x'78' WHERE id = (SELECT min(place) / 64 FROM messages)")
    async with open_ledger(str(path)) as ledger:
        assert [finding async for finding in ledger.reconcile(PLACE, repair=True)]
        assert await everything(ledger) == before
        await ledger.compact(PLACE)
        assert await everything(ledger) == before
    assert not await wrong(path)


async def test_a_repair_of_a_wrong_place_takes_nothing_of_others(tmp_path: Path) -> None:
    """Neither of another conversation nor of another row; and what is found of a run depends on no other row of it."""
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3, place="other")
        await ledger.compact("other")
        await talk(ledger, 3)
        assert not await ledger.tables.transact(partial(move_bodies, conversation=PLACE))  # the log stays
        before, beside = await everything(ledger), await everything(ledger, "other")
    theirs = "(SELECT min(place) FROM messages WHERE conversation = (SELECT id FROM conversations WHERE stream_id = 'other'))"
    own = "(SELECT min(place) FROM messages WHERE conversation = (SELECT id FROM conversations WHERE stream_id = 'c'))"
    last = "conversation = (SELECT id FROM conversations WHERE stream_id = 'c') AND run = 'r2'"
    for wrong_place in (theirs, own):
        change(path, f"UPDATE messages SET place = {wrong_place} WHERE {last}")
        async with open_ledger(str(path)) as ledger:
            assert [finding async for finding in ledger.reconcile(PLACE, repair=True)]
            assert await everything(ledger) == before
            assert await everything(ledger, "other") == beside
            assert not await ledger.tables.transact(partial(move_bodies, conversation=PLACE))


async def test_what_a_repair_leaves_behind_is_named_by_nothing_and_goes(tmp_path: Path) -> None:
    """A secret that is redacted later would be there for good: nobody would know where to look for it."""
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3, words=SECRET)
        assert not await ledger.tables.transact(partial(move_bodies, conversation=PLACE))
        message_id = (await ledger.transcript(PLACE))[1].id
    change(path, "UPDATE messages SET place = (SELECT max(place) + 1 FROM messages) WHERE id = ?", message_id)
    async with open_ledger(str(path)) as ledger:
        kinds = {finding.kind async for finding in verify(ledger, PLACE) if not finding.is_note}
        assert kinds == {"damaged", "left"}
        findings = [finding async for finding in ledger.reconcile(PLACE, repair=True)]
        assert [finding.is_mended for finding in findings if finding.kind == "left"] == [True]
        await ledger.redact(PLACE, message_id)
        await ledger.compact(PLACE)
    assert f"{SECRET} 0".encode() not in unpacked(path)
    assert f"{SECRET} 1".encode() in unpacked(path)
    assert not await wrong(path)


@pytest.mark.parametrize("log", ["whole", "compacted"])
async def test_a_run_that_is_listed_elsewhere_than_it_says_is_named(tmp_path: Path, log: str) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3)
        before = await everything(ledger)
        if log == "compacted":
            await ledger.compact(PLACE)
    with closing(connect(str(path))) as raw:
        raw.execute("DROP TRIGGER an_ended_run_stays_ended")
        raw.execute("UPDATE runs SET seq = seq + 1 WHERE id = 'r1'")
    async with open_ledger(str(path)) as ledger:
        assert [len(await ledger.tables.messages_of(PLACE, f"r{number}")) for number in range(3)] == [2, 2, 2]
        named = [finding.what async for finding in verify(ledger, PLACE) if not finding.is_note]
        assert any("run 'r1'" in what for what in named)
        if log == "whole":
            findings = [finding async for finding in ledger.reconcile(PLACE, repair=True)]
            assert any("run r1: it is listed at" in finding.what and finding.is_mended for finding in findings)
            assert await everything(ledger) == before


async def test_what_a_repair_writes_anew_moves_with_the_next_compaction(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3)
        assert not await ledger.tables.transact(partial(move_bodies, conversation=PLACE))
        before = await everything(ledger)
    change(path, "DELETE FROM messages WHERE run = 'r1'")
    change(path, "DELETE FROM runs WHERE id = 'r1'")
    async with open_ledger(str(path)) as ledger:
        assert [finding async for finding in ledger.reconcile(PLACE, repair=True)]
        assert await everything(ledger) == before
        await ledger.compact(PLACE)
    for table in ("messages", "runs"):
        assert look(path, f"SELECT count(*) FROM {table} WHERE place IS NULL") == [(0,)]
    assert not await wrong(path)


@pytest.mark.parametrize("column", ["packed", "crc", "conversation", "id"])
async def test_damage_of_a_page_is_named_with_all_it_holds_and_the_rest_is_read(tmp_path: Path, column: str) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, MOST_BODIES)
        await talk(ledger, 1, place="other")
        await ledger.compact(PLACE)
        whole = await ledger.transcript(PLACE)
    [(page,)] = look(path, "SELECT min(place) / 64 FROM messages")
    held = {row[0] for row in look(path, "SELECT id FROM messages WHERE place / 64 = ?", page)}
    assert len(held) == MOST_BODIES
    values = {
        "packed": "CAST(substr(packed, 1, 40) || x'00' || substr(packed, 42) AS BLOB)",
        "crc": "crc + 1",
        "conversation": "2",
    }
    change(path, f"UPDATE pages SET {column} = {values.get(column, 'id + 1000')} WHERE id = ?", page)
    async with open_ledger(str(path)) as ledger:
        with pytest.raises(LedgerDamaged):
            await ledger.transcript(PLACE)
        rest = await ledger.transcript(PLACE, limit=MOST_BODIES)
        assert rest == whole[-MOST_BODIES:]
        named = [finding.what async for finding in verify(ledger, PLACE) if finding.kind == "damaged" and not finding.is_note]
        assert {each for each in held if any(repr(each) in what for what in named)} == held
        assert not any(repr(message.id) in what for message in rest for what in named)
        await ledger.compact(PLACE)  # stops at nothing, and makes nothing worse
        assert await ledger.transcript(PLACE, limit=MOST_BODIES) == whole[-MOST_BODIES:]


async def test_a_damaged_page_of_runs_is_named_with_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 5)
        await ledger.compact(PLACE)
        before = await ledger.transcript(PLACE)
    change(path, "UPDATE pages SET packed = x'789c' WHERE id = (SELECT min(place) / 64 FROM runs)")
    async with open_ledger(str(path)) as ledger:
        assert await ledger.transcript(PLACE) == before
        with pytest.raises(LedgerDamaged, match="run 'r0' of conversation 'c' is damaged"):
            [run async for run in ledger.runs(PLACE)]
        named = [finding.what async for finding in verify(ledger, PLACE) if not finding.is_note]
        assert all(any(f"run 'r{number}'" in what for what in named) for number in range(5))


@pytest.mark.heavy
async def test_a_flipped_bit_in_pages_and_rows_gives_the_right_data_or_a_named_error(tmp_path: Path) -> None:
    path, copy = tmp_path / "c.db", tmp_path / "flipped.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 30)
        await ledger.compact(PLACE)
        await talk(ledger, 5, first=30)
        before = await everything(ledger)
    with closing(connect(str(path))) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    chance = random.Random(20_26)
    cells = [(table, column, row[0]) for table, columns in CELLS.items() for column in columns
             for row in look(path, f"SELECT rowid FROM {table}")]  # fmt: skip
    wrongly = []
    for table, column, row in chance.sample(cells, size(smoke=20, full=len(cells))):
        copy.write_bytes(path.read_bytes())
        [(value,)] = look(copy, f"SELECT {column} FROM {table} WHERE rowid = ?", row)
        if not value:
            continue
        change(copy, f"UPDATE {table} SET {column} = ? WHERE rowid = ?", flipped(value, chance), row)
        try:
            found = await read_anew(copy)
        except LedgerDamaged:
            assert any("damaged" in what for what in await wrong(copy)), (table, column, row)
        else:
            if found != before and not await wrong(copy):
                wrongly.append((table, column, row))
    assert not wrongly


def flipped(value: bytes | int, chance: random.Random) -> bytes | int:
    if isinstance(value, int):
        return value ^ 1 << chance.randrange(16)
    at = chance.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
