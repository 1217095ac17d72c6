"""How a batch lies in its row: many appends of many streams, where each of them is, and all of it unpacked again."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from stream.sqlite.chunks import NAMED_BYTES, StoredAppend, append_place, checksum, pack_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stream.database import Row

MAX_DATA_BYTES: Final = 1024
"""An append with more lies in a row of its own: it would be written twice."""

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
_MAX_LAST: Final = 1 << 46
MAX_EVENTS: Final = (1 << _MARK_COUNT_BITS) - 1
"""Of one append, and with them all of one stream in a batch stay below what `heads` holds."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_HEADS: Final = msgspec.json.Decoder(dict[str, int])
_PLACES: Final = msgspec.msgpack.Decoder(tuple[int, list[tuple[int, int, int, bytes | None, int, int]]])


class Placed(NamedTuple):
    """An append of a batch: its stream's key, and what `appends` would hold of it. `aid` is empty unless it is a name."""

    stream: int
    append: StoredAppend


class Run:
    """Appends of a stream that follow each other, as items of a chunk: the last number, and how many events and bytes.

    `is_damaged` where it is one that is not what was appended.
    """

    __slots__ = ("is_damaged", "items", "last", "n", "size_bytes")

    def __init__(self, last: int, n: int, size_bytes: int, items: list[bytes], *, is_damaged: bool) -> None:
        self.last, self.n, self.size_bytes, self.items, self.is_damaged = last, n, size_bytes, items, is_damaged

    def take(self, other: Run) -> None:
        """What follows this one."""
        self.last, self.n, self.size_bytes = other.last, self.n + other.n, self.size_bytes + other.size_bytes
        self.items += other.items


class Mark(NamedTuple):
    """The append of a producer."""

    producer: int
    epoch: int
    seq: int
    n: int


def fits(last: int, n: int, size_bytes: int, mark: Mark | None) -> bool:
    """Whether an append may be in a batch: it is small, and its numbers have room in `heads` and `marks`."""
    has_room = mark is None or (mark.epoch < 1 << _MARK_EPOCH_BITS and mark.seq < 1 << _MARK_SEQ_BITS)
    return has_room and size_bytes <= MAX_DATA_BYTES and n <= MAX_EVENTS and last < _MAX_LAST


def pack_batch(
    at: int, appends: Sequence[tuple[int, str, int, int, bytes, bytes]], marks: Iterable[Mark]
) -> tuple[str, str, bytes, bytes, bytes]:
    """The columns of the row that holds these: the key and the name of the stream, `last`, `n`, `aid`, and the data.

    The appends of a stream follow each other.
    """
    heads: dict[int, int] = {}
    places = []
    for key, name, last, n, aid, data in appends:
        heads[key] = pack_head(last, n, heads.get(key, 0))
        named = aid if len(aid) == NAMED_BYTES else None
        places.append((key, last, n, named, checksum(append_place(name, last, at, named or b""), data), len(data)))
    body = _ENCODER.encode((at, places))
    sealed = zlib.crc32(body).to_bytes(_CRC_BYTES, "big") + body
    marked = {
        mark.producer: mark.epoch << _MARK_COUNT_BITS + _MARK_SEQ_BITS | mark.seq << _MARK_COUNT_BITS | mark.n for mark in marks
    }
    return write_numbers(heads), write_numbers(marked), sealed, sealed, b"".join([data for *_, data in appends])


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
    at, found = _places(places, again, data)
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
            at, found = _places(places, again, data)
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
    try:
        return {int(key): split_head(head)[0] for key, head in _HEADS.decode(heads).items()}  # type: ignore[arg-type]
    except (TypeError, ValueError, msgspec.MsgspecError):
        return {}


def parts_of(columns: Sequence[Any], names: Mapping[int, str]) -> dict[int, list[Run]]:
    """What a batch (heads, places, again, data) holds, by stream, as items of chunks; a damaged append is a run by itself.

    Raises `ValueError` where it does not tell what it holds.
    """
    heads, places, again, data = columns
    at, found = _places(places, again, data)
    parts: dict[int, list[Run]] = {}
    end = 0
    crc32, head, unnamed = zlib.crc32, _ENCODER.encode((at,))[1:], b"\xc0"  # a list of three: the time, no name, the data
    for key, last, n, aid, crc, size in found:
        begin, end = end, end + size
        body, name = data[begin:end], names.get(key)
        if name is None:
            raise ValueError("a batch holds events of a stream that is not there")
        is_damaged = crc != crc32(body, crc32(append_place(name, last, at, aid or b"").encode()))
        item = b"\x93" + head + unnamed + body if aid is None else pack_item(at, aid, body)
        runs = parts.setdefault(key, [])
        if not runs or runs[-1].is_damaged or is_damaged:
            runs.append(Run(last, n, size, [item], is_damaged=is_damaged))
        else:
            run = runs[-1]
            run.last, run.n, run.size_bytes = last, run.n + n, run.size_bytes + size
            run.items.append(item)
    if heads != write_numbers({key: pack_head(runs[-1].last, sum(run.n for run in runs)) for key, runs in parts.items()}):
        raise ValueError("a batch holds other events than it says")
    return parts


def _places(places: bytes, again: bytes, data: bytes) -> tuple[int, list[tuple[int, int, int, bytes | None, int, int]]]:
    sound = next((blob for blob in (places, again) if _is_sound(blob)), None)
    if sound is None or not isinstance(data, bytes):
        raise ValueError("the places of a batch are damaged")
    try:
        return _PLACES.decode(memoryview(sound)[_CRC_BYTES:])
    except msgspec.MsgspecError as error:  # somebody else has written it
        raise ValueError("the places of a batch are none") from error


def _is_sound(blob: object) -> bool:
    return isinstance(blob, bytes) and zlib.crc32(blob[_CRC_BYTES:]).to_bytes(_CRC_BYTES, "big") == blob[:_CRC_BYTES]
