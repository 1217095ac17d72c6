"""Streams that are no conversations: of other programs in the same log, and under ids that are kept for a protocol."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from ledger import FileError, Ledger, NoConversation, UnknownConversation, open_ledger
from ledger.tables.conversations import Page
from ledger.upkeep.verify import verify
from projector.formats.shared.history import History, HistoryMessage, text_block
from stream import InvalidId, NewEvent
from tests.fork_server import COMMANDS
from tests.ledger_commands import fill, refuse_each, turns
from tests.old_files import VERSION_4
from tests.talk import new
from tests.test_commands import Shell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

LEDGERS: Final = ("memory", "sqlite", "log elsewhere", pytest.param("postgres", marks=pytest.mark.heavy))
OTHERS: Final = [NewEvent("price", b"\x00\xff"), NewEvent("custom", b"{}"), NewEvent("price", b"")]
NO_RAW: Final = NewEvent("raw", b"has no such body")
WRITES: Final[dict[str, Callable[[Ledger, str], Awaitable[object]]]] = {
    "begin_run": lambda ledger, name: ledger.begin_run(name),
    "run": lambda ledger, name: ledger.run(name).__aenter__(),
    "fork": lambda ledger, name: ledger.fork(name, "m").__aenter__(),
    "record": lambda ledger, name: ledger.record(name, turns(1)),
    "record nothing": lambda ledger, name: ledger.record(name, []),
    "take_in": lambda ledger, name: ledger.take_in(name, History((HistoryMessage("user", (text_block("hi"),)),))),
    "import_file": lambda ledger, name: ledger.import_file("there is no such file", into=name),
    "describe": lambda ledger, name: ledger.describe(name, title="t"),
    "archive": lambda ledger, name: ledger.describe(name, archived=True),
    "add_media": lambda ledger, name: ledger.add_media(name, b"bytes", "text/plain"),
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


async def listed(ledger: Ledger) -> list[str]:
    return sorted([info.conversation async for info in ledger.conversations(archived=True)])


async def found(ledger: Ledger, conversation: str | None = None) -> list[tuple[str, str, bool]]:
    return [(each.conversation, each.kind, each.is_note) async for each in verify(ledger, conversation)]


@pytest.mark.anyio
@pytest.mark.parametrize("what", WRITES)
async def test_nothing_is_written_under_an_id_that_is_kept_for_a_protocol(ledger: Ledger, what: str) -> None:
    for name in ("ds:x", "ds:", "ds:" + "x" * 253):
        with pytest.raises(InvalidId, match="begins with 'ds:'"):
            await WRITES[what](ledger, name)
    assert [info async for info in ledger.store.streams()] == []
    assert await ledger.tables.names() == []
    for name in ("ds", "DS:x", "xds:"):
        await ledger.describe(name, title="t")
    assert await listed(ledger) == ["DS:x", "ds", "xds:"]


@pytest.mark.anyio
async def test_streams_of_other_programs_are_neither_listed_nor_compacted(ledger: Ledger) -> None:
    await ledger.record("c", turns(2))
    for name in ("other", "ds:x", "ds:talk"):
        await ledger.store.append(name, turns(1) if name == "ds:talk" else OTHERS)
    assert await listed(ledger) == ["c"]
    assert await ledger.transcript("other") == []
    assert await listed(ledger) == ["c"]
    for name, why in (("other", "no event that a conversation is made of"), ("ds:x", "'ds:'"), ("ds:talk", "'ds:'")):
        for options in ({}, {"drop_unkept": True}, {"dry_run": True}):
            with pytest.raises(NoConversation, match=why):
                await ledger.compact(name, **options)
        assert (await ledger.store.bounds(name)).floor == 0
        assert await ledger.store.snapshots.list(name) == []
    for name in ("none", "ds:none"):
        with pytest.raises(UnknownConversation):
            await ledger.compact(name)
    assert await found(ledger) == [("ds:talk", "reserved", True)]
    assert not [finding async for finding in ledger.reconcile(repair=True)]
    assert await ledger.tables.names() == ["c", "other"]  # of the others nothing is taken in
    assert (await ledger.compact("c")).floor == 14


@pytest.mark.anyio
async def test_a_stream_is_a_conversation_from_its_first_event_of_the_vocabulary_on(ledger: Ledger) -> None:
    await ledger.store.append("late", [*OTHERS, NO_RAW])
    assert await listed(ledger) == []
    with pytest.raises(NoConversation):
        await ledger.compact("late")
    await ledger.record("late", [new("message.annotated", message_id="of nothing", patch={})])
    await ledger.record("raw", [new("raw", provider="p", event={})])
    await ledger.add_media("media", b"bytes", "text/plain")
    await ledger.record("renamed", [new("conversation.updated", title="t")])
    assert await listed(ledger) == ["late", "media", "raw", "renamed"]
    async for info in ledger.conversations():
        [event] = await ledger.store.read(info.conversation, after=4 if info.conversation == "late" else 0)
        assert info.active_at == event.at > 0
    assert (await ledger.compact("late"))[1:4] == (0, 5, "unkept")
    async with ledger.run("late") as run:
        await run.message("user", "hi")
    assert (await ledger.compact("late", drop_unkept=True)).unkept == 3  # `raw` goes with the log, whatever it says


@pytest.mark.anyio
async def test_a_conversation_stays_one_when_its_log_is_empty(ledger: Ledger) -> None:
    await ledger.record("c", turns(1))
    await ledger.record("raw", [new("raw", provider="p", event={})])
    for _ in range(2):
        for name in ("c", "raw"):
            done = await ledger.compact(name)
            assert done.floor == done.head
    assert await listed(ledger) == ["c", "raw"]
    await ledger.store.append("c", OTHERS[:1])
    assert (await ledger.compact("c")).binds == "unkept"
    await ledger.erase("c")
    assert await listed(ledger) == ["c", "raw"]
    assert (await ledger.compact("c")).binds is None


@pytest.mark.anyio
async def test_an_erase_leaves_the_streams_of_others_alone(ledger: Ledger) -> None:
    await ledger.store.append("queue", OTHERS)
    await ledger.record("c", turns(1))
    for names in (("queue",), ("c", "queue")):
        with pytest.raises(NoConversation, match="'queue' is no conversation, it holds no event that"):
            await ledger.erase(*names)
    assert [event.type for event in await ledger.store.read("queue")] == [event.type for event in OTHERS]
    assert await listed(ledger) == ["c"]
    await ledger.record("queue", turns(1))
    assert (await ledger.erase("queue")).events == len(OTHERS) + len(turns(1))


@pytest.mark.anyio
async def test_what_another_program_lets_go_of_its_stream_is_no_hole(ledger: Ledger) -> None:
    await ledger.store.append("queue", OTHERS)
    assert await listed(ledger) == []
    for _ in range(3):
        head = (await ledger.store.append("queue", OTHERS * 2)).last_seq
        await ledger.store.truncate("queue", through=head)
        assert (await found(ledger), await listed(ledger)) == ([], [])
    await ledger.store.append("queue", OTHERS * 2)
    await ledger.store.truncate("queue", through=head + 2)
    assert not [finding async for finding in ledger.reconcile() if not finding.is_note]
    assert [finding.is_mended async for finding in ledger.reconcile(repair=True)] == [True]
    await ledger.record("queue", turns(1))
    assert [message.text for message in await ledger.transcript("queue")] == ["turn 0"]
    assert (await found(ledger), await listed(ledger)) == ([], ["queue"])


@pytest.mark.anyio
async def test_events_of_a_conversation_that_are_gone_are_a_hole_as_before(ledger: Ledger) -> None:
    await ledger.store.append("late", OTHERS)
    assert await listed(ledger) == []
    await ledger.record("late", turns(2))
    await ledger.store.truncate("late", through=10)  # a conversation began there, and the ledger has not seen it
    assert ("late", "hole", False) in await found(ledger)
    await ledger.store.append("new", OTHERS)
    await ledger.store.truncate("new", through=3)  # nobody can tell what that was
    assert ("new", "hole", False) in await found(ledger)


@pytest.mark.anyio
async def test_no_snapshots_are_left_in_streams_of_others(ledger: Ledger) -> None:
    await ledger.store.append("other", OTHERS * 500)
    await ledger.catch_up("other")
    assert await ledger.store.snapshots.list("other") == []
    assert await ledger.tables.positions(["other"]) == {"other": 1500}


@pytest.mark.anyio
async def test_a_conversation_of_before_the_prefix_was_kept_can_be_read_and_moved(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.store.append("ds:old", turns(2))
    assert [message.text for message in await ledger.transcript("ds:old")] == ["turn 0", "turn 1"]
    assert await found(ledger) == await found(ledger, "ds:old") == [("ds:old", "reserved", True)]
    assert await listed(ledger) == []
    await ledger.store.append("ds:old", turns(1, "z", "q1.1"))
    await ledger.catch_up_all()  # of such a one all is taken in
    assert (await ledger.tables.positions(["ds:old"])) == {"ds:old": 21}
    await ledger.redact("ds:old", "q0.1")
    assert (await ledger.transcript("ds:old"))[0].text == ""
    lines = [{"tailfold": 1, "conversation": "ds:old", "floor": 0, "origin": 0, "head": 1}]
    event = {"seq": 1, "at": 5, "type": "custom", "data": "{}"}
    file = tmp_path / "old.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in [*lines, event]))
    with pytest.raises(FileError, match=r"begins with 'ds:'.*--into"):
        await ledger.import_file(file)
    assert (await ledger.import_file(file, into="moved")).conversations[0].head == 1
    assert (await ledger.erase("ds:old")).messages == 3
    await ledger.store.append("ds:unseen", turns(2))
    assert (await ledger.erase("ds:unseen")).messages == 2


@pytest.mark.anyio
async def test_a_file_that_would_have_such_an_id_is_refused_before_anything_is_stored(ledger: Ledger, tmp_path: Path) -> None:
    chat = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "ds:x.json").write_text(chat)
    with pytest.raises(FileError, match=r"ds:x\.json: conversation id 'ds:x'"):
        await ledger.import_file(folder / "ds:x.json")
    assert [info async for info in ledger.store.streams()] == []
    (folder / "ok.json").write_text(chat)
    report = await ledger.import_file(folder)
    assert [(len(report.conversations), len(report.refused))] == [(1, 1)]
    assert await listed(ledger) == ["ok"]


@pytest.mark.anyio
async def test_a_file_of_before_lists_its_conversations_and_no_other_streams(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(VERSION_4.read_bytes()))
    put = "INSERT INTO conversations (stream_id, projected_seq, replay_from, title, active_at) VALUES (?, 3, 3, ?, 0)"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(put, ("other", None))
        raw.execute(put, ("named", '"a title"'))
    async with open_ledger(str(path)) as ledger:
        known = [info.conversation async for info in ledger.tables.conversations(Page())]
    assert sorted(known) == ["gone", "named", "talk"]


@pytest.mark.heavy
def test_the_commands_pass_over_other_streams_and_say_so(shell: Shell) -> None:
    async def job(ledger: Ledger) -> None:
        await ledger.record("c", [*turns(1), new("another.type", x=1), *turns(1, "z", "q0.1")])
        for name in ("other", "ds:x"):
            await ledger.store.append(name, OTHERS)

    fill(shell, job)
    [tried, *others] = shell.read("compact", "--all", "--dry-run")
    assert (tried["conversation"], tried["floor"], tried["binds"], tried["unkept"]) == ("c", 7, "unkept", 0)
    assert [(one["conversation"], one["error"], one["floor"]) for one in others] == [
        ("ds:x", None, None),
        ("other", None, None),
    ]
    assert [one["passed_over"] for one in others] == [
        "its id begins with 'ds:'",
        "it holds no event that a conversation is made of",
    ]
    told = shell.run("compact", "--all").splitlines()
    assert "7 events went: the log keeps 8 to 15, bound by unkept: nothing else keeps event 8" in told[0]
    assert told[2] == "other: passed over: it is no conversation, it holds no event that a conversation is made of"
    assert shell.read("compact", "c", "--drop-unkept", "--dry-run")["unkept"] == 1
    assert "8 events went, 1 of which nothing else keeps: the log keeps none" in shell.run("compact", "c", "--drop-unkept")
    assert [one["conversation"] for one in shell.read("conversations")["conversations"]] == ["c"]
    for name in ("other", "ds:x"):
        assert shell.read("stats", name)["head"] == 3
        assert len(shell.run("events", name).splitlines()) == 3
        assert shell.run("events", name, "--after", "3") == ""
        assert shell.read("snapshot", name)["snapshots"] == []
    assert shell.run("verify") == "everything is as it should be\n"
    refused = "".join(refuse_each(shell, [["compact", "other"], ["compact", "ds:x"], ["snapshot", "other", "--save"]]))
    assert refused.count("is no conversation") == 3
    out = shell.data.parent / "all.jsonl"
    shell.run("export", "--all", "--format", "tailfold", "-o", str(out), code=1)  # what was let go is not in it
    assert [json.loads(line)["conversation"] for line in out.read_text().splitlines() if "tailfold" in line] == ["c", "other"]


def test_an_import_of_several_files_stores_nothing_if_one_has_such_an_id(shell: Shell, tmp_path: Path) -> None:
    for name in ("a.json", "ds:x.json"):
        (tmp_path / name).write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}))
    done = COMMANDS.run("--data", str(shell.data), "import", str(tmp_path / "a.json"), str(tmp_path / "ds:x.json"))
    assert (done.returncode, shell.data.exists()) == (2, False)
    assert b"begins with 'ds:'" in done.stderr
    done = COMMANDS.run("--data", str(shell.data), "import", str(tmp_path / "a.json"), "--into", "ds:y")
    assert (done.returncode, shell.data.exists()) == (2, False)
    assert "begins with 'ds:'" in shell.play("ds:x", code=2)
    assert not shell.data.exists()
