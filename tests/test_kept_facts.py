"""What is worked out of messages beside a kept path: views that are made at once do not disturb each other."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import tracemalloc
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ledger import open_ledger
from ledger.tables import kept_paths
from ledger.tables.kept_paths import KeptPath, KeptPaths
from projector import Block, Message
from projector.context.facts import FactTable, form_of, using
from projector.context.pipeline import Pipeline
from projector.context.result_stages import NearDuplicates
from projector.context.shortening import put_text, text_of
from projector.context.stage import Shaped
from projector.json_text import encode
from tests.test_context_broken import fill

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledger import Ledger
    from projector.context.stage import Source

pytestmark = pytest.mark.anyio
ALIKE = NearDuplicates(0.9)


@dataclass(frozen=True)
class Waiting:
    """A stage that changes nothing, and takes its time."""

    begun: asyncio.Event
    end: asyncio.Event
    name: str = "waiting"

    async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
        del source
        self.begun.set()
        await self.end.wait()
        return Shaped(messages)


async def test_a_view_of_one_branch_is_made_while_others_read_another(ledger: Ledger) -> None:
    """It shortens messages that stand on both: of those the reader of the other branch knows nothing."""
    await fill(ledger)
    path = await ledger.transcript("c")
    async with ledger.run("c", parent=path[-2].id) as run:
        await run.message("user", "another end")
    waiting = Waiting(asyncio.Event(), asyncio.Event())
    first = {path[-2].id: path[-1].id}
    view = asyncio.create_task(ledger.context("c", selections=first, pipeline=Pipeline(optional=(waiting, ALIKE))))
    await waiting.begun.wait()
    other = await ledger.transcript("c")
    waiting.end.set()
    made = await view
    assert made.view.records
    assert await ledger.transcript("c", selections=first) == path
    assert await ledger.transcript("c") == other
    assert (await ledger.context("c", selections=first)).messages == made.messages


def message(name: str, text: str = "x") -> Message:
    return Message(name, None, "r", "user", "complete", (Block("text", text=text, sealed=True),), 0, 1)


@pytest.fixture
def _in_small_steps() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_in_small_steps")
def test_views_in_threads_make_forms_of_the_same_messages() -> None:
    table, said = FactTable(), [message("one"), message("two")]
    table.cover(said)
    failed: list[Exception] = []

    def shorten(first: int) -> None:
        try:
            with using(table):
                for number in range(first, first + 3000):
                    assert put_text(said[number % 2], f"{number % 9}").text == f"{number % 9}"
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=shorten, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(table.known) <= 2 + 2 * 4


def test_forms_of_forms_go_with_them() -> None:
    table, one = FactTable(), message("one")
    table.cover([one])
    with using(table):
        for number in range(40):
            for further in range(3):
                put_text(put_text(one, f"text {number}"), f"text {further}")
    assert len(table.known) <= 1 + 4 * 4


def test_a_message_is_not_taken_for_one_that_is_gone() -> None:
    """What has the place in memory of a form that was dropped may be like all others."""
    table, one, other = FactTable(), message("one"), message("other", "no word of it is in any other")
    table.cover([one, other])
    with using(table):
        gone = form_of(one, 0, lambda given: message(given.id, "said before"))
        assert table.find_alike([gone, other], 0.9, text_of) == {}
        name = id(gone)
        del gone
        for key in range(1, 6):
            form_of(one, key, lambda given: message(given.id, "said in its place"))
        late: list[Message] = []
        while len(late) < 2000 and not (late and id(late[-1]) == name):
            late.append(message("late", other.text))
        table.cover(late[-1:])
        assert table.find_alike([late[-1], other], 0.9, text_of) == {0: 1}


def tables() -> int:
    gc.collect()
    return sum(type(one) is FactTable for one in gc.get_objects())


def test_what_is_not_kept_is_gone_with_its_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a stage had a time limit: asyncio keeps a timer that was cancelled while another one comes before it."""
    monkeypatch.setattr(kept_paths, "MOST_KEPT_BYTES", 0)

    async def look() -> None:
        async with open_ledger("memory:") as ledger:
            await fill(ledger)
            before = tables()
            asyncio.get_running_loop().call_later(20, int)
            for _ in range(20):
                await ledger.context("c", pipeline=Pipeline(optional=(ALIKE,)))
            assert tables() <= before + 1

    asyncio.run(look())


def test_what_is_worked_out_beside_paths_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that were read longest ago it goes first; their messages stay."""
    monkeypatch.setattr(kept_paths, "MOST_FACTS_BYTES", 100_000)
    paths, random_ = KeptPaths(), random.Random(0)
    for name in "abc":
        said = [message(f"{name}{at}", " ".join(f"{random_.getrandbits(60)}" for _ in range(40))) for at in range(8)]
        path = KeptPath((0, 0), tuple(said), {one.id: at for at, one in enumerate(said)}, tuple(range(1, 9)))
        paths.put(name, path)
        path.facts.cover(said)
        with using(path.facts):
            path.facts.find_alike(said, 0.9, text_of)
        assert 40_000 < path.facts.size < 100_000
        paths.weigh(name)
    assert [paths.find(name).facts.size > 0 for name in "abc"] == [False, False, True]
    assert all(len(paths.find(name).messages) == 8 for name in "abc")
    monkeypatch.setattr(kept_paths, "MOST_FACTS_BYTES", 1000)
    paths.weigh("c")
    assert not any(paths.find(name).facts.size for name in "abc")
    for name in "abc":
        paths.forget(name)
    assert (paths._size, paths._facts_size) == (0, 0)


async def test_a_view_of_what_was_not_worked_out_before_is_the_same(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(ledger)
    pipeline = Pipeline(optional=(ALIKE,))
    made = []
    for most in (0, 0, 2**20, 2**20, 0):
        monkeypatch.setattr(kept_paths, "MOST_FACTS_BYTES", most)
        made.append(await ledger.context("c", pipeline=pipeline))
        assert bool(ledger.tables.kept.find("c").facts.size) == bool(most)
    assert (
        len({encode([list(one.messages), list(one.view.changes), one.view.tokens]) for one in made[1:]}) == 1
    )  # the first one had to record


def test_the_size_of_what_is_worked_out_is_about_what_it_takes() -> None:
    random_ = random.Random(1)
    said = [message(f"m{at}", " ".join(f"{random_.getrandbits(60)}" for _ in range(200))) for at in range(300)]
    tracemalloc.start()
    table = FactTable()
    table.cover(said)
    with using(table):
        table.find_alike(said, 0.9, text_of)
        for one in said:
            put_text(one, text_of(one)[:3000])
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.5 < table.size / taken < 2
