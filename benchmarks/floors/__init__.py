"""Drivers alone, doing the durable work of a log on their server without any rule, head or answer to match.

A driver has several ways to the same end. All of them take turns with ours, and the fastest is the floor: what one of them
does badly does not speak for us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from benchmarks.talk import deltas

if TYPE_CHECKING:
    from benchmarks.measuring import Side, SizedSide

EVENTS: Final = deltas(2000)
CONVERSATIONS: Final = 100
READ: Final = "read"
"""The stream that is read."""


class Floor(Protocol):
    """A driver, connected; made for one measurement."""

    url: str
    """Where our own store is opened for it: all of that goes with `close`."""

    def ways(self, writers: int) -> dict[str, SizedSide]:
        """How to store what so many writers wait for at once, over 100 conversations; each gives appends a second."""
        ...

    async def fill(self, amount: int) -> None:
        """Makes ready what is read, where it is not what our store has written."""
        ...

    def reads(self, amount: int) -> dict[str, Side]:
        """How to read and unpack so many events of one stream; each gives events a second."""
        ...

    async def close(self) -> None:
        """Leaves nothing behind on the server, of ours neither."""
        ...
