"""Ledger and log that disagree: what is told, what is mended, and what is named and never called mended."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ledger import Ledger, LedgerBehind, LogReplaced, UnknownConversation, open_ledger
from ledger.upkeep.backup import restore
from ledger.upkeep.verify import MEANINGS, Finding, verify
from projector import State, open_runs
from projector.compaction import keep
from stream import StoreUnusable
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from pathlib import Path

    from stream import NewEvent

pytestmark = pytest.mark.anyio


def turn(run_id: str, parent: str | None, text: str) -> list[NewEvent]:
    return [started(run_id, parent), *said(run_id, f"{run_id}.1", text), finished(run_id)]


async def found(ledger: Ledger, *, repair: bool = False) -> list[tuple[str, bool]]:
    return [(finding.kind, finding.is_mended) async for finding in ledger.reconcile(repair=repair)]


async def wrong(ledger: Ledger) -> list[Finding]:
    return [finding async for finding in verify(ledger) if not finding.is_note]


async def texts(ledger: Ledger, conversation: str = "c") -> list[str]:
    return [message.text for message in await ledger.transcript(conversation)]


async def test_where_both_agree_nothing_is_found() -> None:
    async with open_ledger("memory:") as ledger:
        async with ledger.run("c") as run:
            await run.text("x")
        assert await found(ledger) == []
        with pytest.raises(UnknownConversation):
            _ = [finding async for finding in ledger.reconcile("nothing")]


async def test_what_was_not_taken_in_is_told_and_looking_does_not_take_it_in() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.record("c", turn("r", None, "x"))
        assert await found(ledger) == [("behind", False)]
        assert (await ledger.tables.position("c")).projected_seq == 0
        [behind] = [finding async for finding in ledger.reconcile(repair=True)]
        assert (behind.kind, behind.is_mended, behind.is_note) == ("behind", True, True)  # as anybody takes it in
        assert await found(ledger) == []
        assert await texts(ledger) == ["x"]


async def test_an_open_run_is_told_and_left_alone() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.begin_run("c", run_id="r")
        await ledger.catch_up("c")
        assert await found(ledger, repair=True) == [("open", False)]
        assert await found(ledger) == [("open", False)]
        assert [run.status async for run in ledger.runs()] == ["created"]


async def test_a_run_whose_stream_was_deleted_is_told_and_then_nobody_waits_for_it() -> None:
    async with open_ledger("memory:") as ledger:
        run = await ledger.begin_run("c", run_id="r")
        await ledger.catch_up("c")
        await ledger.store.delete("c")
        assert await found(ledger) == [("orphaned", False)]
        assert await found(ledger, repair=True) == [("orphaned", True)]
        assert await found(ledger) == []
        assert [(run.status, run.error) async for run in ledger.runs()] == [("failed", '"its events are gone"')]
        await run.close()


CHANGES = {
    "a damaged message": "UPDATE messages SET row_body = CAST(replace(row_body, 'true', 'false') AS BLOB) WHERE id = 'r.1'",
    "a lost message": "DELETE FROM messages WHERE id = 'r.1'",
    "a lost run": "DELETE FROM runs WHERE id = 'r'",
    "another end": "UPDATE runs SET row_body = CAST(replace(row_body, 'committed', 'failed') AS BLOB) WHERE id = 'r'",
    "another leaf": "UPDATE conversations SET leaf = 'r.1'",
    "a wrong count": "UPDATE conversations SET messages = 9",
    "a lost turn": "UPDATE messages SET selected = 99 WHERE id = 's.1'",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_rows_that_are_not_what_the_log_says_are_written_anew_with_their_ids(change: str) -> None:
    async with open_ledger("memory:") as ledger:
        for number, run_id in enumerate("rst"):
            await ledger.record("c", turn(run_id, f"{'rst'[number - 1]}.1" if number else None, "true"))
        await ledger.record("c", [new("message.annotated", message_id="r.1", patch={"a": 1})])
        before = await ledger.transcript("c")
        assert len(before) == 3
        await ledger.tables.database.write(lambda sql: sql(CHANGES[change]))
        if change == "a lost turn":  # changes no answer, so nothing is wrong
            assert await found(ledger) == []
            return
        assert await wrong(ledger)
        kinds = {kind for kind, is_mended in await found(ledger) if not is_mended}
        assert kinds
        assert all(is_mended for _, is_mended in await found(ledger, repair=True))
        assert await found(ledger) == []
        assert await wrong(ledger) == []
        assert await ledger.transcript("c") == before


async def test_an_amendment_that_the_ledger_has_missed_is_found_and_applied() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.record("c", [*turn("r", None, "x"), new("message.annotated", message_id="r.1", patch={"a": 1})])
        [message] = await ledger.transcript("c")
        await ledger.record("c", [new("message.annotated", message_id="r.1", patch={"b": 2})])
        await ledger.record("c", [new("run.usage", run_id="r", request_id="q", input=1)])
        [amended] = await ledger.transcript("c")
        assert amended.metadata_text == message.metadata_text | {"b": "2"}
        [run] = [run async for run in ledger.runs("c")]
        assert run.usage["q"].input == 1
        old = await ledger.tables.database.read("SELECT crc, row_body FROM messages")
        await ledger.tables.database.write(
            lambda sql: sql('UPDATE messages SET row_body = CAST(replace(row_body, \'"b":"2"\', \'"b":"3"\') AS BLOB)')
        )
        assert await ledger.tables.database.read("SELECT crc, row_body FROM messages") != old
        assert await found(ledger, repair=True) == [("diverged", True)]
        assert await ledger.tables.database.read("SELECT crc, row_body FROM messages") == old


async def test_a_log_that_is_older_than_its_ledger_is_told_and_nothing_committed_is_lost(tmp_path: Path) -> None:
    ledger_path, log_path = str(tmp_path / "ledger.db"), tmp_path / "log.db"
    async with open_ledger(ledger_path, log=str(log_path)) as ledger:
        await ledger.record("c", turn("r", None, "one"))
        await ledger.catch_up("c")
    shutil.copy(log_path, tmp_path / "old.db")
    async with open_ledger(ledger_path, log=str(log_path)) as ledger:
        await ledger.record("c", turn("s", "r.1", "two"))
        await ledger.record("d", turn("t", None, "three"))
        await ledger.catch_up_all()
    shutil.copy(tmp_path / "old.db", log_path)
    async with open_ledger(ledger_path, log=str(log_path)) as ledger:
        assert sorted(await found(ledger)) == [("diverged", False), ("orphaned", False)]
        assert {finding.kind for finding in await wrong(ledger)} == {"diverged", "orphaned"}
        assert await texts(ledger) == ["one", "two"]
        assert await texts(ledger, "d") == ["three"]
        assert sorted(await found(ledger, repair=True)) == [("diverged", True), ("orphaned", True)]
        assert await found(ledger) == []
        async with ledger.run("c") as run:
            await run.text("on it goes")
        assert await texts(ledger) == ["one", "two", "on it goes"]
        assert await texts(ledger, "d") == ["three"]


async def test_what_was_selected_in_a_log_that_is_gone_bars_no_later_selection(tmp_path: Path) -> None:
    """Its seqs are given again: to events that say something else, or what came first would hide what came last."""
    ledger_path, log_path = str(tmp_path / "ledger.db"), tmp_path / "log.db"
    async with open_ledger(ledger_path, log=str(log_path)) as ledger:
        for run_id in ("r", "s", "t"):
            await ledger.record("c", turn(run_id, None, run_id))
        await ledger.catch_up("c")
    shutil.copy(log_path, tmp_path / "old.db")
    async with open_ledger(ledger_path, log=str(log_path)) as ledger:
        for message_id in ("s.1", "t.1", "r.1"):
            await ledger.select("c", message_id)
        assert await texts(ledger) == ["r"]
    shutil.copy(tmp_path / "old.db", log_path)
    async with open_ledger(ledger_path, log=str(log_path)) as ledger:
        assert await found(ledger, repair=True) == [("diverged", True)]
        assert await texts(ledger) == ["t"]
        await ledger.select("c", "s.1")
        assert await texts(ledger) == ["s"]
        assert await found(ledger) == []
        assert await wrong(ledger) == []
        await ledger.tables.database.write(lambda sql: sql("INSERT INTO selections VALUES (1, 23, 'r.1')"))  # of before
        await ledger.select("c", "t.1")
        assert (await ledger.store.bounds("c")).head == 23
        assert await texts(ledger) == ["t"]


async def test_a_ledger_of_another_log_is_refused_until_it_is_told_to_take_it_over(tmp_path: Path) -> None:
    for name in ("a", "b"):
        async with open_ledger(str(tmp_path / f"{name}.db"), log=str(tmp_path / f"{name}-log.db")) as ledger:
            await ledger.record("c", turn("r", None, name))
            await ledger.catch_up("c")
    with pytest.raises(LogReplaced, match="reconcile --repair"):
        await open_ledger(str(tmp_path / "a.db"), log=str(tmp_path / "b-log.db"))
    async with open_ledger(str(tmp_path / "a.db"), log=str(tmp_path / "b-log.db"), take_over_log=True) as ledger:
        assert await found(ledger, repair=True) == [("diverged", True)]
        assert await texts(ledger) == ["b"]
    async with open_ledger(str(tmp_path / "a.db"), log=str(tmp_path / "b-log.db")) as ledger:
        assert await wrong(ledger) == []


async def test_a_ledger_whose_log_lies_elsewhere_and_is_not_named_is_refused(tmp_path: Path) -> None:
    data, log = str(tmp_path / "a.db"), str(tmp_path / "log.db")
    async with open_ledger(data, log=log) as ledger:
        await ledger.record("c", turn("r", None, "one"))
        await ledger.catch_up("c")
    for read_only in (False, True):
        with pytest.raises(LogReplaced, match="name the log that belongs to it"):
            await open_ledger(data, read_only=read_only)
    async with open_ledger(data, log=log) as ledger:
        assert await texts(ledger) == ["one"]
    async with open_ledger(data, take_over_log=True) as ledger:
        assert [kind for kind, _ in await found(ledger)] == ["orphaned"]
    await (await open_ledger(data)).close()


async def test_a_ledger_that_was_once_opened_with_another_log_still_opens_with_its_own(tmp_path: Path) -> None:
    data = str(tmp_path / "a.db")
    async with open_ledger(data) as ledger:
        await ledger.record("c", turn("r", None, "one"))
    async with open_ledger(data, log=str(tmp_path / "log.db")):
        pass
    async with open_ledger(data) as ledger:
        assert await texts(ledger) == ["one"]


@pytest.mark.parametrize("with_snapshot", [False, True])
async def test_a_hole_is_named_and_never_called_mended_and_the_rest_is_taken_in(*, with_snapshot: bool) -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.record("c", turn("r", None, "known"))
        await ledger.catch_up("c")
        await ledger.record("c", turn("lost", "r.1", "lost"))
        await ledger.record("c", [started("open", "r.1"), *said("open", "open.1", "so far")])
        floor = (await ledger.store.bounds("c")).head
        await ledger.record("c", [*turn("late", "r.1", "late"), finished("open")])
        if with_snapshot:  # by another ledger, that is gone
            async with open_ledger("memory:") as other:
                events = await ledger.store.read("c")
                await other.store.adopt("c", events[:floor])
                await other.compact("c", replay_window=floor)
                snapshot = await other.store.snapshots.load("c", "open_runs")
                assert snapshot is not None
                await ledger.store.snapshots.save(snapshot)
        await ledger.store.truncate("c", through=floor)
        ledger.forget("c")
        with pytest.raises(LedgerBehind):
            await ledger.begin_run("c")
        assert await texts(ledger) == ["known"]  # what is there can be read
        assert ("hole", False) in await found(ledger)
        assert ("hole", False) in await found(ledger, repair=True)
        assert await texts(ledger) == ["known", "late"]
        kept = [message.text for message in await ledger.transcript("c", branch="all")]
        assert kept == (["known", "so far", "late"] if with_snapshot else ["known", "late"])
        assert "hole" not in [kind for kind, _ in await found(ledger)]
        notes = [finding async for finding in verify(ledger) if finding.kind == "hole"]
        assert [(note.is_note, note.what) for note in notes] == [
            (True, f"events 8 to {floor} were gone before the ledger had taken them in")
        ] or with_snapshot
        async with ledger.run("c") as run:
            await run.text("on it goes")
        assert (await texts(ledger))[-1] == "on it goes"


async def test_every_kind_of_finding_says_what_it_means() -> None:
    assert all(meaning and not meaning.endswith(".") for meaning in MEANINGS.values())
    assert Finding("c", "open", "x", "y").means == MEANINGS["open"]


async def test_a_snapshot_that_is_not_what_its_events_say_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as ledger:
        await ledger.record("c", turn("r", None, "x"))
        await ledger.catch_up("c")
        head = (await ledger.store.bounds("c")).head
        await keep(open_runs, ledger.store.snapshots, "c", State(last_seq=head), head)
        assert await wrong(ledger) == []
        await ledger.record("c", turn("s", "r.1", "y"))
        await keep(open_runs, ledger.store.snapshots, "c", State(last_seq=head), head + 1)
        assert [finding.kind for finding in await wrong(ledger)] == ["stale_snapshot"]


async def test_a_ledger_and_its_log_in_two_files_are_backed_up_and_restored_together(tmp_path: Path) -> None:
    here, there = str(tmp_path / "ledger.db"), str(tmp_path / "log.db")
    async with open_ledger(here, log=there) as ledger:
        await ledger.record("c", turn("r", None, "one"))
        await ledger.catch_up("c")
        await ledger.record("c", turn("s", "r.1", "two"))  # not taken in yet
        with pytest.raises(StoreUnusable, match="second copy"):
            await ledger.backup(str(tmp_path / "copy.db"))
        with pytest.raises(StoreUnusable):
            await ledger.backup(str(tmp_path / "copy.db"), log_target=there)
        assert not (tmp_path / "copy.db").exists()
        await ledger.backup(str(tmp_path / "copy.db"), log_target=str(tmp_path / "copy-log.db"))
    async with open_ledger(str(tmp_path / "other.db"), log=str(tmp_path / "other-log.db")) as other:
        await other.record("c", turn("r", None, "else"))
    new, new_log = str(tmp_path / "new.db"), str(tmp_path / "new-log.db")
    with pytest.raises(StoreUnusable, match="together"):
        await restore(str(tmp_path / "copy.db"), new)
    with pytest.raises(LogReplaced):
        await restore(str(tmp_path / "copy.db"), new, log_backup=str(tmp_path / "other-log.db"), log=new_log)
    (tmp_path / "new.db").write_bytes(b"taken")
    with pytest.raises(StoreUnusable):
        await restore(str(tmp_path / "copy.db"), new, log_backup=str(tmp_path / "copy-log.db"), log=new_log)
    assert not (tmp_path / "new-log.db").exists()
    (tmp_path / "new.db").unlink()
    incarnation = await restore(str(tmp_path / "copy.db"), new, log_backup=str(tmp_path / "copy-log.db"), log=new_log)
    async with open_ledger(new, log=new_log) as ledger:
        assert ledger.store.incarnation == incarnation
        assert await texts(ledger) == ["one", "two"]
        assert await wrong(ledger) == []
