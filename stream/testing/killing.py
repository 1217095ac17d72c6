"""Kills a process that uses a store, at any moment, and checks that what it was told is still true.

`kill_while` runs one of the jobs below on a store, in a process of its own, and ends it with SIGKILL; it returns what
the store had acknowledged by then. A `Record` keeps that over any number of lives of the store and says what is not
true any more. The content of an append follows from who wrote it and its number, so every byte can be compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import random
import signal
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import msgspec

from stream.opening import open_store
from stream.records import NewEvent, Producer, Snapshot
from stream.snapshots import retain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

    from stream.records import Event
    from stream.store import EventStore

Job = Literal["write", "many", "sweep", "snapshot", "all"]
Opener = Callable[[str], AbstractAsyncContextManager[Any]]
Tell = Callable[["Told"], None]

_PAGE_EVENTS: Final = 5_000
_PROJECTOR: Final = "killed"
_MANY: Final = 24
_SMALL: Final = "small"
# A server forks the children after it has imported all of this: each begins at once and shares nothing with us.
_PROCESSES: Final = multiprocessing.get_context("forkserver")


class Broken(AssertionError):
    """A promise that the store did not keep."""


class Told(msgspec.Struct, frozen=True, array_like=True):
    """One acknowledgement: what was stored, where, up to which seq; of an append also by whom, and its number."""

    what: Literal["appended", "produced", "named", "saved", "truncated", "deleted"]
    stream_id: str
    seq: int
    writer: str = ""
    number: int = 0


_DECODER: Final = msgspec.json.Decoder(Told)


def kill_while(url: str, job: Job, *, seed: int, after_s: float, opener: Opener = open_store) -> list[Told]:
    """Lets a process work on the store at `url` and kills it after `after_s`; returns what it was told, in order.

    The time begins before the store is opened. `opener` is a function of a module, because it runs over there.
    Raises `RuntimeError` if the process ended before it was killed.
    """
    _PROCESSES.set_forkserver_preload([__name__])
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    child = _PROCESSES.Process(target=_live, args=(url, job, seed, theirs, opener), daemon=True)
    child.start()
    theirs.close()
    told: list[Told] = []
    with ours:
        try:
            with contextlib.suppress(EOFError):
                ours.recv_bytes()
                deadline = time.monotonic() + after_s
                while ours.poll(max(deadline - time.monotonic(), 0)):
                    told.append(_DECODER.decode(ours.recv_bytes()))
        finally:
            child.kill()
            child.join()
        with contextlib.suppress(EOFError, OSError):  # the rest, up to a line that it could not finish
            while True:
                told.append(_DECODER.decode(ours.recv_bytes()))
    if child.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"the process ended by itself with exit code {child.exitcode} before it was killed")
    child.close()
    return told


def _live(url: str, job: Job, seed: int, pipe: Connection, opener: Opener) -> None:
    pipe.send_bytes(b"begun")
    asyncio.run(work(url, job, seed=seed, tell=lambda told: pipe.send_bytes(msgspec.json.encode(told)), opener=opener))


async def work(url: str, job: Job, *, seed: int, tell: Tell, opener: Opener = open_store, rounds: int | None = None) -> None:
    """Does a job on the store at `url`, for ever or so many rounds, and tells of every acknowledgement.

    `write`: several appenders at once, plain, named, and producers. `many`: small appends to many streams, some of
    which are truncated. `sweep`: appends, truncates, now and then deletes. `snapshot`: appends, saves, reads back,
    truncates, retains. `all`: all of them on one store.
    """
    jobs = {"write": _write, "many": _write_many, "sweep": _sweep, "snapshot": _snapshot}
    async with opener(url) as store, anyio.create_task_group() as tasks:
        for each in jobs.values() if job == "all" else [jobs[job]]:
            tasks.start_soon(each, store, seed, tell, rounds)


def _numbers(rounds: int | None) -> Iterable[int]:
    """Counts from 0, for ever or so many rounds."""
    return itertools.count() if rounds is None else range(rounds)


async def _write(store: EventStore, seed: int, tell: Tell, rounds: int | None) -> None:
    async with anyio.create_task_group() as tasks:
        for writer, stream_id in (("a", "one"), ("b", "one"), ("c", "two")):
            tasks.start_soon(_append, store, stream_id, f"{writer}{seed}", tell, _numbers(rounds))
        for writer, stream_id in (("p", "one"), ("q", "two")):
            tasks.start_soon(_produce, store, stream_id, f"{writer}{seed}", tell, rounds)
        tasks.start_soon(_append_by_name, store, f"n{seed}", tell, rounds)


async def _write_many(store: EventStore, seed: int, tell: Tell, rounds: int | None) -> None:
    async with anyio.create_task_group() as tasks:
        for n in range(_MANY // 2):
            tasks.start_soon(_produce, store, f"many {n}", f"{_SMALL}{n}.{seed}", tell, rounds)
            tasks.start_soon(_append_and_truncate, store, f"many {n + _MANY // 2}", seed, tell, rounds)


async def _append_and_truncate(store: EventStore, stream_id: str, seed: int, tell: Tell, rounds: int | None) -> None:
    chance = random.Random(f"{seed} {stream_id}")
    for number in _numbers(rounds):
        head = await _append(store, stream_id, f"{_SMALL}.{seed}", tell, [number])
        if chance.random() < 0.02:
            bounds = await store.truncate(stream_id, through=chance.randint((await store.bounds(stream_id)).floor, head))
            tell(Told("truncated", stream_id, bounds.floor))


async def _append(store: EventStore, stream_id: str, writer: str, tell: Tell, which: Iterable[int]) -> int:
    last = 0
    for number in which:
        last = (await store.append(stream_id, events_of(writer, number))).last_seq
        tell(Told("appended", stream_id, last, writer, number))
    return last


async def _produce(store: EventStore, stream_id: str, writer: str, tell: Tell, rounds: int | None) -> None:
    for number in _numbers(rounds):
        done = await store.append(stream_id, events_of(writer, number), producer=Producer(writer, 0, number))
        tell(Told("produced", stream_id, done.last_seq, writer, number))


async def _append_by_name(store: EventStore, writer: str, tell: Tell, rounds: int | None) -> None:
    head = (await store.bounds("named")).head
    for number in _numbers(rounds):
        name = f"{writer} {number}"
        done = await store.append("named", events_of(writer, number), expected_seq=head, append_id=name)
        head = done.last_seq
        tell(Told("named", "named", head, writer, number))


async def _sweep(store: EventStore, seed: int, tell: Tell, rounds: int | None) -> None:
    chance = random.Random(seed)
    for number in _numbers(rounds):
        async with anyio.create_task_group() as tasks:
            for n in range(40):
                tasks.start_soon(_append, store, "swept", f"s{seed}.{n}", tell, [number])
        bounds = await store.bounds("swept")
        if chance.random() < 0.1:
            await store.delete("swept")
            tell(Told("deleted", "swept", bounds.head))
        else:
            bounds = await store.truncate("swept", through=chance.randint(bounds.floor, bounds.head))
            tell(Told("truncated", "swept", bounds.floor))


async def _snapshot(store: EventStore, seed: int, tell: Tell, rounds: int | None) -> None:
    chance = random.Random(seed)
    for number in _numbers(rounds):
        head = await _append(store, "kept", f"k{seed}", tell, [number])
        await store.snapshots.save(snapshot_at(head))
        tell(Told("saved", "kept", head))
        if await store.snapshots.load("kept", _PROJECTOR) != snapshot_at(head):
            raise Broken(f"the snapshot at {head} was not read back as it was saved")
        floor = (await store.bounds("kept")).floor
        floor = (await store.truncate("kept", through=chance.randint(floor, head))).floor
        tell(Told("truncated", "kept", floor))
        if chance.random() < 0.2:
            await retain(store.snapshots, "kept", _PROJECTOR, keep=2)


def events_of(writer: str, number: int) -> list[NewEvent]:
    """What this append holds, wherever it is made: one to four events of up to 2 kB, or small ones, as deltas of text are."""
    max_bytes = 60 if writer.startswith(_SMALL) else 2_000
    count = zlib.crc32(f"{writer} {number}".encode()) % 4 + 1
    names = [f"{writer} {number} {part}/{count} " for part in range(count)]
    return [NewEvent("killed", name.encode() + b"." * (zlib.crc32(name.encode()) % max_bytes)) for name in names]


def snapshot_at(last_seq: int) -> Snapshot:
    """The snapshot that the job saves at a seq."""
    return Snapshot("kept", _PROJECTOR, 1, last_seq, 0, b"%d." % last_seq * (last_seq % 1_000 + 1))


class Record:
    """What processes were told over any number of lives of one store, and what was seen of it in between."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self._events: defaultdict[str, dict[int, NewEvent]] = defaultdict(dict)
        self._places: defaultdict[str, dict[bytes, int]] = defaultdict(dict)
        self._heads: defaultdict[str, int] = defaultdict(int)
        self._floors: defaultdict[str, int] = defaultdict(int)
        self._origins: defaultdict[str, int] = defaultdict(int)
        self._saved = 0
        self._last: dict[str, Told] = {}

    def add(self, told: Iterable[Told]) -> None:
        """Adds what one process was told. Raises `Broken` if it contradicts what was known."""
        self._last.clear()
        for each in told:
            self.acknowledged += 1
            if each.what == "saved":
                self._saved = max(self._saved, each.seq)
            elif each.what in {"truncated", "deleted"}:
                self._floors[each.stream_id] = max(self._floors[each.stream_id], each.seq)
                if each.what == "deleted":
                    self._origins[each.stream_id] = max(self._origins[each.stream_id], each.seq)
            else:
                events = events_of(each.writer, each.number)
                for seq, event in enumerate(events, each.seq - len(events) + 1):
                    self._keep(each.stream_id, seq, event)
                if each.what != "appended":
                    self._last[each.writer if each.what == "produced" else each.stream_id] = each

    async def check(self, store: EventStore) -> None:
        """Raises `Broken` if an acknowledgement is not true, an append is torn, or a number was used again."""
        listed = {info.stream_id async for info in store.streams()}
        for stream_id in [*self._heads]:
            if self._heads[stream_id] and stream_id not in listed:
                raise Broken(f"stream {stream_id!r} is gone")
            await self._check_stream(store, stream_id)
        if self._saved:
            await self._check_snapshot(store)

    async def _check_stream(self, store: EventStore, stream_id: str) -> None:
        bounds = await store.bounds(stream_id)
        for what, now, known in (
            ("head", bounds.head, self._heads[stream_id]),
            ("floor", bounds.floor, self._floors[stream_id]),
            ("origin", bounds.origin, self._origins[stream_id]),
        ):
            if now < known:
                raise Broken(f"the {what} of stream {stream_id!r} fell from {known} to {now}")
        events: list[Event] = []
        while page := await store.read(stream_id, after=events[-1].seq if events else bounds.floor, limit=_PAGE_EVENTS):
            events += page
        seqs = [event.seq for event in events]
        if seqs != list(range(bounds.floor + 1, bounds.head + 1)):
            raise Broken(f"stream {stream_id!r} has a gap between {bounds.floor} and {bounds.head}: {seqs}")
        for event in events:
            self._keep(stream_id, event.seq, NewEvent(event.type, event.data))
        self._check_whole(stream_id, events)

    def _check_whole(self, stream_id: str, events: list[Event]) -> None:
        """Of every append all parts are there, in order; below the floor its first ones may be gone."""
        expected: list[NewEvent] = []
        for event in events:
            writer, number, part = event.data.decode().split(" ")[:3]
            if not expected:
                expected = events_of(writer, int(number))[int(part.partition("/")[0]) if event is events[0] else 0 :]
            if NewEvent(event.type, event.data) != expected.pop(0):
                raise Broken(f"event {event.seq} of stream {stream_id!r} is no part of a whole append")
        if expected:
            raise Broken(f"the last append of stream {stream_id!r} is torn")

    async def _check_snapshot(self, store: EventStore) -> None:
        loaded = await store.snapshots.load("kept", _PROJECTOR)
        if loaded is None or loaded.last_seq < self._saved:
            raise Broken(f"the snapshot at {self._saved} was saved, loaded is {loaded and loaded.last_seq}")
        if loaded != snapshot_at(loaded.last_seq):
            raise Broken(f"the snapshot at {loaded.last_seq} is not what was saved")
        if loaded.last_seq < (floor := (await store.bounds("kept")).floor):
            raise Broken(f"the newest snapshot {loaded.last_seq} lies below the floor {floor}")
        self._saved = loaded.last_seq

    async def retry(self, store: EventStore) -> None:
        """Sends what each producer and named writer of the last process may have had under way, as it would itself.

        A `check` afterwards finds what was stored twice.
        """
        told: list[Told] = []
        for last in [*self._last.values()]:
            number, events = last.number + 1, events_of(last.writer, last.number + 1)
            if last.what == "produced":
                producer = Producer(last.writer, 0, number)
                done = await store.append(last.stream_id, events, producer=producer)
            else:
                name = f"{last.writer} {number}"
                done = await store.append(last.stream_id, events, expected_seq=last.seq, append_id=name)
            told.append(Told("appended", last.stream_id, done.last_seq, last.writer, number))
        self.add(told)

    def _keep(self, stream_id: str, seq: int, event: NewEvent) -> None:
        known = self._events[stream_id].setdefault(seq, event)
        if known != event:
            raise Broken(f"event {seq} of stream {stream_id!r} was {known.data[:40]!r} and is {event.data[:40]!r}")
        place = self._places[stream_id].setdefault(event.data, seq)
        if place != seq:
            raise Broken(f"event {event.data[:40]!r} of stream {stream_id!r} is there twice, at {place} and {seq}")
        self._heads[stream_id] = max(self._heads[stream_id], seq)
