"""A server of the Durable Streams protocol over each store, and the application of a ledger, both in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.http import make_app
from tests.http.durable_workers import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette

    from ledger import Ledger
    from stream import EventStore


@pytest.fixture
async def worker(store: EventStore) -> AsyncIterator[Worker]:
    """A client of a server of this store; another one of the same store is `Worker(store)`."""
    async with Worker(store) as worker:
        yield worker


@pytest.fixture
async def app(ledger: Ledger) -> AsyncIterator[Starlette]:
    """All that the ledger serves; at the end those who follow are ended."""
    made = make_app(ledger)
    yield made
    made.state.service.followers.close()
