"""What every provider format has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from projector.formats.shared.history import Loss

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.events import Body
    from projector.formats.shared.history import History
    from projector.message import Message


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


class Export(msgspec.Struct, frozen=True):
    """A history as a provider or program takes it.

    `payload` are plain values to be written as JSON. `losses` is what the format can't express, `repairs` what was
    changed so that it is taken (a call that was never answered, blank text, broken Unicode). The messages themselves
    are not changed.
    """

    payload: Any
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Loss, ...] = ()


class MessageFormat(Protocol):
    """How a provider or program keeps a history: read, and written where the format can be written.

    A module of `projector/formats` gives `read` and `write` as functions of this shape.
    """

    def read(self, text: str) -> Iterator[History]:
        """The histories in a document. Raises `FormatError` with the place and what was expected."""
        ...

    def write(self, messages: Sequence[Message]) -> Export:
        """A path of messages in this format, such as its provider takes it."""
        ...
