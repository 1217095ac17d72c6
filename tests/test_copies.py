"""A copy holds what the original does, on any engine; it goes on where it was ended, and only reads its source."""

from __future__ import annotations

import hashlib
import os
import signal
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import pytest

from ledger import CopyDiffers, Ledger, LedgerDamaged, open_ledger
from ledger.tables.whole_rows import read_rows
from ledger.transfer.content_hash import hash_log, hash_messages
from stream import Bounds, NewEvent, Producer
from tests import fixed_talks
from tests.faults.children import Child
from tests.ledger_places import place_of
from tests.paged_talks import change
from tests.postgres_server import Shared
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.transfer.copies import Copied
    from tests.faults.children import Parent

pytestmark = pytest.mark.anyio
PLACES: Final = ("sqlite", "postgres", "memory", "file, log on postgres", "sqlite")
OVER_NATS: Final = ("sqlite", "file, log on nats", "postgres", "postgres, log on nats", "sqlite")
PNG: Final = bytes(range(200)) * 30


async def fill(ledger: Ledger) -> None:
    """All kinds of conversations: some whole, some compacted, an erased one, open runs, other streams, producers."""
    await fixed_talks.fill(ledger)
    for number in range(5):
        async with ledger.run("long") as run:
            await run.message("user", f"q{number}\0\ud83d")
            await run.text("a" * 3000)
    await ledger.describe("long", labels=["odd\0", "\U0010ffff"], metadata={"n": 1})
    await ledger.add_media("long", PNG, "image/png")
    fork = await ledger.fork("long", (await ledger.transcript("long"))[1].id, run_id="f")
    await fork.message("user", "another way")
    await fork.finish()
    await ledger.select("long", (await ledger.transcript("long", branch="all"))[-2].id)
    await ledger.compact("long")
    await ledger.compact("trip")
    async with ledger.run("long") as run:
        await run.message("user", "behind the compaction")
    await ledger.store.append("ds:x", [NewEvent("raw", b"\xff\x00")], producer=Producer("p", 3, 0))
    await ledger.store.append("ds:x", [NewEvent("raw", b"")], producer=Producer("p", 3, 1))
    await ledger.catch_up_all()


async def content(ledger: Ledger) -> dict[str, Any]:
    """All that a copy keeps."""
    told: dict[str, Any] = {}
    async for info in ledger.store.streams():
        name = info.stream_id
        rows = await ledger.tables.look(partial(read_rows, conversation=name))
        snapshots = [s.projector for s in await ledger.store.snapshots.list(name) if s.readable]
        bounds, producers = await ledger.store.bounds(name), await ledger.store.producers(name)
        told[name] = [bounds, producers, dict.fromkeys(snapshots), await hash_log(ledger.store, name), rows and rows.digest()]
        if rows is not None and not name.startswith("ds:"):
            media = [(await ledger.media(media_id)).data for media_id in await ledger.tables.media_of(name)]
            told[name] += [await hash_messages(ledger.engine, name), hashlib.sha256(b"".join(media)).hexdigest()]
    return told


@pytest.mark.parametrize("places", [PLACES, pytest.param(OVER_NATS, marks=pytest.mark.heavy)], ids=["tables", "over nats"])
async def test_a_copy_of_a_copy_on_other_engines_is_the_same_and_goes_on(places: tuple[str, ...], tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        ledgers = [await opened(stack, tmp_path / f"{number}", place) for number, place in enumerate(places)]
        await fill(ledgers[0])
        wanted = await content(ledgers[0])
        assert len(wanted) == 7
        for source, target in pairwise(ledgers):
            told = [one async for one in source.copy_to(target)]
            assert [(one.stream_id, one.is_new) for one in told] == [(name, True) for name in sorted(wanted)]
            assert await content(target) == await content(source) == wanted
            again = [one async for one in source.copy_to(target)]
            assert again == [one._replace(is_new=False) for one in told]
        last = ledgers[-1]
        assert [finding async for finding in last.reconcile() if not finding.is_note] == []
        async with last.run("long") as run:
            await run.message("user", "it goes on")
        assert (await last.transcript("long"))[-1].text == "it goes on"
        await last.compact("long")
        assert (await last.transcript("long"))[-1].text == "it goes on"
        await last.recover("trip", "r4", "commit")
        with pytest.raises(CopyDiffers, match="'long' can't be copied: its log is another one there"):
            [one async for one in ledgers[-2].copy_to(last)]


async def test_of_two_copies_at_once_the_slower_one_finds_what_the_other_stored(tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    async with open_ledger("memory:") as source, open_ledger(target) as slow, open_ledger(target) as quick:
        await fill(source)
        adopt = slow.store.adopt
        first: list[Copied] = []

        async def late(*args: Any, **kwargs: Any) -> None:
            if not first:
                first.extend([one async for one in source.copy_to(quick)])
            await adopt(*args, **kwargs)

        slow.store.adopt = late  # type: ignore[method-assign]
        told = [one async for one in source.copy_to(slow)]
        assert all(one.is_new for one in first)
        assert told == [one._replace(is_new=False) for one in first]
        assert await content(slow) == await content(source)


async def opened(stack: AsyncExitStack, folder: Path, place: str) -> Ledger:
    folder.mkdir()
    url, log = place_of(place, folder)
    return await stack.enter_async_context(open_ledger(url, log=log))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("from_place", "to_place"),
    [
        ("sqlite", "postgres"),
        ("sqlite", "file, log on nats"),
        ("sqlite", "postgres, log on nats"),
        ("postgres, log on nats", "sqlite"),
    ],
)
async def test_a_copy_that_is_killed_again_and_again_ends_the_same_and_its_source_is_only_read(
    from_place: str, to_place: str, tmp_path: Path
) -> None:
    source, target, back = (
        made(tmp_path / name, place) for name, place in zip("abc", (from_place, to_place, "sqlite"), strict=True)
    )
    async with open_ledger(source.url, log=source.log) as ledger:
        await fill(ledger)
        for number in range(20):
            async with ledger.run(f"c{number}") as run:
                await run.message("user", f"{number}")
        # the third one that is copied, in a batch of many messages
        for number in range(12):
            await ledger.store.append("c1/", [NewEvent("raw", bytes([number]) * 250_000)])
        wanted = await content(ledger)
    before = state_of(tmp_path / "a")
    for number in range(6):
        child = await anyio.to_thread.run_sync(Child, copy_and_tell, source, target)
        try:
            child.say("go")
            for _ in range(number * 2):
                await anyio.to_thread.run_sync(child.hear)
            await anyio.sleep(0.003 * number)
            os.kill(child.pid, signal.SIGKILL)
        finally:
            child.end()
    assert state_of(tmp_path / "a") == before
    shell = Shell(tmp_path)
    shell.data = tmp_path / "nothing.db"
    said = shell.run("copy", *words(source, target))
    assert "28 streams are in " in said
    assert new_of(said) <= 28 - 2 * 5  # what was heard of before the last kill is there
    assert "each was read back and is the same" in said
    assert [one["is_new"] for one in shell.read("copy", *words(source, target))] == [False] * 28
    assert state_of(tmp_path / "a") == before
    for place in (source, target):
        async with open_ledger(place.url, log=place.log) as ledger:
            assert await content(ledger) == wanted
            assert [finding async for finding in ledger.reconcile() if not finding.is_note] == []
    shell.run("copy", *words(target, back))
    async with open_ledger(back.url) as ledger:
        assert await content(ledger) == wanted


class Place(NamedTuple):
    """Where a ledger and its log lie."""

    url: str
    log: str | None


def made(folder: Path, place: str) -> Place:
    folder.mkdir()
    return Place(*place_of(place, folder))


def words(source: Place, target: Place) -> list[str]:
    """What the command is told of these places."""
    logs = [word for option, log in (("--from-log", source.log), ("--to-log", target.log)) if log for word in (option, log)]
    return [source.url, target.url, *logs]


def new_of(said: str) -> int:
    """How many streams the command calls new."""
    return int(said.partition(" of them new")[0].rpartition(" ")[2])


async def copy_and_tell(parent: Parent, source: Place, target: Place) -> None:
    is_file = source.log is None and not source.url.startswith("postgresql:")
    async with (
        open_ledger(source.url, log=source.log, read_only=is_file) as theirs,
        open_ledger(target.url, log=target.log) as ours,
    ):
        async for one in theirs.copy_to(ours):
            parent.say(one.stream_id)


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """The files of a source that lies in one; nothing of one on servers."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


@pytest.mark.parametrize("times", [1, 3, 100])
async def test_beside_a_writer_a_copy_is_of_one_moment_or_says_that_none_is_to_be_had(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever rows of the ledger were read, another program says something, and compacts."""
    async with AsyncExitStack() as stack:
        source, other = [await stack.enter_async_context(open_ledger(str(tmp_path / "a.db"))) for _ in range(2)]
        target = await stack.enter_async_context(open_ledger(Shared.url()))
        plain, left = source.tables.look, list(range(times))

        async def turn() -> None:
            async with other.run("c") as run:
                await run.message("user", f"{len(left)}")
            await other.compact("c")

        async def look(job: Any) -> Any:
            told = await plain(job)
            if left:
                left.pop()
                await turn()
            return told

        await turn()
        monkeypatch.setattr(source.tables, "look", look)
        if times > 10:
            with pytest.raises(CopyDiffers, match="it is written to all the time: stop who writes"):
                [one async for one in source.copy_to(target)]
            assert await target.store.bounds("c") == Bounds(0, 0)
            return
        assert [one.is_new async for one in source.copy_to(target)] == [True]
        assert await content(target) == await content(source)
        assert [finding async for finding in target.reconcile() if not finding.is_note] == []
        assert len(await target.transcript("c")) == times + 1


async def test_what_is_there_and_another_is_refused_and_stays(tmp_path: Path) -> None:
    async with open_ledger("memory:") as ours, open_ledger(str(tmp_path / "a.db")) as theirs:
        for ledger, text in ((ours, "mine"), (theirs, "theirs")):
            async with ledger.run("c", run_id="r") as run:
                await run.message("user", text)
        before = await content(ours)
        with pytest.raises(CopyDiffers, match="its log is another one there"):
            [one async for one in theirs.copy_to(ours)]
        assert await content(ours) == before
    shell = Shell(tmp_path)
    assert "same place" in shell.run("copy", "x.db", "x.db", code=2)
    assert "memory: is gone" in shell.run("copy", "x.db", "memory:", code=2)
    assert "say --from-log" in shell.run("copy", str(tmp_path / "a.db"), "x.db", "--log", "l.db", code=2)
    assert not (tmp_path / "x.db").exists()
    assert "there is no" in shell.run("copy", str(tmp_path / "no.db"), str(tmp_path / "x.db"), code=2)
    assert "can't be copied" not in shell.run("copy", str(tmp_path / "a.db"), str(tmp_path / "b.db"))


@pytest.mark.parametrize(("table", "what"), [("messages", "message"), ("runs", "run")])
async def test_a_body_that_can_not_be_read_is_not_copied_as_an_empty_one(tmp_path: Path, table: str, what: str) -> None:
    path = tmp_path / "a.db"
    async with open_ledger(str(path)) as theirs, theirs.run("c", run_id="r") as run:
        await run.message("user", "kept")
    change(path, f"UPDATE {table} SET crc = crc + 1")
    async with open_ledger("memory:") as ours, open_ledger(str(path)) as theirs:
        with pytest.raises(LedgerDamaged, match=f"{what} '.*' of conversation 'c' is damaged"):
            [one async for one in theirs.copy_to(ours)]
        assert (await ours.store.bounds("c")).head == 0


async def test_a_transcript_that_is_another_one_there_is_refused(tmp_path: Path) -> None:
    async with open_ledger("memory:") as ours, open_ledger(str(tmp_path / "a.db")) as theirs:
        async with theirs.run("c", run_id="r") as run:
            await run.message("user", "kept")
        assert [one.is_new async for one in theirs.copy_to(ours)] == [True]
        await ours.tables.transact(lambda sql: sql("UPDATE conversations SET title = 'another' WHERE stream_id = 'c'"))
        with pytest.raises(CopyDiffers, match="its transcript is another one there"):
            [one async for one in theirs.copy_to(ours)]


async def test_what_has_gone_on_where_it_was_copied_to_is_passed_over(tmp_path: Path) -> None:
    async with open_ledger("memory:") as ours, open_ledger(str(tmp_path / "a.db")) as theirs:
        async with theirs.run("c", run_id="r") as run:
            await run.message("user", "kept")
        assert [one.is_new async for one in theirs.copy_to(ours)] == [True]
        async with ours.run("c") as run:
            await run.message("user", "behind it")
        assert [one.is_new async for one in theirs.copy_to(ours)] == [False]
        assert len(await ours.transcript("c")) == 2
