"""Damage in a batch harms one append, is never silent, and keeps no other from being packed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from stream import NewEvent, Producer, open_store
from stream.sqlite.log_integrity import check_streams
from tests.backends import flip
from tests.batch_rounds import MANY, append_round, change, check, counts, harm, pack_early

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _few_batches_are_enough() -> Iterator[None]:
    with pack_early():
        yield


COLUMNS = ["heads", "marks", "places", "again", "data"]


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_flipped_byte_of_a_batch_harms_one_append_and_is_never_silent(tmp_path: Path, column: str) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for number in (1, 2, 3):
            await append_round(store, number, producer=Producer("p", 0, number - 1))
        [(pos, value)] = await store.database.read(f"SELECT max(pos), {column} FROM batches")  # type: ignore[union-attr]
        whole = value.encode() if isinstance(value, str) else value
        for place in range(0, len(whole), 7):
            damaged: Any = flip(whole[: place + 1]) + whole[place + 1 :]
            if isinstance(value, str):
                damaged = damaged.decode("latin-1")
            change(path, f"UPDATE batches SET {column} = ? WHERE pos = ?", damaged, pos)
            harmed = []
            for n in range(MANY):
                told = await harm(store, 3, n)
                assert told in (None, 3)
                harmed += [n] if told else []
            assert len(harmed) <= (1 if column in ("heads", "data") else 0), (place, harmed)
            assert harmed or column != "data"
        change(path, f"UPDATE batches SET {column} = ? WHERE pos = ?", value, pos)
        await check(store, 3)


async def test_a_damaged_append_is_told_and_all_else_is_packed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for number in range(1, 5):
            await append_round(store, number)
        [(pos, data)] = await store.database.read("SELECT pos, data FROM batches ORDER BY pos LIMIT 1 OFFSET 1")  # type: ignore[union-attr]
        change(path, "UPDATE batches SET data = ? WHERE pos = ?", flip(data), pos)
        for number in range(5, 120):
            await append_round(store, number)
        await store.append("other", [NewEvent("t", b"")])
        assert counts(path)[0] < 34
        await check(store, 119, after=2)
        told = [await harm(store, 119, n) for n in range(MANY)]
        assert sorted(told, key=str) == [2, *[None] * (MANY - 1)]
        with closing(sqlite3.connect(path)) as raw:
            assert [fault.kind for fault in check_streams(raw)] == ["damaged"]
        harmed = f"s{told.index(2)}"
        await store.delete(harmed)
        await store.settle()  # type: ignore[union-attr]
        with closing(sqlite3.connect(path)) as raw:
            assert list(check_streams(raw)) == []


@pytest.mark.parametrize("column", ["heads", "places"])
async def test_a_batch_that_does_not_tell_what_it_holds_stays_and_the_others_are_packed(tmp_path: Path, column: str) -> None:
    path = tmp_path / "log.db"
    async with open_store(str(path)) as store:
        for number in range(1, 5):
            await append_round(store, number)
        [(pos,)] = await store.database.read("SELECT pos FROM batches ORDER BY pos LIMIT 1 OFFSET 1")  # type: ignore[union-attr]
        damage = {"heads": "heads = replace(heads, '{', '[')", "places": "places = x'00', again = x'00'"}[column]
        change(path, f"UPDATE batches SET {damage} WHERE pos = ?", pos)
        for number in range(5, 120):
            await append_round(store, number)
        await store.append("other", [NewEvent("t", b"")])
        assert counts(path)[0] < 34
        await check(store, 119, after=2)
        assert [await harm(store, 119, n) for n in range(MANY)] == [2 if column == "places" else None] * MANY
        with closing(sqlite3.connect(path)) as raw:
            assert {fault.kind for fault in check_streams(raw)} == {"damaged"}
