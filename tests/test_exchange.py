"""`export` and `import`: the same log again, byte for byte, once, and nothing of a file that is wrong."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ledger.transfer.files import FileError, open_lines
from ledger.transfer.jsonl import look_through
from stream import Event, NewEvent, open_store
from tests.fork_server import COMMANDS
from tests.ledger_commands import fill, record, refuse_each, turns
from tests.talk import conversation, finished, new, said, started
from tests.test_bad_input import refused
from tests.test_commands import SAMPLE, Shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger

ODD = [
    NewEvent("raw", b"\xff\x00 no text at all"),
    NewEvent("block.delta", b'{"message_id":5}'),
    NewEvent("custom", b'[1, "no object"]'),
    NewEvent("custom", '{ "spaced" :\n 1e400, "lone": "\\ud83d", "ö": "\u2028" }'.encode()),
    NewEvent("custom", b""),
    NewEvent("ünknown", b'{"n": 100000000000000000000000000000000000000}'),
]
HEADER = '{"tailfold":1,"conversation":"c","floor":0,"origin":0,"head":2}'
LINES = [
    HEADER,
    '{"seq":1,"at":5,"type":"custom","data":"{\\"n\\":1}"}',
    '{"seq":2,"at":5,"type":"custom","data_base64":"AAE="}',
]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Shell:
    """Another database."""
    (tmp_path / "other").mkdir()
    return Shell(tmp_path / "other")


async def much(ledger: Ledger) -> None:
    """Three conversations, one of them with all that a log may hold."""
    await ledger.record("a", conversation())
    await ledger.store.append("a", ODD)
    async with ledger.run("b", run_id="r1") as run:
        await run.message("user", "Hello")
    await record(ledger, "é 3", turns(400))


def events_of(shell: Shell, conversation_id: str) -> list[Event]:
    async def read() -> list[Event]:
        async with open_store(str(shell.data), create=False) as store:
            found: list[Event] = []
            while page := await store.read(conversation_id, after=found[-1].seq if found else 0):
                found += page
            return found

    return asyncio.run(read())


def aside(shell: Shell, *words: str, code: int, given: bytes | None = None) -> tuple[str, str]:
    """Runs a command that tells something on standard error beside what it prints."""
    done = COMMANDS.run(*shell.command(*words)[5:], given=given or b"")
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stdout.decode(), done.stderr.decode()


# the same log again


def test_what_is_imported_is_exported_as_the_same_bytes(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, much)
    exported = shell.run("export", "--all")
    (tmp_path / "all.jsonl").write_text(exported)
    other.run("import", str(tmp_path / "all.jsonl"))
    assert other.run("export", "--all") == exported
    for name in ("a", "b", "é 3"):
        assert events_of(other, name) == events_of(shell, name)
        assert other.read("show", name) == shell.read("show", name)
    assert other.read("runs") == shell.read("runs")
    assert other.run("verify", "b") == "everything is as it should be\n"


def test_each_line_is_one_json_object_of_ascii_behind_a_header_for_each_conversation(shell: Shell) -> None:
    fill(shell, much)
    exported = shell.run("export", "--all")
    assert exported.isascii()
    lines = [json.loads(line) for line in exported.splitlines()]
    headers = [line for line in lines if "tailfold" in line]
    assert headers == [
        {"tailfold": 1, "conversation": name, "floor": 0, "origin": 0, "head": len(events_of(shell, name))}
        for name in ("a", "b", "é 3")
    ]
    of_a = lines[1 : headers[0]["head"] + 1]
    assert of_a[0].keys() == {"seq", "at", "type", "data"}
    for line, event in zip(of_a, events_of(shell, "a"), strict=True):
        assert (line["seq"], line["at"], line["type"]) == (event.seq, event.at, event.type)
        assert (line["data"].encode() if "data" in line else base64.b64decode(line["data_base64"])) == event.data
    assert ["data" in line for line in of_a[-len(ODD) :]] == [False, False, False, True, False, True]
    assert shell.run("export", "é 3").splitlines() == exported.splitlines()[-headers[2]["head"] - 1 :]


def test_a_gzipped_export_is_the_same_each_time_and_is_imported_like_a_plain_one(
    shell: Shell, other: Shell, tmp_path: Path
) -> None:
    fill(shell, much)
    told = shell.read("export", "--all", "--output", str(tmp_path / "all.jsonl.gz"))
    assert told.keys() == {"output", "conversations"}
    assert told["conversations"][1] == {
        "conversation": "b", "floor": 0, "origin": 0, "head": 7, "events": 7, "media": 0, "missing_media": [],
        "is_whole": True,
    }  # fmt: skip
    packed = (tmp_path / "all.jsonl.gz").read_bytes()
    assert gzip.decompress(packed).decode() == shell.run("export", "--all")
    assert (tmp_path / "all.jsonl.gz").stat().st_mode & 0o777 == 0o600
    other.run("import", str(tmp_path / "all.jsonl.gz"))
    assert "events of 3 conversations" in other.run("export", "--all", "--output", str(tmp_path / "again.jsonl.gz"))
    assert (tmp_path / "again.jsonl.gz").read_bytes() == packed


def test_a_file_that_can_be_read_only_once_is_imported_too(shell: Shell, other: Shell) -> None:
    fill(shell, much)
    exported = shell.run("export", "--all").encode()
    aside(other, "import", "/dev/stdin", code=0, given=gzip.compress(exported))
    assert other.run("export", "--all").encode() == exported


def test_an_open_run_is_carried_over_and_can_be_recovered(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, lambda ledger: record(ledger, "c", [*turns(1), started("r", "q0.1"), *said("r", "r.1", "half")]))
    shell.run("export", "c", "--output", str(tmp_path / "c.jsonl"))
    other.run("import", str(tmp_path / "c.jsonl"))
    assert other.read("show", "c") == shell.read("show", "c")
    assert other.read("recover", "r", "--action", "commit")["messages"] == 1
    other.play()
    assert len(other.read("show", "c")["messages"]) == 3


def test_media_are_carried_over_once(shell: Shell, other: Shell, tmp_path: Path) -> None:
    image = bytes(range(256)) * 10

    async def job(ledger: Ledger) -> None:
        await ledger.add_media("c", image, "image/png")
        await ledger.add_media("c", image, "image/png")
        await ledger.add_media("c", b"", "text/plain")

    fill(shell, job)
    told = shell.read("export", "c", "--output", str(tmp_path / "c.jsonl"))
    assert told["conversations"][0]["media"] == 2
    lines = (tmp_path / "c.jsonl").read_text().splitlines()
    assert [min(json.loads(line)) for line in lines].count("data_base64") == 2
    assert other.read("import", str(tmp_path / "c.jsonl"))[0]["media"] == 2
    assert other.run("export", "c").splitlines() == lines

    async def look(ledger: Ledger) -> None:
        media = await ledger.media(hashlib.sha256(image).hexdigest())
        assert (media.data, media.media_type) == (image, "image/png")

    fill(other, look)
    assert other.read("import", str(tmp_path / "c.jsonl"))[0]["added"] == 0
    wrong = (tmp_path / "c.jsonl").read_text().replace("AAEC", "AAED", 1)
    (tmp_path / "wrong.jsonl").write_text(wrong)
    assert "line 2: the bytes are not those of media" in refused(other, "import", str(tmp_path / "wrong.jsonl"))


def test_media_that_are_gone_are_named(shell: Shell, tmp_path: Path) -> None:
    media_id = hashlib.sha256(b"x").hexdigest()
    fill(shell, lambda ledger: ledger.record("c", [new("media.added", media_id=media_id, media_type="text/plain", size=1)]))
    out, err = aside(shell, "export", "c", code=1)
    assert len(out.splitlines()) == 2
    assert f"media {media_id} is not in the database" in err
    told = shell.read("export", "c", "--output", str(tmp_path / "c.jsonl"), code=1)
    assert told["conversations"][0]["missing_media"] == [media_id]


# once, however often


def test_what_is_there_already_is_skipped(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, much)
    shell.run("export", "--all", "--output", str(tmp_path / "all.jsonl"))
    first = other.read("import", str(tmp_path / "all.jsonl"))
    assert [record["skipped"] for record in first] == [0, 0, 0]
    before = other.data.read_bytes()
    again = other.read("import", str(tmp_path / "all.jsonl"), str(tmp_path / "all.jsonl"))
    assert [record["added"] for record in again] == [0] * 6
    assert other.data.read_bytes() == before
    assert again[0] == {
        "file": str(tmp_path / "all.jsonl"), "conversation": "a", "added": 0, "skipped": first[0]["added"], "media": 0,
        "head": first[0]["head"],
    }  # fmt: skip
    assert "0 events added, 7 were there, it ends at 7" in other.run("import", str(tmp_path / "all.jsonl"))


def test_what_came_since_is_added(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(2)))
    shell.run("export", "c", "--output", str(tmp_path / "1.jsonl"))
    fill(shell, lambda ledger: record(ledger, "c", turns(400, "later", "q1.1")))
    shell.run("export", "c", "--output", str(tmp_path / "2.jsonl"))
    [first, second] = other.read("import", str(tmp_path / "1.jsonl"), str(tmp_path / "2.jsonl"))
    assert (first["added"], second["added"], second["skipped"], second["head"]) == (14, 2800, 14, 2814)
    assert other.read("show", "c")["messages"][-1]["id"] == "later399.1"
    assert [(event.type, event.data) for event in events_of(other, "c")] == [
        (event.type, event.data) for event in events_of(shell, "c")
    ]
    assert other.read("import", str(tmp_path / "1.jsonl"))[0]["added"] == 0


def test_a_large_conversation_is_added_to_page_by_page(shell: Shell, other: Shell, tmp_path: Path) -> None:
    large = [new("custom", text=letter * 9_000_000) for letter in "xyz"]
    fill(shell, lambda ledger: record(ledger, "c", [finished("r"), *large]))
    shell.run("export", "c", "--output", str(tmp_path / "c.jsonl.gz"))
    fill(other, lambda ledger: record(ledger, "c", [finished("r")]))
    assert other.read("import", str(tmp_path / "c.jsonl.gz"))[0]["added"] == 3
    assert events_of(other, "c")[-1].data == large[-1].data


def test_a_part_is_added_where_the_rest_is_there(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(2)))
    shell.run("export", "c", "--output", str(tmp_path / "1.jsonl"))
    shell.run("compact", "c", "--replay-window", "3")
    fill(shell, lambda ledger: record(ledger, "c", turns(1, "later", "q1.1")))
    told = shell.read("export", "c", "--output", str(tmp_path / "2.jsonl"), code=1)
    assert told["conversations"][0] == {
        "conversation": "c", "floor": 11, "origin": 0, "head": 21, "events": 10, "media": 0, "missing_media": [],
        "is_whole": False,
    }  # fmt: skip
    assert "there is no such file" in refused(other, "import", str(tmp_path / "2.jsonl"))
    fill(other, lambda ledger: record(ledger, "short", turns(1)))
    refusal = refused(other, "import", str(tmp_path / "2.jsonl"))
    assert "2.jsonl, line 1: conversation 'c' can't begin with this export, events 1 to 11 are gone from it" in refusal
    assert other.read("import", str(tmp_path / "1.jsonl"), str(tmp_path / "2.jsonl"))[1]["added"] == 7
    assert [message["id"] for message in other.read("show", "c")["messages"]] == ["q0.1", "q1.1", "later0.1"]
    told_of_gap = refused(other, "import", str(tmp_path / "2.jsonl"), "--into", "short")
    assert "conversation 'short' ends at 7, and the file goes on at 12: import what lies between first" in told_of_gap


def test_what_is_compacted_here_is_not_added_again(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(2)))
    shell.run("export", "c", "--output", str(tmp_path / "c.jsonl"))
    other.run("import", str(tmp_path / "c.jsonl"))
    other.run("compact", "c")
    assert other.read("import", str(tmp_path / "c.jsonl"))[0]["added"] == 0
    assert len(other.read("show", "c")["messages"]) == 2


def test_another_content_at_the_same_number_names_the_line_and_adds_nothing(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(3)))
    fill(shell, lambda ledger: record(ledger, "a", turns(1)))
    shell.run("export", "--all", "--output", str(tmp_path / "all.jsonl"))
    fill(other, lambda ledger: record(ledger, "c", [*turns(1), *turns(1, "x", "q0.1")]))
    told = refused(other, "import", str(tmp_path / "all.jsonl"))
    assert (
        f"{tmp_path / 'all.jsonl'}, line 17: event 8 of conversation 'c' is another one in the database (run.started)" in told
    )
    assert "--into" in told
    assert [info["conversation"] for info in other.read("conversations")["conversations"]] == ["c"]


def test_a_conversation_is_taken_in_under_another_id(shell: Shell, tmp_path: Path) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(2)))
    shell.run("export", "c", "--output", str(tmp_path / "c.jsonl"))
    [told] = shell.read("import", str(tmp_path / "c.jsonl"), "--into", "d")
    assert (told["conversation"], told["added"]) == ("d", 14)
    assert shell.read("import", str(tmp_path / "c.jsonl"), "--into", "d")[0]["skipped"] == 14
    assert shell.read("show", "d")["messages"] == shell.read("show", "c")["messages"]
    assert "conversation id" in refused(shell, "import", str(tmp_path / "c.jsonl"), "--into", "")
    shell.run("export", "--all", "--output", str(tmp_path / "all.jsonl"))
    told_of_two = refused(shell, "import", str(tmp_path / "all.jsonl"), "--into", "e")
    assert "--into is for files of one conversation, this one holds 2" in told_of_two


# gone, or erased


def test_an_export_says_which_events_are_gone(shell: Shell, tmp_path: Path) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(2)))
    shell.run("compact", "c", "--replay-window", "4")
    out, err = aside(shell, "export", "c", code=1)
    assert json.loads(out.splitlines()[0]) == {"tailfold": 1, "conversation": "c", "floor": 10, "origin": 0, "head": 14}
    assert [json.loads(line)["seq"] for line in out.splitlines()[1:]] == [11, 12, 13, 14]
    assert "conversation 'c': events 1 to 10 are gone from its log, the export holds 11 to 14" in err
    shell.run("compact", "c")
    told = shell.run("export", "c", "--output", str(tmp_path / "c.jsonl"), code=1)
    assert "events 1 to 14 are gone from its log, the export holds none" in told


def test_an_erased_conversation_does_not_come_back_under_its_id(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(2)))
    shell.run("export", "c", "--output", str(tmp_path / "c.jsonl"))
    shell.run("erase", "c", "--yes")
    assert "conversation 'c' was erased once" in refused(shell, "import", str(tmp_path / "c.jsonl"))
    assert shell.read("import", str(tmp_path / "c.jsonl"), "--into", "d")[0]["added"] == 14
    shell.run("export", "c", "--output", str(tmp_path / "erased.jsonl"))
    other.run("import", str(tmp_path / "erased.jsonl"))
    assert other.run("export", "c") == shell.run("export", "c")
    assert other.read("show", "c")["messages"] == []
    other.play()
    assert len(other.read("show", "c")["messages"]) == 1


# files that are wrong


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
        assert why.encode("ascii", "backslashreplace").decode() in line
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


def test_memory_does_not_depend_on_how_much_is_exported_and_imported(shell: Shell, other: Shell, tmp_path: Path) -> None:
    def peak_bytes(target: Shell, *words: str) -> int:
        script = (
            "import re, sys; from ledger.admin.app import run_app; assert run_app() == 0; "
            # not `ru_maxrss`, which begins with what the process has that started this one
            "sys.stderr.write(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1] + '000')"
        )
        command = [target.command()[0], "-c", script, *target.command(*words)[5:]]
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        return int(done.stderr)

    def peaks(name: str, count: int) -> tuple[int, int]:
        text = "x" * 10_000
        fill(shell, lambda ledger: record_large(ledger, name, [new("custom", text=text)] * count))
        file = tmp_path / f"{name}.jsonl"
        return peak_bytes(shell, "export", name, "--output", str(file)), peak_bytes(other, "import", str(file))

    small, large = peaks("small", 4_000), peaks("large", 8_000)  # pages of both are full
    assert (tmp_path / "large.jsonl").stat().st_size > (tmp_path / "small.jsonl").stat().st_size + 40_000_000
    (few_out, few_in), (many_out, many_in) = small, large
    assert many_out < few_out + 15_000_000
    assert many_in < few_in + 15_000_000


async def record_large(ledger: Ledger, conversation_id: str, events: list[NewEvent]) -> Any:
    for at in range(0, len(events), 1000):
        await ledger.store.append(conversation_id, events[at : at + 1000])


def test_odd_words_are_refused(shell: Shell) -> None:
    fill(shell, much)
    assert "conversation id" in refused(shell, "export", os.fsdecode(b"\xff"))
    assert "No such file" in refused(shell, "import", os.fsdecode(b"\xff"))
