"""Anthropic streams that no recording has: errors, repeats, what nobody knows, and JSON that must not be rewritten."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from projector import Block, Message, State, transcript
from projector.events import BlockDelta, Body, RawEvent, RunUsage, to_event
from projector.formats import FormatError
from projector.formats.anthropic.stream_reader import AnthropicStream
from projector.json_text import text_of
from tests.talk import number, started

if TYPE_CHECKING:
    from collections.abc import Iterable

START = '{"type":"message_start","message":{"id":"msg_1","role":"assistant","content":[]}}'
STOP = '{"type":"message_stop"}'


def begin(block: str, index: int = 0) -> str:
    return f'{{"type":"content_block_start","index":{index},"content_block":{block}}}'


def grow(delta: str, index: int = 0) -> str:
    return f'{{"type":"content_block_delta","index":{index},"delta":{delta}}}'


def close(index: int = 0) -> str:
    return f'{{"type":"content_block_stop","index":{index}}}'


def text(piece: str, index: int = 0) -> str:
    return grow(f'{{"type":"text_delta","text":{json.dumps(piece)}}}', index)


def arguments(piece: str, index: int = 0) -> str:
    return grow(f'{{"type":"input_json_delta","partial_json":{json.dumps(piece)}}}', index)


TEXT = begin('{"type":"text","text":""}')
TOOL = begin('{"type":"tool_use","id":"toolu_1","name":"f","input":{}}')


def make() -> AnthropicStream:
    numbers = itertools.count(1)
    return AnthropicStream("r", lambda: f"r.{next(numbers)}")


def feed(*chunks: str | bytes | dict[str, Any]) -> tuple[AnthropicStream, list[Body]]:
    stream = make()
    return stream, [body for chunk in chunks for body in stream.feed(chunk)]


def fold(bodies: Iterable[Body]) -> State:
    state = transcript.initial
    for event in number([started("r"), *map(to_event, bodies)]):
        state = transcript.fold(state, event)
    assert [anomaly for anomaly in state.anomalies if not anomaly.is_applied] == []
    return transcript.decode(transcript.encode(state))


def messages(*chunks: str | bytes | dict[str, Any]) -> list[Message]:
    return fold(feed(*chunks)[1]).all_messages()


def only_block(*chunks: str) -> Block:
    [message] = messages(START, *chunks)
    [block] = message.blocks
    return block


def raw_events(bodies: Iterable[Body]) -> list[str | None]:
    return [text_of(body.event) for body in bodies if isinstance(body, RawEvent)]


def test_an_error_in_the_middle_fails_the_run_and_is_kept_as_it_came() -> None:
    error = '{"type": "overloaded_error", "message": "\\ud83d", "retry": 1e400}'
    stream, bodies = feed(START, TEXT, text("so far"), f'{{"type":"error","error":{error}}}')
    assert (stream.end().outcome, stream.end().error) == ("failed", error)
    [message] = fold(bodies).all_messages()
    assert (message.text, message.status, message.blocks[0].sealed) == ("so far", "partial", False)


def test_an_error_is_not_undone_by_what_follows_it() -> None:
    ending = '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}'
    stream, _ = feed(START, '{"type":"error","error":{"type":"api_error"}}', ending, STOP)
    assert (stream.end().outcome, stream.end().error) == ("failed", '{"type":"api_error"}')


def test_an_error_may_be_all_there_is() -> None:
    stream, bodies = feed('{"type":"error","error":{"type":"api_error"}}')
    assert (stream.end().outcome, bodies) == ("failed", [])


def test_a_stream_is_incomplete_until_its_response_stops() -> None:
    stream = make()
    outcomes = [stream.end().outcome]
    for chunk in (START, TEXT, text("x"), close(), '{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}', STOP):
        stream.feed(chunk)
        outcomes.append(stream.end().outcome)
    assert outcomes == ["incomplete"] * 6 + ["completed"]
    assert stream.end().finish_reason == "max_tokens"
    stream.feed(START)
    assert (stream.end().outcome, stream.end().finish_reason) == ("incomplete", None)


def test_the_same_start_once_more_changes_nothing_before_the_first_block() -> None:
    assert feed(START, START, TEXT, text("x"))[1] == feed(START, TEXT, text("x"))[1]


def test_a_start_in_the_middle_of_a_response_leaves_the_first_as_partial() -> None:
    again = START.replace("msg_1", "msg_2")
    first, second = messages(START, TEXT, text("torn"), again, TEXT, text("whole"), close(), STOP)
    assert (first.text, first.status, first.provider_ref) == ("torn", "partial", "msg_1")
    assert (second.text, second.status, second.provider_ref) == ("whole", "complete", "msg_2")
    assert second.parent_id == first.id


@pytest.mark.parametrize(
    "chunk",
    [
        '{"type":"weather",  "to": "rain", "n": 1e400, "s": "\\ud83d"}',
        grow('{"type": "hologram_delta", "x": "\\u00e9"}'),
        grow('{"type":"input_json_delta","partial_json":"for nobody"}', index=7),
        close(index=7),
    ],
    ids=["event", "delta", "delta of an unknown block", "stop of an unknown block"],
)
def test_what_nobody_knows_is_kept_as_it_came_and_changes_no_message(chunk: str) -> None:
    _, bodies = feed(START, TEXT, text("a"), chunk, text("b"), close(), STOP)
    assert raw_events(bodies) == [chunk]
    assert [message.text for message in fold(bodies).all_messages()] == ["ab"]


def test_what_comes_outside_a_response_is_kept_as_it_came() -> None:
    late = [text("late"), '{"type":"message_delta","delta":{"stop_reason":"refusal"}}']
    stream, bodies = feed(START, TEXT, text("x"), close(), STOP, *late)
    assert raw_events(bodies) == late
    assert (stream.end().outcome, stream.end().finish_reason) == ("completed", None)


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ('{"type": "redacted_thinking",  "data": "\\u00e9\\/x"}', "redacted_reasoning"),
        ('{"type":"hologram","n":1e400, "s":"\\ud83d", "z": 1.50}', "provider"),
        ('{"type":"web_search_tool_result","tool_use_id":"t","content":[ {"n": 1.0e2} ]}', "server_tool_result"),
        ('{"type":"server_tool_use","id":"t","name":"f","input":{},"caller":{"a": 1E5}}', "server_tool_call"),
    ],
)
def test_what_our_fields_do_not_say_goes_back_byte_for_byte(payload: str, kind: str) -> None:
    wanted = f'{{"provider":"anthropic","payload":{payload}}}'
    block = only_block(begin(payload), close())
    assert (block.kind, block.sealed, block.opaque) == (kind, True, wanted)
    whole = START.replace('"content":[]', f'"content":[ {payload} , {{"type":"text","text":"x"}}]')
    [message] = messages(whole, STOP)
    assert [each.opaque for each in message.blocks] == [wanted, None]


INPUT = '{"n": 1e400, "big": 1%s, "s": "\\ud83d", "nul": "\\u0000", "f": 1.50}' % ("0" * 60)


def test_the_input_of_a_tool_that_is_given_at_the_start_is_kept_byte_for_byte() -> None:
    given = f'{{"type":"tool_use","id":"toolu_1","name":"f","input":{INPUT}}}'
    block = only_block(begin(given), close())
    assert (block.kind, block.name, block.tool_call_id, block.text) == ("tool_call", "f", "toolu_1", "")
    assert (block.input_text, block.parse, block.opaque) == (INPUT, "ok", None)
    assert block.input["s"] == "\ud83d"
    [message] = messages(START.replace('"content":[]', f'"content":[{given}]'), STOP)
    assert message.blocks == (block,)


def test_the_input_of_a_tool_that_comes_in_deltas_is_kept_byte_for_byte_wherever_it_is_cut() -> None:
    for cut in range(1, len(INPUT)):
        block = only_block(TOOL, arguments(INPUT[:cut]), arguments(""), arguments(INPUT[cut:]), close())
        assert (block.text, block.parse, block.input["nul"]) == (INPUT, "ok", "\0")


def test_an_input_that_breaks_off_is_kept_and_marked_as_bad() -> None:
    block = only_block(TOOL, arguments('{"a": [1'), close())
    assert (block.text, block.parse, block.sealed, block.input) == ('{"a": [1', "bad", True, None)


def test_a_tool_without_arguments_has_the_input_it_was_given() -> None:
    block = only_block(TOOL, arguments(""), close())
    assert (block.input_text, block.parse, block.input) == ("{}", "ok", {})


def test_a_pair_of_surrogates_cut_in_two_is_one_character_and_a_lone_one_stays() -> None:
    [message] = messages(START, TEXT, text("a\ud83d"), text("\ude00b\ud83d"), close(), STOP)
    assert message.text == "a\U0001f600b\ud83d"
    _, bodies = feed(START, TEXT, text("a\ud83d"), text("\ude00b\ud83d"))
    state = transcript.initial
    for event in number([started("r"), *map(to_event, bodies)]):
        state = transcript.fold(state, event)
    assert transcript.decode(transcript.encode(state)).all_messages() == state.all_messages()


def test_a_signature_comes_in_pieces_and_thinking_without_text_keeps_it() -> None:
    thinking = begin('{"type":"thinking","thinking":"","signature":""}')
    pieces = [grow(f'{{"type":"signature_delta","signature":"{piece}"}}') for piece in ("c2ln", "bg==")]
    block = only_block(thinking, *pieces, close())
    assert (block.kind, block.text, block.signature) == ("reasoning", "", "c2lnbg==")
    [left] = messages(START, thinking, grow('{"type":"thinking_delta","thinking":"hm"}'), pieces[0])
    assert (left.blocks[0].text, left.blocks[0].signature) == ("hm", None)  # not whole, so not to be sent back


def test_usage_is_replaced_cached_tokens_lie_inside_the_input_and_null_says_nothing() -> None:
    first = START.replace(
        '"content":[]', '"content":[],"usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":1}'
    )
    last = '{"type":"message_delta","delta":{},"usage":{"output_tokens":9,"output_tokens_details":{"thinking_tokens":2}}}'
    _, bodies = feed(first, '{"type":"message_delta","delta":{},"usage":null}', last)
    said = [body for body in bodies if isinstance(body, RunUsage)]
    assert {usage.request_id for usage in said} == {"msg_1"}
    assert [(usage.input, usage.output, usage.cached, usage.reasoning) for usage in said] == [(7, 1, 4, None), (7, 9, 4, 2)]


def test_parsed_chunks_bytes_and_text_are_the_same() -> None:
    chunks = [START, '{"type":"ping"}', TEXT, text("é \ud83d"), close(), STOP]
    wanted = [to_event(body) for body in feed(*chunks)[1]]
    assert [to_event(body) for body in feed(*map(json.loads, chunks))[1]] == wanted
    assert [to_event(body) for body in feed(*(chunk.encode() for chunk in chunks))[1]] == wanted


def test_pings_and_empty_deltas_are_no_events() -> None:
    assert feed('{"type":"ping"}')[1] == []
    assert not [body for body in feed(START, TEXT, text(""), close())[1] if isinstance(body, BlockDelta)]


@pytest.mark.parametrize(
    "chunk",
    [
        "", "{", "[]", "null", "7", '{"a":1}', '{"type":"content_block_delta"}', '{"type":"content_block_stop","index":"x"}',
        '{"type":"message_start"}', '{"type":"message_start","message":{"role":"assistant","content":null}}',
        '{"type":"message_start","message":{"role":"assistant","content":{"0":1}}}', '{"type":["a"]}', '{"type":NaN}',
        b'{"type":"\xff"}', '{"type":"content_block_start","index":1,"content_block":[]}',
    ],
)  # fmt: skip
def test_what_is_no_stream_event_is_refused_and_the_stream_goes_on(chunk: str | bytes) -> None:
    stream, bodies = feed(START, TEXT, text("a"))
    with pytest.raises(FormatError):
        stream.feed(chunk)
    for good in (text("b"), close(), STOP):
        bodies += stream.feed(good)
    assert [message.text for message in fold(bodies).all_messages()] == ["ab"]
    assert stream.end().outcome == "completed"


def test_another_stream_is_refused() -> None:
    for chunk in ('{"type":"response.created"}', '{"type":"text-delta","id":"0","delta":"x"}'):
        with pytest.raises(FormatError, match="message_start"):
            make().feed(chunk)


def test_a_stream_without_its_beginning_or_its_end_is_read() -> None:
    whole = (TEXT, text("x"), close(), '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}', STOP)
    for chunks in (whole, whole[1:], ('{"type":"message_start"}', *whole), ('{"type":"message_start","message":{}}', *whole)):
        stream, bodies = feed(*chunks)
        [message] = fold(bodies).all_messages()
        assert (message.role, message.text, message.status) == ("assistant", "x", "complete")
        assert (stream.end().outcome, stream.end().finish_reason) == ("completed", "end_turn")
    stream, bodies = feed(START, TEXT, text("x"), "[DONE]")
    [message] = fold(bodies).all_messages()
    assert (message.text, message.status, message.blocks[0].sealed, stream.end().outcome) == (
        "x",
        "complete",
        True,
        "completed",
    )


def test_a_block_that_its_end_has_once_more_is_the_one_at_the_end() -> None:
    tool = '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}'
    piece = grow('{"type":"input_json_delta","partial_json":"{\\"a\\":1}"}', 1)
    ends = [
        '{"type":"content_block_stop","index":0,"content_block":{"type":"text","text":"Pay not 100"}}',
        '{"type":"content_block_stop","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":2}}}',
    ]
    [message] = fold(feed(START, TEXT, text("Pay 100"), ends[0], tool, piece, ends[1], STOP)[1]).all_messages()
    assert [block.text for block in message.blocks] == ["Pay not 100", '{"a":2}']
    assert message.blocks[1].input == {"a": 2}


def test_usage_that_lists_what_it_leaves_out_is_the_last_word() -> None:
    start = START.replace('"role"', '"usage":{"input_tokens":900,"output_tokens":80},"role"')
    whole = '"iterations":[{"type":"compaction","input_tokens":900,"output_tokens":80},{"type":"message"}]'
    last = f'{{"type":"message_delta","delta":{{}},"usage":{{"input_tokens":20,"output_tokens":4,{whole}}}}}'
    used = [body for body in feed(start, TEXT, text("x"), close(), last, STOP)[1] if isinstance(body, RunUsage)]
    assert (used[-1].input, used[-1].output) == (20, 4)


def test_null_says_nothing_of_usage_and_no_count_falls() -> None:
    start = START.replace('"usage"', '"_"').replace(
        '"role"', '"usage":{"input_tokens":20,"cache_read_input_tokens":7,"output_tokens":1},"role"'
    )
    less = '{"type":"message_delta","delta":{},"usage":{"input_tokens":null,"cache_read_input_tokens":0,"output_tokens":9}}'
    last = '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"output_tokens":4}}'
    used = [body for body in feed(start, TEXT, text("x"), close(), less, last, STOP)[1] if isinstance(body, RunUsage)]
    assert (used[-1].input, used[-1].cached, used[-1].output) == (27, 7, 9)
    more = '{"type":"message_delta","delta":{},"usage":{"input_tokens":25,"cache_read_input_tokens":null}}'
    used = [body for body in feed(start, TEXT, text("x"), close(), more, STOP)[1] if isinstance(body, RunUsage)]
    assert (used[-1].input, used[-1].cached) == (32, 7)
