"""Bodies in pages: compaction moves them, and whoever reads or changes one finds it."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ledger import open_ledger
from ledger.tables import bodies, walks
from ledger.tables.bodies import MOST_BODIES, MOST_BYTES, move_bodies, unpack_page
from tests.paged_talks import PLACE, SECRET, change, everything, look, read_anew, talk, unpacked, wrong
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ledger import Ledger

pytestmark = pytest.mark.anyio


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


@pytest.mark.heavy
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


async def test_what_is_kept_of_a_path_stays_good_while_bodies_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as reading, open_ledger(str(path)) as writing:
        await talk(writing, 4)
        found = await reading.transcript(PLACE)
        await writing.compact(PLACE)
        with monkeypatch.context() as patched:
            patched.setattr(walks, "read", lambda *_: pytest.fail("it is kept"))
            assert await reading.transcript(PLACE) == found
        await writing.redact(PLACE, found[-1].id)
        assert (await reading.transcript(PLACE))[-1] != found[-1]
        [(amended,)] = look(path, "SELECT amended FROM conversations")
        change(path, "UPDATE messages SET place = place + 1 WHERE id = ? AND place IS NOT NULL", found[0].id)
        change(path, "UPDATE messages SET crc = crc + 1 WHERE id = ?", found[0].id)
        assert look(path, "SELECT amended > ? FROM conversations", amended) == [(1,)]


@pytest.mark.heavy
async def test_a_cold_path_unpacks_each_of_its_pages_once_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows are read at a time."""
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 200)
        before = await ledger.transcript(PLACE)
        await ledger.compact(PLACE)
    unpacked_pages: list[bytes] = []

    def watched(data: bytes) -> list[bytes]:
        unpacked_pages.append(data)
        return unpack_page(data)

    monkeypatch.setattr(bodies, "unpack_page", watched)
    monkeypatch.setattr(bodies, "_PAGES_AT_ONCE", 2)
    async with open_ledger(str(path)) as ledger:
        assert await ledger.transcript(PLACE) == before
    assert len(unpacked_pages) == len(set(unpacked_pages)) == -(-400 // MOST_BODIES)


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


async def test_rows_and_their_pages_are_read_at_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3)
        await ledger.compact(PLACE)
        message_id = (await ledger.transcript(PLACE))[1].id
    asks: dict[str, Callable[[Ledger], Any]] = {
        "transcript": lambda ledger: ledger.transcript(PLACE),
        "one": lambda ledger: ledger.tables.message(PLACE, message_id),
        "of a run": lambda ledger: ledger.tables.messages_of(PLACE, "r0"),
        "last": lambda ledger: ledger.tables.last(PLACE, None, 5),
        "run": lambda ledger: ledger.tables.run(PLACE, "r0"),
        "archive": lambda ledger: collect(ledger.tables.all(PLACE)),
        "runs": lambda ledger: collect(ledger.runs(PLACE)),
    }
    for what, ask in asks.items():
        copy = tmp_path / "copy.db"
        copy.write_bytes(path.read_bytes())
        async with open_ledger(str(copy)) as ledger:
            await ledger.catch_up(PLACE)
            expected = await ask(ledger)
            ledger.forget(PLACE)
            plain = bodies._read_pages
            went: list[str] = []

            async def meanwhile(
                sql: Any, wanted: Any, copy: Path = copy, went: list[str] = went, plain: Any = plain
            ) -> dict[int, tuple[int, list[bytes]]]:
                if not went:
                    went.append("all pages")
                    change(copy, "DELETE FROM pages")
                return await plain(sql, wanted)  # type: ignore[no-any-return]

            with monkeypatch.context() as patched:
                patched.setattr(bodies, "_read_pages", meanwhile)
                assert await ask(ledger) == expected, what
            assert went, what


async def collect(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


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
