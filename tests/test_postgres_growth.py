"""A turn among many conversations on PostgreSQL costs what it costs among few: in time, and in rows that are looked through."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Final

import pytest

from ledger import open_ledger
from tests.faults.sizes import size
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from ledger import Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
FEW: Final = 100
MANY: Final = size(smoke=1_000, full=10_000)
SO_MANY: Final = size(smoke=3_000, full=10_000)
"""Of a smaller table the server may rightly read all: that takes it no longer than to look ten rows up."""
TURNS: Final = 30
ROUNDS: Final = 3
AT_ONCE: Final = 32
MOST: Final = 1.5
"""How much longer the median of a turn may take among many: the same, and what a machine that has other work makes of it."""


async def turn(ledger: Ledger, conversation: str) -> None:
    """A run of three messages."""
    async with ledger.run(conversation) as run:
        await run.message("user", "a question")
        await run.text("an answer")
        await run.message("user", "and another")


async def grow(ledger: Ledger, count: int) -> None:
    """So many conversations, each with a turn."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await turn(ledger, f"c{number}")

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def timed(ledger: Ledger, conversation: str) -> float:
    began = time.perf_counter()
    await turn(ledger, conversation)
    return time.perf_counter() - began


async def test_a_turn_among_many_conversations_takes_as_long_as_among_few() -> None:
    """Turn by turn in both, each in a conversation that was not gone on with yet; then again in one that was.

    What grows with their number is there in each round; what else a machine does is not.
    """
    async with open_ledger(Shared.url()) as few, open_ledger(Shared.url()) as many:
        await grow(few, FEW)
        await grow(many, MANY)
        for is_same in (False, True):
            ratios = []
            for first in range(0, ROUNDS * TURNS, TURNS):
                took: dict[str, list[float]] = {"few": [], "many": []}
                for number in range(first, first + TURNS):
                    took["few"].append(await timed(few, "c0" if is_same else f"c{number}"))
                    took["many"].append(await timed(many, "c0" if is_same else f"c{number * (MANY // FEW)}"))
                medians = {which: statistics.median(each) for which, each in took.items()}
                ratios.append(medians["many"] / medians["few"])
                where = "in the same conversation" if is_same else "in another conversation each time"
                print(f"a turn {where}: {medians['few'] * 1000:.1f} ms among {FEW}, {medians['many'] * 1000:.1f} among {MANY}")
            print(f"ratios {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
            assert min(ratios) <= MOST, ratios


async def test_no_statement_of_a_turn_looks_through_a_table_that_grows() -> None:
    """The server counts the rows that it has read of a whole table; what its processes have counted is told when they end.

    An opening looks through the streams once, for rows that were to be swept when another process ended.
    """
    url = Shared.url()
    async with open_ledger(url) as ledger:
        await grow(ledger, SO_MANY)
    before = await looked_through(url)
    async with open_ledger(url) as ledger:
        for number in range(TURNS):
            await turn(ledger, f"c{number}")
            await turn(ledger, f"new{number}")
            await ledger.transcript(f"c{number}")
    after = await looked_through(url)
    read = {table: after[table] - before[table] for table in after.keys() - {"feed", "store", "components"}}  # of a row or two
    print(read)
    assert read.pop("streams") <= SO_MANY + TURNS
    assert {table: rows for table, rows in read.items() if rows} == {}


async def looked_through(url: str) -> dict[str, int]:
    """Of each table of a schema, how many rows were read because all were looked through."""
    assert Shared.server is not None
    schema = url.partition("schema=")[2].partition("&")[0]
    async with asyncio.timeout(20):
        while (await Shared.server.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tailfold'"))[0][0]:
            await asyncio.sleep(0.05)
    rows = await Shared.server.ask(f"SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE schemaname = '{schema}'")
    return {str(table): int(str(count)) for table, count in rows}
