"""The way from a message up to the root, against a plain walk over all rows: whatever the order, whatever other branches."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ledger.tables import branches, walks
from ledger.tables.messages import Placed, add
from ledger.tables.tables import LedgerTables
from projector import Block, Message
from stream.sqlite import MEMORY, open_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stream.sqlite import Sql

pytestmark = pytest.mark.anyio


class Row(NamedTuple):
    id: str
    parent: str | None
    seq: int
    on_path: bool = True


def by_hand(rows: Sequence[Row], leaf: str, limit: int | None, known: frozenset[str] = frozenset()) -> list[str]:
    there = {row.id: row for row in rows if row.on_path}
    found: list[str] = []
    most = len(rows) if limit is None else min(limit, len(rows))
    wanted: str | None = leaf
    while wanted is not None and wanted in there and wanted not in known and len(found) < most:
        found.append(wanted)
        wanted = there[wanted].parent
    return found


def message(row: Row) -> Message:
    return Message(row.id, row.parent, "r", "user", "complete", (Block("text", text=row.id),), 0, row.seq)


async def store(tables: LedgerTables, rows: Sequence[Row]) -> None:
    async def job(sql: Sql) -> None:
        await sql("DELETE FROM messages WHERE conversation = 1")
        await sql("DELETE FROM conversations WHERE id = 1")
        await sql("INSERT INTO conversations (id, stream_id, messages) VALUES (1, 'c', ?1)", (len(rows),))
        await add(sql, 1, [Placed(message(row), row.on_path, row.seq, is_committed=True) for row in rows])

    await tables.transact(job)


def grow(random_: random.Random, count: int, *, is_ordered: bool) -> list[Row]:
    """A tree that was grown at a few leaves in turn; without an order of its own also lost parents, circles and equal seqs."""
    rows: list[Row] = []
    tips: list[str | None] = [None]
    for number in range(count):
        if rows and random_.random() < 0.1:
            tips.append(random_.choice(rows).id)
        place = random_.randrange(len(tips)) if random_.random() < 0.3 else len(tips) - 1
        parent = tips[place]
        if not is_ordered and random_.random() < 0.05:
            parent = f"m{random_.randrange(count + 3)}"
        seq = number if is_ordered else random_.randrange(count)
        rows.append(Row(f"m{number}", parent, seq, is_ordered or random_.random() < 0.95))
        tips[place] = rows[-1].id
    return rows


@pytest.mark.parametrize("is_ordered", [True, False])
async def test_a_walk_finds_what_a_plain_one_finds(monkeypatch: pytest.MonkeyPatch, *, is_ordered: bool) -> None:
    tables = await LedgerTables.attach(await open_database(MEMORY, create=True))
    for seed in range(60):
        random_ = random.Random(seed)
        monkeypatch.setattr(walks, "_FEWEST", random_.choice([1, 2, 16]))
        rows = grow(random_, random_.choice([1, 5, 120]), is_ordered=is_ordered)
        await store(tables, rows)
        for _ in range(12):
            leaf, limit = f"m{random_.randrange(len(rows) + 1)}", random_.choice([None, 0, 1, 7, 1000])
            known = frozenset(random_.sample([row.id for row in rows], k=random_.choice([0, 0, len(rows) // 10])))
            way = await walks.walk(tables.database.read, "c", leaf, limit, known)
            assert [row[0] for row in way.rows] == by_hand(rows, leaf, limit, known), (seed, leaf, limit)
        found = [one.id for one in await walks.path(tables.database.read, "c", rows[-1].id, None)]
        assert found == by_hand(rows, rows[-1].id, None)[::-1]
    await tables.database.close()


async def test_a_walk_beside_long_branches_reads_little_of_them() -> None:
    """The path is written in pieces between two others, each a hundred times as long as a piece."""
    rows = [Row("root", None, 0)]
    tips = ["root", "root", "root"]
    for _ in range(20):
        for branch, count in enumerate((4, 400, 400)):
            for _ in range(count):
                rows.append(Row(f"m{len(rows)}", tips[branch], len(rows)))
                tips[branch] = rows[-1].id
    tables = await LedgerTables.attach(await open_database(MEMORY, create=True))
    await store(tables, rows)
    read = statements = 0

    async def sql(text: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        nonlocal read, statements
        found = await tables.database.read(text, parameters)
        read, statements = read + len(found), statements + 1
        return found

    way = await walks.walk(sql, "c", tips[0])
    assert len(way.rows) == 81
    assert read < 4 * len(way.rows)
    assert statements < 30
    read = statements = 0
    assert len((await walks.walk(sql, "c", tips[1])).rows) == 8001
    assert read < 1.5 * 8001
    assert statements < 100
    assert not (await walks.walk(sql, "nobody", tips[1])).rows
    await tables.database.close()


@pytest.mark.parametrize("selections", [{}, {"m3": "m4"}])
async def test_the_way_down_takes_as_many_steps_for_each_message_however_many_there_are(
    tmp_path: Path, selections: dict[str, str]
) -> None:
    few, many = [await steps_down(tmp_path / f"{count}.db", count, selections) for count in (100, 1_000)]
    assert 100 < few < many < 15 * few


async def steps_down(path: Path, count: int, selections: dict[str, str]) -> int:
    """How many steps of SQLite's machine the way down takes along so many messages."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    database = await open_database(str(path), create=True)
    await store(
        await LedgerTables.attach(database),
        [Row(f"m{number}", f"m{number - 1}" if number else None, number) for number in range(count)],
    )
    for reader in database._readers:
        await reader.run(lambda connection: connection.set_progress_handler(step, 1))
    assert await branches.descend(database.read, 1, None, selections) == f"m{count - 1}"
    await database.close()
    return steps
