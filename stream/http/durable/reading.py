"""Reads a stream page by page, from any place in it: first what it inherited, then its own, and never more than a page."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import Truncated
from stream.http.durable.offsets import BEGINNING, Offset
from stream.http.durable.state import DATA, Part
from stream.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from stream.http.durable.state import State
    from stream.http.durable.streams import Stream
    from stream.records import Event
    from stream.store import EventStore

PAGE_BYTES: Final = 1024 * 1024
_FIRST_EVENTS: Final = 4  # how large they are is not known yet, and what is read beyond the page is read in vain
_MAX_EVENTS: Final = 1000


class Page(NamedTuple):
    """Messages and the place behind them. `head` is how far the stream of the store was known when it was made."""

    messages: list[bytes]
    next: Offset
    is_at_end: bool
    is_closed: bool
    head: int


async def read_page(
    store: EventStore, stream: Stream, after: Offset, *, max_bytes: int = PAGE_BYTES, max_messages: int | None = None
) -> Page:
    """The messages behind a place: one at least if there is one, and no more when they reach `max_bytes`.

    Raises `Problem` 410 for a place that can't be gone on from, with the one to begin at: its messages were dropped, or it
    belongs to an earlier life of the path.
    """
    state, head = stream.state, stream.head
    end, is_closed = state.end, state.is_closed
    messages: list[bytes] = []
    size_bytes = 0
    place = after
    for part, behind in spans(state, stream.id, after):
        async with contextlib.aclosing(_read(store, part, behind, max_bytes)) as events:
            async for event in events:
                if event.type == DATA:
                    messages.append(event.data)
                    size_bytes += len(event.data)
                    place = Offset(part.generation, part.start + event.seq)
                    if size_bytes >= max_bytes or len(messages) == max_messages:
                        return Page(messages, place, place == end, is_closed and place == end, head)
        place = part.end
    return Page(messages, place, is_at_end=True, is_closed=is_closed, head=head)


def spans(state: State, stream_id: str, after: Offset) -> list[tuple[Part, int]]:
    """What lies behind a place: stretches, and how much of each lies before it. Raises `Problem` 410 for no place of it."""
    found: list[tuple[Part, int]] = []
    before = BEGINNING
    for part in _parts(state, stream_id):
        if found or after == before:
            found.append((part, 0))
        elif after <= part.end:
            if after.generation != part.generation or after.position <= part.start:
                raise _gone("belongs to an earlier life of this path", BEGINNING)
            found.append((part, after.position - part.start))
        before = part.end
    if not found and after != before:
        raise _gone("lies beyond the end, or belongs to an earlier life of this path", BEGINNING)
    return found


def parts_up_to(state: State, stream_id: str, end: Offset) -> tuple[Part, ...]:
    """What a fork at this place inherits; the place is one of the stream."""
    kept: list[Part] = []
    for part in _parts(state, stream_id):
        if part.end <= end:
            kept.append(part)
            continue
        if end.generation == part.generation and end.position > part.start:
            kept.append(Part(part.stream_id, part.generation, part.start, end.position - part.start))
        break
    return tuple(kept)


def messages_of(state: State, events: Sequence[Event]) -> Iterator[tuple[bytes, Offset]]:
    """The messages among events of the stream's own, each with the place behind it."""
    for event in events:
        if event.type == DATA:
            yield event.data, state.offset_of(event.seq)


def _parts(state: State, stream_id: str) -> tuple[Part, ...]:
    own = state.own_part(stream_id)
    return (*state.config.parts, own) if own.through else state.config.parts


async def _read(store: EventStore, part: Part, after: int, max_bytes: int) -> AsyncGenerator[Event, None]:
    limit, seen, size_bytes = _FIRST_EVENTS, 0, 0
    while after < part.through:
        try:
            events = await store.read(part.stream_id, after=after, limit=min(limit, part.through - after))
        except Truncated as error:
            floor = Offset(part.generation, part.start + min(error.floor, part.through))  # what is dropped may go further
            raise _gone("lies before what is kept", floor) from error
        if not events:
            raise _gone("lies in what was dropped meanwhile", part.end)
        for event in events:
            yield event
        after = events[-1].seq
        seen += len(events)
        size_bytes += sum(len(event.data) for event in events)
        limit = max(1, min(_MAX_EVENTS, (max_bytes - size_bytes) * seen // (size_bytes + 1) + 1))


def _gone(why: str, earliest: Offset) -> Problem:
    return Problem(410, "gone", f"this offset {why}: begin at {earliest}", offset=str(earliest))
