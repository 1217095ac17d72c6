"""Anthropic Messages documents in and out: nothing that the format can express is lost, and what goes out is taken."""

from __future__ import annotations

import functools
import json
from typing import Any, Final

import pytest
from hypothesis import given, settings

from projector import Block, Message
from projector.formats import FormatError
from projector.formats.anthropic.reader import read
from projector.formats.anthropic.stream_reader import AnthropicStream
from projector.formats.anthropic.writer import write
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque
from projector.formats.validators import validate_anthropic
from tests.broken_histories import HISTORIES, call, message, result, thought, user
from tests.openai_recordings import messages_of
from tests.shared_data import files, imported, naughty, needs_data, read_bytes, read_text

USER: Final = {"role": "user", "content": "hi"}
CACHED: Final[dict[str, Any]] = {"cache_control": {"type": "ephemeral"}}
PNG: Final = {"type": "base64", "media_type": "image/png", "data": "AA=="}


def says(*blocks: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said} | more


def tool(ref: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ref, "name": "f", "input": {"a": [1, 2.5, None, "é"]}} | more


def answer(ref: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ref} | more


def server(kind: str = "server_tool_use", **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": "s", "name": "web_search", "input": {"query": "x"}} | more


FOUND: Final = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "Zm9v", "n": 1e3}]}
CITED: Final = {"type": "web_search_result_location", "cited_text": "x", "encrypted_index": "YQ==", "url": "u", "title": None}
THINKING: Final = {"type": "thinking", "thinking": "hm", "signature": "c2ln+/="}
DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "text": {"system": "be kind", "messages": [USER, {"role": "assistant", "content": "hello"}, USER]},
    "lists of one text": {"system": [text("be kind")], "messages": [says(text("hi"), role="user"), says(text("so"))]},
    "system with marks": {"system": [text("a"), text("b", **CACHED)], "messages": [USER]},
    "thinking": {"messages": [USER, says(THINKING, {"type": "redacted_thinking", "data": "c2Vj"}, text("so"))]},
    "thinking without text": {"messages": [USER, says({**THINKING, "thinking": ""}, text("so"))]},
    "unknown fields": {"messages": [
        says(text("x", **CACHED, glow=1.5), role="user"),
        says({**THINKING, "kind": "deep"}, text("y", citations=None), tool(caller={"type": "direct"}, **CACHED)),
        says(answer(content="ok", **CACHED), role="user"),
    ]},
    "unknown blocks": {"messages": [
        says({"type": "container_upload", "file_id": "f"}, {"type": "hologram", "deep": [{"x": None}]}, role="user"),
        says({"type": "fallback", "from": "a"}, {"type": "compaction", "content": "what was said"}, text("so")),
    ]},
    "a compaction that is encrypted": {"messages": [
        USER, says({"type": "compaction", "content": None, "encrypted_content": "eA=="}, text("so")),
    ]},
    "parallel calls": {"messages": [
        USER, says(text("so"), tool("a"), tool("b", input={})), says(answer("b", content="2"), answer("a"), role="user"),
    ]},
    "results and text": {"messages": [
        USER, says(tool()), says(answer(content="1"), text("and"), role="user"), says(text("ok")),
    ]},
    "results of every form": {"messages": [
        USER, says(*(tool(name) for name in "abcdefgh")),
        says(
            answer("a", content="x"), answer("b", content=[text("x")]), answer("c", content=[text("x"), text("y", **CACHED)]),
            answer("d", content=""), answer("e", content=[]), answer("f", content="no", is_error=True),
            answer("g", content=[{"type": "image", "source": PNG}], is_error=False),
            answer("h", content=[{"type": "tool_reference", "tool_name": "f"}, {"type": "search_result", "source": "u"}]),
            role="user",
        ),
    ]},
    "calls in two messages": {"messages": [
        USER, says(tool("a")), says(text("and"), tool("b")),
        says(answer("a", content="1"), answer("b", content="2"), role="user"),
    ]},
    "server tools": {"messages": [
        USER, says(text("so"), server(), FOUND, text("it is", citations=[CITED])), USER,
        says(server("mcp_tool_use", id="m", server_name="e"), {"type": "mcp_tool_result", "tool_use_id": "m", "content": []}),
    ]},
    "a response that paused": {"messages": [USER, says(text("so"), server())]},
    "a program that waits": {"messages": [
        USER, says(server(), tool(caller={"type": "code_execution_20250825", "tool_id": "s"})), says(answer(), role="user"),
    ]},
    "an instruction among messages": {"messages": [
        USER, {"role": "system", "content": "be brief"}, says(text("so")), USER,
        says({"type": "tool_addition", "tool": {"name": "f"}}, role="system"),
    ]},
    "media": {"messages": [says(
        {"type": "image", "source": PNG}, {"type": "image", "source": {"type": "url", "url": "https://x/y"}, **CACHED},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}, "title": "t"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}, "context": "x"},
        {"type": "document", "source": {"type": "content", "content": [text("x")]}},
        {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
        {"type": "image", "source": PNG | {"detail": "low"}}, role="user",
    )]},
    "two of one role": {"messages": [USER, USER, says(text("a")), says(text("b"))]},
}  # fmt: skip


def history(document: Any) -> list[Message]:
    [found] = read(json.dumps(document))
    assert found.losses == ()
    return imported(found)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_comes_back_as_it_was(name: str) -> None:
    document = DOCUMENTS[name]
    export = write(history(document))
    assert export.payload == document
    assert (export.losses, export.repairs) == ((), ())
    assert validate_anthropic(document) == []


@settings(max_examples=200)
@given(HISTORIES)
def test_what_was_written_is_valid_and_comes_back_as_it_was(messages: list[Message]) -> None:
    export = write(messages)
    if not export.payload["messages"]:
        return
    assert validate_anthropic(export.payload) == []
    again = write(history(export.payload))
    assert again.payload == export.payload
    assert [loss.what for loss in again.repairs] == []


@functools.cache
def requests() -> list[tuple[str, dict[str, Any]]]:
    """Recorded requests that Anthropic has answered."""
    cassettes = pytest.importorskip("projector.formats.recordings.cassettes")
    pytest.importorskip("yaml")
    return [
        (path.name, {name: body[name] for name in ("system", "messages") if name in body})
        for path in files("pydantic-ai", "http/**/*.yaml*", "http-multi/**/*.yaml*")
        for exchange in cassettes.read_cassette(read_bytes(path)).exchanges
        if exchange.request and "api.anthropic.com" in exchange.uri and "messages" in (body := json.loads(exchange.request))
    ]


@needs_data
def test_recorded_requests_come_back_as_they_were_sent() -> None:
    changed = []
    for name, body in requests():
        export = write(history(body))
        assert validate_anthropic(export.payload) == []
        if (export.payload, export.losses, export.repairs) != (body, (), ()):
            changed.append(name)
            assert {loss.what for loss in export.repairs} == {"the call '0usajhl5' is sent as 0usajhl5_2"}  # an id twice
    assert len(requests()) > 100
    assert len(changed) < 3


@needs_data
def test_whole_responses_go_back_as_they_came() -> None:
    paths = [path for path in files("vercel-ai", "anthropic/*.json*") if '"role"' in read_text(path)]
    assert len(paths) > 20
    for path in paths:
        [found] = read(read_text(path))
        given_content = json.loads(read_text(path))["content"]
        messages = imported(found)
        export = write(messages)
        assert validate_anthropic(export.payload) == [] or not export.payload["messages"]
        said = [block for sent in export.payload["messages"] if sent["role"] == "assistant" for block in sent["content"]]
        if not export.repairs and isinstance(export.payload["messages"][0]["content"], list):
            assert [block for block in given_content if block["type"] != "text" or block["text"].strip()] == said
        assert found.drafts[0].provider_ref == json.loads(read_text(path))["id"]


def test_a_whole_response_is_what_its_stream_would_have_given() -> None:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 4,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 1},
    }
    content = [THINKING, text("so", citations=[CITED]), server(), FOUND, tool()]
    response = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": "tool_use",
        "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    [found] = read(json.dumps(response))
    [draft] = found.drafts
    assert (draft.provider_ref, draft.model, draft.provider, draft.finish_reason) == ("msg_1", "m", "anthropic", "tool_use")
    assert draft.usage is not None
    assert (draft.usage.input, draft.usage.output, draft.usage.cached, draft.usage.reasoning) == (7, 5, 4, 1)
    assert draft.metadata == {"model": '"m"', "stop_reason": '"tool_use"'}
    stream = AnthropicStream("r", lambda: "r.1")
    [streamed] = messages_of(stream.feed({"type": "message_start", "message": response}))
    [whole] = imported(found)
    for one, other in zip(streamed.blocks, whole.blocks, strict=True):
        assert (one.kind, one.text, one.signature, one.tool_call_id) == (
            other.kind,
            other.text,
            other.signature,
            other.tool_call_id,
        )
        assert json.loads(one.input_text or "0") == json.loads(other.input_text or "0")
    assert write([streamed]).payload["messages"][0]["content"][0] == THINKING
    refused = {"type": "message", "role": "assistant", "content": [], "stop_reason": "refusal"}
    [draft] = next(read(json.dumps(refused))).drafts
    assert [block.kind for block in draft.blocks] == ["refusal"]


def test_what_a_request_has_beside_its_messages_is_kept_with_the_history() -> None:
    [found] = read('{"model":"m","max_tokens": 1e1,"tools":[{"name":"f"}],"messages":[{"role":"user","content":"x"}]}')
    assert found.metadata == {"model": '"m"', "max_tokens": "1e1", "tools": '[{"name":"f"}]'}


def test_a_list_of_messages_is_a_history_too() -> None:
    [found] = read('\ufeff [{"role":"user","content":"x"}]')
    assert [draft.role for draft in found.drafts] == ["user"]
    assert [loss.what for loss in next(read('[{"role":"user","content":[]}]')).losses] == ["message 1 has no content"]


@pytest.mark.parametrize(("document", "why"), [
    ("", "the document: a JSON object was expected"),
    ("{}", 'an object with "messages"'),
    ("7", "the document: a JSON object was expected"),
    ("[7]", "message 1: a JSON object was expected"),
    ("[{}]", 'message 1: "role" should be text'),
    ('[{"role":"robot","content":"x"}]', "message 1: .* not 'robot'"),
    ('[{"role":"user"}]', 'message 1: "content" should be text or a list'),
    ('[{"role":"user","content":7}]', "message 1: text or a list of blocks was expected, not 7"),
    ('{"messages":[{"role":"user","content":"x"},{"role":"user","content":[{"text":"x"}]}]}', 'message 2, in "content" at 0'),
    ('{"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}', '"tool_use_id" should be text'),
    ('{"messages":[],"system":7}', "the system prompt: text or a list"),
    ('{"type":"error","error":{"type":"overloaded_error"}}', 'an object with "messages"'),
    ('[{"role":"user","content":[{"type":"text","text":"x"}', "a list was expected"),
])  # fmt: skip
def test_what_is_no_such_document_is_refused_with_the_place(document: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        list(read(document))


@needs_data
def test_whatever_json_is_in_a_document_is_kept_or_refused() -> None:
    refused = 0
    for path in files("jsontestsuite", "**/*.json"):
        try:
            vector = read_bytes(path).decode()
        except UnicodeDecodeError:
            continue
        asked = '{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":'
        given_text = f'{{"messages":[{asked}{{"k":{vector}}}}}]}}]}}'
        for document in (vector, given_text):
            try:
                [found] = read(document)
            except FormatError:
                refused += 1
                continue
            export = write(imported(found))
            assert validate_anthropic(export.payload) == [] or not export.payload["messages"], path.name
            json.dumps(export.payload, allow_nan=False)
        if path.name.startswith("y_"):
            assert export.payload["messages"][1]["content"][0]["id"] == "t", path.name
    assert refused > 100


@pytest.mark.parametrize("said", naughty())
def test_naughty_strings_come_back_through_text_ids_names_and_inputs(said: str) -> None:
    document = {"system": f"{said}.", "messages": [says(text(f"{said}.", glow=said), role="user"), says(
        text(f"{said}."), tool(input={said: [said]}, caller={"type": said}),
    ), says(answer(content=f"{said}."), role="user")]}  # fmt: skip
    export = write(history(document))
    assert export.payload == document or export.repairs
    assert validate_anthropic(export.payload) == []


def test_an_empty_message_leaves_no_gap() -> None:
    documents = [{"role": "user", "content": [text("")]}, says(text("")), USER, says(text("so"))]
    assert [sent.role for sent in imported(next(read(json.dumps(documents))))] == ["user", "assistant"]


def test_instructions_from_elsewhere_stand_first_and_it_is_said() -> None:
    later = message("3", "developer", text_block("be brief"))
    export = write(
        [message("1", "system", text_block("be kind")), user("2"), later, message("4", "assistant", text_block("ok"))]
    )
    assert export.payload["system"] == [text("be kind"), text("be brief")]
    assert [sent["role"] for sent in export.payload["messages"]] == ["user", "assistant"]
    assert "before it" in export.repairs[0].what
    assert "where an instruction ends" in export.losses[0].what
    assert write([later]).payload == {"system": "be brief", "messages": []}


def test_an_instruction_that_lost_its_place_stands_first() -> None:
    messages = history(DOCUMENTS["an instruction among messages"])
    export = write([sent for sent in messages if sent.role != "assistant"])
    assert validate_anthropic(export.payload) == []
    assert export.payload["system"] == "be brief"
    assert "no place in the conversation" in export.repairs[0].what


def test_results_are_errors_or_not_and_the_rest_is_a_loss() -> None:
    calls = message("1", "assistant", *(call(ref) for ref in "abcd"))
    given_results = [
        result("2", "a", "no", "error"), result("3", "b", "", "error"), result("4", "c", "nobody", "denied"),
        result("5", "d", "", "ok"),
    ]  # fmt: skip
    export = write([user("0"), calls, *given_results])
    assert export.payload["messages"][2]["content"] == [
        answer("a", content="no", is_error=True), answer("b", content="[error]", is_error=True),
        answer("c", content="nobody", is_error=True), answer("d"),
    ]  # fmt: skip
    assert [loss.what for loss in export.losses] == ["that the result was denied; it is sent as an error"]
    assert "without text" in export.repairs[0].what


def test_parts_of_a_result_of_another_provider_are_sent_if_there_is_a_form() -> None:
    parts = [
        {"kind": "text", "text": " "}, {"kind": "text", "text": "x"},
        {"kind": "media", "media_type": "image/png", "data": "AA=="},
        {"kind": "media", "media_type": "audio/wav", "data": "AA=="},
        {"kind": "data", "text": '{"a":1}'},
        {"kind": "provider", "opaque": {"provider": "openai", "payload": {"secret": 1}}}, 7,
    ]  # fmt: skip
    block = Block("tool_result", sealed=True, tool_call_id="a", status="ok", parts=json.dumps(parts))
    export = write([user("0"), message("1", "assistant", call("a")), message("2", "tool", block)])
    assert export.payload["messages"][2]["content"][0]["content"] == [
        text("x"), {"type": "image", "source": PNG}, text('{"a":1}'), text("7"),
    ]  # fmt: skip
    assert len(export.losses) == 2
    assert validate_anthropic(export.payload) == []


def test_media_of_others_are_sent_by_their_bytes_or_address_and_those_without_are_a_loss() -> None:
    def media(media_type: str | None, **fields: str) -> Block:
        return Block("media", sealed=True, media_type=media_type, fields=fields)

    kept = opaque("chat", '{"type":"image_url","image_url":{"url":"data:image/gif;base64,AA=="}}')
    blocks = [
        media("image/png", data="AA=="), Block("media", sealed=True, opaque=kept), media("application/pdf", url="https://x/y"),
        media("text/csv", data="YSxi"), media("image/png"), media("audio/wav", data="AA=="), media("text/plain", data="/w=="),
    ]  # fmt: skip
    export = write([message("1", "user", *blocks)])
    assert export.payload["messages"][0]["content"] == [
        {"type": "image", "source": PNG}, {"type": "image", "source": PNG | {"media_type": "image/gif"}},
        {"type": "document", "source": {"type": "url", "url": "https://x/y"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
    ]  # fmt: skip
    assert [loss.block for loss in export.losses if "media without bytes" in loss.what] == [4, 5, 6]
    assert validate_anthropic(export.payload) == []


def test_what_the_format_can_not_express_is_a_loss() -> None:
    openai_cited = '{"kind":"url_citation","source":{"type":"url_citation","url":"u"}}'
    blocks = [
        thought("b", "x", opaque=opaque("openai", "{}")), Block("text", text="so", sealed=True, citations=(openai_cited,)),
        Block("refusal", text="no", sealed=True),
        Block("server_tool_call", sealed=True, name="x", opaque=opaque("openai", "{}")),
        call("a", '{"n": 1e999}', approval='{"approved":true}'),
    ]  # fmt: skip
    said = Message("2", None, "r", "assistant", "complete", tuple(blocks), 0, 0, name="ann")
    export = write([user("1"), said, result("3", "a")])
    assert export.payload["messages"][1]["content"] == [text("so"), text("no"), tool("a", input={"n": "1e999"})]
    assert [loss.what.partition(";")[0] for loss in export.losses] == [
        "the name of the speaker", "a citation of another kind", "the answer about the approval",
        "a number too large for a float", "anthropic can't be told this (reasoning of openai)",
        "it is sent as text (refusal)", "anthropic can't be told this (server_tool_call of openai)",
    ]  # fmt: skip
    assert export.repairs == ()


def test_deeply_nested_input_is_no_exception() -> None:
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    export = write(
        [user("1"), message("2", "assistant", call("a", deep), thought(), Block("provider", sealed=True, opaque=deep))]
    )
    assert validate_anthropic(export.payload) == []
