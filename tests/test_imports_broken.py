"""Files that are broken, odd, or something else than was said: one line with file and place, and what was there stays."""

from __future__ import annotations

import gzip
import json
import os
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import open_ledger
from ledger.errors import LedgerError
from ledger.transfer.files import FileError
from projector.formats import READERS, STREAMS
from stream import StreamError
from tests.faults.sizes import FULL
from tests.imports import check_order, imported
from tests.ledger_commands import refuse_each, run_each
from tests.shared_data import files, naughty, read_bytes
from tests.smallest_files import CALL, EVENTS, HISTORIES, LINES, RECORD, SMALLEST, of_json, of_lines, read
from tests.test_commands import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


REFUSED: Final = (FileError, LedgerError, StreamError)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def reason(path: Path, content: bytes, format_name: str = "auto") -> str | None:
    """Why a file is refused, in one line that names it; None where it is taken."""
    path.write_bytes(content)
    try:
        read(path, format_name)
    except FileError as error:
        why = str(error)
        assert why.startswith(str(path)), why
        assert "\n" not in why
        assert len(why) < 700
        return why
    return None


# cut off, and the wrong format


@pytest.mark.parametrize(("ending", "content"), [case[1:3] for case in SMALLEST], ids=[case[0] for case in SMALLEST])
def test_a_file_that_is_cut_anywhere_is_taken_as_far_as_it_came_or_refused(ending: str, content: bytes, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    few = 60 if FULL else 15
    places = range(len(content)) if len(content) <= few else sorted(random.Random(seed).sample(range(len(content)), few))
    for at in places:
        reason(tmp_path / f"c.{ending}", content[:at])
    assert reason(tmp_path / f"c.{ending}", content) is None


@pytest.mark.heavy
def test_every_format_refuses_what_is_another_or_takes_it_as_its_own(tmp_path: Path) -> None:
    said = {}
    for name in sorted({*READERS, *STREAMS}):
        for case, ending, content, is_it in SMALLEST:
            if is_it.name != name:
                said[name, case] = reason(tmp_path / f"c.{ending}", content, name)
    why = [text for text in said.values() if text is not None]
    assert len(why) > len(said) / 2  # how a file is named in them is looked at by `reason`


def test_two_formats_in_one_file_are_refused_where_the_second_begins(tmp_path: Path) -> None:
    for first, second in (("anthropic", "chat"), ("chat", "responses"), ("agui", "gemini"), ("bedrock", "chat")):
        content = of_lines([*EVENTS[first], *EVENTS[second]])
        why = reason(tmp_path / "c.jsonl", content)
        assert why is None or f"line {len(EVENTS[first]) + 1}" in why, why
    why = reason(tmp_path / "c.jsonl", of_lines([RECORD, *EVENTS["chat"]]))
    assert why is None or "line 2" in why
    assert reason(tmp_path / "c.jsonl", of_lines(LINES["pi"][0]) + b"not json\n") is not None


def test_empty_files_and_what_is_no_text_are_refused(shell: Shell, tmp_path: Path) -> None:
    contents = {"empty": b"", "blank": b" \n\n", "nul": b"\0" * 50, "latin": b'[{"role":"user","content":"\xe9"}]',
                "html": b"<html>",
                "gz": gzip.compress(of_json(HISTORIES["chat"][1]))[:-9], "nested": b"[" * 100_000, "list": b"[]"}  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    commands = [["import", str(tmp_path / name)] for name in (*contents, "nowhere", "nowhere/")]
    told = refuse_each(shell, commands)
    for words, line in zip(commands, told, strict=True):
        assert line.startswith(f"tailfold: {words[1].rstrip('/')}"), line
    assert "ends too early" in told[list(contents).index("gz")]
    assert "UTF-8" in told[list(contents).index("latin")]
    assert not shell.data.exists()


@pytest.mark.heavy
def test_a_line_of_a_hundred_megabytes_is_refused_by_its_number_and_memory_stays_sane(shell: Shell, tmp_path: Path) -> None:
    for name, head in (("line.jsonl", b'{"role":"user","content":"'), ("events.txt", b'data: {"type":"')):
        with (tmp_path / name).open("wb") as file:
            file.write(head)
            for _ in range(100):
                file.write(b"x" * 1_000_000)
            file.write(b'"}\n')
        why, peak_bytes = shell.measure("import", str(tmp_path / name), code=2)
        assert "line 1 is longer than" in why
        assert peak_bytes < 600_000_000
    assert not shell.data.exists()


# folders


def test_in_a_folder_what_is_wrong_is_told_and_the_rest_is_taken_in(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "loop").symlink_to(folder)
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    (folder / "good.json").write_bytes(of_json(HISTORIES["chat"][0]))
    (folder / "deep" / "bad.json").write_bytes(b"{")
    (folder / "deep" / "good.json").write_bytes(of_json(HISTORIES["anthropic"][0]))
    os.mkfifo(folder / "pipe")
    [(code, out, err)] = run_each(shell, [["import", str(folder), "--json"]])
    told = json.loads(out)
    assert code == 1, err
    assert [one["conversation"] for one in told["conversations"]] == ["deep/good", "good"]
    assert [why.startswith(str(folder / "deep" / "bad.json")) for why in told["refused"]] == [True]
    assert shell.run("verify") == "everything is as it should be\n"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(of_json(HISTORIES["chat"][0]))
    (tmp_path / "mine").chmod(0)
    [why] = refuse_each(shell, [["import", str(tmp_path / "mine")]])
    assert "Permission denied" in why


def test_what_was_imported_before_stays(shell: Shell, tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_bytes(of_json(HISTORIES["chat"][1]))
    shell.run("import", str(good))
    for number, (name, ending, content, _) in enumerate(SMALLEST[::9]):
        part = content[: len(content) // 3]
        (tmp_path / f"{number}-{name}.{ending}").write_bytes(b"\xff" + part if ending == "bin" else part + b"\xff")
    refuse_each(shell, [["import", str(good), str(path)] for path in sorted(tmp_path.glob("*-*"))])
    (code, out, _), (clean, *_) = run_each(shell, [["verify"], ["reconcile"]])
    assert (code, out, clean) == (0, "everything is as it should be\n", 0)


# odd strings, and JSON that is none


def odd_texts() -> list[str]:
    return [*naughty(), "\x1b[31m", "a" * 300, "../../etc/passwd", "c:\\x", "%s%n", "\\ud800", "a/b#c"]


def talks(text: str) -> Iterator[tuple[str, str, Any]]:
    """The text in every place of three formats."""
    yield "chat", "json", [
        {"role": "user", "content": text or "x", "name": text},
        {"role": "assistant", "content": text, "tool_calls": [
            CALL | {"id": text or "c", "function": {"name": text or "f", "arguments": json.dumps({text: text})}}]},
        {"role": "tool", "tool_call_id": text or "c", "content": text},
    ]  # fmt: skip
    yield "anthropic", "json", {"system": text or "s", "metadata": {"user_id": text}, "messages": [
        {"role": "user", "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": [{"type": "text", "text": text}, {
            "type": "tool_use", "id": text, "name": text or "f", "input": {text: [text]}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": text, "content": text}]},
    ]}  # fmt: skip
    yield "claude-code", "json", RECORD | {"sessionId": text or "s", "cwd": text, "message": {"role": "user", "content": text}}


@pytest.mark.heavy
@pytest.mark.anyio
async def test_odd_strings_come_back_as_they_were_or_are_refused(tmp_path: Path) -> None:
    taken = 0
    refusals: list[str] = []
    async with open_ledger("memory:") as ledger:
        for number, text in enumerate(odd_texts()):
            for name, ending, document in talks(text):
                path = tmp_path / f"{name}-{number}.{ending}"
                try:
                    await imported(ledger, path, of_json(document), name)
                except REFUSED as error:
                    refusals.append(str(error))
                    continue
                taken += 1
                said = "".join(block.text for message in await ledger.transcript(path.stem) for block in message.blocks)
                assert text in said
        assert taken > 2 * len(odd_texts())
        assert all("\n" not in why for why in refusals)
        await check_order(ledger)


@pytest.mark.heavy
def test_odd_strings_are_file_names_and_ids_or_are_refused(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    good = tmp_path / "good.json"
    good.write_bytes(of_json(HISTORIES["chat"][1]))
    texts = [text for text in odd_texts() if "\0" not in text]
    names = sorted({text.replace("/", "_")[:60] for text in texts} - {"", ".", ".."})
    made = 0
    for name in names:
        try:
            (tmp_path / "all" / f"n{name}.json").write_bytes(good.read_bytes())
            made += 1
        except (OSError, UnicodeEncodeError):
            continue
    given = [os.fsencode(text).decode("utf-8", "surrogateescape") for text in texts if text.isprintable() and text[:1] != "-"]
    given = given if FULL else given[::9]  # a process for each
    commands = [["import", str(good), f"--into={text}"] for text in given]
    told = run_each(shell, [["import", str(tmp_path / "all"), "--json"], *commands, ["verify"]])
    folder = json.loads(told[0][1])
    assert (told[0][0], len(folder["conversations"]), folder["refused"]) == (0, made, [])
    for text, (code, _, err) in zip(given, told[1:-1], strict=True):
        assert code == 0 or (code == 2 and err.count("\n") == 1 and "conversation id" in err), (text, err)
    assert told[-1][:2] == (0, "everything is as it should be\n")


VECTORS: Final = files("jsontestsuite", "*/*.json*")


@pytest.mark.skipif(not VECTORS, reason="the JSON vectors are not beside this repository")
def test_vectors_of_json_alone_and_as_inputs_are_taken_or_refused(tmp_path: Path) -> None:
    for path in VECTORS:
        content = read_bytes(path)
        for name in ("auto", "chat", "anthropic", "claude-code"):
            reason(tmp_path / "c.json", content, name)
            reason(tmp_path / "c.json", b'[{"role":"user","content":' + content + b"}]", name)
        record = of_json(RECORD)[:-1] + b',"extra":' + content.strip() + b"}"
        why = reason(tmp_path / "c.json", record, "claude-code")
        if path.name.startswith("y_") and b"\n" not in content.strip():  # a record is one line
            assert why is None, path.name
        tool = (
            b'{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":' + content + b"}]}]}"
        )
        why = reason(tmp_path / "c.json", tool, "anthropic")
        if path.name.startswith("n_"):
            assert why is not None, path.name
