"""Holds fence: what is held stays, whoever looked before it was, and who has lost his hold is told at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger import HoldLost, erasure, open_ledger
from ledger.tables import holds
from ledger.upkeep import floor
from projector.compaction import keep
from projector.loading import load
from stream import InvalidId, StoreBusy
from stream.clock import now_ms
from tests.needles import PLACES, diary, open_at, say
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ledger import Ledger

pytestmark = pytest.mark.anyio
DAY_MS = 86_400_000


async def floor_of(ledger: Ledger) -> int:
    return (await ledger.store.bounds("c")).floor


class Clock:
    """What the process takes for the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_ms = 0
        monkeypatch.setattr("ledger.tables.tables.now_ms", lambda: now_ms() + self.ahead_ms)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("place", PLACES)
async def test_a_hold_that_is_taken_while_a_compaction_is_under_way_holds(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(tmp_path, place) as ledger, open_at(tmp_path, place) as other:
        await say(ledger, "one")
        truncate = floor.truncate
        held = other.hold("c", through=2)

        async def hold_before(*words: Any) -> tuple[int, str | None]:
            await held.__aenter__()
            return await truncate(*words)

        monkeypatch.setattr(floor, "truncate", hold_before)
        done = await ledger.compact("c")
        assert (done.floor, str(done.binds)[:5]) == (2, "hold:")
        assert await floor_of(other) == 2
        await held.__aexit__(None, None, None)


async def test_a_hold_waits_for_a_floor_that_rises_in_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_at(tmp_path, "two files") as ledger, open_at(tmp_path, "two files") as other:
        await say(ledger, "one")
        truncate = ledger.store.truncate
        seen: list[int] = []

        async def hold() -> None:
            async with other.hold("c", through=2):
                seen.append(await floor_of(other))

        async def hold_meanwhile(stream_id: str, *, through: int) -> Any:
            holding = asyncio.create_task(hold())
            async with other.hold("c", through=through), other.hold("another"):  # these need not wait
                pass
            bounds = await truncate(stream_id, through=through)
            assert not seen
            holdings.append(holding)
            return bounds

        holdings: list[asyncio.Task[None]] = []
        monkeypatch.setattr(ledger.store, "truncate", hold_meanwhile)
        done = await ledger.compact("c")
        await holdings[0]
        assert seen == [done.floor] == [done.head]


@pytest.mark.parametrize("leaves", [False, True], ids=["waits", "leaves"])
async def test_a_hold_waits_also_for_a_floor_that_takes_long_to_rise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    """As where a server is gone for some seconds. Whoever leaves meanwhile has cut nothing."""
    monkeypatch.setattr(holds, "_FLOOR_LEASE_MS", 200)
    async with open_at(tmp_path, "two files") as ledger, open_at(tmp_path, "two files") as other:
        await say(ledger, "one")
        truncate, bounds, risen = ledger.store.truncate, ledger.store.bounds, asyncio.Event()
        begun = asyncio.Event()

        async def rise(stream_id: str, through: int) -> Any:
            await asyncio.sleep(0.8)
            bounds_then = await truncate(stream_id, through=through)
            risen.set()
            return bounds_then

        async def truncate_slowly(stream_id: str, *, through: int) -> Any:
            begun.set()
            return await asyncio.shield(asyncio.create_task(rise(stream_id, through)))

        async def bounds_behind(stream_id: str) -> Any:
            if begun.is_set():
                await risen.wait()
            return await bounds(stream_id)

        monkeypatch.setattr(ledger.store, "truncate", truncate_slowly)
        monkeypatch.setattr(ledger.store, "bounds", bounds_behind)
        compacting = asyncio.create_task(ledger.compact("c"))
        await begun.wait()
        if leaves:
            compacting.cancel()
        async with other.hold("c", through=2):
            assert risen.is_set()
        await asyncio.wait([compacting])
        assert compacting.cancelled() is leaves


@pytest.mark.parametrize("place", PLACES)
async def test_a_compaction_that_was_killed_holds_nobody_up(tmp_path: Path, place: str, clock: Clock) -> None:
    async with open_at(tmp_path, place) as ledger:
        await say(ledger, "one")
        await ledger.tables.transact(lambda sql: holds.announce_floor(ledger.tables, sql, "token", "c", 5))
        clock.ahead_ms = 6_000
        with anyio.fail_after(5):
            async with ledger.hold("c"):
                pass


async def test_a_snapshot_that_goes_while_a_compaction_is_under_way_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(tmp_path) as ledger, open_at(tmp_path) as other:
        await say(ledger, "one")
        before = await load(diary, other.store, other.store.snapshots, "c")
        await ledger.compact("c", replay_window=before.last_seq - 2)
        await say(ledger, "two")
        truncate = floor.truncate

        async def delete_before(*words: Any) -> tuple[int, str | None]:
            newest = await other.store.snapshots.load("c", diary.name)
            assert newest is not None
            await other.store.snapshots.delete("c", diary.name, newest.last_seq)
            return await truncate(*words)

        monkeypatch.setattr(floor, "truncate", delete_before)
        done = await ledger.compact("c")
        assert (done.floor, done.binds) == (before.last_seq, f"snapshot:{diary.name}")
        await load(diary, other.store, other.store.snapshots, "c")


async def test_what_binds_is_looked_at_again_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot that bound goes, and the one before it does not reach so far."""
    lagging = diary._replace(name="lagging")
    async with open_at(tmp_path) as ledger, open_at(tmp_path) as other:
        await say(ledger, "one")
        for _ in range(2):
            state, last_seq = await load(lagging, ledger.store, ledger.store.snapshots, "c")
            await keep(lagging, ledger.store.snapshots, "c", state, last_seq)
            await ledger.compact("c", replay_window=100)
            await say(ledger, "more")
        truncate = floor.truncate

        async def delete_before(*words: Any) -> tuple[int, str | None]:
            assert words[-1] == "snapshot:lagging"
            newest = await other.store.snapshots.load("c", "lagging")
            assert newest is not None
            await other.store.snapshots.delete("c", "lagging", newest.last_seq)
            return await truncate(*words)

        monkeypatch.setattr(floor, "truncate", delete_before)
        done = await ledger.compact("c")
        left = await ledger.store.snapshots.load("c", "lagging")
        assert left is not None
        assert (done.floor, done.binds) == (left.last_seq, "snapshot:lagging")
        await load(lagging, ledger.store, ledger.store.snapshots, "c")


async def lose(ledger: Ledger, losing: Callable[[], Awaitable[object]]) -> list[str]:
    """What a holder sees who waits for ever, and loses his hold."""
    told: list[str] = []

    async def hold() -> None:
        async with ledger.hold("c", through=2):
            await losing()
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                told.append("cancelled")
                raise

    with pytest.raises(HoldLost, match="ran out"), anyio.fail_after(10):
        await hold()
    return told


@pytest.mark.parametrize("ahead_ms", [61_000, DAY_MS, -DAY_MS])
async def test_a_holder_whose_lease_ran_out_while_it_slept_is_told_at_once(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    monkeypatch.setattr(holds, "_RENEWALS", 1000)

    async def sleep() -> None:
        clock.ahead_ms = ahead_ms

    async with open_at(tmp_path) as ledger:
        await say(ledger, "one")
        assert await lose(ledger, sleep) == ["cancelled"]
        done = await ledger.compact("c")
        assert done.floor == done.head
        assert await ledger.tables.database.read("SELECT * FROM holds") == []


async def test_a_holder_whose_hold_was_taken_away_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "_RENEWALS", 1000)
    async with open_at(tmp_path) as ledger:

        async def take_away() -> None:
            await ledger.tables.transact(lambda sql: sql("DELETE FROM holds"))

        assert await lose(ledger, take_away) == ["cancelled"]


async def test_a_holder_that_ends_too_late_is_told(tmp_path: Path, clock: Clock) -> None:
    async with open_at(tmp_path) as ledger:

        async def end_late(error: Exception | None) -> None:
            async with ledger.hold("c", through=2):
                clock.ahead_ms += 61_000
                if error is not None:
                    raise error

        with pytest.raises(HoldLost):
            await end_late(None)
        with pytest.raises(KeyError):  # an error of its own comes first
            await end_late(KeyError())


@pytest.mark.heavy
@pytest.mark.parametrize("ahead_ms", [DAY_MS, 61_000, 120_000, -61_000])
async def test_on_a_server_its_clock_counts_whatever_those_of_the_machines_say(clock: Clock, ahead_ms: int) -> None:
    url = Shared.url()
    async with open_ledger(url) as ledger, open_ledger(url) as other:
        await say(ledger, "one")
        async with ledger.hold("c", through=2):
            clock.ahead_ms = ahead_ms  # of the machine of the other one
            assert (await other.compact("c")).floor == 2
            clock.ahead_ms = 0
        assert (await other.compact("c")).floor > 2
        await erasure.begin_erasure(ledger.tables, "c", await ledger.store.bounds("c"), None)
        assert (await erasure._claim(other.tables, "c", "theirs")).claim == "theirs"
        clock.ahead_ms = ahead_ms
        assert (await erasure._claim(ledger.tables, "c", "ours")).claim == "theirs"


async def test_a_renewal_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "_RENEWALS", 1000)
    async with open_at(tmp_path) as ledger:
        transact, attempts, renewed = ledger.tables.transact, 0, anyio.Event()

        async def fail_at_first(job: Any) -> Any:
            nonlocal attempts
            attempts += 1
            if attempts < 4:
                raise StoreBusy("held by another process")
            renewed.set()
            return await transact(job)

        async with ledger.hold("c", through=2):
            [(before,)] = await ledger.tables.database.read("SELECT until FROM holds")
            with monkeypatch.context() as patched, anyio.fail_after(10):
                patched.setattr(ledger.tables, "transact", fail_at_first)
                await renewed.wait()
                while await ledger.tables.database.read("SELECT until FROM holds") == [(before,)]:
                    await anyio.sleep(0)


async def test_a_holder_that_can_not_renew_for_a_whole_lease_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(_: Any) -> Any:
        raise StoreBusy("held by another process")

    async with open_at(tmp_path) as ledger:
        with monkeypatch.context() as patched:

            async def fail() -> None:
                patched.setattr(ledger.tables, "transact", busy)
                restoring.append(asyncio.get_running_loop().call_later(0.3, patched.undo))

            restoring: list[Any] = []
            patched.setattr(holds, "_LEASE_MS", 200)
            assert await lose(ledger, fail) == ["cancelled"]


@pytest.mark.parametrize("until", [DAY_MS, 61_000, -1])
async def test_a_hold_with_an_end_that_no_lease_reaches_holds_nothing(tmp_path: Path, until: int) -> None:
    async with open_at(tmp_path) as ledger:
        await say(ledger, "one")
        put = "INSERT INTO holds VALUES ('of a wrong clock', NULL, 0, ?, 0)"
        await ledger.tables.transact(lambda sql: sql(put, (now_ms() + until,)))
        done = await ledger.compact("c")
        assert done.floor == done.head


async def test_what_can_not_be_held_is_refused(tmp_path: Path) -> None:
    async with open_at(tmp_path) as ledger:
        for through in (-1, 1.5, True, "3", None):
            with pytest.raises(ValueError, match="through"):
                async with ledger.hold("c", through=through):  # type: ignore[arg-type]
                    pass
        with pytest.raises(InvalidId):
            async with ledger.hold(""):
                pass
        assert await ledger.tables.database.read("SELECT * FROM holds") == []
