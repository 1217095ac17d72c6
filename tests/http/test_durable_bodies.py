"""Durable Streams: what a body may be, and what one that is meant to do harm costs."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import Any

import anyio
import pytest
from starlette.requests import Request

from stream.http.bodies import read_body
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


def request_of(*, pause_s: float) -> Request:
    """One whose body comes byte by byte, and never ends."""

    async def receive() -> Any:
        await anyio.sleep(pause_s)
        return {"type": "http.request", "body": b"x", "more_body": True}

    return Request({"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}, receive)


@pytest.mark.parametrize(
    ("limits", "why"), [({"whole_s": 0.1}, "not there after 0.1 s"), ({"silent_s": 0.005}, "nothing more")]
)
async def test_a_body_that_comes_byte_by_byte_has_its_time(limits: dict[str, float], why: str) -> None:
    with pytest.raises(Problem, match=why) as told, anyio.fail_after(5):
        await read_body(request_of(pause_s=0.01), 1_000_000, **limits)
    assert (told.value.status, told.value.headers["Connection"]) == (408, "close")


async def test_a_compressed_body_is_refused_and_not_kept_as_if_it_were_the_text() -> None:
    packed = gzip.compress(b"text")
    async with Worker(MemoryStore()) as worker:
        assert (await worker.make("a", content=packed, Content_Encoding="gzip")).status_code == 415
        assert (await worker.make("a", content=b"text", Content_Encoding="identity")).status_code == 201
        answer = await worker.add("a", packed, Content_Encoding="gzip")
        assert (answer.status_code, answer.json()["error"]) == (415, "encoded")
        assert await worker.text("a") == "text"
