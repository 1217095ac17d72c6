"""Random histories on a store, with the store in memory as the model: every answer is the same, and no law is broken."""

from __future__ import annotations

import asyncio
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stream import Event, NewEvent, Producer, Snapshot, SnapshotInfo, StreamError, Truncated, retain
from stream.testing.backend import MemoryBackend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stream import EventStore
    from stream.testing.backend import Backend

_STREAMS = st.sampled_from(["s", "t"])
_EVENT = st.builds(NewEvent, st.sampled_from(["a", "b"]), st.sampled_from([b"", b"a", b"b\0\xff"]))
_EVENTS = st.lists(_EVENT, max_size=4)
_SEQS = st.integers(0, 12)
_OFF = st.sampled_from([0, 0, 0, 0, -1, -3, 1, 5])
"""How far an expectation lies from the head. Most are right: a history of refusals shows little."""
_TIMES = st.integers(1, 2)


def state_machine(make_backend: Callable[[], Backend]) -> type[StoreMachine]:
    """The machine for stores of this backend; its `TestCase` runs under any test runner."""
    return type("Machine", (StoreMachine,), {"make_backend": staticmethod(make_backend)})


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to its model. Each machine has an event loop of its own."""

    make_backend: Callable[[], Backend] = MemoryBackend

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._backends = (MemoryBackend(), self.make_backend())
        self._now_ms = 10**12
        self._stores = [self._do(backend.open(clock_ms=lambda: self._now_ms)) for backend in self._backends]
        self._sent: list[Callable[[EventStore], Awaitable[Any]]] = []
        self._cursors = {"s": 0, "t": 0}
        self._newest = {"s": 0, "t": 0}
        self._bounds = {"s": (0, 0, 0), "t": (0, 0, 0)}
        self._feeds = [(["", ""], {"s": 0, "t": 0})]  # tokens of both stores, and the heads that had been told by then

    def teardown(self) -> None:
        """Closes everything, also after a failure."""
        for backend in self._backends:
            self._do(backend.close())
        self._runner.close()

    @initialize(counts=st.sampled_from([(5, 3), (5, 0)]))
    def begin(self, counts: tuple[int, int]) -> None:
        """A stream has events, or is unknown."""
        for stream_id, count in zip("st", counts, strict=True):
            self._both(methodcaller("append", stream_id, [NewEvent("a", b"%d" % n) for n in range(count)]))

    @rule(stream_id=_STREAMS, events=_EVENTS)
    def append(self, stream_id: str, events: list[NewEvent]) -> None:
        """Behind whatever is there."""
        self._both(lambda store: store.append(stream_id, events))

    @rule(stream_id=_STREAMS, events=_EVENTS, off=_OFF, append_id=st.sampled_from(["i", "j", None]), times=_TIMES)
    def append_where_expected(
        self, stream_id: str, events: list[NewEvent], off: int, append_id: str | None, times: int
    ) -> None:
        """At the head or beside it, named or not."""
        expected = max(0, self._bounds[stream_id][1] + off)
        self._send(times, lambda store: store.append(stream_id, events, expected_seq=expected, append_id=append_id))

    @rule(
        stream_id=_STREAMS,
        events=st.lists(_EVENT, min_size=1, max_size=4),
        producer_id=st.sampled_from(["p", "q"]),
        epoch_step=st.sampled_from([0, 0, 0, 1, -1]),
        seq_step=st.sampled_from([0, 0, 0, -1, -2, 1]),
        off=st.none() | _OFF,
        times=_TIMES,
    )
    def append_by_producer(
        self,
        stream_id: str,
        events: list[NewEvent],
        producer_id: str,
        epoch_step: int,
        seq_step: int,
        off: int | None,
        times: int,
    ) -> None:
        """What comes next, repeats, gaps, new and fenced epochs."""
        newest = self._do(self._stores[0].producer(stream_id, producer_id)) or Producer(producer_id, 1, -1)
        following = newest.seq + 1 if epoch_step == 0 else 0
        producer = Producer(producer_id, newest.epoch + epoch_step, max(0, following + seq_step))
        expected = None if off is None else max(0, self._bounds[stream_id][1] + off)
        self._send(times, lambda store: store.append(stream_id, events, producer=producer, expected_seq=expected))

    @precondition(lambda self: self._sent)
    @rule(back=st.integers(1, 4))
    def append_again(self, back: int) -> None:
        """An append that was sent before, whatever became of it."""
        self._both(self._sent[-min(back, len(self._sent))])

    @rule(stream_id=_STREAMS, count=st.integers(100, 300))
    def append_many(self, stream_id: str, count: int) -> None:
        """Each by itself, so many that a store may put them together."""

        async def append_all(store: EventStore) -> None:
            await asyncio.gather(*(store.append(stream_id, [NewEvent("n", b"%d" % n)]) for n in range(count)))

        self._both(append_all)

    @rule(stream_id=_STREAMS, floor=_SEQS, origin=_SEQS, count=st.integers(0, 3))
    def adopt(self, stream_id: str, floor: int, origin: int, count: int) -> None:
        """A stream of another store."""
        events = [Event("x", floor + 1 + n, "t", b"%d" % n, n) for n in range(count)]
        self._both(lambda store: store.adopt(stream_id, events, floor=floor, origin=origin, producers=[Producer("p", 1, 1)]))

    @rule(stream_id=_STREAMS, back=_SEQS, limit=st.integers(0, 6))
    def read(self, stream_id: str, back: int, limit: int) -> None:
        """From somewhere near the head."""
        after = max(0, self._bounds[stream_id][1] - back)
        self._both(lambda store: store.read(stream_id, after=after, limit=limit))

    @rule(stream_id=_STREAMS, back=_SEQS)
    def truncate(self, stream_id: str, back: int) -> None:
        """Through somewhere near the head."""
        through = max(0, self._bounds[stream_id][1] - back)
        self._both(lambda store: store.truncate(stream_id, through=through))

    @rule(stream_id=_STREAMS, back=st.sampled_from([None, 0, 1]), then=st.sampled_from([0, 4, 4]))
    def delete(self, stream_id: str, back: int | None, then: int) -> None:
        """All of a stream, which may begin another life; where something else is expected, nothing of it."""
        expected = None if back is None else max(0, self._bounds[stream_id][1] - back)
        if expected in (None, self._bounds[stream_id][1]):
            self._newest[stream_id] = 0
        self._both(lambda store: store.delete(stream_id, expected_head=expected))
        self._both(lambda store: store.append(stream_id, [NewEvent("d", b"")] * then))

    @rule(stream_id=_STREAMS, backs=st.lists(st.integers(-1, 4), min_size=1, max_size=3), state=st.binary(max_size=2))
    def save_snapshots(self, stream_id: str, backs: list[int], state: bytes) -> None:
        """Newer ones, older ones, ones outside the events."""
        for back in backs:
            snapshot = Snapshot(stream_id, "p", 1, max(0, self._bounds[stream_id][1] - back), 0, state)
            self._both(partial(_save, snapshot=snapshot))

    @rule(stream_id=_STREAMS, back=st.integers(0, 3))
    def compact(self, stream_id: str, back: int) -> None:
        """A snapshot, and the floor raised to it."""
        through = max(0, self._bounds[stream_id][1] - back)
        self._both(partial(_save, snapshot=Snapshot(stream_id, "p", 1, through, 0, b"base")))
        self._both(lambda store: store.truncate(stream_id, through=through))

    @rule(stream_id=_STREAMS, back=st.sampled_from([0, 0, 1, 2, None]))
    def delete_snapshot(self, stream_id: str, back: int | None) -> None:
        """One of the newest, which may be the last base of a truncated stream, or all of a retired projector."""
        stored = self._do(self._stores[0].snapshots.list(stream_id))
        last_seq = None if back is None else stored[-1 - back].last_seq if back < len(stored) else 1
        self._newest[stream_id] = 0
        self._both(lambda store: store.snapshots.delete(stream_id, "p", last_seq))

    @rule(stream_id=_STREAMS, keep=st.integers(1, 2))
    def retain_snapshots(self, stream_id: str, keep: int) -> None:
        """Known fault K8: the newest readable one never goes."""
        self._both(lambda store: retain(store.snapshots, stream_id, "p", keep=keep))

    @precondition(lambda self: all("damage" in backend.flags for backend in self._backends))
    @rule(stream_id=_STREAMS)
    def damage_newest_snapshot(self, stream_id: str) -> None:
        """A bit of it."""
        readable = [info for info in self._do(self._stores[0].snapshots.list(stream_id)) if info.readable]
        if readable:
            self._newest[stream_id] = 0
            for backend in self._backends:
                self._do(backend.damage_snapshot(stream_id, "p", readable[-1].last_seq))

    @rule()
    def reopen(self) -> None:
        """What was acknowledged is there."""
        self._stores = [self._do(backend.reopen(store)) for backend, store in zip(self._backends, self._stores, strict=True)]

    @rule(stream_id=_STREAMS)
    def follow_on(self, stream_id: str) -> None:
        """A follower that goes on from its last position sees what comes next, or is told that it can't."""
        after = self._cursors[stream_id]
        answer = self._both(lambda store: store.read(stream_id, after=after, limit=7))
        if isinstance(answer, list):
            assert [event.seq for event in answer] == list(range(after + 1, after + 1 + len(answer)))
            self._cursors[stream_id] += len(answer)
        else:
            assert answer[0] is Truncated
            assert after < self._bounds[stream_id][0]
            self._cursors[stream_id] = self._bounds[stream_id][0]

    @rule(back=st.integers(1, 4), limit=st.integers(1, 3))
    def ask_what_changed(self, back: int, limit: int) -> None:
        """Since now or before: both tell the same streams, each from where it stood, or where that is gone from before it."""
        before, reached = self._feeds[-min(back, len(self._feeds))]
        tokens, heads, told = list(before), dict(reached), [set[str](), set[str]()]
        for number, store in enumerate(self._stores):
            heads = dict(reached)
            while (page := self._do(store.changes(after=tokens[number], limit=limit))).streams:
                assert len(page.streams) <= limit
                for stream_id, (after, head) in zip(page.streams, page.spans, strict=True):
                    assert after == heads[stream_id] or after < heads[stream_id] < self._bounds[stream_id][0]
                    heads[stream_id] = head
                told[number] |= set(page.streams)
                tokens[number] = page.token
            assert heads == {stream_id: bounds[1] for stream_id, bounds in self._bounds.items()}
        assert told[0] == told[1]
        self._feeds.append((tokens, heads))

    @invariant()
    def both_hold_the_same(self) -> None:
        """All that is readable, watermarks, snapshots; bounds that only rise; a newest snapshot that only rises."""
        for stream_id in ("s", "t"):
            bounds = self._both(methodcaller("bounds", stream_id))
            self._both(methodcaller("read", stream_id, after=bounds.floor, limit=10_000))
            self._both(methodcaller("producer", stream_id, "p"))
            newest, _ = self._both(partial(_snapshots, stream_id=stream_id))
            now = (bounds.floor, bounds.head, bounds.origin)
            assert all(before <= after for before, after in zip(self._bounds[stream_id], now, strict=True))
            assert newest is None or newest.last_seq >= self._newest[stream_id]
            self._bounds[stream_id] = now
            self._newest[stream_id] = newest.last_seq if newest else 0

    def _send(self, times: int, call: Callable[[EventStore], Awaitable[Any]]) -> None:
        self._sent.append(call)
        for _ in range(times):
            self._both(call)

    def _both(self, call: Callable[[EventStore], Awaitable[Any]]) -> Any:
        """The answer, or what was raised, which must be the same on both sides. The clock runs backwards all the while."""
        self._now_ms -= 1
        expected, answer = (self._do(_outcome(call, store)) for store in self._stores)
        assert answer == expected
        return answer

    def _do(self, work: Awaitable[Any]) -> Any:
        async def run() -> Any:
            return await work

        return self._runner.run(run())


async def _save(store: EventStore, *, snapshot: Snapshot) -> bool:
    return await store.snapshots.save(snapshot)


async def _snapshots(store: EventStore, *, stream_id: str) -> tuple[Snapshot | None, list[SnapshotInfo]]:
    return await store.snapshots.load(stream_id, "p"), await store.snapshots.list(stream_id)


async def _outcome(call: Callable[[EventStore], Awaitable[Any]], store: EventStore) -> Any:
    try:
        return await call(store)
    except (StreamError, ValueError) as error:
        return type(error), str(error), vars(error)
