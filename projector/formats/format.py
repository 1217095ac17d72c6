"""What every provider format has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from projector.events import Body


class FormatError(Exception):
    """This is not of the format it was said to be; the message says what was expected."""


class StreamEnd(msgspec.Struct, frozen=True):
    """How a stream ended: an outcome of `run.finished`, the provider's reason, its error as JSON text."""

    outcome: str
    finish_reason: str | None = None
    error: str | None = None


class StreamFormat(Protocol):
    """An adapter from a provider's stream to events of a conversation, fed chunk by chunk, without input or output."""

    def feed(self, chunk: bytes | str | dict[str, Any]) -> list[Body]:
        """The bodies of the events that a chunk becomes. Raises `FormatError`."""
        ...

    def end(self) -> StreamEnd:
        """How the run would end if nothing followed."""
        ...
