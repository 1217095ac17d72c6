"""Connections to NATS that are cut at any piece, before or behind the server: nothing is lost, nothing is stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

from stream import (
    AppendResult,
    Bounds,
    Event,
    Producer,
    SeqConflict,
    Snapshot,
    StoreUnreachable,
    StreamInfo,
    follow,
    follow_all,
)
from stream.nats import NatsStore, open_nats
from stream.nats.layout import token
from tests.faults.sizes import FULL
from tests.faults.tcp_proxy import WAYS, How, Proxy
from tests.nats_logs import new, texts
from tests.nats_server import NatsServer, SharedNats

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

    from stream import Gap

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]

_LARGE: Final = bytes(range(256)) * 800
_FOLLOWED: Final = 8
_SNAPSHOTS: Final = [(1, 1, _LARGE * 7), (1, 2, b"later"), (2, 2, b"newer")]
_SHORT: Final = {"appender.PATIENCE_S": 0.3, "client.PATIENCE_S": 0.3, "client._REQUEST_S": 0.2, "client._ANSWER_S": 0.2}
Run = Callable[[], Awaitable[None]]


def server() -> NatsServer:
    assert SharedNats.server is not None
    return SharedNats.server


class Work:
    """One thing after another that a store does, on streams of its own, through a proxy that cuts once.

    Each job prepares what it needs on `direct`, which no cut reaches, and then says what to do: its answers are checked
    at once, and what it leaves is what `direct` sees. `unknown` counts what had to be said again.
    """

    def __init__(self, store: NatsStore, direct: NatsStore, number: int, how: How) -> None:
        self.store, self.direct, self.s = store, direct, f"s{number}"
        self.how = how
        self.unknown = 0

    async def sure(self, call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except StoreUnreachable:
            self.unknown += 1
            await call()

    async def append(self) -> Run:
        async def run() -> None:
            store, s = self.store, self.s
            assert await store.append(s, new("a") + new("b")) == AppendResult(1, 2)
            for _ in range(2):
                named = await store.append(s, new("named"), expected_seq=2, append_id="n")
                assert (named.first_seq, named.last_seq) == (3, 3)
            for seq in (0, 1):
                produced = await store.append(s, new(f"p{seq}"), producer=Producer("p", 0, seq))
                assert (produced.first_seq, produced.last_seq) == (4 + seq, 4 + seq)
            assert await store.append(s, new("at"), expected_seq=5) == AppendResult(6, 6)
            three = await asyncio.gather(*(store.append(s, new(f"g{n}")) for n in range(3)))
            assert sorted(each.last_seq for each in three) == [7, 8, 9]
            found = await texts(self.direct, s)
            assert found[:6] == ["a", "b", "named", "p0", "p1", "at"]
            assert [found[result.last_seq - 1] for result in three] == ["g0", "g1", "g2"]
            assert len(found) == 9

        return run

    async def many(self) -> Run:
        """Enough at once that they go in batches."""
        names = [f"{self.s}.{n}" for n in range(40)]

        async def run() -> None:
            first = [self.store.append(name, new("a"), producer=Producer("p", 0, 0)) for name in names[::2]]
            first += [self.store.append(name, new("a"), expected_seq=0) for name in names[1::2]]
            assert {each.last_seq for each in await asyncio.gather(*first)} == {1}
            second = [self.store.append(name, new("b" * 9000), expected_seq=1, append_id="n") for name in names]
            assert {each.last_seq for each in await asyncio.gather(*second)} == {2}
            for name in names:
                assert await texts(self.direct, name) == ["a", "b" * 9000]

        return run

    async def adopt(self) -> Run:
        """In four messages, and in one."""
        large = [Event(self.s, seq, "t", _LARGE, seq) for seq in range(4, 7)]
        small = [Event(f"{self.s}.small", seq, "t", b"x", seq) for seq in (1, 2)]

        async def run() -> None:
            producers = [Producer("p", 1, 1)]
            await self.sure(lambda: self.store.adopt(self.s, large, floor=3, producers=producers))
            await self.sure(lambda: self.store.adopt(f"{self.s}.small", small))
            for stream_id, events in ((self.s, large), (f"{self.s}.small", small)):
                with pytest.raises(SeqConflict):
                    await self.direct.adopt(stream_id, events, floor=events[0].seq - 1)
                after = events[0].seq - 1
                found = await self.direct.read(stream_id, after=after)
                assert [(each.seq, each.data, each.at) for each in found] == [(each.seq, each.data, each.at) for each in events]
            assert await self.direct.producer(self.s, "p") == producers[0]

        return run

    async def truncate(self) -> Run:
        for n in range(12):
            await self.direct.append(self.s, new(str(n)))

        async def run() -> None:
            assert await self.store.truncate(self.s, through=8) == Bounds(8, 12)
            await self.store.settle()
            assert await self.store.append(self.s, new("12")) == AppendResult(13, 13)
            assert await self.direct.bounds(self.s) == Bounds(8, 13)
            assert await texts(self.direct, self.s) == ["8", "9", "10", "11", "12"]
            assert await self.kept("e") <= 7  # what says the floor, and maybe one message that reaches across it

        return run

    async def delete(self) -> Run:
        for n in range(3):
            await self.direct.append(self.s, new(str(n)))
        await self.direct.snapshots.save(Snapshot(self.s, "p", 1, 3, 0, b"x"))

        async def run() -> None:
            await self.sure(lambda: self.store.delete(self.s, expected_head=3))
            assert await self.direct.bounds(self.s) == Bounds(3, 3, 3)
            assert await self.direct.snapshots.list(self.s) == []
            assert (await self.kept("e"), await self.kept("s"), await self.kept("x")) == (1, 0, 0)
            assert await self.store.append(self.s, new("x"), expected_seq=3) == AppendResult(4, 4)
            assert await texts(self.direct, self.s) == ["x"]

        return run

    async def snapshot(self) -> Run:
        """One in parts, one over it, and one that goes."""
        await self.direct.append(self.s, new("a") + new("b"))
        given = [Snapshot(self.s, "p", version, seq, 0, data) for version, seq, data in _SNAPSHOTS]

        async def run() -> None:
            for snapshot in given:
                assert await self.store.snapshots.save(snapshot)
                assert await self.store.snapshots.load(self.s, "p") == snapshot
            assert [each.last_seq for each in await self.store.snapshots.list(self.s)] == [1, 2]
            await self.sure(lambda: self.store.snapshots.delete(self.s, "p", 1))
            assert [each.last_seq for each in await self.direct.snapshots.list(self.s)] == [2]
            assert await self.direct.snapshots.load(self.s, "p") == given[-1]
            assert await self.kept("s") == 1
            assert await self.kept("x") in ((1, 2) if self.how == "late" else (1,))  # a part may come in when its body is gone
            await self.direct.delete(self.s)
            assert (await self.kept("s"), await self.kept("x")) == (0, 0)

        return run

    async def read(self) -> Run:
        for n in range(30):
            await self.direct.append(self.s, new(f"{n}" * 3000), producer=Producer(f"p{n % 8}", 0, n // 8))

        async def run() -> None:
            fresh = await open_nats(self.store.path)  # it knows no place yet
            assert await fresh.bounds(self.s) == Bounds(0, 30)
            for after in (17, 3, 29):
                assert [each.seq for each in await fresh.read(self.s, after=after, limit=5)] == [
                    *range(after + 1, min(after + 6, 31))
                ]
            assert await texts(fresh, self.s) == [f"{n}" * 3000 for n in range(30)]
            assert [each.seq for each in await fresh.producers(self.s)] == [3] * 6 + [2] * 2
            assert [info async for info in fresh.streams(prefix=self.s)] == [StreamInfo(self.s, 0, 30, 0)]
            await fresh.close()

        return run

    async def changes(self) -> Run:
        begin = await self.direct.changes(limit=10_000)
        names = [f"{self.s}.{n}" for n in range(6)]
        for name in names:
            await self.direct.append(name, new("x"))
        await self.direct.truncate(names[0], through=1)
        await self.direct.delete(names[1])

        async def run() -> None:
            found: list[str] = []
            after = begin.token
            while (page := await self.store.changes(after=after, limit=2)).streams:
                found += page.streams
                after = page.token
            assert found == names
            assert (await self.direct.changes(after=after)).streams == []

        return run

    async def following(self) -> Run:
        """Others write, and who follows through the cut misses nothing and sees nothing twice."""
        before = (await self.direct.changes(limit=10_000)).token

        async def see() -> list[int]:
            seen: list[int] = []
            async with aclosing(follow(self.store, self.s)) as events:  # type: ignore[type-var]
                async for each in events:
                    seen.append(each.seq)
                    if len(seen) == _FOLLOWED:
                        return seen
            return seen

        async def see_all() -> list[int]:
            seen: list[int] = []
            found: AsyncIterator[tuple[Event | Gap, str]] = follow_all(self.store, after=before, prefix=self.s)
            async with aclosing(found) as events:  # type: ignore[type-var]
                async for each, _ in events:
                    assert isinstance(each, Event)
                    seen.append(each.seq)
                    if len(seen) == _FOLLOWED:
                        return seen
            return seen

        async def write() -> None:
            for n in range(_FOLLOWED):
                await self.direct.append(self.s, new(str(n)))
                await asyncio.sleep(0.01)

        async def run() -> None:
            one, all_of_them, _ = await asyncio.gather(see(), see_all(), write())
            assert one == all_of_them == [*range(1, _FOLLOWED + 1)]

        return run

    async def kept(self, kind: str) -> int:
        """How many messages of a kind lie there of the stream."""
        layout = self.direct._log.layout
        subject = f"{layout.name}.{layout.shard_of(self.s)}.{kind}.{token(self.s)}"
        answer = await self.direct._client.ask(f"STREAM.INFO.{layout.home(self.s)}", {"subjects_filter": f"{layout.name}.>"})
        counts: dict[str, int] = answer["state"].get("subjects") or {}
        return sum(count for name, count in counts.items() if name == subject or name.startswith(f"{subject}."))


JOBS: Final = ("append", "many", "adopt", "truncate", "delete", "snapshot", "read", "changes", "following")


@asynccontextmanager
async def through_a_proxy() -> AsyncIterator[tuple[Proxy, NatsStore, NatsStore]]:
    url = SharedNats.url()
    async with Proxy(server().port) as proxy:
        store, direct = await open_nats(proxy.url(url)), await open_nats(url)
        try:
            yield proxy, store, direct
        finally:
            await store.close()
            await direct.close()


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("how", WAYS)
async def test_a_connection_cut_at_any_piece_loses_nothing_and_doubles_nothing(
    how: How, job: str, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went with a connection is not waited for."""
    for name in ("_REQUEST_S", "_ANSWER_S"):
        monkeypatch.setattr(f"stream.nats.client.{name}", 600)
    async with through_a_proxy() as (proxy, store, direct):
        unknown = pieces = 0
        for number in (-2, -1):
            run = await getattr(Work(store, direct, number, how), job)()
            before = proxy.pieces
            await run()
            pieces = proxy.pieces - before
        places = range(pieces) if FULL else sorted(chance.sample(range(pieces), min(pieces, 2)))
        for number, place in enumerate(places):
            print(f"{how} at {place}")
            work = Work(store, direct, number, how)
            run = await getattr(work, job)()
            proxy.cut(place, how)
            await asyncio.wait_for(run(), 60)
            unknown += work.unknown
        assert proxy.cuts >= len(places) / 2
        print(f"{job}, {how}: {proxy.cuts} cuts among {pieces} pieces, {unknown} of unknown outcome, 0 lost, 0 doubled")


@pytest.mark.parametrize("how", WAYS)
async def test_whoever_is_told_that_it_is_not_known_finds_out_by_saying_it_again(
    how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is out of reach for longer than it is waited for, from any piece on."""
    async with through_a_proxy() as (proxy, store, direct):
        calls: dict[str, Callable[[str], Awaitable[AppendResult]]] = {
            "named": lambda s: store.append(s, new("x"), expected_seq=1, append_id="n"),
            "produced": lambda s: store.append(s, new("x"), producer=Producer("p", 0, 0)),
        }
        told: list[str] = []
        for kind, call in calls.items():
            for place in range(3):
                stream_id = f"{kind}{place}"
                await store.append(stream_id, new("first"))
                if place == 2:
                    store._appender.forget(stream_id)  # a question goes first
                cuts = proxy.cuts
                proxy.go_away()
                proxy.cut(place, how)
                with monkeypatch.context() as patience:
                    for name, value in _SHORT.items():
                        patience.setattr(f"stream.nats.{name}", value)
                    try:
                        await asyncio.wait_for(call(stream_id), 20)
                    except StoreUnreachable as error:
                        told.append(str(error))
                assert proxy.cuts in (cuts, cuts + 1)
                await proxy.come_back()
                proxy.cut_all()
                done = await asyncio.wait_for(repeated(lambda call=call, s=stream_id: call(s)), 20)  # type: ignore[misc]
                assert (done.first_seq, done.last_seq) == (2, 2)
                assert await texts(direct, stream_id) == ["first", "x"]
        assert len(told) >= 2
        assert any("nobody has said whether it was stored" in each for each in told)


async def repeated(call: Callable[[], Awaitable[AppendResult]]) -> AppendResult:
    """Until it is known."""
    while True:
        try:
            return await call()
        except StoreUnreachable:
            continue
