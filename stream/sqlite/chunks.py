"""How events lie in rows: an append packed and checked, many appends packed into one chunk, and both unpacked again."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from stream.errors import CorruptEvent
from stream.records import Event, NewEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMED_BYTES: Final = 16
"""The length of an `aid` that a later retry may ask for; shorter ones name an append only while it is stored."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_APPEND: Final = msgspec.msgpack.Decoder(list[tuple[str, bytes]])
_CHUNK: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes | None, list[tuple[str, bytes]]]])
_ITEMS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_DAMAGED: Final = (TypeError, ValueError, AttributeError, msgspec.MsgspecError)  # a damaged row may hold anything


class StoredAppend(NamedTuple):
    """A row of `appends`."""

    last: int
    n: int
    at: int
    aid: bytes
    crc: int
    data: bytes


def pack(events: Sequence[NewEvent]) -> bytes:
    """A msgpack list of `[type, data]`."""
    return _ENCODER.encode([(event.type, event.data) for event in events])


def checksum(place: str, data: bytes) -> int:
    """Covers the place too, so that a row under another number, stream or time does not pass."""
    return zlib.crc32(data, zlib.crc32(place.encode()))


def append_place(stream_id: str, last: int, at: int, aid: bytes) -> str:
    """What the checksum of an append covers beside its data."""
    return f"{last} {at} {aid.hex()} {stream_id}"


def chunk_place(stream_id: str, last: int) -> str:
    """What the checksum of a chunk covers beside its data; that of an append in version 1, too."""
    return f"{last} {stream_id}"


def unpack(stream_id: str, row: StoredAppend) -> list[Event]:
    """The events of an append; raises `CorruptEvent` if they are not what was packed."""
    first = row.last - row.n + 1
    try:
        _check_append(stream_id, row)
        pairs = _APPEND.decode(row.data)
    except _DAMAGED as error:
        raise _unreadable(stream_id, first, row.last) from error
    _check_count(stream_id, first, row.n, len(pairs))
    return [Event(stream_id, seq, kind, body, row.at) for seq, (kind, body) in enumerate(pairs, first)]


def merge(stream_id: str, rows: Sequence[StoredAppend]) -> bytes:
    """The data of the chunk that holds these appends, which follow each other; raises `CorruptEvent`."""
    try:
        for row in rows:
            _check_append(stream_id, row)
    except _DAMAGED as error:
        raise _unreadable(stream_id, rows[0].last, rows[-1].last) from error
    return _ENCODER.encode([(row.at, row.aid if len(row.aid) == NAMED_BYTES else None, msgspec.Raw(row.data)) for row in rows])


def pack_item(at: int, aid: bytes | None, data: bytes) -> bytes:
    """An append as an item of a chunk: its time, its name if it has one, and its data."""
    return _ENCODER.encode((at, aid, msgspec.Raw(data)))


def items_of(stream_id: str, row: Sequence[Any]) -> list[bytes]:
    """The items of a chunk (last, n, crc, data); raises `CorruptEvent`."""
    split(stream_id, *row)
    return [bytes(item) for item in _ITEMS.decode(row[3])]


def join(items: Sequence[bytes]) -> bytes:
    """The data of the chunk of these items."""
    count = len(items)
    header = bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")  # a list, in msgpack
    return header + b"".join(items)


def split(stream_id: str, last: int, n: int, crc: int, data: bytes) -> list[Event]:
    """The events of a chunk; raises `CorruptEvent` if they are not what was merged."""
    first = last - n + 1
    events: list[Event] = []
    try:
        _check(stream_id, last, n, crc, data)
        appends = _CHUNK.decode(data)
    except _DAMAGED as error:
        raise _unreadable(stream_id, first, last) from error
    seq = first
    for at, _, pairs in appends:
        for kind, body in pairs:  # a comprehension for each append would cost more: most hold one event
            events.append(Event(stream_id, seq, kind, body, at))
            seq += 1
    _check_count(stream_id, first, n, len(events))
    return events


def holds_append(stream_id: str, row: tuple[int, int, int, bytes], append_last: int, n: int, aid: bytes) -> bool:
    """Whether the chunk (last, n, crc, data) holds the append of this name whose last event is `append_last`."""
    last = split(stream_id, *row)[0].seq - 1
    for _, name, pairs in _CHUNK.decode(row[3]):
        last += len(pairs)
        if last >= append_last:
            return last == append_last and len(pairs) == n and name == aid
    return False


def _check_append(stream_id: str, row: StoredAppend) -> int:
    first = row.last - row.n + 1
    if row.crc != checksum(append_place(stream_id, row.last, row.at, row.aid), row.data) and row.crc != checksum(
        chunk_place(stream_id, row.last), row.data
    ):
        raise _wrong_checksum(stream_id, first, row.last)
    return first


def _check(stream_id: str, last: int, n: int, crc: int, data: bytes) -> int:
    first = last - n + 1
    if checksum(chunk_place(stream_id, last), data) != crc:
        raise _wrong_checksum(stream_id, first, last)
    return first


def _unreadable(stream_id: str, first: int, last: int) -> CorruptEvent:
    return CorruptEvent(stream_id, first, f"the row of events {first} to {last} can't be unpacked")


def _wrong_checksum(stream_id: str, first: int, last: int) -> CorruptEvent:
    return CorruptEvent(stream_id, first, f"the checksum of events {first} to {last} does not fit")


def _check_count(stream_id: str, first: int, n: int, found: int) -> None:
    if found != n:
        raise CorruptEvent(stream_id, first, f"its row holds {found} events instead of {n}")
