"""A file of an older version is copied, then brought up to date, with all that it held."""

from __future__ import annotations

import gzip
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from ledger import open_ledger
from ledger.upkeep.backup import known_scripts
from ledger.upkeep.verify import verify
from stream import AppendResult, Bounds, NewEvent, Producer, ProducerFenced, SeqConflict, Truncated, open_store
from stream.sqlite.backup import restore
from tests.old_files import (
    LOG_VERSION_2,
    OLD_INCARNATION,
    VERSION_1,
    VERSION_2,
    VERSION_3,
    VERSION_4,
    VERSION_5,
    VERSION_6,
    names,
    rows,
)
from tests.talk import conversation

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(VERSION_1.read_bytes()))
    return path


async def test_all_that_an_old_log_held_is_there(old: Path) -> None:
    async with open_store(str(old)) as store:
        assert store.incarnation == OLD_INCARNATION
        infos = {info.stream_id: (info.floor, info.head, info.origin) async for info in store.streams()}
        assert infos == {
            "whole": (0, 24, 0), "named": (0, 1, 0), "produced": (0, 4, 0), "truncated": (8, 18, 0),
            "deleted": (5, 5, 5), "talk": (12, 16, 0), "raw": (0, 43, 0),
        }  # fmt: skip
        assert [event.data for event in await store.read("whole")] == [b"%d" % n for n in range(1, 25)]
        assert [event.seq for event in await store.read("whole", after=7, limit=4)] == [8, 9, 10, 11]
        assert [event.data for event in await store.read("truncated", after=8)] == [b"%d" % n for n in range(9, 19)]
        with pytest.raises(Truncated):
            await store.read("truncated", after=7)
        assert [(event.type, event.data) for event in await store.read("raw")] == [(e.type, e.data) for e in conversation()]
        assert (await store.read("whole"))[0].at == 1795841964230
        for last_seq in (9, 15):
            assert last_seq in [info.last_seq for info in await store.snapshots.list("truncated") if info.readable]
        newest = await store.snapshots.load("truncated", "p")
        assert newest is not None
        assert (newest.last_seq, newest.state) == (15, b"state 15")


async def test_writers_go_on_in_an_old_log_where_they_were(old: Path) -> None:
    async with open_store(str(old)) as store:
        assert await store.append("named", [NewEvent("t", b"a")], expected_seq=0, append_id="i") == AppendResult(1, 1)
        with pytest.raises(SeqConflict):
            await store.append("named", [NewEvent("t", b"b")], expected_seq=0, append_id="i")
        assert await store.producer("produced", "p") == Producer("p", 2, 2)
        repeated = await store.append("produced", [NewEvent("t", b"p2")], producer=Producer("p", 2, 2))
        assert repeated == AppendResult(3, 3, duplicate=True)
        with pytest.raises(ProducerFenced):
            await store.append("produced", [NewEvent("t", b"x")], producer=Producer("p", 1, 0))
        assert await store.append("produced", [NewEvent("t", b"p3")], producer=Producer("p", 2, 3)) == AppendResult(5, 5)
        assert await store.append("deleted", [NewEvent("t", b"new")], producer=Producer("d", 0, 1)) == AppendResult(6, 6)
        assert await store.bounds("deleted") == Bounds(5, 6, 5)


async def test_an_old_ledger_goes_on_with_its_transcript_and_its_open_run(old: Path) -> None:
    async with open_ledger(str(old)) as ledger:
        assert [(message.role, message.text) for message in await ledger.transcript("talk")] == [
            ("user", "Hello?"),
            ("assistant", "Hello."),
        ]
        [left] = await ledger.open_runs("talk")
        assert (left.run_id, left.messages[0].text) == ("open-run", "half a sen")
        # What was truncated before a ledger had read it was a hole in version 1, too, and it missed late amendments.
        found = [finding async for finding in verify(ledger) if not finding.is_note]
        assert [(finding.conversation, finding.kind) for finding in found] == [("raw", "differs"), ("truncated", "hole")]
        mended = [finding async for finding in ledger.reconcile(repair=True) if not finding.is_note]
        assert [(finding.kind, finding.is_mended) for finding in mended] == [("diverged", True), ("hole", False)]
        assert not [finding async for finding in verify(ledger) if not finding.is_note]
        assert (await ledger.recover("talk", "open-run", "commit")).recovered == "commit"
        assert [message.text for message in await ledger.transcript("talk")] == ["Hello?", "Hello.", "half a sen"]
        async with ledger.run("talk") as run:
            await run.text("new")
        assert not [finding async for finding in verify(ledger, "talk")]


async def test_a_ledger_of_version_2_goes_on_with_its_branches_and_remembers_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(VERSION_2.read_bytes()))
    async with open_ledger(str(path)) as ledger:
        assert [message.text for message in await ledger.transcript("talk")] == ["Hello?", "Hello.", "And?", "Nothing."]
        forked = await ledger.transcript("talk", selections={"r1.2": "r3.1"})
        assert [message.text for message in forked] == ["Hello?", "Hello.", "Or?"]
        assert len(await ledger.transcript("short")) == 20
        [info] = [info async for info in ledger.conversations(prefix="talk")]
        assert (info.title, info.labels) == ("A talk", ["l"])
        assert [left.run_id for left in await ledger.open_runs("other")] == ["open-run"]
        event = NewEvent("context.expanded", b'{"turn":1,"message_id":"r1.1"}')
        seq = (await ledger.record("talk", [event])).last_seq
        await ledger.catch_up("talk")
        assert [(at, choice.TYPE) for at, choice in await ledger.tables.choices("talk")] == [(seq, "context.expanded")]
        assert not [finding async for finding in verify(ledger) if not finding.is_note]


async def test_a_ledger_of_version_3_goes_on_whole(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(VERSION_3.read_bytes()))
    async with open_ledger(str(path)) as ledger:
        said = [message.text for message in await ledger.transcript("talk")]
        assert said == ["ask r1", "", "", "ask r2", "", "", "ask r3", "", "", "will fail"]
        forked = await ledger.transcript("talk", selections={"r2.t": "f1.1"})
        assert [message.text for message in forked][-1] == "another way"
        assert len(await ledger.transcript("long")) == 236
        assert [run.run_id for run in await ledger.open_runs("other")] == ["open-run"]
        assert [info.conversation async for info in ledger.conversations(title="A TALK")] == ["talk"]
        snapshot = await ledger.store.snapshots.load("talk", "open_runs")
        assert snapshot is not None
        assert b'"amendments":[40,' in snapshot.state  # as it was written then
        for name in ("talk", "long", "gone"):
            async with ledger.run(name) as run:
                await run.text("new")
            assert (await ledger.transcript(name))[-1].text == "new"
        assert not [finding async for finding in verify(ledger) if not finding.is_note]
        await ledger.compact("talk")
        await ledger.erase("long")
        assert not [finding async for finding in verify(ledger) if not finding.is_note]
    assert names(tmp_path) == {"chat.db", "chat.db.ledger-v3-backup", "chat.db.stream-v2-backup"}
    assert rows(tmp_path / "chat.db.ledger-v3-backup", "SELECT count(*) FROM conversations WHERE name = 'talk'") == [(1,)]
    await restore(str(path), str(tmp_path / "again.db"), known_scripts())


async def test_a_ledger_of_version_4_goes_on_whole(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(VERSION_4.read_bytes()))
    assert rows(path, "SELECT id, through FROM holds") == [("3fce1ee0c3d9d21b", 3)]
    async with open_ledger(str(path)) as ledger:
        said = [message.text for message in await ledger.transcript("talk")]
        assert said == ["ask r0", "answer", "ask r1", "answer", "ask r2", "answer"]
        assert [info.conversation async for info in ledger.conversations(label="l")] == ["talk"]
        assert [run.run_id for run in await ledger.open_runs("other")] == ["open-run"]
        async with ledger.run("talk") as run:
            await run.text("new")
        compacted = await ledger.compact("talk")
        assert compacted.floor == compacted.head  # the hold of a process that is gone has run out
        assert not [finding async for finding in verify(ledger) if not finding.is_note]


async def test_a_log_of_version_2_tells_of_all_its_streams_and_of_what_changes_then(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(LOG_VERSION_2.read_bytes()))
    async with open_ledger(str(path)) as ledger:
        store = ledger.store
        page = await store.changes()
        heads = {info.stream_id: info.head async for info in store.streams()}
        assert dict(zip(page.streams, (head for _, head in page.spans), strict=True)) == heads
        assert heads.items() >= {"packed": 300, "truncated": 9, "deleted": 5, "adopted": 7, "produced": 3}.items()
        await store.append("produced", [NewEvent("t", b"p3")], producer=Producer("p", 2, 3))
        await store.truncate("packed", through=50)
        later = await store.changes(after=page.token)
        assert sorted(zip(later.streams, later.spans, strict=True)) == [("packed", (300, 300)), ("produced", (3, 4))]
        assert [message.text for message in await ledger.transcript("talk")][-1] == "answer 2"
        found = {(finding.conversation, finding.kind) async for finding in verify(ledger) if not finding.is_note}
        assert found == {(name, "hole") for name in ("adopted", "packed", "truncated")}  # gone before a ledger had read it
    assert names(tmp_path) == {"chat.db", "chat.db.stream-v2-backup", "chat.db.ledger-v5-backup"}
    await restore(str(tmp_path / "chat.db.stream-v2-backup"), str(tmp_path / "again.db"), known_scripts())


async def test_a_ledger_of_version_5_goes_on_whole(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(VERSION_5.read_bytes()))
    async with open_ledger(str(path)) as ledger, open_ledger(str(path)) as beside:
        found = await ledger.transcript("talk")
        assert [message.text for message in found] == ["ask r0", "answer", "ask r1", "redacted", "ask r2", "answer"]
        assert found[0].metadata_text == {"liked": "true"}
        forked = await ledger.transcript("talk", selections={found[1].id: "f.1"})
        assert [message.text for message in forked][-2:] == ["another way", "elsewhere"]
        assert [run.run_id for run in await ledger.open_runs("other")] == ["open-run"]
        assert not await ledger.transcript("gone")
        await beside.annotate("talk", found[0].id, {"liked": False})  # what is kept of before is not what is read
        assert (await ledger.transcript("talk"))[0].metadata_text == {"liked": "false"}
        async with ledger.run("talk") as run:
            await run.text("new")
        assert (await beside.transcript("talk"))[-1].text == "new"
        assert not [finding async for finding in verify(ledger) if not finding.is_note]
    assert names(tmp_path) == {"chat.db", "chat.db.stream-v2-backup", "chat.db.ledger-v5-backup"}


async def test_a_ledger_of_version_6_goes_on_whole_with_its_pages(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(VERSION_6.read_bytes()))
    pages = "SELECT id, conversation, crc, {} FROM pages ORDER BY id"
    before = rows(path, pages.format("data"))
    async with open_ledger(str(path)) as ledger:
        assert rows(path, pages.format("packed")) == before
        assert [message.text for message in await ledger.transcript("long")] == [
            text for number in range(30) for text in (f"ask {number}", f"answer {number}")
        ]
        found = await ledger.transcript("talk", selections={"r0.2": "r1.1"})
        assert [message.text for message in found[:6]] == ["ask 0", "answer 0", "ask 1", "answer 1", "ask 2", ""]  # redacted
        assert found[0].metadata_text == {"liked": "true"}
        assert [message.text for message in await ledger.transcript("talk")][2:] == ["another way", "elsewhere", "will fail"]
        assert [message.text for message, _ in await ledger.tables.messages_of("talk", "failed")] == ["will fail", "half a"]
        for run_id in ("0-assistant", "1-assistant"):
            of_run = await ledger.tables.messages_of("imported", run_id)
            assert [message.text for message, _ in of_run] == [f"q{run_id[0]}", f"a{run_id[0]}"]
        assert [run.run_id for run in await ledger.open_runs("other")] == ["open-run"]
        assert not [finding async for finding in verify(ledger) if not finding.is_note]
        whole = {name: await ledger.transcript(name, branch="all") for name in ("long", "talk", "imported")}
        for name, said in whole.items():
            await ledger.compact(name)  # old pages are filled up, and written anew by that
            assert await ledger.transcript(name, branch="all") == said
        assert not [finding async for finding in verify(ledger) if not finding.is_note]
    assert names(tmp_path) == {"chat.db", "chat.db.ledger-v6-backup"}
    assert rows(tmp_path / "chat.db.ledger-v6-backup", pages.format("data")) == before
    await restore(str(tmp_path / "chat.db.ledger-v6-backup"), str(tmp_path / "again.db"), known_scripts())


async def test_the_old_file_is_kept_beside_the_new_one(old: Path, tmp_path: Path) -> None:
    async with open_store(str(old)) as store:
        await store.append("whole", [NewEvent("n", b"25")])
    kept = tmp_path / "chat.db.stream-v1-backup"
    assert names(tmp_path) == {"chat.db", kept.name}
    assert rows(kept, "SELECT version FROM components WHERE name = 'stream'") == [(1,)]
    assert rows(kept, "SELECT head FROM streams WHERE name = 'whole'") == [(24,)]
    await restore(str(kept), str(tmp_path / "again.db"), known_scripts())
    async with open_store(str(tmp_path / "again.db")) as store:
        assert (await store.bounds("whole")).head == 24


async def test_a_migrated_file_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    async with open_ledger(str(old)), open_ledger(str(tmp_path / "new.db")):
        pass
    schema = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"
    assert rows(old, schema) == rows(tmp_path / "new.db", schema)


OPENING: Final = """
import asyncio, logging, sys
from ledger import open_ledger
from stream import NewEvent

async def main():
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    print("ready", flush=True)
    sys.stdin.readline()
    async with open_ledger(sys.argv[1]) as ledger:
        result = await ledger.store.append("whole", [NewEvent("n", b"new")])
        print(result.last_seq, len(await ledger.transcript("talk")))

asyncio.run(main())
"""


@pytest.mark.heavy
async def test_four_processes_open_an_old_file_at_once_and_one_of_them_migrates_it(old: Path, tmp_path: Path) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", OPENING, str(old)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    told = [child.communicate(timeout=60)[0].splitlines() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0, 0]
    for component in ("stream", "ledger"):
        migrated = [
            line for lines in told for line in lines if "stream.migrated" in line and f"component={component!r}" in line
        ]
        assert len(migrated) == 1
    assert sorted(lines[-1].split() for lines in told) == [["25", "2"], ["26", "2"], ["27", "2"], ["28", "2"]]
    left = {name for name in names(tmp_path) if not name.endswith(("-wal", "-shm"))}  # who close at once: none may be the last
    assert left == {"chat.db", "chat.db.stream-v1-backup", "chat.db.ledger-v1-backup"}
