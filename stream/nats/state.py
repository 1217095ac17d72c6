"""What each message of a log says of its stream, so that the last one says all: where it is, and how far its producers are."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Final, NamedTuple

import msgspec

from stream.admission import Watermark
from stream.errors import CorruptEvent
from stream.records import Bounds

_CHECK_BYTES: Final = 4


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The watermark of a producer."""

    id: str
    epoch: int
    seq: int
    first: int
    last: int

    @property
    def watermark(self) -> Watermark:
        """As it is judged by."""
        return Watermark(self.epoch, self.seq, self.first, self.last)


class State(msgspec.Struct, frozen=True, array_like=True):
    """Behind a message: `head`, `floor` and `origin`; `n` events are in it, none where something was only let go.

    `since` is the place in JetStream of the message that had brought the head to where this one begins; 0 before the first.
    `crc` is of its data. `marks` are the producers that appended last, the newest at the end; what they have pushed out
    lies on subjects of its own. `left` counts the messages of the same batch that follow: only the last one counts.
    """

    head: int = 0
    n: int = 0
    floor: int = 0
    origin: int = 0
    since: int = 0
    crc: int = 0
    marks: tuple[Mark, ...] = ()
    left: int = 0

    @property
    def bounds(self) -> Bounds:
        """As a reader is told."""
        return Bounds(self.floor, self.head, self.origin)


class Place(NamedTuple):
    """The last message of a log: its number in JetStream, what it says, its data. `js` 0 is before the first."""

    js: int
    state: State
    data: bytes

    @property
    def moved_at(self) -> int:
        """The number of the message that has brought the head to where it is."""
        return self.js if self.state.n else self.state.since


NOWHERE: Final = Place(0, State(), b"")
_STATE: Final = msgspec.msgpack.Decoder(State)
_MARK: Final = msgspec.msgpack.Decoder(Mark)


def write_state(state: State) -> str:
    """As the header of a message."""
    return base64.b64encode(_sealed(state)).decode()


def read_state(stream_id: str, text: str) -> State:
    """Raises `CorruptEvent` for what is damaged."""
    try:
        return _STATE.decode(_unsealed(base64.b64decode(text, validate=True)))
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise CorruptEvent(stream_id, 0, "a message of its log does not say where the stream is") from error


def write_mark(mark: Mark) -> bytes:
    """As the data of a message."""
    return _sealed(mark)


def read_mark(stream_id: str, data: bytes) -> Mark:
    """Raises `CorruptEvent` for what is damaged."""
    try:
        return _MARK.decode(_unsealed(data))
    except (ValueError, msgspec.MsgspecError) as error:
        raise CorruptEvent(stream_id, 0, "the watermark of a producer can't be read") from error


def _sealed(said: object) -> bytes:
    data = msgspec.msgpack.encode(said)
    return zlib.crc32(data).to_bytes(_CHECK_BYTES, "big") + data


def _unsealed(sealed: bytes) -> bytes:
    data = sealed[_CHECK_BYTES:]
    if zlib.crc32(data).to_bytes(_CHECK_BYTES, "big") != sealed[:_CHECK_BYTES]:
        raise ValueError("its checksum does not fit")
    return data
