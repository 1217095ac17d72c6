"""What an agent produces is said in one line each, without a provider's stream, and comes back as it was said."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter
from structlog.testing import capture_logs

from ledger import File, RunEnded, UnknownMedia, UnknownToolCall, open_ledger
from ledger.runs.contents import KINDS
from projector import Block, Message
from projector.formats import WRITERS
from projector.formats.shared.media_refs import REFERENCE
from projector.formats.validators import (
    validate_anthropic,
    validate_bedrock,
    validate_chat,
    validate_gemini,
    validate_responses,
)
from projector.json_text import decode, encode
from stream import NewEvent, StoreFull

if TYPE_CHECKING:
    from ledger import Ledger

pytestmark = pytest.mark.anyio

PROGRAM: Final = Path(__file__).parent / "programs" / "fake_agent.py"
VALIDATORS: Final = {
    "anthropic": validate_anthropic, "bedrock": validate_bedrock, "chat": validate_chat, "gemini": validate_gemini,
    "responses": validate_responses,
}  # fmt: skip
IMAGE: Final = b"\x89PNG" + bytes(range(256))
MEDIA_ID: Final = hashlib.sha256(IMAGE).hexdigest()


def said(messages: list[Message]) -> list[tuple[str, list[str]]]:
    return [(message.role, [block.kind for block in message.blocks]) for message in messages]


async def parts_of(ledger: Ledger) -> list[Any]:
    return [
        json.loads(block.parts or "") for message in await ledger.transcript("c") for block in message.blocks if block.parts
    ]


def test_a_program_of_forty_lines_records_a_turn_that_six_formats_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(PROGRAM.read_text(encoding="utf-8").splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), str(tmp_path / "c.db")])
    for _ in range(2):
        runpy.run_path(str(PROGRAM), run_name="__main__")
    asyncio.run(check_turns(str(tmp_path / "c.db")))


async def check_turns(path: str) -> None:
    async with open_ledger(path, create=False) as ledger:
        messages = await ledger.transcript("chat")
        turn = [
            ("user", ["text", "media"]), ("assistant", ["reasoning", "tool_call", "tool_call"]),
            ("tool", ["tool_result"]), ("tool", ["tool_result"]), ("assistant", ["text"]),
        ]  # fmt: skip
        assert said(messages) == [*turn, *turn]
        assert messages[0].name == "ada"
        assert messages[4].text == "It is noon, and 20 degrees."
        assert [block.input for block in messages[1].blocks[1:]] == [{"city": "Zürich"}, {"zone": "CET"}]
        runs = [run async for run in ledger.runs("chat")]
        assert [[(used.input, used.output, used.reasoning) for used in run.usage.values()] for run in runs] == [
            [(120, 40, 12)]
        ] * 2
        for name in (*VALIDATORS, "pydantic-ai"):
            export = await ledger.export("chat", name)
            whole = json.dumps(export.payload)
            if name in VALIDATORS:
                assert not list(VALIDATORS[name](export.payload)), name
            else:
                assert len(ModelMessagesTypeAdapter.validate_json(whole)) > 4
            for piece in ("Z\\u00fcrich", "celsius", "12:00", "and 20 degrees", "iVBORw0KGgo"):
                assert piece in whole, (name, piece)


async def test_text_reasoning_and_calls_are_blocks_of_one_message_in_their_order(ledger: Ledger) -> None:
    async with ledger.run("c", flush_ms=0) as run:
        await run.reasoning("hm, ")
        await run.reasoning("so")
        await run.text("I ")
        await run.text("look")
        first = await run.tool_call("look", {"at": "\ud800 é", "n": 2**70})
        second = await run.tool_call("look", '{"at": ', id="mine")
        await run.text("and go on")
        await run.tool_result(second, "broken", status="error")
        await run.text("done")
    [one, result, last] = await ledger.transcript("c")
    assert [(block.kind, block.text, block.number) for block in one.blocks if block.kind != "tool_call"] == [
        ("reasoning", "hm, so", 0), ("text", "I look", 1), ("text", "and go on", 4)
    ]  # fmt: skip
    assert [(block.tool_call_id, block.parse, block.input) for block in one.blocks if block.kind == "tool_call"] == [
        (first, "ok", {"at": "\ud800 é", "n": 2**70}), ("mine", "bad", None)
    ]  # fmt: skip
    assert all(block.sealed for block in one.blocks)
    assert {message.status for message in (one, result, last)} == {"complete"}
    assert (result.blocks[0].tool_call_id, result.blocks[0].status) == ("mine", "error")
    assert first.startswith("call_")
    assert await ledger.anomalies("c") == []


async def test_a_message_has_a_speaker_metadata_a_time_and_blocks(ledger: Ledger) -> None:
    given = Block("tool_call", text='{"a":1}', name="look", tool_call_id="t", parse="ok")
    async with ledger.run("c") as run:
        await run.message("user", "q", name="ada", metadata={"id": 7, "tags": ["ä", None]}, created_at=1_000)
        await run.message("assistant", ["I look", given])
        await run.tool_result("t", "x", created_at=2_000)
        await run.message("user", [])
    [question, call, result] = await ledger.transcript("c")
    assert (question.name, question.created_at, result.created_at) == ("ada", 1_000, 2_000)
    assert question.metadata == {"id": 7, "tags": ["ä", None]}
    assert [(block.number, block.kind, block.sealed) for block in call.blocks] == [(0, "text", True), (1, "tool_call", True)]
    assert call.blocks[1].input == {"a": 1}


async def test_a_file_is_its_bytes_its_path_or_media_that_are_there(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(IMAGE)
    async with ledger.run("c") as run:
        await run.message("user", [File(data=IMAGE, media_type="image/jpeg", name="mine"), File(path=tmp_path / "cat.png")])
        await run.message("user", ["again", File(media_id=MEDIA_ID), File(path=str(tmp_path / "cat.png"), media_type="a/b")])
        call = await run.tool_call("draw", {})
        await run.tool_result(call, File(path=tmp_path / "cat.png"))
        await run.tool_call("draw", {}, id="t")
        await run.tool_result("t", ["two", File(media_id=MEDIA_ID), {"kind": "text", "text": "x"}])
    messages = await ledger.transcript("c")
    media = [block for message in messages for block in message.blocks if block.kind == "media"]
    assert [(block.media_type, block.name) for block in media] == [
        ("image/jpeg", "mine"), ("image/png", "cat.png"), ("image/jpeg", None), ("a/b", "cat.png")
    ]  # fmt: skip
    assert {block.fields["data"] for block in media} == {REFERENCE + MEDIA_ID}
    log = b"".join(event.data for event in await ledger.store.read("c"))
    assert base64.b64encode(IMAGE)[:60] not in log
    assert (await ledger.media(MEDIA_ID)).data == IMAGE
    kinds = [[(part["kind"], part.get("media_type")) for part in parts] for parts in await parts_of(ledger)]
    assert kinds == [[("media", "image/png")], [("text", None), ("media", "image/jpeg"), ("text", None)]]
    assert json.dumps((await ledger.export("c", "anthropic")).payload).count(base64.b64encode(IMAGE).decode()) >= 5


async def test_what_is_no_file_here_takes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.add_media("other", IMAGE, "image/png")
    (tmp_path / "odd").write_bytes(IMAGE)
    async with ledger.run("c") as run:
        await run.text("said")
        with pytest.raises(FileNotFoundError, match=r"none\.png"):
            await run.message("user", ["x", File(path=tmp_path / "none.png")])
        with pytest.raises(ValueError, match="does not tell its media_type"):
            await run.message("user", [File(path=tmp_path / "odd")])
        with pytest.raises(UnknownMedia):  # what another conversation has is none of its business
            await run.message("user", [File(media_id=MEDIA_ID)])
        await run.text(" on")
    assert [message.text for message in await ledger.transcript("c")] == ["said on"]


async def test_a_message_whose_file_can_not_be_kept_is_refused_whole(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> str:
        raise StoreFull("the disk is full")

    async with ledger.run("c") as run:
        await run.text("said")
        with monkeypatch.context() as patched:
            patched.setattr("ledger.runs.media.put_media", fail)
            with pytest.raises(StoreFull):
                await run.message("user", [File(data=IMAGE, media_type="image/png")])
        await run.text(" on")
    assert [message.text for message in await ledger.transcript("c")] == ["said on"]


async def test_a_message_with_a_file_that_is_cancelled_anywhere_is_whole_or_absent(ledger: Ledger) -> None:
    found = set()
    for steps in range(12):
        async with ledger.run("c") as run:
            await run.text("said")
            call = asyncio.ensure_future(
                run.message("user", ["look", File(data=IMAGE + bytes([steps]), media_type="image/png")])
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            await run.text(" on")
        texts = [message.text for message in await ledger.transcript("c") if message.run_id == run.run_id]
        found.add(tuple(texts))
    assert found == {("said on",), ("said", "look", " on")}


@pytest.mark.parametrize(
    "value",
    [
        None, 5, True, 1.5, [], {}, {"temperature": 20}, [1, "a", None], ["a"], [[]], [{"kind": "bug", "n": 1}], [{"kind": 5}],
        [{"text": "x"}], [{"kind": "text", "text": "x"}, 5], {"é": "\ud800", "n": 2**200, "deep": [{"x": []}]},
        [{"kind": "data", "value": 1}], [{"kind": "media", "title": "Dune"}], [{"kind": "provider", "name": "gas"}],
        [{"kind": "data", "text": "half of", "more": 1}], [{"kind": "data", "text": "no JSON"}],
    ],
)  # fmt: skip
async def test_a_result_is_any_json_and_every_format_says_it(ledger: Ledger, value: Any) -> None:
    async with ledger.run("c") as run:
        await run.message("user", "q")
        await run.tool_result(await run.tool_call("look", {}), value)
    [[part]] = await parts_of(ledger)
    assert part["kind"] == "data"
    assert json.loads(part["text"]) == value
    assert (await ledger.transcript("c"))[-1].blocks[0].result == value
    for name, validate in VALIDATORS.items():
        export = await ledger.export("c", name)
        assert not list(validate(export.payload)), name
        assert not [loss for loss in export.losses if "result" in loss.what or "part" in loss.what], name
    if value == {"temperature": 20}:
        assert "temperature" in json.dumps((await ledger.export("c", "chat")).payload)


@pytest.mark.parametrize("name", sorted(WRITERS))
async def test_a_part_of_a_result_is_sent_or_said_to_be_lost(ledger: Ledger, name: str) -> None:
    empty = File(data=b"", media_type="image/png")
    made = {"kind": "provider", "opaque": {"provider": "somebody", "payload": {"n": "kept"}}}
    for conversation, given in (("empty", empty), ("made", [made])):
        async with ledger.run(conversation) as run:
            await run.message("user", "q")
            await run.tool_result(await run.tool_call("look", {}), given)
        export = await ledger.export(conversation, name)
        assert export.losses or "kept" in json.dumps(export.payload), conversation


async def test_text_and_parts_of_a_result_are_what_they_were(ledger: Ledger) -> None:
    parts = [{"kind": "text", "text": "x", "n": 2**70}, {"kind": "data", "text": "{}"}]
    async with ledger.run("c") as run:
        for given in ("plain", "[1]", parts):
            await run.tool_result(await run.tool_call("look", {}), given)
    text = [{"kind": "text", "text": "plain"}], [{"kind": "text", "text": "[1]"}]
    assert await parts_of(ledger) == [*text, parts]
    blocks = [block for message in await ledger.transcript("c") for block in message.blocks]
    assert [block.result for block in blocks if block.kind == "tool_result"] == ["plain", "[1]", parts]
    assert {block.result for block in blocks if block.kind == "tool_call"} == {None}


def test_every_block_can_be_asked_for_its_input_and_its_result() -> None:
    for text in ("hello", "", "7", "{"):
        for kind in KINDS:
            for parse in (None, "ok", "bad"):
                block = Block(kind, text=text, sealed=True, parse=parse)
                assert block.input == (7 if kind.endswith("tool_call") and text == "7" and parse != "bad" else None)
                assert block.result is None
    for parts in ("[]", '[{"kind":"media"}]', '[{"kind":"text"}]', '[{"kind":"data","text":"{"}]', "{}", "5"):
        assert Block("tool_result", parts=parts).result == json.loads(parts)


def test_a_block_that_msgspec_refuses_has_the_same_names_as_any_other() -> None:
    for text in ("plain", "half a sign \ud800"):
        block = Block("tool_call", text=text, input_text='{"a":1}', sealed=True)
        message = Message("r.1", None, "r", "assistant", "complete", (block,), 0, 1, name=text, metadata_text={"a": "[1]"})
        said = json.loads(encode(message))
        assert (said["metadata"], said["blocks"][0]["input"]) == ({"a": "[1]"}, '{"a":1}')
        assert decode(encode(message), Message) == message
        assert (message.metadata, block.input) == ({"a": [1]}, {"a": 1})


async def test_a_kind_of_another_version_is_read_as_it_is(ledger: Ledger) -> None:
    """A redaction that has put it there must not come undone."""
    async with ledger.run("c", run_id="r") as run:
        await run.message("user", "secret")
    body = b'{"message_id":"r.1","blocks":[{"kind":"of another time","text":"gone"}]}'
    await ledger.store.append("c", [NewEvent("message.redacted", body)])
    [message] = await ledger.transcript("c")
    assert [(block.kind, block.text) for block in message.blocks] == [("of another time", "gone")]
    assert await ledger.anomalies("c") == []


async def test_a_result_needs_its_call_whoever_made_it(ledger: Ledger) -> None:
    call = {"index": 0, "id": "fed", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with ledger.run("c", format="chat") as run:
        await run.feed({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        await run.message("assistant", [Block("tool_call", text="{}", name="look", tool_call_id="whole")])
        await run.tool_result("fed", "1")
        await run.tool_result("whole", "2")
        with pytest.raises(UnknownToolCall, match=r"no tool call 'none'.*tool_call\(name, input, id="):
            await run.tool_result("none", "3")
        asked = await run.tool_call("ask", {})
        await run.text("waiting")
    async with ledger.run("c", trigger="tool_result") as later:
        await later.tool_result(asked, "yes")
        with pytest.raises(UnknownToolCall):
            await later.tool_result("none", "3")
    async with ledger.run("other") as other:
        with pytest.raises(UnknownToolCall):  # each conversation has its own
            await other.tool_result(asked, "yes")
    assert len(await parts_of(ledger)) == 3
    assert await ledger.anomalies("c") == []


async def test_usage_is_of_the_newest_answer_and_its_last_word_counts(ledger: Ledger) -> None:
    async with ledger.run("c", run_id="r") as run:
        await run.usage(input=1)  # before anything was answered
        await run.message("user", "q")
        await run.text("a")
        await run.usage(input=5, output=1)
        await run.usage(input=5, output=9, cached=2, cache_write=1, reasoning=3)
        first = await run.tool_call("look", {})
        await run.tool_result(first, 1)
        answer = await run.message("assistant", "b")
        await run.usage(output=2)
        await run.usage(output=4, request_id="req_1")
    [info] = [info async for info in ledger.runs("c")]
    counts = {
        name: (used.input, used.output, used.cached, used.cache_write, used.reasoning) for name, used in info.usage.items()
    }
    assert counts == {
        "r": (1, None, None, None, None), "r.2": (5, 9, 2, 1, 3), answer: (None, 2, None, None, None),
        "req_1": (None, 4, None, None, None),
    }  # fmt: skip


@pytest.mark.parametrize("on_error", ["failed", "incomplete"])
async def test_what_had_streamed_when_the_block_raised_stays_on_the_path_if_that_is_wanted(
    ledger: Ledger, on_error: Any
) -> None:
    async def break_off() -> None:
        async with ledger.run("c", on_error=on_error) as run:
            await run.message("user", "q")
            await run.text("half an ans")
            raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        await break_off()
    path = [(message.text, message.status) for message in await ledger.transcript("c")]
    assert path == [("q", "complete")] + ([("half an ans", "partial")] if on_error == "incomplete" else [])
    [info] = [info async for info in ledger.runs("c")]
    assert (info.outcome, json.loads(info.error or "")) == (on_error, {"type": "ConnectionResetError", "message": "gone"})
    async with ledger.run("c") as run:
        await run.text("goes on")
    assert [message.text for message in await ledger.transcript("c")][-1] == "goes on"


async def test_a_run_that_was_ended_takes_nothing_of_all_this(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        call = await run.tool_call("look", {})
        await run.finish()
        before = await ledger.store.bounds("c")
        for refused in (
            run.message("user", "x"), run.text("x"), run.reasoning("x"), run.tool_call("x", {}), run.tool_result(call, "x"),
            run.usage(input=1), run.step(), run.flush(),
        ):  # fmt: skip
            with pytest.raises(RunEnded):
                await refused
        await run.finish()
        await run.finish("completed")
        with pytest.raises(RunEnded, match="has ended as completed, and stays so"):
            await run.finish("failed")
    assert await ledger.store.bounds("c") == before


async def test_a_block_that_raises_after_the_run_was_ended_changes_no_end(ledger: Ledger) -> None:
    async def speak() -> None:
        async with ledger.run("c") as run:
            await run.text("whole")
            await run.finish("incomplete")
            raise KeyError("mine")

    with capture_logs() as logs, pytest.raises(KeyError):
        await speak()
    assert [run.outcome async for run in ledger.runs("c")] == ["incomplete"]
    assert not [line for line in logs if line["event"] == "run.left_open"]
