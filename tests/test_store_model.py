"""Random operations on SQLite, with the memory store as the model: every answer is the same."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from stream import NewEvent, Producer, Snapshot, StreamError, retain
from tests.backends import Memory, Sqlite

if TYPE_CHECKING:
    from tests.backends import Backend, Store

Operation = tuple[str, dict[str, Any]]

STREAMS = st.sampled_from(["s", "t"])
EVENTS = st.lists(st.builds(NewEvent, st.sampled_from(["a", "b"]), st.binary(max_size=3)), max_size=4)
SEQS = st.integers(0, 12)
PRODUCERS = st.builds(Producer, st.sampled_from(["p", "q"]), st.integers(0, 2), st.integers(0, 3))


def operation(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    return st.tuples(st.just(name), st.fixed_dictionaries(fields))


OPERATIONS = st.one_of(
    operation("append", stream_id=STREAMS, events=EVENTS),
    operation("append", stream_id=STREAMS, events=EVENTS, expected_seq=SEQS),
    operation("append", stream_id=STREAMS, events=EVENTS, expected_seq=SEQS, append_id=st.sampled_from(["i", "j"])),
    operation("append", stream_id=STREAMS, events=EVENTS, producer=PRODUCERS),
    operation("append", stream_id=STREAMS, events=EVENTS, producer=PRODUCERS, expected_seq=SEQS),
    operation("read", stream_id=STREAMS, after=SEQS, limit=st.integers(0, 6)),
    operation("producer", stream_id=STREAMS, producer_id=st.sampled_from(["p", "q"])),
    operation("truncate", stream_id=STREAMS, through=SEQS),
    operation("delete", stream_id=STREAMS),
    operation("save", stream_id=STREAMS, last_seq=SEQS, state=st.binary(max_size=2)),
    operation("load", stream_id=STREAMS),
    operation("list", stream_id=STREAMS),
    operation("delete_snapshot", stream_id=STREAMS, last_seq=SEQS | st.none()),
    operation("retain", stream_id=STREAMS, keep=st.integers(1, 2)),
    operation("damage", stream_id=STREAMS),
    operation("reopen"),
)


async def perform(backend: Backend, store: Store, name: str, fields: dict[str, Any]) -> Any:
    stream_id = fields["stream_id"]
    match name:
        case "append" | "read" | "producer" | "truncate" | "delete":
            return await getattr(store, name)(**fields)
        case "save":
            return await store.snapshots.save(Snapshot(stream_id, "p", 1, fields["last_seq"], 0, fields["state"]))
        case "load":
            return await store.snapshots.load(stream_id, "p")
        case "list":
            return await store.snapshots.list(stream_id)
        case "delete_snapshot":
            return await store.snapshots.delete(stream_id, "p", fields["last_seq"])
        case "retain":
            return await retain(store.snapshots, stream_id, "p", keep=fields["keep"])
        case "damage":
            for info in [info for info in await store.snapshots.list(stream_id) if info.readable][-1:]:
                await backend.damage_snapshot(stream_id, "p", info.last_seq)
            return None
    raise AssertionError(name)


async def answers(backend: Backend, operations: list[Operation]) -> list[Any]:
    """What each operation gave, the bounds after it, and at the end all that is there."""
    found: list[Any] = []
    store = await backend.open(clock_ms=lambda: 0)
    try:
        for name, fields in operations:
            if name == "reopen":
                store = await backend.reopen(store)
                continue
            try:
                result = await perform(backend, store, name, fields)
            except (StreamError, ValueError) as error:
                result = type(error), vars(error)
            found.append((name, result, await store.bounds(fields["stream_id"])))
        found.append([info async for info in store.streams()])
        for stream_id in ("s", "t"):
            found.append(await store.read(stream_id, after=(await store.bounds(stream_id)).floor))
            found.append([await store.producer(stream_id, name) for name in ("p", "q")])
    finally:
        await backend.close()
    return found


@given(st.lists(OPERATIONS, max_size=25))
@settings(max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
def test_sqlite_answers_as_memory_does(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = asyncio.run(answers(Memory(Path(folder)), operations))
        real = asyncio.run(answers(Sqlite(Path(folder)), operations))
    for number, (expected, got) in enumerate(zip(model, real, strict=True)):
        note(f"{number}: {expected}")
        assert got == expected
