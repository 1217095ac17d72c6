"""What lies on the disk compressed by zlib, where it gets clearly smaller by that, and is read in bounded memory."""

from __future__ import annotations

import zlib
from typing import Final

MIN_BYTES: Final = 1024
"""Less is not compressed: it takes 20 us and more, and saves a few hundred bytes."""

_FIRST_BYTE: Final = b"\x78"  # of all that zlib makes with its usual window
_LEVEL: Final = 3  # as quick as 1, as the setting up is most of it; 6 takes twice as long for a tenth less
_WORTH: Final = 0.8


def deflate(data: bytes) -> bytes | None:
    """The data compressed; None where that is not worth it. What is told apart from it must begin with another byte."""
    if len(data) < MIN_BYTES:
        return None
    packed = zlib.compress(data, _LEVEL)
    return packed if len(packed) < len(data) * _WORTH else None


def is_deflated(data: bytes) -> bool:
    """Whether it is what `deflate` has made, by its first byte."""
    return data[:1] == _FIRST_BYTE


def inflate(data: bytes, *, max_bytes: int, dictionary: bytes = b"") -> bytes:
    """What was compressed; `dictionary` is the one that may have been used, where one may.

    Raises `ValueError` if it is damaged, or more than `max_bytes`: no more than that is held.
    """
    stream = zlib.decompressobj(zdict=dictionary)
    try:
        found = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"it can't be decompressed ({error})") from error
    if len(found) > max_bytes:
        raise ValueError(f"it is more than {max_bytes} bytes")
    if not stream.eof or stream.unused_data:
        raise ValueError("it does not end where it says")
    return found
