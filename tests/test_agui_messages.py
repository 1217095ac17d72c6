"""AG-UI messages: every kind in and out, what can't be said, histories that are broken, and any path there may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from projector.formats.agui.reader import read
from projector.formats.agui.stream_reader import write_stream
from projector.formats.agui.writer import write
from projector.formats.format import FormatError
from projector.formats.shared.blocks import media_block
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque, signer_of
from projector.json_text import dump
from projector.message import Block, Message
from tests.shared_data import imported, naughty
from tests.test_agui import check_order, feed
from tests.test_agui_cases import answers, calls, snapshot
from tests.ui_readings import a_call, a_message, a_result, blocks_said, paths


def once_more(messages: list[Message]) -> list[Message]:
    """The messages that a client's messages give when they come back."""
    [history] = read(json.dumps(write(messages).payload))
    return imported(history)


EVERYTHING: list[dict[str, Any]] = [
    {"id": "s", "role": "system", "content": "be brief", "name": "boss"},
    {"id": "d", "role": "developer", "content": "be kind", "encryptedValue": "v0"},
    {"id": "u", "role": "user", "content": "hello", "metadata": {"a": [1, None], "ag-ui": {}}, "subagentRunId": "s1"},
    {"id": "u2", "role": "user", "content": [{"type": "text", "text": "look"}]},
    {"id": "u3", "role": "user", "content": [
        {"type": "text", "text": "at", "id": "p1"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        {"type": "image", "source": {"type": "url", "value": "https://e.org/a"}, "metadata": {"detail": "low"}},
        {"type": "audio", "source": {"type": "file", "value": "f1", "provider": "p", "mimeType": "audio/wav"}},
        {"type": "document", "source": {"type": "url", "value": "https://e.org/b.pdf", "mimeType": "application/pdf"}},
    ]},
    {"id": "r1", "role": "reasoning", "content": "hm", "encryptedValue": "v1"},
    {"id": "r2", "role": "reasoning", "content": "", "encryptedValue": "v2", "metadata": {"b": 1}},
    {"id": "a1", "role": "assistant", "content": "", "name": "bot", "toolCalls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.50}'}, "encryptedValue": "v3"},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": '{"broken'}, "metadata": {"c": 1}},
        {"id": "c3", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]},
    {"id": "t1", "role": "tool", "content": "ok", "toolCallId": "c1"},
    {"id": "t2", "role": "tool", "content": "failed", "toolCallId": "c2", "error": "no such thing", "encryptedValue": "v4"},
    {"id": "t3", "role": "tool", "toolCallId": "c3", "content": [
        {"type": "text", "text": "see"}, {"type": "image", "source": {"type": "url", "value": "u", "mimeType": "image/gif"}},
    ]},
    {"id": "act", "role": "activity", "activityType": "task", "content": {"n": [1, {}]}},
    {"id": "r3", "role": "reasoning", "content": "alone"},
    {"id": "u4", "role": "user", "content": "and?"},
    {"id": "a2", "role": "assistant", "content": "bye"},
    {"id": "a3", "role": "assistant", "content": "really"},
]  # fmt: skip


def test_messages_of_every_kind_go_in_and_out_unchanged() -> None:
    [history] = read(json.dumps(EVERYTHING))
    messages = imported(history)
    written = write(messages)
    assert written.payload == EVERYTHING
    assert (written.losses, written.repairs, history.losses) == ((), (), ())
    [again] = read(json.dumps({"threadId": "t", "runId": "r", "messages": EVERYTHING, "state": {"n": 1}}))
    assert (again.name, again.metadata, again.drafts) == ("t", {"runId": '"r"', "state": '{"n": 1}'}, history.drafts)
    assert write(messages) == written


def test_messages_of_every_kind_are_a_stream_that_the_client_takes() -> None:
    messages = imported(next(read(json.dumps(EVERYTHING))))
    events = write_stream(messages, thread_id="t")
    check_order(events)
    assert events[-2] == snapshot(*EVERYTHING)
    streamed = [message for message in feed(*events)[0] if message.role != "user" and message.blocks[0].kind != "provider"]
    seen = [message for message in messages if message.role != "user" and message.blocks[0].kind != "provider"]
    unnamed = [replace(message, name=None) if message.name == "bot" else message for message in seen]
    assert blocks_said(streamed) == blocks_said(unnamed)  # of whom the reasoning is comes too late
    assert write(streamed).payload[4]["name"] == "bot"


def test_a_call_without_arguments_goes_out_with_an_empty_object() -> None:
    [history] = read(json.dumps([calls("a", "c", "")]))
    assert write(imported(history)).payload[0]["toolCalls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "a JSON list"), ("{", "a JSON list"), ("7", "a JSON list"), ("{}", '"messages"'), ("[1]", "message 1"),
        ('[{"id":"a","content":""}]', 'message 1: "role"'), ('[{"role":"ai","id":"a"}]', "the role 'ai'"),
        ('[{"role":"user","id":"a","content":7}]', '"content" should be text'), ("[", "a list was expected"),
        ('[{"role":"user","id":"a","content":[{"type":"smell"}]}]', 'in "content" at 0: a part is text'),
        ('[{"role":"tool","id":"a","content":"x"}]', '"toolCallId"'),
        ('[{"role":"assistant","id":"a","toolCalls":[{"id":"c"}]}]', '"function"'),
    ],
)  # fmt: skip
def test_what_are_no_messages_is_refused_with_the_place(bad: str, why: str) -> None:
    with pytest.raises(FormatError, match=why.replace("[", r"\[")):
        list(read(bad))


def test_an_answer_that_takes_several_messages_comes_back_as_one() -> None:
    signed = Block("reasoning", text="hm", sealed=True, signature="c2ln")  # of whoever needs no payload
    other = replace(signed, text="so", signature="x", opaque=opaque("ag-ui", "{}", signer="google"))
    blocks = [signed, text_block("first"), other, text_block("second"), a_call("c", signature="y", opaque=other.opaque)]
    said = a_message(1, "assistant", *blocks)
    alone = a_message(2, "assistant", signed)
    following = a_message(3, "assistant", text_block("not of it"))
    written = write([said, alone, following])
    assert [message["id"] for message in written.payload] == ["r.1/0", "r.1", "r.1/2", "r.1/3", "r.2/0", "r.3"]
    assert written.losses == ()
    for back in (once_more([said, alone, following]), feed(*write_stream([said, alone, following]))[0]):
        assert blocks_said(back) == blocks_said([said, alone, following])
        assert [signer_of(block) for block in back[0].blocks if block.signature] == ["anthropic", "google", "google"]
        kept = [message["id"] for message in write(back).payload]
        assert kept == [message["id"] for message in written.payload]


def test_what_can_not_be_said_is_listed() -> None:
    cited = replace(text_block("x"), citations=('{"kind":"url","source":{}}',), signature="s")
    kept = replace(text_block("y"), opaque=opaque("google", "{}"))
    blocks = [
        cited, kept, Block("refusal", text="no", sealed=True), Block("server_tool_call", sealed=True, name="search"),
        Block("redacted_reasoning", sealed=True, opaque=opaque("anthropic", '{"data":"x"}')),
        media_block("image/png", data="aGk="),
        replace(a_call("c"), approval='{"approval_id":"q","approved":null}', opaque=opaque("openai", "{}")),
        Block("reasoning", text="hm", sealed=True, opaque=opaque("openai", "{}")),
    ]  # fmt: skip
    written = write([a_message(1, "assistant", *blocks, status="partial")])
    assert [(loss.what, loss.block) for loss in written.losses] == [
        ("citations", 0), ("a signature of anthropic on text", 0),
        ("where a block of text begins", 1), ("what only google knows of the text", 1),
        ("where a block of text begins", 2), ("that it is a refusal", 2),
        ("AG-UI has no form for this (server_tool_call)", 3),
        ("AG-UI has no form for this (redacted_reasoning of anthropic)", 4),
        ("AG-UI has no form for this (media)", 5), ("what only openai knows of the call", 6), ("that a person was asked", 6),
        ("what only openai knows of the reasoning", 7), ("that the message is partial", None),
    ]  # fmt: skip
    parts = '[{"kind":"text","text":"x"},{"kind":"media","media_type":"a/b"},{"kind":"provider","opaque":{"provider":"x"}}]'
    result = a_message(2, "tool", Block("tool_result", sealed=True, tool_call_id="c", parts=parts))
    call = a_message(1, "assistant", a_call("c"))
    assert [loss.what for loss in write([call, result]).losses] == [
        "a part of a result that AG-UI has no form for (media)", "a part of a result that AG-UI has no form for (provider)",
    ]  # fmt: skip
    lost = [media_block("image/png"), text_block("x"), Block("data", sealed=True)]
    assert [loss.what for loss in write([a_message(1, "user", *lost)]).losses] == [
        "a block of a user (data)", "media without bytes or an address",
    ]  # fmt: skip


def test_a_broken_history_is_mended_and_said() -> None:
    twice = a_message(2, "assistant", text_block("x"), a_call("c"))
    path = [
        a_message(1, "user", text_block("a\ud83db")), twice, twice, a_result(3, "nobody"), a_result(4, "c"), a_result(5, "c"),
        replace(a_message(6, "assistant", a_call("c")), id="r.4"), a_message(7, "user", text_block("?")), a_result(8, "c", "2"),
        a_message(9, "assistant"),
    ]  # fmt: skip
    written = write(path)
    assert [(repair.what, repair.message_id) for repair in written.repairs] == [
        ("characters that no text may have were replaced: 1", "r.1"), ("the message is there twice and is sent once", "r.2"),
        ("another message has this id, it is sent as r.4~2", "r.4"),
        ("a result without a call before it (nobody) is not sent", "r.3"),
        ("a second result of c is not sent", "r.5"), ("the call 'c' is sent as c~2", "r.4~2"),
        ("the result of c is sent directly behind its call", "r.8"), ("a message without content is not sent", "r.9"),
    ]  # fmt: skip
    shown = [(message["id"], message["role"], message.get("toolCallId")) for message in written.payload]
    assert shown == [
        ("r.1", "user", None), ("r.2", "assistant", None), ("r.4", "tool", "c"), ("r.4~2", "assistant", None),
        ("r.8", "tool", "c~2"), ("r.7", "user", None),
    ]  # fmt: skip
    check_order(write_stream(path))


def test_a_result_that_was_none_gives_way_to_the_real_one() -> None:
    path = [a_message(1, "assistant", a_call("c")), a_result(2, "c", "?", "synthetic"), a_result(3, "c", "!")]
    written = write(path)
    assert [message["content"] for message in written.payload[1:]] == ["!"]
    assert [repair.what for repair in written.repairs] == ["the first result of c was none, the second one is sent"]


@pytest.mark.heavy
def test_naughty_strings_pass_through_every_place() -> None:
    for string in naughty():
        said = [
            {"id": f"u{string}", "role": "user", "content": f"{string}!", "name": string, "metadata": {string: string}},
            calls(f"a{string}", f"c{string}", dump({string: string})), answers(f"t{string}", f"c{string}", string),
        ]  # fmt: skip
        messages = imported(next(read(json.dumps(said))))
        is_whole = "\ud83d" not in string
        written = write(messages)
        check_order(write_stream(messages))
        if is_whole:
            assert written.payload == said
            assert written.repairs == ()
        else:
            assert written.repairs
            json.dumps(written.payload[0]["content"], ensure_ascii=False).encode()
        assert blocks_said(feed(*write_stream(messages))[0]) == blocks_said(once_more(messages))


@given(paths())
@settings(max_examples=150, deadline=None)
@pytest.mark.heavy
def test_any_path_goes_out_and_comes_back_the_same(path: list[Message]) -> None:
    written = write(path)
    assert (written.losses, written.repairs) == ((), ())
    events = write_stream(path)
    check_order(events)
    assert blocks_said(feed(*events)[0]) == blocks_said(path)
    assert blocks_said(once_more(path)) == blocks_said(path)
    ids = [message["id"] for message in written.payload]
    assert len(set(ids)) == len(ids)
