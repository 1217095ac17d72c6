"""Cases of the change feed: it never misses a stream, whoever changed it, and goes on from any of its tokens."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from stream import Diverged, Event, Gap, NewEvent, follow_all
from stream.testing.case import case
from stream.testing.faults import disturb, lost_wakeups

if TYPE_CHECKING:
    from stream import EventStore
    from stream.testing.backend import Backend


def new(count: int = 1) -> list[NewEvent]:
    return [NewEvent("n", b"%d" % n) for n in range(count)]


async def changed(store: EventStore, after: str, *, limit: int = 1000) -> tuple[set[str], str]:
    """All that have changed since, however many pages that takes, and the token behind them."""
    streams: set[str] = set()
    while True:
        page = await store.changes(after=after, limit=limit)
        assert len(page.streams) == len(page.spans) <= limit
        assert len(set(page.streams)) == len(page.streams)
        after = page.token
        streams |= set(page.streams)
        if not page.streams:
            return streams, after


class Impatient:
    """The same store, for those who follow until they would have to wait."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def wait_any(self, *, after: str) -> None:
        """Would wait."""
        raise StopWaitingError(after)


class StopWaitingError(Exception):
    """There is nothing more to be told."""


async def told(store: EventStore, after: str, *, prefix: str = "") -> list[tuple[Event | Gap, str]]:
    """What a follower of all is told until it has to wait."""
    items: list[tuple[Event | Gap, str]] = []
    with suppress(StopWaitingError):
        async for item in follow_all(cast("EventStore", Impatient(store)), after=after, prefix=prefix):
            items.append(item)  # noqa: PERF401 - they are kept when it ends
    return items


def places(items: list[tuple[Event | Gap, str]]) -> list[tuple[str, int]]:
    return [(item.stream_id, item.seq if isinstance(item, Event) else -item.floor) for item, _ in items]


@case(9)
async def each_way_a_stream_can_change_is_told(store: EventStore) -> None:
    """Known fault: one that is forgotten is never looked at again."""
    assert await changed(store, "") == (set(), (await store.changes()).token)
    for name in ("a", "b", "c"):
        await store.append(name, new(3))
    streams, token = await changed(store, "")
    assert streams == {"a", "b", "c"}
    assert (await store.changes(after=token)).streams == []
    await store.append("b", new())
    streams, token = await changed(store, token)
    assert streams == {"b"}
    await store.truncate("c", through=2)
    streams, token = await changed(store, token)
    assert streams == {"c"}
    await store.delete("a")
    streams, token = await changed(store, token)
    assert streams == {"a"}
    await store.adopt("d", [Event("x", 4, "t", b"", 1)], floor=3)
    streams, token = await changed(store, token)
    assert streams == {"d"}
    await asyncio.gather(*(store.append(name, new()) for name in "abcde" for _ in range(3)))
    streams, token = await changed(store, token)
    assert streams == {"a", "b", "c", "d", "e"}
    assert (await store.changes(after=token)).streams == []


@case(9)
async def what_changes_nothing_is_not_told(store: EventStore) -> None:
    await store.delete("never")
    await store.truncate("never", through=0)
    await store.append("never", [])
    assert (await store.changes()).streams == []


@case(9)
async def a_change_tells_where_a_stream_stood(store: EventStore) -> None:
    await store.append("a", new(3))
    page = await store.changes()
    assert (page.streams, page.spans) == (["a"], [(0, 3)])
    await store.append("a", new(2))
    await store.append("a", new(2))
    later = await store.changes(after=page.token)
    assert (later.streams, later.spans) == (["a"], [(3, 7)])
    await store.append("a", new())
    again = await store.changes(after=later.begin)  # bound to what there was when it was asked for
    assert (again.streams, again.spans) == (["a"], [(3, 7)])
    assert (await store.changes(after=again.token)).spans == [(7, 8)]
    assert (await store.changes(after=page.token)).spans == [(3, 8)]


@case(9, each={"limit": [1, 2, 3, 1000]})
async def a_token_of_any_moment_goes_on_from_there(store: EventStore, limit: int) -> None:
    """Also one of the middle of a page, or of thousands of changes ago; spans never overlap, nor leave a hole."""
    chance = random.Random(limit)
    reached = dict.fromkeys("abcdefg", 0)
    token, kept = "", [("", dict(reached))]
    for _ in range(60):
        names = chance.choices("abcdefg", [9, 9, 9, 1, 1, 0.03, 0.01], k=chance.choice([0, 1, 3, 150]))  # some seldom
        await asyncio.gather(*(store.append(name, new(chance.choice([1, 2]))) for name in names))
        page = await store.changes(after=token, limit=limit)
        for name, (after, head) in zip(page.streams, page.spans, strict=True):
            assert after == reached[name]
            reached[name] = head
        token = page.token
        kept.append((token, dict(reached)))
    for old, seen in kept:
        token = old
        while (page := await store.changes(after=token, limit=limit)).streams:
            for name, (after, head) in zip(page.streams, page.spans, strict=True):
                assert after == seen[name]
                seen[name] = head
            token = page.token
        assert seen == {name: (await store.bounds(name)).head for name in seen}


@case(8, 14)
async def a_token_of_another_store_or_none_is_refused(backend: Backend) -> None:
    store = await backend.open()
    await store.append("a", new())
    token = (await store.changes()).token
    flipped = [token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :] for n in range(len(token) - 1)]
    for bad in (*flipped, "x", token[:-1], token + "A", token[::-1], "\0", "ä", " ", token + "~", token + "~x"):
        with pytest.raises(ValueError, match="token"):
            await store.changes(after=bad)
    for bad in ("x", token + "~x", "~" + token, "~~"):
        with pytest.raises(ValueError, match="token"):
            await anext(follow_all(store, after=bad))
    with pytest.raises(ValueError, match="after"):
        await store.changes(after=3)  # type: ignore[arg-type]
    for limit in (0, -1):
        with pytest.raises(ValueError, match="limit"):
            await store.changes(limit=limit)


@case(8)
async def a_token_of_another_life_is_told(store: EventStore) -> None:
    from stream import MemoryStore  # noqa: PLC0415 - any other store will do

    other = MemoryStore()
    await other.append("a", new())
    token = (await other.changes()).token
    for call in (store.changes(after=token), anext(follow_all(store, after=token)), store.wait_any(after=token)):
        with pytest.raises(Diverged) as diverged:
            await call
        assert diverged.value.incarnation == other.incarnation


@case(9)
async def a_token_outlives_the_store(backend: Backend) -> None:
    store = await backend.open()
    await store.append("a", new(2))
    await store.append("b", new(2))
    middle = await store.changes(limit=1)
    end = await store.changes(after=middle.token)
    store = await backend.reopen(store)
    await store.append("a", new())
    assert (await changed(store, middle.token))[0] == {"a", "b"}
    assert (await store.changes(after=end.token)).spans == [(2, 3)]


@case(9, needs={"share"})
async def what_another_store_changed_is_told(backend: Backend) -> None:
    one, two = await backend.open(), await backend.open()
    token = ""
    for n in range(40):
        writer, reader = (one, two) if n % 2 else (two, one)
        name = f"s{n % 7}"
        if n % 5 == 4 and n > 6:
            await writer.delete(name)
        else:
            await writer.append(name, new())
        streams, token = await changed(reader, token)
        assert streams == {name}


@case(9, each={"seed": list(range(4))})
async def beside_writers_none_is_missed(store: EventStore, seed: int) -> None:
    """Whatever the order in which they end: who reads on has seen all heads in the end."""
    chance = random.Random(seed)
    late = disturb(store, chance, late=0.5)
    seen: dict[str, int] = {}

    async def write(names: str) -> None:
        for _ in range(25):
            await late.append(chance.choice(names), new(chance.randint(1, 3)))

    async def watch() -> str:
        token = ""
        for _ in range(60):
            page = await late.changes(after=token, limit=2)
            for name, (after, head) in zip(page.streams, page.spans, strict=True):
                assert after == seen.get(name, 0)
                seen[name] = head
            token = page.token
        return token

    token, *_ = await asyncio.gather(watch(), write("abc"), write("bcd"), write("cde"))
    while (page := await store.changes(after=token, limit=2)).streams:
        seen |= {name: head for name, (_, head) in zip(page.streams, page.spans, strict=True)}
        token = page.token
    assert seen == {info.stream_id: info.head async for info in store.streams()}


@case(9)
async def a_follower_of_all_goes_on_from_every_token(store: EventStore) -> None:
    """Nothing is missed, and of what was told none comes again that was there before."""
    for n in range(12):
        await store.append("abc"[n % 3], new(1 + n % 3))
    whole = await told(store, "")
    assert sorted(places(whole)) == [
        (name, seq) for name, count in (("a", 4), ("b", 8), ("c", 12)) for seq in range(1, count + 1)
    ]
    for number, (_, token) in enumerate(whole, 1):
        assert places(await told(store, token)) == places(whole)[number:]
    await store.append("b", new(2))
    await store.append("d", new(2))
    since = {("b", 9), ("b", 10), ("d", 1), ("d", 2)}
    for number, (_, token) in enumerate(whole, 1):
        resumed = places(await told(store, token))
        assert resumed[: len(whole) - number] == places(whole)[number:]
        assert set(resumed[len(whole) - number :]) == since
        assert len(resumed) == len(whole) - number + len(since)


@case(8, 9)
async def a_follower_of_all_is_told_of_what_is_gone(store: EventStore) -> None:
    for name in "abc":
        await store.append(name, new(5))
    items = await told(store, "")
    token = items[6][1]  # all of a, two of b
    await store.truncate("a", through=4)
    await store.truncate("b", through=4)
    await store.delete("c")
    await store.append("c", new())
    resumed = await told(store, token)
    assert places(resumed) == [("b", -4), ("b", 5), ("c", -5), ("c", 6)]
    assert resumed[0][0] == Gap("b", 4, 5)
    assert resumed[2][0] == Gap("c", 5, 6)
    for number, (_, later) in enumerate(resumed, 1):
        assert places(await told(store, later)) == places(resumed)[number:]
    await store.truncate("a", through=5)
    assert places(await told(store, items[-1][1])) == [("c", 6)]  # what is gone was told before it went


@case(9)
async def a_follower_of_all_sees_what_its_prefix_says(store: EventStore) -> None:
    for name in ("a/1", "a/2", "b/1", "ds:a", "d"):
        await store.append(name, new())
    assert {name for name, _ in places(await told(store, ""))} == {"a/1", "a/2", "b/1", "d"}
    assert {name for name, _ in places(await told(store, "", prefix="a/"))} == {"a/1", "a/2"}
    assert {name for name, _ in places(await told(store, "", prefix="d"))} == {"d"}
    assert {name for name, _ in places(await told(store, "", prefix="ds:"))} == {"ds:a"}


@case(9, 13, each={"losing": [False, True], "seed": [1, 2]})
async def followers_of_all_miss_and_repeat_nothing(store: EventStore, *, losing: bool, seed: int) -> None:
    """Beside writers, every call held up at random; they stop and go on from their tokens again and again."""
    chance = random.Random(seed)
    late = disturb(store, chance, late=0.5)
    names = ["a", "b", "c", "d"]

    async def write(name: str) -> None:
        for _ in range(20):
            await late.append(name, new(2))

    async def watch() -> dict[str, int]:
        seen = dict.fromkeys(names, 0)
        token = ""
        while sum(seen.values()) < 160:
            async with aclosing(follow_all(late, after=token)) as feed:  # type: ignore[type-var]
                async for event, token in feed:  # noqa: B007 - it goes on from the last one
                    assert isinstance(event, Event)
                    assert event.seq == seen[event.stream_id] + 1
                    seen[event.stream_id] = event.seq
                    if chance.random() < 0.1 or sum(seen.values()) == 160:
                        break
        return seen

    with anyio.fail_after(20):
        if losing:
            with lost_wakeups(wait_s=0.01):
                views = await asyncio.gather(watch(), watch(), *map(write, names))
        else:
            views = await asyncio.gather(watch(), watch(), *map(write, names))
    assert views[:2] == [dict.fromkeys(names, 40)] * 2
