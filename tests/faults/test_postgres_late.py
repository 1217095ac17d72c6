"""What was sent to PostgreSQL and lost on the way, and comes in late: it is the one that counts, and is stored once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from stream import AppendResult, Producer, SeqConflict, StoreUnreachable, open_store
from stream.postgres import PostgresStore
from tests.faults.held_feed import backends_behind_a_lock, event, feed_held, read, server, until_behind_a_lock
from tests.faults.tcp_proxy import Proxy
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream import EventStore
    from stream.postgres.request import Request

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


async def truncate_when_there(store: EventStore) -> None:
    async with asyncio.timeout(20):
        while (await store.bounds("s")).head < 2:
            await asyncio.sleep(0.01)
    await store.truncate("s", through=2)
    assert isinstance(store, PostgresStore)
    await store.settle()


@pytest.mark.parametrize("expected", [None, 1], ids=["anywhere", "at its place"])
async def test_what_was_sent_and_lost_and_comes_late_is_the_one_that_counts(expected: int | None) -> None:
    """The client looks, finds nothing, and sends it again; then only the first one is stored."""
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store, open_store(url) as direct:
        await store.append("s", event("first"))
        async with feed_held(url) as let_go:
            under_way = asyncio.ensure_future(store.append("s", event("late"), expected_seq=expected))
            await until_behind_a_lock(1)
            proxy.cut_all()
            await until_behind_a_lock(2)
            let_go.set()
            done = await asyncio.wait_for(under_way, 20)
        assert (done.first_seq, done.last_seq, done.duplicate) == (2, 2, False)
        assert await read(direct, "s") == ["first", "late"]


async def test_what_comes_late_between_the_look_for_it_and_the_next_attempt_is_the_one_that_counts() -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store, open_store(url) as direct:
        assert isinstance(store, PostgresStore)
        await store.append("s", event("first"))
        look_for = store._appender._look_for
        looks = 0

        async def look(requests: Sequence[Request]) -> None:
            nonlocal looks
            await look_for(requests)
            looks += any(request.lost and not request.answer.done() for request in requests)
            if looks == 2:  # behind the first one nothing is sent yet: the connection is a new one
                let_go.set()
                while (await direct.bounds("s")).head < 2:
                    await asyncio.sleep(0.01)

        store._appender._look_for = look  # type: ignore[method-assign]
        async with feed_held(url) as let_go:
            under_way = asyncio.ensure_future(store.append("s", event("late")))
            await until_behind_a_lock(1)
            proxy.cut_all()
            done = await asyncio.wait_for(under_way, 20)
        assert (done.first_seq, done.last_seq, looks) == (2, 2, 2)
        assert await read(direct, "s") == ["first", "late"]


async def test_nobody_is_told_of_a_conflict_while_his_append_may_still_come_in() -> None:
    """It went behind another one, whose caller has left: alone it would not fit, until both are there."""
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        await store.append("s", event("first"))
        async with feed_held(url) as let_go:
            leaves = asyncio.ensure_future(store.append("s", event("leaves")))
            behind = asyncio.ensure_future(store.append("s", event("behind"), expected_seq=2))
            await until_behind_a_lock(1)
            leaves.cancel()
            proxy.cut_all()
            await asyncio.sleep(0.5)
            assert not behind.done()
            let_go.set()
            assert (await asyncio.wait_for(behind, 20)).first_seq == 3
        assert await read(store, "s") == ["first", "leaves", "behind"]


async def test_who_leaves_while_another_is_under_way_has_appended_nothing() -> None:
    url = Shared.url()
    async with open_store(url) as store:
        async with feed_held(url) as let_go:
            first = asyncio.ensure_future(store.append("s", event("first")))
            await until_behind_a_lock(1)
            leaves, stays = (asyncio.ensure_future(store.append("s", event(text))) for text in ("leaves", "stays"))
            await asyncio.sleep(0.01)
            leaves.cancel()
            await asyncio.sleep(0.01)
            let_go.set()
            assert (await first, await stays) == (AppendResult(1, 1), AppendResult(2, 2))
        assert await read(store, "s") == ["first", "stays"]


async def test_who_may_still_come_in_after_all_patience_is_told_that_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.postgres.appender.PATIENCE_S", 0.5)
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        await store.append("s", event("first"))
        async with feed_held(url) as let_go:
            leaves = asyncio.ensure_future(store.append("s", event("leaves")))
            behind = asyncio.ensure_future(store.append("s", event("behind"), expected_seq=2))
            await until_behind_a_lock(1)
            leaves.cancel()
            proxy.cut_all()
            with pytest.raises(StoreUnreachable, match="not known"):
                await asyncio.wait_for(behind, 10)
            let_go.set()


async def test_what_comes_late_is_not_stored_again_elsewhere_when_the_stream_was_truncated() -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store, open_store(url) as direct:
        await store.append("s", event("first"))
        async with feed_held(url) as let_go:
            under_way = asyncio.ensure_future(store.append("s", event("late")))
            await until_behind_a_lock(1)
            proxy.refusing = True
            proxy.cut_all()
            let_go.set()
        await truncate_when_there(direct)
        proxy.refusing = False
        with pytest.raises(StoreUnreachable, match="truncated since"):
            await asyncio.wait_for(under_way, 20)
        assert (await direct.bounds("s")).head == 2


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "by a producer"])
async def test_what_came_late_and_was_truncated_is_known_by_its_name_or_watermark(*, is_named: bool) -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store, open_store(url) as direct:
        await store.append("s", event("first"))
        async with feed_held(url) as let_go:
            under_way = asyncio.ensure_future(
                store.append("s", event("late"), expected_seq=1, append_id="n")
                if is_named
                else store.append("s", event("late"), producer=Producer("p", 0, 0))
            )
            await until_behind_a_lock(1)
            proxy.refusing = True
            proxy.cut_all()
            let_go.set()
        await truncate_when_there(direct)
        proxy.refusing = False
        if is_named:
            with pytest.raises(SeqConflict):
                await asyncio.wait_for(under_way, 20)
        else:
            assert await asyncio.wait_for(under_way, 20) == AppendResult(2, 2, duplicate=True)
        assert (await direct.bounds("s")).head == 2


async def test_what_another_has_stored_at_the_place_of_what_was_lost_is_not_taken_for_it() -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store, open_store(url) as direct:
        await store.append("s", event("first"))
        async with feed_held(url) as let_go:
            under_way = asyncio.ensure_future(store.append("s", event("lost")))
            await until_behind_a_lock(1)
            proxy.refusing = True
            proxy.cut_all()
            await server().ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND application_name = 'tailfold'"
            )
            async with asyncio.timeout(20):
                while await backends_behind_a_lock():
                    await asyncio.sleep(0.01)
            let_go.set()
        await direct.append("s", event("other"))
        proxy.refusing = False
        assert await asyncio.wait_for(under_way, 20) == AppendResult(3, 3)
        assert await read(direct, "s") == ["first", "other", "lost"]
