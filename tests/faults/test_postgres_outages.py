"""PostgreSQL out of reach for longer than anybody waits: each is told in time, and what was put off is taken up again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from stream import StoreUnreachable, open_store
from stream.postgres import PostgresStore
from tests.faults.held_feed import event, server
from tests.faults.tcp_proxy import Proxy
from tests.faults.test_postgres_refusals import change
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from collections.abc import Awaitable

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
PATIENCE_S = 1.0


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("database", "appender"):
        monkeypatch.setattr(f"stream.postgres.{module}.PATIENCE_S", PATIENCE_S)


@pytest.mark.usefixtures("_little_patience")
async def test_however_many_wait_all_are_told_in_time_and_later_ones_wait_anew() -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        await store.append("s", event("first"))
        for _ in range(2):
            proxy.refusing = True
            proxy.cut_all()
            began = time.monotonic()
            appends = [asyncio.ensure_future(store.append(f"s{n}", event("x"))) for n in range(1500)]
            looks = [asyncio.ensure_future(store.bounds("s")) for _ in range(50)]
            told = await asyncio.gather(*appends, *looks, return_exceptions=True)
            assert {type(each) for each in told} == {StoreUnreachable}
            took_s = time.monotonic() - began
            assert PATIENCE_S <= took_s < 4 * PATIENCE_S
            await asyncio.sleep(1.5 * PATIENCE_S)  # others' patience is not spent by then
            later = asyncio.ensure_future(store.append("s", event("later")))
            await asyncio.sleep(PATIENCE_S / 3)
            assert not later.done()
            proxy.refusing = False
            await asyncio.wait_for(later, 10)


async def test_the_driver_says_nothing_of_connections_that_it_misses(caplog: pytest.LogCaptureFixture) -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        await store.append("s", event("first"))
        proxy.refusing = True
        proxy.cut_all()
        under_way = asyncio.ensure_future(store.append("s", event("second")))
        await asyncio.sleep(0.3)
        proxy.refusing = False
        assert (await asyncio.wait_for(under_way, 10)).last_seq == 2
    assert [record.getMessage() for record in caplog.records if not record.name.startswith("tailfold")] == []


@pytest.mark.usefixtures("_little_patience")
async def test_a_close_while_the_server_is_out_of_reach_ends() -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy:
        store = await open_store(proxy.url(url))
        with store.listen("s"):
            await store.append("s", event("first"))
            proxy.refusing = True
            proxy.cut_all()
            calls: list[Awaitable[object]] = [store.append("s", event("x")), store.truncate("s", through=1), store.bounds("s")]
            under_way = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(0.05)
            await asyncio.wait_for(store.close(), 5 * PATIENCE_S)
            told = await asyncio.gather(*under_way, return_exceptions=True)
            assert {type(each) for each in told} == {StoreUnreachable}


@pytest.mark.usefixtures("_little_patience")
async def test_rows_whose_sweep_was_cut_off_are_swept_with_the_next() -> None:
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        assert isinstance(store, PostgresStore)
        for name in ("a", "b"):
            await asyncio.gather(*(store.append(name, event(str(n))) for n in range(20)))
        await store.settle()
        with mock.patch.object(store, "_went"):  # its sweep begins when the server is gone
            await store.truncate("a", through=20)
        proxy.refusing = True
        proxy.cut_all()
        store._went("a")
        await store.settle()
        proxy.refusing = False
        await store.truncate("b", through=20)
        await store.settle()
        assert await store.database.read("SELECT count(*) FROM appends") == [(0,)]


async def test_what_was_known_of_streams_is_not_believed_of_another_server() -> None:
    """One that has lost the newest, as a standby may that was not waited for, gives their keys to other streams."""
    url = Shared.url()
    async with Proxy(server().port) as proxy, open_store(proxy.url(url)) as store:
        for name in ("a", "b"):
            await store.append(name, event("first"))
        await change(url, "UPDATE streams SET name = CASE name WHEN 'a' THEN 'b' ELSE 'a' END || '?' WHERE name IN ('a', 'b')")
        await change(url, "UPDATE streams SET name = rtrim(name, '?')")
        proxy.cut_all()
        await asyncio.sleep(0.1)
        await store.append("a", event("second"))
        assert (await store.bounds("a")).head == 2
        assert (await store.bounds("b")).head == 1


async def test_a_machine_that_goes_without_a_word_is_noticed() -> None:
    """The system keeps asking whether it is there, on each connection."""
    async with open_store(Shared.url()) as store:
        with store.listen("s"):
            await asyncio.gather(*(store.bounds("s") for _ in range(20)))
            await asyncio.sleep(0.2)
            port = f":{server().port:04X}"
            rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
            timers = [timer.partition(":")[0] for _, _, to, state, _, timer, *_ in rows if to.endswith(port) and state == "01"]
            assert len(timers) > 1
            assert set(timers) <= {"01", "02"}, "a connection is not kept an eye on"
