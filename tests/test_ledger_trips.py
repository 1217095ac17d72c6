"""How often a ledger goes to SQLite's thread: an operation looks once and writes once, however much it asks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiosqlite
import pytest

from ledger import Ledger, open_ledger
from stream.sqlite import sweeping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


@contextmanager
def at_most(trips: int, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Counts where aiosqlite hands work to its threads, and compares with what the database tells."""
    handed = 0
    real: Callable[..., object] = aiosqlite.Connection._execute

    def counted(*words: object) -> object:
        nonlocal handed
        handed += 1
        return real(*words)

    before = ledger.tables.database.trips
    with monkeypatch.context() as patched:
        patched.setattr(aiosqlite.Connection, "_execute", counted)
        yield
    told = ledger.tables.database.trips - before
    print(f"{told} trips, at most {trips}")
    assert 0 < handed <= told <= trips


async def talk(ledger: Ledger, turns: int) -> None:
    for number in range(turns):
        async with ledger.run("c") as run:
            await run.message("user", f"question {number}")
            await run.text(f"answer {number}")


@pytest.mark.parametrize("turns", [0, 1, 20])
async def test_an_operation_makes_few_trips_however_long_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(sweeping, "_SLICE_S", 60.0)  # on a loaded machine slices become smaller, and more
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        await talk(ledger, turns)
        with at_most(4, ledger, monkeypatch):
            run = await ledger.begin_run("c")
        await run.finish()
        with at_most(8, ledger, monkeypatch):
            async with ledger.run("c") as run:
                for number in range(3):
                    await run.message("user", f"{number}")
        with at_most(2, ledger, monkeypatch):
            messages = await ledger.transcript("c")
        assert [message.text for message in messages[-3:]] == ["0", "1", "2"]
        with at_most(2, ledger, monkeypatch):
            assert [message.text for message in await ledger.transcript("c", before=messages[-1].id, limit=2)] == ["0", "1"]
        with at_most(3, ledger, monkeypatch):
            context = await ledger.context("c")
        assert list(context.messages) == messages
        for window in (2, 0):  # the second has an older snapshot to go on from, and to let go
            with at_most(13, ledger, monkeypatch):
                compacted = await ledger.compact("c", replay_window=window)
                await ledger.store.settle()  # type: ignore[attr-defined] # the sweep that follows counts, too
            assert compacted.head - compacted.floor == window


async def test_what_another_process_finds_is_found_in_as_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_SLICE_S", 60.0)
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        await talk(ledger, 3)
        left = await ledger.begin_run("c", run_id="left")
        await left.message("user", "half")
        await left.flush()
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        await ledger.store.settle()  # type: ignore[attr-defined] # an opening looks for what was not swept
        with at_most(3, ledger, monkeypatch):  # what the run has said so far is taken in on the way
            assert len(await ledger.transcript("c")) == 6
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        await ledger.store.settle()  # type: ignore[attr-defined] # an opening looks for what was not swept
        with at_most(3, ledger, monkeypatch):
            context = await ledger.context("c", run="left")
        assert [message.text for message in context.messages][-1] == "half"
    async with open_ledger(str(tmp_path / "c.db")) as ledger:
        await ledger.store.settle()  # type: ignore[attr-defined] # an opening looks for what was not swept
        with at_most(16, ledger, monkeypatch):
            assert (await ledger.compact("c")).binds == "open_run:left"
            await ledger.store.settle()  # type: ignore[attr-defined] # the sweep that follows counts, too
