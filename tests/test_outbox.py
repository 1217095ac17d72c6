"""Deltas on their way into the log: those of one block are joined, none gets into another, and none waits too long."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import anyio
import pytest

from ledger.runs.outbox import Outbox
from projector import events as ev
from stream import InvalidEvent, MemoryStore, Producer

pytestmark = pytest.mark.anyio

MESSAGE: Final = "r.1"
LONG_MS: Final = 3_600_000


async def opened(store: MemoryStore, *, flush_ms: int = LONG_MS) -> Outbox:
    """With a delta that waits, so that what comes next may go on with it."""
    outbox = Outbox(store, "c", Producer("p", 0, 0), 0, flush_ms=flush_ms)
    outbox.put([ev.BlockDelta(MESSAGE, 0, "a")])
    return outbox


async def stored(store: MemoryStore) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in await store.read("c")]


OTHERS: Final = {
    "of another block": ev.BlockDelta(MESSAGE, 1, "b"),
    "of another field": ev.BlockDelta(MESSAGE, 0, "b", "arguments"),
    "of another message": ev.BlockDelta("r.2", 0, "b"),
}


@pytest.mark.parametrize("which", OTHERS)
async def test_a_delta_of_something_else_is_an_event_of_its_own(which: str) -> None:
    store = MemoryStore()
    outbox = await opened(store)
    outbox.put([OTHERS[which]])
    outbox.put([ev.BlockDelta(MESSAGE, 0, "c")])
    await outbox.flush()
    assert [said["text"] for said in await stored(store)] == ["a", "b", "c"]
    await outbox.close()


async def test_deltas_of_one_block_are_one_event_and_an_empty_one_is_nothing() -> None:
    store = MemoryStore()
    outbox = await opened(store)
    for text in ("", "b", "\ud83d", "\ude00", ""):
        outbox.put([ev.BlockDelta(MESSAGE, 0, text)])
    await outbox.flush()
    assert [said["text"] for said in await stored(store)] == ["ab\U0001f600"]
    await outbox.close()


@pytest.mark.parametrize("text", [b"b", None, 3, ["b"]])
async def test_what_is_no_text_is_refused_and_what_waits_is_whole(text: Any) -> None:
    store = MemoryStore()
    outbox = await opened(store)
    with pytest.raises(InvalidEvent):
        outbox.put([ev.BlockDelta(MESSAGE, 0, text)])
    await outbox.flush()
    assert [said["text"] for said in await stored(store)] == ["a"]
    await outbox.close()


async def test_a_kilobyte_of_short_deltas_goes_without_waiting_for_its_time() -> None:
    store = MemoryStore()
    outbox = await opened(store)
    with anyio.fail_after(5):
        for _ in range(1024):
            outbox.put([ev.BlockDelta(MESSAGE, 0, "b")])
        while not outbox.acknowledged_seq:
            await asyncio.sleep(0)
    assert len((await stored(store))[0]["text"]) >= 1024
    await outbox.close()


async def test_a_delta_is_durable_in_time_however_many_come_behind_it() -> None:
    store = MemoryStore()
    outbox = await opened(store, flush_ms=50)
    with anyio.fail_after(5):
        while not outbox.acknowledged_seq:
            outbox.put([ev.BlockDelta(MESSAGE, 0, "b")])
            await asyncio.sleep(0.005)
    await outbox.close()
