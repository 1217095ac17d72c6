"""Conversations of any provider as message histories of Pydantic AI: what has no form there, what is mended."""

from __future__ import annotations

import json

from hypothesis import given, settings
from msgspec.structs import replace

from projector.formats import WRITERS
from projector.formats.pydantic_ai.writer import write
from projector.formats.shared.blocks import media_block
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque
from projector.message import Block, Message
from tests.broken_histories import HISTORIES
from tests.faults.sizes import size
from tests.shared_data import imported, naughty
from tests.test_pydantic_ai import T, history_of, once_more, taken
from tests.ui_readings import a_call, a_message, a_result, blocks_said, paths


def test_what_can_not_be_said_is_listed() -> None:
    result = Block("server_tool_result", sealed=True, tool_call_id="s", opaque=opaque("anthropic", '{"content":[{"x":1}]}'))
    found = '{"kind":"web_search_result_location","source":{"url":"https://e.org","title":"E","cited_text":"q"}}'
    blocks = [
        replace(text_block("x"), citations=(found, '{"kind":"page_location","source":{"page":1}}'),
                opaque=opaque("google", "{}")),
        Block("reasoning", text="hm", sealed=True, signature="c2ln"), media_block("image/png"),
        Block("compaction", text="c", sealed=True),
        Block("server_tool_call", text="{}", sealed=True, name="search", tool_call_id="s", parse="ok"), result,
        Block("redacted_reasoning", sealed=True, opaque=opaque("google", "{}")),
        Block("data", sealed=True, opaque=opaque("ai-sdk", "{}")),
        Block("provider", sealed=True, opaque=opaque("google", '{"k":1}')), a_call("c"),
        Block("refusal", text="no", sealed=True),
        Block("reasoning", text="?", sealed=True, signature="v", opaque=opaque("ag-ui", "{}")),
    ]  # fmt: skip
    data = replace(a_result(2, "c").blocks[0], parts='[{"kind":"data","text":"{\\"n\\": 1}"}]', status="synthetic")
    asked = replace(a_message(0, "developer", text_block("be kind")), name="ann")
    written = write([asked, a_message(1, "assistant", *blocks), a_message(2, "tool", data)])
    assert sorted((loss.what, loss.block) for loss in written.losses if loss.block is not None) == [
        ("Pydantic AI has no form for this (media)", 2), ("Pydantic AI has no form for this (provider)", 8),
        ("Pydantic AI has no form for this (redacted_reasoning)", 6), ("a citation without an address or words", 0),
        ("a signature of ag-ui", 11), ("it is sent as text (compaction)", 3), ("it is sent as text (refusal)", 10),
        ("pydantic-ai can't be told this (data of ai-sdk)", 7), ("what a tool of anthropic gave is sent as it came", 5),
        ("what only ag-ui knows", 11), ("what only google knows", 0),
    ]  # fmt: skip
    assert [loss.what for loss in written.losses if loss.message_id == asked.id] == [
        "the name of the speaker", "that it is an instruction of the developer, it is sent as the system's",
    ]  # fmt: skip
    parts = written.payload[1]["parts"]
    assert parts[0]["citations"] == [{"sources": [{"kind": "web", "url": "https://e.org", "title": "E", "excerpts": ["q"]}]}]
    assert parts[1] == {"part_kind": "thinking", "content": "hm", "signature": "c2ln", "provider_name": "anthropic"}
    assert [part["tool_name"] for part in parts if "builtin" in part["part_kind"]] == ["search", "search"]
    [returned] = written.payload[2]["parts"]
    assert (returned["tool_name"], returned["content"], returned["outcome"]) == ("f", {"n": 1}, "interrupted")
    taken(written.payload)


def test_what_makers_hide_goes_out_as_pydantic_ai_has_it() -> None:
    hidden = [
        Block("redacted_reasoning", sealed=True, opaque=opaque("anthropic", '{"type":"redacted_thinking","data":"x="}')),
        Block("redacted_reasoning", sealed=True, provider_ref="rs", signature="gAAA", opaque=opaque("openai", "{}")),
        Block("compaction", sealed=True, opaque=opaque("openai", '{"type":"compaction","id":"cm","encrypted_content":"gB"}')),
        replace(a_call("c"), signature="dHM=", opaque=opaque("google", '{"functionCall":{}}')),
    ]
    said = write([a_message(1, "assistant", *hidden), a_result(2, "c")]).payload[0]["parts"]
    assert said[:3] == [
        {"part_kind": "thinking", "content": "", "provider_name": "anthropic", "signature": "x=", "id": "redacted_thinking"},
        {"part_kind": "thinking", "content": "", "provider_name": "openai", "signature": "gAAA", "id": "rs"},
        {"part_kind": "compaction", "id": "cm", "provider_name": "openai", "provider_details": {"encrypted_content": "gB"}},
    ]
    assert said[3]["provider_details"] == {"thought_signature": "dHM="}
    assert said[3]["provider_name"] == "google"


def test_a_broken_history_is_mended_and_said() -> None:
    twice = a_message(2, "assistant", text_block("x\ud83d"), a_call("c"), replace(a_call("d", "{"), sealed=False, parse=None))
    path = [
        a_message(1, "user", text_block("?"), text_block(" ")), twice, twice, a_result(3, "nobody"),
        a_message(4, "user", text_block("well?")), a_result(5, "c", "late"), a_message(6, "assistant", a_call("e")),
    ]  # fmt: skip
    written = write(path)
    assert [message["kind"] for message in written.payload] == ["request", "response"] * 2 + ["request"]
    assert [part["part_kind"] for part in written.payload[2]["parts"]] == ["tool-return", "user-prompt"]
    assert written.payload[4]["parts"][0]["outcome"] == "interrupted"
    assert len(written.repairs) >= 6
    json.dumps(written.payload, ensure_ascii=False).encode()
    taken(written.payload)


def test_naughty_strings_pass_through_every_place() -> None:
    for string in naughty():
        said = [
            {"kind": "request", "timestamp": T, "metadata": {string: string}, "parts": [
                {"part_kind": "user-prompt", "timestamp": T, "content": [f"{string}!", {
                    "kind": "text-content", "content": f"!{string}", "metadata": string}]}]},
            {"kind": "response", "timestamp": T, "provider_response_id": string, "parts": [
                {"part_kind": "text", "content": f"{string}!"},
                {"part_kind": "tool-call", "tool_name": "f", "args": {string: string}, "tool_call_id": "c"}]},
            {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "c", "timestamp": T,
                                           "content": string, "metadata": {"k": string}}]},
        ]  # fmt: skip
        written = write(imported(history_of(*said)))
        if "\ud83d" in string:
            assert written.repairs
        else:
            assert (written.payload, written.repairs) == (said, ())


@given(paths())
@settings(max_examples=size(smoke=50, full=100), deadline=None)
def test_any_path_goes_out_and_comes_back_the_same(path: list[Message]) -> None:
    written = write(path)
    taken(written.payload)
    back = once_more(path)
    assert write(back).payload == written.payload
    if not written.repairs:
        assert blocks_said(back) == blocks_said(path)


@given(HISTORIES)
@settings(max_examples=size(smoke=80, full=200), deadline=None)
def test_no_history_is_so_broken_that_pydantic_ai_refuses_its_export(history: list[Message]) -> None:
    taken(WRITERS["pydantic-ai"](history).payload)
