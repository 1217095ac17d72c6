"""What a program around the ledger sees: lists, pages, amendments, media, followers that begin anew, cancel requests."""

from __future__ import annotations

import json
from typing import Any, Final

import anyio
import pytest

from ledger import (
    Ledger,
    LedgerDamaged,
    Replay,
    UnknownConversation,
    UnknownMedia,
    UnknownMessage,
    UnknownRun,
    open_ledger,
)
from projector import Block, Projector
from stream import Event, InvalidEvent, NewEvent, SnapshotUnreadable
from tests.ledger_places import EVERYWHERE
from tests.talk import finished, new, said, started

pytestmark = pytest.mark.anyio
LEDGERS: Final = EVERYWHERE


async def say(ledger: Ledger, *texts: str, conversation: str = "c", run_id: str | None = None) -> list[str]:
    async with ledger.run(conversation, run_id=run_id) as run:
        return [await run.message("user", text) for text in texts]


async def ids(ledger: Ledger, **options: Any) -> list[str]:
    return [info.conversation async for info in ledger.conversations(**options)]


async def test_conversations_are_listed_by_their_newest_message_in_pages(ledger: Ledger) -> None:
    for number in range(7):
        event = new("run.started", run_id="r", parent_message_id=None, trigger="submit", producer="r", created_at=number)
        message = new("message.started", run_id="r", message_id="r.1", role="user", created_at=1000 * (number * 5 % 7))
        await ledger.record(f"c{number}", [event, message, *said("r", "r.1", str(number))[1:], finished("r")])
    newest_first = [f"c{number}" for number in sorted(range(7), key=lambda number: number * 5 % 7, reverse=True)]
    assert await ids(ledger) == newest_first
    first = [info async for info in ledger.conversations(limit=3)]
    rest = await ids(ledger, after=first[-1])
    assert [info.conversation for info in first] + rest == newest_first
    assert [(info.messages, info.runs, info.leaf, info.active_at) for info in first] == [
        (1, 1, "r.1", 6000),
        (1, 1, "r.1", 5000),
        (1, 1, "r.1", 4000),
    ]
    with pytest.raises(ValueError, match="limit"):
        await ids(ledger, limit=-1)


async def test_conversations_have_titles_labels_and_metadata_and_can_be_put_away(ledger: Ledger) -> None:
    await ledger.describe("c", title="Ünder \ud800 way", metadata={"a": 1, "big": 2**200}, labels=["x", "y"])
    await ledger.describe("d", title="other", labels=["y"])
    await ledger.describe("c", metadata={"a": None, "b": [True]})
    [info] = [info async for info in ledger.conversations(label="x")]
    assert (info.conversation, info.title, info.labels) == ("c", "Ünder \ud800 way", ["x", "y"])
    assert info.metadata_text == {"big": str(2**200), "labels": '["x","y"]', "b": "[true]"}
    assert sorted(await ids(ledger, label="y")) == ["c", "d"]
    assert await ids(ledger, title="OTHER") == ["d"]
    assert await ids(ledger, prefix="d") == ["d"]
    assert await ids(ledger, label="none") == []
    await ledger.describe("d", archived=True)
    assert await ids(ledger) == ["c"]
    assert sorted(await ids(ledger, archived=True)) == ["c", "d"]
    await ledger.describe("d", archived=False)
    assert sorted(await ids(ledger)) == ["c", "d"]
    assert await ledger.transcript("d") == []


@pytest.mark.parametrize("odd", ["", "no.json", "[" * 2000 + "]" * 2000])
async def test_metadata_that_is_no_object_is_refused_and_by_a_raw_client_it_harms_nothing(ledger: Ledger, odd: str) -> None:
    body = json.dumps({"title": "t", "metadata": odd}).encode()
    with pytest.raises(InvalidEvent, match="metadata"):
        await ledger.record("c", [NewEvent("conversation.updated", body)])
    await ledger.store.append("c", [NewEvent("conversation.updated", body)])
    await say(ledger, "x")
    assert [info.title async for info in ledger.conversations()] == [None]
    deep = b'{"title": "t", "metadata": {"labels": %s}}' % (b"[" * 1500 + b"]" * 1500)
    await ledger.store.append("c", [NewEvent("conversation.updated", deep)])
    assert await ids(ledger, label="x") == []


async def test_a_transcript_is_read_in_pages_from_the_end_on_any_branch(ledger: Ledger) -> None:
    whole = [message_id for number in range(10) for message_id in await say(ledger, f"{number}")]
    fork = await ledger.fork("c", whole[4], run_id="f")
    other = [await fork.message("user", "other"), await fork.message("user", "way")]
    await fork.finish()
    for selections, path in (({}, [*whole[:5], *other]), ({whole[4]: whole[5]}, whole)):
        found: list[str] = []
        before = None
        while page := await ledger.transcript("c", selections=selections, before=before, limit=3):
            assert len(page) <= 3
            before = page[0].id
            found = [message.id for message in page] + found
        assert found == path
    everything = [message.id for message in await ledger.transcript("c", branch="all")]
    assert everything == whole + other
    assert [m.id for m in await ledger.transcript("c", branch="all", before=everything[4], limit=2)] == everything[2:4]
    assert await ledger.transcript("c", limit=0) == []
    with pytest.raises(ValueError, match="branch"):
        await ledger.transcript("c", branch="other")  # type: ignore[arg-type]
    with pytest.raises(UnknownMessage):
        await ledger.transcript("c", before="nothing")
    tree = await ledger.tree("c")
    assert tree.leaf == other[-1]
    assert [(fork.parent_id, fork.active) for fork in tree.forks] == [(whole[4], other[0])]


async def test_what_comes_after_a_run_has_ended_amends_its_messages(ledger: Ledger) -> None:
    call = [
        new("message.started", run_id="r", message_id="r.1", role="assistant"),
        new("block.started", message_id="r.1", block=0, kind="text"),
        new("block.delta", message_id="r.1", block=0, text="secret"),
        new("block.sealed", message_id="r.1", block=0),
        new("block.started", message_id="r.1", block=1, kind="tool_call", name="t", tool_call_id="cäll"),
        new("block.sealed", message_id="r.1", block=1, input={}, parse="ok"),
        new("message.finished", message_id="r.1", status="complete"),
    ]
    await ledger.record("c", [started("r"), *call, finished("r")])
    await ledger.annotate("c", "r.1", {"rating": 5})
    await ledger.record("c", [new("block.annotated", message_id="r.1", block=0, citation={"kind": "url"})])
    await ledger.record("c", [new("tool.approval", tool_call_id="cäll", approval_id="a", approved=True)])
    await ledger.record("c", [new("run.usage", run_id="r", request_id="q", input=7)])
    [message] = await ledger.transcript("c")
    assert message.metadata_text == {"rating": "5"}
    assert message.blocks[0].citations == ('{"kind": "url"}',)
    assert json.loads(message.blocks[1].approval or "") == {"approval_id": "a", "approved": True}
    assert [run.usage["q"].input async for run in ledger.runs("c")] == [7]
    await ledger.redact("c", "r.1", [Block("text", text="gone")], reason="asked for")
    assert [message.text for message in await ledger.transcript("c")] == ["gone"]
    assert await ledger.anomalies("c") == []
    await ledger.compact("c")
    assert [message.text for message in await ledger.transcript("c")] == ["gone"]
    with pytest.raises(UnknownMessage):
        await ledger.annotate("c", "nothing", {})
    with pytest.raises(UnknownMessage):
        await ledger.select("c", "nothing")


async def test_amendments_of_nothing_and_selections_of_nothing_bar_no_conversation(ledger: Ledger) -> None:
    odd = [
        new("message.annotated", message_id="nothing", patch={}),
        new("message.redacted", message_id="nothing", blocks=[]),
        new("tool.approval", tool_call_id="nothing", approval_id="a"),
        new("run.usage", run_id="nothing", request_id="q"),
        new("branch.selected", message_id="nothing"),
        new("branch.selected", message_id="\ud800"),
        new("message.annotated", message_id="\ud800", patch={}),
        new("run.usage", run_id="\ud800", request_id="q"),
        new("media.added", media_id="\ud800", media_type="x", size=1),
        new("tool.approval", tool_call_id="\ud800", approval_id="a"),
    ]
    await ledger.store.append("c", odd)
    await say(ledger, "x")
    assert [message.text for message in await ledger.transcript("c")] == ["x"]


async def test_a_message_of_an_open_run_is_annotated_too(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        message_id = await run.message("user", "x")
        await run.flush()
        await ledger.annotate("c", message_id, {"a": 1})
    assert [message.metadata_text for message in await ledger.transcript("c")] == [{"a": "1"}]


async def test_media_is_kept_once_and_checked(ledger: Ledger) -> None:
    first = await ledger.add_media("c", b"\x00 bytes", "image/png")
    assert await ledger.add_media("d", b"\x00 bytes", "image/png") == first
    media = await ledger.media(first)
    assert (media.data, media.media_type) == (b"\x00 bytes", "image/png")
    assert await ledger.tables.database.read("SELECT count(*) FROM media") == [(1,)]
    with pytest.raises(UnknownMedia):
        await ledger.media("0" * 64)
    await ledger.erase("c")
    assert (await ledger.media(first)).data == b"\x00 bytes"
    await ledger.tables.database.write(lambda sql: sql("UPDATE media SET data = ?", (b"\0",)))
    with pytest.raises(LedgerDamaged):
        await ledger.media(first)
    await ledger.erase("d")
    with pytest.raises(UnknownMedia):
        await ledger.media(first)


async def test_a_follower_that_cannot_go_on_begins_anew_with_what_it_would_show(ledger: Ledger) -> None:
    await say(ledger, "one")
    await say(ledger, "two")
    head = (await ledger.store.bounds("c")).head
    run = await ledger.begin_run("c", run_id="open")
    await run.message("user", "three")
    await run.flush()
    await ledger.compact("c")
    for after, incarnation in ((0, None), (head - 1, None), (10_000, None), (head, "another")):
        follower = aiter(ledger.follow("c", after=after, incarnation=incarnation))
        replay = await anext(follower)
        assert isinstance(replay, Replay)
        assert [message.text for message in replay.messages] == ["one", "two"]
        assert [(r.run_id, [m.text for m in r.messages]) for r in replay.open_runs] == [("open", ["three"])]
        assert (replay.last_seq, replay.has_more) == ((await ledger.store.bounds("c")).head, False)
        await ledger.record("c", [NewEvent("custom", b"{}")])
        event = await anext(follower)
        assert isinstance(event, Event)
        assert event.seq == replay.last_seq + 1
    whole = aiter(ledger.follow("c", after=head))
    assert isinstance(await anext(whole), Event)
    await run.finish()


async def test_a_slow_follower_that_the_floor_overtakes_gets_a_replay_and_no_gap(ledger: Ledger) -> None:
    await say(ledger, *(str(number) for number in range(400)))
    follower = aiter(ledger.follow("c"))
    seen = [await anext(follower)]
    await ledger.compact("c")
    while isinstance(seen[-1], Event):
        seen.append(await anext(follower))
    replay = seen.pop()
    assert isinstance(replay, Replay)
    assert [event.seq for event in seen if isinstance(event, Event)] == list(range(1, len(seen) + 1))
    assert replay.has_more
    assert [message.text for message in replay.messages] == [str(number) for number in range(200, 400)]


async def test_a_run_hears_that_it_is_asked_to_stop(ledger: Ledger) -> None:
    asked = []

    async with ledger.run("c", run_id="r") as run, anyio.create_task_group() as tasks:

        async def listen() -> None:
            asked.append(await run.wait_for_cancel_request())

        tasks.start_soon(listen)
        await run.text("so far")
        await ledger.record("c", [new("run.cancel_requested", run_id="another")])
        await ledger.cancel("c", "r", by="a user")
        with anyio.fail_after(5):
            while not asked:
                await anyio.sleep(0.01)
    assert asked == ["a user"]
    await ledger.cancel("c", "r")
    with pytest.raises(UnknownRun):
        await ledger.cancel("c", "another")


async def test_a_hold_keeps_what_it_holds_and_compaction_says_so(ledger: Ledger) -> None:
    await say(ledger, "one")
    async with ledger.hold("c", through=3) as name:
        done = await ledger.compact("c")
        assert (done.floor, done.binds) == (3, f"hold:{name}")
        async with ledger.hold():
            assert (await ledger.compact("c")).floor == 3
    done = await ledger.compact("c")
    assert (done.floor, done.binds) == (done.head, None)


async def test_the_hold_of_a_process_that_is_gone_lapses(ledger: Ledger) -> None:
    await say(ledger, "one")
    await ledger.tables.database.write(lambda sql: sql("INSERT INTO holds VALUES ('dead', NULL, 0, 1, 0)"))
    assert (await ledger.compact("c")).floor == (await ledger.store.bounds("c")).head


def count(state: dict[str, int], event: Event) -> dict[str, int]:
    return state | {event.type: state.get(event.type, 0) + 1}


COUNTS: Final = Projector[dict[str, int]]("counts", 1, {}, count, lambda state: json.dumps(state).encode(), json.loads)


async def test_a_projector_of_a_user_keeps_what_it_knows_through_compaction() -> None:
    async with open_ledger("memory:", projectors=[COUNTS]) as ledger:
        await say(ledger, "one")
        before = await ledger.project(COUNTS, "c")
        await ledger.compact("c")
        assert await ledger.store.read("c", after=(await ledger.store.bounds("c")).floor) == []
        assert await ledger.project(COUNTS, "c") == before
        await say(ledger, "two")
        assert (await ledger.project(COUNTS, "c"))["run.started"] == 2
        late = COUNTS._replace(name="late")
        with pytest.raises(SnapshotUnreadable):
            await ledger.project(late, "c")
        with pytest.raises(UnknownConversation):
            await ledger.project(COUNTS, "nothing")


async def test_a_projector_that_has_fallen_behind_binds_the_floor() -> None:
    async with open_ledger("memory:", projectors=[COUNTS]) as ledger:
        await say(ledger, "one")
        await ledger.compact("c")
        floor = (await ledger.store.bounds("c")).floor
        await say(ledger, "two")
        plain = Ledger(ledger.store, ledger.tables)  # a program that does not know this projector
        done = await plain.compact("c")
        assert (done.floor, done.binds) == (floor, "snapshot:counts")
