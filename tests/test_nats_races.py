"""Eighteen writers at one place of a log, over six connections to three NATS servers: one of them wins, and each is told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from stream import AppendResult, NewEvent, SeqConflict
from stream.nats import NatsStore, open_nats
from stream.nats.client import HEADER
from stream.nats.errors import Moved
from stream.nats.state import State, write_state
from tests.faults.sizes import size
from tests.nats_server import NatsCluster, three_running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.heavy]

RACES = size(smoke=12, full=900)
WRITERS = 18
CONNECTIONS = 6


@pytest.fixture
async def stores(anyio_backend: object) -> AsyncIterator[list[NatsStore]]:
    """Six over three nodes: two connections to each."""
    del anyio_backend
    with three_running() as cluster:
        opened = [await open_nats(cluster.url("races", node=number % 3)) for number in range(CONNECTIONS)]
        assert_spread(opened, cluster)
        yield opened
        for store in opened:
            await store.close()


def assert_spread(stores: Sequence[NatsStore], cluster: NatsCluster) -> None:
    ports = Counter(url.port for store in stores if (url := store._client.driver.connected_url))
    assert ports == {node.port: CONNECTIONS // 3 for node in cluster.nodes}


async def test_of_eighteen_appends_one_wins(stores: list[NatsStore]) -> None:
    lost: Counter[str] = Counter()
    begin = time.monotonic()
    for head in range(RACES):
        tries = [
            store.append("s", [NewEvent("t", f"{number}".encode())], expected_seq=head)
            for number, store in enumerate(stores * (WRITERS // CONNECTIONS))
        ]
        results = await asyncio.gather(*tries, return_exceptions=True)
        won = [number for number, result in enumerate(results) if not isinstance(result, BaseException)]
        assert [results[number] for number in won] == [AppendResult(head + 1, head + 1)]
        lost.update(type(result).__name__ for number, result in enumerate(results) if number not in won)
        [event] = await stores[head % CONNECTIONS].read("s", after=head)
        assert event.data == str(won[0]).encode()
    assert lost == {SeqConflict.__name__: RACES * (WRITERS - 1)}
    assert (await stores[0].bounds("s")).head == RACES
    print(f"{RACES} races in {time.monotonic() - begin:.1f} s: one winner each, losers {dict(lost)}")


async def test_of_eighteen_messages_one_is_stored(stores: list[NatsStore]) -> None:
    """As above with nothing of ours between: each of them reaches the servers, whatever a store would decide itself."""
    lost: Counter[str] = Counter()
    winners: Counter[int] = Counter()
    layout, js = stores[0]._log.layout, 0
    subject, home = layout.log("s"), layout.home("s")
    begin = time.monotonic()
    for head in range(RACES):
        headers = {HEADER: write_state(State(head + 1, 1))}
        sent = [
            store._client.send(subject, f"{number}".encode(), headers, expected=js)
            for number, store in enumerate(stores * (WRITERS // CONNECTIONS))
        ]
        results = await asyncio.gather(*sent, return_exceptions=True)
        [won] = [number for number, result in enumerate(results) if isinstance(result, int)]
        lost.update(type(result).__name__ for number, result in enumerate(results) if number != won)
        winners[won % 3] += 1
        raw = await stores[0]._client.last(home, subject)
        assert raw is not None
        assert (raw.js, raw.data) == (results[won], str(won).encode())
        js = raw.js
    info = await stores[0]._client.ask(f"STREAM.INFO.{home}")
    assert info["state"]["messages"] == RACES
    assert lost == {Moved.__name__: RACES * (WRITERS - 1)}
    print(f"{RACES} races in {time.monotonic() - begin:.1f} s: one winner each, by node {dict(winners)}, losers {dict(lost)}")
