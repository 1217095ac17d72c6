"""Conversations that other programs keep: Codex's rollouts, exports of ChatGPT, ShareGPT's data sets."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ledger.transfer.files import open_lines
from ledger.transfer.sources import read_file
from projector.formats import READERS, WRITERS, FormatError
from projector.formats.recordings.documents import read_document
from projector.formats.registry import NAMED
from projector.formats.validators import validate_responses
from projector.tree import Node, resolve
from tests.shared_data import imported

if TYPE_CHECKING:
    from pathlib import Path

    from projector.formats.shared.history import History

AT = "2026-02-01T10:00:0{}.500Z"


def record(kind: str, payload: dict[str, Any], second: int = 0) -> dict[str, Any]:
    return {"timestamp": AT.format(second), "type": kind, "payload": payload}


def item(second: int = 0, **fields: Any) -> dict[str, Any]:
    return record("response_item", fields, second)


def said(role: str, text: str, second: int = 0) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, type="message", role=role, content=[{"type": kind, "text": text}])


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return record("event_msg", {"type": kind, **fields})


def counted(total: int, given: int, made: int) -> dict[str, Any]:
    used = {"input_tokens": given, "cached_input_tokens": 3, "output_tokens": made, "reasoning_output_tokens": 2}
    return event("token_count", info={"total_token_usage": {"total_tokens": total}, "last_token_usage": used}, rate_limits={})


META = record("session_meta", {"id": "s1", "cwd": "/river", "cli_version": "1", "model_provider": "delta"})
THOUGHT = item(2, type="reasoning", summary=[{"type": "summary_text", "text": "I look."}], encrypted_content="sealed")
CALL = item(2, type="function_call", name="look", arguments='{"at":"Nile"}', call_id="c1")
RESULT = item(3, type="function_call_output", call_id="c1", output="6,650 km")
TURN = record("turn_context", {"model": "gpt-river", "cwd": "/river"})
ROLLOUT = [
    META, event("user_message", message="How long?"), said("user", "How long?", 1), TURN, THOUGHT, CALL,
    counted(12, 10, 2), counted(12, 10, 2), RESULT, said("assistant", "6,650 km.", 4), counted(33, 20, 1),
]  # fmt: skip


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


def rollout(*records: dict[str, Any]) -> History:
    [history] = READERS["codex"](lines(list(records)))
    return history


def test_a_rollout_is_its_items_with_times_models_and_usage() -> None:
    history = rollout(*ROLLOUT)
    asks, calls, result, answers = imported(history)
    assert (history.name, asks.text, answers.text) == ("s1", "How long?", "6,650 km.")
    thought, call = calls.blocks
    assert (thought.kind, thought.text, thought.signature) == ("reasoning", "I look.", "sealed")
    assert (call.kind, call.name, call.input) == ("tool_call", "look", {"at": "Nile"})
    assert result.blocks[0].tool_call_id == "c1"
    assert [draft.created_at for draft in history.drafts] == [1769940000500 + 1000 * second for second in (1, 2, 3, 4)]
    used = [draft.usage and (draft.usage.input, draft.usage.output, draft.usage.cached) for draft in history.drafts]
    assert used == [None, (10, 2, 3), None, (20, 1, 3)]
    assert [draft.model for draft in history.drafts] == [None, "gpt-river", None, "gpt-river"]
    assert {draft.provider for draft in history.drafts if draft.role == "assistant"} == {"delta"}
    assert json.loads(history.metadata["cwd"]) == "/river"
    assert json.loads(history.drafts[0].metadata["turn_context"]) == [TURN["payload"]]
    assert history.losses == ()
    assert validate_responses(WRITERS["responses"]([asks, calls, result, answers]).payload) == []


def test_what_a_response_used_ends_it_and_what_no_answer_is_there_for_is_told() -> None:
    history = rollout(
        META, said("user", "a"), said("assistant", "b"), counted(1, 1, 0), said("assistant", "c"), counted(2, 1, 0)
    )
    assert [draft.usage is not None for draft in history.drafts] == [False, True, True]
    alone = rollout(META, said("user", "a"), counted(1, 1, 0), event("token_count", info=None))
    assert [loss.what for loss in alone.losses] == ["1 counts of tokens that stand behind no answer are no messages"]


@pytest.mark.parametrize(
    ("told", "outcome", "error"),
    [
        (event("turn_aborted", reason="interrupted"), "cancelled", None),
        (event("error", message="no"), "failed", '{"message":"no"}'),
    ],
)
def test_a_turn_that_was_aborted_or_failed_ends_its_run(told: dict[str, Any], outcome: str, error: str | None) -> None:
    last = rollout(META, said("user", "a"), said("assistant", "b"), told).drafts[-1]
    assert (last.ends_run, last.error) == (outcome, error)


def test_a_context_that_is_told_again_is_kept_once_and_what_is_unknown_is_counted() -> None:
    compacted = record("compacted", {"message": "so far"})
    others = [
        event("exec_command_begin"),
        event("exec_command_begin"),
        record("tide", {}),
        event("thread_rolled_back", num_turns=2),
    ]
    history = rollout(META, TURN, TURN, said("user", "a"), TURN, compacted, item(type="ghost_snapshot", id="g"), *others)
    assert json.loads(history.metadata["turn_context"]) == [TURN["payload"]]
    assert history.drafts[0].metadata.keys() >= {"compacted", "ghost_snapshot"}
    assert [loss.what for loss in history.losses] == [
        'line 11, in "payload": 2 turns were taken back; they are kept in the line',
        "2 events of type exec_command_begin are no messages",
        "1 records of type tide are no messages",
    ]


def test_a_rollout_that_breaks_off_gives_what_is_whole() -> None:
    found = READERS["codex"](lines([META, said("user", "a")]) + '{"timestamp"')
    assert next(found).drafts[0].role == "user"
    with pytest.raises(FormatError, match="line 3"):
        next(found)
    for text in ("", "{}", '{"type":"response_item"}', lines([item(type="message", role="river")])):
        with pytest.raises(FormatError):
            list(READERS["codex"](text))


def node(ref: str, parent: str | None, *children: str, **message: Any) -> dict[str, Any]:
    role, text = message.pop("role", None), message.pop("text", "")
    content = message.pop("content", {"content_type": "text", "parts": [text]})
    author = {"role": role, "name": message.pop("name", None), "metadata": {}}
    told = {"id": ref, "author": author, "content": content, "status": "finished_successfully", **message} if role else None
    return {ref: {"id": ref, "message": told, "parent": parent, "children": list(children)}}


def export(*nodes: dict[str, Any], current: str | None = None, **fields: Any) -> dict[str, Any]:
    mapping = {name: each for one in nodes for name, each in one.items()}
    return {"title": "Rivers", "mapping": mapping, "current_node": current, "conversation_id": "r1", **fields}


def tree(*nodes: dict[str, Any], current: str | None = None) -> History:
    [history] = READERS["chatgpt"](json.dumps([export(*nodes, current=current)]))
    return history


def active(history: History) -> list[str]:
    messages = imported(history)
    nodes = [Node(message.id, message.parent_id, seq) for seq, message in enumerate(messages)]
    chosen = {message.id: message for message in messages}
    return [chosen[name].text for name in resolve(nodes)]


FORK = [
    node("root", None, "hidden"),
    node("hidden", "root", "ask", role="system", metadata={"is_visually_hidden_from_conversation": True}),
    node("ask", "hidden", "one", "two", role="user", text="Heads or tails?", create_time=1.25),
    node("one", "ask", "more", role="assistant", text="Heads.", metadata={"model_slug": "m-1"}),
    node("more", "one", role="user", text="Again!"),
    node("two", "ask", role="assistant", text="Tails."),
]


@pytest.mark.parametrize(("current", "path"), [
    ("more", ["Heads or tails?", "Heads.", "Again!"]), ("two", ["Heads or tails?", "Tails."]),
])  # fmt: skip
def test_all_branches_of_an_export_are_there_and_the_current_one_is_followed(current: str, path: list[str]) -> None:
    history = tree(*FORK, current=current)
    assert active(history) == path
    assert (history.name, history.title, history.losses) == ("r1", "Rivers", ())
    assert {message.text for message in imported(history)} == {"Heads or tails?", "Heads.", "Again!", "Tails."}
    asked = next(draft for draft in history.drafts if draft.role == "user")
    assert (asked.created_at, asked.provider_ref) == (1250, "ask")
    assert {draft.model for draft in history.drafts} == {None, "m-1"}


def test_a_message_to_a_tool_is_a_call_and_what_the_tool_says_its_result() -> None:
    code = {"content_type": "code", "language": "python", "text": "1 + 1"}
    output = {"content_type": "execution_output", "text": "boom"}
    failed = {"aggregate_result": {"status": "failed_with_in_kernel_exception"}}
    history = tree(
        node("a", None, "b", role="user", text="Count."),
        node("b", "a", "c", role="assistant", content=code, recipient="python"),
        node("c", "b", "d", role="tool", name="python", content=output, metadata=failed),
        node("d", "c", "e", role="tool", name="python", content=output),
        node("e", "d", "f", role="assistant", text='{"q":"x"}', recipient="browser"),
        node("f", "e", role="assistant", text="Two."),
    )
    calls = [block for draft in history.drafts for block in draft.blocks if block.kind == "tool_call"]
    results = [block for draft in history.drafts for block in draft.blocks if block.kind == "tool_result"]
    assert [(call.name, call.tool_call_id, call.input) for call in calls] == [
        ("python", "b", {"input": "1 + 1"}),
        ("browser", "e", {"q": "x"}),
    ]
    assert [(result.tool_call_id, result.status) for result in results] == [("b", "error"), ("d", "ok")]
    assert [loss.what for loss in history.losses] == [
        "conversation 1: 1 results answer no call above them, or one that is answered"
    ]
    imported(history)


def test_what_stands_beside_a_text_is_kept_with_calls_and_results_too() -> None:
    code = {"content_type": "code", "language": "python", "response_format_name": None, "text": "1"}
    quote = {"content_type": "tether_quote", "url": "https://example.org", "title": "t", "text": "x"}
    parts = {"content_type": "text", "parts": ["done"], "unknown": 7}
    history = tree(
        node("a", None, "b", role="assistant", content=code, recipient="python"),
        node("b", "a", "c", role="tool", content=quote),
        node("c", "b", "d", role="assistant", content=parts),
        node("d", "c", role="assistant", content=quote),
    )
    kept = [draft.metadata.get("content") for draft in history.drafts]
    assert kept == ['{"language":"python"}', '{"url":"https://example.org"}', '{"unknown":7}', None]
    assert "example.org" in (history.drafts[3].blocks[0].opaque or "")


def test_contents_of_an_export_are_text_reasoning_or_kept_and_told() -> None:
    pointer = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1", "width": 1}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Hm", "content": "I think."}]}
    attached = {
        "attachments": [{"id": "file-1", "name": "a.png"}, {"id": "file-2", "name": "b.pdf", "mimeType": "application/pdf"}]
    }
    history = tree(
        node(
            "a",
            None,
            "b",
            role="user",
            content={"content_type": "multimodal_text", "parts": ["Look", pointer]},
            metadata=attached,
        ),
        node("b", "a", "c", role="assistant", content=thoughts),
        node("c", "b", "d", role="assistant", content={"content_type": "reasoning_recap", "content": "Thought for 2s"}),
        node("d", "c", "e", role="assistant", content={"content_type": "tide", "height": 2}),
        node("e", "d", role="assistant", text="", status="in_progress"),
    )
    first, second, third, fourth = history.drafts
    assert [(block.kind, block.text, block.name) for block in first.blocks] == [
        ("text", "Look", None), ("media", "", None), ("media", "", "b.pdf"),
    ]  # fmt: skip
    assert [block.fields.get("file_id") for block in first.blocks] == [None, "file-service://file-1", "file-2"]
    assert [(block.kind, block.text) for block in second.blocks] == [("reasoning", "Hm\n\nI think.")]
    assert third.blocks[0].text == "Thought for 2s"
    assert fourth.blocks[0].kind == "provider"
    assert [loss.what.partition(": ")[2] for loss in history.losses] == [
        "the bytes of 2 images or files are not in the export",
        "content of the type tide is kept as it came",
        "1 messages without content are passed over",
    ]
    imported(history)


@pytest.mark.parametrize("broken", [
    {"title": "t"}, export(node("a", None, role="river", text="x")), export(node("a", "b"), node("b", "a")),
    export(node("a", None, role="user", text="x", create_time="soon")), export(node("a", None, role="user", content="x")),
    export(node("a", None, role="user", content={"content_type": "thoughts", "thoughts": 1})),
])  # fmt: skip
def test_an_export_that_is_none_is_refused_with_its_place(broken: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="conversation 2"):
        list(READERS["chatgpt"](json.dumps([export(*FORK), broken])))


def test_a_node_whose_parent_is_missing_is_a_root_and_told() -> None:
    history = tree(node("a", "gone", role="user", text="x"), current="nowhere")
    assert [loss.what.partition(": ")[2] for loss in history.losses] == [
        "the node it hangs on (gone) is not in this file",
        "the current node (nowhere) is not in this file",
    ]


def talk(*said: tuple[str, str], **fields: Any) -> dict[str, Any]:
    return {"conversations": [{"from": speaker, "value": text} for speaker, text in said], **fields}


def test_sharegpt_speaks_in_its_own_names_and_results_answer_calls_in_order() -> None:
    two = json.dumps([{"name": "look", "arguments": {"at": "Nile"}}, {"name": "look", "arguments": '{"at":"Po"}'}])
    given = talk(
        ("human", "How long?"), ("function_call", two), ("observation", "6,650"), ("tool", "652"), ("gpt", "Long."),
        id="one", system="Be brief.", tools="[]", source="made",
    )  # fmt: skip
    [history] = READERS["sharegpt"](json.dumps([given]))
    assert [draft.role for draft in history.drafts] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [block.input for block in history.drafts[2].blocks] == [{"at": "Nile"}, {"at": "Po"}]
    assert [draft.blocks[0].tool_call_id for draft in history.drafts if draft.role == "tool"] == ["call_1", "call_2"]
    assert (history.name, history.metadata, history.losses) == ("one", {"tools": '"[]"', "source": '"made"'}, ())
    imported(history)


def test_sharegpt_is_one_conversation_a_list_or_lines_and_numbers_are_names() -> None:
    one = talk(("human", "hi"), ("gpt", "ho"), id=7)
    for text in (json.dumps(one), json.dumps([one]), json.dumps(one) + "\n" + json.dumps(one)):
        assert {history.name for history in read_document(text, "sharegpt")} == {"7"}
    [alone] = read_document(json.dumps(one["conversations"]), "sharegpt")
    assert len(alone.drafts) == 2


def test_sharegpt_tells_what_a_call_has_no_place_for() -> None:
    calls = json.dumps([{"name": "f", "arguments": {}, "parameters": {"a": 1}, "id": "x"}, {"name": "g", "parameters": {}}])
    [history] = READERS["sharegpt"](json.dumps(talk(("function_call", calls))))
    [loss] = history.losses
    assert loss.what.endswith("at 0: fields that a call has no place for: id, parameters")


def test_sharegpt_tells_what_it_can_not_pair_and_refuses_who_it_does_not_know() -> None:
    [history] = READERS["sharegpt"](json.dumps(talk(("function_call", "look there"), ("observation", "seen"))))
    assert [loss.what.partition(": ")[2] for loss in history.losses] == [
        "a call that names no tool is kept as text",
        "a result that answers no call",
    ]
    for broken in ({}, talk(("river", "x")), {"conversations": [{"from": "human", "value": 1}]}, {"conversations": 1}):
        with pytest.raises(FormatError):
            list(READERS["sharegpt"](json.dumps(broken)))


@pytest.mark.parametrize(
    ("text", "name"),
    [(lines(ROLLOUT), "codex"), (json.dumps([export(*FORK)]), "chatgpt"), (json.dumps([talk(("human", "hi"))]), "sharegpt")],
)
def test_they_are_told_from_all_others(text: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text, encoding="utf-8")
    with ExitStack() as stack, open_lines(path) as file:
        [by_itself], [named] = read_file(stack, file, path), read_file(stack, file, path, name)
    assert by_itself.history == named.history is not None


def test_a_format_is_named_once() -> None:
    assert [each.name for each in NAMED.values()] == sorted(NAMED)
