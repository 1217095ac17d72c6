"""Broken histories become such as a provider takes: each repair is said, nothing else changes, originals never do."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from projector import Block, Message
from projector.formats.outgoing.pairing import NO_RESULT
from projector.formats.outgoing.repair import Mended, mend
from projector.formats.outgoing.rules import Rules
from projector.formats.outgoing.unicode import mend_json, mend_text
from projector.formats.shared.history import Loss, text_block, text_parts
from projector.formats.shared.payloads import opaque, payload_for
from tests.broken_histories import HISTORIES, call, message, result, thought, user

KINDS: Final = frozenset({"text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result"})
RULES: Final = Rules(
    provider="anthropic",
    kinds=KINDS | {"media", "provider", "compaction"},
    reasoning_leads=True,
    object_input=True,
    server_tools_answered=True,
    refuse_nul=True,
    id_characters="a-zA-Z0-9_-",
)
STRICT: Final = replace(RULES, alternate=True, begins_with_user=True, trimmed_end=True, results_in_order=True)
LOOSE: Final = Rules(provider="chat", kinds=frozenset({"text", "tool_call", "reasoning"}), signed_reasoning=False)


def search(ref: str) -> Block:
    return Block("server_tool_call", text="{}", sealed=True, name="web_search", tool_call_id=ref, parse="ok")


def found(ref: str) -> Block:
    kept = opaque("anthropic", json.dumps({"type": "web_search_tool_result", "tool_use_id": ref, "content": []}))
    return Block("server_tool_result", sealed=True, tool_call_id=ref, opaque=kept)


def shape(mended: Mended) -> list[tuple[str, list[str]]]:
    """Each message by its role, and what is in it."""
    return [(said.role, [block.tool_call_id or block.text or block.kind for block in said.blocks]) for said in mended.messages]


def said(losses: tuple[Loss, ...]) -> str:
    return "\n".join(f"{loss.message_id}/{loss.block}: {loss.what}" for loss in losses)


def test_a_sound_history_is_left_as_it_is() -> None:
    history = (
        message("0", "system", text_block("be kind")),
        user("1"),
        message("2", "assistant", thought(), text_block("so"), call("a"), call("b")),
        result("3", "b"),
        result("4", "a"),
        message("5", "assistant", search("s"), found("s"), text_block("done")),
    )
    assert mend(history, RULES) == Mended(history, (), ())


def test_a_call_that_was_never_answered_gets_a_result_that_says_so() -> None:
    mended = mend([user("1"), message("2", "assistant", call("a")), user("3")], RULES)
    assert shape(mended) == [("user", ["hi"]), ("assistant", ["a"]), ("tool", ["a"]), ("user", ["hi"])]
    [made] = mended.messages[2].blocks
    assert (made.status, json.loads(made.parts or "")) == ("synthetic", [{"kind": "text", "text": NO_RESULT}])
    assert "never answered" in said(mended.repairs)


def test_results_move_directly_behind_the_message_that_calls() -> None:
    mended = mend(
        [user("1"), message("2", "assistant", call("a"), call("b")), user("3"), result("4", "b"), result("5", "a")], RULES
    )
    assert shape(mended) == [("user", ["hi"]), ("assistant", ["a", "b"]), ("tool", ["b"]), ("tool", ["a"]), ("user", ["hi"])]
    assert said(mended.repairs).count("directly behind") == 2


def test_results_come_in_the_order_of_their_calls_where_that_is_asked() -> None:
    history = [message("1", "assistant", call("a"), call("b"), call("c")), result("2", "c"), result("3", "a")]
    assert [block for role, [block, *_] in shape(mend(history, RULES)) if role == "tool"] == ["c", "a", "b"]
    ordered = mend(history, replace(RULES, results_in_order=True))
    assert [block for role, [block, *_] in shape(ordered) if role == "tool"] == ["a", "b", "c"]
    assert "in the order of their calls" in said(ordered.repairs)


@pytest.mark.parametrize("history", [
    [user("1"), result("2", "a")],
    [user("1"), result("2", "a"), message("3", "assistant", call("a"))],
    [user("1"), message("2", "assistant", replace(call("a"), sealed=False)), result("3", "a")],
])  # fmt: skip
def test_a_result_without_a_call_before_it_is_not_sent(history: list[Message]) -> None:
    mended = mend(history, RULES)
    assert "without a call" in said(mended.repairs)
    assert not [block for sent in mended.messages for block in sent.blocks if block.status == "ok"]


def test_of_two_results_the_first_is_sent_unless_it_was_none() -> None:
    calls = message("1", "assistant", call("a"))
    twice = mend([calls, result("2", "a", "first"), result("3", "a", "second")], RULES)
    assert [part.id for part in twice.messages] == ["1", "2"]
    for untrue in ("interrupted", "synthetic"):
        late = mend([calls, result("2", "a", "none", untrue), result("3", "a", "second")], RULES)
        assert [part.id for part in late.messages] == ["1", "3"]
        assert "the second one is sent" in said(late.repairs)


def test_an_id_that_was_used_before_names_another_call_and_its_results_follow_it() -> None:
    history = [
        message("1", "assistant", call("a")), result("2", "a", "one"), message("3", "assistant", call("a"), call("a")),
        result("4", "a", "two"), result("5", "a", "three"),
    ]  # fmt: skip
    mended = mend(history, RULES)
    assert shape(mended) == [
        ("assistant", ["a"]), ("tool", ["a"]), ("assistant", ["a_2", "a_3"]), ("tool", ["a_2"]), ("tool", ["a_3"]),
    ]  # fmt: skip
    assert [sent.blocks[0].parts for sent in mended.messages if sent.role == "tool"] == [
        text_parts(text) for text in ("one", "two", "three")
    ]
    assert "sent as a_3" in said(mended.repairs)


def test_calls_without_an_id_are_answered_in_their_order() -> None:
    history = [message("1", "assistant", call(None), call(None)), result("2", "", "one"), result("3", "", "two")]
    first, second = [sent for sent in mend(history, RULES).messages if sent.role == "tool"]
    assert (first.blocks[0].parts, second.blocks[0].parts) == (text_parts("one"), text_parts("two"))
    assert (first.blocks[0].tool_call_id, second.blocks[0].tool_call_id) == ("call_1_0", "call_1_1")


def test_ids_and_names_that_are_refused_are_written_otherwise() -> None:
    mended = mend([message("1", "assistant", call("functions.f:0", name="my tool")), result("2", "functions.f:0")], RULES)
    assert [block.tool_call_id for sent in mended.messages for block in sent.blocks] == ["functions_f_0"] * 2
    assert mended.messages[0].blocks[0].name == "my_tool"
    long = mend([message("1", "assistant", call("a" * 70), call("a" * 71))], RULES)
    assert [len(block.tool_call_id or "") for block in long.messages[0].blocks] == [64, 64]
    assert mend([message("1", "assistant", call("a.b"))], LOOSE).messages[0].blocks[0].tool_call_id == "a.b"


def test_messages_in_succession_are_one_turn_where_turns_combine() -> None:
    first, second = message("1", "assistant", call("a")), message("2", "assistant", call("b"))
    together = [first, second, result("3", "a"), result("4", "b")]
    apart = [first, result("3", "a"), second, result("4", "b")]
    combining = replace(RULES, turns_combine=True)
    assert mend(together, combining) == Mended(tuple(together), (), ())
    assert mend(apart, combining) == Mended(tuple(apart), (), ())
    assert mend(together, RULES).messages == tuple(apart)
    assert [sent.role for sent in mend([first, second, result("4", "b")], combining).messages] == ["assistant", "tool"] * 2


def test_the_same_message_twice_is_sent_once_and_another_gets_an_id_of_its_own() -> None:
    mended = mend([user("1"), user("1"), user("1", "else"), user("1", "more")], RULES)
    assert [sent.id for sent in mended.messages] == ["1", "1~2", "1~3"]
    assert "twice" in said(mended.repairs)


def test_partial_text_is_kept_and_nothing_else_that_is_partial() -> None:
    blocks = [
        replace(thought(), sealed=False), Block("text", text="so f"), replace(call("a", '{"x'), sealed=False),
        replace(search("s"), sealed=False), Block("media", media_type="image/png"), Block("provider"),
    ]  # fmt: skip
    mended = mend([message("1", "assistant", *blocks, status="partial")], RULES)
    [sent] = mended.messages
    assert (sent.status, sent.blocks) == ("partial", (Block("text", number=1, text="so f", sealed=True),))
    assert said(mended.repairs).count("partial block") == 6


def test_blank_text_and_messages_without_content_are_not_sent() -> None:
    history = [user("1"), message("2", "assistant", text_block(" \n"), thought("")), user("3", ""), message("4", "assistant")]
    assert [sent.id for sent in mend(history, replace(RULES, reasoning_leads=False)).messages] == ["1", "2"]
    mended = mend(history, RULES)  # reasoning alone is nothing either
    assert [sent.id for sent in mended.messages] == ["1"]
    assert said(mended.repairs).count("without content") == 3


def test_reasoning_is_sent_signed_and_to_its_maker_only() -> None:
    of_openai = thought("b", "x", opaque=opaque("openai", "{}"))
    of_both = thought("d", "x", opaque=opaque("ai-sdk", "{}", signer="anthropic"))
    blocks = [thought("a"), of_openai, thought("c", None), of_both, text_block("so")]
    mended = mend([message("1", "assistant", *blocks)], RULES)
    assert shape(mended) == [("assistant", ["a", "d", "so"])]
    assert "reasoning of openai" in said(mended.losses)
    assert "reasoning without a signature" in said(mended.losses)
    as_text = replace(RULES, as_text=frozenset({"reasoning"}))
    kept = mend([message("1", "assistant", *blocks)], as_text).messages[0].blocks
    assert [(block.kind, block.signature) for block in kept] == [
        ("reasoning", "c2ln"), ("text", None), ("text", None), ("reasoning", "x"), ("text", None),
    ]  # fmt: skip
    assert [block.text for block in mend([message("1", "assistant", *blocks)], LOOSE).messages[0].blocks] == [
        "a", "b", "c", "d", "so",
    ]  # fmt: skip


def test_payloads_and_signatures_go_to_their_own_maker_byte_for_byte_or_nowhere() -> None:
    payload = '{"type": "hologram",  "n": 1e400, "s":"\\u00e9"}'
    block = Block("provider", sealed=True, opaque=opaque("anthropic", payload))
    [sent] = mend([message("1", "user", block)], RULES).messages
    assert payload_for(sent.blocks[0], "anthropic") == payload
    assert payload_for(sent.blocks[0], "openai") is None
    elsewhere = mend([message("1", "user", replace(block, opaque=opaque("openai", payload)), text_block("x"))], RULES)
    assert shape(elsewhere) == [("user", ["x"])]
    signed = call("a", signature="x", opaque=opaque("google", payload))
    mended = mend([message("1", "assistant", signed)], RULES)
    assert (mended.messages[0].blocks[0].signature, mended.messages[0].blocks[0].opaque) == (None, None)
    assert "a signature of google" in said(mended.losses)


def test_reasoning_and_what_must_follow_it_move_together() -> None:
    mended = mend([user("1"), message("2", "assistant", text_block("so"), thought(), replace(call("a"), sealed=False))], RULES)
    assert shape(mended) == [("user", ["hi"]), ("assistant", ["so"])]
    assert "nothing follows" in said(mended.repairs)


def test_reasoning_with_ill_formed_text_is_dropped_for_it_can_not_be_changed() -> None:
    mended = mend([message("1", "assistant", thought("a\ud83d"), text_block("so"))], RULES)
    assert shape(mended) == [("assistant", ["so"])]


def test_text_is_well_formed_and_each_change_is_counted() -> None:
    ref = call("a", '{"k": "\\ud83d \\ud83d\\ude00 \\u0000 \\\\ud83d"}')
    cited = Block("text", text="y", sealed=True, citations=('{"t":"\\ud800"}',))
    history = [
        user("1", "a\ud83d\ud83d\ude00\udc00\0"), message("2", "assistant", ref),
        result("3", "a", "x\ud83d"), message("4", "assistant", cited),
    ]  # fmt: skip
    mended = mend(history, RULES)
    assert mended.messages[0].text == "a\ufffd\U0001f600\ufffd\ufffd"
    assert mended.messages[1].blocks[0].input == {"k": "\ufffd \U0001f600 \ufffd \\ud83d"}
    assert json.loads(mended.messages[2].blocks[0].parts or "")[0]["text"] == "x\ufffd"
    assert mended.messages[3].blocks[0].citations == ('{"t":"\\ufffd"}',)
    assert [loss.what.rpartition(" ")[2] for loss in mended.repairs] == ["3", "2", "1", "1"]
    assert mend([user("1", "a\0")], LOOSE).messages[0].text == "a\0"


def test_the_input_of_a_tool_is_an_object_where_that_is_demanded() -> None:
    blocks = [call("a", '{"x": 1e400}'), call("b", '{"x'), call("c", "[1]"), call("d", ""), call("e", "", input_text="null")]
    sent = mend([message("1", "assistant", *blocks)], RULES).messages[0].blocks
    assert [block.input_text or block.text for block in sent] == [
        '{"x": 1e400}', '{"INVALID_JSON":"{\\"x"}', '{"input":[1]}', "{}", '{"input":null}',
    ]  # fmt: skip
    assert mend([message("1", "assistant", call("b", '{"x'))], LOOSE).messages[0].blocks[0].text == '{"x'


def test_server_tools_are_sent_in_pairs() -> None:
    lonely = [
        message("1", "assistant", search("a"), text_block("one")), user("2"), message("3", "assistant", found("a"), found("b")),
        message("4", "assistant", search("c"), found("c"), found("c"), search("c"), text_block("two")),
    ]  # fmt: skip
    mended = mend(lonely, RULES)
    assert shape(mended) == [("assistant", ["one"]), ("user", ["hi"]), ("assistant", ["c", "c", "two"])]
    assert said(mended.repairs).count("other half") == 5
    later = [message("1", "assistant", search("a")), message("2", "assistant", found("a"))]
    assert mend(later, RULES).messages == tuple(later)


def test_a_response_that_paused_is_sent_as_it_is_until_somebody_speaks() -> None:
    paused = message("1", "assistant", text_block("so"), search("a"), stop_reason='"pause_turn"')
    assert mend([paused], RULES).messages == (paused,)
    assert shape(mend([paused, user("2")], RULES)) == [("assistant", ["so"]), ("user", ["hi"])]
    stopped = message("1", "assistant", text_block("so"), search("a"), stop_reason='"max_tokens"')
    assert shape(mend([stopped], RULES)) == [("assistant", ["so"])]
    cut = message("1", "assistant", text_block("so"), search("a"), status="partial")
    assert shape(mend([cut], RULES)) == [("assistant", ["so"])]


def test_a_program_of_the_provider_waits_for_our_tools_and_goes_with_them() -> None:
    kept = opaque("anthropic", '{"type":"tool_use","caller":{"type":"code_execution","tool_id":"s"}}')
    turn = message("1", "assistant", search("s"), call("a", opaque=kept))
    assert shape(mend([user("0"), turn], RULES))[1:] == [("assistant", ["s", "a"]), ("tool", ["a"])]
    spoken = mend([user("0"), turn, result("2", "a"), user("3")], RULES)
    assert [sent.id for sent in spoken.messages] == ["0", "3"]


def test_a_call_of_a_program_that_is_not_there_is_sent_as_the_models() -> None:
    kept = opaque("anthropic", '{"type":"tool_use","cache_control":{},"caller":{"type":"code_execution","tool_id":"gone"}}')
    turn = message("1", "assistant", call("a", opaque=kept))
    mended = mend([user("0"), turn, result("2", "a"), user("3")], RULES)
    assert shape(mended)[1:] == [("assistant", ["a"]), ("tool", ["a"]), ("user", ["hi"])]
    assert mended.messages[1].blocks[0].opaque == opaque("anthropic", '{"type":"tool_use","cache_control":{}}')
    assert len(mended.repairs) == 1


def test_a_response_with_calls_of_our_tools_has_not_paused() -> None:
    turn = message("1", "assistant", call("a"), search("s"))
    assert shape(mend([user("0"), turn], RULES))[1:] == [("assistant", ["a"]), ("tool", ["a"])]


def test_only_an_assistant_reasons_and_calls_and_only_a_user_shows_media() -> None:
    picture = Block("media", sealed=True, media_type="image/png", fields={"data": "AA=="})
    history = [message("1", "user", thought(), call("a"), text_block("x"), picture), message("2", "assistant", picture)]
    assert shape(mend(history, RULES)) == [("user", ["x", "media"])]


def test_what_has_no_form_is_text_where_the_rules_say_so_and_a_loss() -> None:
    blocks = [Block("refusal", text="no", sealed=True), Block("source", text="a page", sealed=True), Block("data", sealed=True)]
    mended = mend([message("1", "assistant", *blocks)], RULES)
    assert shape(mended) == [("assistant", ["no"])]
    assert mended.messages[0].blocks[0].kind == "text"
    assert len(mended.losses) == 3


def test_media_of_another_maker_keep_their_bytes_and_lose_the_rest() -> None:
    kept = opaque("openai", '{"type":"input_image","detail":"low","image_url":"data:image/png;base64,AA=="}')
    [sent] = mend([message("1", "user", Block("media", sealed=True, opaque=kept))], RULES).messages
    [block] = sent.blocks
    assert (block.media_type, block.fields, block.opaque) == ("image/png", {"data": "AA=="}, None)


def test_neighbours_of_one_role_are_one_message_where_roles_alternate() -> None:
    history = [
        user("1", "a"),
        user("2", "b"),
        message("3", "assistant", text_block("c")),
        message("4", "assistant", text_block("d")),
    ]
    mended = mend(history, replace(RULES, alternate=True))
    assert shape(mended) == [("user", ["a", "b"]), ("assistant", ["c", "d"])]
    assert [loss.message_id for loss in mended.repairs] == ["2", "4"]
    assert mend(history, RULES).messages == tuple(history)


def test_a_conversation_begins_with_the_user_and_ends_without_white_space_where_that_is_demanded() -> None:
    mended = mend([message("0", "system", text_block("x")), message("1", "assistant", text_block("so "))], STRICT)
    assert [(sent.role, sent.text) for sent in mended.messages][1:] == [
        ("user", "[The conversation begins with the assistant.]"), ("assistant", "so"),
    ]  # fmt: skip
    assert len(mended.repairs) == 2


def test_the_plain_input_of_a_custom_tool_has_no_nul_either() -> None:
    kept = opaque("openai", '{"item":{"type":"custom_tool_call"}}')
    sql = Block("tool_call", text="SELECT \0 1", sealed=True, name="sql", tool_call_id="c1", opaque=kept, parse="ok")
    asked = message("a", "assistant", sql)
    mended = mend([user("u", "go"), asked, result("t", "c1")], replace(RULES, provider="openai"))
    [sent] = [block for one in mended.messages for block in one.blocks if block.kind == "tool_call"]
    assert "\0" not in sent.text
    assert mended.repairs


@given(st.text(st.characters(codec=None) | st.sampled_from("\ud83d\ude00\udc00\0\\u")), st.booleans())
def test_mended_text_is_utf8_and_sound_text_is_left_alone(text: str, refuse_nul: bool) -> None:  # noqa: FBT001
    mended, count = mend_text(text, refuse_nul=refuse_nul)
    mended.encode()
    assert "\0" not in mended or not refuse_nul
    assert mend_text(mended, refuse_nul=refuse_nul) == (mended, 0)
    written = json.dumps(text)
    read, found_there = mend_json(written, refuse_nul=refuse_nul)
    assert (json.loads(read), found_there) == (mended, count)
    if mended == text:
        assert read == written


@settings(max_examples=300)
@given(HISTORIES, st.sampled_from([RULES, STRICT, LOOSE, replace(RULES, turns_combine=True)]))
@pytest.mark.heavy
def test_mending_keeps_its_word_whatever_is_broken(history: list[Message], rules: Rules) -> None:
    before = [replace(original) for original in history]
    mended = mend(history, rules)
    assert history == before
    assert mend(mended.messages, rules) == Mended(mended.messages, (), ())
    if mended.messages != tuple(history):
        assert mended.repairs or mended.losses
    assert len({sent.id for sent in mended.messages}) == len(mended.messages)
    calls: list[str | None] = []
    answered: list[str | None] = []
    for sent in mended.messages:
        assert sent.blocks
        assert all(block.sealed for block in sent.blocks)
        assert not [block for block in sent.blocks if block.kind == "text" and not block.text.strip()]
        calls += [block.tool_call_id for block in sent.blocks if block.kind == "tool_call"]
        answered += [block.tool_call_id for block in sent.blocks if block.kind == "tool_result"]
        "".join(block.text for block in sent.blocks).encode()
    assert len(set(calls)) == len(calls)
    assert sorted(map(str, calls)) == sorted(map(str, answered))
