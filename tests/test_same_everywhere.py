"""The same talk is the same in every place: message for message, byte for byte, and so is what is said of it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import LedgerError, open_ledger
from ledger.transfer.content_hash import hash_log, hash_messages
from ledger.transfer.file_import import ImportedHistory, import_source, open_source
from stream import NewEvent, StreamError
from tests import fixed_talks
from tests.faults.sizes import size
from tests.ledger_places import place_of
from tests.shared_data import files, needs_data, sources

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger

pytestmark = pytest.mark.anyio
PLACES: Final = ("memory", "sqlite", "postgres", "postgres, log in a file", "file, log on postgres")
ODD: Final = "a NUL\0, \U0010ffff0, \U0010ffff, é and e\u0301"


async def everywhere(folder: Path, fill: Any, place: str) -> list[Any]:
    """What a ledger there says when it is filled, and again when it was opened once more."""
    (folder / place).mkdir()
    url, log = place_of(place, folder / place)
    async with open_ledger(url, log=log) as ledger:
        filled = await fill(ledger)
        said = await what_is_said(ledger)
    if url != "memory:":
        async with open_ledger(url, log=log) as ledger:
            assert await what_is_said(ledger) == said
    return [filled, *said]


async def what_is_said(ledger: Ledger) -> list[Any]:
    assert [finding async for finding in ledger.reconcile() if not finding.is_note] == []
    infos = sorted([info async for info in ledger.conversations(archived=True)], key=lambda info: info.conversation)
    names = [info.conversation for info in infos]
    return [
        infos,
        [(await hash_log(ledger.store, name), await hash_messages(ledger.engine, name)) for name in names],
        [[message async for message in ledger.tables.all(name)] for name in names],
        [info.conversation async for info in ledger.conversations(label=ODD)],
        [info.conversation async for info in ledger.conversations(prefix="tr")],
    ]


@pytest.mark.parametrize("places", [PLACES[:3], pytest.param(PLACES[2:], marks=pytest.mark.heavy)], ids=["whole", "in halves"])
async def test_a_talk_with_all_that_there_is_is_the_same_everywhere(
    places: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed_talks.stop_the_clock(monkeypatch)

    async def fill(ledger: Ledger) -> None:
        await fixed_talks.fill(ledger)
        await ledger.describe("plans", labels=[ODD, "x\0"])
        odd = [NewEvent("custom", b"\x00\xff"), NewEvent("run.usage", b'{"run_id":"\\ud800","request_id":"q\\u0000"}')]
        await ledger.store.append("plans", odd)
        async with ledger.run("Zoë", run_id="r") as run:
            await run.message("user", ODD + "\ud83d")
        async with ledger.run("zoe", run_id="r") as run:
            await run.message("user", "sorted by bytes, not by language")

    first, *others = [await everywhere(tmp_path, fill, place) for place in places]
    assert first[4:] == [["plans"], ["trip"]]
    for other in others:
        assert other == first


@needs_data
@pytest.mark.heavy
@pytest.mark.parametrize("source", sources())
async def test_recorded_sessions_are_the_same_everywhere(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_talks.stop_the_clock(monkeypatch)
    found = files(source, "**/*")
    chosen = found[:: max(1, len(found) // size(smoke=4, full=200))]

    async def fill(ledger: Ledger) -> list[Any]:
        return [await take(ledger, path) for path in chosen]

    first, *others = [await everywhere(tmp_path, fill, place) for place in PLACES[:3]]
    for other in others:
        assert other == first


async def take(ledger: Ledger, path: Path) -> Any:
    with ExitStack() as stack:
        try:
            found = await import_source(ledger.engine, open_source(stack, path, path.name))
        except (LedgerError, StreamError) as refusal:
            return type(refusal)
        return [(one.conversation, one.added) for one in found if isinstance(one, ImportedHistory)]
