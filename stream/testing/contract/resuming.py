"""Cases of stores over one place of which one is stopped and goes on later, or has a clock that is wrong."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import anyio
import pytest

from stream import Bounds, NewEvent, Producer, ProducerFenced, SeqConflict, Snapshot, follow
from stream.clock import now_ms
from stream.testing.case import case
from stream.testing.faults import Held, backwards_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from stream import EventStore
    from stream.testing.backend import Backend

DAY_MS: Final = 86_400_000
STEPS: Final = range(6)
CALLS: Final[dict[str, Callable[[EventStore], Coroutine[Any, Any, object]]]] = {
    "append": lambda store: store.append("s", batch("held")),
    "append behind what is known": lambda store: store.append("s", batch("held"), expected_seq=3, append_id="held"),
    "append of a producer": lambda store: store.append("s", batch("held"), producer=Producer("p", 0, 0)),
    "truncate": lambda store: store.truncate("s", through=2),
    "delete": lambda store: store.delete("s", expected_head=3),
    "save": lambda store: store.snapshots.save(snapshot(3, b"held")),
}
LIVES: Final = ("the same", "a new one")


def batch(name: str) -> list[NewEvent]:
    return [NewEvent(name, b"%d" % part) for part in range(3)]


def snapshot(last_seq: int, state: bytes) -> Snapshot:
    return Snapshot("s", "p", 1, last_seq, 0, state)


@case(1, 2, 3, 5, 6, needs={"share"}, each={"steps": STEPS, "what": [*CALLS], "life": LIVES})
async def who_is_stopped_and_goes_on_undoes_nothing_that_came_since(backend: Backend, steps: int, what: str, life: str) -> None:
    """A call is held up at each point where it waits, while another store goes on, in a new life of the stream or not."""
    stopped, other = await backend.open(), await backend.open()
    await stopped.append("s", batch("old"))
    async with Held(CALLS[what](stopped), steps) as held:
        if life == "a new one":
            await other.delete("s")
        since = await other.append("s", batch("since"))
        await other.snapshots.save(snapshot(since.last_seq, b"since"))
        before = await other.bounds("s")
        error = await held.go_on()
    assert error is None or isinstance(error, SeqConflict | ValueError), error
    for store in (stopped, other):
        now = await store.bounds("s")
        assert now.floor >= before.floor
        assert now.origin == before.origin
        assert now.floor < since.first_seq
        there = {event.seq: (event.type, event.data) for event in await store.read("s", after=now.floor)}
        assert [*there] == list(range(now.floor + 1, now.head + 1))
        expected = [("since", b"%d" % part) for part in range(3)]
        assert [there[seq] for seq in range(since.first_seq, since.last_seq + 1)] == expected
        kept = [kind for kind, _ in there.values()].count("held")
        assert kept == 3 or not ("append" in what and error is None and life == "the same")
        assert kept in ({0} if error else {0, 3})
        newest = await store.snapshots.load("s", "p")
        assert newest is not None
        assert newest.state == b"since"


@case(2, 3, 5, 6, 9, needs={"share"})
async def clocks_that_are_wrong_change_no_order_and_bar_nobody(backend: Backend) -> None:
    """A day behind, a day ahead, backwards: nothing is decided by the time, and what `at` says is information."""
    late = await backend.open(clock_ms=lambda: now_ms() - DAY_MS)
    early = await backend.open(clock_ms=lambda: now_ms() + DAY_MS)
    backwards = await backend.open(clock_ms=backwards_clock())
    stores = (early, late, backwards)
    for number, store in enumerate([*stores, *reversed(stores)]):
        result = await store.append("s", [NewEvent("t", b"%d" % number)], expected_seq=number)
        assert result.first_seq == number + 1
        await store.snapshots.save(Snapshot("s", "p", 1, number + 1, 0, b"%d" % number))
    for store in stores:
        assert [event.data for event in await store.read("s")] == [b"%d" % number for number in range(6)]
        newest = await store.snapshots.load("s", "p")
        assert newest is not None
        assert newest.last_seq == 6
    await early.append("s", [NewEvent("t", b"6")], producer=Producer("run", 0, 0))
    await late.append("s", [NewEvent("t", b"7")], producer=Producer("run", 1, 0))
    with pytest.raises(ProducerFenced):
        await early.append("s", [NewEvent("t", b"8")], producer=Producer("run", 0, 1))
    await early.truncate("s", through=4)
    assert await late.truncate("s", through=2) == Bounds(4, 8)
    with anyio.fail_after(20):
        async with aclosing(follow(late, "s", after=4)) as events:  # type: ignore[type-var]
            assert [(await anext(events)).seq for _ in range(4)] == [5, 6, 7, 8]
        await early.delete("s", expected_head=8)
        assert (await backwards.append("s", [NewEvent("t", b"new")])).first_seq == 9
        await late.wait("s", after=8)
    reopened = await backend.reopen(late)
    assert await reopened.bounds("s") == Bounds(8, 9, 8)
    assert [event.data for event in await reopened.read("s", after=8)] == [b"new"]
