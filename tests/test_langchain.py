"""LangChain messages: recorded states in and out, every form they are kept in, what can't be said, and broken histories."""

from __future__ import annotations

import importlib
import importlib.util
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.langchain.reader import read
from projector.formats.langchain.writer import write
from projector.formats.shared.blocks import media_block
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque, signer_of
from projector.message import Block, Message
from tests.shared_data import imported, naughty, needs_data
from tests.ui_readings import BENCHMARK, a_call, a_message, a_result, agui_events, blocks_said, paths

HAS_LANGCHAIN = importlib.util.find_spec("langchain_core") is not None
RECORDED = [path for path in BENCHMARK if path.parent.name.startswith("langgraph")]
each = pytest.mark.parametrize(
    "number", range(len(RECORDED)), ids=[f"{path.parent.name}-{path.name.partition('.events')[0]}" for path in RECORDED]
)


@cache
def states(number: int) -> list[list[dict[str, Any]]]:
    """The states of a graph in a recorded run, as LangChain dumps its messages."""
    events = [json.loads(line) for line in agui_events(RECORDED[number])]
    found = [event["snapshot"].get("messages") for event in events if event["type"] == "STATE_SNAPSHOT"]
    return [messages for messages in found if messages]


def bare(value: Any) -> Any:
    """Null is as good as absent."""
    if isinstance(value, dict):
        return {name: bare(inner) for name, inner in value.items() if inner is not None}
    return [bare(inner) for inner in value] if isinstance(value, list) else value


def taken(messages: list[dict[str, Any]]) -> list[Any]:
    """The messages as LangChain itself takes them, if it is installed."""
    if not HAS_LANGCHAIN:
        return []
    converted: list[Any] = importlib.import_module("langchain_core.messages").convert_to_messages(messages)
    assert [message.type for message in converted] == [message["type"] for message in messages]
    return converted


def once_more(messages: list[Message]) -> list[Message]:
    [history] = read(json.dumps(write(messages).payload))
    assert history.losses == ()
    return imported(history)


# recordings


@needs_data
@each
def test_a_recorded_state_says_what_an_independent_reading_says(number: int) -> None:
    for messages in states(number):
        [history] = read(json.dumps(messages))
        assert history.losses == ()
        found = imported(history)
        assert [message.role for message in found] == [
            {"human": "user", "ai": "assistant"}.get(message["type"], message["type"]) for message in messages
        ]
        for message, given_message in zip(found, messages, strict=True):
            content = given_message["content"]
            text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
            if message.role == "tool":
                [result] = message.blocks
                assert (result.tool_call_id, json.loads(result.parts or "")) == (
                    given_message["tool_call_id"], [{"kind": "text", "text": text}],
                )  # fmt: skip
            else:
                calls = [block for block in message.blocks if block.kind == "tool_call"]
                assert message.text == text
                assert [(call.name, call.tool_call_id, call.input) for call in calls] == [
                    (call["name"], call["id"], call["args"]) for call in given_message.get("tool_calls", [])
                ]


@needs_data
@each
def test_a_recorded_state_goes_in_and_out_unchanged(number: int) -> None:
    for messages in states(number):
        if messages[0]["type"] == "tool":
            continue  # a node's own result without its call
        found = imported(next(read(json.dumps(messages))))
        written = write(found)
        is_open = bool(messages[-1].get("tool_calls"))
        assert bool(written.repairs) == is_open  # a call that waits for its node is closed
        assert written.losses == ()
        closed = bare(written.payload)[: len(messages)]
        wanted = [message | {"content": without_native_calls(message["content"])} for message in bare(messages)]
        assert closed == wanted
        taken(written.payload)


def without_native_calls(content: Any) -> Any:
    """Anthropic's own blocks of calls, which stand in `tool_calls` too."""
    return [block for block in content if block["type"] != "tool_use"] if isinstance(content, list) else content


# every form

EVERYTHING: list[dict[str, Any]] = [
    {"type": "system", "content": "be brief", "id": "s", "additional_kwargs": {}, "response_metadata": {}},
    {"type": "system", "content": "be kind", "id": "d", "additional_kwargs": {"__openai_role__": "developer"}},
    {"type": "human", "content": "hello", "id": "h1", "name": "ann", "additional_kwargs": {"x": [1, {}]}},
    {"type": "human", "id": "h2", "content": [
        {"type": "text", "text": "look", "id": "t1", "index": 0, "extras": {"cache_control": {"type": "ephemeral"}}},
        {"type": "image", "base64": "aGk=", "mime_type": "image/png", "extras": {"detail": "low"}},
        {"type": "image", "url": "https://e.org/a.png"}, {"type": "file", "file_id": "f1", "mime_type": "application/pdf"},
        {"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"}, {"type": "video", "url": "https://e.org/v"},
        {"type": "text-plain", "text": "ü", "mime_type": "text/plain", "title": "T", "context": "C"},
    ]},
    {"type": "ai", "id": "a1", "name": "bot", "content": [
        {"type": "reasoning", "reasoning": "hm", "id": "r1", "extras": {"signature": "c2ln", "n": 1.5}},
        {"type": "reasoning", "reasoning": "", "id": "r2", "extras": {"encrypted_content": "gAAA"}},
        {"type": "non_standard", "value": {"type": "redacted_thinking", "data": "x="}},
        {"type": "text", "text": "see", "annotations": [
            {"type": "citation", "url": "https://e.org", "title": "E", "start_index": 0, "end_index": 1, "cited_text": "q"},
            {"type": "non_standard_annotation", "value": {"page": 1}},
        ]},
        {"type": "server_tool_call", "id": "s1", "name": "web_search", "args": {"q": "x"}, "index": 4},
        {"type": "server_tool_result", "tool_call_id": "s1", "status": "success", "output": [{"url": "u"}], "extras": {"k": 1}},
        {"type": "non_standard", "value": {"type": "hologram", "n": [1.5]}},
        {"type": "refusal", "refusal": "not that"},
        {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
        {"type": "tool_call", "id": "c1", "name": "f", "args": {"x": [1.5, None]}, "extras": {"signature": "dHM="}},
        {"type": "tool_call", "id": "c2", "name": "g", "args": {}},
        {"type": "invalid_tool_call", "id": "c3", "name": "g", "args": "{bro", "error": "no JSON"},
    ], "tool_calls": [
        {"type": "tool_call", "id": "c1", "name": "f", "args": {"x": [1.5, None]}},
        {"type": "tool_call", "id": "c2", "name": "g", "args": {}},
    ], "invalid_tool_calls": [{"type": "invalid_tool_call", "id": "c3", "name": "g", "args": "{bro", "error": "no JSON"}],
     "response_metadata": {"output_version": "v1", "model_provider": "anthropic", "model_name": "m", "stop_reason": "tool_use"},
     "usage_metadata": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10, "input_token_details": {"cache_read": 4},
                        "output_token_details": {"reasoning": 1}}},
    {"type": "tool", "content": "ok", "tool_call_id": "c1", "status": "success", "name": "f", "id": "t1",
     "artifact": {"k": [1]}},
    {"type": "tool", "content": [{"type": "text", "text": "no"}, {"type": "image", "url": "u", "mime_type": "image/png"}],
     "tool_call_id": "c2", "status": "error", "id": "t2"},
    {"type": "tool", "content": "?", "tool_call_id": "c3", "status": "error", "id": "t3"},
    {"type": "ai", "content": "calling", "id": "a2", "tool_calls": [{"type": "tool_call", "id": "d", "name": "f", "args": {}}],
     "invalid_tool_calls": []},
    {"type": "tool", "content": "1", "tool_call_id": "d", "status": "success"},
    {"type": "ai", "content": "bye", "id": "a3", "tool_calls": [], "invalid_tool_calls": []},
]  # fmt: skip


def test_messages_of_every_kind_go_in_and_out_unchanged() -> None:
    [history] = read(json.dumps(EVERYTHING))
    messages = imported(history)
    written = write(messages)
    assert bare(written.payload) == bare(EVERYTHING)
    assert (written.losses, written.repairs, history.losses) == ((), (), ())
    taken(written.payload)
    [state] = read(json.dumps({"messages": EVERYTHING, "step": 1}))
    assert (state.drafts, state.metadata) == (history.drafts, {"step": "1"})
    used = history.drafts[4].usage
    assert used is not None
    assert (used.input, used.output, used.cached, used.reasoning) == (7, 3, 4, 1)
    assert (history.drafts[4].model, history.drafts[4].provider, history.drafts[4].finish_reason) == (
        "m",
        "anthropic",
        "tool_use",
    )


def test_signatures_are_of_the_maker_that_the_message_names() -> None:
    [history] = read(json.dumps(EVERYTHING))
    blocks = history.drafts[4].blocks
    assert [(block.signature, signer_of(block)) for block in blocks if block.signature] == [
        ("c2ln", "anthropic"), ("dHM=", "anthropic"),
    ]  # fmt: skip
    assert blocks[2].opaque == opaque("anthropic", '{"type": "redacted_thinking", "data": "x="}')


@pytest.mark.skipif(not HAS_LANGCHAIN, reason="langchain-core is not installed")
def test_the_forms_in_which_langchain_keeps_messages_are_all_read() -> None:
    core = importlib.import_module("langchain_core.messages")
    dumped = importlib.import_module("langchain_core.load").dumpd
    made = taken(EVERYTHING)
    wanted = [draft.blocks for draft in next(read(json.dumps(EVERYTHING))).drafts]
    flat = [message.model_dump() for message in made]
    for form in (core.messages_to_dict(made), [dumped(message) for message in made], flat):
        [history] = read(json.dumps(form))
        assert [draft.blocks for draft in history.drafts] == wanted
        written = write(imported(history)).payload
        assert [without_lists(message) for message in written] == [without_lists(message) for message in flat]


def without_lists(message: dict[str, Any]) -> Any:
    """LangChain empties the list of broken calls where they stand in the content, and leaves out what is empty."""
    return {name: value for name, value in bare(message).items() if value not in ([], {}) and name != "invalid_tool_calls"}


def test_older_forms_say_the_same_as_the_newer_ones() -> None:
    raw = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.50}'}}]
    parsed = [{"id": "c", "name": "f", "args": {"x": 1.5}, "type": "tool_call"}]
    native = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln", "index": 0}, {"type": "redacted_thinking", "data": "x="},
        {"type": "text", "text": "see", "citations": [{"type": "char_location", "cited_text": "q"}]},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1.5}}, {"type": "input_json_delta", "partial_json": "{}"},
    ]  # fmt: skip
    anthropic = {"model_provider": "anthropic"}
    cases: list[tuple[dict[str, Any], list[tuple[str, Any]]]] = [
        ({"content": "", "additional_kwargs": {"tool_calls": raw}}, [("tool_call", {"x": 1.5})]),
        ({"content": None, "additional_kwargs": {"tool_calls": raw}, "tool_calls": parsed}, [("tool_call", {"x": 1.5})]),
        ({"content": "", "additional_kwargs": {"function_call": {"name": "f", "arguments": "{}"}}}, [("tool_call", {})]),
        ({"content": "x", "additional_kwargs": {"reasoning_content": "hm", "refusal": "no"}},
         [("reasoning", "hm"), ("text", "x"), ("refusal", "no")]),
        ({"content": native, "tool_calls": parsed, "response_metadata": anthropic},
         [("reasoning", "hm"), ("redacted_reasoning", ""), ("text", "see"), ("tool_call", {"x": 1.5})]),
        ({"content": [{"type": "reasoning", "id": "rs", "summary": [{"text": "a"}], "encrypted_content": "g"},
                      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
          "response_metadata": {"model_provider": "openai"}}, [("reasoning", "a"), ("tool_call", {})]),
        ({"content": [{"type": "reasoning_content", "reasoning_content": {"text": "hm", "signature": "s"}}, "and text"]},
         [("reasoning", "hm"), ("text", "and text")]),
        ({"type": "AIMessageChunk", "content": "x", "tool_call_chunks": [{"id": "c", "name": "f", "args": '{"a"', "index": 0}]},
         [("text", "x"), ("tool_call", None)]),
    ]  # fmt: skip
    for fields, wanted in cases:
        [history] = read(json.dumps([{"type": "ai"} | fields]))
        [draft] = history.drafts
        found = [(block.kind, block.input if block.kind == "tool_call" else block.text) for block in draft.blocks]
        assert found == wanted
        messages = imported(history)
        written = write(messages)
        taken(written.payload)
        back = imported(next(read(json.dumps(written.payload))))
        assert [block.kind for block in back[0].blocks] == [kind for kind, _ in wanted]
        assert [block.signature for block in back[0].blocks] == [block.signature for block in messages[0].blocks]
    raws = next(read(json.dumps([{"type": "ai"} | cases[1][0]]))).drafts[0].blocks
    assert raws[0].text == '{"x": 1.50}'  # as the provider wrote it


def test_older_media_are_read() -> None:
    content = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}, {"type": "image_url", "image_url": "https://e.org"},
        {"type": "image", "source_type": "base64", "data": "aGk=", "mime_type": "image/png"},
        {"type": "file", "source_type": "url", "url": "https://e.org/a.pdf", "mime_type": "application/pdf"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    ]  # fmt: skip
    written = write(imported(next(read(json.dumps([{"type": "human", "content": content}])))))
    image = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    assert written.payload[0]["content"] == [
        image, {"type": "image", "url": "https://e.org"}, image,
        {"type": "file", "url": "https://e.org/a.pdf", "mime_type": "application/pdf"}, image,
    ]  # fmt: skip
    taken(written.payload)


def test_functions_chats_and_removals_are_read_as_far_as_they_say_something() -> None:
    said = [
        {"type": "chat", "role": "assistant", "content": "x"}, {"type": "chat", "role": "critic", "content": "y", "id": "c"},
        {"type": "ai", "content": "", "additional_kwargs": {"function_call": {"name": "f", "arguments": "{}"}}},
        {"type": "function", "name": "f", "content": "1"}, {"type": "remove", "id": "gone", "content": ""},
        {"type": "tool", "content": {"n": [1]}, "tool_call_id": "x"},
    ]  # fmt: skip
    [history] = read(json.dumps(said))
    assert [draft.role for draft in history.drafts] == ["assistant", "user", "assistant", "tool", "tool"]
    assert [(loss.what, loss.message_id) for loss in history.losses] == [
        ("the role 'critic', it is taken as the user's", "c"), ("a message that removes another one", "gone"),
    ]  # fmt: skip
    written = write(imported(history))
    assert [message["type"] for message in written.payload] == ["ai", "human", "ai", "tool"]
    assert written.payload[2]["tool_calls"][0]["id"] == written.payload[3]["tool_call_id"]
    assert [repair.what for repair in written.repairs if "without a call" in repair.what] != []


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "a JSON list"), ("{", "a JSON list"), ("7", "a JSON list"), ("{}", '"messages"'), ("[1]", "message 1"),
        ('[{"role":"user","content":"x"}]', 'message 1: "type"'), ('[{"type":"message"}]', "the type 'message'"),
        ('[{"type":"human","content":7}]', '"content" should be text'), ("[", "a list was expected"),
        ('[{"type":"ai","content":[{"text":"x"}]}]', '"content" at 0: "type"'), ('[{"type":"ai","data":7}]', '"data"'),
        ('[{"lc":1,"type":"constructor","id":["HumanMessage"]}]', '"kwargs"'),
    ],
)  # fmt: skip
def test_what_are_no_messages_is_refused_with_the_place(bad: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        list(read(bad))


def test_what_can_not_be_said_is_listed() -> None:
    result = Block("server_tool_result", sealed=True, tool_call_id="s", opaque=opaque("anthropic", '{"content":[{"x":1}]}'))
    found = '{"kind":"web_search_result_location","source":{"url":"https://e.org","title":"E","cited_text":"q"}}'
    blocks = [
        replace(text_block("x"), citations=(found, '{"kind":"page_location","source":{"page":1}}'),
                opaque=opaque("google", "{}")),
        Block("reasoning", text="hm", sealed=True, signature="c2ln"), media_block("image/png"),
        Block("compaction", text="c", sealed=True),
        Block("server_tool_call", text="{}", sealed=True, name="search", tool_call_id="s", parse="ok"), result,
        Block("redacted_reasoning", sealed=True, opaque=opaque("openai", "{}")),
        Block("data", sealed=True, opaque=opaque("ai-sdk", "{}")),
        Block("provider", sealed=True, opaque=opaque("google", '{"k":1}')), a_call("c"),
        Block("provider", sealed=True, opaque=opaque("ag-ui", '{"k":2}')),
    ]  # fmt: skip
    data = replace(a_result(2, "c").blocks[0], parts='[{"kind":"data","text":"{\\"n\\": 1}"}]', status="denied")
    written = write([a_message(1, "assistant", *blocks), a_message(2, "tool", data)])
    assert sorted((loss.what, loss.block) for loss in written.losses) == [
        ("LangChain has no form for this (media)", 2), ("LangChain has no form for this (provider)", 10),
        ("LangChain has no form for this (redacted_reasoning)", 6),
        ("it is sent as text (compaction)", 3), ("langchain can't be told this (data of ai-sdk)", 7),
        ("that the result is denied, it is sent as an error", 0), ("what a tool of anthropic gave is sent as it came", 5),
        ("what only google knows", 0),
    ]  # fmt: skip
    content = written.payload[0]["content"]
    assert content[0]["annotations"] == [
        {"type": "citation", "url": "https://e.org", "title": "E", "cited_text": "q"},
        {"type": "non_standard_annotation", "value": {"page": 1}},
    ]
    of_nobody = Block("reasoning", text="hm", sealed=True, signature="v", opaque=opaque("ag-ui", "{}"))
    lost = write([a_message(1, "assistant", of_nobody)])
    assert lost.payload[0]["content"] == [{"type": "reasoning", "reasoning": "hm"}]
    assert [loss.what for loss in lost.losses] == ["a signature of ag-ui", "what only ag-ui knows"]
    assert content[1] == {"type": "reasoning", "reasoning": "hm", "extras": {"signature": "c2ln"}}
    assert written.payload[0]["response_metadata"] == {"model_provider": "anthropic", "output_version": "v1"}
    assert {"type": "non_standard", "value": {"k": 1}} in content
    assert written.payload[1] | {"id": ""} == {
        "type": "tool", "content": '{"n": 1}', "tool_call_id": "c", "status": "error", "id": "",
    }  # fmt: skip
    taken(written.payload)


def test_a_broken_history_is_mended_and_said() -> None:
    twice = a_message(2, "assistant", text_block("x\ud83d"), a_call("c"), replace(a_call("d", "{"), sealed=False, parse=None))
    path = [
        a_message(1, "user", text_block("?"), text_block(" ")), twice, twice, a_result(3, "nobody"),
        a_message(4, "user", text_block("well?")), a_result(5, "c", "late"), a_message(6, "assistant", a_call("e")),
    ]  # fmt: skip
    written = write(path)
    assert [message["type"] for message in written.payload] == ["human", "ai", "tool", "human", "ai", "tool"]
    assert written.payload[2]["content"] == "late"
    assert written.payload[5]["status"] == "error"
    assert len(written.repairs) >= 6
    json.dumps(written.payload, ensure_ascii=False).encode()
    taken(written.payload)


def test_naughty_strings_pass_through_every_place() -> None:
    for string in naughty():
        call = {"type": "tool_call", "id": "c", "name": "f", "args": {string: string}}
        said = [
            {"type": "human", "content": f"{string}!", "name": string, "id": f"h{string}",
             "additional_kwargs": {string: string}},
            {"type": "ai", "content": "", "id": f"a{string}", "tool_calls": [call], "invalid_tool_calls": []},
            {"type": "tool", "content": string, "tool_call_id": "c", "status": "success", "id": f"t{string}"},
        ]  # fmt: skip
        written = write(imported(next(read(json.dumps(said)))))
        if "\ud83d" in string:
            assert written.repairs
        else:
            assert (written.payload, written.repairs) == (said, ())


@given(paths())
@settings(max_examples=150, deadline=None)
def test_any_path_goes_out_and_comes_back_the_same(path: list[Message]) -> None:
    written = write(path)
    taken(written.payload)
    back = once_more(path)
    assert write(back).payload == written.payload
    ids = [message["id"] for message in written.payload]
    assert len(set(ids)) == len(ids)
    if not written.repairs:
        known = [replace(message, blocks=tuple(map(with_known_status, message.blocks))) for message in path]
        assert blocks_said(back) == blocks_said(known)


def with_known_status(block: Block) -> Block:
    """LangChain knows of results that they succeeded or failed."""
    return replace(block, status="error") if block.status == "denied" else block
