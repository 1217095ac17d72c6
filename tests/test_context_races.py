"""Two who look at once: who comes second uses what the first one recorded, so that both see the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledger import open_ledger
from projector.context.budget import Budget
from projector.context.pipeline import Pipeline, Summaries
from projector.context.summaries import SummaryMaker
from projector.events import ContextCompacted, ContextExpanded, ProviderSessionChanged, to_event
from projector.json_text import encode
from tests.test_context_broken import IN_SHORT, expiring, fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from ledger import Ledger
    from projector import Message
    from projector.events import Choice

pytestmark = pytest.mark.anyio


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Ledger, Ledger]]:
    """One file, opened twice, as two programs have it."""
    path = str(tmp_path / "c.db")
    async with open_ledger(path, durability="normal") as one, open_ledger(path, durability="normal") as two:
        await fill(one)
        yield one, two


class Meeting:
    """Summarizers that have all been asked before the first one answers; each says something else."""

    def __init__(self, guests: int) -> None:
        self.waiting, self.asked, self.open = guests, 0, asyncio.Event()

    async def answer(self) -> str:
        self.asked += 1
        mine = self.asked
        if mine >= self.waiting:
            self.open.set()
        await self.open.wait()
        await asyncio.sleep(0.02 * mine)
        return f"in short {mine}"


def old_part(meeting: Meeting, keep: int = 1) -> Pipeline:
    async def summarize(messages: Sequence[Message]) -> str:
        del messages
        return await meeting.answer()

    return Pipeline(summaries=Summaries(Budget(10), summarize, keep=keep))


def single_results(meeting: Meeting) -> Pipeline:
    async def summarize(instructions: str, text: str) -> str:
        del instructions, text
        return await meeting.answer()

    return expiring(IN_SHORT, maker=SummaryMaker(summarize))


async def recorded(ledger: Ledger) -> list[Choice]:
    return [choice for _, choice in await ledger.tables.choices("c")]


@pytest.mark.parametrize(("make", "guests", "records"), [(old_part, 2, 1), (single_results, 4, 2)])
async def test_who_comes_second_uses_the_summary_of_who_came_first(
    both: tuple[Ledger, Ledger], make: Callable[[Meeting], Pipeline], guests: int, records: int
) -> None:
    one, two = both
    meeting = Meeting(guests)
    pipelines = make(meeting), make(meeting)
    first, second = await asyncio.gather(
        one.context("c", pipeline=pipelines[0], turn=9), two.context("c", pipeline=pipelines[1], turn=9)
    )
    assert meeting.asked == guests  # nobody asked again
    later = await two.context("c", pipeline=make(Meeting(99)), turn=9)
    assert encode(list(first.messages)) == encode(list(second.messages)) == encode(list(later.messages))
    assert first.view.view_id == second.view.view_id == later.view.view_id
    assert len(await recorded(one)) == records
    assert not (first.view.records and second.view.records)


async def test_many_who_look_at_once_see_the_same_and_record_it_once(both: tuple[Ledger, Ledger]) -> None:
    meeting = Meeting(8)
    contexts = await asyncio.gather(*(both[number % 2].context("c", pipeline=old_part(meeting)) for number in range(8)))
    assert len({encode(list(context.messages)) for context in contexts}) == 1
    assert len(await recorded(both[0])) == 1


async def test_another_summary_is_recorded_where_that_of_the_first_is_not_enough(both: tuple[Ledger, Ledger]) -> None:
    one, two = both
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly(messages: Sequence[Message]) -> str:
        asked.set()
        await go.wait()
        return f"{len(messages)} messages"

    longer = Pipeline(summaries=Summaries(Budget(10), slowly, keep=1))
    second = asyncio.create_task(two.context("c", pipeline=longer))
    await asked.wait()
    first = await one.context("c", pipeline=old_part(Meeting(1), keep=4))
    go.set()
    context = await second
    before, after = [choice for choice in await recorded(one) if isinstance(choice, ContextCompacted)]
    assert set(before.covers) < set(after.covers)
    assert [made.messages[0].text for made in (first, context)] == [before.summary, after.summary]


async def test_what_else_is_recorded_meanwhile_makes_nobody_look_for_ever(ledger: Ledger) -> None:
    for word in ("one", "two", "three"):
        async with ledger.run("c") as run:
            await run.message("user", f"{word} " * 30)
    first = (await ledger.transcript("c"))[0].id
    times = 0

    async def summarize(messages: Sequence[Message]) -> str:
        nonlocal times
        times += 1
        choices = [ProviderSessionChanged("p", "opened", f"s{times}"), ContextExpanded(0, first)] if times == 1 else []
        if choices:
            await ledger.record("c", [to_event(choice) for choice in choices])
        return f"{len(messages)} messages"

    pipeline = Pipeline(summaries=Summaries(Budget(10), summarize, keep=1))
    async with asyncio.timeout(20):
        context = await ledger.context("c", pipeline=pipeline)
    assert context.messages[0].text == "2 messages"
    assert times == 2  # what was shown in full meanwhile might have changed the view
    assert len(await recorded(ledger)) == 3


async def test_what_is_recorded_of_another_branch_or_of_a_session_is_no_reason_to_look_again(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        asked = await run.message("user", "question " * 20)
    async with ledger.run("c") as run:
        elsewhere = await run.message("user", "left")
    async with ledger.fork("c", asked) as run:
        await run.message("user", "right")
    times = 0

    async def summarize(messages: Sequence[Message]) -> str:
        nonlocal times
        times += 1
        other = ContextCompacted(0, [elsewhere], "of the left", "summary", 9, 1)
        session = ProviderSessionChanged("p", "opened", f"s{times}")
        await ledger.record("c", [to_event(other), to_event(session)])
        return f"{len(messages)} messages"

    context = await ledger.context("c", pipeline=Pipeline(summaries=Summaries(Budget(10), summarize, keep=1)))
    assert [message.text for message in context.messages] == ["1 messages", "right"]
    assert times == 1


async def test_a_recovery_that_two_do_at_once_is_recorded_once(both: tuple[Ledger, Ledger]) -> None:
    contexts = [await one.context("c", turn=9) for one in both]
    first, second = await asyncio.gather(*(one.recover_overflow(made, 50) for one, made in zip(both, contexts, strict=True)))
    assert first.messages == second.messages
    assert await recorded(both[0]) == list(first.records)
    again = await both[0].context("c", turn=9)
    assert encode(list(again.messages)) == encode(list(first.messages))
