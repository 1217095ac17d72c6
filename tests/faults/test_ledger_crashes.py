"""SIGKILL between any two writes of what a ledger does: it is whole, or absent, or done again and then whole.

For each write of an operation there is a process that dies when it is about to begin, and one that dies right after it,
on files of its own or on those that the one before it has left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pytest

from ledger import Ledger, LedgerError, RunExists, catchup, erasure, open_ledger
from projector import Block, open_runs
from stream import NewEvent
from stream.sqlite import Database, SqliteStore
from tests.faults.dying import Deadly, die_everywhere, kill_everywhere
from tests.faults.sizes import FULL
from tests.needles import PROJECTORS, everything, fill, found, media_id_of, media_of, needle, open_at, say, wrong
from tests.sqlite_files import database_of
from tests.talk import finished, said, started

pytestmark = pytest.mark.anyio
RECORDED: Final = [started("raw"), *said("raw", "raw.1", "recorded"), finished("raw")]
Tell = Callable[[str], None]


class Before(NamedTuple):
    """What was there before the operation: all of the conversation, its head; and what the killed process was told."""

    c: list[Any]
    head: int
    told: frozenset[str] = frozenset()
    folder: Path = Path()


class Scene(NamedTuple):
    """What comes before, the operation, what must be true after a kill, whatever was done of it, and how many writes it has.

    Fewer would mean that a kill is left out; who needs fewer statements says so here.
    """

    prepare: Callable[[Ledger], Awaitable[None]]
    act: Callable[[Ledger, Tell], Awaitable[None]]
    check: Callable[[Ledger, Before], Awaitable[None]]
    writes: int
    smoke: tuple[str, ...] = ("one file",)


async def texts(ledger: Ledger, run_id: str) -> list[str]:
    return [message.text for message in await ledger.transcript("c", branch="all") if message.run_id == run_id]


async def prepare_nothing(_: Ledger) -> None:
    """A conversation that is there is enough."""


async def record(ledger: Ledger, tell: Tell) -> None:
    for conversation in ("c", "new"):
        await ledger.record(conversation, RECORDED)
        tell(conversation)


async def check_record(ledger: Ledger, before: Before) -> None:
    for conversation, head in (("c", before.head), ("new", 0)):
        events = await ledger.store.read(conversation, after=head)
        assert [event.data for event in events] in ([], [event.data for event in RECORDED])
        assert events or conversation not in before.told
        if not events:
            await ledger.record(conversation, RECORDED)
        assert [message.text for message in await ledger.transcript(conversation)][-1] == "recorded"


async def run_to_its_end(ledger: Ledger, tell: Tell) -> None:
    async with ledger.run("c", run_id="mine") as run:
        await run.message("user", "question ")
        await run.flush()
        tell("question ")
        for piece in ("an", "swer"):
            await run.text(piece)
            await run.flush()
            tell(f"question {'answer'[: 2 if piece == 'an' else 6]}")
    tell("the end")


async def check_run(ledger: Ledger, before: Before) -> None:
    run = await ledger.tables.run("c", "mine")
    if run is None:
        assert before.told == set()
        await run_to_its_end(ledger, lambda _: None)
    elif run.outcome is None:
        assert "the end" not in before.told
        await ledger.recover("c", "mine", "commit")
    [info] = [run async for run in ledger.runs("c") if run.run_id == "mine"]
    assert (info.status, info.outcome) in (("committed", "completed"), ("committed", "incomplete"))
    whole = "".join(await texts(ledger, "mine"))
    assert "question answer".startswith(whole)
    assert all(whole.startswith(told) for told in before.told - {"the end"})
    assert whole == "question answer" or info.outcome == "incomplete"
    with pytest.raises(RunExists):
        await ledger.begin_run("c", run_id="mine")


async def recover(ledger: Ledger, tell: Tell) -> None:
    await ledger.recover("c", "open", "commit", select=True)
    tell("recovered")


async def check_recover(ledger: Ledger, before: Before) -> None:
    [run] = [run async for run in ledger.runs("c") if run.run_id == "open"]
    assert run.recovered == "commit" or not before.told
    await recover(ledger, lambda _: None)
    told = await ledger.recover("c", "open", "cancel")
    assert (told.recovered, told.status) == ("commit", "committed")
    assert [message.text for message in await ledger.transcript("c")] == [needle("c", "secret")]


async def describe(ledger: Ledger, tell: Tell) -> None:
    await ledger.describe("c", title="renamed", archived=True)
    tell("title")
    await ledger.add_media("c", media_of("later"), "image/png")
    tell("media")
    await ledger.annotate("c", "turn0.1", {"rating": 1})
    tell("rating")
    await ledger.redact("c", "turn0.2", [Block("text", text="redacted")])
    tell("redacted")
    await ledger.select("c", "turn1.1")
    tell("selected")


async def check_describe(ledger: Ledger, before: Before) -> None:
    for told in (before.told, {"title", "media", "rating", "redacted", "selected"}):
        info = await ledger.tables.conversation("c")
        assert info is not None
        messages = {message.id: message for message in await ledger.transcript("c", branch="all")}
        assert ((info.title, info.archived) == ("renamed", True)) >= ("title" in told)
        assert "media" not in told or (await ledger.media(media_id_of("later"))).data == media_of("later")
        assert ("rating" in messages["turn0.1"].metadata_text) >= ("rating" in told)
        assert (messages["turn0.2"].text == "redacted") >= ("redacted" in told)
        assert (info.leaf == "turn1.2") >= ("selected" in told)
        if told == before.told:
            await describe(ledger, lambda _: None)


async def prepare_commit(ledger: Ledger) -> None:
    """Runs that end in every way, amendments, selections, all of it in the log only."""
    async with open_ledger("memory:") as source:
        await fill(source, "late", turns=1, deltas=1)
        events = await source.store.read("late")
    await ledger.record("late", [NewEvent(event.type, event.data) for event in events])


async def commit(ledger: Ledger, tell: Tell) -> None:
    with (
        patch.object(catchup, "_PAGE_EVENTS", 30),
        patch.object(catchup, "_SNAPSHOT_EVERY_EVENTS", 30),
        patch.object(catchup, "_SNAPSHOT_ON_THE_WAY_EVENTS", 30),
    ):
        await ledger.catch_up("late")
    tell("caught up")


async def commit_in_pieces(ledger: Ledger, tell: Tell) -> None:
    with patch.object(Database, "transact", Database.write):
        await commit(ledger, tell)


async def check_commit(ledger: Ledger, _: Before) -> None:
    """However often it was begun, the ledger holds what the whole log says."""
    async with open_ledger("memory:", projectors=PROJECTORS) as again:
        await again.store.adopt("late", await ledger.store.read("late"))
        assert await everything(ledger, "late") == await everything(again, "late")


async def prepare_compaction(ledger: Ledger) -> None:
    """So that snapshots are there that a later one retires."""
    await ledger.recover("c", "open", "fail")
    for number in range(2):
        await ledger.compact("c", replay_window=5, drop_unkept=True)
        await say(ledger, f"more {number}")


async def compact(ledger: Ledger, tell: Tell) -> None:
    await ledger.compact("c", drop_unkept=True)
    tell("compacted")


async def check_compaction(ledger: Ledger, before: Before) -> None:
    assert await everything(ledger, "c") == before.c
    bounds = await ledger.store.bounds("c")
    assert bounds.head == before.head
    assert bounds.floor == before.head or not before.told
    await ledger.compact("c", drop_unkept=True)
    assert (await ledger.store.bounds("c")).floor == before.head
    kept = {info.projector: (info.last_seq, info.readable) for info in await ledger.store.snapshots.list("c")}
    assert kept == {projector.name: (before.head, True) for projector in (open_runs, *PROJECTORS)}
    assert len(kept) == len(await ledger.store.snapshots.list("c"))
    assert await everything(ledger, "c") == before.c
    await say(ledger, "goes on")
    assert len(await ledger.transcript("c")) == len(before.c[0]) + 1


async def prepare_erasure(ledger: Ledger) -> None:
    for conversation in ("c", "other"):
        await ledger.add_media(conversation, media_of("shared"), "image/png")
    await ledger.compact("c")
    await ledger.annotate("c", "turn0.1", {"at": needle("c", "last")})


async def erase(ledger: Ledger, tell: Tell) -> None:
    assert (await ledger.erase("c")).is_proven
    tell("erased")


async def check_erasure(ledger: Ledger, before: Before) -> None:
    info = await ledger.tables.conversation("c")
    assert info is not None
    if info.erased is None:
        assert not before.told
        assert await everything(ledger, "c") == before.c
        await ledger.erase("c")
        info = await ledger.tables.conversation("c")
        assert info is not None
    assert info.erased is not None
    assert (info.erased["messages"], info.erased["runs"]) == (before.c[-1].messages, before.c[-1].runs)
    assert (info.title, info.metadata_text, await ledger.transcript("c", branch="all")) == (None, {}, [])
    assert found(before.folder, "c") == set()
    assert (await ledger.media(media_id_of("shared"))).data == media_of("shared")
    await say(ledger, "a new life")
    assert [(message.text, message.seq > before.head) for message in await ledger.transcript("c")] == [("a new life", True)]
    assert (await ledger.erase("c")).is_proven


async def prepare_erasures(ledger: Ledger) -> None:
    await prepare_erasure(ledger)
    await fill(ledger, "second")


async def erase_together(ledger: Ledger, tell: Tell) -> None:
    assert all(told.is_proven for told in await ledger.erase("c", "second"))
    tell("erased")


async def check_erasures(ledger: Ledger, before: Before) -> None:
    await check_erasure(ledger, before)
    left = await ledger.transcript("second", branch="all")  # whoever comes finishes what was begun
    info = await ledger.tables.conversation("second")
    assert info is not None
    if info.erased is None:
        assert not before.told
        assert (info.messages, len(left) > 8) == (8, True)
        await ledger.erase("second")
    else:
        assert (info.erased["messages"], info.erased["runs"], left) == (8, 5, [])
    assert found(before.folder, "second") == set()


SCENES: Final = {
    "record": Scene(prepare_nothing, record, check_record, 3),
    "run": Scene(prepare_nothing, run_to_its_end, check_run, 12),
    "recover": Scene(prepare_nothing, recover, check_recover, 14),
    "describe": Scene(prepare_nothing, describe, check_describe, 31),
    "commit": Scene(prepare_commit, commit, check_commit, 37, smoke=("two files",)),
    "compact": Scene(prepare_compaction, compact, check_compaction, 19),
    "erase": Scene(prepare_erasure, erase, check_erasure, 31, smoke=("one file", "two files")),
    "erase together": Scene(prepare_erasures, erase_together, check_erasures, 75),
}

LONG: Final = ("compact", "describe", "erase", "erase together", "recover")
CANARY: Final = Scene(prepare_commit, commit_in_pieces, check_commit, 30)


async def live(folder: str, operation: str, place: str, at: int, moment: str) -> None:
    told = os.open(f"{folder}/told", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def tell(what: str) -> None:
        os.write(told, f"{what}\n".encode())

    with patch.object(erasure, "_CLAIM_MS", 0):  # or the next life waits until this one is known to be dead
        async with open_at(folder, place) as ledger:
            assert isinstance(ledger.store, SqliteStore)
            deadly = Deadly(at, moment)
            for database in {database_of(ledger), ledger.store.database}:
                deadly.watch(database)
            await SCENES.get(operation, CANARY).act(ledger, tell)
            await ledger.store.settle()
            os._exit(0)  # whoever survives does not close it either


def die(folder: str, files: str, operation: str, place: str, moment: str) -> None:
    """Runs in a process of its own, see `kill_everywhere`."""
    die_everywhere(folder, files, lambda copy, at: live(copy, operation, place, at, moment))


async def prepare(folder: Path, scene: Scene, place: str) -> tuple[Before, list[Any]]:
    folder.mkdir()
    async with open_at(folder, place) as ledger:
        await fill(ledger, "c", deltas=1)
        await fill(ledger, "other", turns=1, deltas=1)
        await scene.prepare(ledger)
        return Before(await everything(ledger, "c"), (await ledger.store.bounds("c")).head), await everything(ledger, "other")


async def check(folder: Path, scene: Scene, place: str, before: Before, other: list[Any]) -> None:
    told = frozenset((folder / "told").read_text(encoding="utf-8").splitlines())
    (folder / "told").unlink()
    async with open_at(folder, place) as ledger:
        assert await wrong(ledger) == []
        await scene.check(ledger, before._replace(told=told, folder=folder))
        assert await wrong(ledger, "c") == []
        assert await everything(ledger, "other") == other


@pytest.mark.parametrize(
    ("operation", "place", "moment"),
    [
        pytest.param(
            operation,
            place,
            moment,
            marks=[pytest.mark.heavy] if operation in LONG or moment != "before" or place == "two files" else [],
        )
        for operation, scene in SCENES.items()
        for place in ("one file", "two files")
        for moment in ("before", "after", "while")
        if FULL or (place in scene.smoke and moment != "while")
    ],
)
async def test_a_kill_between_any_two_writes_leaves_what_was_acknowledged_and_nothing_half(
    tmp_path: Path, operation: str, place: str, moment: str
) -> None:
    scene = SCENES[operation]
    before, other = await prepare(tmp_path / "template", scene, place)
    writes = await kill_everywhere(die, tmp_path, "copied", operation, place, moment)
    print(f"{operation} in {place}: {writes} writes, killed {moment} each")
    assert writes >= scene.writes
    few = asyncio.Semaphore(4)

    async def check_one(number: int) -> None:
        async with few:
            try:
                await check(tmp_path / str(number), scene, place, before, other)
            except BaseException as error:
                error.add_note(f"{operation} in {place}, killed {moment} write {number} of {writes}")
                raise

    await asyncio.gather(*(check_one(number) for number in range(writes + 2)))


@pytest.mark.heavy
@pytest.mark.parametrize("place", ["one file", "two files"] if FULL else ["one file"])
@pytest.mark.parametrize("operation", ["commit", "compact", "erase"])
async def test_one_kill_after_the_other_piles_up_nothing(tmp_path: Path, operation: str, place: str) -> None:
    """Every life begins with what the one before it has left, and comes one write further."""
    scene = SCENES[operation]
    before, other = await prepare(tmp_path / "template", scene, place)
    await kill_everywhere(die, tmp_path, "shared", operation, place, "after")
    await check(tmp_path / "shared", scene, place, before, other)


@pytest.mark.heavy
async def test_canary_a_commit_in_pieces_is_caught(tmp_path: Path) -> None:
    before, other = await prepare(tmp_path / "template", CANARY, "one file")
    writes = await kill_everywhere(die, tmp_path, "copied", "canary", "one file", "after")
    for number in range(writes):
        try:
            await check(tmp_path / str(number), CANARY, "one file", before, other)
        except (AssertionError, LedgerError):
            return
    pytest.fail("half a commit was taken for a whole one")
