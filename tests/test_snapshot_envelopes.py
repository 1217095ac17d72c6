"""A snapshot's envelope is compressed where that pays; what is in it is as sure as before (laws 5, 7, 14)."""

from __future__ import annotations

import hashlib
import random
import tracemalloc
import zlib

import msgspec
import pytest

from stream import Snapshot, SnapshotUnreadable, snapshots
from stream.snapshots import open_envelope, seal, unseal
from tests.backends import flip

STATE = b'{"text": "as it goes on"}, ' * 200
LIMIT = 1 << 20


def snapshot(state: bytes = STATE) -> Snapshot:
    return Snapshot("s", "p", 1, 7, 0, state)


def opened(envelope: bytes) -> Snapshot:
    return unseal(envelope, stream_id="s", projector="p")


def envelope_of(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=32).digest() + body


@pytest.mark.parametrize("state", [b"", b"short", STATE, STATE * 1_000, random.Random(1).randbytes(5_000)])
def test_what_is_sealed_comes_out_again(state: bytes) -> None:
    envelope = seal(snapshot(state))
    assert opened(envelope) == snapshot(state)
    assert len(envelope) < (len(state) // 10 if state.startswith(STATE) else len(state) + 200)


def test_an_envelope_of_before_is_readable() -> None:
    assert opened(envelope_of(msgspec.msgpack.encode(snapshot()))) == snapshot()


def test_every_flipped_byte_is_noticed() -> None:
    envelope = seal(snapshot())
    for place in range(len(envelope)):
        wrong = flip(envelope[: place + 1]) + envelope[place + 1 :]
        assert open_envelope(wrong, stream_id="s", projector="p") is None
    with pytest.raises(SnapshotUnreadable, match="belongs to"):
        unseal(envelope, stream_id="other", projector="p")


def test_a_forged_envelope_takes_no_more_memory_than_is_ever_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_MAX_DEFLATED_BYTES", LIMIT)
    large = random.Random(2).randbytes(1_000) * (LIMIT // 1_000 + 1)
    assert len(seal(snapshot(large))) > LIMIT  # it stays plain, and readable
    assert opened(seal(snapshot(large))) == snapshot(large)
    packer = zlib.compressobj()
    bomb = b"".join(packer.compress(bytes(LIMIT)) for _ in range(200)) + packer.flush()
    tracemalloc.start()
    try:
        for wrong in (bomb, bomb[:1_000], zlib.compress(b"no snapshot"), b"x", zlib.compress(STATE)[:-1]):
            with pytest.raises(SnapshotUnreadable):
                opened(envelope_of(wrong))
        assert tracemalloc.get_traced_memory()[1] < 8 * LIMIT
    finally:
        tracemalloc.stop()
