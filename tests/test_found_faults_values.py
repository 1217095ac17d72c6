"""Faults in what events and chunks may hold that an attack on the finished code found, each named after its symptom."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger import open_ledger
from projector import InvalidJson, Message, transcript
from projector.formats import FormatError
from projector.formats.anthropic.stream_reader import AnthropicStream
from projector.json_text import decode, decoder
from projector.validation import validate
from stream import Event, InvalidEvent, NewEvent
from tests.talk import new, said, started

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

START = {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}}
TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}


@pytest.mark.parametrize(
    "data",
    [
        b'{"message_id":"r.1","patch":{"a":"\xff"}}',
        b'{"message_id":"r.1","block":0,"citation":"\xff"}',
        b'{"run_id":"r","outcome":"failed","error":"\xff"}',
    ],
)
def test_bytes_that_are_no_text_are_refused_and_never_make_a_fold_raise(data: bytes) -> None:
    kind = "run.finished" if b"outcome" in data else "block.annotated" if b"block" in data else "message.annotated"
    with pytest.raises(InvalidEvent):
        validate([NewEvent(kind, data)])
    state = transcript.initial
    for seq, event in enumerate([started("r"), *said("r", "r.1", "x"), NewEvent(kind, data)], 1):
        state = transcript.fold(state, Event("s", seq, event.type, event.data, 0))
    assert [anomaly.seq for anomaly in state.anomalies] == [7]


async def test_what_does_not_fit_its_type_is_refused_where_it_is_said() -> None:
    async with open_ledger("memory:") as ledger:
        with pytest.raises(ValueError, match="model must be text"):
            await ledger.begin_run("c", model=5)  # type: ignore[arg-type]
        async with ledger.run("c") as run:
            with pytest.raises(ValueError, match="role must be one of"):
                await run.message("human", "hi")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="status must be one of"):
                await run.tool_result("call", "x", status="success")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="no outcome"):
                await run.finish("done")  # type: ignore[arg-type]
            await run.text("fine ")
            with pytest.raises(InvalidEvent):
                await run.message("user", "x" * (65 * 1024 * 1024))
            await run.text("and whole")
        assert [(m.text, m.status) for m in await ledger.transcript("c")] == [("fine and whole", "complete")]


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ["a"]}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": 5, "name": "n", "input": {}}},
        {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": "no"}},
        {"type": "message_start", "message": {"id": "n", "role": "model", "content": []}},
    ],
)
async def test_a_chunk_of_the_wrong_shape_is_refused_and_the_run_does_not_look_complete(chunk: dict[str, Any]) -> None:
    async with open_ledger("memory:") as ledger:

        async def feed() -> None:
            async with ledger.run("c", run_id="r", format="anthropic") as run:
                await run.feed(START)
                await run.feed(TEXT)
                await run.feed(chunk)

        with pytest.raises(FormatError):
            await feed()
        [info] = [run async for run in ledger.runs("c")]
        assert info.status == "failed"


def test_a_start_that_is_refused_leaves_the_stream_as_it_was_and_null_usage_is_no_usage() -> None:
    stream = AnthropicStream("r", lambda: "r.1")
    with pytest.raises(FormatError):
        stream.feed({"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": "much"}})
    bodies = stream.feed({"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": None}})
    assert [body.TYPE for body in bodies] == ["run.step", "message.started"]
    stream.feed({"type": "error", "error": {"type": "overloaded_error"}})
    stream.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": None})
    assert stream.end().outcome == "failed"


def test_a_redaction_that_holds_no_json_is_an_anomaly() -> None:
    state = transcript.initial
    redaction = new("message.redacted", message_id="r.1", blocks=[{"kind": "text", "opaque": "no json"}])
    for seq, event in enumerate([started("r"), *said("r", "r.1", "x"), redaction], 1):
        state = transcript.fold(state, Event("s", seq, event.type, event.data, 0))
    assert [anomaly.seq for anomaly in state.anomalies] == [7]
    with pytest.raises(InvalidJson):
        transcript.decode(json.dumps({"last_seq": "x"}).encode())


@pytest.mark.parametrize(
    "text", [b"x", "é".encode(), b"\\ud83d\\ude00", b"\\ud83d", b"\xff", b"\xed\xa0\xbd", b"\n", b'"', b"[" * 9]
)
@pytest.mark.parametrize(
    "place", [b'"text":"%s"', b'"text":"a","fields":{"%s":"a"}', b'"text":"a","opaque":"%s"', b'"text":%s']
)
def test_a_decoder_of_messages_reads_and_refuses_what_any_other_reading_does(place: bytes, text: bytes) -> None:
    message = b'{"id":"m","parent_id":null,"run_id":"r","role":"user","status":"complete","blocks":[{"kind":"text",%s}],'
    data = message % (place % text) + b'"created_at":1,"seq":1}'

    def outcome(read: Callable[[bytes], object]) -> object:
        try:
            return read(data)
        except InvalidJson as error:
            return str(error)

    assert outcome(decoder(Message)) == outcome(lambda data: decode(data, Message))
