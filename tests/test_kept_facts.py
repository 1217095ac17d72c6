"""What is worked out of messages beside a kept path: views that are made at once do not disturb each other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from projector.context.pipeline import Pipeline
from projector.context.result_stages import NearDuplicates
from projector.context.stage import Shaped
from tests.test_context_broken import fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger import Ledger
    from projector import Message
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
