"""How a batch lies in its row: many appends of many streams, where each of them is, and all of it unpacked again."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from stream.tables.chunks import NAMED_BYTES, StoredAppend, append_place, checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stream.database import Row
    from stream.records import Producer

MAX_DATA_BYTES: Final = 1024
"""An append with more lies in a row of its own: it would be written twice."""

MAX_LAST: Final = 1 << 46
"""One that ends behind it lies in a row of its own, too: its number has no room in `heads`."""

OF_KEYS: Final = """
SELECT s.id, s.name, s.floor FROM json_each(?) AS key CROSS JOIN streams AS s ON s.id = key.value
WHERE s.guard = 3 * (s.head % 1000003) + 5 * (s.floor % 1000003) + 7 * (s.origin % 1000003)"""
"""Name and floor of the streams whose keys are in a JSON list, as far as they can be believed."""

OF_STREAM: Final = """
SELECT s.id AS stream, CAST(substr(heads, instr(heads, mark) + length(mark), 20) AS INTEGER) AS head, places, again, data, pos
FROM (SELECT id, '"' || id || '":' AS mark FROM streams WHERE name = ?1) AS s JOIN batches ON instr(heads, mark) ORDER BY pos"""
"""The batches that hold some of a stream, in order: found by the text of its key, which costs less than to parse them all."""

_CRC_BYTES: Final = 4
_COUNT_BITS: Final = 16
_MARK_COUNT_BITS: Final = 12
_MARK_SEQ_BITS: Final = 30
_MARK_EPOCH_BITS: Final = 20
_ENCODER: Final = msgspec.msgpack.Encoder()
_HEADS: Final = msgspec.json.Decoder(dict[int, int])
Place = tuple[int, int, int, bytes | None, int, int]
"""Where an append lies in its batch: the key of its stream, `last`, `n`, its name if it has one, its checksum, its bytes."""
_PLACES: Final = msgspec.msgpack.Decoder(tuple[int, int, list[Place]])
Unplaced = tuple[int, str, int, int, bytes, bytes]
"""An append that has no place in a batch yet: the key and the name of its stream, `last`, `n`, `aid`, and its data."""


class Placed(NamedTuple):
    """An append of a batch: its stream's key, and what `appends` would hold of it. `aid` is empty unless it is a name."""

    stream: int
    append: StoredAppend


class Opened(NamedTuple):
    """A batch: when its appends came, where each lies (key of its stream, last, n, name, checksum, bytes), and their data.

    `damaged` are the places of those that are not what was appended.
    """

    at: int
    places: list[Place]
    data: bytes
    damaged: frozenset[int]


def has_room(producer: Producer) -> bool:
    """Whether the numbers of a producer have room in `marks`."""
    return producer.epoch < 1 << _MARK_EPOCH_BITS and producer.seq < 1 << _MARK_SEQ_BITS


def pack_mark(producer: Producer, n: int) -> int:
    """What `marks` has of a producer that appended as many events, at most as fit in `MAX_DATA_BYTES`."""
    return producer.epoch << _MARK_COUNT_BITS + _MARK_SEQ_BITS | producer.seq << _MARK_COUNT_BITS | n


def pack_batch(at: int, appends: Sequence[Unplaced], marks: dict[int, int]) -> tuple[str, str, bytes, bytes, bytes]:
    """The columns of the row that holds these, with the marks of their producers, each by its key.

    The appends of a stream follow each other. Each has a checksum of its own, so that damage harms no other, and all of them
    one together, so that who packs them need not look at each.
    """
    heads: dict[int, int] = {}
    places: list[Place] = []
    names: list[str] = []
    pieces: list[bytes] = []
    crc32 = zlib.crc32
    for key, name, last, n, aid, data in appends:
        heads[key] = (last << _COUNT_BITS) + n if key not in heads else pack_head(last, n, heads[key])
        if len(aid) != NAMED_BYTES:
            place, named = f"{last} {at}  {name}", None  # as `append_place` has it without a name, which few have
        else:
            place, named = append_place(name, last, at, aid), aid
        places.append((key, last, n, named, crc32(data, crc32(place.encode())), len(data)))
        names.append(name)
        pieces.append(data)
    said, data = write_numbers(heads), b"".join(pieces)
    body = _ENCODER.encode((at, _checksum_all(said, names, data), places))
    sealed = crc32(body).to_bytes(_CRC_BYTES, "big") + body
    return said, write_numbers(marks), sealed, sealed, data


def pack_head(last: int, n: int, before: int = 0) -> int:
    """The new head of a stream, and how many events are new, with those of the appends before in the same batch."""
    return (last << _COUNT_BITS) + n + (before & (1 << _COUNT_BITS) - 1)


def split_head(head: int) -> tuple[int, int]:
    """The last number, and how many events there are."""
    return head >> _COUNT_BITS, head & (1 << _COUNT_BITS) - 1


def write_numbers(numbers: dict[int, int]) -> str:
    """As JSON without a blank: so a key is found in it by its text."""
    return "{" + ",".join([f'"{key}":{value}' for key, value in numbers.items()]) + "}"


def unpack_batch(places: bytes, again: bytes, data: bytes) -> Iterator[Placed]:
    """The appends of a row in order, not yet checked. Raises `ValueError` where nobody can tell where they lie."""
    at, _, found = _places(places, again, data)
    end = 0
    for stream, last, n, aid, crc, size in found:
        begin, end = end, end + size
        yield Placed(stream, StoredAppend(last, n, at, aid or b"", crc, data[begin:end]))


def appends_of(rows: Iterable[Row]) -> list[StoredAppend]:
    """What rows of `OF_STREAM` hold of their stream; what a batch can't tell is an append that fails its checksum.

    Most of what they hold is of others, and is passed over with as little as can be.
    """
    appends: list[StoredAppend] = []
    for stream, head, places, again, data, *_ in rows:
        try:
            at, _, found = _places(places, again, data)
        except ValueError:
            appends.append(StoredAppend(*split_head(head), 0, b"", 0, b""))
            continue
        end = 0
        for key, last, n, aid, crc, size in found:
            end += size
            if key == stream:
                appends.append(StoredAppend(last, n, at, aid or b"", crc, data[end - size : end]))
    return appends


def heads_of(heads: object) -> dict[int, int]:
    """The new head of each stream of a batch, by its key; none where they are damaged."""
    return {key: head >> _COUNT_BITS for key, head in _numbers(heads).items()}


def streams_of(heads: object) -> Iterable[int]:
    """The keys of the streams of a batch; none where they are damaged."""
    return _numbers(heads)


def open_batch(columns: Sequence[Any], names: Mapping[int, str]) -> Opened:
    """What a batch (heads, places, again, data) holds, looked at one by one only where they are not whole together.

    Raises `ValueError` where it does not tell what it holds.
    """
    heads, places, again, data = columns
    at, together, found = _places(places, again, data)
    damaged: frozenset[int] = frozenset()
    try:
        if together != _checksum_all(heads, [names[place[0]] for place in found], data):
            damaged = frozenset(_damaged(at, found, data, names))
            if _numbers(heads) != _sum_up(found):
                raise ValueError("a batch holds other events than it says")
    except KeyError as error:
        raise ValueError("a batch holds events of a stream that is not there") from error
    return Opened(at, found, data, damaged)


def _damaged(at: int, places: Sequence[Place], data: bytes, names: Mapping[int, str]) -> Iterator[int]:
    end = 0
    for index, (key, last, _, aid, crc, size) in enumerate(places):
        begin, end = end, end + size
        if crc != checksum(append_place(names[key], last, at, aid or b""), data[begin:end]):
            yield index


def _checksum_all(heads: object, names: Sequence[str], data: bytes) -> int:
    said = "\0".join([str(heads), *names])
    return zlib.crc32(data, zlib.crc32(said.encode(errors="replace")))


def _numbers(heads: object) -> dict[int, int]:
    try:
        return _HEADS.decode(heads)  # type: ignore[arg-type]
    except (TypeError, ValueError, msgspec.MsgspecError):
        return {}


def _sum_up(places: Iterable[Place]) -> dict[int, int]:
    heads: dict[int, int] = {}
    for key, last, n, *_ in places:
        heads[key] = pack_head(last, n, heads.get(key, 0))
    return heads


def _places(places: bytes, again: bytes, data: bytes) -> tuple[int, int, list[Place]]:
    sound = next((blob for blob in (places, again) if _is_sound(blob)), None)
    if sound is None or not isinstance(data, bytes):
        raise ValueError("the places of a batch are damaged")
    try:
        return _PLACES.decode(memoryview(sound)[_CRC_BYTES:])
    except msgspec.MsgspecError as error:  # somebody else has written it
        raise ValueError("the places of a batch are none") from error


def _is_sound(blob: object) -> bool:
    return isinstance(blob, bytes) and zlib.crc32(blob[_CRC_BYTES:]).to_bytes(_CRC_BYTES, "big") == blob[:_CRC_BYTES]
