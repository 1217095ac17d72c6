"""Cases of `append`: numbers, expectations, safe retries, producers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from stream import AppendResult, Bounds, InvalidEvent, NewEvent, Producer, ProducerFenced, ProducerGap, SeqConflict
from stream.testing.case import case

if TYPE_CHECKING:
    from stream import EventStore
    from stream.testing.backend import Backend


def new(*texts: str) -> list[NewEvent]:
    return [NewEvent("text", text.encode()) for text in texts]


async def texts(store: EventStore, stream_id: str = "s", *, after: int = 0) -> list[str]:
    return [event.data.decode() for event in await store.read(stream_id, after=after)]


@case(2)
async def numbers_begin_at_one_and_have_no_gaps(store: EventStore) -> None:
    assert await store.append("s", new("a", "b")) == AppendResult(1, 2)
    assert await store.append("s", new("c")) == AppendResult(3, 3)
    assert await store.append("other", new("x")) == AppendResult(1, 1)
    assert [event.seq for event in await store.read("s")] == [1, 2, 3]


@case(1)
async def what_was_acknowledged_is_there_after_reopening(backend: Backend, store: EventStore) -> None:
    for n in range(5):
        await store.append("s", new(str(n)))
        store = await backend.reopen(store)
        assert await texts(store) == [str(m) for m in range(n + 1)]
        assert await store.append("s", []) == AppendResult(n + 2, n + 1)


@case(2)
async def an_empty_append_stores_nothing_and_names_the_empty_place(store: EventStore) -> None:
    assert await store.append("s", []) == AppendResult(1, 0)
    await store.append("s", new("a"))
    assert await store.append("s", [], expected_seq=1) == AppendResult(2, 1)
    with pytest.raises(SeqConflict):
        await store.append("s", [], expected_seq=5)
    assert await store.bounds("s") == Bounds(0, 1)


@case(3, each={"expected": [0, 2, 4, 8, 2**62]})
async def a_wrong_expectation_conflicts_and_stores_nothing(store: EventStore, expected: int) -> None:
    """Known fault K17."""
    await store.append("s", new("a", "b", "c"))
    with pytest.raises(SeqConflict) as refused:
        await store.append("s", new("x"), expected_seq=expected)
    assert (refused.value.stream_id, refused.value.expected, refused.value.head) == ("s", expected, 3)
    assert await texts(store) == ["a", "b", "c"]
    assert await store.append("s", new("d"), expected_seq=3) == AppendResult(4, 4)


@case(3, each={"expected": [-1, True, 1.0, "1", 2**63, 2**63 - 1]})
async def an_expectation_that_is_no_position_is_refused(store: EventStore, expected: int) -> None:
    with pytest.raises(ValueError, match="expected_seq"):
        await store.append("s", new("x"), expected_seq=expected)
    assert await store.bounds("s") == Bounds(0, 0)


@case(3)
async def of_many_writers_with_one_expectation_one_wins(store: EventStore) -> None:
    """Known fault K65."""
    tries = [store.append("s", new(str(n)), expected_seq=0) for n in range(20)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert [result for result in results if isinstance(result, AppendResult)] == [AppendResult(1, 1)]
    assert sum(isinstance(result, SeqConflict) and result.head == 1 for result in results) == 19


@case(2)
async def a_hundred_appends_at_once_get_a_hundred_numbers(store: EventStore) -> None:
    """Known faults K16, K20."""
    results = await asyncio.gather(*(store.append("s", new(str(n))) for n in range(100)))
    assert sorted(result.first_seq for result in results) == list(range(1, 101))
    stored = await texts(store)
    assert all(stored[result.first_seq - 1] == str(n) for n, result in enumerate(results))  # acknowledged = stored


@case(1)
async def one_refused_append_does_not_harm_those_beside_it(store: EventStore) -> None:
    tries = [store.append("s", new(str(n)), expected_seq=77 if n % 3 == 0 else None) for n in range(30)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, SeqConflict) for result in results) == 10
    stored = {result.first_seq: str(n) for n, result in enumerate(results) if isinstance(result, AppendResult)}
    assert {event.seq: event.data.decode() for event in await store.read("s")} == stored
    assert sorted(stored) == list(range(1, 21))


@case(3)
async def a_named_append_repeated_gets_its_first_answer(backend: Backend, store: EventStore) -> None:
    first = await store.append("s", new("a", "b"), expected_seq=0, append_id="i")
    await store.append("s", new("later") * 1000)
    assert await store.append("s", new("a", "b"), expected_seq=0, append_id="i") == first
    store = await backend.reopen(store)
    assert await store.append("s", new("a", "b"), expected_seq=0, append_id="i") == first
    assert (await store.bounds("s")).head == 1002


@case(3, each={"other": [["b"], ["a", "a"], [], ["ab"]]})
async def a_named_append_with_other_content_conflicts(store: EventStore, other: list[str]) -> None:
    await store.append("s", new("a"), expected_seq=0, append_id="i")
    with pytest.raises(SeqConflict):
        await store.append("s", new(*other), expected_seq=0, append_id="i")
    assert await texts(store) == ["a"]


@case(3)
async def a_named_append_whose_rows_are_gone_conflicts(store: EventStore) -> None:
    await store.append("s", new("a"), expected_seq=0, append_id="i")
    await store.truncate("s", through=1)
    with pytest.raises(SeqConflict):
        await store.append("s", new("a"), expected_seq=0, append_id="i")


@case(3)
async def the_same_named_append_many_times_at_once_is_stored_once(store: EventStore) -> None:
    tries = [store.append("s", new("a", "b"), expected_seq=0, append_id="i") for _ in range(20)]
    assert set(await asyncio.gather(*tries)) == {AppendResult(1, 2)}
    assert await texts(store) == ["a", "b"]


@case(3)
async def an_append_id_needs_an_expectation_and_no_producer(store: EventStore) -> None:
    with pytest.raises(ValueError, match="append_id"):
        await store.append("s", new("a"), append_id="i")
    with pytest.raises(ValueError, match="append_id"):
        await store.append("s", new("a"), expected_seq=0, append_id="i", producer=Producer("p", 0, 0))
    assert await store.bounds("s") == Bounds(0, 0)


@case(3)
async def a_producers_repeat_is_acknowledged_once_stored(backend: Backend, store: EventStore) -> None:
    assert await store.append("s", new("a", "b"), producer=Producer("p", 0, 0)) == AppendResult(1, 2)
    assert await store.append("s", new("c"), producer=Producer("p", 0, 1)) == AppendResult(3, 3)
    for _ in range(2):
        assert await store.append("s", new("c"), producer=Producer("p", 0, 1)) == AppendResult(3, 3, duplicate=True)
        assert await store.append("s", new("a", "b"), producer=Producer("p", 0, 0)) == AppendResult(4, 3, duplicate=True)
        assert await store.producer("s", "p") == Producer("p", 0, 1)
        store = await backend.reopen(store)
    assert await texts(store) == ["a", "b", "c"]


@case(3)
async def a_producer_with_a_gap_or_an_older_epoch_is_refused(store: EventStore) -> None:
    with pytest.raises(ProducerGap) as gap:
        await store.append("s", new("x"), producer=Producer("p", 0, 3))
    assert gap.value.expected == 0
    assert await store.producer("s", "p") is None
    await store.append("s", new("a"), producer=Producer("p", 5, 0))
    with pytest.raises(ProducerGap) as gap:
        await store.append("s", new("x"), producer=Producer("p", 5, 2))
    assert gap.value.expected == 1
    with pytest.raises(ProducerGap) as gap:
        await store.append("s", new("x"), producer=Producer("p", 6, 1))
    assert gap.value.expected == 0
    with pytest.raises(ProducerFenced) as fenced:
        await store.append("s", new("x"), producer=Producer("p", 4, 0), expected_seq=99)  # decided before expected_seq
    assert fenced.value.epoch == 5
    assert await texts(store) == ["a"]


@case(3)
async def a_producer_belongs_to_its_stream(store: EventStore) -> None:
    await store.append("s", new("a"), producer=Producer("p", 3, 0))
    assert await store.producer("t", "p") is None
    assert await store.append("t", new("b"), producer=Producer("p", 0, 0)) == AppendResult(1, 1)


@case(3)
async def a_conflict_does_not_move_the_watermark(store: EventStore) -> None:
    await store.append("s", new("a"))
    with pytest.raises(SeqConflict):
        await store.append("s", new("x"), expected_seq=0, producer=Producer("p", 0, 0))
    assert await store.producer("s", "p") is None
    assert await store.append("s", new("b"), expected_seq=1, producer=Producer("p", 0, 0)) == AppendResult(2, 2)
    repeat = await store.append("s", new("b"), expected_seq=1, producer=Producer("p", 0, 0))
    assert repeat == AppendResult(2, 2, duplicate=True)


@case(3)
async def the_same_producer_append_many_times_at_once_is_stored_once(store: EventStore) -> None:
    results = await asyncio.gather(*(store.append("s", new("a"), producer=Producer("p", 0, 0)) for _ in range(20)))
    assert sorted(result.duplicate for result in results) == [False] + [True] * 19
    assert {(result.first_seq, result.last_seq) for result in results} == {(1, 1)}


@case(3)
async def a_producers_append_is_never_empty(store: EventStore) -> None:
    with pytest.raises(ValueError, match="at least one event"):
        await store.append("s", [], producer=Producer("p", 0, 0))


@case(3, each={"producer": [Producer("p", -1, 0), Producer("p", 0, -1), Producer("p", 2**63, 0), Producer("p", 0, True)]})
async def a_producer_with_odd_numbers_is_refused(store: EventStore, producer: Producer) -> None:
    with pytest.raises(ValueError, match="producer"):
        await store.append("s", new("a"), producer=producer)


@case(2, needs={"large"})
async def batches_of_every_size_are_whole(store: EventStore) -> None:
    """Known fault K42."""
    head = 0
    for size in (1, 999, 1_000, 1_001, 10_000):
        result = await store.append("s", [NewEvent("n", str(n).encode()) for n in range(size)])
        assert result == AppendResult(head + 1, head + size)
        assert await store.read("s", after=head, limit=1) != []
        head += size
    for size in (10_001, 100_000):
        with pytest.raises(InvalidEvent):
            await store.append("s", [NewEvent("n", b"")] * size)
    assert await store.bounds("s") == Bounds(0, head)
