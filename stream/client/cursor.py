"""Where a follower is, and whether what comes is what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stream.checks import check_text
from stream.client.answers import Passing
from stream.client.errors import RemoteOutOfOrder
from stream.client.records import RemoteEvent, RemoteSnapshot
from stream.limits import MAX_INTEGER, check_position

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

SNAPSHOT: Final = "snapshot"
_FRUITLESS: Final = 3
_MAX_DIGITS: Final = len(str(MAX_INTEGER))


class _Said(msgspec.Struct, frozen=True):
    seq: int
    incarnation: str | None = None


class Cursor:
    """The position behind what was handed on last. `url` is for the error."""

    def __init__(self, url: str, after: int, incarnation: str | None) -> None:
        """Raises `ValueError` for a position that is none."""
        self.last = check_position("after", after)
        self.incarnation = None if incarnation is None else check_text("incarnation", incarnation)
        self.is_told = self.last > 0
        """Whether there is a position to go on from. A server knows no stream that never was, and of whom it told 0."""
        self._url = url
        self._fruitless = 0

    def meet(self, incarnation: str | None) -> None:
        """The server says what it serves: positions belong to that, unless they are known to belong to something else."""
        self.incarnation = self.incarnation or incarnation

    def take(self, frame: ServerSentEvent) -> RemoteEvent | RemoteSnapshot | None:
        """What is handed on of this frame, if anything.

        Raises `Passing` where it is not what comes next, and `RemoteOutOfOrder` where that is so again and again.
        """
        if not frame.data:  # a heartbeat, or a time to wait: the standard knows no event without data
            return None
        seq = int(frame.id) if frame.id.isascii() and frame.id.isdecimal() and len(frame.id) <= _MAX_DIGITS else -1
        if frame.event == SNAPSHOT and (said := _read_snapshot(frame.data)) is not None and said.seq == seq:
            self._fruitless, self.is_told = 0, True
            self.last, self.incarnation = seq, said.incarnation or self.incarnation
            return RemoteSnapshot(seq, said.incarnation, frame.data.encode())
        if seq != self.last + 1:
            self._fruitless += 1
            if self._fruitless >= _FRUITLESS:
                raise RemoteOutOfOrder(self._url, self.last + 1, frame.id[:_MAX_DIGITS])
            raise Passing(f"event {frame.id[:_MAX_DIGITS]!r} came where {self.last + 1} was due")
        self._fruitless, self.is_told = 0, True
        self.last = seq
        return RemoteEvent(seq, frame.event, frame.data.encode())


def _read_snapshot(data: str) -> _Said | None:
    """None for an event that is only called so."""
    try:
        return msgspec.json.decode(data, type=_Said)
    except msgspec.MsgspecError:
        return None
