"""Gemini out: what comes in goes out the same, what can't be said is told, and Google's own library takes it."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given, settings

from projector import Block, Message
from projector.formats import STREAMS
from projector.formats.gemini import validator
from projector.formats.gemini.reader import read
from projector.formats.gemini.stream_writer import write_stream
from projector.formats.gemini.writer import write
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque
from projector.formats.validators import validate_gemini
from tests.broken_histories import HISTORIES, call, message, result, thought, user
from tests.provider_types import check_gemini
from tests.shared_data import imported, naughty, needs_data
from tests.test_gemini_bedrock_recorded import recorded
from tests.ui_readings import folded, play

PNG: Final = {"mimeType": "image/png", "data": "AA=="}


def says(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def asks(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"text": said} | more


def fn(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"a": [1, 2.5, None, "é"]}} | more}


def given_back(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "ok"}} | more}


HI: Final = asks(text("hi"))
DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "text": {"systemInstruction": {"parts": [text("be kind"), text("be brief")]}, "contents": [HI, says(text("hello")), HI]},
    "calls with ids": {"contents": [
        HI, says(text("so"), fn(id="a"), fn("g", id="b")), asks(given_back(id="a"), given_back("g", id="b")), says(text("ok")),
    ]},
    "calls without ids": {"contents": [
        HI, says(fn() | {"thoughtSignature": "c2ln"}, fn()),
        asks(given_back(response={"x": 1}), given_back(response={"y": [2]})), says(text("ok")), HI,
    ]},
    "signatures": {"contents": [
        HI, says(text("hm", thought=True, thoughtSignature="dGg="), text("so", thoughtSignature="c2ln"), text("more")),
        HI, says(text("x"), text("", thoughtSignature="ZW1wdHk=")), HI,
        says(fn(id="a") | {"thoughtSignature": "c2ln"}), asks(given_back(id="a")),
    ]},
    "media": {"contents": [
        asks({"inlineData": PNG}, {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/v.mp4"}}, text("what is it?")),
        says({"inlineData": PNG}, text("this")),
        asks({"inlineData": PNG, "videoMetadata": {"startOffset": "1s"}}),
    ]},
    "code": {"contents": [
        HI, says({"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "c2ln"},
                 {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}, text("one")),
    ]},
    "media in a result": {"contents": [
        HI, says(fn(id="a")), asks(given_back(id="a", parts=[{"inlineData": PNG}, {"fileData": {"fileUri": "gs://b/x"}}])),
    ]},
    "more of a result": {"contents": [
        HI, says(fn(id="a")), asks(given_back(id="a", scheduling="SILENT", willContinue=False)), says(text("ok")),
    ]},
}  # fmt: skip


def once_more(document: dict[str, Any]) -> Any:
    [history] = read(json.dumps(document))
    messages = imported(history)
    export = write(messages)
    assert (export.losses, export.repairs) == ((), ())
    assert validate_gemini(export.payload) == []
    check_gemini(export.payload)
    return export.payload


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=list(DOCUMENTS))
def test_what_gemini_was_sent_goes_out_the_same(document: dict[str, Any]) -> None:
    if document is DOCUMENTS["calls without ids"]:
        assert "id" not in json.dumps(once_more(document))
    assert once_more(document) == document


@pytest.mark.parametrize("said", [said for said in naughty() if said == said.encode(errors="replace").decode()])
def test_naughty_strings_go_out_as_they_came(said: str) -> None:
    document = {"contents": [asks(text(f"{said}.")), says(fn(id="a", args={said: [said]})), asks(given_back(id="a"))]}
    assert once_more(document) == document


@given(HISTORIES)
@settings(max_examples=150, deadline=None)
def test_any_history_is_taken(messages: list[Message]) -> None:
    export = write(messages)
    assert not export.payload["contents"] or validate_gemini(export.payload) == []
    check_gemini(json.loads(json.dumps(export.payload)))
    if export.payload["contents"]:
        once = imported(next(read(json.dumps(export.payload))))
        again = write(once)
        if not again.losses and not again.repairs:
            twice = imported(next(read(json.dumps(again.payload))))
            assert [(one.role, one.blocks) for one in once] == [(one.role, one.blocks) for one in twice]


def what(notes: Any) -> list[str]:
    return [note.what for note in notes]


def test_results_follow_their_calls_in_order_and_errors_are_told() -> None:
    path = [
        user("u"), message("a", "assistant", call("x"), call("y", "7", name="g h")),
        result("ry", "y", "late"), result("rx", "x", "no", status="error"), user("v", "go on"),
    ]  # fmt: skip
    export = write(path)
    assert validate_gemini(export.payload) == []
    _, calls, results, last = export.payload["contents"]
    assert [part["functionCall"] for part in calls["parts"]] == [
        {"id": "x", "name": "f", "args": {}}, {"id": "y", "name": "g_h", "args": {"input": 7}},
    ]  # fmt: skip
    assert [part["functionResponse"] for part in results["parts"]] == [
        {"id": "x", "name": "f", "response": {"error": "no"}}, {"id": "y", "name": "g_h", "response": {"output": "late"}},
    ]  # fmt: skip
    assert last == asks(text("go on"))
    assert "results are sent in the order of their calls" in what(export.repairs)


def test_what_only_a_model_says_is_not_said_by_a_user() -> None:
    code = {"executableCode": {"code": "1", "language": "PYTHON"}}
    block = Block("server_tool_call", 0, "", sealed=True, opaque=opaque("google", json.dumps(code)))
    export = write([message("u", "user", text_block("run it"), block), message("a", "assistant", block)])
    assert validate_gemini(export.payload) == []
    assert [content["parts"] for content in export.payload["contents"]] == [[text("run it")], [code]]
    assert what(export.losses) == ["a server_tool_call of a user: only a model has one"]


def test_a_call_that_nobody_answered_is_closed_and_denied_ones_are_named() -> None:
    path = [user("u"), message("a", "assistant", call("x"), call("y")), result("ry", "y", "no", status="denied"), user("v")]
    export = write(path)
    assert validate_gemini(export.payload) == []
    given = [part["functionResponse"]["response"] for part in export.payload["contents"][2]["parts"]]
    assert [list(response) for response in given] == [["error"], ["error"]]
    assert "that the result was denied; it is sent as an error" in what(export.losses)


def test_signatures_go_to_google_only_whoever_kept_them() -> None:
    ours = thought(opaque=opaque("ai-sdk", "{}", signer="google"))
    path = [user("u"), message("a", "assistant", ours, thought("theirs"), text_block("so"))]
    export = write(path)
    assert export.payload["contents"][1] == says(text("hm", thought=True, thoughtSignature="c2ln"), text("so"))
    assert "google can't be told this (reasoning without a signature)" not in what(export.losses)
    assert any("reasoning" in told for told in what(export.losses))


def test_roles_alternate_the_user_begins_and_instructions_come_first() -> None:
    path = [
        message("a", "assistant", text_block("hello")), message("b", "assistant", text_block("you")),
        message("s", "system", text_block("be kind")), user("u"), message("d", "developer", text_block("be brief")), user("v"),
    ]  # fmt: skip
    export = write(path)
    assert [content["role"] for content in export.payload["contents"]] == ["user", "model", "user"]
    assert export.payload["systemInstruction"] == {"parts": [text("be kind"), text("be brief")]}
    assert what(export.repairs).count("an instruction inside the conversation is sent before it") == 2
    assert "where an instruction ends: all are one system instruction" in what(export.losses)


def test_what_gemini_has_no_form_for_is_named() -> None:
    odd = [
        Block("text", text="said", sealed=True, citations=('{"kind":"x"}',)),
        Block("media", sealed=True, media_type="image/png"), Block("refusal", text="no", sealed=True),
        Block("tool_call", text='{"n":1e400}', sealed=True, name="f", tool_call_id="t"),
        Block("provider", sealed=True, opaque=opaque("google", '{"functionResponse":{"name":"f"}}')),
    ]  # fmt: skip
    export = write([user("u"), message("a", "assistant", *odd)])
    assert validate_gemini(export.payload) == []
    told = what(export.losses)
    assert [
        one
        for one in told
        if one.startswith(("citations", "media without", "it is sent as text", "a number too", "a provider"))
    ]
    assert len(told) == 5


def test_what_a_result_says_in_parts_is_one_response() -> None:
    parts = [
        {"kind": "text", "text": "a"}, {"kind": "data", "text": '{"b":1}'},
        {"kind": "media", "media_type": "image/png", "data": "AA=="},
        {"kind": "provider", "opaque": {"provider": "anthropic", "payload": {"type": "x"}}},
    ]  # fmt: skip
    answer = message("r", "tool", Block("tool_result", sealed=True, tool_call_id="x", status="ok", parts=json.dumps(parts)))
    export = write([user("u"), message("a", "assistant", call("x")), answer])
    assert validate_gemini(export.payload) == []
    [part] = export.payload["contents"][2]["parts"]
    assert part["functionResponse"]["response"] == {"output": ["a", {"b": 1}]}
    assert part["functionResponse"]["parts"] == [{"inlineData": PNG}]
    assert what(export.losses) == ["a part of a result that Gemini has no form for"]


def test_an_answer_is_streamed_out_and_comes_back_the_same() -> None:
    signed = Block(
        "text", text="so", sealed=True, signature="c2ln", opaque=opaque("google", '{"text":"so","thoughtSignature":"c2ln"}')
    )
    said = message("a", "assistant", text_block("hm"), signed, call("x", '{"a": 1}'))
    stream, bodies = play(STREAMS["gemini"], write_stream([user("u"), said]))
    [back] = folded(bodies).all_messages()
    assert stream.end().outcome == "completed"
    told = [(block.kind, block.text, block.signature) for block in back.blocks]
    assert told == [("text", "hm", None), ("text", "so", "c2ln"), ("tool_call", "", None)]
    assert back.blocks[-1].input == {"a": 1}
    torn = message("a", "assistant", Block("text", text="so f"), status="partial")
    stream, bodies = play(STREAMS["gemini"], write_stream([torn]))
    assert (folded(bodies).all_messages()[0].text, stream.end().outcome) == ("so f", "incomplete")


RULES: Final[dict[str, list[list[Any]]]] = {
    "has_contents": [[], [HI, {"role": "assistant", "parts": [text("x")]}]],
    "has_parts": [[asks()]],
    "parts_say_one_thing": [
        [asks({})], [asks(text("a") | {"inlineData": PNG})], [asks({"text": 7})], [asks({"thought": True})],
    ],
    "instruction_is_text": [],
    "text_is_well_formed": [[asks(text("\ud83d"))]],
    "parts_fit_role": [[HI, says(given_back())], [asks(fn())], [asks({"executableCode": {"code": "1"}})]],
    "calls_have_results": [[HI, says(fn())], [HI, says(fn(), fn()), asks(given_back())], [HI, says(fn()), HI]],
    "results_have_calls": [[asks(given_back())], [HI, says(text("x")), asks(given_back())]],
    "calls_follow_the_user": [[says(fn()), asks(given_back())]],
    "results_are_of_their_calls": [
        [HI, says(fn()), asks(given_back("g"))], [HI, says(fn(id="a")), asks(given_back(id="b"))],
    ],
    "functions_are_named": [[HI, says(fn("f g")), asks(given_back("f g"))], [HI, says(fn("")), asks(given_back(""))]],
    "values_are_objects": [
        [HI, says(fn(args="{}")), asks(given_back())], [HI, says(fn()), asks(given_back(response="ok"))],
    ],
    "media_have_sources": [
        [asks({"inlineData": {"data": "AA=="}})], [asks({"inlineData": PNG | {"data": "?"}})], [asks({"fileData": {}})],
        [HI, says(fn()), asks(given_back(parts=[{"inlineData": {}}]))],
    ],
    "signatures_are_bytes": [[HI, says(text("x", thoughtSignature=7))]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "contents"),
    [pytest.param(name, one, id=f"{name}-{at}") for name, all_of in RULES.items() for at, one in enumerate(all_of)],
)
def test_each_rule_rejects_something(rule: str, contents: list[Any]) -> None:
    assert list(getattr(validator, rule)({"contents": contents}))
    assert validate_gemini({"contents": contents})


def test_no_rule_is_without_a_case_and_each_names_its_source() -> None:
    assert [rule.__name__ for rule in validator.RULES] == list(RULES)
    assert validate_gemini({"contents": [HI], "systemInstruction": {"parts": [{"inlineData": PNG}]}})
    for rule in (validator.has_shape, *validator.RULES):
        assert (rule.__doc__ or "").startswith("*"), rule.__name__


@pytest.mark.parametrize(
    "payload",
    [None, 7, {}, {"contents": 7}, {"contents": [7]}, {"contents": [{"parts": 7}]}, {"contents": [{"parts": [7]}]},
     {"contents": [asks({"inlineData": 7})]}, {"contents": [HI], "systemInstruction": 7}],
    ids=str,
)  # fmt: skip
def test_a_wrong_shape_is_a_violation_and_no_exception(payload: Any) -> None:
    assert validate_gemini(payload)


@needs_data
def test_what_gemini_took_is_taken_and_goes_out_the_same() -> None:
    count = 0
    for name, request, _, _ in recorded("enerateContent"):
        sent = json.loads(request or "{}")
        assert validate_gemini(sent) == [], name
        [history] = read(request or "")
        export = write(imported(history))
        if not export.payload["contents"]:  # a call without contents, or with blank ones
            continue
        assert validate_gemini(export.payload) == [], name
        check_gemini(export.payload)
        if not export.losses and not export.repairs:
            count += 1
            assert said_in(export.payload) == said_in(sent), name
    assert count > 60


def said_in(payload: dict[str, Any]) -> tuple[str, list[Any]]:
    """The text, and all other parts, whatever contents of the user they stand in."""
    contents = [payload["systemInstruction"]] if payload.get("systemInstruction") else []
    parts = [part for content in contents + payload["contents"] for part in content["parts"]]
    return "".join(part.get("text", "") for part in parts), [part for part in parts if part.keys() != {"text"}]
