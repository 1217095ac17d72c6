"""Cohere's Chat in both versions: streams, whole answers and requests, and what was recorded of them."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from projector.formats import STREAMS, FormatError
from projector.formats.cohere.reader import read as read_document
from projector.formats.recordings.detection import detect
from projector.formats.recordings.exchanges import format_of
from tests.new_streams import check_cuts, check_exports, played, read, said
from tests.shared_data import naughty
from tests.ui_readings import play

USAGE: Final = {"billed_units": {"input_tokens": 2, "output_tokens": 1}, "tokens": {"input_tokens": 30.0, "output_tokens": 7.0}}


def event(kind: str, index: int | None = None, **message: Any) -> dict[str, Any]:
    return {"type": kind} | ({} if index is None else {"index": index}) | ({"delta": {"message": message}} if message else {})


def ends(reason: str = "COMPLETE", **delta: Any) -> dict[str, Any]:
    return {"type": "message-end", "id": "x", "delta": {"finish_reason": reason, "usage": USAGE} | delta}


CITED: Final = {"start": 0, "end": 2, "text": "20", "sources": [{"type": "tool", "id": "t:0"}], "type": "TEXT_CONTENT"}
BEGINS: Final = {
    "type": "message-start",
    "id": "x",
    "delta": {"message": {"role": "assistant", "content": [], "tool_plan": ""}},
}
CALLS: Final = [
    BEGINS,
    event("tool-plan-delta", tool_plan="I look "), event("tool-plan-delta", tool_plan="it up."),
    event("tool-call-start", 0, tool_calls={"id": "t", "type": "function", "function": {"name": "f", "arguments": ""}}),
    event("tool-call-delta", 0, tool_calls={"function": {"arguments": '{"a"'}}),
    event("tool-call-delta", 0, tool_calls={"function": {"arguments": ": 1}"}}),
    event("tool-call-end", 0),
    event("tool-call-start", 1, tool_calls={"id": "u", "type": "function", "function": {"name": "g", "arguments": "{}"}}),
    event("tool-call-end", 1), ends("TOOL_CALL"),
]  # fmt: skip
TEXT: Final = [
    BEGINS, event("content-start", 0, content={"type": "thinking", "thinking": ""}),
    event("content-delta", 0, content={"thinking": "hm"}), event("content-end", 0),
    event("content-start", 1, content={"type": "text", "text": ""}), event("content-delta", 1, content={"text": "20"}),
    event("citation-start", 0, citations=CITED), event("citation-end", 0),
    event("content-delta", 1, content={"text": " degrees"}), event("content-end", 1), ends(),
]  # fmt: skip
FIRST: Final[list[dict[str, Any]]] = [
    {"is_finished": False, "event_type": "stream-start", "generation_id": "g"},
    {"is_finished": False, "event_type": "text-generation", "text": "So "},
    {"is_finished": False, "event_type": "text-generation", "text": "it is."},
    {"event_type": "citation-generation", "citations": [{"start": 0, "end": 2, "text": "So", "document_ids": ["d"]}]},
    {
        "is_finished": True, "event_type": "stream-end", "finish_reason": "COMPLETE",
        "response": {"response_id": "r", "text": "So it is.", "generation_id": "g", "chat_history": [], "meta": USAGE},
    },
]  # fmt: skip


def test_a_stream_has_the_plan_and_the_calls() -> None:
    [message], end, used = played("cohere", CALLS)
    assert said(message.blocks) == [
        ("reasoning", "I look it up.", 0),
        ("tool_call", "f", "t", {"a": 1}),
        ("tool_call", "g", "u", {}),
    ]
    assert (message.provider_ref, message.status, end.outcome, end.finish_reason) == ("x", "complete", "completed", "TOOL_CALL")
    assert used is not None
    assert (used.input, used.output, used.request_id) == (30, 7, "x")
    assert json.loads(bytes(used.raw)) == USAGE


def test_a_stream_has_thoughts_text_and_citations() -> None:
    [message], end, _ = played("cohere", TEXT)
    assert said(message.blocks) == [("reasoning", "hm", 0), ("text", "20 degrees", 1)]
    assert json.loads(message.blocks[1].citations[0]) == {"kind": "citation", "source": CITED}
    assert end.finish_reason == "COMPLETE"


def test_a_citation_belongs_to_the_content_that_it_names() -> None:
    two = [
        event(kind, at, content={"type": "text", "text": text}) for at, text in enumerate("ab") for kind in ["content-start"]
    ]
    cited = [event("citation-start", 0, citations=CITED | {"content_index": 0}), event("citation-start", 1, citations=[CITED])]
    [message], _, _ = played("cohere", [BEGINS, *two, *cited, ends()])
    assert said(message.blocks) == [("text", "a", 1), ("text", "b", 1)]


def test_a_whole_answer_says_what_its_stream_says() -> None:
    calls = [
        {"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "u", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    plan = {"role": "assistant", "tool_plan": "I look it up.", "tool_calls": calls}
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "20 degrees"}]
    text = {"role": "assistant", "content": content, "citations": [CITED]}
    for message, reason, events in ((plan, "TOOL_CALL", CALLS), (text, "COMPLETE", TEXT)):
        [whole], end, used = played("cohere", [{"id": "x", "message": message, "finish_reason": reason, "usage": USAGE}])
        [streamed], other, same = played("cohere", events)
        assert said(whole.blocks) == said(streamed.blocks)
        assert (end, used) == (other, same)


def test_the_first_version_is_streamed_and_whole() -> None:
    [streamed], end, used = played("cohere", FIRST)
    [whole], other, same = played("cohere", [FIRST[-1]["response"] | {"finish_reason": "COMPLETE",
                                             "citations": FIRST[3]["citations"]}])  # fmt: skip
    assert said(streamed.blocks) == said(whole.blocks) == [("text", "So it is.", 1)]
    assert (streamed.provider_ref, end, used) == ("g", other, same)
    [late], _, _ = played("cohere", [FIRST[0], FIRST[1], FIRST[-1]])
    assert late.text == "So it is."  # the whole has what the pieces lack


def test_calls_of_the_first_version_have_ids_by_their_place_however_they_come() -> None:
    calls = [{"name": "f", "parameters": {"a": 1}}, {"name": "f", "parameters": {"a": 2}}]
    pieces = [
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "name": "f"}},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "parameters": '{"a": 1}'}},
    ]
    end = {"event_type": "stream-end", "finish_reason": "COMPLETE", "response": {"text": "", "tool_calls": calls}}
    whole = {"event_type": "tool-calls-generation", "tool_calls": calls}
    for events in ([FIRST[0], *pieces, whole, end], [FIRST[0], whole, end], [FIRST[0], end]):
        [message], _, _ = played("cohere", events)
        assert said(message.blocks) == [("tool_call", "f", "r.1.call1", {"a": 1}), ("tool_call", "f", "r.1.call2", {"a": 2})]


def test_the_end_of_the_first_version_wins_over_what_was_streamed() -> None:
    calls = [{"name": "g", "parameters": {"a": 2}}, {"name": "h", "parameters": {}}]
    begun = {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "name": "f", "parameters": '{"a": 1}'}}
    whole = {"event_type": "tool-calls-generation", "tool_calls": [{"name": "f", "parameters": {"a": 1}}]}
    end = FIRST[-1] | {"response": {"text": "So it was.", "tool_calls": calls}}
    right = [("text", "So it was.", 0), ("tool_call", "g", "r.1.call1", {"a": 2}), ("tool_call", "h", "r.1.call2", {})]
    for events in ([*FIRST[:3], begun, whole], [*FIRST[:3], begun], [*FIRST[:3], whole]):
        [message], _, _ = played("cohere", [*events, end])
        assert (said(message.blocks), message.status) == (right, "complete")
    [message], _, _ = played("cohere", [*FIRST[:3], end])
    assert said(message.blocks) == right
    around = [*FIRST[:2], begun, FIRST[2], FIRST[-1] | {"response": {"text": "So it is. Yes."}}]
    assert [block.text for block in played("cohere", around)[0][0].blocks] == ["So ", '{"a": 1}', "it is. Yes."]


@pytest.mark.parametrize("events", [CALLS, TEXT, FIRST], ids=["calls", "text", "first"])
def test_a_stream_that_is_cut_keeps_what_came(events: list[Any]) -> None:
    check_cuts("cohere", events)
    headless = played("cohere", events[1:])[0]
    assert said(headless[0].blocks) == said(played("cohere", events)[0][0].blocks)


def test_an_error_fails_the_run_and_keeps_what_came() -> None:
    messages, end, _ = played("cohere", [*TEXT[:-2], ends("ERROR", error="overloaded")])
    assert (messages[0].text, messages[0].status, end.outcome, end.error) == ("20 degrees", "partial", "failed", '"overloaded"')
    _, end, _ = played("cohere", [{"id": "e", "message": "invalid api token"}])
    assert (end.outcome, json.loads(end.error or "")["message"]) == ("failed", "invalid api token")


def test_what_nobody_knows_is_kept_and_what_is_no_event_is_refused() -> None:
    stream, bodies = play(STREAMS["cohere"], [BEGINS, {"type": "debug", "prompt": "x"}])
    assert type(bodies[-1]).__name__ == "RawEvent"
    for chunk in ("", "[]", "{}", '{"type":"message_start"}', '{"text":"x"}', '{"type":"content-delta"}', '{"choices":[]}'):
        with pytest.raises(FormatError, match=r"was expected|lacks what it needs"):
            play(STREAMS["cohere"], [chunk])
    assert stream.end().outcome == "incomplete"


LOOP: Final[dict[str, Any]] = {"model": "m", "documents": [{"id": "d"}], "messages": [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": [
        {"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]},
    {"role": "assistant", "content": None, "tool_plan": "I look.", "tool_calls": [
        {"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
    ]},
    {"role": "tool", "tool_call_id": "t", "content": [
        {"type": "text", "text": "20"}, {"type": "document", "document": {"id": "1", "data": {"title": "T"}}},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "20 degrees"}], "citations": [CITED]},
]}  # fmt: skip
FIRST_LOOP: Final[dict[str, Any]] = {
    "model": "m", "preamble": "be kind", "chat_history": [
        {"role": "USER", "message": "how warm?"},
        {"role": "Chatbot", "message": "I look.", "tool_calls": [
            {"name": "f", "parameters": {"a": 1}}, {"name": "f", "parameters": {"a": 2}},
        ]},
        {"role": "TOOL", "tool_results": [{"call": {"name": "f", "parameters": {"a": 2}}, "outputs": [{"x": 2}]}]},
    ],
    "tool_results": [{"call": {"name": "f", "parameters": {"a": 1}}, "outputs": [{"x": 1}, {"y": 1}]}],
    "message": "",
}  # fmt: skip


def test_a_request_is_a_history_with_its_calls_answered() -> None:
    messages = read("cohere", LOOP)
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert said(messages[2].blocks) == [("reasoning", "I look.", 0), ("tool_call", "f", "t", {"a": 1})]
    assert json.loads(messages[3].blocks[0].parts or "")[0] == {"kind": "text", "text": "20"}
    assert (messages[1].blocks[1].kind, messages[1].blocks[1].media_type) == ("media", "image/png")
    assert said(messages[4].blocks) == [("text", "20 degrees", 1)]
    assert read("cohere", LOOP["messages"]) == messages
    check_exports(messages)


def test_a_request_of_the_first_version_is_one_too() -> None:
    messages = read("cohere", FIRST_LOOP)
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "tool"]
    calls = [block.tool_call_id for block in messages[2].blocks if block.kind == "tool_call"]
    assert [message.blocks[0].tool_call_id for message in messages[3:]] == calls[::-1]
    assert json.loads(messages[4].blocks[0].parts or "") == [
        {"kind": "data", "text": '{"x": 1}'},
        {"kind": "data", "text": '{"y": 1}'},
    ]
    assert read("cohere", {"message": "hi"})[0].text == "hi"
    check_exports(messages)


def test_an_answer_that_repeats_its_history_is_all_of_it() -> None:
    before = [{"role": "USER", "message": "hi"}, {"role": "CHATBOT", "message": "hello"}]
    answer = {"response_id": "r", "generation_id": "g", "text": "hello", "chat_history": before, "finish_reason": "COMPLETE"}
    [history] = read_document(json.dumps(answer | {"meta": USAGE}))
    assert [(draft.role, draft.blocks[0].text) for draft in history.drafts] == [("user", "hi"), ("assistant", "hello")]
    last = history.drafts[-1]
    assert last.usage is not None
    assert (last.usage.input, last.finish_reason, last.provider_ref) == (30, "COMPLETE", "g")


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"model": "m"}, '"messages"'), ([{"role": "robot", "content": "x"}], '"role" should be one of'),
        ([{"role": "tool", "content": "x"}], '"tool_call_id" should be text'), ([{"content": "x"}], '"role" should be text'),
        ([{"role": "user", "content": 7}], '"content" should be text'), ([7], "a JSON object was expected"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_its_place(document: Any, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read("cohere", document)


@pytest.mark.parametrize("text", naughty())
def test_naughty_strings_come_through(text: str) -> None:
    call = {"id": "t", "function": {"name": text, "arguments": json.dumps({text: text})}}
    events = [
        BEGINS, event("content-start", 0, content={"type": "text", "text": f"{text}."}),
        event("tool-call-start", 0, tool_calls=call), ends(),
    ]  # fmt: skip
    [message], _, _ = played("cohere", events)
    assert (message.text, message.blocks[1].name, message.blocks[1].input) == (f"{text}.", text, {text: text})


@pytest.mark.parametrize(
    "document",
    [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"},
        {"chat_history": [{"type": "human", "content": "hi"}]}, {"chat_history": "hi", "question": "so?"},
    ],
)  # fmt: skip
def test_what_only_looks_alike_is_not_taken_for_coheres(document: Any) -> None:
    with pytest.raises(FormatError, match="no format is known"):
        detect(json.dumps(document))


def test_addresses_of_both_versions_are_known() -> None:
    for uri in ("https://api.cohere.com/v2/chat", "https://api.cohere.ai/v1/chat?x=1", "https://h.models.ai.azure.com/v2/chat"):
        assert format_of(uri) == "cohere"
    assert format_of("https://api.cohere.com/v2/embed") is None
