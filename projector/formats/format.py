"""What every format of a provider or program has in common: the value `Format`, errors, the ends of streams, exports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from projector.formats.shared.history import History, Loss
from projector.message import Message

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


class Export(msgspec.Struct, frozen=True):
    """A history as a provider or program takes it.

    `payload` are plain values to be written as JSON. `losses` is what the format can't express, `repairs` what was
    changed so that it is taken (a call that was never answered, blank text, broken Unicode). The messages themselves
    are not changed.
    """

    payload: Any
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Loss, ...] = ()


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider or program streams and keeps conversations: all that is known of it by its name.

    What a format does not have is None: most have no stream, or can't be written.
    """

    name: str
    """What `Run.feed`, `tailfold import --format` and the others take."""
    maker: str | None = None
    """Who is named as the maker of what only it can read: payloads, signatures."""
    metadata: str | None = None
    """Under this name a message's metadata holds what no field of ours says; it is written back."""
    stream: Callable[[str, Callable[[], str]], StreamFormat] | None = None
    """An adapter for a stream, by the run's id and a function that mints ids of messages."""
    read: Callable[[str], Iterator[History]] | None = None
    """The histories in a document. Raises `FormatError` with the place and what was expected."""
    write: Callable[[Sequence[Message]], Export] | None = None
    """A path of messages in this format, such as its provider takes it."""
    write_stream: Callable[[Sequence[Message]], list[dict[str, Any]]] | None = None
    """Messages as they would have been streamed, one event an item."""
    streams_answers_only: bool = False
    """Whether a stream has no place for messages that are not a model's."""
    check: Callable[[Any], list[str]] | None = None
    """What the provider would refuse of a payload, each with its place."""
    endpoint: re.Pattern[str] | None = None
    """The path of an address that takes requests of this format; several formats may share one."""
    goes_on_from: str | None = None
    """The field of a request that names the answer it goes on from, where what was said before is not sent again."""
    choices: Callable[[str], list[tuple[int, str]]] | None = None
    """A chunk of a stream as one for each answer that it says something of, by its number; of one that only names one, it."""
    lists: tuple[str, ...] = ("messages",)
    """What an object calls its list of messages; by the first name it is written."""
    wants_object: bool = False
    """Whether `read` takes objects only: a list alone is one that says nothing else."""
    wants_list: bool = False
    """Whether `read` takes no message that stands alone."""
    is_of_lines: bool = False
    """Whether the lines of a document belong together; else each is a document of its own, or a message."""
    reads_answers: bool = False
    """Whether an answer that came whole is for `read`, for the stream's adapter does not take it."""
