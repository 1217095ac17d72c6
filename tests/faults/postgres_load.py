"""Writers of many streams and a follower of each, whatever happens to their server; and whether what they were told is true."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stream import NewEvent, Producer, StoreUnreachable, follow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stream import AppendResult, Event, EventStore


class Load:
    """By producers, by names, and by nobody: of each so many streams."""

    def __init__(self, store: EventStore, watching: EventStore, *, each: int = 8) -> None:
        self.store, self.watching = store, watching
        self.names = [f"{kind} {n}" for kind in ("produced", "named", "plain") for n in range(each)]
        self.told: dict[str, dict[int, str]] = {name: {} for name in self.names}
        self.unknown: list[str] = []
        self.seen: dict[str, list[int]] = {name: [] for name in self.names}
        self.acknowledged = 0
        self.longest_s = 0.0
        self._newest = time.monotonic()
        self._stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block lasts; afterwards what was begun is finished, and every follower has come to the end."""
        async with asyncio.TaskGroup() as followers, asyncio.TaskGroup() as writers:
            following = [followers.create_task(self._follow(name)) for name in self.names]
            for name in self.names:
                writers.create_task(self._write(name))
            await self.progress()
            yield
            await self.progress()
            self._stopping = True
            followers.create_task(self._end(following))

    async def progress(self) -> None:
        """Waits until every stream has grown."""
        before = {name: len(told) for name, told in self.told.items()}
        async with asyncio.timeout(60):
            while any(len(self.told[name]) <= before[name] for name in self.names):
                await asyncio.sleep(0.02)

    async def check(self, store: EventStore) -> None:
        """Nothing acknowledged is lost or elsewhere, nothing is there twice, no number is missing or seen out of turn."""
        for name, told in self.told.items():
            events: list[Event] = []
            while page := await store.read(name, after=events[-1].seq if events else 0):
                events += page
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            there = {event.seq: event.data.decode() for event in events}
            lost = {seq: data for seq, data in told.items() if there.get(seq) != data}
            assert not lost, f"{name}: {lost}"
            twice = [data for data, count in Counter(there.values()).items() if count > 1]
            assert not twice, f"{name}: {twice}"
            assert set(there.values()) - set(told.values()) <= set(self.unknown)
            assert self.seen[name] == list(range(1, len(self.seen[name]) + 1))
            assert len(self.seen[name]) >= max(told)

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} acknowledged, {len(self.unknown)} unknown, 0 lost, 0 doubled, outage {self.longest_s:.1f} s"
        )

    async def _write(self, name: str) -> None:
        head = number = 0
        while not self._stopping:
            data = f"{name} {number}"
            try:
                done = await self._append(name, data, head, number)
            except StoreUnreachable:
                if name.startswith("plain"):
                    self.unknown.append(data)
                    number += 1
                continue
            now = time.monotonic()
            self.longest_s, self._newest = max(self.longest_s, now - self._newest), now
            self.acknowledged += 1
            assert done.last_seq not in self.told[name]
            self.told[name][done.last_seq] = data
            head, number = done.last_seq, number + 1

    async def _append(self, name: str, data: str, head: int, number: int) -> AppendResult:
        events = [NewEvent("t", data.encode())]
        if name.startswith("produced"):
            return await self.store.append(name, events, producer=Producer("p", 0, number))
        if name.startswith("named"):
            return await self.store.append(name, events, expected_seq=head, append_id=data)
        return await self.store.append(name, events)

    async def _follow(self, name: str) -> None:
        async for event in follow(self.watching, name):
            self.seen[name].append(event.seq)

    async def _end(self, following: list[asyncio.Task[None]]) -> None:
        async with asyncio.timeout(60):
            while any(len(self.seen[name]) < max(self.told[name]) for name in self.names):
                await asyncio.sleep(0.02)
        for task in following:
            task.cancel()
