"""UIMessages: every kind of part in and out, what can't be said, histories that are broken, and any path there may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from projector.formats.ai_sdk.reader import read
from projector.formats.ai_sdk.stream_reader import write_stream
from projector.formats.ai_sdk.writer import write
from projector.formats.format import FormatError
from projector.formats.shared.blocks import media_block
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque, signer_of
from projector.message import Block, Message
from tests.shared_data import imported, naughty
from tests.test_ai_sdk import check_order, feed, parsed
from tests.ui_readings import a_call, a_message, a_result, blocks_said, paths

STEP = {"type": "step-start"}
CITED = {"source": {"type": "source", "sourceType": "document", "id": "1", "mediaType": "text/plain", "title": "D"}}


def tool(state: str, ref: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool-f", "toolCallId": ref, "state": state} | fields


def approval(ref: str, **fields: Any) -> dict[str, Any]:
    return {"id": ref, "requestReason": "why", "signature": "s", "descriptor": {"n": [1]}} | fields


EVERYTHING: list[dict[str, Any]] = [
    {"id": "s", "role": "system", "parts": [{"type": "text", "text": "be brief"}]},
    {"id": "u", "role": "user", "metadata": {"at": 1, "x": [None]}, "parts": [
        {"type": "text", "text": "look", "providerMetadata": {"p": {"cache": True}}},
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"},
        {"type": "file", "mediaType": "application/pdf", "url": "https://e.org/a.pdf", "providerReference": {"openai": "f1"}},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi"},
    ]},
    {"id": "a", "role": "assistant", "metadata": {"model": "m"}, "parts": [
        STEP,
        {"type": "reasoning", "id": "r", "text": "hm", "state": "done",
         "providerMetadata": {"anthropic": {"signature": "c2ln"}}},
        {"type": "reasoning", "text": "", "state": "done", "providerMetadata": {"anthropic": {"redactedData": "x="}}},
        {"type": "reasoning", "text": "", "state": "done", "providerMetadata": {"openai": {"itemId": "rs", "n": 1.5}}},
        {"type": "text", "text": "see", "state": "done", "citations": [CITED], "providerMetadata": {"openai": {"itemId": "i"}}},
        tool("output-available", "c1", input={"x": [1.5, None]}, output={"rows": [1]}, title="T", toolMetadata={"k": 1},
             callProviderMetadata={"google": {"thoughtSignature": "dHM="}}, resultProviderMetadata={"p": {"n": 1}}),
        tool("output-available", "c2", input={}, output="plain") | {"type": "dynamic-tool", "toolName": "weird name/ü"},
        tool("output-error", "c3", input={}, errorText="broke"),
        tool("output-error", "c4", rawInput='{"broken', errorText="no JSON"),
        tool("output-denied", "c5", input={}, approval=approval("q1", approved=False, reason="no")),
        tool("output-available", "c6", input={}, output=None, preliminary=True),
        tool("output-available", "c7", input={}, output="", approval=approval("q2", approved=True)),
        tool("output-available", "s1", input={"q": 1}, output=[{"url": "u"}], providerExecuted=True),
        tool("output-error", "s2", input={}, errorText="down", providerExecuted=True, resultProviderMetadata={"p": {}}),
        STEP,
        {"type": "source-url", "sourceId": "1", "url": "https://e.org", "title": "E"},
        {"type": "source-document", "sourceId": "2", "mediaType": "text/plain", "title": "D", "filename": "d.txt"},
        {"type": "file", "mediaType": "image/png", "url": "https://e.org/b.png", "providerMetadata": {"p": {"n": 1}}},
        {"type": "reasoning-file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="},
        {"type": "data-weather", "id": "w", "data": {"deg": 1.5}}, {"type": "data-plain", "data": None},
        {"type": "custom", "kind": "p.thing", "providerMetadata": {"p": {"a": 1}}},
        {"type": "steering-message", "id": "st", "parts": [{"type": "text", "text": "stop"}]},
        {"type": "hologram", "x": [1]},
        {"type": "text", "text": "bye"},
    ]},
    {"id": "a2", "role": "assistant", "parts": [{"type": "text", "text": "no step", "state": "done"}]},
    {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "?", "state": "done"}]},
    {"id": "a3", "role": "assistant", "extra": {"x": 1}, "parts": [
        STEP,
        tool("input-available", "d1", input={}),
        tool("approval-requested", "d2", input={}, approval=approval("q3")),
        tool("approval-responded", "d3", input={}, approval=approval("q4", approved=True)),
        tool("input-streaming", "d4", rawInput='{"a'),
        {"type": "text", "text": "half", "state": "streaming"},
    ]},
]  # fmt: skip


def once_more(messages: list[Message]) -> list[Message]:
    """The messages that a client's messages give when they come back."""
    [history] = read(json.dumps(write(messages).payload))
    assert history.losses == ()
    return imported(history)


def test_messages_of_every_kind_go_in_and_out_unchanged() -> None:
    [history] = read(json.dumps(EVERYTHING))
    messages = imported(history)
    written = write(messages)
    assert written.payload == EVERYTHING
    assert (written.losses, written.repairs, history.losses) == ((), (), ())
    [again] = read(json.dumps({"id": "c", "trigger": "submit-message", "messages": EVERYTHING}))
    assert (again.name, again.metadata, again.drafts) == ("c", {"trigger": '"submit-message"'}, history.drafts)
    [alone] = read(json.dumps(EVERYTHING[0]))
    assert alone.drafts == history.drafts[:1]


def test_each_step_is_a_message_with_the_results_of_its_tools_behind_it() -> None:
    messages = imported(next(read(json.dumps(EVERYTHING))))
    said = [message for message in messages if message.run_id == messages[2].run_id][2:]
    assert [message.role for message in said] == ["assistant", *["tool"] * 7, "assistant", "assistant"]
    assert [block.kind for block in said[0].blocks][:4] == ["reasoning", "redacted_reasoning", "redacted_reasoning", "text"]
    assert [block.kind for block in said[0].blocks][-4:] == ["server_tool_call", "server_tool_result"] * 2
    assert [message.blocks[0].status for message in said[1:8]] == ["ok", "ok", "error", "error", "denied", "ok", "ok"]
    signed = [block for block in said[0].blocks if block.signature is not None]
    assert [(block.signature, signer_of(block)) for block in signed] == [("c2ln", "anthropic"), ("dHM=", "google")]
    assert said[0].blocks[1].opaque == opaque("anthropic", '{"type":"redacted_thinking","data":"x="}')
    assert said[0].blocks[4].input == {"x": [1.5, None]}


def test_messages_of_every_kind_are_a_stream_that_the_client_takes() -> None:
    messages = imported(next(read(json.dumps(EVERYTHING))))
    chunks = write_stream(messages)
    check_order(chunks)
    shown = write(feed(*chunks)[0]).payload
    wanted = json.loads(json.dumps([message for message in EVERYTHING if message["role"] == "assistant"]))
    wanted[0]["parts"] = [part for part in wanted[0]["parts"] if part["type"] != "hologram"]  # a client knows no such chunk
    for part, other in zip(wanted[0]["parts"], shown[0]["parts"], strict=True):
        part.pop("preliminary", None)
        if part["type"] == "reasoning":  # each has an id on its way
            part["id"] = other["id"]
    wanted[0]["parts"][-1]["state"] = "done"  # of what has come to its end
    wanted[2]["parts"][-1]["state"] = "done"
    del wanted[2]["extra"]  # chunks have no place for it
    assert shown == wanted


def test_empty_parts_and_steps_are_lost_and_said() -> None:
    parts = [STEP, STEP, {"type": "text", "text": "", "state": "done"}, {"type": "text", "text": "x", "state": "done"}]
    torn = tool("input-streaming", "c", rawInput="{", title="T", input={})
    given = [{"id": "a", "role": "assistant", "parts": [*parts, torn]}, {"id": "e", "role": "user", "parts": []}]
    [history] = read(json.dumps(given))
    assert [(loss.what, loss.message_id) for loss in history.losses] == [
        ("a part without text", "a"), ("what stands beside a part that is not finished", "a"),
        ("a message or step without content", "a"), ("a message or step without content", "e"),
    ]  # fmt: skip
    kept = [STEP, parts[3], tool("input-streaming", "c", rawInput="{")]
    assert write(imported(history)).payload == [{"id": "a", "role": "assistant", "parts": kept}]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "a JSON list"), ("{", "a JSON list"), ("7", "a JSON list"), ("{}", '"messages"'), ("[1]", "message 1"),
        ('[{"id":"a","parts":[]}]', 'message 1: "role"'), ('[{"role":"tool","parts":[]}]', "the role 'tool'"),
        ('[{"role":"user","content":"x"}]', '"parts" should be a list'), ("[", "a list was expected"),
        ('[{"role":"user","parts":[{"type":"text"}]}]', '"parts" at 0: "text"'), ('[{"role":"user","parts":7}]', "a list was"),
        ('[{"role":"assistant","parts":[{"type":"tool-f","state":"x"}]}]', '"toolCallId"'),
    ],
)  # fmt: skip
def test_what_are_no_messages_is_refused_with_the_place(bad: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        list(read(bad))


def test_what_other_makers_keep_travels_with_the_message_byte_for_byte() -> None:
    payload = '{"id": "rs_1",  "n": 1.50, "s": "\\ud83d"}'
    blocks = [
        Block("reasoning", text="hm", sealed=True, opaque=opaque("openai", payload)),
        Block("redacted_reasoning", sealed=True, opaque=opaque("openai", payload)),
        Block("reasoning", text="so", sealed=True, signature="x", opaque=opaque("google", "{}")),
        Block("reasoning", text="and", sealed=True, signature="y"),
        Block("reasoning", text="or", sealed=True, signature="z", opaque=opaque("ag-ui", "{}")),
        replace(a_call("c"), opaque=opaque("openai", payload)),
        replace(text_block("x"), opaque=opaque("google", payload), signature="g"),
    ]
    said = a_message(1, "assistant", *blocks)
    for back in (once_more([said]), feed(*write_stream([said]))[0]):
        found = [(block.kind, block.signature, signer_of(block)) for block in back[0].blocks]
        assert found == [(block.kind, block.signature, signer_of(block)) for block in said.blocks]
        assert [block.opaque for block in back[0].blocks[:2]] == [block.opaque for block in blocks[:2]]
        assert [block.opaque for block in back[0].blocks[5:]] == [block.opaque for block in blocks[5:]]
    metadata = [part.get("providerMetadata", {}) for part in write([said]).payload[0]["parts"][1:]]
    assert metadata[3] == {"anthropic": {"signature": "y"}}  # as the SDK's own provider wants it


def test_what_can_not_be_said_is_listed() -> None:
    result = Block("server_tool_result", sealed=True, tool_call_id="s", opaque=opaque("anthropic", '{"content":[{"x":1}]}'))
    found = '{"kind":"web_search_result_location","source":{"url":"https://e.org","title":"E","cited_text":"q"}}'
    blocks = [
        replace(text_block("x"), citations=(found, '{"kind":"page_location","source":{"page":1}}')),
        Block("refusal", text="no", sealed=True), media_block("image/png"), Block("compaction", text="c", sealed=True),
        Block("server_tool_call", text="{}", sealed=True, name="search", tool_call_id="s", parse="ok"), result,
        replace(result, tool_call_id="nobody"), replace(a_call("b", "{bro"), parse="bad"), a_call("c"), a_call("d"),
    ]  # fmt: skip
    two = replace(
        a_result(2, "c").blocks[0], parts='[{"kind":"text","text":"a"},{"kind":"media","media_type":"image/png","url":"u"}]'
    )
    path = [a_message(1, "assistant", *blocks, name="bot"), a_message(2, "tool", two), a_result(3, "d", "?", "interrupted")]
    written = write([a_message(1, "developer", text_block("rules"), run="d"), *path])
    assert [(loss.what, loss.block) for loss in written.losses] == [
        ("that it is of the developer, it is sent as the system's", None), ("the name of who speaks", None),
        ("citations without an address", 0), ("that it is a refusal", 1), ("the AI SDK has no form for this (media)", 2),
        ("the AI SDK has no form for this (compaction)", 3), ("what a tool of anthropic gave is sent as it came", 5),
        ("the AI SDK has no form for this (server_tool_result of anthropic)", 6),
        ("a call with broken input is sent as one that failed", 7), ("several parts of a result are sent as a list", 0),
        ("that the result is interrupted, it is sent as an error", 0),
    ]  # fmt: skip
    assert [loss.what for loss in written.losses if "server" in loss.what] != []
    parts = written.payload[1]["parts"]
    assert parts[1]["citations"] == [
        {
            "source": {"type": "source", "sourceType": "url", "id": "r.1/0/0", "url": "https://e.org", "title": "E"},
            "citedText": "q",
        },
    ]
    assert parts[3] == tool("output-available", "s", input={}, output=[{"x": 1}], providerExecuted=True) | {
        "type": "tool-search"
    }
    assert parts[4] == tool("output-error", "b", rawInput="{bro", errorText="the input is no JSON")
    assert parts[5]["output"] == [{"type": "text", "text": "a"}, {"type": "file", "url": "u", "mediaType": "image/png"}]
    assert parts[6] == tool("output-error", "d", input={}, errorText="?")


def test_a_broken_history_is_mended_and_said_and_open_calls_stay_open() -> None:
    twice = a_message(2, "assistant", text_block("x\ud83d"), a_call("c"))
    path = [
        a_message(1, "user", text_block("?")), twice, twice, a_result(3, "nobody"), a_result(4, "c"), a_result(5, "c"),
        replace(a_message(6, "assistant", a_call("c")), id="r.4"), a_message(7, "user", text_block("?")),
        a_message(8, "assistant"),
        replace(a_message(9, "assistant", text_block("more")), id="r.9"),
    ]  # fmt: skip
    written = write(path)
    assert [repair.what for repair in written.repairs] == [
        "characters that no text may have were replaced: 1", "characters that no text may have were replaced: 1",
        "the message is there twice and is sent once", "another message has this id, it is sent as r.4~2",
        "a result without a call before it (nobody) is not sent", "a second result of c is not sent",
        "the call 'c' is sent as c~2", "a message without content is not sent",
    ]  # fmt: skip
    assert [(message["id"], message["role"]) for message in written.payload] == [
        ("r.1", "user"), ("r", "assistant"), ("r.7", "user"), ("r.9", "assistant"),
    ]  # fmt: skip
    assert [part["state"] for part in written.payload[1]["parts"] if part["type"] == "tool-f"] == [
        "output-available",
        "input-available",
    ]
    check_order(write_stream(path))


def test_naughty_strings_pass_through_every_place() -> None:
    for string in naughty():
        state = tool("output-available", f"c{string}", input={string: string}, output=string)
        said = [
            {"id": f"u{string}", "role": "user", "metadata": {string: string},
             "parts": [{"type": "text", "text": f"{string}!"}]},
            {"id": f"a{string}", "role": "assistant", "parts": [STEP, state | {"type": f"tool-{string}"},
             {"type": "data-x", "id": string, "data": {string: string}}]},
        ]  # fmt: skip
        messages = imported(next(read(json.dumps(said))))
        written = write(messages)
        check_order(write_stream(messages))
        if "\ud83d" in string:
            assert written.repairs
            json.dumps(written.payload[0]["parts"], ensure_ascii=False).encode()
        else:
            assert (written.payload, written.repairs) == (said, ())


@given(paths())
@settings(max_examples=150, deadline=None)
def test_any_path_goes_out_and_comes_back_the_same(path: list[Message]) -> None:
    written = write(path)
    assert written.repairs == ()
    assert written.losses == ()
    back = once_more(path)
    assert write(back).payload == written.payload
    assert sorted(map(repr, parsed(back))) == sorted(map(repr, parsed(path)))
    if not any(message.role in ("user", "system") for message in path[1:]):
        assert [row[0] for row in blocks_said(back)] == [message.role for message in path]
    ids = [message["id"] for message in written.payload]
    assert len(set(ids)) == len(ids)
