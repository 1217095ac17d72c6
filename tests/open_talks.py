"""A ledger in memory that holds a little of everything: a run that has ended, and one that is open."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger import Ledger


@asynccontextmanager
async def open_talk() -> AsyncIterator[Ledger]:
    """Conversation `c` with run `r`, which said SECRET, and run `open`."""
    async with open_ledger("memory:") as opened:
        async with opened.run("c", run_id="r") as run:
            await run.message("user", "SECRET")
        late = await opened.begin_run("c", run_id="open")
        await late.message("user", "still open")
        await late.flush()
        yield opened
