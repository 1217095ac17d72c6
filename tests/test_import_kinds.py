"""What people have in their files is taken in as it was said; what has no place is named, half of a thing is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger import FileError, open_ledger
from projector.formats import STREAMS
from tests.cassette_files import completion, taken
from tests.smallest_files import RECORD, of_json, of_lines, of_sse
from tests.test_commands import Shell
from tests.test_transport import frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledger import Ledger
    from tests.cassette_files import Told

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with open_ledger("memory:") as made:
        yield made


async def read(ledger: Ledger, path: Path, value: Any, **options: Any) -> Told:
    path.write_bytes(value if isinstance(value, bytes) else of_json(value))
    [one] = await taken(ledger, path, **options)
    return one


# text is text

CITED = {"citationsContent": {"content": [{"text": "forty"}, {"text": "-two"}], "citations": [{"title": "book"}]}}
GUARDED = {"guardContent": {"text": {"text": "How far?", "qualifiers": ["query"]}}}


async def test_what_bedrock_cites_and_guards_is_said(ledger: Ledger, tmp_path: Path) -> None:
    content = [{"text": "It is "}, CITED, {"text": "."}]
    answer = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}
    history = {
        "system": [GUARDED],
        "messages": [{"role": "user", "content": [GUARDED, CITED]}, {"role": "assistant", "content": [*content, GUARDED]}],
    }
    one = await read(ledger, tmp_path / "a.json", answer)
    assert one.texts == ["It is forty-two."]
    assert [len(block.citations) for block in one.messages[0].blocks] == [0, 1, 0]
    other = await read(ledger, tmp_path / "b.json", history)
    assert other.texts == ["How far?", "How far?forty-two", "It is forty-two.How far?"]


@pytest.mark.parametrize(
    "document",
    [
        {"contents": [{"role": "user", "parts": [{"text": "hi", "videoMetadata": {"fps": 1}}]}]},
        {"messages": [{"role": "user", "content": [{"text": "hi", "odd": 1}]}]},
        RECORD
        | {"message": {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}},
    ],
    ids=["gemini", "bedrock", "claude-code"],
)
async def test_text_with_more_beside_it_is_text_and_the_rest_is_kept(ledger: Ledger, tmp_path: Path, document: Any) -> None:
    one = await read(ledger, tmp_path / "c.json", document)
    [block] = one.messages[0].blocks
    assert (block.kind, block.text) == ("text", "hi")
    assert block.opaque is not None


@pytest.mark.parametrize("instructions", ["be brief", [{"role": "system", "content": "be brief"}]])
async def test_instructions_stand_first_as_a_system_message(ledger: Ledger, tmp_path: Path, instructions: Any) -> None:
    one = await read(ledger, tmp_path / "c.json", {"model": "m", "instructions": instructions, "input": "hi"})
    assert [(message.role, text) for message, text in zip(one.messages, one.texts, strict=True)] == [
        ("system", "be brief"),
        ("user", "hi"),
    ]


@pytest.mark.parametrize("system", ["be brief", {"parts": [{"text": "be brief"}]}, [{"text": "be brief"}]])
async def test_what_gemini_is_told_may_be_a_text_alone(ledger: Ledger, tmp_path: Path, system: Any) -> None:
    one = await read(ledger, tmp_path / "c.json", {"systemInstruction": system, "contents": "hi"}, format="gemini")
    assert one.texts == ["be brief", "hi"]


# numbers for names


@pytest.mark.parametrize(("number", "name"), [(1, "STOP"), (2, "MAX_TOKENS"), (3, "SAFETY"), (77, "77"), ("STOP", "STOP")])
async def test_a_reason_may_be_a_number(ledger: Ledger, tmp_path: Path, number: Any, name: str) -> None:
    candidate = {"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": number}
    one = await read(ledger, tmp_path / "c.json", {"candidates": [candidate]})
    assert (one.texts, one.runs[0].finish_reason) == (["Hello."], name)


ANSWERS: dict[str, Any] = {
    "chat": {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": 1}]},
    "bedrock": {"output": {"message": {"role": "assistant", "content": [{"text": "Hello."}]}}, "stopReason": 1},
    "anthropic": {
        "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hello."}], "stop_reason": 1, "usage": {},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_number_for_a_reason_is_kept_of_every_provider(ledger: Ledger, tmp_path: Path, name: str) -> None:
    one = await read(ledger, tmp_path / "c.json", ANSWERS[name])
    assert (one.texts, one.runs[0].finish_reason) == (["Hello."], "1")


async def test_a_prompt_may_be_blocked_for_a_reason_that_is_a_number(ledger: Ledger, tmp_path: Path) -> None:
    one = await read(ledger, tmp_path / "c.json", {"promptFeedback": {"blockReason": 3}})
    assert ([block.kind for block in one.messages[0].blocks], one.runs[0].finish_reason) == (["refusal"], "BLOCKLIST")


# several answers

CHUNKS: list[dict[str, Any]] = [
    {"id": "c", "choices": [{"index": 0, "delta": {"content": "Heads."}}]},
    {"id": "c", "choices": [{"index": 1, "delta": {"content": "Ta"}}]},
    {"id": "c", "choices": [{"index": 1, "delta": {"content": "ils."}}, {"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"id": "c", "choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]},
    {"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 4}},
]
WHOLE = completion("Heads.") | {
    "choices": [
        {"index": number, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        for number, (text, reason) in enumerate([("Heads.", "stop"), ("Tails.", "length")])
    ]
}
CANDIDATES = {
    "candidates": [
        {"index": number, "content": {"role": "model", "parts": [{"text": text}]}, "finishReason": reason}
        for number, (text, reason) in enumerate([("Heads.", "stop"), ("Tails.", "length")])
    ],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 4},
}


@pytest.mark.parametrize(
    "content", [of_sse(CHUNKS), of_lines(CHUNKS), of_json(WHOLE), of_json(CANDIDATES)], ids=["sse", "lines", "whole", "gemini"]
)
async def test_each_of_several_answers_is_a_branch_and_the_first_is_active(
    ledger: Ledger, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "c.json"
    one = await read(ledger, path, content)
    assert sorted(one.texts) == ["Heads.", "Tails."]
    assert [message.parent_id for message in one.messages] == [None, None]
    assert "".join(block.text for block in one.active[0].blocks) == "Heads."
    assert sorted(run.finish_reason or "" for run in one.runs) == ["length", "stop"]
    assert [bool(run.usage) for run in one.runs] == [False, True]
    assert "raw" not in [event.type for event in await ledger.store.read("c")]
    assert [added.added for added in (await ledger.import_file(path)).conversations] == [0]


@pytest.mark.parametrize(("name", "chunks"), [("chat", CHUNKS), ("gemini", [CANDIDATES])])
async def test_a_live_run_says_that_there_were_others(ledger: Ledger, name: str, chunks: list[Any]) -> None:
    async with ledger.run("c", format=name) as run:
        for chunk in chunks:
            await run.feed(chunk)
    [message] = await ledger.transcript("c")
    assert {"other_choices": "1", "other_candidates": "1"}.items() & message.metadata_text.items()


def test_a_recording_of_several_answers_is_played_to_its_end(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "c.sse").write_bytes(of_sse(CHUNKS))
    shell.run("play", str(tmp_path / "c.sse"), "--conversation", "c")
    [run] = shell.read("runs")["runs"]
    assert (run["outcome"], run["finish_reason"], [used["output"] for used in run["usage"].values()]) == (
        "completed",
        "stop",
        [4],
    )


# what leaves nothing


@pytest.mark.parametrize(
    "content",
    [
        {"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}], "responseId": "r"},
        completion(""),
        {"output": {"message": {"role": "assistant", "content": []}}, "stopReason": "end_turn"},
    ],
    ids=["gemini", "chat", "bedrock"],
)
async def test_an_answer_without_content_is_named(ledger: Ledger, tmp_path: Path, content: Any) -> None:
    one = await read(ledger, tmp_path / "c.json", content)
    assert (one.messages, one.losses) == ([], ["the answer has no content: no message is kept of it"])
    assert one.runs[0].outcome == "completed"


def test_nothing_is_exported_of_a_path_on_which_nothing_is_said(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    path = tmp_path / "c.json"
    path.write_bytes(of_json(completion("")))
    assert "has no content" in shell.run("import", str(path))
    for name in ("chat", "anthropic", "responses", "langchain", "chat-stream"):
        assert "there is nothing to export" in shell.run("export", "c", "--format", name, code=2)


async def test_a_message_without_content_among_others_is_named(ledger: Ledger, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}, {"role": "user", "content": "ho"}]
    one = await read(ledger, tmp_path / "c.json", said)
    assert (one.texts, one.losses) == (
        ["hi", "ho"],
        ["message 2, of the role assistant, has no content: nothing is kept of it"],
    )


# half of a thing

HALVES: list[Any] = [
    [{"type": "function_call", "timestamp": 1}],
    [{"type": "function_call", "call_id": "c", "name": "f"}],
    [{"type": "function_call", "call_id": "c", "name": "", "arguments": "{}"}],
    [{"type": "function_call_output", "output": "x"}],
    [{"type": "custom_tool_call", "name": "f", "input": "x"}],
    [{"type": "message", "role": "assistant"}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}],
    [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "", "arguments": "{}"}}]}],
    [{"role": "user", "content": "hi"}, {"role": "tool", "content": "x", "tool_call_id": ""}],
    [{"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}],
    {"messages": [{"role": "assistant", "content": [{"toolUse": {"name": "f", "input": {}}}]}]},
    {"contents": [{"role": "model", "parts": [{"functionCall": {"args": {}}}]}]},
    {"type": "assistant", "session_id": "s", "message": {"role": "assistant", "parts": []}},
]


@pytest.mark.parametrize("document", HALVES, ids=range(len(HALVES)))
async def test_half_of_a_thing_is_refused_and_what_it_was_taken_for_is_named(
    ledger: Ledger, tmp_path: Path, document: Any
) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(of_json(document))
    with pytest.raises(FileError, match=r"c\.json: .*\(it looks like [a-z-]+; if it is something else, name it with --format"):
        await ledger.import_file(path)
    assert [info async for info in ledger.conversations()] == []


async def test_half_of_a_record_among_whole_ones_is_refused_with_its_line(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    other = RECORD | {"uuid": "v", "parentUuid": "u", "message": {"role": "user", "parts": [{"text": "ho"}]}}
    path.write_bytes(of_lines([RECORD, other]))
    with pytest.raises(FileError, match='line 2, in "message": "content"'):
        await ledger.import_file(path)


async def test_an_error_alone_is_taken_where_its_format_is_named(ledger: Ledger, tmp_path: Path) -> None:
    for name, value in (("bedrock", {"message": "slow"}), ("chat", {"error": {"message": "slow"}})):
        one = await read(ledger, tmp_path / f"{name}.json", value, format=name)
        assert (one.runs[0].outcome, "slow" in (one.runs[0].error or "")) == ("failed", True)


async def test_an_error_of_a_line_names_the_line(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(of_lines([{"role": "user", "content": "hi"}, {"role": "bard", "content": "x"}]))
    with pytest.raises(FileError, match="line 2: "):
        await ledger.import_file(path)


async def test_formats_that_contradict_each_other_are_both_named(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    odd = [
        {"role": "assistant", "content": "", "toolCalls": []},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    ]
    path.write_bytes(of_json(odd))
    with pytest.raises(FileError, match=r"of the format anthropic, and one before it of agui: .*--format"):
        await ledger.import_file(path)
    path.write_bytes(of_json({"error": {"message": "x"}}))
    with pytest.raises(FileError, match=r"\(anthropic, chat, gemini, responses\): name it with --format"):
        await ledger.import_file(path)


# what a run of the CLI used


def cli(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "session_id": "s", "uuid": kind, "parent_tool_use_id": None} | fields


def cli_answer(ref: str, **usage: int) -> dict[str, Any]:
    content = [{"type": "text", "text": ref}]
    return cli("assistant", message={"id": ref, "role": "assistant", "model": "m", "content": content, "usage": usage})


async def test_what_the_result_says_was_used_wins_over_smaller_numbers(ledger: Ledger, tmp_path: Path) -> None:
    def ended(**usage: int) -> dict[str, Any]:
        return cli("result", subtype="success", is_error=False, stop_reason="end_turn", usage=usage)

    lines = [
        cli("system", subtype="init"),
        cli_answer("m1", input_tokens=3, output_tokens=1),
        cli_answer("m2", input_tokens=9, output_tokens=1, cache_read_input_tokens=2),
        ended(input_tokens=12, output_tokens=250, cache_read_input_tokens=2),
        cli_answer("m3", input_tokens=20, output_tokens=7),
        ended(input_tokens=20, output_tokens=5),
    ]
    one = await read(ledger, tmp_path / "c.jsonl", of_lines(lines))
    used = {ref: (each.input, each.output) for run in one.runs for ref, each in run.usage.items()}
    assert used == {"m1": (3, 1), "m2": (11, 249), "m3": (20, 7)}
    [info] = [info async for info in ledger.conversations()]
    assert [result["usage"]["output_tokens"] for result in json.loads(info.metadata_text["earlier_results"])] == [250]


# errors in frames


async def test_an_error_frame_alone_is_a_failed_run(ledger: Ledger, tmp_path: Path) -> None:
    for name, headers in (
        ("a", {"message_type": "exception", "exception_type": "throttlingException"}),
        ("b", {"message_type": "error", "error_code": "InternalError", "error_message": "slow"}),
    ):
        one = await read(ledger, tmp_path / f"{name}.frames", frame(b'{"message":"slow"}', **headers))
        assert (one.runs[0].outcome, "slow" in (one.runs[0].error or "")) == ("failed", True)


def test_bedrock_takes_an_error_that_it_answers_instead_of_a_response() -> None:
    stream = STREAMS["bedrock"]("r", lambda: "r.1")
    assert stream.feed(json.dumps({"message": "no such model"})) == []
    assert (stream.end().outcome, "no such model" in (stream.end().error or "")) == ("failed", True)


async def test_a_session_that_was_kept_as_one_document_is_a_line_of_messages(ledger: Ledger, tmp_path: Path) -> None:
    lines = [
        {"type": "user", "timestamp": "2025-01-31T12:00:00Z", "message": {"role": "user", "content": "hi"}},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}},
        {"type": "user", "message": {"role": "user", "content": "bye"}},
    ]
    one = await read(ledger, tmp_path / "c.json", {"loglines": lines})
    assert one.texts == ["hi", "Hello.", "bye"]
    assert one.messages == one.active


# a recording that breaks off

DELTAS = [
    {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "né "}}]},
    {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "€ 日本 \U0001f600"}}]},
]


@pytest.mark.parametrize("name", ["lines", "sse", "list"])
async def test_a_stream_that_breaks_off_inside_a_character_is_kept_so_far(ledger: Ledger, tmp_path: Path, name: str) -> None:
    framed = {
        "lines": b"".join(json.dumps(delta, ensure_ascii=False).encode() + b"\n" for delta in DELTAS),
        "sse": b"".join(b"data: " + json.dumps(delta, ensure_ascii=False).encode() + b"\n\n" for delta in DELTAS),
        "list": json.dumps(DELTAS, ensure_ascii=False).encode(),
    }
    whole = framed[name]
    for length in range(whole.index("€".encode()), len(whole.rstrip(b"]}\n"))):
        one = await read(ledger, tmp_path / f"{length}.x", whole[:length])
        assert (one.texts, one.runs[0].outcome) == (["né "], "incomplete"), length
