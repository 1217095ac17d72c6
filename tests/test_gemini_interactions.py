"""Gemini's Interactions: steps and the older contents, streamed and whole, what is sent, and what was recorded."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from projector.events import ToolResult
from projector.formats import STREAMS, FormatError
from projector.formats.gemini_interactions.reader import read as read_document
from projector.formats.recordings.exchanges import format_of
from projector.formats.recordings.transport import read_all
from tests.new_streams import check_cuts, check_exports, played, read, said
from tests.shared_data import files, naughty, needs_data, read_bytes
from tests.ui_readings import folded, play

NAME: Final = "gemini-interactions"
USAGE: Final = {"total_input_tokens": 20, "total_output_tokens": 7, "total_thought_tokens": 5, "total_tool_use_tokens": 3,
                "total_cached_tokens": 2, "total_tokens": 35}  # fmt: skip
URL: Final = {"type": "url_citation", "url": "https://e.org", "start_index": 0, "end_index": 2}


def created(kind: str = "interaction.created") -> dict[str, Any]:
    return {"event_type": kind, "interaction": {"id": "v1_x", "status": "in_progress", "object": "interaction", "model": "m"}}


def completed(status: str = "completed", kind: str = "interaction.completed", **more: Any) -> dict[str, Any]:
    return {"event_type": kind, "interaction": {"id": "v1_x", "status": status, "usage": USAGE} | more}


def begins(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"event_type": "step.start", "index": index, "step": {"type": kind} | more}


def grows(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"event_type": "step.delta", "index": index, "delta": {"type": kind} | more}


def stops(index: int) -> dict[str, Any]:
    return {"event_type": "step.stop", "index": index}


SEARCH: Final = [
    {"type": "google_search_call", "id": "s", "arguments": {"queries": ["x"]}},
    {"type": "google_search_result", "call_id": "s", "result": [{"title": "T"}]},
]
STREAM: Final = [
    created(), {"event_type": "interaction.status_update", "interaction_id": "v1_x", "status": "in_progress"},
    begins(0, "thought"), grows(0, "thought_summary", content={"type": "text", "text": "hm"}),
    grows(0, "thought_signature", signature="c2ln"), stops(0),
    begins(1, "google_search_call", id="s"), grows(1, "google_search_call", arguments={"queries": ["x"]}), stops(1),
    begins(2, "google_search_result", call_id="s"), grows(2, "google_search_result", result=[{"title": "T"}]), stops(2),
    begins(3, "model_output"), grows(3, "text", text="So "), grows(3, "text", text="it is."),
    grows(3, "text_annotation_delta", annotations=[URL]), grows(3, "image", mime_type="image/png", data="AA=="), stops(3),
    begins(4, "function_call", id="c", name="f", arguments={}), grows(4, "arguments_delta", arguments='{"a"'),
    grows(4, "arguments_delta", arguments=":1}"), stops(4), completed("requires_action"),
]  # fmt: skip
WHOLE: Final[dict[str, Any]] = {
    "id": "v1_x", "object": "interaction", "status": "requires_action", "model": "m", "usage": USAGE, "steps": [
        {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "hm"}]}, *SEARCH,
        {"type": "model_output", "content": [
            {"type": "text", "text": "So it is.", "annotations": [URL]},
            {"type": "image", "mime_type": "image/png", "data": "AA=="},
        ]},
        {"type": "function_call", "id": "c", "name": "f", "arguments": {"a": 1}},
    ],
}  # fmt: skip
OLDER: Final = [
    created("interaction.start"),
    {"event_type": "content.start", "index": 0, "content": {"type": "thought"}},
    {"event_type": "content.delta", "index": 0,
     "delta": {"type": "thought_summary", "content": {"type": "text", "text": "hm"}}},
    {"event_type": "content.delta", "index": 0, "delta": {"type": "thought_signature", "signature": "c2ln"}},
    {"event_type": "content.stop", "index": 0},
    {"event_type": "content.start", "index": 1, "content": {"type": "text"}},
    {"event_type": "content.delta", "index": 1, "delta": {"type": "text", "text": "So it "}},
    {"event_type": "content.delta", "index": 1, "delta": {"type": "text", "text": "is.", "annotations": [URL]}},
    {"event_type": "content.stop", "index": 1},
    {"event_type": "content.start", "index": 2, "content": {"type": "function_call"}},
    {"event_type": "content.delta", "index": 2,
     "delta": {"type": "function_call", "id": "c", "name": "f", "arguments": {"a": 1}}},
    {"event_type": "content.stop", "index": 2},
    completed("requires_action", "interaction.complete"),
]  # fmt: skip
SAID: Final = [
    ("reasoning", "hm", 0), ("server_tool_call", "", 0), ("server_tool_result", "", 0), ("text", "So it is.", 1),
    ("media", "", 0),
    ("tool_call", "f", "c", {"a": 1}),
]  # fmt: skip


def test_a_stream_of_steps_has_all_that_is_said() -> None:
    [message], end, used = played(NAME, STREAM)
    assert said(message.blocks) == SAID
    thought, call, found = message.blocks[:3]
    assert (thought.signature, json.loads(thought.opaque or "")["provider"]) == ("c2ln", "google-interactions")
    assert (call.name, call.tool_call_id, found.tool_call_id) == ("google_search", "s", "s")
    assert json.loads(found.opaque or "")["payload"] == SEARCH[1]
    assert json.loads(call.opaque or "")["payload"] == SEARCH[0]
    assert (message.provider_ref, message.status, end.outcome, end.finish_reason) == (
        "v1_x", "complete", "completed", "requires_action",
    )  # fmt: skip
    assert used is not None
    assert (used.input, used.output, used.cached, used.reasoning, used.request_id) == (23, 12, 2, 5, "v1_x")


def test_a_whole_interaction_says_what_its_stream_says() -> None:
    [whole], end, used = played(NAME, [WHOLE])
    [streamed], other, same = played(NAME, STREAM)
    assert said(whole.blocks) == said(streamed.blocks)
    assert [block.signature for block in whole.blocks] == [block.signature for block in streamed.blocks]
    assert (end, used) == (other, same)


def test_the_older_form_with_contents_is_read_too() -> None:
    [streamed], end, _ = played(NAME, OLDER)
    assert said(streamed.blocks) == [SAID[0], SAID[3], SAID[5]]
    assert end.finish_reason == "requires_action"
    outputs = [WHOLE["steps"][0], WHOLE["steps"][3]["content"][0], WHOLE["steps"][4]]
    [whole], _, _ = played(NAME, [{"id": "v1_x", "object": "interaction", "status": "completed", "outputs": outputs}])
    assert said(whole.blocks) == said(streamed.blocks)


@pytest.mark.parametrize("events", [STREAM, OLDER], ids=["steps", "contents"])
def test_a_stream_that_is_cut_keeps_what_came(events: list[Any]) -> None:
    check_cuts(NAME, events)
    assert said(played(NAME, events[1:])[0][0].blocks) == said(played(NAME, events)[0][0].blocks)
    ended, end, _ = played(NAME, [*events[:-1], "[DONE]"])
    assert (ended[0].status, end.outcome) == ("complete", "completed")


def test_steps_that_only_the_end_has_are_not_lost() -> None:
    [message], _, _ = played(NAME, [created(), *STREAM[2:6], completed(steps=WHOLE["steps"])])
    assert said(message.blocks) == SAID


def test_the_final_list_wins_over_what_was_streamed() -> None:
    thought, search, found, output, call = (dict(step) for step in WHOLE["steps"])
    thought |= {"summary": [{"type": "text", "text": "well"}], "signature": "bmV3"}
    found |= {"result": [{"title": "U"}]}
    output["content"] = [{"type": "text", "text": "So it was.", "annotations": [URL, URL]}, output["content"][1]]
    call |= {"name": "g", "arguments": {"a": 2}}
    right = [("reasoning", "well", 0), *SAID[1:3], ("text", "So it was.", 2), SAID[4], ("tool_call", "g", "c", {"a": 2})]
    steps = [thought, search, found, output, call]
    open_ended = [event for event in STREAM if event["event_type"] != "step.stop"]
    for events in (STREAM[:-1], open_ended[:-1]):
        for listed in (steps, steps[::-1], [step for step in steps if step is not search]):
            _, bodies = play(STREAMS[NAME], [*events, completed(steps=listed)])
            [message] = folded(bodies).all_messages()
            assert said(message.blocks) == right
            assert (message.blocks[0].signature, message.status) == ("bmV3", "complete")
            assert json.loads(message.blocks[2].opaque or "")["payload"] == found
    _, bodies = play(STREAMS[NAME], [*STREAM[:-1], completed(steps=WHOLE["steps"])])
    assert len(bodies) == len(play(STREAMS[NAME], STREAM)[1])  # nothing is said twice


def test_a_call_that_only_the_final_list_has_is_known_by_its_id() -> None:
    other = {"type": "function_call", "id": "d", "name": "h", "arguments": {}}
    [message], _, _ = played(NAME, [created(), *STREAM[-5:-1], completed(steps=[other, WHOLE["steps"][4]])])
    assert said(message.blocks) == [("tool_call", "f", "c", {"a": 1}), ("tool_call", "h", "d", {})]


def test_texts_that_the_final_list_has_apart_are_those_that_were_streamed_as_one() -> None:
    apart = [{"type": "text", "text": "So "}, {"type": "text", "text": "it is.", "annotations": [URL]}]
    steps = [{"type": "model_output", "content": [*apart, WHOLE["steps"][3]["content"][1]]}]
    [message], _, _ = played(NAME, [created(), *STREAM[11:17], completed(steps=steps)])
    assert said(message.blocks) == SAID[3:5]


def test_a_result_that_the_final_list_has_once_more_is_one() -> None:
    result = {"type": "function_result", "call_id": "c", "result": "ok"}
    for ends in ([stops(0)], []):
        events = [created(), begins(0, "function_result", call_id="c", result="ok"), *ends, completed(steps=[result])]
        assert sum(isinstance(body, ToolResult) for body in play(STREAMS[NAME], events)[1]) == 1


def test_a_functions_result_inside_a_response_is_a_result() -> None:
    said = {"result": "ok", "is_error": True}
    at_once = [begins(0, "function_result", call_id="c", **said), stops(0)]
    for result in (at_once, [begins(0, "function_result", call_id="c"), grows(0, "function_result", **said)]):
        _, bodies = play(STREAMS[NAME], [created(), *result, completed()])
        [told] = [body for body in bodies if isinstance(body, ToolResult)]
        assert (told.tool_call_id, told.status, json.loads(bytes(told.parts))) == (
            "c",
            "error",
            [{"kind": "text", "text": "ok"}],
        )


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("failed", "failed"), ("cancelled", "cancelled"), ("incomplete", "incomplete"), ("in_progress", "incomplete")],
)
def test_how_an_interaction_ends_is_told(status: str, outcome: str) -> None:
    errors = [{"code": "500", "message": "sorry"}]
    messages, end, _ = played(NAME, [*STREAM[:-1], completed(status, errors=errors)])
    assert (messages[0].text, end.outcome) == ("So it is.", outcome)
    assert json.loads(end.error or "null") == (errors if status == "failed" else None)


def test_an_error_fails_the_run_and_keeps_what_came() -> None:
    error = {"event_type": "error", "error": {"code": "429", "message": "slow down"}}
    [message], end, _ = played(NAME, [*STREAM[:15], error])
    assert (message.text, end.outcome) == ("So it is.", "failed")
    assert json.loads(end.error or "") == error["error"]
    assert played(NAME, [{"error": {"code": 400, "message": "no"}}])[1].outcome == "failed"


def test_what_nobody_knows_is_kept_and_what_is_no_event_is_refused() -> None:
    _, bodies = play(STREAMS[NAME], [created(), {"event_type": "weather.rain"}, grows(0, "hologram", x=1)])
    assert [type(body).__name__ for body in bodies[-2:]] == ["RawEvent", "RawEvent"]
    unknown = begins(0, "hologram", x=1)
    [message], _, _ = played(NAME, [created(), unknown, stops(0), completed()])
    assert json.loads(message.blocks[0].opaque or "")["payload"] == unknown["step"]
    for chunk in (
        "",
        "[]",
        "{}",
        '{"event_type":"step.start"}',
        '{"event_type":"step.delta","index":0,"delta":{}}',
        '{"candidates":[]}',
    ):
        with pytest.raises(FormatError, match=r"was expected|lacks what it needs"):
            play(STREAMS[NAME], [chunk])


LOOP: Final[dict[str, Any]] = {"model": "m", "system_instruction": "be kind", "tools": [], "input": [
    {"type": "user_input", "content": [
        {"type": "text", "text": "see"}, {"type": "image", "mime_type": "image/png", "data": "AA=="},
    ]},
    *WHOLE["steps"],
    {"type": "function_result", "call_id": "c", "name": "f", "result": {"x": 1}},
    {"type": "model_output", "content": [{"type": "text", "text": "so"}]},
]}  # fmt: skip
TURNS: Final[dict[str, Any]] = {"model": "m", "input": [
    {"role": "user", "content": "hi"}, {"role": "model", "content": [{"type": "text", "text": "hello"}, WHOLE["steps"][4]]},
    {"role": "user", "content": [
        {"type": "function_result", "call_id": "c", "result": [{"type": "text", "text": "1"}], "is_error": True},
        {"type": "text", "text": "and?"},
    ]},
]}  # fmt: skip


def test_a_request_is_a_history_with_its_calls_answered() -> None:
    messages = read(NAME, LOOP)
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert said(messages[2].blocks) == SAID
    assert messages[1].blocks[1].media_type == "image/png"
    assert json.loads(messages[3].blocks[0].parts or "") == [{"kind": "data", "text": '{"x": 1}'}]
    assert json.loads(messages[3].metadata_text["google-interactions"]) == {"name": "f"}
    assert [said(message.blocks) for message in read(NAME, LOOP["input"])] == [said(one.blocks) for one in messages[1:]]
    check_exports(messages)


def test_turns_and_contents_are_read_too() -> None:
    messages = read(NAME, TURNS)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "user"]
    assert (messages[2].blocks[0].status, messages[3].text) == ("error", "and?")
    for given in ("hi", {"type": "text", "text": "hi"}, [{"type": "text", "text": "hi"}]):
        assert [message.text for message in read(NAME, {"model": "m", "input": given})] == ["hi"]
    check_exports(messages)


def test_an_interaction_with_its_input_is_the_whole_conversation() -> None:
    [history] = read_document(json.dumps(WHOLE | {"input": "hi", "system_instruction": "be kind"}))
    assert [draft.role for draft in history.drafts] == ["system", "user", "assistant"]
    last = history.drafts[-1]
    assert (last.provider_ref, last.model, last.finish_reason, last.usage is not None) == ("v1_x", "m", "requires_action", True)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"model": "m"}, 'an object with "input"'), ({"input": 7}, "a JSON object was expected"),
        ([{}], '"type" should be text'), ([{"type": "text"}], '"text" should be text'),
        ([{"type": "function_result", "result": "x"}], '"call_id" should be text'),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_its_place(document: Any, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read(NAME, document)


@pytest.mark.parametrize("text", naughty())
def test_naughty_strings_come_through(text: str) -> None:
    call = begins(1, "function_call", id="c", name=text, arguments={text: [text]})
    [message], _, _ = played(NAME, [created(), begins(0, "model_output"), grows(0, "text", text=f"{text}."), call, completed()])
    assert (message.text, message.blocks[1].name, message.blocks[1].input) == (f"{text}.", text, {text: [text]})


def test_the_address_is_known() -> None:
    assert format_of("https://generativelanguage.googleapis.com/v1beta/interactions?alt=sse") == NAME
    assert format_of("https://generativelanguage.googleapis.com/v1beta/interactions/v1_x") is None


@needs_data
def test_recorded_interactions_say_what_an_independent_reading_says() -> None:
    recordings = files("vercel-ai", "google/interactions/*")
    assert len(recordings) > 8
    for path in recordings:
        chunks = [payload.data for payload in read_all([read_bytes(path)])]
        messages, end, used = played(NAME, chunks)
        text, calls, total = told(list(map(json.loads, chunks)))
        assert "".join(message.text for message in messages) == text, path
        blocks = [block for message in messages for block in message.blocks]
        assert [block.input for block in blocks if block.kind == "tool_call"] == calls, path
        assert end.outcome == "completed"
        assert used is not None
        assert (used.input or 0) + (used.output or 0) == total, path
        check_cuts(NAME, chunks)


def told(events: list[Any]) -> tuple[str, list[Any], int]:
    """The text, the arguments of calls and all tokens, by the provider's own documentation."""
    if "steps" in events[0]:
        contents = [content for step in events[0]["steps"] for content in step.get("content", [])]
        calls = [step["arguments"] for step in events[0]["steps"] if step["type"] == "function_call"]
        return "".join(content["text"] for content in contents), calls, events[0]["usage"]["total_tokens"]
    deltas = [event["delta"] for event in events if event["event_type"] == "step.delta"]
    text = "".join(delta["text"] for delta in deltas if delta["type"] == "text")
    calls = [json.loads(delta["arguments"]) for delta in deltas if delta["type"] == "arguments_delta"]
    return text, calls, events[-1]["interaction"]["usage"]["total_tokens"]
