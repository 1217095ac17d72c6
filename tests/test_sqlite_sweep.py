"""Rows below the floor go in slices, behind everybody's back, also after a crash (DESIGN, law 6)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from stream import NewEvent, StoreBusy, open_store
from stream.sqlite import SqliteStore
from stream.sqlite.sweeping import Sweeper

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as raw:
        [(count,)] = raw.execute("SELECT (SELECT count(*) FROM appends) + (SELECT count(*) FROM chunks)")
        return int(count)


async def filled(path: Path, count: int) -> SqliteStore:
    store = await open_store(str(path), durability="normal")
    assert isinstance(store, SqliteStore)
    for n in range(count):
        await store.append("s", [NewEvent("t", str(n).encode() * 600)])  # large enough to stay a row of its own
    return store


async def test_a_truncation_answers_before_the_rows_are_gone_and_appends_go_on_meanwhile(tmp_path: Path) -> None:
    store = await filled(tmp_path / "a.db", 1000)
    bounds = await store.truncate("s", through=950)
    assert rows(tmp_path / "a.db") > 50  # the floor is up, the rows are still there
    assert (bounds.floor, bounds.head) == (950, 1000)
    assert [event.seq for event in await store.read("s", after=950)] == list(range(951, 1001))
    assert (await store.append("s", [NewEvent("t", b"")])).first_seq == 1001
    await store.settle()
    assert rows(tmp_path / "a.db") == 51
    await store.close()


async def test_what_a_crash_left_is_swept_after_the_next_opening(tmp_path: Path) -> None:
    store = await filled(tmp_path / "a.db", 700)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as raw, raw:
        raw.execute(
            "UPDATE streams SET floor = 650, guard = guard + 5 * 650, changed = changed + 1"
        )  # as a process does that dies right after
    async with open_store(str(tmp_path / "a.db")) as again:
        assert isinstance(again, SqliteStore)
        assert [event.seq for event in await again.read("s", after=650)] == list(range(651, 701))
        await again.settle()
        assert rows(tmp_path / "a.db") == 50


async def test_a_sweep_that_meets_an_error_is_gone_on_with_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path / "a.db", 200)
    await store.append("other", [NewEvent("t", b"")])

    async def refuse(*_: Any) -> bool:
        raise StoreBusy("for a moment")

    with monkeypatch.context() as patched:
        patched.setattr(Sweeper, "_sweep_slice", refuse)
        await store.truncate("s", through=150)
        await store.settle()
    assert rows(tmp_path / "a.db") == 201
    await store.truncate("other", through=1)
    await store.settle()
    assert rows(tmp_path / "a.db") == 50
    await store.close()


async def test_closing_in_the_middle_of_a_sweep_loses_nothing_and_goes_on_later(tmp_path: Path) -> None:
    store = await filled(tmp_path / "a.db", 900)
    await store.truncate("s", through=900)
    await store.close()
    left = rows(tmp_path / "a.db")
    assert left > 0
    async with open_store(str(tmp_path / "a.db")) as again:
        assert isinstance(again, SqliteStore)
        assert (await again.append("s", [NewEvent("t", b"")])).first_seq == 901
        await again.settle()
        assert rows(tmp_path / "a.db") == 1


async def test_a_deleted_stream_is_swept_too(tmp_path: Path) -> None:
    store = await filled(tmp_path / "a.db", 500)
    await store.delete("s")
    assert await store.read("s", after=500) == []
    await store.settle()
    assert rows(tmp_path / "a.db") == 0
    await store.close()


@pytest.mark.heavy
async def test_a_slice_is_bounded_in_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store(str(tmp_path / "a.db"), durability="normal")
    assert isinstance(store, SqliteStore)
    for _ in range(12):
        await store.append("s", [NewEvent("t", bytes(1 << 20))])
    statements, slices = store.database._execute, list[int]()

    def watched(connection: Any, text: str, *parameters: Any) -> Any:
        found = statements(connection, text, *parameters)
        if text.lstrip().startswith("DELETE FROM appends"):
            slices.append(len(found))
        return found

    monkeypatch.setattr(store.database, "_execute", watched)
    await store.truncate("s", through=12)
    await store.settle()
    assert sum(slices) == 12
    assert max(slices) == 1
    await store.close()
