"""Bodies in pages: compaction moves them, whoever reads finds them, what is changed or damaged is there, gone or named."""

from __future__ import annotations

import asyncio
import random
import zlib
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from ledger import LedgerDamaged, open_ledger
from ledger.tables import kept_paths
from ledger.tables.pages import MOST_BODIES, MOST_BYTES, move_bodies
from ledger.upkeep.verify import verify
from stream.sqlite.driver import connect
from tests.faults.sizes import size
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger, RunInfo
    from projector import Message

pytestmark = pytest.mark.anyio

PLACE: Final = "c"
SECRET: Final = "what nobody is to read again"


async def talk(ledger: Ledger, turns: int, *, first: int = 0, place: str = PLACE, words: str = "answer") -> None:
    for number in range(first, first + turns):
        async with ledger.run(place, run_id=f"r{number}") as run:
            await run.message("user", f"question {number}")
            await run.step()
            await run.text(f"{words} {number}")


def look(path: Path, text: str, *parameters: object) -> list[tuple[Any, ...]]:
    with closing(connect(str(path))) as raw:
        return raw.execute(text, parameters).fetchall()


def change(path: Path, text: str, *parameters: object) -> None:
    with closing(connect(str(path))) as raw:
        raw.execute(text, parameters)


def unpacked(path: Path) -> bytes:
    """All pages of a file as they are when they are unpacked."""
    return b"".join(zlib.decompress(data) for (data,) in look(path, "SELECT data FROM pages"))


async def everything(
    ledger: Ledger, place: str = PLACE
) -> tuple[list[Message], list[RunInfo], list[tuple[Message, bool]], Any]:
    """All that is read of a conversation, through each way to a body."""
    path = await ledger.transcript(place)
    runs = [run async for run in ledger.runs(place)]
    of_runs = [one for run in runs for one in await ledger.tables.messages_of(place, run.run_id)]
    one_by_one = [await ledger.tables.message(place, message.id) for message in path]
    assert one_by_one == path
    assert [await ledger.tables.run(place, run.run_id) for run in runs] == runs
    assert await ledger.transcript(place, branch="all") == [message async for message in ledger.tables.all(place)]
    return path, runs, of_runs, (await ledger.context(place)).view.source


async def read_anew(path: Path) -> Any:
    async with open_ledger(str(path)) as ledger:
        return await everything(ledger)


async def wrong(path: Path) -> list[str]:
    async with open_ledger(str(path)) as ledger:
        return [finding.what async for finding in verify(ledger) if not finding.is_note]


async def test_compaction_moves_bodies_and_every_way_to_them_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 60)
        before = await everything(ledger)
        await ledger.compact(PLACE)
        assert await everything(ledger) == before
    assert await read_anew(path) == before
    assert look(path, "SELECT count(*) FROM messages WHERE place IS NULL OR row_body <> x''") == [(0,)]
    assert look(path, "SELECT count(*) FROM runs WHERE place IS NULL OR row_body <> x''") == [(0,)]
    assert look(path, "SELECT count(*) FROM pages") == [(-(-120 // MOST_BODIES) + -(-60 // MOST_BODIES),)]
    assert not await wrong(path)


async def test_a_page_is_filled_by_the_next_compactions_before_another_is_begun(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        for number in range(MOST_BODIES):
            await talk(ledger, 1, first=number)
            await ledger.compact(PLACE)
        assert look(path, "SELECT count(*) FROM pages") == [(3,)]  # two of messages, one of runs
        before = await everything(ledger)
    assert await read_anew(path) == before
    assert not await wrong(path)


async def test_bodies_move_some_at_a_time_and_a_large_one_has_a_page_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 20)
        await talk(ledger, 1, first=20, words="large " * 2 * MOST_BYTES)
        await talk(ledger, 200, first=21)
        before = await everything(ledger)
        moved = [0]
        while await ledger.tables.transact(partial(move_bodies, conversation=PLACE)):
            moved += [row[0] for row in look(path, "SELECT count(*) FROM messages WHERE place IS NOT NULL")]
            if len(moved) == 3:  # half of it is as good
                assert await everything(ledger) == before
            assert moved[-1] - moved[-2] <= 128
        assert len(moved) > 4
        [(place,)] = look(path, "SELECT place FROM messages WHERE id = ?", before[0][41].id)
        assert look(path, "SELECT count(*) FROM messages WHERE place / 64 = ?", place // 64) == [(1,)]
    assert await read_anew(path) == before


async def test_what_has_not_ended_stays_in_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 2)
        run = await ledger.begin_run(PLACE, run_id="open")
        await run.message("user", "not done")
        await ledger.record(PLACE, [started("beside"), *said("beside", "beside.1", "done"), finished("beside")])
        await ledger.compact(PLACE)
        assert look(path, "SELECT id FROM runs WHERE place IS NULL ORDER BY id") == [("beside",), ("open",)]
        await run.finish()
        await ledger.compact(PLACE)
        assert look(path, "SELECT count(*) FROM runs WHERE place IS NULL") == [(0,)]
        before = await everything(ledger)
    assert await read_anew(path) == before


async def test_a_change_takes_a_body_out_of_its_page_in_one_transaction(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3, words=SECRET)
        await ledger.compact(PLACE)
        said_there = await ledger.transcript(PLACE)
        assert SECRET.encode() in unpacked(path)
        for message in said_there:
            if message.role == "assistant":
                await ledger.redact(PLACE, message.id)
                assert message.text not in unpacked(path).decode(errors="replace")
        assert SECRET.encode() not in unpacked(path)
        await ledger.annotate(PLACE, said_there[0].id, {"liked": True})
        before = await everything(ledger)
        assert look(path, "SELECT count(*) FROM messages WHERE place IS NULL") == [(4,)]
    assert await read_anew(path) == before
    async with open_ledger(str(path)) as ledger:
        await ledger.compact(PLACE)  # and into one again
        assert await everything(ledger) == before
    assert look(path, "SELECT count(*) FROM messages WHERE place IS NULL") == [(0,)]
    assert SECRET.encode() not in unpacked(path)
    assert not await wrong(path)


async def test_what_is_said_of_an_ended_run_is_changed_in_a_page_too(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3)
        await ledger.compact(PLACE)
        await ledger.record(PLACE, [new("run.usage", run_id="r1", request_id="q", scope="request", input_tokens=7)])
        [run] = [run async for run in ledger.runs(PLACE) if run.usage]
        assert run.run_id == "r1"
        before = await everything(ledger)
    assert await read_anew(path) == before
    assert look(path, "SELECT id FROM runs WHERE place IS NULL") == [("r1",)]
    assert [unpacked(path).count(b'"run_id":"r%d","status"' % number) for number in range(3)] == [1, 0, 1]


async def test_a_run_that_is_listed_as_open_stays_in_its_row_wherever_the_log_is_read_from(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 2)
        await (await ledger.begin_run(PLACE, run_id="open")).close()
        await ledger.catch_up(PLACE)
        change(path, "UPDATE conversations SET replay_from = projected_seq")
        assert not await ledger.tables.transact(partial(move_bodies, conversation=PLACE))
    assert look(path, "SELECT id FROM runs WHERE place IS NULL") == [("open",)]


async def test_a_run_in_its_row_that_is_not_what_was_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 2)
    change(path, "UPDATE runs SET row_body = CAST(replace(row_body, 'submit', 'summit') AS BLOB) WHERE id = 'r1'")
    async with open_ledger(str(path)) as ledger:
        with pytest.raises(LedgerDamaged, match="run 'r1' of conversation 'c'"):
            await ledger.tables.run(PLACE, "r1")
        assert any("run 'r1'" in what for what in await wrong(path))


async def test_what_is_kept_of_a_path_stays_good_while_bodies_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as reading, open_ledger(str(path)) as writing:
        await talk(writing, 4)
        found = await reading.transcript(PLACE)
        await writing.compact(PLACE)
        with monkeypatch.context() as patched:
            patched.setattr(kept_paths, "read", lambda *_: pytest.fail("it is kept"))
            assert await reading.transcript(PLACE) == found
        await writing.redact(PLACE, found[-1].id)
        assert (await reading.transcript(PLACE))[-1] != found[-1]
        [(amended,)] = look(path, "SELECT amended FROM conversations")
        change(path, "UPDATE messages SET place = place + 1 WHERE id = ? AND place IS NOT NULL", found[0].id)
        change(path, "UPDATE messages SET crc = crc + 1 WHERE id = ?", found[0].id)
        assert look(path, "SELECT amended > ? FROM conversations", amended) == [(1,)]


async def test_pages_go_with_their_conversation_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3, words=SECRET)
        await talk(ledger, 3, place="other")
        await ledger.compact(PLACE)
        await ledger.compact("other")
        before = await everything(ledger, "other")
        erased = await ledger.erase(PLACE)
        assert erased.is_proven
        assert look(path, "SELECT DISTINCT c.stream_id FROM pages JOIN conversations AS c ON c.id = conversation") == [
            ("other",)
        ]
        assert SECRET.encode() not in unpacked(path)
        ledger.forget("other")
        assert await everything(ledger, "other") == before


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
    held = [body for (data,) in look(path, "SELECT data FROM pages") for body in msgspec.msgpack.decode(zlib.decompress(data))]
    of_messages = [body for body in held if body and b'"role"' in body]
    assert len(of_messages) <= len(places) + 1  # the row that was deleted by hand has left its body behind
    change(path, "UPDATE pages SET data = x'78' WHERE id = (SELECT min(place) / 64 FROM messages)")
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


async def test_two_processes_that_move_and_change_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as one, open_ledger(str(path)) as two:
        await talk(one, 70)
        ids = [message.id for message in await one.transcript(PLACE)]
        chance = random.Random(1)
        for _ in range(6):
            marked = chance.sample(ids, 8)
            await asyncio.gather(
                one.compact(PLACE), two.compact(PLACE), *(two.annotate(PLACE, each, {"n": chance.random()}) for each in marked)
            )
        before = await everything(one)
        await two.compact(PLACE)
        assert await everything(two) == before
    assert await read_anew(path) == before
    assert not await wrong(path)


@pytest.mark.parametrize("column", ["data", "crc", "conversation", "id"])
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
    values = {"data": "CAST(substr(data, 1, 40) || x'00' || substr(data, 42) AS BLOB)", "crc": "crc + 1", "conversation": "2"}
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
    change(path, "UPDATE pages SET data = x'789c' WHERE id = (SELECT min(place) / 64 FROM runs)")
    async with open_ledger(str(path)) as ledger:
        assert await ledger.transcript(PLACE) == before
        with pytest.raises(LedgerDamaged, match="run 'r0' of conversation 'c' is damaged"):
            [run async for run in ledger.runs(PLACE)]
        named = [finding.what async for finding in verify(ledger, PLACE) if not finding.is_note]
        assert all(any(f"run 'r{number}'" in what for what in named) for number in range(5))


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


CELLS: Final = {"pages": ("data", "crc"), "messages": ("row_body", "crc", "place"), "runs": ("row_body", "crc", "place")}


def flipped(value: bytes | int, chance: random.Random) -> bytes | int:
    if isinstance(value, int):
        return value ^ 1 << chance.randrange(16)
    at = chance.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
