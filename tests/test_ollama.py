"""Ollama's chat: streams of lines, whole answers and requests."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from projector.formats import STREAMS, FormatError
from projector.formats.recordings.exchanges import format_of
from tests.new_streams import check_cuts, check_exports, played, read, said
from tests.shared_data import naughty
from tests.ui_readings import play

DONE: Final = {"done": True, "done_reason": "stop", "total_duration": 9, "prompt_eval_count": 30, "eval_count": 7}
PNG: Final = "iVBORw0KGgoAAAA="


def piece(done: dict[str, Any] | None = None, **message: Any) -> dict[str, Any]:
    return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant"} | message} | (
        done or {"done": False}
    )


def call(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": {"a": 1}}} | more


STREAM: Final = [
    piece(content="", thinking="h"), piece(content="", thinking="m"), piece(content="I "), piece(content="look."),
    piece(content="", tool_calls=[call(), call("g", id="call_7")]), piece(content="", images=[PNG]), piece(DONE, content=""),
]  # fmt: skip


def test_a_stream_has_thinking_text_calls_and_images() -> None:
    [message], end, used = played("ollama", STREAM)
    assert said(message.blocks) == [
        ("reasoning", "hm", 0), ("text", "I look.", 0), ("tool_call", "f", "r.1.call1", {"a": 1}),
        ("tool_call", "g", "call_7", {"a": 1}), ("media", "", 0),
    ]  # fmt: skip
    assert (message.blocks[4].media_type, message.blocks[4].fields) == ("image/png", {"data": PNG})
    assert (message.status, end.outcome, end.finish_reason) == ("complete", "completed", "stop")
    assert used is not None
    assert (used.input, used.output) == (30, 7)
    assert json.loads(message.metadata_text["model"]) == "m"


def test_a_whole_answer_says_what_its_stream_says() -> None:
    message = {"content": "I look.", "thinking": "hm", "tool_calls": [call(), call("g", id="call_7")], "images": [PNG]}
    [whole], end, used = played("ollama", [piece(DONE, **message)])
    [streamed], other, same = played("ollama", STREAM)
    assert sorted(map(str, said(whole.blocks))) == sorted(map(str, said(streamed.blocks)))
    assert (end, used) == (other, same)


def test_a_stream_that_is_cut_keeps_what_came() -> None:
    check_cuts("ollama", STREAM)
    assert played("ollama", STREAM[:4])[1].outcome == "incomplete"


def test_one_answer_follows_another_and_a_prompt_that_was_known_is_not_counted() -> None:
    done = {name: value for name, value in DONE.items() if name != "prompt_eval_count"}
    messages, _, used = played("ollama", [piece(DONE, content="a"), piece(content="b"), piece(done, content="c")])
    assert [message.text for message in messages] == ["a", "bc"]
    assert used is not None
    assert (used.input, used.output, used.request_id) == (None, 7, "r.2")


def test_an_error_fails_the_run_and_keeps_what_came() -> None:
    [message], end, _ = played("ollama", [*STREAM[:4], {"error": "the model was killed"}])
    assert (message.text, message.status, end.outcome, end.error) == ("I look.", "partial", "failed", '"the model was killed"')
    assert played("ollama", [{"error": "model 'm' not found"}])[1].outcome == "failed"


def test_what_is_no_piece_is_refused_with_what_it_is() -> None:
    with pytest.raises(FormatError, match="an answer of /api/generate, another interface"):
        play(STREAMS["ollama"], [{"model": "m", "response": "hi", "done": False}])
    for chunk in ("", "[]", "{}", '{"message":7}', '{"message":{"content":7}}', '{"message":{"tool_calls":[{}]}}',
                  '{"message":{"images":[7]}}'):  # fmt: skip
        with pytest.raises(FormatError, match=r"was expected|lacks what it needs"):
            play(STREAMS["ollama"], [chunk])
    _, bodies = play(STREAMS["ollama"], [STREAM[0], {"weather": "rain"}])
    assert type(bodies[-1]).__name__ == "RawEvent"


LOOP: Final[dict[str, Any]] = {"model": "m", "options": {"seed": 1}, "messages": [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "see", "images": [PNG]},
    {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call(), call("g"), call("f", id="x")]},
    {"role": "tool", "tool_name": "g", "content": "2"},
    {"role": "tool", "content": "1"},
    {"role": "tool", "tool_call_id": "x", "content": "3"},
    {"role": "assistant", "content": "so"},
]}  # fmt: skip


def test_a_request_is_a_history_with_its_calls_answered_by_id_name_or_order() -> None:
    messages = read("ollama", LOOP)
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "tool", "tool", "assistant"]
    calls = [block.tool_call_id for block in messages[2].blocks if block.kind == "tool_call"]
    assert [message.blocks[0].tool_call_id for message in messages[3:6]] == [calls[1], calls[0], "x"]
    assert messages[1].blocks[1].media_type == "image/png"
    assert read("ollama", LOOP["messages"]) == messages
    check_exports(messages)


def test_arguments_that_were_kept_as_text_are_read() -> None:
    kept = [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": text}}]}
        for text in ('{"a": 1}', "{")
    ]
    blocks = [message.blocks[0] for message in read("ollama", kept)]
    assert [(block.parse, block.input) for block in blocks] == [("ok", {"a": 1}), ("bad", None)]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"model": "m"}, '"messages"'), ([{"role": "robot", "content": "x"}], '"role" should be one of'),
        ([{"role": "user", "parts": []}], "one of content, thinking, images, tool_calls was expected"),
        ([{"role": "user", "content": [1]}], '"content" should be text'),
        ([{"role": "assistant", "tool_calls": [{}]}], '"function"'),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_its_place(document: Any, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read("ollama", document)


@pytest.mark.parametrize("text", naughty())
def test_naughty_strings_come_through(text: str) -> None:
    calls = [{"function": {"name": text, "arguments": {text: [text]}}}]
    [message], _, _ = played("ollama", [piece(DONE, content=f"{text}.", thinking=f"{text}!", tool_calls=calls)])
    assert [block.text for block in message.blocks[:2]] == [f"{text}!", f"{text}."]
    assert (message.blocks[2].name, message.blocks[2].input) == (text, {text: [text]})


def test_the_address_is_known_wherever_it_runs() -> None:
    assert format_of("http://127.0.0.1:11434/api/chat") == "ollama"
    assert format_of("http://127.0.0.1:11434/api/generate") is None
