"""Adjacent deltas of one block as one: while they are written, when a file is imported, and when a log is folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from projector.events import BlockDelta, to_event
from stream import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class JoinedDeltas:
    """A delta, and those of its block that came right behind it."""

    __slots__ = ("_head", "_pieces", "size")

    def __init__(self, head: BlockDelta) -> None:
        self._head = head
        self._pieces = [head.text]
        self.size = len(head.text)
        """Characters."""

    def take(self, delta: BlockDelta) -> bool:
        """Puts `delta` behind the others; False, and nothing is done, if it is of another block or field."""
        head = self._head
        if (delta.message_id, delta.block, delta.field) != (head.message_id, head.block, head.field):
            return False
        self._pieces.append(delta.text)
        self.size += len(delta.text)
        return True

    def body(self) -> BlockDelta:
        """All of them as one."""
        if len(self._pieces) == 1:
            return self._head
        return replace(self._head, text="".join(self._pieces))


class JoinedEvent(NamedTuple):
    """An event that stands for `parts`, which came one after the other; most stand for themselves."""

    event: Event
    parts: list[Event]


def join_events(events: Iterable[Event]) -> Iterator[JoinedEvent]:
    """Events in order, adjacent deltas of one block as one with the number of the last.

    A fold that takes one takes what its parts say, in one step. One that refuses it has to be given the parts: each
    of them is an anomaly with a number of its own. A delta with fields that nobody knows stands alone, as they stay
    with the message, and so does one that does not fit its type.
    """
    parts: list[Event] = []
    deltas: JoinedDeltas | None = None
    for event in events:
        delta = _read_delta(event)
        if deltas is not None:
            if delta is not None and deltas.take(delta):
                parts.append(event)
                continue
            yield _as_one(deltas, parts)
        deltas, parts = (None if delta is None else JoinedDeltas(delta)), [event]
        if delta is None:
            yield JoinedEvent(event, parts)
    if deltas is not None:
        yield _as_one(deltas, parts)


class _PlainDelta(BlockDelta, frozen=True, forbid_unknown_fields=True):
    """A delta that is nothing else."""


_DECODER: Final = msgspec.json.Decoder(_PlainDelta)


def _read_delta(event: Event) -> BlockDelta | None:
    if event.type != BlockDelta.TYPE:
        return None
    try:
        return _DECODER.decode(event.data)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # the fold reads it in its own way, or says what is wrong
        return None


def _as_one(deltas: JoinedDeltas, parts: list[Event]) -> JoinedEvent:
    last = parts[-1]
    if len(parts) == 1:
        return JoinedEvent(last, parts)
    return JoinedEvent(Event(last.stream_id, last.seq, last.type, to_event(deltas.body()).data, last.at), parts)
