"""Durable Streams: headers that are unusual and legal."""

from __future__ import annotations

import pytest

from stream.memory import MemoryStore
from tests.http.durable_workers import Worker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("when", ["2130-01-31T12:00:00Z", "2130-01-31t12:00:00z", "2130-01-31T12:00:00.5+01:00"])
async def test_a_time_is_written_as_rfc_3339_has_it_in_small_letters_too(when: str) -> None:
    async with Worker(MemoryStore()) as worker:
        assert (await worker.make("a", Stream_Expires_At=when)).status_code == 201
        assert (await worker.head("a")).headers["Stream-Expires-At"] == when
        assert (await worker.make("a", Stream_Expires_At=when)).status_code == 200


async def test_a_head_says_nothing_of_a_length_that_a_get_would_not_have() -> None:
    async with Worker(MemoryStore()) as worker:
        await worker.make("a", content=b"text")
        head = await worker.head("a")
        assert (head.status_code, head.headers.get("Content-Length")) == (200, None)
