"""Durable Streams: what a body may be, and what one that is meant to do harm costs."""

from __future__ import annotations

import tracemalloc

import pytest

from stream.http.durable import messages
from stream.http.problems import Problem
from stream.memory import MemoryStore
from tests.http.durable_workers import Worker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("first", [b"1", b'"\\ud800"'])
def test_an_array_of_millions_is_refused_before_it_takes_the_memory_of_millions(first: bytes) -> None:
    body = b"[" + first + b",1" * 1_000_000 + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(Problem) as told:
            messages.split(body, "application/json", most=10)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told.value.status == 413
    assert peak_bytes < 4 * len(body)


async def test_as_many_messages_as_may_come_at_once_come_however_many_commas_are_in_them() -> None:
    parts = [b"[" + b"1," * 60 + b"1]"] * 9_000
    body = b"[" + b",".join(parts) + b"]"
    assert body.count(b",") > 500_000
    assert messages.split(body, "application/json", most=9_000) == parts
    async with Worker(MemoryStore()) as worker:
        await worker.make("a", "application/json")
        answer = await worker.add("a", b"[" + b"1," * 9_999 + b"1]", "application/json")
        assert (answer.status_code, answer.json()["error"]) == (413, "too_many")
        assert (await worker.add("a", b"[" + b"1," * 9_900 + b"1]", "application/json")).status_code == 204
