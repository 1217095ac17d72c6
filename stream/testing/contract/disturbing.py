"""Cases of calls that fail, are cancelled or repeated: whole or absent, and stored once."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from stream import AppendResult, NewEvent, Producer, SeqConflict, Snapshot
from stream.testing.case import case
from stream.testing.faults import InjectedFault, cancel_after, disturb

if TYPE_CHECKING:
    from stream import EventStore
    from stream.testing.backend import Backend

STEPS = range(12)


def batch(name: str) -> list[NewEvent]:
    """Three events that belong together."""
    return [NewEvent(str(part), name.encode()) for part in range(3)]


async def stored(store: EventStore, stream_id: str = "s") -> list[str]:
    """The names of the batches in order; asserts that each is whole, and that no number is missing."""
    events = await store.read(stream_id, limit=100_000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events] == ["0", "1", "2"] * (len(events) // 3)
    names = [event.data.decode() for event in events[::3]]
    assert [event.data.decode() for event in events] == [name for name in names for _ in range(3)]
    return names


@case(1, each={"steps": STEPS})
async def an_append_cancelled_after_any_number_of_steps_is_whole_or_absent(store: EventStore, steps: int) -> None:
    """Known faults K37, K52."""
    acknowledged = []
    for n in range(5):
        if await cancel_after(steps, store.append("s", batch(f"cancelled {n}"))) is not None:
            acknowledged.append(f"cancelled {n}")
        await store.append("s", batch(f"after {n}"))
        acknowledged.append(f"after {n}")
    names = await stored(store)
    assert len(set(names)) == len(names)
    assert [name for name in names if name in acknowledged] == acknowledged


@case(3, each={"steps": STEPS})
async def a_cancelled_append_that_is_repeated_is_stored_once(store: EventStore, steps: int) -> None:
    for n in range(4):
        for stream_id in ("s", "t"):
            producer = Producer("p", 0, n) if stream_id == "s" else None
            named = {} if producer else {"expected_seq": 3 * n, "append_id": str(n)}
            for again in (False, True):
                call = store.append(stream_id, batch(str(n)), producer=producer, **named)  # type: ignore[arg-type]
                answer = await call if again else await cancel_after(steps, call)
                assert answer is None or (answer.first_seq, answer.last_seq) == (3 * n + 1, 3 * n + 3)
    assert await stored(store) == await stored(store, "t") == ["0", "1", "2", "3"]


@case(1, 2, each={"steps": STEPS})
async def a_cancelled_truncation_deletion_or_snapshot_is_whole_or_absent(store: EventStore, steps: int) -> None:
    """Known fault K37."""
    for n in range(2):
        await store.append("s", batch(str(n)))
        head = (await store.bounds("s")).head
        for call in (
            store.snapshots.save(Snapshot("s", "p", 1, head, 0, b"state")),
            store.truncate("s", through=head - 1),
            store.snapshots.delete("s", "p"),
            store.delete("s"),
        ):
            await cancel_after(steps, call)
            await store.append("t", batch("after"))  # behind whatever was begun
            bounds = await store.bounds("s")
            assert bounds.head == head
            assert [event.seq for event in await store.read("s", after=bounds.floor)] == list(range(bounds.floor + 1, head + 1))
            snapshot = await store.snapshots.load("s", "p")
            assert snapshot is None or snapshot.last_seq == head
    assert await stored(store, "t") == ["after"] * 8


@case(1, each={"steps": STEPS})
async def what_is_acknowledged_behind_a_cancelled_deletion_is_not_deleted_by_it(store: EventStore, steps: int) -> None:
    for n in range(5):
        await store.append("s", batch(f"before {n}"))
        head = (await store.bounds("s")).head
        await cancel_after(steps, store.delete("s"))
        await store.append("s", batch(f"behind {n}"))
        await asyncio.sleep(0.01)  # for whatever is still on its way
        bounds = await store.bounds("s")
        assert bounds.floor <= head
        assert [event.data for event in await store.read("s", after=head)] == [f"behind {n}".encode()] * 3


@case(3, each={"named": [False, True]})
async def a_failed_append_that_is_repeated_is_stored_once(store: EventStore, *, named: bool) -> None:
    """Whether it failed before or after it was stored, the caller can't know."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    faulty = disturb(store, random.Random(seed), failing=0.5)
    for n in range(30):
        while True:
            with suppress(InjectedFault):
                if named:
                    answer = await faulty.append("s", batch(str(n)), expected_seq=3 * n, append_id="i")
                else:
                    answer = await faulty.append("s", batch(str(n)), producer=Producer("p", 0, n))
                assert (answer.first_seq, answer.last_seq) == (3 * n + 1, 3 * n + 3)
                break
    assert await stored(store) == [str(n) for n in range(30)]


SITUATIONS = ["at once", "others", "truncation", "deletion", "reopening"]


async def bring_about(situation: str, store: EventStore, backend: Backend) -> EventStore:
    """What may have happened to stream `s` before somebody repeats an append."""
    if situation == "others":
        await store.append("s", [NewEvent("n", b"")] * 900)
    elif situation == "truncation":  # in the middle of the append
        await store.truncate("s", through=4)
    elif situation == "deletion":
        await store.delete("s")
    elif situation == "reopening":
        await store.append("s", batch("later"))
        return await backend.reopen(store)
    return store


REPEATS = {
    "same": batch("it"),
    "prefix": batch("it")[:2],
    "suffix": batch("it")[1:],
    "overlap": [*batch("it")[1:], NewEvent("3", b"it")],
    "longer": [*batch("it"), NewEvent("3", b"it")],
    "other": batch("ti"),
}


@case(3, each={"situation": SITUATIONS, "repeat": list(REPEATS)})
async def a_repeated_append_has_one_answer_in_every_situation(
    store: EventStore, backend: Backend, situation: str, repeat: str
) -> None:
    """Known fault K18, named: the same content is answered as before; all else, and what is gone, conflicts."""
    await store.append("s", batch("before"))
    first = await store.append("s", batch("it"), expected_seq=3, append_id="i")
    store = await bring_about(situation, store, backend)
    head = (await store.bounds("s")).head
    if repeat == "same" and situation not in {"truncation", "deletion"}:
        assert await store.append("s", REPEATS[repeat], expected_seq=3, append_id="i") == first == AppendResult(4, 6)
    else:
        with pytest.raises(SeqConflict):
            await store.append("s", REPEATS[repeat], expected_seq=3, append_id="i")
    with pytest.raises(SeqConflict):  # the same content under another name, or in another place, is another append
        await store.append("s", batch("it"), expected_seq=3, append_id="j")
    with pytest.raises(SeqConflict):
        await store.append("s", batch("it"), expected_seq=2, append_id="i")
    assert (await store.bounds("s")).head == head


@case(3, each={"situation": SITUATIONS, "repeat": list(REPEATS)})
async def a_producers_repeat_has_one_answer_in_every_situation(
    store: EventStore, backend: Backend, situation: str, repeat: str
) -> None:
    """Known fault K18, by producer: its number decides, whatever the content is and wherever the events are now."""
    await store.append("s", batch("before"), producer=Producer("p", 0, 0))
    await store.append("s", batch("it"), producer=Producer("p", 0, 1), expected_seq=3)
    store = await bring_about(situation, store, backend)
    head = (await store.bounds("s")).head
    for expected in (None, 3, 77):
        answer = await store.append("s", REPEATS[repeat], producer=Producer("p", 0, 1), expected_seq=expected)
        assert answer == AppendResult(4, 6, duplicate=True)
        answer = await store.append("s", REPEATS[repeat], producer=Producer("p", 0, 0), expected_seq=expected)
        assert answer == AppendResult(head + 1, head, duplicate=True)
    assert (await store.bounds("s")).head == head


@case(3, each={"situation": SITUATIONS})
async def a_repeat_without_a_name_is_another_append(store: EventStore, backend: Backend, situation: str) -> None:
    """Known fault K18, any and exact: nothing is guessed from content."""
    await store.append("s", batch("before"))
    await store.append("s", batch("it"), expected_seq=3)
    store = await bring_about(situation, store, backend)
    head = (await store.bounds("s")).head
    with pytest.raises(SeqConflict):
        await store.append("s", batch("it"), expected_seq=3)
    assert await store.append("s", batch("it")) == AppendResult(head + 1, head + 3)
    assert [event.data for event in await store.read("s", after=head)] == [b"it"] * 3


@case(1, 2, each={"seed": list(range(8))})
async def what_was_acknowledged_in_any_interleaving_is_where_it_says(store: EventStore, seed: int) -> None:
    """Known faults K16, K20: appends, cancelled ones too, beside truncations, at random."""
    chance = random.Random(seed)
    answers: dict[str, AppendResult] = {}
    floors = [0]

    async def write(name: str) -> None:
        for n in range(12):
            steps = chance.choice([*STEPS, 10_000, 10_000, 10_000])
            answer = await cancel_after(steps, store.append("s", batch(f"{name}.{n}")))
            if answer is not None:
                answers[f"{name}.{n}"] = answer

    async def let_go() -> None:
        for _ in range(6):
            await asyncio.sleep(0)
            floors.append((await store.truncate("s", through=chance.randrange((await store.bounds("s")).head + 1))).floor)

    await asyncio.gather(write("a"), write("b"), write("c"), let_go())
    await store.append("s", batch("last"))  # behind the cancelled ones that are stored all the same
    bounds = await store.bounds("s")
    assert bounds.floor == max(floors) == floors[-1]
    assert floors == sorted(floors)
    events = await store.read("s", after=bounds.floor)
    assert [event.seq for event in events] == list(range(bounds.floor + 1, bounds.head + 1))
    at = {event.seq: (event.type, event.data.decode()) for event in events}
    for name, answer in answers.items():
        for part, seq in enumerate(range(answer.first_seq, answer.last_seq + 1)):
            assert seq <= bounds.floor or at[seq] == (str(part), name)
