"""Takes in exports of ours: the same log again, once, however often it is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, overload

import msgspec

from ledger.tables.media import Media, put_media
from ledger.transfer.files import FileError
from stream import Event, NewEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger.engine import Engine
    from ledger.transfer.jsonl import Section
    from ledger.transfer.progress import Progress

_PAGE_EVENTS: Final = 1000
_PAGE_BYTES: Final = 8 * 1024 * 1024


class ImportedLog(msgspec.Struct, frozen=True):
    """What became of a conversation of an export of ours: events that were added, and those that were there or are gone again.

    `head` is the last event of its log now.
    """

    file: str
    conversation: str
    added: int
    skipped: int
    media: int
    head: int


class Place:
    """Where a conversation of a file goes: `after` is what the log holds of it already, None where that is new to it."""

    def __init__(self, section: Section, target: str, after: int | None) -> None:
        self._section = section
        self._target = target
        self._after = after

    async def take_in(self, ledger: Engine, progress: Progress) -> ImportedLog:
        """Adds what is new."""
        section, target, header = self._section, self._target, self._section.header
        new_from = header.floor if self._after is None else max(self._after, header.floor)
        added = max(0, header.head - new_from)
        with progress(f"importing {target}", None if self._after is None else added) as advance:
            if self._after is None:
                events = _Events(section, target)
                await ledger.store.adopt(target, events, floor=header.floor, origin=header.origin)
            else:
                await _append(ledger, section, target, self._after, advance)
        if section.media:
            for _, item in section.read():
                if isinstance(item, Media):
                    await put_media(ledger.tables, target, item.data, item.media_type)
        await ledger.catch_up(target)
        skipped = header.head - header.floor - added
        head = (await ledger.store.bounds(target)).head
        return ImportedLog(str(section.path), target, added, skipped, section.media, head)


async def place_of(ledger: Engine, section: Section, target: str) -> Place:
    """Holds what the log has against the file. Raises `FileError` where the two are no part of each other."""
    header, line = section.header, section.line.number
    bounds = await ledger.store.bounds(target)
    if not bounds.head:
        if header.floor > header.origin:
            raise without_beginning(section, target)
        return Place(section, target, None)
    if header.origin != bounds.origin:
        lives = f"events after {header.origin} in the file, after {bounds.origin} in the database"
        raise FileError.at(
            section.path, line, f"conversation {target!r} was erased once, it has {lives}: use --into for a new one"
        )
    if header.floor > bounds.head:
        ends = f"conversation {target!r} ends at {bounds.head}, and the file goes on at {header.floor + 1}"
        raise FileError.at(section.path, line, f"{ends}: import what lies between first")
    page: deque[Event] = deque()
    for number, item in section.read():
        if not isinstance(item, Event) or item.seq <= bounds.floor:  # those are gone, nothing tells what they were
            continue
        if item.seq > bounds.head:
            break
        page = page or deque(await ledger.store.read(target, after=item.seq - 1, limit=_PAGE_EVENTS))
        there = page.popleft()
        if (there.type, there.data) != (item.type, item.data):
            other = f"event {item.seq} of conversation {target!r} is another one in the database ({there.type})"
            raise FileError.at(section.path, number, f"{other}: use --into for another conversation")
    return Place(section, target, bounds.head)


def without_beginning(section: Section, target: str) -> FileError:
    """What is said of an export whose beginning is gone, where there is nothing that it could go on from."""
    gone = f"events {section.header.origin + 1} to {section.header.floor} are gone from it"
    way_out = "import an older one first, or instead of it what `tailfold export --format tailfold-messages` wrote"
    why = f"conversation {target!r} can't begin with this export, {gone}: {way_out}"
    return FileError.at(section.path, section.line.number, why)


async def _append(ledger: Engine, section: Section, target: str, after: int, advance: Callable[[int], object]) -> None:
    """Adds what lies behind `after`, in pages, each only where the one before has ended."""
    page: list[NewEvent] = []
    size_bytes = 0
    limits = ledger.store.limits
    page_events, page_bytes = min(_PAGE_EVENTS, limits.append_events), min(_PAGE_BYTES, limits.append_bytes)

    async def store() -> None:
        nonlocal after, size_bytes
        if page:
            after = (await ledger.store.append(target, page, expected_seq=after)).last_seq
            advance(len(page))
            page.clear()
            size_bytes = 0

    for _, item in section.read():
        if isinstance(item, Event) and item.seq > after + len(page):
            if len(page) == page_events or size_bytes + len(item.data) > page_bytes:
                await store()
            page.append(NewEvent(item.type, item.data))
            size_bytes += len(item.data)
    await store()


class _Events(Sequence[Event]):
    """The events of a section, read again each time they are asked for, so that memory does not depend on their number."""

    def __init__(self, section: Section, target: str) -> None:
        self._section = section
        self._target = target

    def __len__(self) -> int:
        return self._section.header.head - self._section.header.floor

    def __iter__(self) -> Iterator[Event]:
        for _, item in self._section.read():
            if isinstance(item, Event):
                yield Event(self._target, item.seq, item.type, item.data, item.at)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        return list(self)[index]
