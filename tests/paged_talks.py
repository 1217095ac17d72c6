"""Conversations whose bodies are to lie in pages, and looks at them: through a ledger, and at the rows of its file."""

from __future__ import annotations

import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from ledger import open_ledger
from ledger.tables.dictionary import DICTIONARY
from ledger.upkeep.verify import verify
from stream.sqlite.driver import connect

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger, RunInfo
    from projector import Message

PLACE: Final = "c"
SECRET: Final = "what nobody is to read again"


async def talk(ledger: Ledger, turns: int, *, first: int = 0, place: str = PLACE, words: str = "answer") -> None:
    for number in range(first, first + turns):
        async with ledger.run(place, run_id=f"r{number}") as run:
            await run.message("user", f"question {number}")
            await run.step()
            await run.text(f"{words} {number}")


def look(path: Path, text: str, *parameters: object) -> list[tuple[Any, ...]]:
    with closing(connect(str(path))) as raw:
        return raw.execute(text, parameters).fetchall()


def change(path: Path, text: str, *parameters: object) -> None:
    with closing(connect(str(path))) as raw:
        raw.execute(text, parameters)


def unpacked(path: Path) -> bytes:
    """All pages of a file as they are when they are unpacked."""
    return b"".join(map(unzip, packed(path)))


def packed(path: Path) -> list[bytes]:
    """All pages of a file as they lie."""
    return [data for (data,) in look(path, "SELECT packed FROM pages ORDER BY id")]


def unzip(data: bytes) -> bytes:
    """What was compressed, with the dictionary or without."""
    return zlib.decompressobj(zdict=DICTIONARY).decompress(data)


async def everything(
    ledger: Ledger, place: str = PLACE
) -> tuple[list[Message], list[RunInfo], list[tuple[Message, bool]], Any]:
    """All that is read of a conversation, through each way to a body."""
    path = await ledger.transcript(place)
    runs = [run async for run in ledger.runs(place)]
    of_runs = [one for run in runs for one in await ledger.tables.messages_of(place, run.run_id)]
    one_by_one = [await ledger.tables.message(place, message.id) for message in path]
    assert one_by_one == path
    assert [await ledger.tables.run(place, run.run_id) for run in runs] == runs
    assert await ledger.transcript(place, branch="all") == [message async for message in ledger.tables.all(place)]
    return path, runs, of_runs, (await ledger.context(place)).view.source


async def read_anew(path: Path) -> Any:
    async with open_ledger(str(path)) as ledger:
        return await everything(ledger)


async def wrong(path: Path) -> list[str]:
    async with open_ledger(str(path)) as ledger:
        return [finding.what async for finding in verify(ledger) if not finding.is_note]
