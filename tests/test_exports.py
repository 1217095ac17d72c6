"""`export --format`: taken by every provider, losses and repairs told, and out and in again the same."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger import open_ledger
from projector.formats import STREAM_WRITERS, STREAMS, WRITERS
from projector.formats.anthropic.stream_writer import write_stream
from projector.formats.registry import NAMED
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque
from projector.message import Block
from tests.faults.sizes import size
from tests.fork_server import COMMANDS
from tests.ledger_commands import fill, run_each
from tests.random_talks import Begin, Step, Talk, conversations
from tests.shared_data import naughty
from tests.test_commands import Shell
from tests.ui_readings import TEXTS, a_call, a_message, folded, paths, play

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from projector import Message

VALIDATORS: Final = {each.name: each.check for each in NAMED.values() if each.check is not None}
FORMATS: Final = (*WRITERS, *STREAM_WRITERS)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def aside(shell: Shell, *words: str, code: int = 0) -> tuple[str, str]:
    done = COMMANDS.run(*shell.command(*words)[5:])
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stdout.decode(), done.stderr.decode()


@settings(max_examples=size(smoke=12, full=30), deadline=None, print_blob=True)
@given(steps=conversations)
def test_any_conversation_is_taken_by_every_provider_and_stays_as_it_is(steps: list[Step]) -> None:
    async def live() -> None:
        async with open_ledger("memory:") as ledger:
            talk = Talk(ledger, "c")
            for step in (Begin("root", 0, ("user", "text"), "completed"), *steps):
                await step.take(talk)
            before, head = await ledger.transcript("c", branch="all"), (await ledger.store.bounds("c")).head
            for name in FORMATS:
                export = await ledger.export("c", name)
                json.dumps(export.payload)
                sent = export.payload[NAMED[name].lists[0]] if isinstance(export.payload, dict) else export.payload
                if name in VALIDATORS and sent:
                    assert VALIDATORS[name](export.payload) == []
                assert (await ledger.export("c", name)) == export
            assert await ledger.transcript("c", branch="all") == before
            assert (await ledger.store.bounds("c")).head == head

    asyncio.run(live())


# the command


async def broken(ledger: Ledger) -> None:
    """A call that nobody has answered, thoughts without a signature, broken Unicode, an ordinary talk."""
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    async with ledger.run("broken", run_id="r1", format="anthropic") as run:
        await run.message("user", "lone \ud83d")
        await run.feed({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}})
        for index, block in enumerate((thought, call)):
            await run.feed({"type": "content_block_start", "index": index, "content_block": block})
            await run.feed({"type": "content_block_stop", "index": index})
        await run.feed({"type": "message_stop"})
    async with ledger.run("fine", run_id="r2") as run:
        await run.message("user", "hello")
        await run.message("assistant", "hi")


def test_losses_and_repairs_are_told_on_standard_error_or_in_the_document(shell: Shell, tmp_path: Path) -> None:
    fill(shell, broken)
    commands = []
    for name in FORMATS:
        words = ["export", "broken", "--format", name]
        commands += [words, [*words, "--json"], [*words, "--json", "--output", str(tmp_path / name)]]
        commands.append(["export", "fine", "--format", name])
    found = run_each(shell, commands)
    assert [code for code, *_ in found] == [0] * len(commands)
    for at, name in enumerate(FORMATS):
        (_, out, err), (_, document, _), (_, report, _), (_, _, nothing) = found[4 * at : 4 * at + 4]
        told = json.loads(document)
        assert (told["conversation"], told["format"]) == ("broken", name)
        asked = "fine: lost: 1 messages that are not a model's: a stream is of answers\n"
        assert nothing == (asked if name in STREAM_WRITERS and name != "agui-stream" else "")
        assert err.isascii()
        assert (err.count("broken: lost: "), err.count("broken: mended: ")) == (len(told["losses"]), len(told["repairs"]))
        assert err.count("\n") == len(told["losses"]) + len(told["repairs"])
        lines = [json.loads(line) for line in out.splitlines()]
        assert (lines if name in STREAM_WRITERS else lines[0]) == told["payload"]
        assert (tmp_path / name).read_text() == out
        assert [one["losses"] for one in json.loads(report)["conversations"]] == [told["losses"]]
        if name in VALIDATORS:
            assert told["repairs"]
            assert VALIDATORS[name](told["payload"]) == []


@pytest.mark.heavy
@pytest.mark.parametrize("name", FORMATS)
def test_lines_of_all_conversations_are_imported_again_to_the_same_export(shell: Shell, name: str, tmp_path: Path) -> None:
    fill(shell, broken)
    names = ("broken", "fine")
    words = [["export", "--all", "--format", name], *(["export", one, "--format", name, "--json"] for one in names)]
    exported, *wanted = (out for _, out, _ in run_each(shell, words))
    assert {json.loads(line)["conversation"] for line in exported.splitlines()} == set(names)
    (tmp_path / "all.jsonl").write_text(exported)
    other = Shell(tmp_path / "other")
    other.data.parent.mkdir()
    commands = [["import", str(tmp_path / "all.jsonl"), "--json"]] if name in WRITERS else []
    for line in exported.splitlines():
        document = json.loads(line)
        file = tmp_path / f"{document.pop('conversation')}.jsonl"
        file.write_text("".join(json.dumps(value) + "\n" for value in document.get("events", [document])))
        commands += [["import", str(file)], ["export", file.stem, "--format", name, "--json"]]
    found = run_each(other, commands)
    assert [code for code, *_ in found] == [0] * len(commands), found
    assert name not in WRITERS or len(json.loads(found[0][1])) == 2
    again = [json.loads(out) for code, out, _ in found if out.startswith("{")]
    by_name = {one["conversation"]: without_ids(one["payload"]) for one in again}
    assert by_name == {json.loads(out)["conversation"]: without_ids(json.loads(out)["payload"]) for out in wanted}


def without_ids(value: Any) -> Any:
    """What is said, without the ids and times that are minted for messages that had none."""
    if isinstance(value, dict):
        left = {"id", "messageId", "parentMessageId", "item_id", "runId", "threadId", "created", "created_at", "createdAt"}
        return {key: without_ids(inner) for key, inner in value.items() if key not in left}
    return [without_ids(inner) for inner in value] if isinstance(value, list) else value


def test_an_unknown_format_and_an_unknown_conversation_are_refused(shell: Shell) -> None:
    fill(shell, broken)
    assert "'telegraph' is no format to export to" in aside(shell, "export", "fine", "--format", "telegraph", code=2)[1]
    for code, out, err in run_each(shell, [["export", "x", "--format", name] for name in FORMATS]):
        assert (code, out, "no conversation 'x'" in err) == (2, "", True)


# what would have been streamed


def once_more(messages: list[Message]) -> list[Message]:
    stream, bodies = play(STREAMS["anthropic"], write_stream(messages))
    assert stream.end().outcome in ("completed", "incomplete")
    return folded(bodies).all_messages() if bodies else []


def blocks_of(message: Message) -> list[Any]:
    return [
        (block.kind, block.text if block.kind != "tool_call" else json.loads(block.input_text or block.text or "{}"),
         block.sealed, block.name, block.tool_call_id, block.signature, block.opaque and json.loads(block.opaque))
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
@settings(max_examples=size(smoke=80, full=200), deadline=None)
def test_what_is_streamed_out_comes_back_the_same(messages: list[Message]) -> None:
    back = once_more(messages)
    assert [message.provider_ref for message in back] == [message.provider_ref for message in messages]
    assert list(map(blocks_of, back)) == list(map(blocks_of, messages))
    assert {message.status for message in back} == {"complete"}


@given(answers(), st.integers(0, 3))
@settings(max_examples=size(smoke=50, full=100), deadline=None)
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
@settings(max_examples=size(smoke=50, full=100), deadline=None)
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
