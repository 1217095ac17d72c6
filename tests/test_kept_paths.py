"""What is kept of a path in the process is never older than what is stored: whoever changed it, in this process or another."""

from __future__ import annotations

import random
import sqlite3
import zlib
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from ledger import ACTIVE_LEAF, LedgerDamaged, UnknownConversation, erasure, open_ledger
from ledger.tables import kept_paths, walks
from ledger.tables.kept_paths import KeptPath, KeptPaths
from ledger.tables.messages import read
from projector import Block, Message
from projector.json_text import encode
from tests.ledger_places import place_of
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from ledger import Ledger

pytestmark = pytest.mark.anyio

PLACE: Final = "c"


async def talk(ledger: Ledger, turns: int, *, first: int = 0, parent: str | None = None) -> None:
    for number in range(first, first + turns):
        behind = ACTIVE_LEAF if parent is None else parent
        async with ledger.run(PLACE, run_id=f"r{number}", parent=behind) as run:
            await run.message("user", f"question {number}")
            await run.step()
            await run.text(f"answer {number}")
        parent = None


@asynccontextmanager
async def two(place: Path | str) -> AsyncIterator[tuple[Ledger, Ledger]]:
    """Two ledgers over one file or schema, as two processes have them: what one keeps the other one does not know."""
    async with open_ledger(str(place)) as reading, open_ledger(str(place)) as writing:
        await talk(writing, 4)
        assert len(await reading.transcript(PLACE)) == 8
        yield reading, writing


async def texts(ledger: Ledger) -> list[str]:
    return [message.text for message in await ledger.transcript(PLACE)]


def read_bodies(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which messages are read from here on, by id."""
    seen: list[str] = []

    def watched(conversation: str, message_id: str, crc: int, body: bytes) -> Message:
        seen.append(message_id)
        return read(conversation, message_id, crc, body)

    monkeypatch.setattr(walks, "read", watched)
    assert ledger.tables.kept.find(PLACE).messages
    return seen


async def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(tmp_path / "c.db") as (reading, writing):
        seen = read_bodies(reading, monkeypatch)
        first = await reading.transcript(PLACE)
        assert not seen
        await talk(writing, 1, first=4)
        path = await reading.transcript(PLACE)
        assert len(path) == 10
        assert all(one is other for one, other in zip(first, path, strict=False))
        assert [message.id for message in await reading.transcript(PLACE, limit=3)] == [message.id for message in path[-3:]]
        assert await reading.transcript(PLACE, before=path[4].id) == path[:4]
        assert await reading.transcript(PLACE, before=path[4].id, limit=2) == path[2:4]
        await reading.context(PLACE)
        assert seen == [message.id for message in reversed(path[8:])][::-1]


async def redact(ledger: Ledger, path: list[Message]) -> None:
    await ledger.redact(PLACE, path[2].id, [Block("text", text="gone", sealed=True)])


async def annotate(ledger: Ledger, path: list[Message]) -> None:
    await ledger.annotate(PLACE, path[3].id, {"liked": True})


async def fork(ledger: Ledger, path: list[Message]) -> None:
    await talk(ledger, 2, first=10, parent=path[3].id)


async def fork_and_go_back(ledger: Ledger, path: list[Message]) -> None:
    await fork(ledger, path)
    await ledger.select(PLACE, path[-1].id)
    await talk(ledger, 1, first=20)


async def erase(ledger: Ledger, path: list[Message]) -> None:
    assert path
    await ledger.erase(PLACE)


async def erase_and_begin_again(ledger: Ledger, path: list[Message]) -> None:
    await erase(ledger, path)
    await ledger.record(PLACE, [started("r0"), *said("r0", path[0].id, "another life", role="user"), finished("r0")])


async def damage_and_repair(ledger: Ledger, path: list[Message]) -> None:
    assert path
    database = ledger.tables.database
    for message_id, body in await database.read("SELECT id, row_body FROM messages"):
        damaged = (message_id, bytes(body).replace(b"answer", b"ANSWER"))
        await database.write(lambda sql, row=damaged: sql("UPDATE messages SET row_body = ?2 WHERE id = ?1", row))  # type: ignore[misc]
    assert [finding.kind async for finding in ledger.reconcile(PLACE, repair=True)]


async def lose_and_repair(ledger: Ledger, path: list[Message]) -> None:
    assert path
    await ledger.tables.database.write(lambda sql: sql("DELETE FROM messages WHERE run = 'r1'"))
    await ledger.tables.database.write(lambda sql: sql("DELETE FROM runs WHERE id = 'r1'"))
    await ledger.context(PLACE)
    assert [finding async for finding in ledger.reconcile(PLACE, repair=True)]


async def replace_rows(ledger: Ledger, path: list[Message]) -> None:
    """By hand, as a program that copies rows does; SQLite calls no trigger for what an INSERT takes the place of."""
    other = encode(msgspec.structs.replace(path[2], blocks=(Block("text", text="other words", sealed=True),)))
    row = "conversation, id, run, parent, seq, on_path, started, is_committed, selected"
    text = f"INSERT OR REPLACE INTO messages ({row}, crc, row_body) SELECT {row}, ?2, ?3 FROM messages WHERE id = ?1"
    await ledger.tables.database.write(lambda sql: sql(text, (path[2].id, zlib.crc32(other), other)))


async def replace_a_run(ledger: Ledger, path: list[Message]) -> None:
    assert path
    row, body = "conversation, id, seq, status", "CAST(replace(row_body, 'prompts', 'nothing') AS BLOB)"
    text = f"INSERT OR REPLACE INTO runs ({row}, row_body) SELECT {row}, {body} FROM runs"
    await ledger.tables.database.write(lambda sql: sql(text))


async def lose_messages(ledger: Ledger, path: list[Message]) -> None:
    assert path
    await ledger.tables.database.write(lambda sql: sql("DELETE FROM messages WHERE id IN ('r1.1', 'r1.2')"))


async def lose_a_run(ledger: Ledger, path: list[Message]) -> None:
    assert path
    await ledger.tables.database.write(lambda sql: sql("DELETE FROM runs WHERE id = 'r1'"))


async def lose_a_run_and_repair(ledger: Ledger, path: list[Message]) -> None:
    await lose_a_run(ledger, path)
    await ledger.context(PLACE)
    await talk(ledger, 2, first=30)
    await ledger.context(PLACE)
    assert [finding async for finding in ledger.reconcile(PLACE, repair=True)]


OWN_CHANGES: Final = (
    redact, annotate, fork, fork_and_go_back, erase, erase_and_begin_again, damage_and_repair, lose_and_repair,
    lose_a_run_and_repair,
)  # fmt: skip
FOREIGN_CHANGES: Final = (lose_messages, lose_a_run)
"""By somebody else's hands: triggers notice them."""
CHANGES: Final = {
    "sqlite": (*OWN_CHANGES, *FOREIGN_CHANGES, replace_rows, replace_a_run),
    "postgres": (*OWN_CHANGES, *FOREIGN_CHANGES),
    "postgres, portable": OWN_CHANGES,
}
PLACES: Final = [pytest.param(name, marks=pytest.mark.heavy if name != "sqlite" else ()) for name in CHANGES]


@pytest.mark.parametrize(
    ("place", "change"),
    [
        pytest.param(place, change, id=f"{change.__name__}-{place}", marks=pytest.mark.heavy if place != "sqlite" else ())
        for place, changes in CHANGES.items()
        for change in changes
    ],
)
@pytest.mark.parametrize("is_own", [True, False])
async def test_the_next_read_sees_what_was_changed(
    tmp_path: Path, place: str, change: Callable[[Ledger, list[Message]], Awaitable[None]], *, is_own: bool
) -> None:
    url, _ = place_of(place, tmp_path)
    async with two(url) as (reading, writing):
        await reading.context(PLACE)
        await change(reading if is_own else writing, await reading.transcript(PLACE))
        found = await reading.transcript(PLACE)
        about = (await reading.context(PLACE)).view.source
        async with open_ledger(url) as fresh:
            assert found == await fresh.transcript(PLACE)
            assert about == (await fresh.context(PLACE)).view.source


async def test_a_kept_path_is_no_way_round_a_checksum(tmp_path: Path) -> None:
    async with two(tmp_path / "c.db") as (reading, _):
        with closing(sqlite3.connect(tmp_path / "c.db")) as raw, raw:
            raw.execute("UPDATE messages SET row_body = CAST(replace(row_body, 'answer', 'ANSWER') AS BLOB) WHERE id = 'r2.2'")
        with pytest.raises(LedgerDamaged):
            await reading.transcript(PLACE)


@pytest.mark.parametrize("place", PLACES)
async def test_usage_that_comes_after_the_end_and_what_is_of_other_conversations_is_read_right(
    tmp_path: Path, place: str
) -> None:
    async with two(place_of(place, tmp_path)[0]) as (reading, writing):
        mark = reading.tables.kept.find(PLACE).mark
        async with writing.run("other") as run:
            await run.text("x")
        [message] = await writing.transcript("other")
        await writing.annotate("other", message.id, {"liked": True})
        await writing.describe(PLACE, title="a title")
        await reading.transcript(PLACE)
        assert reading.tables.kept.find(PLACE).mark == mark
        await writing.record(PLACE, [new("run.usage", run_id="r1", request_id="q", usage={})])
        await reading.transcript(PLACE)
        assert reading.tables.kept.find(PLACE).mark > mark


async def test_an_erased_conversation_is_not_kept_where_it_was_erased(tmp_path: Path) -> None:
    async with two(tmp_path / "c.db") as (reading, _):
        await reading.erase(PLACE)
        assert not reading.tables.kept.find(PLACE).messages
        assert not await reading.transcript(PLACE)
        with pytest.raises(UnknownConversation):
            await reading.transcript("nobody")


async def test_a_reader_that_was_under_way_keeps_nothing_of_what_was_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path / "c.db") as (reading, _):
        read_before, clean = reading.tables.kept.find(PLACE), erasure._clean_files

        async def clean_beside_a_reader(*given: Any) -> Any:
            reading.tables.kept.put(PLACE, read_before)
            return await clean(*given)

        monkeypatch.setattr(erasure, "_clean_files", clean_beside_a_reader)
        await reading.erase(PLACE)
        assert not reading.tables.kept.find(PLACE).messages


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.heavy) if seed > 2 else seed for seed in range(8)])
@pytest.mark.parametrize("place", PLACES)
async def test_whatever_two_do_in_turn_both_read_what_a_new_one_reads(tmp_path: Path, place: str, seed: int) -> None:
    random_ = random.Random(seed)
    url, _ = place_of(place, tmp_path)
    async with two(url) as ledgers:
        for number in range(100, 130):
            ledger = ledgers[random_.randrange(2)]
            path = await ledger.transcript(PLACE)
            message_id = random_.choice(path).id
            match random_.randrange(6):
                case 0:
                    await ledger.annotate(PLACE, message_id, {"n": number})
                case 1:
                    await ledger.redact(PLACE, message_id, [Block("text", text=f"redacted {number}", sealed=True)])
                case 2:
                    await talk(ledger, 1, first=number, parent=message_id)
                case 3:
                    everyone = await ledger.transcript(PLACE, branch="all")
                    await ledger.select(PLACE, random_.choice(everyone).id)
                case _:
                    await talk(ledger, 1, first=number)
            async with open_ledger(url) as fresh:
                expected = await fresh.transcript(PLACE)
                about = (await fresh.context(PLACE)).view.source
            for each in ledgers:
                if random_.random() < 0.7:
                    assert await each.transcript(PLACE) == expected
                if random_.random() < 0.3:
                    assert (await each.context(PLACE)).view.source == about
                end = random_.randrange(len(expected))
                found = await each.transcript(PLACE, before=expected[end].id, limit=random_.choice([1, 5]))
                assert found == expected[:end][-5:][-len(found) :]


def message(name: str) -> Message:
    return Message(name, None, "r", "user", "complete", (), 0, 1)


def path_of(*names: str, size: int = 1) -> KeptPath:
    messages = tuple(map(message, names))
    places = {name: place for place, name in enumerate(names)}
    return KeptPath((0, 0), messages, places, tuple(size * (at + 1) for at in range(len(names))))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_paths, "MOST_KEPT_BYTES", 100)
    paths = KeptPaths()
    paths.put("a", path_of("1", "2", size=30))
    paths.put("b", path_of("1", size=30))
    assert paths.find("a").messages
    paths.put("c", path_of("1", size=30))
    assert [bool(paths.find(name).messages) for name in "abc"] == [False, True, True]
    paths.put("b", path_of("1", size=40))
    paths.put("d", path_of("1", size=60))
    assert [bool(paths.find(name).messages) for name in "abcd"] == [False, True, False, True]
    paths.put("d", path_of("1", size=101))
    assert not paths.find("d").messages
    paths.put("e", path_of("1", "1", size=1))
    assert not paths.find("e").messages
    paths.forget("b")
    assert paths._size == 0


def test_a_path_is_not_dropped_for_its_beginning() -> None:
    paths, long = KeptPaths(), path_of("1", "2")
    paths.put("a", long)
    paths.put("a", replace(long, messages=long.messages[:1], places={"1": 0}, bytes_to=(1,)))
    assert paths.find("a") is long
    other = path_of("1")
    paths.put("a", other)
    assert paths.find("a") is other
