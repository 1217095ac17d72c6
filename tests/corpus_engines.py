"""`python -m tests.corpus_engines [DIR…]`: imports every file of folders of public data on every engine, and compares.

Each conversation that a file holds is recorded, and each file is imported as `import` does it: into memory, a file,
PostgreSQL, and both of these with a log on NATS. Of each conversation are compared with those in memory: the hash of its
log, that of its transcript with all branches, runs and media, what a list shows of it, and its messages; again when it was
opened anew. What is refused must be refused everywhere, with the same words. Without DIR the folders beside this
repository are read.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import pytest
import structlog

from ledger import ConversationInfo, LedgerError, open_ledger
from ledger.transfer.content_hash import hash_log, hash_messages
from ledger.transfer.file_import import ImportedHistory, import_source, open_source
from stream import StreamError
from tests.corpus import look
from tests.corpus_parts import files_of
from tests.fixed_talks import stop_the_clock
from tests.ledger_places import place_of
from tests.nats_server import SharedNats
from tests.postgres_server import Shared
from tests.shared_data import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ledger import Ledger
    from stream import NewEvent
    from tests.corpus_parts import File

FIRST: Final = "memory"
PLACES: Final = (FIRST, "sqlite", "postgres", "file, log on nats", "postgres, log on nats")
_PIECE_EVENTS: Final = 1000
_PIECE_BYTES: Final = 900_000
_RECORDED: Final = "recorded/"  # the names of what was recorded, before those that `import` gives


class Held(NamedTuple):
    """What a ledger holds of a conversation; its transcript is all that it keeps of it."""

    log: str
    transcript: str
    info: ConversationInfo
    messages: str


class Compared(NamedTuple):
    """What was compared: files, conversations in each place, messages, refusals; and whatever was another somewhere."""

    files: int
    conversations: dict[str, int]
    messages: int
    refused: int
    expected: int
    differences: list[str]


class Engines:
    """The same files in ledgers on all engines."""

    def __init__(self, ledgers: dict[str, Ledger]) -> None:
        self.ledgers = ledgers
        self.names: set[str] = set()
        self.refused = 0
        self.differences: list[str] = []

    async def take(self, root: Path, path: Path, most: int | None) -> None:
        """A file into each of them, at once: all of its conversations, or as many as are said."""
        file = look(root, path)
        file.conversations = file.conversations[:most]
        taken = await asyncio.gather(*(_take(ledger, file, most) for ledger in self.ledgers.values()))
        first = taken[0]
        self.names.update(first.names)
        self.refused += len(first.refusals)
        for place, told in zip(self.ledgers, taken, strict=True):
            if told != first:
                here, there = (f"{one.refusals} {one.added}" for one in (told, first))
                self.differences.append(f"{place}: {file.name} is taken in another way: {here}, in {FIRST} {there}")

    async def held(self) -> dict[str, dict[str, Held]]:
        """What each holds."""
        found = await asyncio.gather(*(_held(ledger) for ledger in self.ledgers.values()))
        return dict(zip(self.ledgers, found, strict=True))

    async def reconcile(self) -> None:
        """The ledger of each against its own log."""
        for place, ledger in self.ledgers.items():
            async for finding in ledger.reconcile():
                if not finding.is_note:
                    self.differences.append(f"{place}: reconcile: {finding.conversation}: {finding.what}")

    def compare(self, held: dict[str, dict[str, Held]], first: dict[str, Held], when: str = "") -> None:
        """Each conversation of each place against that in the first."""
        for place, found in held.items():
            for name in sorted(first.keys() | found.keys()):
                self.differences += [
                    f"{place}{when}: {name}: {what}" for what in _differences(first.get(name), found.get(name))
                ]


Step = Callable[[dict[str, "Ledger"]], Awaitable[None]]


class Taken(NamedTuple):
    """What came of a file in one ledger."""

    names: list[str]
    added: list[tuple[str, int]]
    refusals: list[str]


async def compare(
    folder: Path,
    files: Iterable[tuple[Path, Path]],
    *,
    most: int | None = None,
    before: Step | None = None,
    behind: Step | None = None,
) -> Compared:
    """Imports files, each named behind the folder of sources, everywhere, and says what is not the same.

    Of a file only so many conversations as `most`. `before` and `behind` are steps before and behind the import.
    """
    urls = {place: _urls(place, folder) for place in PLACES}
    with pytest.MonkeyPatch.context() as patch:
        stop_the_clock(patch)
        async with AsyncExitStack() as stack:
            ledgers = {place: await stack.enter_async_context(open_ledger(url, log=log)) for place, (url, log) in urls.items()}
            engines = Engines(ledgers)
            if before is not None:
                await before(ledgers)
            count = 0
            for root, path in files:
                count += 1
                await engines.take(root, path, most)
            if behind is not None:
                await behind(ledgers)
            held = await engines.held()
            engines.compare(held, held[FIRST])
        async with AsyncExitStack() as stack:
            engines.ledgers = {
                place: await stack.enter_async_context(open_ledger(url, log=log))
                for place, (url, log) in urls.items()
                if place != FIRST
            }
            engines.compare(await engines.held(), held[FIRST], ", opened anew")
            await engines.reconcile()
    counts = {place: len(found) for place, found in held.items()}
    messages = sum(one.info.messages for one in held[FIRST].values())
    return Compared(count, counts, messages, engines.refused, len(engines.names), engines.differences)


def some_files(folders: Sequence[Path], every: int = 1) -> Iterator[tuple[Path, Path]]:
    """Of each source every so manieth file, with the folder of sources."""
    for root in folders:
        for source in sorted(path for path in root.iterdir() if path.is_dir()):
            yield from ((root, path) for path in files_of(source)[::every])


def _urls(place: str, folder: Path) -> tuple[str, str | None]:
    (folder / place).mkdir()
    return place_of(place, folder / place)


async def _take(ledger: Ledger, file: File, most: int | None) -> Taken:
    """Records the conversations of a file, then imports it as `import` does: each ledger reads it by itself."""
    names: list[str] = []
    added: list[tuple[str, int]] = []
    refusals = list(file.refused)
    for conversation in (one._replace(name=_RECORDED + one.name) for one in file.conversations):
        try:
            for events in conversation.appends():
                for some in _pieces(events):
                    await ledger.record(conversation.id, some)
            names.append(conversation.id)
        except (LedgerError, StreamError) as refusal:
            refusals.append(str(refusal))
    try:
        with ExitStack() as stack:
            source = open_source(stack, file.path, file.name)
            found = await import_source(ledger.engine, source._replace(recorded=source.recorded[:most]))
        added = [(one.conversation, one.added) for one in found if isinstance(one, ImportedHistory)]
    except (LedgerError, StreamError) as refusal:
        refusals.append(str(refusal))
    return Taken(names + [name for name, _ in added], added, refusals)


def _pieces(events: Sequence[NewEvent]) -> Iterator[list[NewEvent]]:
    """The events as each engine takes them at once; where an append may hold less than elsewhere, whoever appends cuts."""
    piece: list[NewEvent] = []
    size_bytes = 0
    for event in events:
        size_bytes += len(event.data)
        if piece and (len(piece) == _PIECE_EVENTS or size_bytes > _PIECE_BYTES):
            yield piece
            piece, size_bytes = [], len(event.data)
        piece.append(event)
    yield piece


async def _held(ledger: Ledger) -> dict[str, Held]:
    found: dict[str, Held] = {}
    for info in [info async for info in ledger.conversations(archived=True)]:
        name = info.conversation
        digest = hashlib.sha256()
        async for message in ledger.tables.all(name):
            digest.update(msgspec.json.encode(message))
        transcript = await hash_messages(ledger.engine, name)
        found[name] = Held(await hash_log(ledger.store, name), transcript, info, digest.hexdigest())
    return found


def _differences(first: Held | None, other: Held | None) -> Iterator[str]:
    if first is None or other is None:
        yield f"it is not in {FIRST}" if first is None else "it is not there"
        return
    for what, wanted, found in zip(Held._fields, first, other, strict=True):
        if wanted != found:
            yield f"its {what} is {found}, in {FIRST} it is {wanted}"


def main(given: Sequence[str]) -> int:
    """The command."""
    parser = ArgumentParser(prog="python -m tests.corpus_engines", description="Imports public data on all engines.")
    parser.add_argument("folders", nargs="*", type=Path, default=FOLDERS, metavar="DIR")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of each source only each N-th file")
    options = parser.parse_args(given)
    folders: list[Path] = options.folders
    if not folders or not all(folder.is_dir() for folder in folders):
        parser.error("folders of public data are needed, and none is there")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            told = asyncio.run(compare(Path(folder), some_files([one.resolve() for one in folders], options.every)))
    finally:
        Shared.close()
        SharedNats.close()
    for place, count in told.conversations.items():
        print(f"{place}: {count:,} conversations")
    print("\n".join(f"FAILED {difference[:400]}" for difference in told.differences[:40]))
    print(f"{told.files:,} files, {told.expected:,} conversations, {told.messages:,} messages, {told.refused:,} refusals")
    print(f"{len(told.differences)} differences, {time.monotonic() - began:.0f} s")
    is_whole = told.expected > 0 and set(told.conversations.values()) == {told.expected}
    return 0 if is_whole and not told.differences else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
