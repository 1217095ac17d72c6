"""`export` and `import` of what is wrong: it is named, nothing of such a file is stored, and nothing is overwritten."""

from __future__ import annotations

import gzip
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from ledger.transfer.files import FileError, open_lines
from ledger.transfer.jsonl import look_through
from tests.exchange_files import HEADER, LINES, aside, much
from tests.ledger_commands import fill, record, refuse_each, turns
from tests.talk import new
from tests.test_bad_input import refused
from tests.test_commands import SAMPLE, Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def with_line(number: int, line: str) -> str:
    return "\n".join([*LINES[: number - 1], line, *LINES[number:]]) + "\n"


WRONG = [
    ("empty", "", ': the file holds no conversation: {"tailfold": 1'),
    ("blank", "\n \n\n", ": the file holds no conversation"),
    ("no json", with_line(2, "hello"), ", line 2: this is no line of a Tailfold export: JSON is malformed"),
    ("array", with_line(2, "[1]"), ", line 2: this is no line of a Tailfold export: Expected `object`, got `array`"),
    ("deep", with_line(2, '{"seq":' + "[" * 100_000 + "]" * 100_000 + "}"), "line 2: this is no line"),
    ("recording", SAMPLE.read_text(encoding="utf-8"), 'line 1: {"tailfold": 1, '),
    ("events", "\n".join(LINES[1:]), 'line 1: {"tailfold": 1, "conversation": …'),
    ("newer", with_line(1, HEADER.replace("1", "2", 1)), "line 1: its format is 2, this one knows 1: upgrade Tailfold"),
    ("odd id", with_line(1, HEADER.replace('"c"', '""')), "line 1: conversation id '' is empty"),
    ("no head", with_line(1, HEADER.replace(',"head":2', "")), "line 1: this is no line of a Tailfold export"),
    ("negative", with_line(1, HEADER.replace('"origin":0', '"origin":-1')), "line 1: origin must be a whole number"),
    ("bounds", with_line(1, HEADER.replace('"floor":0', '"floor":3')), "line 1: origin 0, floor 3 and head 2 are"),
    ("nothing", HEADER.replace('"head":2', '"head":0'), "line 1: origin 0, floor 0 and head 0 are no bounds"),
    ("field", with_line(2, '{"seq":1,"at":5,"type":"x","data":"{}","n":1}'), "line 2: this is no line"),
    ("no data", with_line(2, '{"seq":1,"at":5,"type":"x"}'), "line 2: one of data and data_base64 was expected"),
    ("two data", with_line(2, '{"seq":1,"at":5,"type":"x","data":"{}","data_base64":""}'), "line 2: one of data and"),
    ("base64", with_line(3, '{"seq":2,"at":5,"type":"x","data_base64":"A*"}'), "line 3: data_base64 is no base64"),
    ("text", with_line(2, '{"seq":1,"at":5,"type":"x","data":"hi"}'), "line 2: the event can't be stored: the body"),
    ("body", with_line(2, '{"seq":1,"at":5,"type":"run.started","data":"{}"}'), "the body of 'run.started' is wrong"),
    ("type", with_line(2, '{"seq":1,"at":5,"type":"","data":"{}"}'), "line 2: the event can't be stored: its type"),
    ("time", with_line(2, '{"seq":1,"at":-5,"type":"x","data":"{}"}'), "line 2: at must be a whole number"),
    ("gap", "\n".join([LINES[0], LINES[2]]), "line 2: event 1 of 'c' was expected, this is event 2"),
    ("repeat", "\n".join([*LINES, LINES[2]]), "line 4: nothing was expected behind event 2 of 'c', this is event 2"),
    ("cut off", "\n".join(LINES[:2]), "line 2: event 2 of 'c' was expected, but the file ends"),
    ("next", "\n".join([*LINES[:2], HEADER.replace('"c"', '"d"')]), "line 3: event 2 of 'c' was expected, but the next"),
    ("twice", "\n".join([*LINES, *LINES]), "line 4: conversation 'c' is in this file twice"),
    ("media", with_line(2, '{"media":"a","media_type":"x","data_base64":""}'), "line 2: the bytes are not those of"),
]  # fmt: skip


def test_a_line_that_is_wrong_is_named_before_anything_is_stored(shell: Shell, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.jsonl" for name, _, _ in WRONG]
    for file, (_, content, _) in zip(files, WRONG, strict=True):
        file.write_text(content)
    told = refuse_each(shell, [["import", str(file), "--format", "tailfold"] for file in files])
    for file, (_, _, why), line in zip(files, WRONG, told, strict=True):
        assert line.startswith(f"tailfold: {file}")
        assert why in line
    assert not shell.data.exists()


def test_a_file_that_is_damaged_is_named(shell: Shell, tmp_path: Path) -> None:
    text = "\n".join([*LINES, ""]).encode()
    packed = gzip.compress(text)
    contents = {
        "the compressed file ends too early: fetch it again": packed[:60],
        "the file can't be read": packed[:2] + b"nonsense",
        "line 4: this is no UTF-8 text": text + b"\xff\n",
    }
    files = [tmp_path / f"{number}.jsonl.gz" for number in range(len(contents))]
    for file, content in zip(files, contents.values(), strict=True):
        file.write_bytes(content)
    told = refuse_each(shell, [["import", str(file)] for file in files])
    for file, why, line in zip(files, contents, told, strict=True):
        assert line.startswith(f"tailfold: {file}")
        assert why in line


def test_all_files_are_looked_through_before_any_is_stored(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text("\n".join(LINES))
    (tmp_path / "bad.jsonl").write_text("\n".join(LINES[:2]))
    assert "bad.jsonl, line 2" in refused(shell, "import", str(tmp_path / "good.jsonl"), str(tmp_path / "bad.jsonl"))
    assert "No such file" in refused(shell, "import", str(tmp_path / "good.jsonl"), str(tmp_path / "no.jsonl"))
    assert "not for a folder" in refused(shell, "import", str(tmp_path), "--into", "c")
    assert not shell.data.exists()
    shell.run("import", str(tmp_path / "good.jsonl"))
    assert shell.run("export", "c") == "\n".join([*LINES, ""])


def test_a_file_that_changes_while_it_is_read_is_not_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text("\n".join(LINES))
    with open_lines(path) as file:
        [section] = look_through(file, path)
        assert [item.data for _, item in section.read()] == [b'{"n":1}', b"\0\1"]
        for changed in (LINES[:2], [*LINES[:2], HEADER], [LINES[0], LINES[2]]):
            path.write_text("\n".join(changed))
            with pytest.raises(FileError, match="changed while it was read"):
                list(section.read())


def test_an_unknown_format_names_those_there_are(shell: Shell, tmp_path: Path) -> None:
    fill(shell, much)
    for words in (["export", "a"], ["import", str(tmp_path / "x")]):
        told = refused(shell, *words, "--format", "telegraph")
        assert "'telegraph' is no format" in told
        assert "anthropic, " in told


def test_what_is_there_is_not_overwritten_and_what_fails_leaves_nothing(shell: Shell, tmp_path: Path) -> None:
    fill(shell, much)
    (tmp_path / "note").write_text("mine")
    assert "note: there is something of this name" in refused(shell, "export", "a", "--output", str(tmp_path / "note"))
    assert "its folder does not exist" in refused(shell, "export", "a", "--output", str(tmp_path / "no" / "a"))
    assert "no conversation 'x'" in refused(shell, "export", "x", "--output", str(tmp_path / "x"))
    assert {path.name for path in tmp_path.iterdir()} == {"note", "chat.db"}
    assert (tmp_path / "note").read_text() == "mine"


def test_no_room_for_an_export_is_one_line_and_leaves_nothing(shell: Shell, tmp_path: Path) -> None:
    import resource  # noqa: PLC0415

    fill(shell, much)
    fill(shell, lambda ledger: record(ledger, "b", [new("custom", text='"' * 2_000_000)]))  # twice as long in an export

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (shell.data.stat().st_size, -1))

    words = shell.command("export", "--all", "--output", str(tmp_path / "all.jsonl"))
    done = subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "there is no room left for it, nothing was made" in done.stderr
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("all")]


def test_a_damaged_log_is_exported_up_to_the_damage_on_a_pipe_and_not_at_all_to_a_file(shell: Shell, tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415
    from contextlib import closing  # noqa: PLC0415

    fill(shell, lambda ledger: record(ledger, "c", turns(1)))
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        raw.execute("DROP TRIGGER events_never_change")
        raw.execute("UPDATE appends SET data = zeroblob(length(data))")
    assert "is damaged" in aside(shell, "export", "c", code=2)[1]
    assert "is damaged" in aside(shell, "export", "c", "--output", str(tmp_path / "c.jsonl"), code=2)[1]
    assert {path.name for path in tmp_path.iterdir()} == {"chat.db"}


def test_odd_words_are_refused(shell: Shell) -> None:
    fill(shell, much)
    assert "conversation id" in refused(shell, "export", os.fsdecode(b"\xff"))
    assert "No such file" in refused(shell, "import", os.fsdecode(b"\xff"))
