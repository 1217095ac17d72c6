"""Cases of odd ids, limits, nasty payloads, a clock that runs backwards, callers that change things."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from stream import AppendResult, Bounds, InvalidEvent, InvalidId, NewEvent, Producer, Snapshot
from stream.limits import MAX_APPEND_BYTES, MAX_APPEND_EVENTS, MAX_EVENT_BYTES
from stream.testing.case import case

if TYPE_CHECKING:
    from stream import EventStore
    from stream.testing.backend import Backend


GOOD_IDS = ["a", "é" * 128, "x" * 256, " ", "../..", "';--", "\x01", "\u2028", "👨‍👩‍👧", "%_?*", "\ufeff", "SELECT 1", "日本"]
ODD_IDS = ["", "a\0b", "\0", "x" * 257, "é" * 129, "x" * 10_000, "\ud800", "a\udfff", "\ud83d", 7, None, b"a"]


@case(14, each={"stream_id": GOOD_IDS})
async def any_text_of_256_bytes_is_an_id(backend: Backend, store: EventStore, stream_id: str) -> None:
    assert await store.append(stream_id, [NewEvent("t", b"x")], producer=Producer(stream_id, 0, 0)) == AppendResult(1, 1)
    await store.append(stream_id, [NewEvent("t", b"y")], expected_seq=1, append_id=stream_id)
    await store.snapshots.save(Snapshot(stream_id, stream_id, 1, 1, 0, b"state"))
    store = await backend.reopen(store)
    assert [event.stream_id for event in await store.read(stream_id)] == [stream_id] * 2
    assert await store.producer(stream_id, stream_id) == Producer(stream_id, 0, 0)
    assert await store.snapshots.load(stream_id, stream_id) is not None
    assert [info.stream_id async for info in store.streams(prefix=stream_id)] == [stream_id]
    await store.delete(stream_id)
    assert await store.bounds(stream_id) == Bounds(2, 2, origin=2)


@case(14, each={"odd": ODD_IDS})
async def an_odd_id_is_refused_everywhere_with_a_short_message(store: EventStore, odd: str) -> None:
    await store.append("s", [NewEvent("t", b"x")])
    event = [NewEvent("t", b"y")]
    for call in (
        lambda: store.append(odd, event),
        lambda: store.append("s", event, producer=Producer(odd, 0, 0)),
        lambda: store.append("s", event, expected_seq=1, append_id=odd or ""),
        lambda: store.read(odd),
        lambda: store.bounds(odd),
        lambda: store.producer(odd, "p"),
        lambda: store.producer("s", odd),
        lambda: store.wait(odd, after=0),
        lambda: store.truncate(odd, through=0),
        lambda: store.delete(odd),
        lambda: store.snapshots.save(Snapshot(odd, "p", 1, 1, 0, b"")),
        lambda: store.snapshots.save(Snapshot("s", odd, 1, 1, 0, b"")),
        lambda: store.snapshots.load(odd, "p"),
        lambda: store.snapshots.load("s", odd),
        lambda: store.snapshots.list(odd),
        lambda: store.snapshots.delete(odd, "p"),
        lambda: store.snapshots.delete("s", odd),
        lambda: anext(store.streams(prefix=odd or "\0")),
    ):
        with pytest.raises(InvalidId) as refused:
            await call()
        assert len(str(refused.value)) < 200
    assert await store.bounds("s") == Bounds(0, 1)
    assert [info.stream_id async for info in store.streams()] == ["s"]


@case(14, each={"kind": ["", "a\0b", "x" * 65, "é" * 33, "\ud800", 7, None]})
async def an_odd_type_is_refused_by_its_index_and_nothing_is_stored(store: EventStore, kind: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        await store.append("s", [NewEvent("t", b"x"), NewEvent(kind, b"y"), NewEvent("", b"z")])
    assert refused.value.index == 1
    assert await store.bounds("s") == Bounds(0, 0)


@case(14, each={"data": [bytearray(b"x"), memoryview(b"x"), "x", None, 1]})
async def data_that_can_change_is_refused(store: EventStore, data: bytes) -> None:
    with pytest.raises(InvalidEvent, match="not bytes") as refused:
        await store.append("s", [NewEvent("t", data)])
    assert refused.value.index == 0


@case(14)
async def what_a_store_says_that_it_takes_it_takes_and_no_more(store: EventStore) -> None:
    limits = store.limits
    assert 0 < limits.event_bytes <= MAX_EVENT_BYTES
    assert 0 < limits.append_events <= MAX_APPEND_EVENTS
    assert 0 < limits.append_bytes <= MAX_APPEND_BYTES
    share = min(limits.append_bytes // limits.append_events, 1024)
    head = limits.append_events
    assert await store.append("s", [NewEvent("t" * 64, bytes(share))] * head) == AppendResult(1, head)
    with pytest.raises(InvalidEvent, match=str(head)) as refused:
        await store.append("s", [NewEvent("t", b"")] * (head + 1))
    assert refused.value.index == head
    if limits.event_bytes < MAX_EVENT_BYTES:  # or it is asked by cases that need the flag `large`
        data = random.Random(1).randbytes(limits.event_bytes)
        assert (
            await store.append("s", [NewEvent("t" * 64, data)], producer=Producer("x" * 256, 2**62, 0))
        ).last_seq == head + 1
        assert [event.data for event in await store.read("s", after=head)] == [data]
        with pytest.raises(InvalidEvent, match=str(limits.event_bytes)):
            await store.append("s", [NewEvent("t", data + b"x")])
        rest = limits.append_bytes - limits.event_bytes
        with pytest.raises(InvalidEvent) as refused:
            await store.append("s", [NewEvent("t", data), NewEvent("t", bytes(rest + 1))])
        assert refused.value.index == 1
    assert (await store.bounds("s")).head == head + (limits.event_bytes < MAX_EVENT_BYTES)


@case(14, needs={"large"})
async def what_is_too_large_is_refused_whole(store: EventStore) -> None:
    half = NewEvent("t", bytes(MAX_APPEND_BYTES // 2))
    with pytest.raises(InvalidEvent) as refused:
        await store.append("s", [half, half, NewEvent("t", b"x")])
    assert refused.value.index == 2
    with pytest.raises(InvalidEvent, match=str(MAX_EVENT_BYTES)):
        await store.append("s", [NewEvent("t", bytes(MAX_EVENT_BYTES + 1))])
    assert await store.bounds("s") == Bounds(0, 0)


@case(14, needs={"large"})
async def the_largest_event_comes_back_exactly(store: EventStore) -> None:
    data = random.Random(1).randbytes(1 << 20) * (MAX_EVENT_BYTES >> 20)
    await store.append("s", [NewEvent("t" * 64, data)])
    [event] = await store.read("s")
    assert event.data == data


NASTY = [
    b"",
    b"\0",
    b"\0" * 5000,
    bytes(range(256)),
    b"\xff\xfe\x00\xd8",
    b"\xed\xa0\x80",
    b'"\\ud800"',
    b"1e400",
    b'{"a": 1, "a": 2}',
    str(2**200).encode(),
    "e\u0301 \u202e \u2028 👨‍👩‍👧".encode(),
    b"\r\n\t ",
    b"'; DROP TABLE chunks; --",
    b"\x93\xc1",
    b"x" * (10 << 20),
]


@case(14, needs={"large"})
async def nasty_payloads_come_back_byte_for_byte(backend: Backend, store: EventStore) -> None:
    """Known fault K43."""
    for data in NASTY:
        await store.append("one by one", [NewEvent("t", data)])
    await store.append("at once", [NewEvent("t", data) for data in NASTY])
    store = await backend.reopen(store)
    for stream_id in ("one by one", "at once"):
        assert [event.data for event in await store.read(stream_id)] == NASTY


@case(14)
async def random_bytes_come_back_byte_for_byte(store: EventStore) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    given = [[chance.randbytes(chance.randrange(300)) for _ in range(chance.randrange(1, 20))] for _ in range(40)]
    for batch in given:
        await store.append("s", [NewEvent("t", data) for data in batch])
    assert [event.data for event in await store.read("s")] == [data for batch in given for data in batch]


@case(5)
async def order_is_by_number_when_the_clock_runs_backwards(backend: Backend) -> None:
    """Known faults K21, K64."""
    ticks = iter([3_600_000 * hour for hour in (5, 4, 9, 1, 1, 7)])
    store = await backend.open(clock_ms=lambda: next(ticks))
    for n in range(6):
        await store.append("s", [NewEvent("t", str(n).encode())])
    events = await store.read("s")
    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
    assert [event.data for event in events] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [event.at // 3_600_000 for event in events] == [5, 4, 9, 1, 1, 7]


@case(14)
async def nothing_a_caller_changes_reaches_the_store(store: EventStore) -> None:
    """Known fault K13."""
    given = [NewEvent("t", b"a"), NewEvent("t", b"b")]
    await store.append("s", given)
    given[0] = NewEvent("t", b"changed")
    events = await store.read("s")
    expected = list(events)
    events.clear()
    (await store.read("s")).append(expected[0])
    with pytest.raises(AttributeError):
        expected[0].data = b"changed"  # type: ignore[misc]
    await store.append("s", [NewEvent("t", b"c")])
    assert (await store.read("s"))[:2] == expected
    await store.snapshots.save(Snapshot("s", "p", 1, 1, 0, b"state"))
    (await store.snapshots.list("s")).clear()
    with pytest.raises(AttributeError):
        (await store.snapshots.load("s", "p")).state = b"changed"  # type: ignore[misc,union-attr]
    assert await store.snapshots.load("s", "p") == Snapshot("s", "p", 1, 1, 0, b"state")
