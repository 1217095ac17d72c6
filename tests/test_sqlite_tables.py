"""Attacks on the tables with raw SQL: each is refused by the schema, or changes nothing (laws 2, 3; DESIGN §5)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from stream import AppendResult, CorruptEvent, NewEvent, Producer, Snapshot, open_store
from stream.sqlite.batches import write_numbers
from tests.backends import flip

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backends import Store

pytestmark = pytest.mark.anyio

TABLES = ("streams", "producers", "appends", "chunks", "batches")
NEW_BATCH = "(heads, marks, places, again, data)"
NEW_CHUNK = "(stream, last, n, crc, data)"
NEW_APPEND = "(stream, last, n, at, append_id, crc, data)"
BY_PRODUCER = "(stream, last, n, at, append_id, producer, epoch, producer_seq, crc, data)"

ATTACKS = [
    "UPDATE appends SET data = x'90'",
    "UPDATE appends SET last = last + 10",
    "UPDATE appends SET n = 2, at = 0, crc = 0 WHERE last = 3",
    "UPDATE OR REPLACE appends SET pos = pos + 1",
    "UPDATE OR IGNORE appends SET stream = 2",
    "DELETE FROM appends",
    "DELETE FROM appends WHERE last = 4",
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 9, 1, 0, x'01', 0, x'90')",  # a gap
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 4, 1, 0, x'01', 0, x'90')",  # a number that is taken
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 3, 1, 0, x'01', 0, x'90')",
    f"INSERT INTO appends {NEW_APPEND} VALUES (9, 1, 1, 0, x'01', 0, x'90')",  # an unknown stream
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 4, 0, 0, x'01', 0, x'90')",  # no events
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 3, -1, 0, x'01', 0, x'90')",
    f"INSERT OR REPLACE INTO appends {NEW_APPEND} VALUES (1, 4, 0, 0, x'01', 0, x'90')",
    f"INSERT OR REPLACE INTO appends {NEW_APPEND} VALUES (1, 4, 1, 0, x'01', 0, x'90')",
    "INSERT OR REPLACE INTO appends (pos, stream, last, n, at, append_id, crc, data) VALUES (2, 1, 5, 1, 0, x'01', 0, x'90')",
    "INSERT OR REPLACE INTO appends SELECT * FROM appends",
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 5, 1, 0, x'01', 0, 'text')",
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 5, 1, 0, x'01', 0, NULL)",
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 'five', 1, 0, x'01', 0, x'90')",
    f"INSERT INTO appends {NEW_APPEND} VALUES (1, 5.5, 1.5, 0, x'01', 0, x'90')",
    f"INSERT INTO appends {BY_PRODUCER} VALUES (1, 5, 1, 0, x'01', 1, 1, 7, 0, x'90')",  # a producer's gap
    f"INSERT INTO appends {BY_PRODUCER} VALUES (1, 5, 1, 0, x'01', 1, 0, 0, 0, x'90')",  # an epoch that is fenced
    f"INSERT INTO appends {BY_PRODUCER} VALUES (1, 5, 1, 0, x'01', 9, 0, 0, 0, x'90')",  # an unknown producer
    "INSERT INTO appends (stream, last, n, at, append_id, producer, crc, data) VALUES (1, 5, 1, 0, x'01', 1, 0, x'90')",
    "DELETE FROM appends WHERE stream = 3 AND last > 256",
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (1, 4, 1, 0, NULL)",
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (1, 4, 2, 0, x'90')",  # no append begins there
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (1, 5, 2, 0, x'90')",  # beyond the head
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (1, 4, 0, 0, x'90')",
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (3, 256, 256, 0, x'90')",  # it is there already
    f"INSERT OR REPLACE INTO chunks {NEW_CHUNK} VALUES (3, 256, 256, 0, x'90')",
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (3, 257, 257, 0, x'90')",  # half of it is packed already
    "INSERT OR REPLACE INTO chunks (pos, stream, last, n, crc, data) VALUES (1, 3, 257, 1, 0, x'90')",
    "UPDATE chunks SET data = x'90'",
    "UPDATE OR REPLACE chunks SET pos = 7",
    "DELETE FROM chunks",
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (4, 2, 2, 0, x'90')",  # beyond the head
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (1, 2, 1, 0, x'90')",  # it ends inside an append
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (3, 200, 100, 0, x'90')",  # it lies inside a chunk
    f"INSERT INTO chunks {NEW_CHUNK} VALUES (3, 258, 2, 0, x'90')",  # beyond the head, over an append
    "UPDATE batches SET data = x'90'",
    "UPDATE OR REPLACE batches SET pos = 7",
    "UPDATE batches SET heads = '{\"4\":65537}'",
    "DELETE FROM batches",
    *(
        f"INSERT INTO batches {NEW_BATCH} VALUES ('{heads}', '{marks}', x'90', x'90', x'90')"
        for heads, marks in [
            (write_numbers({1: 6 << 16 | 1}), "{}"),  # a gap
            (write_numbers({1: 4 << 16 | 1}), "{}"),  # a number that is taken
            (write_numbers({1: 4 << 16}), "{}"),  # no events
            (write_numbers({1: 5 << 16 | 1, 9: 1 << 16 | 1}), "{}"),  # an unknown stream
            (write_numbers({1: 5 << 16 | 1, 4: 3 << 16 | 1}), "{}"),  # one of two goes on
            ('{"1":327681,"1":327681}', "{}"),  # twice the same
            ('{"1":327681,"01":327681}', "{}"),
            ('{"1":327681,"1":393218}', "{}"),
            ('{"1": 327681}', "{}"),  # not as it is looked for
            ('{"1":327681.0}', "{}"),
            ('{"1":"327681"}', "{}"),
            ("{}", "{}"),
            ("[327681]", "{}"),
            ("{", "{}"),
            (write_numbers({1: 5 << 16 | 1}), "{"),
            (write_numbers({1: 5 << 16 | 1}), write_numbers({1: 1 << 42 | 7 << 12 | 1})),  # a producer's gap
            (write_numbers({1: 5 << 16 | 1}), write_numbers({1: 0 << 42 | 0 << 12 | 1})),  # an epoch that is fenced
            (write_numbers({1: 5 << 16 | 1}), write_numbers({1: 1 << 42 | 1 << 12 | 1})),  # a number that is taken
            (write_numbers({1: 5 << 16 | 1}), write_numbers({9: 1})),  # an unknown producer
            (write_numbers({1: 5 << 16 | 1}), write_numbers({2: 1 << 42 | 1})),  # that of another stream
            (write_numbers({1: 5 << 16 | 1}), write_numbers({1: 1 << 42 | 2 << 12})),  # of no events
            (write_numbers({1: 5 << 16 | 1}), '{"1":4398046519297,"1":4398046519297}'),  # twice the same
            (write_numbers({1: 5 << 16 | 1}), '{"1":"x"}'),
        ]
    ),
    f"INSERT OR REPLACE INTO batches VALUES (1, '{write_numbers({1: 5 << 16 | 1})}', '{{}}', x'90', x'90', x'90')",
    f"INSERT INTO batches {NEW_BATCH} VALUES ('{write_numbers({1: 5 << 16 | 1})}', '{{}}', x'90', x'90', NULL)",
    f"INSERT INTO batches {NEW_BATCH} VALUES ('{write_numbers({1: 5 << 16 | 1})}', '{{}}', x'90', 'text', x'90')",
    "UPDATE streams SET head = head - 1 WHERE id = 1",
    "UPDATE streams SET head = 0, floor = 0, origin = 0",
    "UPDATE streams SET floor = floor - 1 WHERE id = 1",
    "UPDATE streams SET origin = origin - 1 WHERE id = 2",
    "UPDATE streams SET floor = head + 1",
    "UPDATE streams SET origin = floor + 1 WHERE id = 1",
    "UPDATE streams SET name = 'z' WHERE id = 1",
    "UPDATE OR REPLACE streams SET id = 2 WHERE id = 1",
    "UPDATE OR REPLACE streams SET name = 'gone' WHERE id = 1",
    "UPDATE streams SET head = 'many'",
    "UPDATE streams SET head = NULL",
    "DELETE FROM streams",
    "INSERT INTO streams (name) VALUES ('s')",
    "INSERT OR REPLACE INTO streams (name) VALUES ('s')",
    "INSERT OR REPLACE INTO streams (id, name) VALUES (1, 's')",
    "INSERT OR REPLACE INTO streams (id, name) VALUES (1, 'other')",
    "UPDATE producers SET seq = seq - 1",
    "UPDATE producers SET epoch = epoch - 1, seq = 99",
    "UPDATE producers SET epoch = NULL",
    "UPDATE producers SET seq = NULL, epoch = epoch + 1",
    "UPDATE producers SET name = 'other', seq = seq + 1",
    "UPDATE producers SET stream = 2, seq = seq + 1",
    "UPDATE OR REPLACE producers SET id = 2, seq = seq + 1 WHERE id = 1",
    "DELETE FROM producers",
    "INSERT OR REPLACE INTO producers (stream, name) VALUES (1, 'p')",
    "INSERT OR REPLACE INTO producers (id, stream, name) VALUES (1, 1, 'other')",
    "REPLACE INTO producers (id, stream, name, epoch, seq) VALUES (1, 1, 'p', 0, 0)",
]


FILLED: list[bytes] = []


async def fill(path: Path) -> None:
    """A file as `fill_anew` makes it."""
    if not FILLED:
        await fill_anew(path)
        FILLED.append(path.read_bytes())
    path.write_bytes(FILLED[0])


async def fill_anew(path: Path) -> None:
    """`s`: four events, truncated through 1, a producer; `gone`: deleted; `packed`: a chunk, an append; `many.N`: a batch."""
    async with open_store(str(path)) as store:
        await store.append("s", [NewEvent("t", b"a")], producer=Producer("p", 1, 0))
        await store.append("s", [NewEvent("t", b"b"), NewEvent("t", b"c")], producer=Producer("p", 1, 1))
        await store.append("s", [NewEvent("t", b"d")])
        await store.append("gone", [NewEvent("t", b"x")], producer=Producer("p", 0, 0))
        await store.truncate("s", through=1)
        await store.delete("gone")
        await store.snapshots.save(Snapshot("s", "p", 1, 3, 0, b"state"))
        for first in range(1, 257, 4):  # so few at once have rows of their own
            await asyncio.gather(*(store.append("packed", [NewEvent("t", b"%d" % seq)]) for seq in range(first, first + 4)))
        await store.append("packed", [NewEvent("t", b"257")])  # behind the 256, which go into a chunk
        await asyncio.gather(*(store.append(f"many.{n}", [NewEvent("t", b"m")]) for n in range(10)))


def dump(path: Path) -> list[list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as raw:
        return [raw.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("pragmas", ["", "PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON"], ids=["bare", "guarded"])
async def test_the_schema_refuses_an_attack_or_passes_over_it(tmp_path: Path, attack: str, pragmas: str) -> None:
    path = tmp_path / "log.db"
    await fill(path)
    before = dump(path)
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(pragmas)
        with suppress(sqlite3.IntegrityError), raw:  # any other error is a fault of the attack
            raw.execute(attack)
    assert dump(path) == before
    async with open_store(str(path)) as store:
        assert [event.data for event in await store.read("s", after=1)] == [b"b", b"c", b"d"]
        assert await store.append("s", [NewEvent("t", b"e")], producer=Producer("p", 1, 2)) == AppendResult(5, 5)
        assert await store.append("gone", [NewEvent("t", b"y")]) == AppendResult(2, 2)
        assert [event.data for n in range(10) for event in await store.read(f"many.{n}")] == [b"m"] * 10
        assert [event.data for event in await store.read("packed")] == [b"%d" % seq for seq in range(1, 258)]


async def test_no_clause_that_ignores_conflicts_is_used_on_the_log(tmp_path: Path) -> None:
    await fill(tmp_path / "log.db")
    with closing(sqlite3.connect(tmp_path / "log.db")) as raw:
        [(count,)] = raw.execute("SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%ON CONFLICT%'")
    assert count == 0


def raw_change(path: Path, trigger: str, statement: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"DROP TRIGGER {trigger}")
        assert raw.execute(statement, parameters).rowcount == 1


async def read_all(store: Store, last: int, limit: int) -> None:
    while page := await store.read("s", after=last, limit=limit):
        assert [event.seq for event in page] == list(range(last + 1, last + len(page) + 1))
        last = page[-1].seq


@pytest.mark.parametrize("limit", [1, 2, 10, 1000])
@pytest.mark.parametrize(("lost", "after"), [(3, 1), (3, 2), (4, 1), (4, 2), (4, 3), (7, 1), (7, 3), (7, 4), (7, 5), (7, 6)])
async def test_a_row_that_is_gone_is_never_a_short_read(tmp_path: Path, lost: int, after: int, limit: int) -> None:
    path = tmp_path / "log.db"
    await fill(path)
    async with open_store(str(path)) as store:
        await store.append("s", [NewEvent("t", b"e"), NewEvent("t", b"f"), NewEvent("t", b"g")])
    raw_change(
        path, "events_go_only_below_the_floor_or_into_a_chunk", "DELETE FROM appends WHERE stream = 1 AND last = ?", lost
    )
    first_lost = {3: 2, 4: 4, 7: 5}[lost]
    async with open_store(str(path)) as store:
        with pytest.raises(CorruptEvent) as refused:
            await read_all(store, after, limit)
    assert (refused.value.stream_id, refused.value.seq) == ("s", max(first_lost, after + 1))


@pytest.mark.parametrize("attack", ["data = ?", "crc = crc + 1", "last = 14", "n = 3"])
async def test_a_flipped_bit_is_named_with_its_place(tmp_path: Path, attack: str) -> None:
    path = tmp_path / "log.db"
    await fill(path)
    with closing(sqlite3.connect(path)) as raw:
        [(data,)] = raw.execute("SELECT data FROM appends WHERE stream = 1 AND last = 3")
    parameters = (flip(data),) if "?" in attack else ()
    raw_change(path, "events_never_change", f"UPDATE appends SET {attack} WHERE stream = 1 AND last = 3", *parameters)
    async with open_store(str(path)) as store:
        with pytest.raises(CorruptEvent, match="'s'") as refused:
            await store.read("s", after=1)
        assert refused.value.stream_id == "s"
        assert refused.value.seq in ((1, 2) if attack == "n = 3" else (2,))
        assert await store.append("s", [NewEvent("t", b"e")]) == AppendResult(5, 5)  # the damage is contained
        if attack != "last = 14":  # there the row lies before every later reader
            assert [event.seq for event in await store.read("s", after=4)] == [5]


async def test_every_flipped_byte_of_a_row_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DROP TRIGGER events_never_change")
        [(data,)] = raw.execute("SELECT data FROM appends WHERE stream = 1 AND last = 3")
    async with open_store(str(path)) as store:
        for place in range(len(data)):
            damaged = flip(data[: place + 1]) + data[place + 1 :]
            with closing(sqlite3.connect(path)) as raw, raw:
                raw.execute("UPDATE appends SET data = ? WHERE stream = 1 AND last = 3", (damaged,))
            with pytest.raises(CorruptEvent):
                await store.read("s", after=1)
