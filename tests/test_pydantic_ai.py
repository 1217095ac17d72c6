"""Pydantic AI's message histories: all kinds of parts in and out, older forms, what can't be said, and broken histories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.test import TestModel

from projector.events import RunFinished
from projector.formats import WRITERS
from projector.formats.format import FormatError
from projector.formats.pydantic_ai.reader import read
from projector.formats.pydantic_ai.writer import write
from projector.formats.registry import NAMED
from projector.formats.shared.history import History, runs_of, text_block
from projector.formats.shared.payloads import signer_of
from tests.shared_data import imported
from tests.ui_readings import a_message
from tests.wrong_values import WRONGS, places, put

if TYPE_CHECKING:
    from projector.message import Message

pytestmark = pytest.mark.anyio
T: Final = "2026-03-04T05:06:07.123456Z"
BYTES: Final = "-_-_"  # of the URL-safe alphabet
FAULT: Final = {"type": "json_invalid", "loc": ["a", 0], "msg": "bad", "input": "{bro"}
ASKED: Final[dict[str, Any]] = {
    "kind": "request", "timestamp": T, "instructions": "Be brief.", "run_id": "r1", "conversation_id": "c",
    "metadata": {"a": [1.5]}, "parts": [
        {"part_kind": "system-prompt", "content": "You help.", "timestamp": T, "dynamic_ref": "d"},
        {"part_kind": "user-prompt", "timestamp": T, "content": [
            "look", {"kind": "text-content", "content": "here", "metadata": {"x": 1}},
            {"kind": "structured-content", "value": {"river": ["Aare"]}, "format": "json"},
            {"kind": "image-url", "url": "https://e.org/a", "force_download": True, "vendor_metadata": {"detail": "low"}},
            {"kind": "audio-url", "url": "https://e.org/a.mp3"},
            {"kind": "video-url", "url": "https://e.org/a.mp4", "media_type": "video/mp4"},
            {"kind": "document-url", "url": "https://e.org/a.pdf", "identifier": "i"},
            {"kind": "binary", "data": BYTES, "media_type": "image/png", "identifier": "b"},
            {"kind": "uploaded-file", "file_id": "f1", "provider_name": "openai"}, {"kind": "cache-point", "ttl": "1h"},
        ]},
    ],
}  # fmt: skip
ANSWERED: Final[dict[str, Any]] = {
    "kind": "response", "timestamp": T, "model_name": "m", "provider_name": "anthropic", "provider_response_id": "msg_1",
    "finish_reason": "tool_call", "run_id": "r1", "conversation_id": "c", "provider_details": {"finish_reason": "tool_use"},
    "usage": {"input_tokens": 9, "output_tokens": 5, "cache_read_tokens": 4, "cache_write_tokens": 1,
              "details": {"reasoning_tokens": 2}},
    "parts": [
        {"part_kind": "thinking", "content": "hm", "signature": "c2ln", "provider_name": "anthropic"},
        {"part_kind": "thinking", "content": "", "id": "redacted_thinking", "signature": "eA==", "provider_name": "anthropic"},
        {"part_kind": "thinking", "content": "", "id": "redacted_content", "signature": "eQ==", "provider_name": "bedrock"},
        {"part_kind": "thinking", "content": "so", "id": "rs_1", "signature": "gAAA", "provider_name": "openai",
         "provider_details": {"raw_content": ["so so"]}},
        {"part_kind": "text", "content": "I see", "id": "t1", "provider_name": "anthropic", "citations": [
            {"sources": [{"kind": "web", "url": "https://e.org", "title": "E", "excerpts": ["q"]}],
             "anchor": {"kind": "content", "start": 0, "end": 1}}]},
        {"part_kind": "builtin-tool-call", "tool_name": "web_search", "args": {"q": "x"}, "tool_call_id": "s1",
         "provider_name": "anthropic"},
        {"part_kind": "builtin-tool-return", "tool_name": "web_search", "content": [{"url": "u"}], "tool_call_id": "s1",
         "timestamp": T, "provider_name": "anthropic"},
        {"part_kind": "tool-call", "tool_name": "f", "args": {"x": [1.5, None]}, "tool_call_id": "c1"},
        {"part_kind": "tool-call", "tool_name": "g", "args": '{"y": 1.50}', "tool_call_id": "c2", "provider_name": "google",
         "provider_details": {"thought_signature": "dHM="}},
        {"part_kind": "tool-call", "tool_name": "h", "tool_call_id": "c3"},
        {"part_kind": "tool-call", "tool_name": "h", "args": "{bro", "tool_call_id": "c4"},
        {"part_kind": "tool-call", "tool_name": "h", "args": "", "tool_call_id": "c5"},
        {"part_kind": "tool-call", "tool_name": "h", "args": {}, "tool_call_id": "c6"},
        {"part_kind": "tool-call", "tool_name": "h", "args": {}, "tool_call_id": "c7"},
        {"part_kind": "file", "content": {"kind": "binary", "data": BYTES, "media_type": "image/png",
                                          "vendor_metadata": {"k": 1}}, "id": "fi", "provider_name": "openai"},
        {"part_kind": "compaction", "content": "sum", "id": "cm", "provider_name": "anthropic"},
        {"part_kind": "speech", "speaker": "assistant", "transcript": "spoken", "interrupted_at_ms": 5,
         "audio": {"kind": "binary", "data": BYTES, "media_type": "audio/wav"}},
    ],
}  # fmt: skip
RETURNED: Final[dict[str, Any]] = {
    "kind": "request", "timestamp": T, "instructions": "Be brief.", "run_id": "r1", "conversation_id": "c", "parts": [
        {"part_kind": "user-prompt", "content": "also", "timestamp": T},
        {"part_kind": "tool-return", "tool_name": "f", "content": "ok", "tool_call_id": "c1", "timestamp": T, "metadata": [1]},
        {"part_kind": "tool-return", "tool_name": "g", "content": {"a": [1.5]}, "tool_call_id": "c2", "timestamp": T,
         "outcome": "failed"},
        {"part_kind": "tool-return", "tool_name": "h", "content": None, "tool_call_id": "c3", "timestamp": T,
         "outcome": "denied"},
        {"part_kind": "retry-prompt", "tool_name": "h", "content": [FAULT], "tool_call_id": "c4", "timestamp": T},
        {"part_kind": "tool-return", "tool_name": "h", "tool_call_id": "c5", "timestamp": T, "outcome": "retried",
         "content": ["a", {"kind": "binary", "data": BYTES, "media_type": "image/png"}, {"k": 1}],
         "retry": {"cause": "model_retry", "attempt": 1}},
        {"part_kind": "tool-return", "tool_name": "h", "tool_call_id": "c6", "timestamp": T, "outcome": "interrupted",
         "content": {"kind": "image-url", "url": "https://e.org/i", "media_type": None, "vendor_metadata": None}},
        {"part_kind": "tool-return", "tool_name": "h", "content": [], "tool_call_id": "c7", "timestamp": T},
        {"part_kind": "tool-availability-delta", "tools_added": ["t"]},
    ],
}  # fmt: skip
OTHERS: Final[list[dict[str, Any]]] = [
    {"kind": "response", "timestamp": T, "parts": [], "usage": {}, "conversation_id": "c"},
    {"kind": "request", "timestamp": T, "instructions": "Be longer.", "parts": [], "conversation_id": "c"},
    {"kind": "response", "timestamp": T, "parts": [{"part_kind": "text", "content": ""}], "conversation_id": "c"},
    {"kind": "request", "timestamp": T, "parts": [], "state": "interrupted", "conversation_id": "c"},
    {"kind": "request", "conversation_id": "c", "parts": [
        {"part_kind": "retry-prompt", "content": "again", "timestamp": T},
        {"part_kind": "retry-prompt", "content": [FAULT], "timestamp": T},
        {"part_kind": "retry-feedback", "content": "no", "retry": {"cause": "no_output"}, "timestamp": T},
        {"part_kind": "compaction", "content": "earlier", "metadata": {"q": 1}},
        {"part_kind": "speech", "speaker": "user", "transcript": "spoken too"},
        {"part_kind": "speech", "speaker": "user", "audio": {"kind": "binary", "data": BYTES, "media_type": "audio/wav"}},
        {"part_kind": "user-prompt", "content": ["only"], "timestamp": T},
        {"part_kind": "user-prompt", "content": "", "timestamp": T},
        {"part_kind": "user-prompt", "content": [], "timestamp": T},
    ]},
    {"kind": "response", "timestamp": T, "state": "interrupted", "parts": [{"part_kind": "text", "content": "half"}],
     "conversation_id": "c"},
]  # fmt: skip
EVERYTHING: Final = [ASKED, ANSWERED, RETURNED, *OTHERS]
ASK: Final[dict[str, Any]] = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]}


def taken(payload: Any) -> list[Any]:
    """The messages as Pydantic AI itself reads them."""
    return ModelMessagesTypeAdapter.validate_json(json.dumps(payload))


def history_of(*messages: Any) -> History:
    [history] = read(json.dumps(messages))
    return history


def bare(value: Any) -> Any:
    """Null is as good as absent."""
    if isinstance(value, dict):
        return {name: bare(inner) for name, inner in value.items() if inner is not None}
    return [bare(inner) for inner in value] if isinstance(value, list) else value


def once_more(messages: list[Message]) -> list[Message]:
    return imported(history_of(*write(messages).payload))


# in and out


def test_messages_of_every_kind_go_in_and_out_unchanged() -> None:
    history = history_of(*EVERYTHING)
    written = write(imported(history))
    assert (written.losses, written.repairs, history.losses, history.name) == ((), (), (), "c")
    assert bare(written.payload) == bare(EVERYTHING)
    assert taken(written.payload) == taken(EVERYTHING)


def test_what_pydantic_ai_dumps_goes_in_and_out_unchanged() -> None:
    dumped = json.loads(ModelMessagesTypeAdapter.dump_json(taken(EVERYTHING)))
    written = write(imported(history_of(*dumped)))
    assert (written.losses, written.repairs) == ((), ())
    assert taken(written.payload) == taken(dumped)


async def test_an_agent_goes_on_with_what_was_kept_of_its_runs() -> None:
    agent = Agent(TestModel(), instructions="Be brief.", system_prompt="You know rivers.", retries=2)
    asked: list[str] = []

    @agent.tool_plain
    def length(river: str) -> dict[str, int]:
        asked.append(river)
        if len(asked) == 1:
            raise ModelRetry("Which one?")
        return {"km": 288}

    first = await agent.run("How long is the Aare?")
    second = await agent.run("And the Reuss?", message_history=first.all_messages())
    history = history_of(*json.loads(second.all_messages_json()))
    assert [draft.role for draft in history.drafts] == [
        "system", "system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert [draft.usage is not None for draft in history.drafts if draft.role == "assistant"] == [True] * 4
    written = write(imported(history))
    assert (written.losses, written.repairs) == ((), ())
    assert taken(written.payload) == second.all_messages()
    third = await agent.run("So?", message_history=taken(written.payload))
    assert third.all_messages()[:8] == second.all_messages()


@pytest.mark.parametrize("name", [each.name for each in NAMED.values() if each.check and each.write])
def test_every_provider_takes_a_history_of_pydantic_ai(name: str) -> None:
    check = NAMED[name].check
    assert check is not None
    assert check(WRITERS[name](imported(history_of(*EVERYTHING))).payload) == []


def test_a_history_in_an_object_and_a_message_alone_are_read() -> None:
    [kept] = read(json.dumps({"messages": EVERYTHING, "user": "u"}))
    assert (kept.drafts, kept.metadata) == (history_of(*EVERYTHING).drafts, {"user": '"u"'})
    [alone] = read(json.dumps(ASK))
    assert [draft.role for draft in alone.drafts] == ["user"]


def test_roles_texts_and_statuses_are_what_they_are_everywhere() -> None:
    messages = imported(history_of(ASKED, ANSWERED, RETURNED))
    assert [(message.role, message.text) for message in messages] == [
        ("system", "Be brief."), ("system", "You help."), ("user", 'lookhere{"river": ["Aare"]}'), ("assistant", "I seespoken"),
        *[("tool", "")] * 7, ("user", "also"), ("system", ""),
    ]  # fmt: skip
    assert [message.blocks[0].status for message in messages[4:11]] == [
        "ok", "error", "denied", "error", "error", "interrupted", "ok",
    ]  # fmt: skip
    assert [block.fields["data"] for block in messages[2].blocks if "data" in block.fields] == ["+/+/"]  # as others have it
    calls = [block for block in messages[3].blocks if block.kind == "tool_call"]
    assert [(call.name, call.text, call.parse) for call in calls[:4]] == [
        ("f", '{"x": [1.5, null]}', "ok"), ("g", '{"y": 1.50}', "ok"), ("h", "{}", "ok"), ("h", "{bro", "bad"),
    ]  # fmt: skip
    [draft] = [draft for draft in history_of(ASKED, ANSWERED, RETURNED).drafts if draft.role == "assistant"]
    used = draft.usage
    assert used is not None
    assert (used.input, used.output, used.cached, used.cache_write, used.reasoning) == (9, 5, 4, 1, 2)
    assert (draft.model, draft.provider, draft.finish_reason, draft.provider_ref) == ("m", "anthropic", "tool_call", "msg_1")
    assert draft.created_at == 1772600767123


def test_instructions_are_a_system_message_where_they_are_new() -> None:
    def ask(text: str, **more: Any) -> dict[str, Any]:
        return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text, "timestamp": T}], **more}

    answer = {"kind": "response", "parts": [{"part_kind": "text", "content": "so"}], "timestamp": T}
    said = [ask("1", instructions="A"), answer, ask("2", instructions="A"), answer, ask("3"), answer,
            ask("4", instructions="B"), answer]  # fmt: skip
    history = history_of(*said)
    assert [(draft.role, draft.blocks[0].text) for draft in history.drafts if draft.role != "assistant"] == [
        ("system", "A"), ("user", "1"), ("user", "2"), ("user", "3"), ("system", "B"), ("user", "4"),
    ]  # fmt: skip
    assert write(imported(history)).payload == said
    assert [len(run.message_ids) for run in runs_of(history, "x")] == [3, 2, 2, 3]  # instructions go with what follows
    more = [*imported(history), a_message(99, "user", text_block("5"))]
    assert write(more).payload[-1]["instructions"] == "B"


def test_an_answer_that_was_cut_off_is_partial_and_its_run_incomplete() -> None:
    half = {"kind": "response", "state": "interrupted", "parts": [{"part_kind": "text", "content": "ha"}], "timestamp": T}
    history = history_of(ASK, half, ASK)
    ends = [body.outcome for run in runs_of(history, "x") for body in run.bodies if isinstance(body, RunFinished)]
    assert ends == ["incomplete", "completed"]
    assert [message.status for message in imported(history)] == ["complete", "partial", "complete"]
    native = replace(a_message(2, "assistant", text_block("ha")), status="partial")
    assert write([a_message(1, "user", text_block("?")), native]).payload[1]["state"] == "interrupted"


def test_signatures_are_of_the_maker_that_a_part_names_and_go_to_him() -> None:
    messages = imported(history_of(ASKED, ANSWERED, RETURNED))
    assert [(block.signature, signer_of(block)) for block in messages[3].blocks if block.signature] == [
        ("c2ln", "anthropic"), ("gAAA", "openai"), ("dHM=", "google"),
    ]  # fmt: skip
    sent = json.dumps(WRITERS["anthropic"](messages).payload)
    assert '{"type": "thinking", "thinking": "hm", "signature": "c2ln"}' in sent
    assert '{"type": "redacted_thinking", "data": "eA=="}' in sent
    assert "gAAA" not in sent
    items = WRITERS["responses"](messages).payload
    assert [item["encrypted_content"] for item in items if item.get("type") == "reasoning"] == ["gAAA"]
    assert [item["id"] for item in items if item.get("type") == "reasoning"] == ["rs_1"]


def test_what_is_of_a_kind_that_nobody_knows_is_kept_for_pydantic_ai() -> None:
    said = [
        {"kind": "request", "parts": [ASK["parts"][0] | {"timestamp": T}, {"part_kind": "hologram", "n": [1.5]}]},
        {"kind": "response", "timestamp": T, "hue": "red", "parts": [{"part_kind": "aura", "n": 1}]},
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": [{"kind": "scent", "n": 2}], "timestamp": T}]},
    ]
    messages = imported(history_of(*said))
    assert write(messages).payload == said
    for name in ("chat", "anthropic", "responses"):
        losses = [loss.what for loss in WRITERS[name](messages).losses]
        assert len([what for what in losses if "provider" in what]) == 3, name


# older forms


def test_calls_without_an_id_are_answered_by_name_and_order() -> None:
    def call(name: str, **args: int) -> dict[str, Any]:
        return {"part_kind": "tool-call", "tool_name": name, "args": args, "tool_call_id": None}

    def result(name: str, content: str) -> dict[str, Any]:
        return {"part_kind": "tool-return", "tool_name": name, "content": content, "tool_call_id": None, "timestamp": T}

    messages = imported(
        history_of(
            ASK,
            {"kind": "response", "parts": [call("f", x=1), call("g"), call("f", x=2)], "timestamp": T},
            {"kind": "request", "parts": [result("f", "1"), result("f", "2"), result("g", "3")]},
        )
    )
    ids = [block.tool_call_id for block in messages[1].blocks]
    assert len(set(ids)) == 3
    assert [message.blocks[0].tool_call_id for message in messages[2:]] == [ids[0], ids[2], ids[1]]
    written = write(messages)
    assert written.repairs == ()
    taken(written.payload)


def test_older_names_of_usage_and_ids_are_read() -> None:
    usage = {"requests": 1, "request_tokens": 7, "response_tokens": 3, "total_tokens": 10, "details": None}
    old = {
        "kind": "response",
        "parts": [{"part_kind": "text", "content": "x"}],
        "usage": usage,
        "vendor_id": "v",
        "timestamp": T,
    }
    draft = history_of(ASK, old).drafts[1]
    assert draft.usage is not None
    assert (draft.usage.input, draft.usage.output, draft.provider_ref) == (7, 3, "v")
    assert taken(write(imported(history_of(ASK, old))).payload)[1] == taken([old])[0]


def test_usage_of_which_nobody_told_is_none() -> None:
    zeros = {"input_tokens": 0, "output_tokens": 0, "details": {}}
    said = {"kind": "response", "parts": [{"part_kind": "text", "content": "x"}], "usage": zeros}
    assert history_of(ASK, said).drafts[1].usage is None


# what is refused


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "a JSON list"), ("{", "a JSON list"), ("7", "a JSON list"), ("{}", '"messages"'), ("[1]", "message 1"),
        ("[", "a list was expected"), ('{"kind":"request"}', '"parts"'),
        ('[{"role":"user","content":"x"}]', 'message 1: .*"kind"'), ('[{"kind":"request","parts":{}}]', "message 1"),
        ('[{"kind":"answer","parts":[]}]', '"response"'), ('[{"kind":"request","parts":[7]}]', '"parts" at 0'),
        ('[{"kind":"request","parts":[{"content":"x"}]}]', '"part_kind" should be text'),
        ('[{"kind":"request","parts":[{"part_kind":"user-prompt"}]}]', '"content" should be text'),
        ('[{"kind":"request","parts":[{"part_kind":"user-prompt","content":7}]}]', '"content" should be text'),
        ('[{"kind":"request","parts":[{"part_kind":"user-prompt","content":[7]}]}]', "a JSON object was expected"),
        ('[{"kind":"request","parts":[{"part_kind":"user-prompt","content":[{"url":"x"}]}]}]', '"kind" should be text'),
        ('[{"kind":"request","parts":[{"part_kind":"user-prompt","content":[{"kind":"image-url"}]}]}]', '"url"'),
        ('[{"kind":"request","parts":[{"part_kind":"tool-return","content":"x"}]}]', '"tool_name"'),
        ('[{"kind":"request","parts":[{"part_kind":"tool-return","tool_name":"f"}]}]', '"content" is not there'),
        ('[{"kind":"request","parts":[{"part_kind":"tool-return","tool_name":"f","content":1,"outcome":"odd"}]}]', "denied"),
        ('[{"kind":"request","parts":[{"part_kind":"system-prompt","content":"x","timestamp":"soon"}]}]', "should be a time"),
        ('[{"kind":"response","parts":[{"part_kind":"text"}]}]', '"content" should be text'),
        ('[{"kind":"response","parts":[{"part_kind":"tool-call","tool_name":"f","args":[1]}]}]', '"args"'),
        ('[{"kind":"response","parts":[{"part_kind":"file","content":{"kind":"image-url","url":"x"}}]}]', '"binary"'),
        ('[{"kind":"response","parts":[],"usage":{"input_tokens":"many"}}]', "a whole number"),
    ],
)  # fmt: skip
def test_what_are_no_messages_is_refused_with_the_place(bad: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        list(read(bad))


@pytest.mark.heavy
def test_fields_of_another_kind_are_refused_with_their_place() -> None:
    """Each value of a history is replaced, one at a time: it is read, or refused, and never breaks the reader."""
    for at, message in enumerate(EVERYTHING):
        for place in places(message):
            for wrong in WRONGS:
                told = json.dumps([*EVERYTHING[:at], put(message, place, wrong), *EVERYTHING[at + 1 :]])
                try:
                    messages = imported(next(read(told)))
                except FormatError as error:
                    assert str(error).startswith(f"message {at + 1}")  # noqa: PT017 - refusing is one of two right answers
                else:
                    json.dumps(WRITERS["pydantic-ai"](messages).payload)
