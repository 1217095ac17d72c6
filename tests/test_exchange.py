"""`export` and `import`: the same log again, byte for byte, once, however often, and in little memory."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from stream import Event, NewEvent, open_store
from tests.exchange_files import ODD, aside, much
from tests.ledger_commands import fill, record, turns
from tests.talk import finished, new, said, started
from tests.test_bad_input import refused
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Shell:
    """Another database."""
    (tmp_path / "other").mkdir()
    return Shell(tmp_path / "other")


def events_of(shell: Shell, conversation_id: str) -> list[Event]:
    async def read() -> list[Event]:
        async with open_store(str(shell.data), create=False) as store:
            found: list[Event] = []
            while page := await store.read(conversation_id, after=found[-1].seq if found else 0):
                found += page
            return found

    return asyncio.run(read())


# the same log again


@pytest.mark.heavy
def test_what_is_imported_is_exported_as_the_same_bytes(shell: Shell, other: Shell, tmp_path: Path) -> None:
    fill(shell, much)
    exported = shell.run("export", "--all")
    (tmp_path / "all.jsonl").write_text(exported)
    other.run("import", str(tmp_path / "all.jsonl"))
    assert other.run("export", "--all") == exported
    for name in ("a", "b", "é 3"):
        assert events_of(other, name) == events_of(shell, name)
        assert other.read("show", name) == shell.read("show", name)
    assert other.read("runs")["runs"] == shell.read("runs")["runs"]
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


@pytest.mark.heavy
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


@pytest.mark.heavy
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


@pytest.mark.heavy
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


@pytest.mark.heavy
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


@pytest.mark.heavy
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
    told = shell.read("export", "c", "--format", "tailfold", "--output", str(tmp_path / "2.jsonl"), code=1)
    assert told["conversations"][0] == {
        "conversation": "c", "floor": 11, "origin": 0, "head": 21, "events": 10, "media": 0, "missing_media": [],
        "is_whole": False,
    }  # fmt: skip
    cut = refused(other, "import", str(tmp_path / "2.jsonl"))  # and makes no database
    assert "line 1: conversation 'c' can't begin with this export, events 1 to 11 are gone from it" in cut
    assert "import an older one first, or instead of it what `tailfold export --format tailfold-messages` wrote" in cut
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


@pytest.mark.heavy
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
    out, err = aside(shell, "export", "c", "--format", "tailfold", code=1)
    assert json.loads(out.splitlines()[0]) == {"tailfold": 1, "conversation": "c", "floor": 10, "origin": 0, "head": 14}
    assert [json.loads(line)["seq"] for line in out.splitlines()[1:]] == [11, 12, 13, 14]
    assert "conversation 'c': events 1 to 10 are gone from its log, the export holds 11 to 14" in err
    shell.run("compact", "c")
    told = shell.run("export", "c", "--format", "tailfold", "--output", str(tmp_path / "c.jsonl"), code=1)
    assert "events 1 to 14 are gone from its log, the export holds none" in told


@pytest.mark.heavy
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


@pytest.mark.heavy
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
