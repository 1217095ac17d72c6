"""`import` takes each conversation in once: however often, whatever was killed meanwhile, and what has grown as it is now."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest
from structlog.testing import capture_logs

from ledger import ImportDiffers, open_ledger
from ledger.transfer.files import open_lines
from ledger.transfer.importing import import_history
from ledger.transfer.sources import base_of, name_of, read_file
from ledger.upkeep.verify import verify
from tests.faults.sizes import FULL
from tests.shared_data import files, needs_data, read_lines
from tests.test_commands import Shell
from tests.test_detection import EVENTS, LINES, RECORD, SESSION, SMALLEST, of_json, of_lines, of_sse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledger import Ledger
    from ledger.transfer.importing import ImportResult
    from projector import Message

pytestmark = pytest.mark.anyio
IMAGE: Final = base64.b64encode(random.Random(5).randbytes(150_000)).decode()
each = pytest.mark.parametrize(("ending", "content"), [case[1:3] for case in SMALLEST], ids=[case[0] for case in SMALLEST])


@pytest.fixture
async def ledger(anyio_backend: object) -> AsyncIterator[Ledger]:
    del anyio_backend
    async with open_ledger("memory:") as made:
        yield made


async def imported(ledger: Ledger, path: Path, content: bytes | None = None, format_name: str = "auto") -> list[ImportResult]:
    """What the command does with a file, in this process."""
    if content is not None:
        path.write_bytes(content)
    with ExitStack() as stack:
        found = read_file(stack, stack.enter_context(open_lines(path)), path, format_name)
        names = name_of(base_of(path), found)
        return [await import_history(ledger.engine, name, one) for name, one in zip(names, found, strict=True)]


async def told(ledger: Ledger, conversation: str, branch: Any = "active") -> list[Any]:
    """What is said in a conversation, and where it hangs, whatever ids its messages have."""
    return said(await ledger.transcript(conversation, branch=branch))


def said(messages: list[Message]) -> list[Any]:
    at = {message.id: place for place, message in enumerate(messages)}
    return [(one.role, one.status, one.name, one.blocks, one.metadata, one.parent_id and at[one.parent_id]) for one in messages]


async def check_order(ledger: Ledger) -> None:
    assert [finding async for finding in verify(ledger)] == []
    assert [finding async for finding in ledger.reconcile() if not finding.is_note] == []


# once


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


# what has grown


def chat_lines(count: int) -> list[dict[str, Any]]:
    """A talk with tools, in which not each turn has any."""
    found: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}]
    for n in range(count):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": f'{{"n": {n}}}'}}
        found.append({"role": "user", "content": f"question {n}"})
        if n % 2:
            found.append({"role": "assistant", "content": None, "tool_calls": [call]})
            found.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n}"})
        found.append({"role": "assistant", "content": f"answer {n}"})
    return found


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


# killed, at once, beside others


def large_talk() -> bytes:
    """One run of more than a thousand events and a megabyte, with the same image in several results, and one behind it."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
    talk: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    for n in range(180):
        call = {"type": "tool_use", "id": f"t{n}", "name": "f", "input": {"text": "x" * 6_000}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": [image] if n % 40 == 7 else f"{n}"}
        talk += [{"role": "assistant", "content": [{"type": "text", "text": f"step {n}"}, call]}]
        talk += [{"role": "user", "content": [result]}]
    talk += [{"role": "assistant", "content": "done"}, {"role": "user", "content": "thanks"}]
    return of_json({"system": "s", "messages": talk})


@pytest.mark.slow
def test_an_import_that_is_killed_at_any_moment_and_repeated_is_as_one_that_was_not(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(large_talk())
    (tmp_path / "whole").mkdir()
    whole = Shell(tmp_path / "whole")
    began = time.monotonic()
    assert whole.read("import", str(path))[0]["added"] > 1000
    took = time.monotonic() - began
    wanted = whole.run("export", "c", "--format", "anthropic")
    events = whole.run("events", "c", "--json").count("\n")
    assert IMAGE[:1000] not in whole.run("events", "c", "--json")
    print("seed", seed := random.randrange(2**32))
    choose = random.Random(seed)
    killed = 0
    for number in range(30 if FULL else 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        shell = Shell(folder)
        for _ in range(choose.randrange(1, 4)):
            with subprocess.Popen(
                shell.command("import", str(path)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as child:
                time.sleep(took * choose.uniform(0.5, 1.0))
                child.kill()
                killed += child.wait() != 0
        shell.run("import", str(path))
        assert shell.run("export", "c", "--format", "anthropic") == wanted
        assert shell.run("events", "c", "--json").count("\n") == events
        assert shell.read("import", str(path))[0]["added"] == 0
        assert shell.run("verify") == "everything is as it should be\n"
    assert killed


async def test_a_long_run_that_stopped_after_any_of_its_appends_goes_on_there(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    async with open_ledger("memory:") as ledger:
        [taken] = await imported(ledger, path, large_talk())
        whole = await told(ledger, "c", "all")
        runs = [run.run_id async for run in ledger.runs("c")]
    for stop in range(1, 20):
        async with open_ledger("memory:") as ledger:
            calls = 0
            append = ledger.store.append

            async def failing(*args: Any, append: Any = append, stop: int = stop, **kwargs: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == stop:
                    raise OSError("killed")
                return await append(*args, **kwargs)

            ledger.store.append = failing  # type: ignore[method-assign]
            try:
                await imported(ledger, path)
            except OSError:
                pass
            else:
                assert stop > 3, "it is one append"
                return
            ledger.store.append = append  # type: ignore[method-assign]
            await imported(ledger, path)
            assert await told(ledger, "c", "all") == whole
            assert (await ledger.store.bounds("c")).head == taken.head
            assert [run.run_id async for run in ledger.runs("c")] == runs
            await check_order(ledger)
    raise AssertionError("it never came to its end")


def test_two_imports_of_the_same_files_at_once_give_them_once(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for number in range(6):
        (tmp_path / "files" / f"{number}.jsonl").write_bytes(of_lines(chat_lines(number + 1)))
    (tmp_path / "files" / "large.json").write_bytes(large_talk())
    shell, alone = Shell(tmp_path), Shell(tmp_path / "files")
    alone.data = tmp_path / "alone.db"
    alone.run("import", str(tmp_path / "files"))
    words = shell.command("import", str(tmp_path / "files"), "--json")
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    told_by_each = [child.communicate(timeout=120) for child in both]
    assert [(child.returncode, err) for child, (_, err) in zip(both, told_by_each, strict=True)] == [(0, b"")] * 2
    names = {one["conversation"] for out, _ in told_by_each for one in json.loads(out)["conversations"]}
    assert len(names) == 7
    told = [one.run("export", "--all", "--format", "anthropic") for one in (shell, alone)]
    assert told[0] == told[1]
    assert shell.run("export", "--all").count("\n") == alone.run("export", "--all").count("\n")
    assert shell.run("verify") == "everything is as it should be\n"


async def test_a_writer_beside_an_import_loses_nothing(tmp_path: Path) -> None:
    content = large_talk()
    async with open_ledger(str(tmp_path / "a.db"), durability="normal") as ledger:

        async def write() -> list[str]:
            ids = []
            for number in range(40):
                run = await ledger.begin_run("c", parent=None, run_id=f"r{number}")
                ids.append(await run.message("user", f"beside {number}"))
                await run.finish()
                await asyncio.sleep(0)
            return ids

        with capture_logs():
            ids, [taken] = await asyncio.gather(write(), imported(ledger, tmp_path / "c.json", content))
        assert taken.events > 1000
        there = {message.id for message in await ledger.transcript("c", branch="all")}
        assert set(ids) <= there
        assert len(there) == len(ids) + len(json.loads(content)["messages"]) + 1
        assert (await imported(ledger, tmp_path / "c.json"))[0].events == 0
        await check_order(ledger)
