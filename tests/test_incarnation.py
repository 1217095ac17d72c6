"""A store knows its life from another one of the same numbers, and says so to who follows it (laws 2 and 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from ledger import Replay, open_ledger
from stream import Diverged, Event, NewEvent, follow, open_store
from stream.sqlite.backup import back_up, restore
from stream.sqlite.scripts import read_scripts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backends import Backend, Store

pytestmark = pytest.mark.anyio
KNOWN = {"stream": read_scripts("stream.sqlite")}


async def append(store: Store, *texts: str) -> None:
    await store.append("s", [NewEvent("t", text.encode()) for text in texts])


async def take(store: Store, count: int, *, after: int = 0, incarnation: str | None = None) -> list[bytes]:
    found = []
    with anyio.fail_after(10):
        async for event in follow(store, "s", after=after, incarnation=incarnation):
            found.append(event.data)
            if len(found) == count:
                return found
    raise AssertionError


async def test_a_follower_of_this_incarnation_goes_on(backend: Backend) -> None:
    store = await backend.open()
    incarnation = store.incarnation
    await append(store, "a", "b")
    store = await backend.reopen(store)
    assert store.incarnation == incarnation
    assert await take(store, 1, after=1, incarnation=incarnation) == [b"b"]


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_position_of_another_life_is_told_so_and_yields_nothing(store: Store, after: int) -> None:
    await append(store, "a", "b")
    with pytest.raises(Diverged, match="another life of the store, 'elsewhere': begin again from a snapshot") as refused:
        await take(store, 1, after=after, incarnation="elsewhere")
    assert (refused.value.stream_id, refused.value.after, refused.value.head) == ("s", after, 2)
    assert refused.value.incarnation == "elsewhere"
    assert await take(store, 1) == [b"a"]


async def test_a_position_beyond_the_head_is_told_so_in_its_own_life_too(store: Store) -> None:
    await append(store, "a")
    with pytest.raises(Diverged, match="ends at 1") as refused:
        await take(store, 1, after=2, incarnation=store.incarnation)
    assert refused.value.incarnation is None


async def test_no_two_stores_have_one_incarnation(backend: Backend, tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "other.db")) as other:
        assert len({(await backend.open()).incarnation, other.incarnation, ""}) == 3


async def test_a_follower_of_what_was_lost_by_a_restore_never_sees_other_events_under_its_numbers(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    async with open_store(str(path)) as store:
        await append(store, "a", "b")
        await back_up(str(path), str(copy))
        await append(store, "lost")
        old, cursor = store.incarnation, 3
    path.unlink()
    minted = await restore(str(copy), str(path), KNOWN)
    async with open_store(str(path)) as store:
        assert store.incarnation == minted != old
        await append(store, "c", "d")  # 3 and 4, other events than those the client has seen
        with pytest.raises(Diverged):
            await take(store, 1, after=cursor, incarnation=old)
        assert await take(store, 4, incarnation=minted) == [b"a", b"b", b"c", b"d"]


async def test_a_client_of_a_ledger_is_told_too() -> None:
    async with open_ledger("memory:") as ledger:
        await ledger.store.append("s", [NewEvent("t", b"a")])
        replay = await anext(aiter(ledger.follow("s", incarnation="elsewhere")))
        assert isinstance(replay, Replay)
        assert (replay.last_seq, replay.incarnation) == (1, ledger.store.incarnation)
        event = await anext(aiter(ledger.follow("s", incarnation=ledger.store.incarnation)))
        assert isinstance(event, Event)
        assert event.seq == 1


async def test_a_backup_is_the_same_life_and_two_restores_are_two(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "log.db")) as store:
        await append(store, "a")
        await back_up(str(tmp_path / "log.db"), str(tmp_path / "copy.db"))
        incarnation = store.incarnation
    one = await restore(str(tmp_path / "copy.db"), str(tmp_path / "one.db"), KNOWN)
    two = await restore(str(tmp_path / "copy.db"), str(tmp_path / "two.db"), KNOWN)
    async with open_store(str(tmp_path / "copy.db")) as copy:
        assert copy.incarnation == incarnation
    assert len({incarnation, one, two}) == 3
