"""An append on its way, and the places it was sent to."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from stream.admission import Append
from stream.postgres.keys import Stream
from stream.records import AppendResult
from stream.tables.known_producers import Known


class Place(NamedTuple):
    """Where an append goes: of which stream, where all that goes with it expects it, and its last seq."""

    stream: int
    expected: int
    last: int


class Request(msgspec.Struct, eq=False):
    """An append that waits for its answer; `last` and `stream` are told by what plans it, and `name` is the row's.

    `lost` are the places it was sent to by statements whose outcome is not known.
    """

    append: Append
    data: bytes
    name: bytes
    answer: asyncio.Future[AppendResult]
    stream: Stream | None = None
    known: Known | None = None
    last: int = 0
    lost: frozenset[Place] = frozenset()
    lost_since: float = 0.0

    @property
    def n(self) -> int:
        """How many events."""
        return len(self.append.events)

    def accept(self) -> None:
        """Answers it as stored."""
        self.settle(AppendResult(self.last - self.n + 1, self.last))

    def settle(self, answer: AppendResult) -> None:
        """Answers it, unless its caller was cancelled; what is stored stays stored."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, error: BaseException) -> None:
        """As `settle`, with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)
