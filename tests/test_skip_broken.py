"""`--skip-broken` takes the rest of a file where a part of it can't be read, and names that; without it nothing is stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger import FileError, open_ledger
from tests.cassette_files import CHAT, ask, completion, exchange, taken, write
from tests.smallest_files import ENTRY, ITEM, RECORD, SESSION, of_json, of_lines, of_sse
from tests.test_commands import Shell
from tests.test_import_file import chat_chunks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledger import Ledger

pytestmark = pytest.mark.anyio
HI, HO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}
ANSWERED = RECORD | {"type": "assistant", "uuid": "v", "parentUuid": "u", "message": {"role": "assistant", "content": "ho"}}
TALKS = [{"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": text}]} for text in ("ho", "hm")]
CHUNKS = chat_chunks(["h", "o"])
REPLY = ENTRY | {"id": "e2", "parentId": "e1", "message": {"role": "user", "content": "ho", "timestamp": 0}}


def lines(*values: Any) -> bytes:
    """JSON lines; what is bytes already stands as it is."""
    return b"".join(value + b"\n" if isinstance(value, bytes) else of_json(value) + b"\n" for value in values)


def torn(value: Any) -> bytes:
    return of_json(value)[:-9]


CASES: dict[str, tuple[str, bytes, list[list[str]], list[str]]] = {
    "line": ("jsonl", lines(HI, b'{"role": "assi', HO), [["hi", "ho"]], ["line 2"]),
    "first-line": ("jsonl", lines(b'{"role": "us', HI, HO), [["hi", "ho"]], ["line 1"]),
    "no-text": ("jsonl", lines(HI, b'{"role": "\xff"}', HO), [["hi", "ho"]], ["line 2"]),
    "message-line": ("jsonl", lines(HI, {"role": "bard", "content": "x"}, HO), [["hi", "ho"]], ["line 2"]),
    "last-line": ("jsonl", lines(HI, HO, torn(HI)), [["hi", "ho"]], ["line 3"]),
    "document-line": (
        "jsonl",
        lines({"messages": [HI]}, {"messages": [7]}, b'{"messages": [', {"messages": [HO]}),
        [["hi"], ["ho"]],
        ["line 2", "line 3"],
    ),
    "session": (
        "jsonl",
        lines(RECORD, RECORD | {"uuid": "x", "message": {"role": "user", "content": 7}}, b"{", ANSWERED),
        [["hi", "ho"]],
        ["line 2", "line 3"],
    ),
    "session-list": (
        "json",
        of_json([RECORD, RECORD | {"uuid": "x", "message": {"role": "user", "content": 7}}, ANSWERED]),
        [["hi", "ho"]],
        ["line 2"],
    ),
    "pi": ("jsonl", lines(SESSION, ENTRY, ENTRY | {"id": "x", "message": 7}, REPLY), [["hi", "ho"]], ["line 3"]),
    "codex": ("jsonl", lines(ITEM, ITEM | {"payload": {"type": "function_call"}}, ITEM), [["hi", "hi"]], ["line 2"]),
    "torn-list": ("json", of_json([HI, HO, HI])[:-12], [["hi", "ho"]], ["item 3"]),
    "torn-object": ("json", of_json({"model": "m", "messages": [HI, HO, HI]})[:-13], [["hi", "ho"]], ['"messages" breaks off']),
    "message": ("json", of_json({"model": "m", "messages": [HI, {"role": "bard"}, HO]}), [["hi", "ho"]], ["message 2"]),
    "message-of-list": ("json", of_json([HI, {"role": "bard"}, HO]), [["hi", "ho"]], ["item 2"]),
    "conversation": (
        "json",
        of_json([TALKS[0], {"conversations": [{"from": "human", "value": 7}]}, TALKS[1]]),
        [["hi", "ho"], ["hi", "hm"]],
        ["item 2"],
    ),
    "stream-line": ("jsonl", lines(*CHUNKS[:2], b'{"choices": [', *CHUNKS[2:]), [["ho"]], ["line 3"]),
    "stream-event": ("sse", of_sse([*CHUNKS[:2], {"choices": 5}, *CHUNKS[2:]]), [["ho"]], ["line 10"]),
}


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with open_ledger("memory:") as made:
        yield made


@pytest.mark.parametrize("name", CASES)
async def test_the_rest_is_taken_and_what_is_broken_is_named(ledger: Ledger, tmp_path: Path, name: str) -> None:
    ending, content, texts, places = CASES[name]
    path = tmp_path / f"c.{ending}"
    path.write_bytes(content)
    with pytest.raises(FileError):
        await ledger.import_file(path)
    assert [info async for info in ledger.conversations()] == []
    found = await taken(ledger, path, skip_broken=True)
    assert [one.texts for one in found] == texts
    report = await ledger.import_file(path, skip_broken=True)
    told = [why.removeprefix(f"{path}").lstrip(":, ") for why in report.broken]
    assert len(told) == len(places)
    assert all(any(why.startswith(place) for why in told) for place in places), told
    assert found[0].losses == [f"passed over: {why}" for why in report.broken]
    assert [one.added for one in report.conversations] == [0] * len(texts)


async def test_an_exchange_of_a_cassette_is_passed_over(ledger: Ledger, tmp_path: Path) -> None:
    bad = [
        exchange(CHAT, ask("x"), {"choices": 5}),
        exchange(CHAT, {"messages": [{"role": "bard", "content": "x"}]}, completion("x")),
        7,
    ]
    good = exchange(CHAT, ask("hi"), completion("ho"))
    for number, one in enumerate(bad):
        path = write(tmp_path / f"{number}.yaml", one, good)
        with pytest.raises(FileError, match="interaction 1"):
            await ledger.import_file(path)
        [conversation] = await taken(ledger, path, skip_broken=True)
        assert conversation.texts == ["hi", "ho"]
        assert any("interaction 1" in loss for loss in conversation.losses)


def test_the_command_says_what_was_passed_over_and_ends_with_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines(HI, b"{", HO))
    told = shell.read("import", "--skip-broken", str(path), code=1)
    assert [one["conversation"] for one in told["conversations"]] == ["c"]
    assert ["line 2" in why for why in told["broken"]] == [True]
    assert [message["role"] for message in shell.read("show", "c")["messages"]] == ["user", "assistant"]
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "a.jsonl").write_bytes(path.read_bytes())
    (tmp_path / "all" / "b.json").write_bytes(of_json([HI]))
    told = shell.read("import", "--skip-broken", str(tmp_path / "all"), code=1)
    assert ([one["conversation"] for one in told["conversations"]], told["refused"], len(told["broken"])) == (["a", "b"], [], 1)
    path.write_bytes(of_lines([HI, HO]))
    shell.run("import", "--skip-broken", str(path))
    path.write_bytes(b"{")
    shell.run("import", "--skip-broken", str(path), code=2)


@pytest.mark.heavy
def test_of_our_own_exports_the_conversations_that_are_whole_are_taken(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.json").write_bytes(of_json([HI | {"content": name}, HO]))
        shell.run("import", str(tmp_path / f"{name}.json"))
    for name in ("tailfold", "tailfold-messages"):
        rows = shell.run("export", "--all", "--format", name).splitlines()
        at = next(number for number, row in enumerate(rows) if json.loads(row).get("conversation") == "b")
        rows[at + 2] = rows[at + 2][:-5]
        (tmp_path / name).mkdir()
        path = tmp_path / name / "all.jsonl"
        path.write_text("\n".join(rows) + "\n")
        other = Shell(tmp_path / name)
        other.run("import", str(path), code=2)
        told = other.read("import", "--skip-broken", str(path), code=1)
        assert [one["conversation"] for one in told["conversations"]] == ["a", "c"]
        assert [f"line {at + 3}" in why for why in told["broken"]] == [True]
        assert other.run("verify") == "everything is as it should be\n"


def test_two_files_of_one_stem_are_two_conversations(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    folder = tmp_path / "all"
    (folder / "deep").mkdir(parents=True)
    (folder / "x.json").write_bytes(of_json([HI, HO]))
    (folder / "x.sse").write_bytes(of_sse(CHUNKS))
    (folder / "deep" / "x.json").write_bytes(of_json([HO]))
    told = shell.read("import", str(folder))
    assert sorted(one["conversation"] for one in told["conversations"]) == ["deep/x", "x.json", "x.sse"]
    assert "4 conversations" not in shell.run("import", str(folder))
    one_by_one = shell.read("import", str(folder / "x.json"), str(folder / "x.sse"))
    assert [(one["conversation"], one["added"]) for one in one_by_one] == [("x.json", 0), ("x.sse", 0)]
    assert "3 files: 3 conversations" in shell.run("import", str(folder))


def test_a_conversation_that_has_the_name_of_another_file_is_refused(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    folder = tmp_path / "all"
    (folder / "x").mkdir(parents=True)
    (folder / "x.json").write_bytes(of_json(TALKS))
    (folder / "x" / "1.json").write_bytes(of_json([HI]))
    told = shell.read("import", str(folder), code=1)
    [why] = told["refused"]
    assert "'x/1' would be that of" in why
