"""What a stream of the protocol is, as its events tell: a fold over them, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stream.http.durable.offsets import BEGINNING, Offset
from stream.records import Producer

if TYPE_CHECKING:
    from stream.records import Event

OPEN: Final = "open"  # the first of all: an `Opened` as JSON
DATA: Final = "data"  # a message, byte for byte
SEQUENCE: Final = "sequence"  # the Stream-Seq of the append that it begins
CLOSE: Final = "close"  # the last; the closing producer as JSON
TOUCH: Final = "touch"  # the stream was read: its time to live begins again
FORK: Final = "fork"  # the id of a stream that is about to read this one as its beginning
UNFORK: Final = "unfork"  # the id of one that has gone
RETIRE: Final = "retire"  # deleted or expired, kept for its forks only
DELETE: Final = "delete"  # gone; also the first event of a fork that shall not come to life any more
_RENEWING: Final = frozenset({OPEN, DATA, CLOSE, TOUCH})
VERSION: Final = 1


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of a stream of the store that a fork reads as its own: the offsets behind `start`, `through` of them."""

    stream_id: str
    generation: int
    start: int
    through: int

    @property
    def end(self) -> Offset:
        """The place behind it."""
        return Offset(self.generation, self.start + self.through)


class Opened(msgspec.Struct, frozen=True, omit_defaults=True):
    """The configuration of a stream, which never changes."""

    media: str
    ttl_s: int | None = None
    expires_at: str | None = None
    """As it was given."""
    ends_at_ms: int | None = None
    """The same as a time."""
    generation: int = 0
    source: str | None = None
    """The stream of the store that it is a fork of."""
    forked_at: str | None = None
    """The offset of the source, before the sub-offset."""
    sub: int = 0
    parts: tuple[Part, ...] = ()
    """Whatever lies before its own messages."""

    @property
    def base(self) -> Offset:
        """The place behind which its own messages lie."""
        return self.parts[-1].end if self.parts else BEGINNING


class State(msgspec.Struct):
    """All that is known of a stream after its events so far. `tail` is the number of its newest own message, 0 for none."""

    opened: Opened | None = None
    tail: int = 0
    is_closed: bool = False
    closing: Producer | None = None
    sequence: str | None = None
    renewed_ms: int = 0
    forks: dict[str, int] = msgspec.field(default_factory=dict)  # their ids, in the order of their coming
    is_retired: bool = False
    is_gone: bool = False

    def take(self, event: Event) -> None:
        """What it is after this event. Kinds it does not know change nothing."""
        match event.type:
            case "open":
                self.opened = decode_opened(event.data)
            case "data":
                self.tail = event.seq
            case "sequence":
                self.sequence = event.data.decode()
            case "close":
                self.is_closed = True
                self.closing = _CLOSING.decode(event.data)
            case "fork":
                self.forks[event.data.decode()] = event.seq
            case "unfork":
                self.forks.pop(event.data.decode(), None)
            case "retire":
                self.is_retired = True
            case "delete":
                self.is_gone = True
            case _:
                pass
        if event.type in _RENEWING:
            self.renewed_ms = event.at

    @property
    def config(self) -> Opened:
        """The configuration of a stream that exists."""
        assert self.opened is not None
        return self.opened

    def offset_of(self, seq: int) -> Offset:
        """The place behind the event of this number."""
        return Offset(self.config.generation, self.config.base.position + seq)

    @property
    def end(self) -> Offset:
        """The place behind the last message."""
        return self.offset_of(self.tail) if self.tail else self.config.base

    def own_part(self, stream_id: str) -> Part:
        """Its own messages, up to the last."""
        return Part(stream_id, self.config.generation, self.config.base.position, self.tail)


def encode_opened(opened: Opened) -> bytes:
    """The data of the event `open`."""
    return msgspec.json.encode(opened)


def decode_opened(data: bytes) -> Opened:
    """The configuration out of it. Raises `msgspec.MsgspecError`."""
    return _OPENED.decode(data)


def encode_closing(producer: Producer | None) -> bytes:
    """The data of the event `close`."""
    return msgspec.json.encode(producer)


def encode(state: State) -> bytes:
    """A state for a snapshot."""
    return msgspec.msgpack.encode(state)


def decode(data: bytes) -> State:
    """The state out of a snapshot."""
    return _STATE.decode(data)


_OPENED: Final = msgspec.json.Decoder(Opened)
_CLOSING: Final = msgspec.json.Decoder(Producer | None)
_STATE: Final = msgspec.msgpack.Decoder(State)
