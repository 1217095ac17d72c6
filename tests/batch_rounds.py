"""Rounds of appends to many streams at once, and looks at what became of them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from stream import CorruptEvent, NewEvent, open_store
from stream.sqlite import packing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from stream import EventStore

MANY = 20


def pack_early() -> Any:
    """While it lasts 32 batches are enough to be packed: what is short meets it, too."""
    return patch.object(packing, "_DUE_BATCHES", 32)


@asynccontextmanager
async def open_packing(url: str) -> AsyncIterator[EventStore]:
    """A store in a process of its own that packs early."""
    with pack_early():
        async with open_store(url) as store:
            yield store


def counts(path: Path) -> tuple[int, int, int]:
    """Rows in `batches`, `appends` and `chunks`."""
    with closing(sqlite3.connect(path)) as raw:
        tables = ("batches", "appends", "chunks")
        batches, appends, chunks = (raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
    return batches, appends, chunks


def change(path: Path, statement: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DROP TRIGGER IF EXISTS batches_never_change")
        raw.execute("PRAGMA ignore_check_constraints = ON")
        assert raw.execute(statement, parameters).rowcount == 1


async def append_round(store: EventStore, number: int, streams: Iterable[int] = range(MANY), **options: Any) -> None:
    """One event to each of many streams, all at once."""
    answers = await asyncio.gather(
        *(store.append(f"s{n}", [NewEvent("t", b"%d.%d" % (n, number))], **options) for n in streams)
    )
    assert not any(answer.duplicate for answer in answers)


async def harm(store: EventStore, rounds: int, n: int) -> int | None:
    """The number of the event that is told to be damaged; all before it and behind it are right."""
    damaged: CorruptEvent | None = None
    try:
        await check(store, rounds, [n])
    except CorruptEvent as error:
        damaged = error
    if damaged is None:
        return None
    assert damaged.stream_id == f"s{n}"
    before = await store.read(f"s{n}", limit=damaged.seq - 1)
    assert [event.seq for event in before] == [*range(1, damaged.seq)]
    await check(store, rounds, [n], after=damaged.seq)
    return damaged.seq


async def know(store: EventStore) -> None:
    """The first append of a stream looks for its row."""
    await append_round(store, 1)


async def check(store: EventStore, rounds: int, streams: Iterable[int] = range(MANY), after: int = 0) -> None:
    for n in streams:
        events = await store.read(f"s{n}", after=after)
        assert [(event.seq, event.data) for event in events] == [
            (seq, b"%d.%d" % (n, seq)) for seq in range(after + 1, rounds + 1)
        ]
