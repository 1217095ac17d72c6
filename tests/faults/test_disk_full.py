"""No room at any write: one typed error at once, nothing half stored, and the same store goes on when there is room."""

from __future__ import annotations

import random
import resource
import subprocess
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import pytest

from stream import NewEvent, Producer, Snapshot, StoreFull, StreamError, open_store
from tests.faults.children import Parent, alone
from tests.faults.sizes import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.backends import Store

pytestmark = pytest.mark.anyio
AT_ONCE_S: Final = 1.0
WRITERS: Final = 20


def limit_files(size_bytes: int | None) -> None:
    """No file of this process grows beyond; its hard limit stays, so that this can be taken back."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size_bytes is None else size_bytes, hard))


class Witness:
    """Uses a store that may be full, and knows what must be in it."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store, self.chance = store, chance
        self.names = 0
        self.acknowledged: dict[int, bytes] = {}
        self.refused: set[bytes] = set()
        self.producer_seq = 0
        self.saved = 0

    async def append(self, *, producer: str = "", max_bytes: int = 4_000) -> bool:
        """One append of two events; False if there was no room."""
        self.names += 1
        data = b"%d " % self.names + bytes(self.chance.randrange(max_bytes))
        given = Producer(producer, 0, self.producer_seq) if producer else None
        began = time.monotonic()
        try:
            done = await self.store.append("s", [NewEvent("t", data)] * 2, producer=given)
        except StoreFull:
            self.refused.add(data)
            assert time.monotonic() - began < AT_ONCE_S
            return False
        self.acknowledged |= {done.first_seq: data, done.last_seq: data}
        self.producer_seq += bool(producer)
        return True

    async def append_together(self) -> bool:
        """Many at once, one of them a producer's, now and then so small that they share a row; False if any was refused."""
        went_in = []
        max_bytes = self.chance.choice([200, 4_000])

        async def one(producer: str) -> None:
            went_in.append(await self.append(producer=producer, max_bytes=max_bytes))

        async with anyio.create_task_group() as tasks:
            for n in range(WRITERS):
                tasks.start_soon(one, "p" if n == WRITERS - 1 else "")
        return all(went_in)

    async def save(self) -> None:
        """A snapshot of 200 kB at the head; raises `StoreFull`."""
        head = max(self.acknowledged)
        await self.store.snapshots.save(Snapshot("s", "p", 1, head, 0, bytes(200_000)))
        self.saved = head

    async def check(self) -> None:
        """All that was acknowledged is there, nothing that was refused, nothing half; reading goes on."""
        bounds = await self.store.bounds("s")
        events = await self.store.read("s", after=bounds.floor, limit=100_000)
        assert [event.seq for event in events] == list(range(bounds.floor + 1, bounds.head + 1))
        kept = {event.seq: event.data for event in events}
        assert kept == {seq: data for seq, data in self.acknowledged.items() if seq > bounds.floor}
        assert not self.refused & set(kept.values())
        loaded = await self.store.snapshots.load("s", "p")
        assert (loaded.last_seq if loaded else 0) == self.saved


async def fill(witness: Witness) -> None:
    """Appends until there is no room, and a little longer."""
    refusals = 0
    for _ in range(10_000):
        refusals += not await witness.append_together()
        if refusals == 3:
            return
    pytest.fail("the store was never full")


async def live_through_a_full_disk(witness: Witness, make_room: Callable[[], object]) -> None:
    """Whatever is done while there is no room ends at once, well or with `StoreFull`; then the same store goes on."""
    await fill(witness)
    await witness.check()
    store = witness.store
    head = (await store.bounds("s")).head
    for call in (
        witness.save,
        partial(store.truncate, "s", through=head // 2),
        partial(store.append, "new", [NewEvent("t", bytes(10_000))]),
        partial(store.append, "new", [NewEvent("t", bytes(10_000))], producer=Producer("q", 0, 0)),
        partial(store.snapshots.delete, "s", "other"),
    ):
        began = time.monotonic()
        with suppress(StoreFull):
            await call()
        assert time.monotonic() - began < AT_ONCE_S
        await witness.check()
    make_room()
    for _ in range(3):
        assert await witness.append_together()
    await witness.save()
    await store.truncate("s", through=head)
    await witness.check()
    await store.delete("s")
    bounds = await store.bounds("s")
    assert bounds.floor == bounds.head == max(witness.acknowledged)


async def under_a_limit(_: Parent, path: str, limit_bytes: int, seed: int) -> None:
    async with open_store(path) as store:
        witness = Witness(store, random.Random(seed))
        assert await witness.append()
        limit_files(limit_bytes)
        await live_through_a_full_disk(witness, lambda: limit_files(None))
        incarnation = store.incarnation
    async with open_store(path) as again:
        assert again.incarnation == incarnation
        assert (await again.append("s", [NewEvent("t", b"x")])).first_seq


@pytest.mark.parametrize("number", range(size(smoke=6, full=60)))
def test_a_full_disk_is_said_at_once_and_the_store_goes_on_when_there_is_room(
    tmp_path: Path, chance: random.Random, number: int
) -> None:
    """Known fault K53. The limit of a file's size is met at any write: in the WAL first, later in the database."""
    limit_bytes = int(50_000 * 120 ** chance.uniform(number / size(smoke=6, full=60), (number + 1) / size(smoke=6, full=60)))
    print(f"limit {limit_bytes} bytes")
    alone(under_a_limit, str(tmp_path / "log.db"), limit_bytes, chance.randrange(2**32))


async def open_under_a_limit(_: Parent, path: str, limit_bytes: int) -> str:
    limit_files(limit_bytes)
    outcome = "opened"
    try:
        async with open_store(path) as store:
            await store.append("s", [NewEvent("t", b"x")])
    except StreamError as error:
        outcome = f"{type(error).__name__}: {error}"
    limit_files(None)
    async with open_store(path) as store:
        assert [event.data for event in await store.read("s")] == [b"x"] * (outcome == "opened")
        await store.append("s", [NewEvent("t", b"y")])
    return outcome


@pytest.mark.heavy
def test_a_store_that_finds_no_room_when_it_is_made_says_so_and_is_made_later(tmp_path: Path, chance: random.Random) -> None:
    outcomes = []
    for number in range(size(smoke=10, full=100)):
        limit_bytes = chance.choice([0, 100, 4096, chance.randrange(300_000)])
        outcomes.append(alone(open_under_a_limit, str(tmp_path / f"{number}.db"), limit_bytes))
    assert any(outcome.startswith("StoreFull") for outcome in outcomes), outcomes
    assert all(outcome == "opened" or outcome.startswith("StoreFull") for outcome in outcomes), outcomes


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        why = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        why = str(error)
    if why:
        pytest.skip(f"no small tmpfs can be mounted here ({why}): only the variant with a limit of file size has run")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_disk_that_is_full_and_emptied_again_needs_no_restart(tmp_path: Path, chance: random.Random) -> None:
    """Known fault K53: a real file system without room (ENOSPC), and room again after a ballast file is gone."""
    for number in range(size(smoke=3, full=20)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with small_disk(folder, 12_000_000):
            ballast = folder / "ballast"
            ballast.write_bytes(bytes(chance.randrange(5_000_000, 11_000_000)))
            async with open_store(str(folder / "log.db")) as store:
                await live_through_a_full_disk(Witness(store, chance), ballast.unlink)
