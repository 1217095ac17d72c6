"""A compressed chunk holds what the plain one did, and no more memory than that whatever it says (laws 13, 14)."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stream import CorruptEvent, NewEvent
from stream.compression import deflate, inflate, is_deflated
from stream.tables.chunks import (
    MAX_UNPACKED_BYTES,
    Item,
    StoredAppend,
    append_place,
    checksum,
    chunk_place,
    compress,
    holds_append,
    items_of,
    join,
    merge,
    pack,
    split,
)

if TYPE_CHECKING:
    from stream import Event

STREAM = "a stream"
LIMIT = MAX_UNPACKED_BYTES
BODIES = [b"", b"\0\xff", b'{"text": "as it goes on"}']
Given = tuple[int, bytes | None, list[NewEvent]]
"""The time of an append, its name, and its events."""


def talk(chance: random.Random, appends: int, *, types: int = 4) -> list[Given]:
    """Appends of one or a few events, some of which have a name."""
    kinds = [f"block.delta.{n}" for n in range(types)]
    return [
        (
            1_764_000_000_000 + number // 3,
            chance.randbytes(16) if chance.random() < 0.1 else None,
            [NewEvent(chance.choice(kinds), chance.choice(BODIES)) for _ in range(size)],
        )
        for number, size in enumerate(chance.choices([1, 1, 1, 2, 5], k=appends))
    ]


def items(given: list[Given]) -> list[Item]:
    return [(at, name, pack(events)) for at, name, events in given]


def size_of(given: list[Given]) -> int:
    return sum(len(events) for _, _, events in given)


def read(data: bytes, n: int, last: int = 10_000, crc: int | None = None) -> list[Event]:
    return split(STREAM, last, n, checksum(chunk_place(STREAM, last), data) if crc is None else crc, data)


def test_a_compressed_chunk_says_what_the_plain_one_did() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for appends in (1, 15, 40, 300, 1_500):
        given = talk(chance, appends)
        data, n = join(items(given)), size_of(given)
        packed = compress(items(given))
        assert is_deflated(packed) == (len(packed) < len(data)) == (appends > 16)
        events = read(packed, n)
        assert events == read(data, n)
        assert [(event.type, event.data) for event in events] == [(new.type, new.data) for _, _, each in given for new in each]
        row = (10_000, n, checksum(chunk_place(STREAM, 10_000), packed), packed)
        assert items_of(STREAM, row, max_bytes=LIMIT) == items(given)
        assert items_of(STREAM, (10_000, n, checksum(chunk_place(STREAM, 10_000), data), data), max_bytes=LIMIT) == items(given)
        last = 10_000 - n
        for _, name, each in given:
            last += len(each)
            if name is not None:
                assert holds_append(STREAM, row, last, len(each), name)
                assert not holds_append(STREAM, row, last, len(each) + 1, name)
                assert not holds_append(STREAM, row, last, len(each), name[::-1])


def test_what_comes_of_rows_is_the_same() -> None:
    rows = []
    for last in range(1, 101):
        data = pack([NewEvent("block.delta", b"%d, and so on" % last)])
        rows.append(StoredAppend(last, 1, last * 7, b"", checksum(append_place(STREAM, last, last * 7, b""), data), data))
    packed = compress(merge(STREAM, rows))
    assert is_deflated(packed)
    events = read(packed, 100, last=100)
    assert [(event.seq, event.at, event.data) for event in events] == [(n, n * 7, b"%d, and so on" % n) for n in range(1, 101)]


def test_what_gains_nothing_stays_plain() -> None:
    chance = random.Random(1)
    noise = items([(1, None, [NewEvent("t", chance.randbytes(512))]) for _ in range(40)])
    short = items(talk(chance, 8))
    many_types = items(talk(chance, 2_000, types=400))
    nonsense: list[Item] = [(1, None, b"\xc1" * 1_000)] * 2
    of_nothing: list[Item] = [*items(talk(chance, 100)), (1, None, b"\x90")]
    for given in (noise, short, many_types, nonsense, of_nothing):
        assert compress(given) == join(given)


def test_a_chunk_that_is_compressed_and_not_small_is_not_taken_for_a_small_one() -> None:
    given = talk(random.Random(2), 1_000)
    packed, n = compress(items(given)), size_of(given)
    with pytest.raises(CorruptEvent):
        items_of(STREAM, (n, n, checksum(chunk_place(STREAM, n), packed), packed), max_bytes=4 * 1024)


def columns(**other: Any) -> list[Any]:
    right = {"times": [1, 2], "sizes": [1, 2], "names": {}, "types": ["t"], "kinds": b"\0\0\0", "bodies": [b"1", b"2", b"3"]}
    return list((right | other).values())


WRONG: dict[str, dict[str, Any]] = {
    "a body too few": {"bodies": [b"1", b"2"]},
    "a body too many": {"bodies": [b"1"] * 4},
    "a kind too few": {"kinds": b"\0\0"},
    "no such type": {"kinds": b"\0\0\1"},
    "a size too many": {"sizes": [1, 2, 3]},
    "a time too few": {"times": [1]},
    "a negative size": {"sizes": [4, -1]},
    "an append of nothing": {"sizes": [3, 0]},
    "sizes that are none": {"sizes": ["1", "2"]},
    "no kinds": {"kinds": None},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_columns_that_do_not_fit_are_refused(wrong: str) -> None:
    assert [event.at for event in read(zlib.compress(msgspec.msgpack.encode(columns())), 3)] == [1, 2, 2]
    with pytest.raises(CorruptEvent):
        read(zlib.compress(msgspec.msgpack.encode(columns(**WRONG[wrong]))), 3)


def test_a_forged_chunk_takes_no_more_memory_than_a_chunk_may_be() -> None:
    packer = zlib.compressobj()
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptEvent):
            read(bomb, 1)
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_UNPACKED_BYTES
    finally:
        tracemalloc.stop()


def test_what_is_torn_or_goes_on_behind_its_end_is_refused() -> None:
    text = b"as it goes on and on, " * 100
    packed = deflate(text)
    assert packed is not None
    assert inflate(packed, max_bytes=len(text)) == text
    for wrong in (packed[:-1], packed[:-5], packed[:2], b"", packed + b"\0", packed[:-1] + b"\0", b"\x78" + text):
        with pytest.raises(ValueError, match=r"^it "):
            inflate(wrong, max_bytes=len(text))
    with pytest.raises(ValueError, match="more than"):
        inflate(packed, max_bytes=len(text) - 1)
    assert deflate(text[:1023]) is None
