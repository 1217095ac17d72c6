"""Sessions of Qwen Code: what is said, called and used; branches, subagents, notes; what is broken or of another program."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from projector.events import RunUsage
from projector.formats import WRITERS
from projector.formats.format import FormatError
from projector.formats.qwen_code.reader import read
from projector.formats.shared.history import History, runs_of
from projector.formats.validators import validate_anthropic
from tests.shared_data import imported, naughty
from tests.wrong_values import WRONGS, places, put

HEAD: Final[dict[str, Any]] = {"sessionId": "s", "cwd": "/river", "version": "0.9", "gitBranch": "main"}
TIME: Final = "2026-03-04T05:06:07.000Z"


def record(uuid: str, parent: str | None, kind: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    base = HEAD | {"uuid": uuid, "parentUuid": parent, "timestamp": TIME, "type": kind}
    if kind == "system":
        return base | more
    return base | {"message": {"role": "model" if kind == "assistant" else "user", "parts": list(parts)}} | more


def note(uuid: str, parent: str | None, subtype: str, **payload: Any) -> dict[str, Any]:
    return record(uuid, parent, "system", subtype=subtype, systemPayload=payload)


def lines(*records: Any) -> str:
    return "\n".join(map(json.dumps, records))


def history_of(*records: Any) -> History:
    [history] = read(lines(*records))
    return history


def said(history: History) -> list[tuple[str, int | None, str]]:
    return [(draft.role, draft.parent, "".join(block.text for block in draft.blocks)) for draft in history.drafts]


SESSION: Final = [
    note("n1", None, "session_source", sourceType="cli"),
    record("u1", "n1", "user", {"text": "How long is the Aare?"}, promptId="p1"),
    record(
        "a1", "u1", "assistant", {"text": "I look it up.", "thought": True}, {"text": "A moment."},
        {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "rivers.md"}}},
        {"functionCall": {"id": "c2", "name": "shell", "args": {}}},
        model="qwen3-coder", contextWindowSize=1000,
        usageMetadata={"promptTokenCount": 100, "candidatesTokenCount": 20, "thoughtsTokenCount": 5,
                       "cachedContentTokenCount": 60, "totalTokenCount": 120},
    ),
    note("t1", "a1", "ui_telemetry", uiEvent={"event.name": "qwen-code.api_response"}),
    record(
        "r1", "t1", "tool_result", {"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "288 km"}}},
        toolCallResult={"callId": "c1", "status": "success", "resultDisplay": "Read 1 line"},
    ),
    record(
        "r2", "r1", "tool_result", {"functionResponse": {"id": "c2", "name": "shell", "response": {
            "error": "[Operation Cancelled] Reason: User did not allow tool call"}}},
        toolCallResult={"callId": "c2", "status": "cancelled"},
    ),
    record("a2", "r2", "assistant", {"text": "288 km."}, model="qwen3-coder",
           usageMetadata={"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "totalTokenCount": 16}),
    note("n2", "a2", "chat_compression", info={"originalTokenCount": 120, "newTokenCount": 30}, compressedHistory=[]),
    note("n3", "n2", "custom_title", customTitle="Rivers"),
    record("u2", "n3", "user", {"text": "And the Reuss?"}),
    record("a3", "u2", "assistant", {"text": "164 km."}),
]  # fmt: skip


def test_a_session_says_what_was_said_called_and_used() -> None:
    history = history_of(*SESSION)
    assert (history.name, history.title) == ("s", "Rivers")
    said = [(draft.role, [(block.kind, block.text or block.input_text) for block in draft.blocks]) for draft in history.drafts]
    assert said == [
        ("user", [("text", "How long is the Aare?")]),
        ("assistant", [("reasoning", "I look it up."), ("text", "A moment."),
                       ("tool_call", '{"path": "rivers.md"}'), ("tool_call", "{}")]),
        ("tool", [("tool_result", None)]), ("tool", [("tool_result", None)]), ("assistant", [("text", "288 km.")]),
        ("user", [("text", "And the Reuss?")]), ("assistant", [("text", "164 km.")]),
    ]  # fmt: skip
    results = [draft.blocks[0] for draft in history.drafts if draft.role == "tool"]
    assert [(result.tool_call_id, result.status, json.loads(result.parts or "")) for result in results] == [
        ("c1", "ok", [{"kind": "text", "text": "288 km"}]),
        ("c2", "denied", [{"kind": "text", "text": "[Operation Cancelled] Reason: User did not allow tool call"}]),
    ]
    assert history.drafts[1].model == "qwen3-coder"
    assert history.drafts[0].created_at == 1772600767000
    assert json.loads(history.drafts[2].metadata["toolCallResult"])["resultDisplay"] == "Read 1 line"
    assert history.metadata["cwd"] == '"/river"'
    assert "cwd" not in history.drafts[0].metadata
    assert history.drafts[0].metadata["promptId"] == '"p1"'
    sent = WRITERS["anthropic"](imported(history))
    assert validate_anthropic(sent.payload) == []
    assert "288 km" in json.dumps(sent.payload)


def test_thoughts_lie_inside_of_the_output_or_beside_it() -> None:
    """Only the total tells which: servers of OpenAI's kind count them in, Gemini's do not."""
    used = [body for run in runs_of(history_of(*SESSION), "x") for body in run.bodies if isinstance(body, RunUsage)]
    assert [(one.input, one.output, one.cached, one.reasoning) for one in used] == [(100, 20, 60, 5), (9, 7, None, 3)]


def test_notes_are_kept_with_the_message_they_follow_and_what_is_left_out_is_counted() -> None:
    history = history_of(*SESSION)
    [compression] = json.loads(history.drafts[4].metadata["chat_compression"])
    assert compression["systemPayload"]["info"]["newTokenCount"] == 30
    assert "custom_title" in history.drafts[4].metadata
    assert "session_source" in history.metadata
    assert [loss.what for loss in history.losses] == ["1 records of type system (ui_telemetry) are no messages"]


def test_what_was_taken_back_is_a_branch_and_the_last_line_goes_on() -> None:
    again = [note("w", "n1", "rewind", truncatedCount=2), record("u9", "w", "user", {"text": "How long is the Rhine?"}),
             record("a9", "u9", "assistant", {"text": "1,230 km."})]  # fmt: skip
    history = history_of(*SESSION, *again)
    assert said(history)[-2:] == [("user", None, "How long is the Rhine?"), ("assistant", 7, "1,230 km.")]
    fork = history_of(*SESSION, record("u8", "a2", "user", {"text": "Sure?"}))
    assert said(fork)[-1] == ("user", 4, "Sure?")


def test_a_record_hangs_on_the_parent_that_stands_later() -> None:
    assert said(history_of(*reversed(SESSION))) == said(history_of(*SESSION))


def test_a_parent_that_is_not_there_is_a_loss_with_its_place() -> None:
    history = history_of(record("a", "gone", "assistant", {"text": "so"}), record("u", "a", "user", {"text": "hm"}))
    assert said(history) == [("assistant", None, "so"), ("user", 0, "hm")]
    assert [loss.what for loss in history.losses] == ["line 1: the record it hangs on (gone) is not in this file"]
    circle = history_of(record("a", "b", "user", {"text": "1"}), record("b", "a", "assistant", {"text": "2"}))
    assert sorted(text for _, _, text in said(circle)) == ["1", "2"]
    assert len(circle.losses) == 1


def test_records_of_one_uuid_are_one_answer() -> None:
    more = {"functionCall": {"name": "f", "args": {}}}
    parts = [record("a", "u", "assistant", {"text": "so"}),
             record("a", "u", "assistant", more, usageMetadata={"promptTokenCount": 1})]  # fmt: skip
    history = history_of(record("u", None, "user", {"text": "hi"}), *parts, record("v", "a", "user", {"text": "go on"}))
    assert [block.kind for block in history.drafts[1].blocks] == ["text", "tool_call"]
    assert history.drafts[1].usage is not None
    assert said(history)[-1] == ("user", 1, "go on")


def test_calls_without_an_id_are_answered_by_name_and_order() -> None:
    calls = [{"functionCall": {"name": name, "args": {"n": n}}} for n, name in enumerate(("f", "g", "f"))]
    results = [{"functionResponse": {"name": name, "response": {"output": name}}} for name in ("f", "f", "g")]
    history = history_of(record("u", None, "user", {"text": "go"}), record("a", "u", "assistant", *calls),
                         record("r", "a", "tool_result", *results), record("b", "r", "assistant", *calls))  # fmt: skip
    ids = [block.tool_call_id for block in history.drafts[1].blocks]
    assert [draft.blocks[0].tool_call_id for draft in history.drafts[2:5]] == [ids[0], ids[2], ids[1]]
    assert not {block.tool_call_id for block in history.drafts[5].blocks} & set(ids)


def test_results_of_every_form_are_kept() -> None:
    def result(ref: str, **response: Any) -> dict[str, Any]:
        return {"functionResponse": {"id": ref, "name": "f"} | response}

    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk=", "displayName": "a.png"}}
    call = record("a", "u", "assistant", *({"functionCall": {"id": ref, "name": "f", "args": {}}} for ref in "abcdef"))
    record_of_results = record(
        "r", "a", "tool_result", result("a", response={"output": "x"}), result("b", response={"error": "no"}),
        result("c", response={"rows": [1.50]}), result("d", response={"output": ""}, parts=[picture]), result("e"),
        result("f", response={"output": "x"}, scheduling="SILENT"), picture,
    )  # fmt: skip
    history = history_of(record("u", None, "user", {"text": "go"}), call, record_of_results)
    results = [draft.blocks[0] for draft in history.drafts if draft.role == "tool"]
    assert [result.status for result in results] == ["ok", "error", "ok", "ok", "ok", "ok"]
    parts = [json.loads(result.parts or "") for result in results]
    assert parts[2] == [{"kind": "data", "text": '{"rows": [1.5]}'}]
    assert parts[3][1] == {"kind": "media", "media_type": "image/png", "data": "aGk="}
    assert parts[4] == []
    assert parts[5][0]["opaque"]["payload"]["scheduling"] == "SILENT"
    last = history.drafts[-1]
    assert (last.role, last.blocks[0].kind, last.blocks[0].fields) == ("user", "media", {"data": "aGk=", "name": "a.png"})


def test_a_subagent_is_a_conversation_of_its_own() -> None:
    aside = {"isSidechain": True, "agentId": "explore-7f"}
    records = [*SESSION[:3], record("x1", "a1", "user", {"text": "explore"}, **aside),
               record("x2", "x1", "assistant", {"text": "done"}, **aside), *SESSION[3:]]  # fmt: skip
    main, agent = read(lines(*records))
    assert said(main) == said(history_of(*SESSION))
    assert (agent.name, agent.metadata["parentUuid"]) == ("s/explore-7f", '["a1"]')
    assert said(agent) == [("user", None, "explore"), ("assistant", 0, "done")]


def test_an_answer_that_says_nothing_is_told_and_its_usage_counts() -> None:
    silent = record("a", "u", "assistant", usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 0})
    del silent["message"]
    history = history_of(record("u", None, "user", {"text": "hi"}), silent, record("v", "a", "user", {"text": "well?"}))
    assert [loss.what for loss in history.losses] == ["line 2: an answer without content is no message"]
    assert [message.text for message in imported(history)] == ["hi", "well?"]
    assert [body.input for run in runs_of(history, "x") for body in run.bodies if isinstance(body, RunUsage)] == [3]


def test_what_has_no_form_is_kept_for_its_maker() -> None:
    odd = record("u", None, "user", {"text": "run"}, {"executableCode": {"code": "1"}})
    answer = record("a", "u", "assistant", {"text": "so", "thoughtSignature": "c2ln"}, {"hologram": 1})
    history = history_of(odd, answer)
    assert [block.kind for draft in history.drafts for block in draft.blocks] == ["text", "provider", "text", "provider"]
    assert history.drafts[1].blocks[0].signature == "c2ln"
    losses = [loss.what for loss in WRITERS["chat"](imported(history)).losses]
    assert sum("of google" in what for what in losses) == 3


def test_a_torn_file_gives_what_came_before_and_an_error_with_its_place() -> None:
    found: list[History] = []
    with pytest.raises(FormatError, match="line 4"):
        found.extend(read(lines(*SESSION[:3]) + '\n{"uuid":'))
    assert [len(history.drafts) for history in found] == [2]


CLAUDE: Final = HEAD | {"uuid": "u", "parentUuid": None, "type": "user", "message": {"role": "user", "content": "hi"}}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "nobody says anything"), ("{", "line 1: a JSON object"), ("7", "line 1"), ("{}", '"parts"'), ("[]", "nobody says"),
        (lines(CLAUDE), 'line 1: .*"parts"'), (lines(note("n", None, "ui_telemetry")), "line 1: nobody says anything"),
        (lines(record("u", None, "user", {"text": "hi"}) | {"type": None}), "line 1"),
        (lines(record("u", None, "user", {"text": 7})), '"text" should be text'),
        (lines(record("u", None, "user") | {"message": 7}), "a JSON object was expected"),
        (lines(record("u", None, "user") | {"message": {"role": "model", "parts": []}}), '"role" should be \'user\''),
        (lines(record("u", None, "user") | {"message": {"role": "user", "parts": {}}}), '"parts"'),
        (lines(record("u", None, "user", {"text": "hi"}, timestamp="soon")), "should be a time"),
        (lines(record("a", None, "assistant", {"functionCall": 7})), "functionCall"),
        (lines(record("r", None, "tool_result", {"functionResponse": 7})), "functionResponse"),
        (lines(record("a", None, "assistant", {"text": "x"}, usageMetadata={"promptTokenCount": "x"})), "a whole number"),
    ],
)  # fmt: skip
def test_what_is_no_session_is_refused_with_the_place(bad: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        list(read(bad))


def test_fields_of_another_kind_are_refused_with_their_place() -> None:
    """Each value of a session is replaced, one at a time: it is read, or refused, and never breaks the reader."""
    for at in (1, 2, 4, 7, 8):
        for place in places(SESSION[at]):
            for wrong in WRONGS:
                told = [*SESSION[:at], put(SESSION[at], place, wrong), *SESSION[at + 1 :]]
                try:
                    for history in read(lines(*told)):
                        imported(history)
                except FormatError as error:
                    assert str(error).startswith(f"line {at + 1}")  # noqa: PT017 - refusing is one of two right answers


def test_naughty_strings_pass_through_every_place() -> None:
    for string in naughty():
        history = history_of(
            record(f"u{string}", None, "user", {"text": f"{string}!"}, promptId=string),
            record("a", f"u{string}", "assistant",
                   {"functionCall": {"id": f"c{string}", "name": "f", "args": {string: string}}}),
            record("r", "a", "tool_result", {"functionResponse": {"id": f"c{string}", "name": "f",
                                                                  "response": {"output": string}}}),
        )  # fmt: skip
        assert history.drafts[0].blocks[0].text == f"{string}!"
        assert json.loads(history.drafts[0].metadata["promptId"]) == string
        assert history.drafts[1].blocks[0].input == {string: string}
        assert json.loads(history.drafts[2].blocks[0].parts or "")[0]["text"] == string
        assert history.drafts[2].parent == 1
