"""How one append lies in one row: packed, checked, and unpacked again."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from stream.errors import CorruptEvent
from stream.records import Event, NewEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

_DECODER = msgspec.msgpack.Decoder(list[tuple[str, bytes]])


def pack(events: Sequence[NewEvent]) -> bytes:
    """A msgpack list of `[type, data]`."""
    return msgspec.msgpack.encode([(event.type, event.data) for event in events])


def checksum(stream_id: str, last: int, data: bytes) -> int:
    """Covers the place too, so that a row under another number or stream does not pass."""
    return zlib.crc32(data, zlib.crc32(f"{last} {stream_id}".encode()))


def unpack(stream_id: str, last: int, n: int, at: int, crc: int, data: bytes) -> list[Event]:
    """The events of a row; raises `CorruptEvent` if they are not what was packed."""
    first = last - n + 1
    if checksum(stream_id, last, data) != crc:
        raise CorruptEvent(stream_id, first, f"the checksum of events {first} to {last} does not fit")
    pairs = _DECODER.decode(data)
    if len(pairs) != n:
        raise CorruptEvent(stream_id, first, f"its row holds {len(pairs)} events instead of {n}")
    return [Event(stream_id, seq, kind, body, at) for seq, (kind, body) in enumerate(pairs, first)]
