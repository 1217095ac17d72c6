"""How events lie in rows: an append packed and checked, many appends packed into one chunk, and both unpacked again.

A chunk is a list of items, one an append. Where it pays it is kept as columns instead, compressed: what is alike lies side
by side there, and is read with half as many steps. The first byte tells which it is.
"""

from __future__ import annotations

import zlib
from itertools import chain, islice, repeat
from sys import intern
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from stream.compression import MIN_BYTES, deflate, inflate, is_deflated
from stream.errors import CorruptEvent
from stream.limits import MAX_INTEGER
from stream.records import Event, NewEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Item = tuple[int, bytes | None, bytes]
"""An append in a chunk: its time, its name if it has one, and its data."""

NAMED_BYTES: Final = 16
"""The length of an `aid` that a later retry may ask for; shorter ones name an append only while it is stored."""

MAX_UNPACKED_BYTES: Final = 1024 * 1024
"""What a compressed chunk is at most, several times what is ever put into one: a damaged one takes no more memory."""

MAX_CHUNK_BYTES: Final = 48 * 1024
MAX_CHUNK_EVENTS: Final = 4_000
"""What is packed into one, at most."""

_MAX_TYPES: Final = 256
_ENCODER: Final = msgspec.msgpack.Encoder()
_APPEND: Final = msgspec.msgpack.Decoder(list[tuple[str, bytes]])
_CHUNK: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes | None, list[tuple[str, bytes]]]])
_APPENDS: Final = msgspec.msgpack.Decoder(list[list[tuple[str, bytes]]])
_ITEMS: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes | None, msgspec.Raw]])
_DAMAGED: Final = (  # a damaged row may hold anything
    TypeError, ValueError, AttributeError, LookupError, OverflowError, msgspec.MsgspecError,
)  # fmt: skip


class StoredAppend(NamedTuple):
    """A row of `appends`."""

    last: int
    n: int
    at: int
    aid: bytes
    crc: int
    data: bytes


class _Columns(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A chunk, turned: of each append its time and how many events it has, of each event which of `types` it is, and its data.

    `names` are those of the few appends that have one, by their place.
    """

    times: list[int]
    sizes: list[int]
    names: dict[int, bytes]
    types: list[str]
    kinds: bytes
    bodies: list[bytes]


_COLUMNS: Final = msgspec.msgpack.Decoder(_Columns)


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
    last, n, at, _, _, data = row
    first = last - n + 1
    try:
        _check_append(stream_id, row)
        pairs = _APPEND.decode(data)
    except _DAMAGED as error:
        raise _unreadable(stream_id, first, last) from error
    _check_count(stream_id, first, n, len(pairs))
    return [Event(stream_id, seq, intern(kind), body, at) for seq, (kind, body) in enumerate(pairs, first)]


def merge(stream_id: str, rows: Sequence[StoredAppend]) -> list[Item]:
    """These appends, which follow each other, as items of a chunk; raises `CorruptEvent`."""
    try:
        for row in rows:
            _check_append(stream_id, row)
    except _DAMAGED as error:
        raise _unreadable(stream_id, rows[0].last, rows[-1].last) from error
    return [(row.at, row.aid if len(row.aid) == NAMED_BYTES else None, row.data) for row in rows]


def items_of(stream_id: str, row: Sequence[Any], *, max_bytes: int) -> list[Item]:
    """The items of a chunk (last, n, crc, data); raises `CorruptEvent`, also where it is unpacked more than `max_bytes`."""
    split(stream_id, *row, max_bytes=max_bytes)
    if is_deflated(row[3]):
        return [(at, name, _ENCODER.encode(pairs)) for at, name, pairs in _appends_of(row[3])]
    return [(at, name, bytes(data)) for at, name, data in _ITEMS.decode(row[3])]


def join(items: Sequence[Item]) -> bytes:
    """The data of the chunk of these items, as it is; what can't be read stays so, for whoever reads it."""
    return _ENCODER.encode([(at, name, msgspec.Raw(data)) for at, name, data in items])


def compress(items: Sequence[Item]) -> bytes:
    """The data of the chunk of these items, compressed where that pays."""
    columns = _turn(items) if sum([len(data) for _, _, data in items]) >= MIN_BYTES else None
    return (columns and deflate(_ENCODER.encode(columns))) or join(items)


def _turn(items: Sequence[Item]) -> _Columns | None:
    """None for what can't be turned. All appends are unpacked in one step: one by one takes three times as long."""
    count = len(items)
    header = bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")  # a list, in msgpack
    try:
        appends = _APPENDS.decode(header + b"".join([data for _, _, data in items]))
    except _DAMAGED:
        return None
    sizes = [len(pairs) for pairs in appends]
    if not all(sizes):
        return None
    types, bodies = zip(*chain.from_iterable(appends), strict=True)
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(types))}
    if len(numbers) > _MAX_TYPES:
        return None
    return _Columns(
        times=[at for at, _, _ in items],
        sizes=sizes,
        names={place: name for place, (_, name, _) in enumerate(items) if name is not None},
        types=list(numbers),
        kinds=bytes([numbers[kind] for kind in types]),
        bodies=list(bodies),
    )


def split(stream_id: str, last: int, n: int, crc: int, data: bytes, *, max_bytes: int = MAX_UNPACKED_BYTES) -> list[Event]:
    """The events of a chunk; raises `CorruptEvent` if they are not what was merged."""
    return split_within(stream_id, last, n, crc, data, max_bytes=max_bytes)[0]


def split_within(
    stream_id: str, last: int, n: int, crc: int, data: bytes, *, after: int = 0, end: int = MAX_INTEGER,
    max_bytes: int = MAX_UNPACKED_BYTES,
) -> tuple[list[Event], int]:  # fmt: skip
    """As `split`, those behind `after` up to `end`; and about how many bytes they are."""
    first = last - n + 1
    wanted = slice(max(after + 1 - first, 0), end + 1 - first)
    try:
        _check(stream_id, last, n, crc, data)
        if is_deflated(data):
            columns = _columns_of(data, max_bytes)
            _check_count(stream_id, first, n, len(columns.bodies))
            return _events_of(stream_id, first, columns, wanted)
        appends = _CHUNK.decode(data)
    except _DAMAGED as error:
        raise _unreadable(stream_id, first, last) from error
    events: list[Event] = []
    seq = first
    for at, _, pairs in appends:
        for kind, body in pairs:  # a comprehension for each append would cost more: most hold one event
            events.append(Event(stream_id, seq, intern(kind), body, at))
            seq += 1
    _check_count(stream_id, first, n, len(events))
    return events[wanted], len(data)


def _events_of(stream_id: str, first: int, columns: _Columns, wanted: slice) -> tuple[list[Event], int]:
    bodies, times = columns.bodies, columns.times
    if len(times) < len(bodies):
        times = list(chain.from_iterable(map(repeat, times, columns.sizes)))
    numbers = range(first, first + len(bodies))[wanted]
    types = [intern(kind) for kind in columns.types]
    kinds = map(types.__getitem__, columns.kinds[wanted])
    bodies = bodies[wanted]
    return list(map(Event, repeat(stream_id), numbers, kinds, bodies, times[wanted])), sum(map(len, bodies))


def _columns_of(data: bytes, max_bytes: int = MAX_UNPACKED_BYTES) -> _Columns:
    columns = _COLUMNS.decode(inflate(data, max_bytes=max_bytes))
    count = len(columns.bodies)
    if not len(columns.kinds) == count == sum(columns.sizes) or len(columns.times) != len(columns.sizes):
        raise ValueError("its columns are not of one length")
    if min(columns.sizes, default=1) < 1:
        raise ValueError("it holds an append without events")
    return columns


def _appends_of(data: bytes) -> Iterator[tuple[int, bytes | None, list[tuple[str, bytes]]]]:
    """The appends of a chunk that `split` has passed."""
    if not is_deflated(data):
        yield from _CHUNK.decode(data)
        return
    columns = _columns_of(data)
    events = zip(map(columns.types.__getitem__, columns.kinds), columns.bodies, strict=True)
    for place, (at, size) in enumerate(zip(columns.times, columns.sizes, strict=True)):
        yield at, columns.names.get(place), list(islice(events, size))


def holds_append(stream_id: str, row: tuple[int, int, int, bytes], append_last: int, n: int, aid: bytes) -> bool:
    """Whether the chunk (last, n, crc, data) holds the append of this name whose last event is `append_last`."""
    last = split(stream_id, *row)[0].seq - 1
    for _, name, pairs in _appends_of(row[3]):
        last += len(pairs)
        if last >= append_last:
            return last == append_last and len(pairs) == n and name == aid
    return False


def _check_append(stream_id: str, row: StoredAppend) -> None:
    last, n, at, aid, crc, data = row
    if crc == checksum(append_place(stream_id, last, at, aid), data):
        return
    if crc != checksum(chunk_place(stream_id, last), data):
        raise _wrong_checksum(stream_id, last - n + 1, last)


def _check(stream_id: str, last: int, n: int, crc: int, data: bytes) -> None:
    if checksum(chunk_place(stream_id, last), data) != crc:
        raise _wrong_checksum(stream_id, last - n + 1, last)


def _unreadable(stream_id: str, first: int, last: int) -> CorruptEvent:
    return CorruptEvent(stream_id, first, f"the row of events {first} to {last} can't be unpacked")


def _wrong_checksum(stream_id: str, first: int, last: int) -> CorruptEvent:
    return CorruptEvent(stream_id, first, f"the checksum of events {first} to {last} does not fit")


def _check_count(stream_id: str, first: int, n: int, found: int) -> None:
    if found != n:
        raise CorruptEvent(stream_id, first, f"its row holds {found} events instead of {n}")
