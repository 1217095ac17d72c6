"""`import` takes each conversation in once: however often, and what has grown as it is now."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import ImportDiffers, open_ledger
from tests.faults.sizes import FULL
from tests.imports import chat_lines, check_order, imported, told
from tests.shared_data import files, needs_data, read_lines
from tests.smallest_files import EVENTS, LINES, RECORD, SESSION, SMALLEST, of_json, of_lines, of_sse
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger


pytestmark = pytest.mark.anyio


each = pytest.mark.parametrize(("ending", "content"), [case[1:3] for case in SMALLEST], ids=[case[0] for case in SMALLEST])


# once


@pytest.mark.heavy
@each
async def test_importing_twice_adds_nothing(ledger: Ledger, tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"c.{ending}"
    first = await imported(ledger, path, content)
    names = [info.conversation async for info in ledger.conversations()]
    before = [await told(ledger, name, "all") for name in names]
    assert all(taken.events > 2 for taken in first)
    again = await imported(ledger, path, content)
    assert [(taken.events, taken.runs, taken.head) for taken in again] == [(0, 0, taken.head) for taken in first]
    assert [info.conversation async for info in ledger.conversations()] == names
    assert [await told(ledger, name, "all") for name in names] == before
    await check_order(ledger)


@pytest.mark.heavy
def test_a_folder_is_taken_in_twice_and_the_second_time_nothing_is_added(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    folder = tmp_path / "all"
    for name, ending, content, _ in SMALLEST:
        place = folder / name[:4] / f"{name}.{ending}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    first = shell.read("import", str(folder))
    assert len({one["file"] for one in first["conversations"]}) == len(SMALLEST)
    assert (first["refused"], all(one["added"] for one in first["conversations"])) == ([], True)
    assert len({one["conversation"] for one in first["conversations"]}) == len(first["conversations"])
    before = shell.data.read_bytes()
    again = shell.read("import", str(folder))
    assert [one["added"] for one in again["conversations"]] == [0] * len(first["conversations"])
    assert shell.data.read_bytes() == before
    assert shell.run("verify") == "everything is as it should be\n"


def claude_lines(count: int) -> list[dict[str, Any]]:
    """A session whose answers come in two records each, as Claude Code writes them; each turn has a tool."""
    found: list[dict[str, Any]] = []

    def add(kind: str, message: dict[str, Any]) -> None:
        parent = found[-1]["uuid"] if found else None
        number = len(found)
        found.append(RECORD | {"type": kind, "uuid": f"u{number}", "parentUuid": parent, "message": message})

    for n in range(count):
        add("user", {"role": "user", "content": f"question {n}"})
        shell: dict[str, Any] = {"role": "assistant", "id": f"m{n}", "model": "m", "type": "message"}
        add("assistant", shell | {"content": [{"type": "text", "text": f"look {n}"}]})
        add("assistant", shell | {"content": [{"type": "tool_use", "id": f"t{n}", "name": "f", "input": {"n": n}}]})
        add("user", {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": f"result {n}"}]})
    return found


def pi_lines(count: int) -> list[dict[str, Any]]:
    """A session with another model now and then, which is noted with the message before it."""
    found: list[dict[str, Any]] = [SESSION]

    def add(kind: str, **fields: Any) -> None:
        parent = found[-1]["id"] if len(found) > 1 else None
        head = {"type": kind, "id": f"e{len(found)}", "parentId": parent, "timestamp": "2025-01-31T12:00:00Z"}
        found.append(head | fields)

    for n in range(count):
        add("message", message={"role": "user", "content": f"question {n}", "timestamp": n})
        call = {"type": "toolCall", "id": f"t{n}", "name": "f", "arguments": {"n": n}}
        add("message", message={"role": "assistant", "content": [{"type": "text", "text": f"answer {n}"}, call], "api": "a",
                                "provider": "p", "model": "m", "stopReason": "toolUse", "timestamp": n})  # fmt: skip
        result = {"role": "toolResult", "toolCallId": f"t{n}", "toolName": "f", "content": [{"type": "text", "text": "1"}]}
        add("message", message=result | {"isError": False, "timestamp": n})
        add("model_change", provider="p", modelId=f"m{n}")
        add("thinking_level_change", thinkingLevel="high")
    return found


GROWING: Final = {"chat": chat_lines(4), "claude-code": claude_lines(3), "pi": pi_lines(2)}


@pytest.mark.parametrize("name", GROWING)
async def test_a_file_that_has_grown_adds_what_is_new_wherever_it_ended_before(name: str, tmp_path: Path) -> None:
    lines = GROWING[name]
    async with open_ledger("memory:") as ledger:
        await imported(ledger, tmp_path / "c.jsonl", of_lines(lines), name)
        whole = await told(ledger, "c")
    assert len(whole) > 5
    for cut in range(1 + (name == "pi"), len(lines)):
        async with open_ledger("memory:") as ledger:
            [first] = await imported(ledger, tmp_path / "c.jsonl", of_lines(lines[:cut]), name)
            part = await told(ledger, "c", "all")
            [more] = await imported(ledger, tmp_path / "c.jsonl", of_lines(lines), name)
            assert await told(ledger, "c") == whole, cut
            kept = [(role, blocks) for role, _, _, blocks, *_ in await told(ledger, "c", "all")]
            assert all((role, blocks) in kept for role, _, _, blocks, *_ in part), cut
            assert len(kept) <= len(whole) + 1, cut  # a message that was half there is beside the whole one
            assert 0 < more.events < first.events + more.events == more.head
            [again] = await imported(ledger, tmp_path / "c.jsonl", of_lines(lines), name)
            assert again.events == 0, cut
            [less] = await imported(ledger, tmp_path / "c.jsonl", of_lines(lines[:cut]), name)
            assert less.events == 0, cut
            await check_order(ledger)


@pytest.mark.parametrize("name", GROWING)
async def test_a_file_that_is_imported_after_each_line_says_the_same_at_last(ledger: Ledger, name: str, tmp_path: Path) -> None:
    lines = GROWING[name]
    for cut in range(1 + (name == "pi"), len(lines) + 1):
        await imported(ledger, tmp_path / "c.jsonl", of_lines(lines[:cut]), name)
    await imported(ledger, tmp_path / "d.jsonl", of_lines(lines), name)
    assert await told(ledger, "c") == await told(ledger, "d")
    await check_order(ledger)


SESSIONS: Final = files("claude-code-log", "sessions/*.jsonl*") + files("pi-mono", "*.jsonl*")


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name)
@pytest.mark.heavy
async def test_recorded_sessions_grow_as_well(path: Path, tmp_path: Path) -> None:
    lines = read_lines(path)
    seed = random.randrange(2**32)
    print("seed", seed)
    cuts = random.Random(seed).sample(range(2, len(lines)), min(len(lines) - 2, 20 if FULL else 4))
    name = "pi" if "pi-mono" in str(path) else "claude-code"
    async with open_ledger("memory:") as ledger:
        first = await imported(ledger, tmp_path / "c.jsonl", of_lines(lines), name)
        whole = await told(ledger, "c") if len(first) == 1 else []
    for cut in cuts if whole else ():
        async with open_ledger("memory:") as ledger:
            await imported(ledger, tmp_path / "c.jsonl", of_lines(lines[:cut]), name)
            await imported(ledger, tmp_path / "c.jsonl", of_lines(lines), name)
            assert await told(ledger, "c") == whole, cut


@pytest.mark.parametrize("name", EVENTS)
async def test_a_recording_that_has_grown_is_taken_in_beside_what_broke_off(name: str, tmp_path: Path) -> None:
    events = EVENTS[name]
    async with open_ledger("memory:") as ledger:
        await imported(ledger, tmp_path / "c.txt", of_sse(events))
        whole = await told(ledger, "c")
    assert whole
    for cut in range(1, len(events)):
        async with open_ledger("memory:") as ledger:
            await imported(ledger, tmp_path / "c.txt", of_sse(events[:cut]), name)
            await imported(ledger, tmp_path / "c.txt", of_sse(events))
            assert said_of(await told(ledger, "c")) == said_of(whole), cut
            assert [taken.events for taken in await imported(ledger, tmp_path / "c.txt")] == [0]
            await check_order(ledger)


def said_of(messages: list[Any]) -> list[Any]:
    """Without the status: where only the end of the recording was missing, all that is said is there."""
    return [(role, [(block.kind, block.text) for block in blocks]) for role, _, _, blocks, *_ in messages]


# something else of the same name


@pytest.mark.parametrize(("kind", "name"), [("history", name) for name in LINES] + [("stream", name) for name in EVENTS])
async def test_another_content_of_the_same_name_is_refused_and_says_the_way_out(
    ledger: Ledger, kind: str, name: str, tmp_path: Path
) -> None:
    values: Any = LINES[name][0] if kind == "history" else EVENTS[name]
    content = of_lines(values)
    other = content.replace(b'"hi"', b'"ho"')
    assert other != content
    await imported(ledger, tmp_path / "c.jsonl", content, name)
    before = [await told(ledger, info.conversation, "all") async for info in ledger.conversations()]
    with pytest.raises(ImportDiffers, match="use --into for another conversation"):
        await imported(ledger, tmp_path / "c.jsonl", other, name)
    assert [await told(ledger, info.conversation, "all") async for info in ledger.conversations()] == before
    await imported(ledger, tmp_path / "d.jsonl", other, name)
    await check_order(ledger)


def test_the_command_names_the_file_and_changes_nothing(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    path = tmp_path / "talk.json"
    path.write_bytes(of_json(chat_lines(2)))
    shell.run("import", str(path))
    before = shell.data.read_bytes()
    path.write_bytes(of_json([*chat_lines(2)[:2], {"role": "assistant", "content": "something else"}]))
    why = shell.run("import", str(path), code=2)
    assert why.startswith(f"tailfold: {path}: conversation 'talk' holds something else as message ")
    assert "--into" in why
    assert shell.data.read_bytes() == before
    assert shell.read("import", str(path), "--into", "other")[0]["added"] > 0
