"""What a message of a log on NATS says of its stream is believed only where its checksum fits."""

from __future__ import annotations

import base64

import pytest

from stream import CorruptEvent
from stream.nats.state import Mark, State, read_mark, read_state, write_mark, write_state

STATE = State(head=7, n=2, floor=3, origin=1, since=5, crc=99, marks=(Mark("p", 1, 2, 6, 7),))


def flips(data: bytes) -> list[bytes]:
    """With each of its bits flipped."""
    return [bytes([*data[:at], data[at] ^ 1 << bit, *data[at + 1 :]]) for at in range(len(data)) for bit in range(8)]


def test_a_flipped_bit_of_a_state_is_never_believed() -> None:
    said = write_state(STATE)
    assert read_state("s", said) == STATE
    for damaged in flips(base64.b64decode(said)):
        with pytest.raises(CorruptEvent, match="does not say where the stream is"):
            read_state("s", base64.b64encode(damaged).decode())


def test_a_flipped_bit_of_a_watermark_is_never_believed() -> None:
    said = write_mark(STATE.marks[0])
    assert read_mark("s", said) == STATE.marks[0]
    for damaged in flips(said):
        with pytest.raises(CorruptEvent, match="watermark of a producer"):
            read_mark("s", damaged)
