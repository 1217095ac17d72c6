"""Events that are not of the vocabulary: whether a stream holds any other, and which of them nothing but the log keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector.events import BODIES, read_body
from projector.json_text import InvalidJson
from stream import CorruptEvent, Truncated

if TYPE_CHECKING:
    from collections.abc import Collection

    from stream import Event, EventStore

_PAGE_EVENTS: Final = 1000


def is_of_vocabulary(event: Event) -> bool:
    """Whether a conversation is made of such events: its type is known, and its body fits that."""
    try:
        return event.type in BODIES and read_body(event.type, event.data) is not None
    except InvalidJson:
        return False


async def is_foreign(store: EventStore, stream_id: str, *, after: int) -> bool:
    """Whether nothing behind `after` is of the vocabulary. Raises `Truncated` and `CorruptEvent`."""
    while events := await store.read(stream_id, after=after, limit=_PAGE_EVENTS):
        if any(map(is_of_vocabulary, events)):
            return False
        after = events[-1].seq
    return True


async def first_unkept(store: EventStore, stream_id: str, after: int, through: int, keeps: Collection[str]) -> int | None:
    """The first event behind `after` and up to `through` that is of no known type and of none in `keeps`.

    One that can't be read is such an event too, for nobody can tell what it was.
    """
    page = _Page(after)
    while page.last_seq < through:
        page = await page.following(store, stream_id, through, keeps)
        if page.unkept:
            return page.unkept[0]
    return None


async def count_unkept(store: EventStore, stream_id: str, after: int, through: int, keeps: Collection[str]) -> int:
    """How many such events there are."""
    count = 0
    page = _Page(after)
    while page.last_seq < through:
        page = await page.following(store, stream_id, through, keeps)
        count += len(page.unkept)
    return count


class _Page:
    """What was found up to `last_seq`; `limit` is how many events the next page may hold."""

    def __init__(self, last_seq: int, unkept: list[int] | None = None, limit: int = _PAGE_EVENTS) -> None:
        self.last_seq = last_seq
        self.unkept = unkept or []
        self._limit = limit

    async def following(self, store: EventStore, stream_id: str, through: int, keeps: Collection[str]) -> _Page:
        """The next page; around an event that can't be read they are small, so that it is found by itself."""
        try:
            events = await store.read(stream_id, after=self.last_seq, limit=min(self._limit, through - self.last_seq))
        except Truncated as error:  # gone by somebody else's doing
            return _Page(min(error.floor, through))
        except CorruptEvent:
            if self._limit > 1:
                return _Page(self.last_seq, limit=self._limit // 2)
            return _Page(self.last_seq + 1, [self.last_seq + 1], limit=1)
        if not events:
            return _Page(through)
        unkept = [event.seq for event in events if event.type not in BODIES and event.type not in keeps]
        return _Page(events[-1].seq, unkept, min(2 * self._limit, _PAGE_EVENTS))
