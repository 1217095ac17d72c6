"""Every recorded Anthropic stream comes back as it was recorded, and cut anywhere as a prefix of it."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from ledger import open_ledger
from ledger.admin.play import play_recording
from ledger.transfer.sources import look_through
from projector import State, transcript
from projector.events import to_event
from projector.formats.anthropic.stream_reader import AnthropicStream
from stream import Event, NewEvent
from tests.recordings import STREAMS, WHY_NONE, chunks_of, folded_parts, is_prefix, read_parts, read_usage

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not STREAMS, reason=WHY_NONE)
each = pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name.partition(".chunks")[0])


@pytest.mark.anyio
@each
async def test_a_recording_that_is_played_is_the_transcript(path: Path, tmp_path: Path) -> None:
    chunks = chunks_of(path)
    async with open_ledger(str(tmp_path / "a.db")) as ledger:
        run = await play_recording(ledger, look_through(path, "anthropic"), "c", rate=None, as_json=False)
        messages = await ledger.transcript("c")
        await ledger.compact("c")
        assert await ledger.transcript("c") == messages
    assert run.outcome == "completed"
    assert folded_parts(messages) == read_parts(chunks)
    assert {name: (usage.input, usage.output) for name, usage in run.usage.items()} == read_usage(chunks)


@each
def test_a_stream_that_is_cut_anywhere_leaves_a_prefix(path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chunks = chunks_of(path)
    whole = read_parts(chunks)
    cuts = set(range(len(chunks) + 1)) if len(chunks) <= 60 else set(random.Random(seed).sample(range(len(chunks)), 40))
    numbers = itertools.count(1)
    stream = AnthropicStream("r", lambda: f"r.{next(numbers)}")
    start = b'{"run_id":"r","parent_message_id":null,"trigger":"submit","producer":"r"}'
    state = fold(transcript.initial, NewEvent("run.started", start))
    for cut, chunk in enumerate(["", *chunks]):
        for body in stream.feed(chunk) if chunk else ():
            state = fold(state, to_event(body))
        assert not list(state.anomalies)
        if cut in cuts:
            parts = folded_parts(state.all_messages())
            assert is_prefix(parts, whole)
            said = "".join(part.text for response in read_parts(chunks[:cut]) for part in response)
            assert "".join(part.text for response in parts for part in response) == said
    assert stream.end().outcome == "completed"


def fold(state: State, event: NewEvent) -> State:
    return transcript.fold(state, Event("s", state.last_seq + 1, event.type, event.data, 0))
