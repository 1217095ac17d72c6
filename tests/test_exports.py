"""`export --format`: taken by every provider, losses and repairs told, and out and in again the same."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger import open_ledger
from projector.formats import STREAM_WRITERS, STREAMS, WRITERS
from projector.formats.anthropic_events import write_stream
from projector.formats.draft import text_block
from projector.formats.payloads import opaque
from projector.formats.validators import validate_anthropic, validate_chat, validate_responses
from projector.message import Block
from tests.random_talks import Step, Talk, conversations
from tests.shared_data import naughty
from tests.test_commands import Shell
from tests.test_ledger_commands import fill
from tests.ui_readings import TEXTS, a_call, a_message, folded, paths, play

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledger import Ledger
    from projector import Message

VALIDATORS: Final[dict[str, Callable[[Any], list[str]]]] = {
    "anthropic": validate_anthropic, "chat": validate_chat, "responses": validate_responses,
}  # fmt: skip
FORMATS: Final = (*WRITERS, *STREAM_WRITERS)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def aside(shell: Shell, *words: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(shell.command(*words), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


@settings(max_examples=30, deadline=None, print_blob=True)
@given(steps=conversations)
def test_any_conversation_is_taken_by_every_provider_and_stays_as_it_is(steps: list[Step]) -> None:
    async def live() -> None:
        async with open_ledger("memory:") as ledger:
            talk = Talk(ledger, "c")
            for step in steps:
                await step.take(talk)
            if not (await ledger.store.bounds("c")).head:
                return
            before = await ledger.transcript("c", branch="all")
            head = (await ledger.store.bounds("c")).head
            for name in FORMATS:
                export = await ledger.export("c", name)
                json.dumps(export.payload)
                sent = export.payload["messages"] if isinstance(export.payload, dict) else export.payload
                if name in VALIDATORS and sent:
                    assert VALIDATORS[name](export.payload) == []
                assert (await ledger.export("c", name)) == export
            assert await ledger.transcript("c", branch="all") == before
            assert (await ledger.store.bounds("c")).head == head

    asyncio.run(live())


# the command


async def broken(ledger: Ledger) -> None:
    """A call that nobody has answered, thoughts without a signature, broken Unicode, an ordinary talk."""
    async with ledger.run("broken", run_id="r1", format="anthropic") as run:
        await run.message("user", "lone \ud83d")
        await run.feed({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}})
        start = {"type": "content_block_start"}
        call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
        await run.feed(
            start | {"index": 0, "content_block": {"type": "thinking", "thinking": "hm", "signature": ""}}, "anthropic"
        )
        await run.feed({"type": "content_block_stop", "index": 0})
        await run.feed(start | {"index": 1, "content_block": call})
        await run.feed({"type": "content_block_stop", "index": 1})
        await run.feed({"type": "message_stop"})
    async with ledger.run("fine", run_id="r2") as run:
        await run.message("user", "hello")
        await run.message("assistant", "hi")


@pytest.mark.parametrize("name", FORMATS)
def test_losses_and_repairs_are_told_on_standard_error_or_in_the_document(shell: Shell, name: str, tmp_path: Path) -> None:
    fill(shell, broken)
    out, err = aside(shell, "export", "broken", "--format", name)
    told = json.loads(aside(shell, "export", "broken", "--format", name, "--json")[0])
    assert (told["conversation"], told["format"]) == ("broken", name)
    assert err.isascii()
    assert err.count("broken: lost: ") == len(told["losses"])
    assert err.count("broken: mended: ") == len(told["repairs"])
    assert err.count("\n") == len(told["losses"]) + len(told["repairs"])
    lines = [json.loads(line) for line in out.splitlines()]
    assert (lines if name in STREAM_WRITERS else lines[0]) == told["payload"]
    file = tmp_path / "out.json"
    report = json.loads(aside(shell, "export", "broken", "--format", name, "--output", str(file), "--json")[0])
    assert file.read_text() == out
    assert [one["losses"] for one in report["conversations"]] == [told["losses"]]
    if name in VALIDATORS:
        assert told["repairs"]
        assert VALIDATORS[name](told["payload"]) == []
    assert aside(shell, "export", "fine", "--format", name)[1] == ""


@pytest.mark.parametrize("name", FORMATS)
def test_lines_of_all_conversations_are_imported_again_to_the_same_export(shell: Shell, name: str, tmp_path: Path) -> None:
    fill(shell, broken)
    exported, _ = aside(shell, "export", "--all", "--format", name)
    assert {json.loads(line)["conversation"] for line in exported.splitlines()} == {"broken", "fine"}
    other = Shell(tmp_path / "other")
    other.data.parent.mkdir()
    for number, line in enumerate(exported.splitlines()):
        document = json.loads(line)
        conversation = document.pop("conversation")
        file = tmp_path / f"{number}.jsonl"
        values = document.get("events", [document])
        if not values:
            continue
        file.write_text("".join(json.dumps(value) + "\n" for value in values))
        other.run("import", str(file), "--into", conversation)
        wanted = json.loads(aside(shell, "export", conversation, "--format", name, "--json")[0])["payload"]
        found = json.loads(aside(other, "export", conversation, "--format", name, "--json")[0])["payload"]
        assert without_ids(found) == without_ids(wanted)
    (tmp_path / "all.jsonl").write_text(exported)
    if name in WRITERS:
        taken = other.read("import", str(tmp_path / "all.jsonl"))
        assert len(taken) == 2


def without_ids(value: Any) -> Any:
    """What is said, without the ids and times that are minted for messages that had none."""
    if isinstance(value, dict):
        left = {"id", "messageId", "parentMessageId", "item_id", "runId", "threadId", "created", "created_at", "createdAt"}
        return {key: without_ids(inner) for key, inner in value.items() if key not in left}
    return [without_ids(inner) for inner in value] if isinstance(value, list) else value


def test_an_unknown_format_and_an_unknown_conversation_are_refused(shell: Shell) -> None:
    fill(shell, broken)
    assert "'telegraph' is no format to export to" in aside(shell, "export", "fine", "--format", "telegraph", code=2)[1]
    for name in FORMATS:
        assert "no conversation 'x'" in aside(shell, "export", "x", "--format", name, code=2)[1]


# what would have been streamed


def once_more(messages: list[Message]) -> list[Message]:
    stream, bodies = play(STREAMS["anthropic"], write_stream(messages))
    assert stream.end().outcome in ("completed", "incomplete")
    return folded(bodies).all_messages() if bodies else []


def blocks_of(message: Message) -> list[Any]:
    return [
        (block.kind, block.text if block.kind != "tool_call" else json.loads(block.input or block.text or "{}"), block.sealed,
         block.name, block.tool_call_id, block.signature, block.opaque and json.loads(block.opaque))
        for block in message.blocks
    ]  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> list[Message]:
    """What Anthropic's models say: signed thoughts, text, calls, things encrypted, the last of it perhaps broken off."""
    made: list[Message] = []
    for number in range(1, draw(st.integers(1, 3)) + 1):
        kinds = draw(st.lists(st.sampled_from(["text", "thought", "redacted", "call"]), min_size=1, max_size=4))
        blocks = []
        for place, kind in enumerate(kinds):
            if kind == "text":
                blocks.append(text_block(draw(TEXTS)))
            elif kind == "thought":
                blocks.append(Block("reasoning", text=draw(TEXTS), sealed=True, signature="c2ln"))
            elif kind == "redacted":
                payload = json.dumps({"type": "redacted_thinking", "data": draw(TEXTS)})
                blocks.append(Block("redacted_reasoning", sealed=True, opaque=opaque("anthropic", payload)))
            else:
                blocks.append(a_call(f"t{number}.{place}", json.dumps(draw(st.dictionaries(TEXTS, TEXTS, max_size=2)))))
        made.append(a_message(number, "assistant", *blocks, provider_ref=f"m{number}"))
    return made


@given(answers())
@settings(max_examples=200, deadline=None)
def test_what_is_streamed_out_comes_back_the_same(messages: list[Message]) -> None:
    back = once_more(messages)
    assert [message.provider_ref for message in back] == [message.provider_ref for message in messages]
    assert list(map(blocks_of, back)) == list(map(blocks_of, messages))
    assert {message.status for message in back} == {"complete"}


@given(answers(), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_a_message_that_broke_off_breaks_off_again(messages: list[Message], keep: int) -> None:
    *whole, last = messages
    torn = [block for block in last.blocks if block.kind in ("text", "reasoning")]
    if not torn:
        return
    ahead = list(last.blocks[: last.blocks.index(torn[0])])
    block = replace(torn[0], sealed=False, signature=None, text=torn[0].text[: keep + 1])
    [*_, back] = once_more([*whole, replace(last, blocks=(*ahead, block), status="partial")])
    assert blocks_of(back)[-1][:3] == (block.kind, block.text, False)
    assert back.status != "complete"


@given(paths())
@settings(max_examples=100, deadline=None)
def test_any_path_is_streamed_as_its_adapter_takes_it(path: list[Message]) -> None:
    said = [
        [row for row in blocks_of(message) if row[0] in ("text", "tool_call")]
        for message in path
        if message.role == "assistant"
    ]
    back = [[row for row in blocks_of(message) if row[0] in ("text", "tool_call")] for message in once_more(path)]
    assert [rows for rows in back if rows] == [rows for rows in said if rows]


def test_naughty_strings_are_streamed_and_come_back() -> None:
    for text in naughty():
        if text.strip():
            message = a_message(1, "assistant", text_block(text), a_call("t", json.dumps({"x": text})), provider_ref="m")
            assert blocks_of(once_more([message])[0]) == blocks_of(message)


@pytest.mark.parametrize("name", STREAM_WRITERS)
def test_every_stream_is_taken_however_it_is_cut(name: str) -> None:
    made = [a_message(1, "user", text_block("hi")), a_message(2, "assistant", text_block("hello"), a_call("t", '{"x": 1}'))]
    events = STREAM_WRITERS[name](made)
    seed = random.randrange(2**32)
    print("seed", seed)
    for cut in range(1, len(events) + 1):
        _, bodies = play(STREAMS[name.removesuffix("-stream")], events[:cut])
        folded(bodies)
