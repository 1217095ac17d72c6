"""Tool calls and labels have tables of their own: in step with what is said, filled where the file is older than they are."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import Ledger, open_ledger
from ledger.tables import calls
from ledger.upkeep.verify import verify
from projector.message import Block
from stream import NewEvent, StoreUnusable
from stream.sqlite import read_scripts
from tests.ledger_places import EVERYWHERE
from tests.talk import finished, new, started

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio

VERSION_3: Final = Path(__file__).parent / "fixtures" / "version_3.db.gz"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "chat.db"
    path.write_bytes(gzip.decompress(VERSION_3.read_bytes()))
    return path


def rows(path: Path, text: str, *parameters: object) -> list[Any]:
    with closing(sqlite3.connect(path)) as raw, raw:
        return raw.execute(text, parameters).fetchall()


def approval(tool_call_id: str) -> NewEvent:
    return new("tool.approval", tool_call_id=tool_call_id, approval_id="a", approved=True)


async def call(ledger: Ledger, conversation: str, run_id: str, *tool_call_ids: str) -> str:
    """A run of one message that makes tool calls; the id of the message."""
    events = [
        started(run_id),
        new("message.started", run_id=run_id, message_id=f"{run_id}.1", role="assistant"),
    ]
    for block, tool_call_id in enumerate(tool_call_ids):
        events += [
            new("block.started", message_id=f"{run_id}.1", block=block, kind="tool_call", name="f", tool_call_id=tool_call_id),
            new("block.sealed", message_id=f"{run_id}.1", block=block, input={}),
        ]
    events += [new("message.finished", message_id=f"{run_id}.1", status="complete")]
    events += [finished(run_id)]
    await ledger.record(conversation, events)
    await ledger.catch_up(conversation)
    return f"{run_id}.1"


async def approved(ledger: Ledger, conversation: str) -> list[str]:
    said = await ledger.transcript(conversation, branch="all")
    return [message.id for message in said if any(block.approval for block in message.blocks)]


async def labelled(ledger: Ledger, label: str) -> list[str]:
    return sorted([info.conversation async for info in ledger.conversations(label=label, archived=True)])


async def problems(ledger: Ledger) -> list[tuple[str, str]]:
    return [(finding.conversation, finding.kind) async for finding in verify(ledger) if not finding.is_note]


async def calls_from(ledger: Ledger, conversation: str) -> int:
    text = "SELECT calls_from FROM conversations WHERE stream_id = ?1"
    return int((await ledger.tables.database.read(text, (conversation,)))[0][0])


async def test_a_ledger_of_version_3_finds_its_calls_and_labels_at_once(old: Path) -> None:
    async with open_ledger(str(old)) as ledger:
        assert await labelled(ledger, "l") == ["archived", "odd", "talk"]
        assert await labelled(ledger, "é") == ["talk"]
        assert await labelled(ledger, "no") == []
        assert await approved(ledger, "talk") == ["r2.c"]
        assert await calls_from(ledger, "long") > 0  # not filled yet
        await ledger.record("long", [approval("call_0")])  # the oldest message of all
        await ledger.record("talk", [approval("call_0"), approval("call_3")])
        assert await approved(ledger, "long") == ["n0.c"]
        assert await approved(ledger, "talk") == ["r2.c", "r3.c"]
        found = await ledger.tables.calling("talk", "call_0")
        assert found is not None
        assert found.id == "r2.c"
        await ledger.recover("other", "open-run", "commit")
        await ledger.record("other", [approval("call_o")])
        assert await approved(ledger, "other") == ["open.c"]
        assert await problems(ledger) == []


async def test_old_messages_are_filled_in_step_by_step_while_their_conversation_is_in_use(old: Path) -> None:
    async with open_ledger(str(old)) as ledger:
        steps = [await calls_from(ledger, "long")]
        while steps[-1]:
            await ledger.annotate("long", "n0.c", {"n": len(steps)})
            steps.append(await calls_from(ledger, "long"))
        assert steps == sorted(steps, reverse=True)
        assert len(steps) == 3  # 236 messages, 200 at a time
        assert await problems(ledger) == []
    expected = [("call_0", "n0.c"), ("call_2", "n2.c")]
    text = (
        "SELECT tool_call_id, message FROM calls WHERE conversation = (SELECT id FROM conversations WHERE stream_id = 'long')"
    )
    assert sorted(rows(old, text)) == expected


async def test_a_row_that_cannot_be_read_stops_no_migration_and_verify_names_it(old: Path) -> None:
    rows(old, "UPDATE messages SET body = CAST('{' AS BLOB) WHERE id = 'n0.c'")
    rows(old, "UPDATE conversations SET metadata = '{' WHERE name = 'plain'")
    async with open_ledger(str(old)) as ledger:
        for number in range(3):
            await ledger.annotate("long", "n1.1", {"n": number})
        assert await calls_from(ledger, "long") == 0
        await ledger.record("long", [approval("call_0"), approval("call_2")])
        await ledger.catch_up("long")
        assert [message.id async for message in _readable(ledger, "long") if message.blocks[0].approval] == ["n2.c"]
        assert await problems(ledger) == [("long", "damaged")]
        assert await labelled(ledger, "l") == ["archived", "odd", "talk"]


async def test_a_migration_finds_the_labels_that_the_ledger_would_have_found_whatever_is_in_them(old: Path) -> None:
    for name, metadata in {
        "talk": r'{"labels": ["NUL\u0000 in it", "NUL\u0000 again", "\u0000", "l"]}',
        "plain": r'{"labels": ["half \ud83d", "whole \ud83d\ude00"]}',
        "other": r'{"labels": {"a": "former", "a": "latter"}}',
    }.items():
        rows(old, "UPDATE conversations SET metadata = ? WHERE name = ?", metadata, name)
    async with open_ledger(str(old)) as ledger:
        assert await problems(ledger) == []
        assert await labelled(ledger, "NUL\0 in it") == ["talk"]
        assert await labelled(ledger, "NUL") == []
        assert await labelled(ledger, "whole \U0001f600") == ["plain"]
        assert await labelled(ledger, "latter") == ["other"]
        assert await labelled(ledger, "former") == []


async def test_nothing_is_found_by_half_a_pair_of_surrogates() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.record(
            "c", [NewEvent("conversation.created", rb'{"title": "half \ud83d", "metadata": {"labels": ["\ud83d"]}}')]
        )
        assert await labelled(ledger, "\ud83d") == []
        assert [info async for info in ledger.conversations(prefix="\ud83d")] == []
        assert [info.conversation async for info in ledger.conversations(title="f \ud83d")] == ["c"]


async def _readable(ledger: Ledger, conversation: str) -> Any:
    for node in (await ledger.tables.tree(conversation))[1]:
        if node.id != "n0.c":
            yield await ledger.tables.message(conversation, node.id)


async def test_calls_are_known_by_whatever_id_a_provider_gives_and_the_newest_counts() -> None:
    async with open_ledger("memory:") as ledger:
        odd = ["twice", "NUL\0", "half \ud83d", '"quoted"', "é"]
        first = await call(ledger, "c", "a", *odd, "twice")
        second = await call(ledger, "c", "b", "twice")
        for tool_call_id in odd[1:]:
            found = await ledger.tables.calling("c", tool_call_id)
            assert found is not None
            assert found.id == first
        await ledger.record("c", [approval("twice")])
        assert await approved(ledger, "c") == [second]
        await ledger.record("c", [approval(odd[2])])
        assert await approved(ledger, "c") == [first, second]
        assert await ledger.tables.calling("c", "none") is None
        assert await problems(ledger) == []


@pytest.mark.parametrize("ledger", EVERYWHERE, indirect=True)
async def test_names_that_others_give_may_be_of_any_length(ledger: Ledger) -> None:
    """Some providers keep signed state in the id of a call. An index of PostgreSQL takes 2,704 bytes."""
    chance = random.Random(1)
    long = "".join(chr(chance.randrange(0x10000, 0x20000)) for _ in range(30_000))
    ids = [long, f"{long}\0", f"{long}\ud83d", long[:-1], long[:200], long[:199]]
    made = {tool_call_id: await call(ledger, "c", f"r{n}", tool_call_id) for n, tool_call_id in enumerate(ids)}
    for tool_call_id, message_id in made.items():
        found = await ledger.tables.calling("c", tool_call_id)
        assert found is not None
        assert found.id == message_id
    assert await ledger.tables.calling("c", long[:198]) is None
    await ledger.describe("c", labels=ids[:2] + ids[3:])
    await ledger.describe("d", labels=[long[:-1], long[:200]])
    for label, names in (
        (long, {"c"}),
        (f"{long}\0", {"c"}),
        (long[:-1], {"c", "d"}),
        (long[:200], {"c", "d"}),
        (long[1:], set()),
    ):
        assert {info.conversation async for info in ledger.conversations(label=label)} == names
    assert [finding async for finding in verify(ledger)] == []
    assert [finding async for finding in ledger.reconcile() if not finding.is_note] == []


async def test_what_is_redacted_makes_no_call_any_more() -> None:
    async with open_ledger("memory:") as ledger:
        first, second = await call(ledger, "c", "a", "x", "y"), await call(ledger, "c", "b", "x")
        await ledger.redact("c", second, [Block("text", text="gone")])
        await ledger.record("c", [approval("x")])
        assert await approved(ledger, "c") == [first]
        assert await problems(ledger) == []


async def test_labels_are_those_of_the_metadata() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.describe("c", metadata={"labels": ["a", "b", "a", "half \ud83d"]})
        await ledger.describe("d", metadata={"labels": {"x": "a"}, "k": 1})
        assert (await labelled(ledger, "a"), await labelled(ledger, "b")) == (["c", "d"], ["c"])
        await ledger.describe("c", metadata={"k": 2})
        await ledger.describe("d", metadata={"labels": None})
        assert (await labelled(ledger, "a"), await labelled(ledger, "b")) == (["c"], ["c"])
        await ledger.describe("c", labels=["b"])
        assert (await labelled(ledger, "a"), await labelled(ledger, "b")) == ([], ["c"])
        assert await problems(ledger) == []
        await call(ledger, "c", "a", "x")
        await ledger.erase("c")
        assert await labelled(ledger, "b") == []
        for table in ("calls", "labels"):
            assert await ledger.tables.database.read(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM calls",
        "DELETE FROM calls WHERE message = 'a.1' AND tool_call_id = 'x'",
        "UPDATE calls SET tool_call_id = 'z' WHERE message = 'b.1'",
        "INSERT INTO calls SELECT conversation, 'z', message FROM calls LIMIT 1",
        "INSERT INTO calls SELECT conversation, 'x', 'nothing' FROM calls LIMIT 1",
        "DELETE FROM labels",
        "INSERT INTO labels SELECT conversation, 'z' FROM labels LIMIT 1",
    ],
)
async def test_verify_tells_what_is_out_of_step_and_a_repair_mends_it(change: str) -> None:
    async with open_ledger("memory:") as ledger:
        await call(ledger, "c", "a", "x", "y")
        await call(ledger, "c", "b", "x")
        await ledger.describe("c", labels=["l", "m"])
        before = [sorted(await ledger.tables.database.read(f"SELECT * FROM {name}")) for name in ("calls", "labels")]
        await ledger.tables.database.write(lambda sql: sql(change))
        assert await problems(ledger) == [("c", "lookup")]
        mended = [(finding.kind, finding.is_mended) async for finding in ledger.reconcile(repair=True)]
        assert mended == [("lookup", True)]
        assert [sorted(await ledger.tables.database.read(f"SELECT * FROM {name}")) for name in ("calls", "labels")] == before
        assert await problems(ledger) == []


async def test_a_repair_of_tool_calls_that_is_cut_off_leaves_right_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_STEP", 2)
    async with open_ledger("memory:") as ledger:
        for number in range(7):
            await call(ledger, "c", f"r{number}", f"call_{number % 3}")

        async def begin(sql: Any) -> None:
            key = (await sql("SELECT id FROM conversations"))[0][0]
            await calls.start_over(sql, key)
            await calls.fill_calls(sql, key)

        await ledger.tables.transact(begin)
        for tool_call_id, message_id in (("call_0", "r6.1"), ("call_1", "r4.1"), ("call_2", "r5.1")):
            found = await ledger.tables.calling("c", tool_call_id)
            assert found is not None
            assert found.id == message_id
        assert await problems(ledger) == []


WRITES: Final[dict[str, Callable[[Ledger], Awaitable[object]]]] = {
    "catch up": lambda ledger: ledger.catch_up("talk"),
    "begin": lambda ledger: ledger.begin_run("talk"),
    "describe": lambda ledger: ledger.describe("talk", title="new"),
    "media": lambda ledger: ledger.add_media("talk", b"new", "image/png"),
    "erase": lambda ledger: ledger.erase("plain"),
    "hold": lambda ledger: ledger.hold("talk").__aenter__(),
}


@pytest.mark.parametrize("write", WRITES)
async def test_a_process_that_was_open_before_a_later_migration_writes_nothing(old: Path, write: str) -> None:
    tables = [name for (name,) in rows(old, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [name for name in tables if name not in ("streams", "appends", "chunks", "producers", "sqlite_sequence")]
    async with open_ledger(str(old)) as ledger:
        await ledger.transcript("talk")
        newest = len(read_scripts("ledger.tables"))
        rows(old, f"UPDATE components SET version = {newest + 1} WHERE name = 'ledger'")
        await ledger.record("talk", [new("message.annotated", message_id="r1.c", patch={"late": 1})])
        before = [rows(old, f"SELECT * FROM {name}") for name in tables]
        with pytest.raises(
            StoreUnusable, match=f"tables have version {newest + 1}, this Tailfold knows {newest}: upgrade Tailfold"
        ):
            await WRITES[write](ledger)
        assert [rows(old, f"SELECT * FROM {name}") for name in tables] == before
    rows(old, f"UPDATE components SET version = {newest} WHERE name = 'ledger'")
    async with open_ledger(str(old)) as ledger:  # what was acknowledged is in the log, and is taken in
        said = {message.id: message.metadata_text for message in await ledger.transcript("talk", branch="all")}
        assert json.loads(said["r1.c"]["late"]) == 1
