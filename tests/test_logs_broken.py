"""Logs as they are in the field: torn, of the wrong format, with records in each other's way and strings that bite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from projector.formats.format import FormatError
from projector.json_text import is_json
from tests.shared_data import DATA, files, imported, naughty, needs_data, read_bytes, read_text
from tests.test_logs import READERS, path_of, results, texts
from tests.wrong_values import WRONGS, places, put

if TYPE_CHECKING:
    from projector import Message
    from projector.formats.shared.history import History

SAMPLES = {
    "claude": "claude-code-log/sessions/representative_messages.jsonl",
    "pi": "pi-mono/before-compaction.jsonl.gz",
    "trees": "open-assistant/en_100_tree.jsonl.gz",
    "swe-agent": "swe-agent/function_calling_simple.traj",
    "tau-bench": "tau-bench/MockAirlineDomainEnv-few_shot.jsonl",
}


def record(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    inner = {"role": kind, "content": content} | ({"id": more.pop("id")} if "id" in more else {})
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": inner} | more


def text(said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": said}]


def call(ref: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": ref, "name": "f", "input": {}}]


def answer(ref: str, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": ref, "content": f"of {ref}", **more}]


def session(*records: dict[str, Any]) -> list[tuple[History, list[Message]]]:
    lines = "\n".join(json.dumps(one) for one in records)
    return [(history, imported(history, str(number))) for number, history in enumerate(READERS["claude"](lines))]


def followed(messages: list[Message]) -> list[str]:
    by_id = {message.id: message for message in messages}
    return [by_id[one].text or "".join(block.tool_call_id or "" for block in by_id[one].blocks) for one in path_of(messages)]


def test_parallel_calls_of_one_response_and_their_results_are_one_line() -> None:
    [(_, messages)] = session(
        record("user", "u", None, "go"),
        record("assistant", "a1", "u", text("two"), id="m"),
        record("assistant", "a2", "a1", call("c1"), id="m"),
        record("assistant", "a3", "a2", call("c2"), id="m"),
        record("user", "r1", "a2", answer("c1")),
        record("user", "r2", "a3", answer("c2", is_error=True)),
        record("assistant", "a4", "r1", text("done"), id="m2"),
    )
    assert followed(messages) == ["go", "two", "c1", "c2", "done"]
    assert [block.kind for block in messages[1].blocks] == ["text", "tool_call", "tool_call"]
    assert json.loads(messages[1].metadata_text["uuids"]) == ["a1", "a2", "a3"]
    assert results(messages) == [("c1", "ok", "of c1"), ("c2", "error", "of c2")]


def test_a_result_that_comes_between_the_calls_of_a_response_stays_in_its_group() -> None:
    [(_, messages)] = session(
        record("user", "u", None, "go"),
        record("assistant", "a1", "u", call("c1"), id="m"),
        record("user", "r1", "a1", answer("c1")),
        record("assistant", "a2", "r1", call("c2"), id="m"),
        record("user", "r2", "a2", answer("c2")),
        record("assistant", "a3", "r2", text("done"), id="m2"),
    )
    assert followed(messages) == ["go", "c1c2", "c1", "c2", "done"]


def test_an_edited_message_is_a_fork_and_records_that_are_none_are_passed() -> None:
    [(history, messages)] = session(
        record("user", "u1", None, "first"),
        {"type": "progress", "uuid": "p", "parentUuid": "u1", "sessionId": "s", "data": {}},
        {"type": "system", "uuid": "y", "parentUuid": "p", "sessionId": "s", "content": "hook"},
        record("assistant", "a1", "y", text("one"), id="m1"),
        record("user", "u2", "a1", "second"),
        record("user", "u2", "a1", "second"),
        record("user", "u3", "a1", "edited"),
        record("user", "u4", None, "another beginning"),
        {"type": "summary", "summary": "old", "leafUuid": "a1"},
        {"type": "summary", "summary": "Title", "leafUuid": "u3"},
        {"type": "summary", "summary": "of another file", "leafUuid": "zzz"},
    )
    assert (history.title, json.loads(history.metadata["summaries"])) == ("Title", ["old", "Title"])
    parents = {message.text: message.parent_id for message in messages}
    assert parents["second"] == parents["edited"] == messages[1].id
    assert parents["another beginning"] is None
    assert len(messages) == 5
    assert [json.loads(note)["content"] for note in [messages[0].metadata_text["system"][1:-1]]] == ["hook"]
    assert {loss.what for loss in history.losses} == {
        "1 records of type progress are no messages",
        "1 records of type user (there twice) are no messages",
        "1 summaries are of messages that are not in this file",
    }


def test_sidechains_are_conversations_of_their_own() -> None:
    found = session(
        record("user", "u", None, "go"),
        record("assistant", "a", "u", call("c"), id="m"),
        record("user", "w1", None, "warm up", isSidechain=True, agentId="x"),
        record("assistant", "w2", "w1", text("ready"), id="m2", isSidechain=True, agentId="x"),
        record("user", "v1", "a", "task", isSidechain=True),
        record("assistant", "v2", "v1", text("done"), id="m3", isSidechain=True),
        record("user", "r", "a", answer("c")),
    )
    assert [history.name for history, _ in found] == ["s", "s/x", "s/v1"]
    assert [followed(messages) for _, messages in found] == [["go", "c", "c"], ["warm up", "ready"], ["task", "done"]]
    assert json.loads(found[2][0].metadata["parentUuid"]) == "a"
    assert all(json.loads(history.metadata["isSidechain"]) for history, _ in found[1:])


def test_what_a_user_refused_or_broke_off_is_told_from_an_error() -> None:
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    [(_, messages)] = session(
        record("assistant", "a", None, [*call("c1"), *call("c2"), *call("c3")], id="m"),
        record("user", "r1", "a", answer("c1", content=refused, is_error=True)),
        record("user", "r2", "a", answer("c2", content=[*text("[Request interrupted by user for tool use]")])),
        record("user", "r3", "a", [*answer("c3", is_error=True), *text("stop")]),
    )
    assert [status for _, status, _ in results(messages)] == ["denied", "interrupted", "error"]
    assert followed(messages) == ["c1c2c3", "c1", "c2", "c3", "stop"]


def test_images_are_media_and_unknown_blocks_are_kept_as_they_came() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"}}
    odd = {"type": "hologram", "n": 1.5}
    [(_, [asked, told])] = session(
        record("user", "u", None, [image, odd, *text("look")]),
        record("user", "r", "u", answer("c", content=[image, odd, *text("seen")])),
    )
    assert [block.kind for block in asked.blocks] == ["media", "provider", "text"]
    assert (asked.blocks[0].media_type, asked.blocks[0].fields) == ("image/png", {"data": "AAEC"})
    assert json.loads(asked.blocks[1].opaque or "") == {"provider": "anthropic", "payload": odd}
    assert json.loads(told.blocks[0].parts or "") == [
        {"kind": "media", "media_type": "image/png", "data": "AAEC"},
        {"kind": "provider", "opaque": {"provider": "anthropic", "payload": odd}},
        {"kind": "text", "text": "seen"},
    ]


def entry(own: str, parent: str | None, role: str, said: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "id": own, "parentId": parent, "timestamp": "2026-01-01T00:00:00Z"} | {
        "message": {"role": role, "content": said, **more}
    }


def pi_session(*entries: dict[str, Any], version: int | None = 3) -> tuple[History, list[Message]]:
    header = {"type": "session", "id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/", "version": version}
    [history] = READERS["pi"]("\n".join(json.dumps(one) for one in (header, *entries)))
    return history, imported(history)


def test_a_tree_of_pi_keeps_its_branches_and_what_stands_between_its_messages() -> None:
    between = {"timestamp": "2026-01-01T00:00:00Z"}
    history, messages = pi_session(
        {"type": "model_change", "id": "0", "parentId": None, "provider": "p", "modelId": "m", **between},
        entry("1", "0", "user", text("go")),
        entry("2", "1", "assistant", text("one"), provider="p", model="m", stopReason="stop"),
        {"type": "compaction", "id": "3", "parentId": "2", "summary": "short", "firstKeptEntryId": "1", **between},
        entry("4", "3", "user", "more"),
        {"type": "branch_summary", "id": "5", "parentId": "2", "fromId": "4", "summary": "we tried", **between},
        {"type": "custom_message", "id": "6", "parentId": "5", "customType": "note", "content": text("mind"), **between},
        {"type": "session_info", "id": "7", "parentId": "6", "name": "Title", **between},
        entry("8", "zzz", "custom", "lost", customType="x"),
        entry("9", "8", "oracle", "of another version"),
    )
    assert (history.title, list(history.metadata)) == ("Title", ["timestamp", "cwd", "version", "model_change"])
    parents = {message.text: message.parent_id for message in messages}
    one = messages[1].id
    assert parents["more"] == one
    assert [parent for said, parent in parents.items() if said.endswith("we tried")] == [one]
    assert parents["lost"] is None
    assert json.loads(messages[1].metadata_text["compaction"])[0]["summary"] == "short"
    assert [loss.what for loss in history.losses] == [
        "line 10: the entry it hangs on (zzz) is not in this file",
        "line 11: a message of a role that is not known is kept as a note",
    ]
    assert "of another version" in messages[-1].metadata_text["message"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_follows_an_empty_answer_of_pi_hangs_on_the_message_before_it(version: int) -> None:
    entries = [
        entry("1", None, "user", "go"), entry("2", "1", "assistant", [], stopReason="aborted", errorMessage="no"),
        entry("3", "2", "user", "again"), entry("4", "3", "assistant", text("half"), stopReason="error", errorMessage="no"),
        entry("5", "4", "user", "and again"),
    ]  # fmt: skip
    if version == 1:
        entries = [{name: value for name, value in one.items() if name not in ("id", "parentId")} for one in entries]
    history, messages = pi_session(*entries, version=version)
    assert [draft.ends_run for draft in history.drafts] == [None, "cancelled", None, "failed", None]
    on_path = [message for message in messages if message.text != "half"]
    assert texts(on_path) == ["go", "again", "and again"]
    assert [message.parent_id for message in on_path] == [None, on_path[0].id, on_path[1].id]


def test_trees_with_lost_parents_and_deep_ones_are_read_and_circles_are_refused() -> None:
    rows = [{"id": str(at), "parent_id": str(at + 1), "role": "user", "text": str(at)} for at in range(3)]
    [history] = READERS["trees"](json.dumps(rows))
    assert [draft.blocks[0].text for draft in history.drafts] == ["2", "1", "0"]
    assert [loss.what for loss in history.losses] == ["message 3: the message it answers (3) is not in this file"]
    rows[-1]["parent_id"] = "0"
    with pytest.raises(FormatError, match="3 messages hang on nothing but each other"):
        list(READERS["trees"](json.dumps(rows)))
    with pytest.raises(FormatError, match=r"line 2: the id '0' is that of another message \(line 1\)"):
        list(READERS["trees"](f"{json.dumps(rows[0])}\n{json.dumps(rows[0])}"))
    deep = [{"id": "0", "role": "user", "text": "0"}]
    deep += [{"id": str(at), "parent_id": str(at - 1), "role": "assistant", "text": str(at)} for at in range(1, 5000)]
    [history] = READERS["trees"](json.dumps(deep))
    assert len(history.drafts) == 5000


@needs_data
@pytest.mark.parametrize("name", READERS)
def test_a_torn_file_gives_what_came_before_and_an_error_with_its_place(name: str) -> None:
    whole = read_text(DATA / SAMPLES[name])
    lines = whole.split("\n")
    counts = [len(history.drafts) for history in READERS[name](whole)]
    found: list[int] = []
    with pytest.raises(FormatError, match=r"line \d+|the trajectory"):
        found.extend(len(history.drafts) for history in READERS[name]("\n".join(lines[:5])[:-20]))
    assert sum(found) < sum(counts)
    if name == "pi":
        assert found == [3]
    elif name == "claude":
        assert found == [4]
    elif name != "swe-agent":
        assert found == counts[:4]


@needs_data
@pytest.mark.parametrize("name", READERS)
def test_a_file_of_another_format_is_refused_with_what_was_expected(name: str) -> None:
    for other, sample in SAMPLES.items():
        if other != name:
            with pytest.raises(FormatError, match=r"(line 1|the trajectory|the document).*was expected"):
                list(READERS[name](read_text(DATA / sample)))
    for nothing in ("", "\n \n", "[]x", "null", "7", '"x"', "[7]", "{}", "{", "<html>", '{"type": 7}', "\ufeff"):
        with pytest.raises(FormatError, match=r"expected|should"):
            list(READERS[name](nothing))


@needs_data
@pytest.mark.parametrize("name", READERS)
def test_fields_of_another_kind_are_refused_with_their_place(name: str) -> None:
    """Each value of the first records is replaced, one at a time: it is read, or refused, and never breaks the reader."""
    lines = read_text(DATA / SAMPLES[name]).split("\n")[:3]
    document = (
        json.loads(lines[0]) if name != "swe-agent" else json.loads("\n".join(read_text(DATA / SAMPLES[name]).split("\n")))
    )
    if name == "pi":
        document = json.loads(lines[1])
    for place in places(document):
        for wrong in WRONGS:
            told = json.dumps(put(document, place, wrong))
            try:
                for history in READERS[name](f"{lines[0]}\n{told}" if name == "pi" else told):
                    imported(history)
            except FormatError as error:
                assert str(error)[:4] in ("line", "the ")  # noqa: PT017 - refusing is one of two right answers


@pytest.mark.parametrize("text_", naughty())
def test_naughty_strings_come_through_ids_titles_texts_names_and_inputs(text_: str) -> None:
    [(history, messages)] = session(
        record("user", text_ or "u", None, f"{text_}.", cwd=text_),
        record(
            "assistant",
            "a",
            text_ or "u",
            [*text(f"{text_}."), {"type": "tool_use", "id": text_, "name": text_, "input": {text_: text_}}],
        ),
        record("user", "r", "a", answer(text_, content=text_)),
        {"type": "summary", "summary": text_, "leafUuid": "a"},
    )
    assert texts(messages) == [f"{text_}."] * 2
    block = messages[1].blocks[-1]
    assert (block.tool_call_id, block.name, block.input, history.title) == (text_, text_, {text_: text_}, text_)
    assert results(messages)[0][::2] == (text_, text_)
    assert json.loads(history.metadata["cwd"]) == text_
    history, messages = pi_session(
        entry("1", None, "user", f"{text_}."), {"type": "session_info", "id": "2", "parentId": "1", "name": text_}
    )
    assert (texts(messages), history.title) == ([f"{text_}."], text_ or None)
    row = {"message_id": text_, "role": "prompter", "text": f"{text_}."}
    [tree] = READERS["trees"](json.dumps([row]))
    assert (tree.name, texts(imported(tree))) == (text_, [f"{text_}."])
    chat = {
        "role": "assistant",
        "content": f"{text_}.",
        "tool_calls": [{"id": text_, "function": {"name": text_, "arguments": text_}}],
    }
    for name, document in (("tau-bench", {"traj": [chat]}), ("swe-agent", {"history": [chat]})):
        [message] = imported(next(READERS[name](json.dumps(document))))
        block = message.blocks[-1]
        assert (message.text, block.tool_call_id, block.name, block.text) == (f"{text_}.", text_, text_, text_)


@needs_data
def test_every_json_vector_is_kept_as_a_tools_arguments_and_refused_as_a_file() -> None:
    for path in files("jsontestsuite", "**/*.json"):
        try:
            given = read_bytes(path).decode()
        except UnicodeDecodeError:
            continue
        made = {"id": "c", "type": "function", "function": {"name": "f", "arguments": given}}
        chat = {"role": "assistant", "content": None, "tool_calls": [made]}
        for name, document in (("tau-bench", {"traj": [chat]}), ("swe-agent", {"history": [chat]})):
            [message] = imported(next(READERS[name](json.dumps(document))))
            assert (message.blocks[0].text, message.blocks[0].parse) == (given, "ok" if is_json(given) else "bad")
        for read in READERS.values():
            with pytest.raises(FormatError, match=r"expected|should"):
                list(read(given))
        if is_json(given):
            raw = json.dumps(record("assistant", "a", None, [*call("c")])).replace('"input": {}', f'"input": {given}')
            if "\n" not in given:
                [history] = READERS["claude"](raw)
                assert history.drafts[0].blocks[0].input_text == given.strip(" \t\r")
