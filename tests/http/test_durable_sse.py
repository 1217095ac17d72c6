"""Durable Streams as server-sent events: who reads by the book gets what was written, and no place goes back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream.http.durable.getting import _data
from stream.http.durable.paths import stream_id
from stream.memory import MemoryStore
from tests.http.asgi_streams import Answer, ask
from tests.http.durable_workers import Worker

if TYPE_CHECKING:
    import contextlib

pytestmark = pytest.mark.anyio


def follow(worker: Worker, path: str, offset: str = "-1") -> contextlib.AbstractAsyncContextManager[Answer]:
    return ask(worker.app, "GET", f"/v1/stream/{path}?offset={offset}&live=sse", headers={"host": "streams.test"})


def frames(body: bytes) -> list[tuple[str, str]]:
    """Name and data of each event, by the specification of server-sent events: one blank behind the colon is no data."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        fields = [line.partition(":") for line in block.split("\n")]
        told = [(name, value.removeprefix(" ")) for name, _, value in fields]
        name = "".join(value for field, value in told if field == "event")
        found.append((name, "\n".join(value for field, value in told if field == "data")))
    return found


@settings(max_examples=300)
@given(st.text(st.sampled_from(" \n\r:ad\u2028\x00\t"), max_size=12))
@example(" world")
@example("\n  indented\n\n ")
@example(" \r\n  x\r ")
def test_text_is_read_as_it_was_written(text: str) -> None:
    """But for the kind of its line breaks, which can't be told."""
    [(_, data)] = frames(_data([text.encode()], "text/plain"))
    assert data == text.replace("\r\n", "\n").replace("\r", "\n")


async def test_words_of_a_model_keep_the_blanks_between_them() -> None:
    async with Worker(MemoryStore()) as worker:
        await worker.make("a", content=b"Hello")
        async with follow(worker, "a") as answer:
            await answer.until(b"upToDate")
            for word in (b" big", b" world", b"\n  - one"):
                await worker.add("a", word)
            await worker.add("a", Stream_Closed="true")
            await answer.end()
        said = "".join(data for event, data in frames(answer.body) if event == "data")
        assert said == "Hello big world\n  - one" == await worker.text("a")


async def test_the_end_that_another_process_told_lies_behind_what_it_said_before() -> None:
    store = MemoryStore()
    async with Worker(store) as one, Worker(store) as other:
        await one.make("a", content=b"1")
        async with follow(one, "a") as answer:
            await answer.until(b"upToDate")
            await other.add("a", b"2")
            await answer.until(b"data:2")
            await other.add("a", Stream_Closed="true")
            await answer.end()
        controls = [json.loads(data) for event, data in frames(answer.body) if event == "control"]
        places = [control["streamNextOffset"] for control in controls]
        assert controls[-1]["streamClosed"]
        assert places == sorted(places)
        assert places[-1] == (await other.head("a")).headers["Stream-Next-Offset"]


async def test_what_was_shown_is_let_go_with_who_followed() -> None:
    async with Worker(MemoryStore()) as worker:
        await worker.make("a")
        async with follow(worker, "a") as answer:
            await answer.until(b"upToDate")
            await worker.add("a", b"x" * 100_000)
            await answer.until(b"x" * 1000)
            await anyio.sleep(0.01)
        assert (await worker.endpoint._streams.open(stream_id("a", 1))).framed is None
