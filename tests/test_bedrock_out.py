"""Bedrock out: what comes in goes out the same, what can't be said is told, and Amazon's model of Converse takes it."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given, settings

from projector import Block, Message
from projector.formats import STREAMS
from projector.formats.bedrock import validator
from projector.formats.bedrock.reader import read
from projector.formats.bedrock.stream_writer import write_stream
from projector.formats.bedrock.writer import write
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque
from projector.formats.validators import validate_bedrock
from tests.broken_histories import HISTORIES, call, message, result, thought, user
from tests.provider_types import check_bedrock
from tests.shared_data import imported, naughty, needs_data
from tests.test_gemini_bedrock_recorded import recorded
from tests.ui_readings import folded, play

PNG: Final = {"image": {"format": "png", "source": {"bytes": "AA=="}}}
PDF: Final = {"document": {"format": "pdf", "name": "The plan (1)", "source": {"bytes": "AA=="}}}


def says(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def asks(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(said: str) -> dict[str, Any]:
    return {"text": said}


def tool(ref: str = "t", **more: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": ref, "name": "f", "input": {"a": [1, 2.5, None, "é"]}} | more}


def answer(ref: str = "t", *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": ref, "content": list(content) or [text("ok")]} | more}


HI: Final = asks(text("hi"))
THOUGHT: Final = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
HIDDEN: Final = {"reasoningContent": {"redactedContent": "aGlkZGVu"}}
SERVER: Final = [
    tool("s", name="nova_grounding", type="server_tool_use"),
    answer("s", {"json": {"found": 1}}, type="nova_grounding_result"),
]
DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "text": {"system": [text("be kind"), {"cachePoint": {"type": "default"}}], "messages": [HI, says(text("hello")), HI]},
    "calls and results": {"messages": [
        HI, says(text("so"), tool("a"), tool("b", input={})),
        asks(answer("a", {"json": {"x": 1}}, text("and"), PNG), answer("b", text("no"), status="error"), text("go on")),
        says(text("ok")),
    ]},
    "reasoning": {"messages": [HI, says(THOUGHT, HIDDEN, text("so"), tool("a")), asks(answer("a"))]},
    "server tools": {"messages": [HI, says(*SERVER, text("so"))]},
    "media": {"messages": [
        asks(PNG, PDF, text("what is it?"), {"video": {"format": "three_gp", "source": {"bytes": "AA=="}}},
             {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://b/k.jpg"}}}},
             {"document": {"format": "docx", "name": "d", "source": {"bytes": "AA=="}}}),
    ]},
    "marks": {"messages": [asks(text("a"), {"cachePoint": {"type": "default"}}), says(text("so"))]},
}  # fmt: skip


def once_more(document: dict[str, Any]) -> Any:
    [history] = read(json.dumps(document))
    export = write(imported(history))
    assert (export.losses, export.repairs) == ((), ())
    assert validate_bedrock(export.payload) == []
    check_bedrock(export.payload)
    return export.payload


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=list(DOCUMENTS))
def test_what_converse_was_sent_goes_out_the_same(document: dict[str, Any]) -> None:
    assert once_more(document) == document


@pytest.mark.parametrize("said", [said for said in naughty() if said == said.encode(errors="replace").decode()])
def test_naughty_strings_go_out_as_they_came(said: str) -> None:
    document = {
        "messages": [asks(text(f"{said}.")), says(tool(input={said: [said]})), asks(answer("t", {"json": {said: said}}))]
    }
    assert once_more(document) == document


@given(HISTORIES)
@settings(max_examples=150, deadline=None)
@pytest.mark.heavy
def test_any_history_is_taken(messages: list[Message]) -> None:
    export = write(messages)
    check_bedrock(json.loads(json.dumps(export.payload)))
    if export.payload["messages"]:
        assert validate_bedrock(export.payload) == []
        again = write(imported(next(read(json.dumps(export.payload)))))
        if not again.losses and not again.repairs:
            assert again.payload == export.payload


def what(notes: Any) -> list[str]:
    return [note.what for note in notes]


def test_results_stand_first_behind_their_calls_in_one_message_with_what_the_user_says() -> None:
    path = [
        user("u"), message("a", "assistant", call("x~"), call("y", "7", name="g h")),
        result("ry", "y", "late"), result("rx", "x~", "no", status="denied"), user("v", "go on"), user("w", "do"),
    ]  # fmt: skip
    export = write(path)
    assert validate_bedrock(export.payload) == []
    assert [one["role"] for one in export.payload["messages"]] == ["user", "assistant", "user"]
    assert export.payload["messages"][2]["content"] == [
        answer("y", text("late")), answer("x_", text("no"), status="error"), text("go on"), text("do"),
    ]  # fmt: skip
    assert "the call 'x~' is sent as x_" in what(export.repairs)
    assert "that the result was denied; it is sent as an error" in what(export.losses)


def test_a_call_that_nobody_answered_is_closed_and_an_empty_result_says_so() -> None:
    silent = message("r", "tool", Block("tool_result", sealed=True, tool_call_id="x", status="ok", parts="[]"))
    export = write([user("u"), message("a", "assistant", call("x"), call("y")), silent, user("v")])
    assert validate_bedrock(export.payload) == []
    first, second, _ = export.payload["messages"][2]["content"]
    assert first == answer("x", text("[empty]"))
    assert second["toolResult"]["status"] == "error"
    assert "a result that says nothing is sent as such" in what(export.repairs)


def test_signatures_go_to_bedrock_only() -> None:
    ours = thought(opaque=opaque("bedrock", '{"reasoningContent":{}}'))
    export = write([user("u"), message("a", "assistant", ours, thought("theirs"), text_block("so"))])
    assert export.payload["messages"][1] == says(THOUGHT, text("so"))
    assert any("reasoning of anthropic" in told for told in what(export.losses))


def test_roles_alternate_the_user_begins_and_the_end_is_trimmed() -> None:
    path = [
        message("a", "assistant", text_block("hello")), message("s", "system", text_block("be kind")),
        message("b", "assistant", text_block("you")), user("u"), message("c", "assistant", text_block("so ")),
    ]  # fmt: skip
    export = write(path)
    assert validate_bedrock(export.payload) == []
    assert [one["role"] for one in export.payload["messages"]] == ["user", "assistant", "user", "assistant"]
    assert export.payload["messages"][-1] == says(text("so"))
    assert export.payload["system"] == [text("be kind")]
    assert "an instruction inside the conversation is sent before it" in what(export.repairs)


def test_documents_have_fitting_names_of_their_own_and_text_beside_them() -> None:
    plan = Block("media", sealed=True, media_type="application/pdf", fields={"data": "AA==", "name": "plan_v1.pdf"})
    export = write([message("u", "user", plan, plan), message("a", "assistant", text_block("so")), user("v")])
    assert validate_bedrock(export.payload) == []
    check_bedrock(export.payload)
    first, second, beside = export.payload["messages"][0]["content"]
    assert [first["document"]["name"], second["document"]["name"]] == ["plan-v1-pdf", "plan-v1-pdf 2"]
    assert beside == text("[A document is attached.]")
    assert len(export.repairs) == 3


@pytest.mark.parametrize(
    ("media_type", "kind", "form"),
    [
        ("image/jpg", "image", "jpeg"), ("text/plain; charset=utf-8", "document", "txt"), ("video/quicktime", "video", "mov"),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "document", "xlsx"),
        ("audio/mpeg", "audio", "mpeg"),
        ("video/video/mp4", "video", "mp4"), ("image/tiff", None, None), ("", None, None), ("application/zip", None, None),
    ],
)  # fmt: skip
def test_media_go_out_in_the_formats_there_are(media_type: str, kind: str | None, form: str | None) -> None:
    media = Block("media", sealed=True, media_type=media_type, fields={"data": "AA=="})
    export = write([message("u", "user", text_block("see"), media)])
    assert validate_bedrock(export.payload) == []
    sent = export.payload["messages"][0]["content"][1:]
    assert [(name, value["format"]) for block in sent for name, value in block.items()] == ([(kind, form)] if kind else [])
    assert len(export.losses) == (kind is None)


def test_base64_for_addresses_goes_out_in_the_other_alphabet() -> None:
    media = Block("media", sealed=True, media_type="image/png", fields={"data": "-_-_"})
    export = write([message("u", "user", media)])
    assert validate_bedrock(export.payload) == []
    assert export.payload["messages"][0]["content"] == [{"image": {"format": "png", "source": {"bytes": "+/+/"}}}]


def test_an_address_goes_out_where_it_is_in_s3() -> None:
    places = [
        Block("media", sealed=True, media_type="image/png", fields={"url": url}) for url in ("s3://b/k", "https://h/i.png")
    ]
    export = write([message("u", "user", text_block("see"), *places)])
    assert export.payload["messages"][0]["content"][1:] == [
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/k"}}}}
    ]
    assert what(export.losses) == ["media of a type, or from a place, that Converse does not take"]


def test_citations_of_bedrock_go_back_and_others_are_named() -> None:
    source = {
        "title": "d",
        "sourceContent": [{"text": "x"}],
        "location": {"documentChar": {"documentIndex": 0, "start": 0, "end": 1}},
    }
    ours = json.dumps({"kind": "citation", "source": source})
    cited = Block(
        "text", text="so", sealed=True, citations=(ours, '{"kind":"page_location","source":{"type":"page_location"}}')
    )
    export = write([user("u"), message("a", "assistant", cited)])
    assert validate_bedrock(export.payload) == []
    check_bedrock(export.payload)
    assert export.payload["messages"][1] == says({"citationsContent": {"content": [text("so")], "citations": [source]}})
    assert what(export.losses) == ["a citation of another kind"]


def test_hidden_reasoning_and_results_that_were_streamed_in_pieces_go_back_whole() -> None:
    pieces = '[{"reasoningContent":{"redactedContent":"aGlk"}},{"reasoningContent":{"redactedContent":"ZGVu"}}]'
    found = '[{"toolResult":{"toolUseId":"s","type":"nova_grounding_result"}},{"toolResult":[{"json":{"found":1}}]}]'
    blocks = [
        Block("redacted_reasoning", sealed=True, opaque=opaque("bedrock", pieces)),
        Block("server_tool_call", text='{"a":[1,2.5,null,"é"]}', sealed=True, name="nova_grounding", tool_call_id="s",
              opaque=opaque("bedrock", '{"toolUse":{"toolUseId":"s","name":"nova_grounding","type":"server_tool_use"}}')),
        Block("server_tool_result", sealed=True, tool_call_id="s", opaque=opaque("bedrock", found)),
        text_block("so"),
    ]  # fmt: skip
    export = write([user("u"), message("a", "assistant", *blocks)])
    assert validate_bedrock(export.payload) == []
    assert export.payload["messages"][1] == says(HIDDEN, *SERVER, text("so"))


def test_an_answer_is_streamed_out_and_comes_back_the_same() -> None:
    ours = thought(opaque=opaque("bedrock", '{"reasoningContent":{}}'))
    hidden = Block("redacted_reasoning", sealed=True, opaque=opaque("bedrock", json.dumps(HIDDEN)))
    said = message("a", "assistant", ours, hidden, text_block("so"), call("x", '{"a": 1}'))
    stream, bodies = play(STREAMS["bedrock"], write_stream([user("u"), said]))
    [back] = folded(bodies).all_messages()
    assert (stream.end().outcome, stream.end().finish_reason) == ("completed", "tool_use")
    assert [(block.kind, block.text, block.signature, block.tool_call_id) for block in back.blocks] == [
        ("reasoning", "hm", "c2ln", None), ("redacted_reasoning", "", None, None), ("text", "so", None, None),
        ("tool_call", '{"a": 1}', None, "x"),
    ]  # fmt: skip
    torn = message("a", "assistant", Block("text", text="so f"), status="partial")
    stream, bodies = play(STREAMS["bedrock"], write_stream([torn]))
    assert (folded(bodies).all_messages()[0].text, stream.end().outcome) == ("so f", "incomplete")


RULES: Final[dict[str, list[list[Any]]]] = {
    "has_messages": [[], [says(text("x"))], [HI, {"role": "tool", "content": [text("x")]}]],
    "roles_alternate": [[HI, HI], [HI, says(text("a")), says(text("b"))]],
    "has_content": [[asks()]],
    "text_is_not_blank": [[asks(text(" "))], [HI, says(tool()), asks(answer("t", text("")))]],
    "text_is_well_formed": [[asks(text("\ud83d"))]],
    "blocks_fit_role": [[asks(tool()), says(text("x"))], [HI, says(PDF, text("x"))], [asks(THOUGHT)], [HI, says(answer())]],
    "calls_have_results": [[HI, says(tool())], [HI, says(tool("a"), tool("b")), asks(answer("a"))]],
    "results_have_calls": [[asks(answer())], [HI, says(tool()), asks(answer(), answer())]],
    "results_come_first": [[HI, says(tool()), asks(text("x"), answer())]],
    "ids_are_unique": [[HI, says(tool(), tool()), asks(answer(), answer())]],
    "calls_are_named": [
        [HI, says(tool("a b")), asks(answer("a b"))], [HI, says(tool(name="f g")), asks(answer())],
        [HI, says(tool(name=None)), asks(answer())], [HI, says(tool("")), asks(answer(""))],
    ],
    "values_are_objects": [
        [HI, says(tool(input="{}")), asks(answer())], [HI, says(tool()), asks(answer("t", {"json": [1]}))],
        [HI, says(tool()), asks(answer("t", {"audio": {}}))],
    ],
    "reasoning_is_whole": [
        [HI, says({"reasoningContent": {}}, text("x"))], [HI, says({"reasoningContent": {"redactedContent": "?"}}, text("x"))],
    ],
    "media_have_sources": [
        [asks({"image": {"format": "png"}})], [asks({"image": {"format": "tiff", "source": {"bytes": "AA=="}}})],
        [asks({"image": {"format": "png", "source": {"bytes": "?"}}})],
        [HI, says(tool()), asks(answer("t", {"image": {"format": "png", "source": {}}}))],
    ],
    "documents_are_named": [
        [asks(text("x"), {"document": PDF["document"] | {"name": "a_b"}})], [asks(text("x"), PDF, PDF)],
        [asks(text("x"), {"document": PDF["document"] | {"name": "a  b"}})],
    ],
    "documents_have_text": [[asks(PDF)]],
    "end_is_trimmed": [[HI, says(text("so "))]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "messages"),
    [pytest.param(name, one, id=f"{name}-{at}") for name, all_of in RULES.items() for at, one in enumerate(all_of)],
)
def test_each_rule_rejects_something(rule: str, messages: list[Any]) -> None:
    assert list(getattr(validator, rule)({"messages": messages}))
    assert validate_bedrock({"messages": messages})


def test_no_rule_is_without_a_case_and_each_names_its_source() -> None:
    assert [rule.__name__ for rule in validator.RULES] == list(RULES)
    assert validate_bedrock({"messages": [HI], "system": [text(" ")]})
    for rule in (validator.has_shape, *validator.RULES):
        assert (rule.__doc__ or "").startswith("*"), rule.__name__


@pytest.mark.parametrize(
    "payload",
    [None, 7, {}, {"messages": 7}, {"messages": [7]}, {"messages": [{"role": "user", "content": "hi"}]},
     {"messages": [asks({})]}, {"messages": [asks({"text": 7})]}, {"messages": [asks({"hologram": {}})]},
     {"messages": [asks({"toolUse": 7})]}, {"messages": [asks({"toolUse": {}})]},
     {"messages": [asks({"toolResult": {"toolUseId": "t", "content": [7]}})]}],
    ids=str,
)  # fmt: skip
def test_a_wrong_shape_is_a_violation_and_no_exception(payload: Any) -> None:
    assert validate_bedrock(payload)


@needs_data
@pytest.mark.heavy
def test_what_converse_took_is_taken_and_goes_out_the_same() -> None:
    count = 0
    for name, request, _, _ in recorded("/converse"):
        sent = json.loads(request or "{}")
        if name != "test_video_url_input.yaml":  # a format that the reference has not, and the model took
            assert validate_bedrock(sent) == [], name
        [history] = read(request or "")
        export = write(imported(history))
        assert validate_bedrock(export.payload) == [], name
        check_bedrock(export.payload)
        if not export.losses and not export.repairs and name != "test_video_url_input.yaml":
            count += 1
            assert without_status(export.payload["messages"]) == without_status(sent["messages"]), name
    assert count > 40


def without_status(messages: list[Any]) -> list[Any]:
    """That a result is none of an error may be said, or not."""
    bare: list[Any] = json.loads(json.dumps(messages).replace(', "status": "success"', ""))
    return bare
