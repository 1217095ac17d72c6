"""Adjacent deltas of one block as one: while they are written, when a file is imported, and when a log is folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from projector.events import BlockDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stream import Event


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
        self.add(delta.text)
        return True

    def add(self, text: str) -> None:
        """Puts text of the same block and field behind the others."""
        self._pieces.append(text)
        self.size += len(text)

    def are_of(self, message_id: str, block: int, field: str | None) -> bool:
        """Whether it is the very block: the id is the same object, so that nothing of it is to be checked again."""
        head = self._head
        return message_id is head.message_id and type(block) is int and block == head.block and field is head.field

    def body(self) -> BlockDelta:
        """All of them as one."""
        head = self._head
        return BlockDelta(head.message_id, head.block, "".join(self._pieces), head.field)


class JoinedEvent(NamedTuple):
    """An event that stands for `parts`, which came one after the other; most stand for themselves.

    `body` is what all of them say, of deltas that say nothing else; of other events it is not read.
    """

    event: Event
    parts: list[Event]
    body: BlockDelta | None = None


def join_events(events: Iterable[Event]) -> Iterator[JoinedEvent]:
    """Events in order, adjacent deltas of one block as one with the number of the last. No event is made anew.

    A fold that takes one takes what its parts say, in one step. One that refuses it has to be given the parts: each
    of them is an anomaly with a number of its own. A delta with fields that nobody knows stands alone, as they stay
    with the message, and so does one that does not fit its type.
    """
    parts: list[Event] = []
    deltas: JoinedDeltas | None = None
    for event in events:
        delta = _read_delta(event.data) if event.type == BlockDelta.TYPE else None
        if deltas is not None:
            if delta is not None and deltas.take(delta):
                parts.append(event)
                continue
            yield JoinedEvent(parts[-1], parts, deltas.body())
        deltas, parts = (None if delta is None else JoinedDeltas(delta)), [event]
        if delta is None:
            yield JoinedEvent(event, parts)
    if deltas is not None:
        yield JoinedEvent(parts[-1], parts, deltas.body())


class _PlainDelta(BlockDelta, frozen=True, forbid_unknown_fields=True):
    """A delta that is nothing else."""


_DECODER: Final = msgspec.json.Decoder(_PlainDelta)


def _read_delta(data: bytes) -> BlockDelta | None:
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # the fold reads it in its own way, or says what is wrong
        return None
