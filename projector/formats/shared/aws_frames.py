"""AWS event streams: binary frames with checksums, as Bedrock sends them.

Each frame becomes the JSON text `{"<event type>": <its payload>}`, the form in which Converse events are documented. A
`chunk`, as a model that is invoked streams it, becomes what it holds in base64: an event of the model's own provider.
Source: *Amazon Event Stream Specification* of the Smithy documentation.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import TYPE_CHECKING, Final

from projector.formats.format import FormatError
from projector.formats.shared.frames import Gathering, Payload
from projector.json_text import InvalidJson, JsonText, decode, dump, is_json, join_fields, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PRELUDE: Final = struct.Struct(">III")  # length of all, length of the headers, checksum of these two
_CRC: Final = struct.Struct(">I")
_LEAST_BYTES: Final = _PRELUDE.size + _CRC.size
_MOST_BYTES: Final = 24 * 1024 * 1024
_FIXED: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # header type: how long its value is
_SIZED: Final = (6, 7)  # bytes and text, behind their length
_TEXT: Final = 7
_CHUNK: Final = "chunk"
_EXCEPTION: Final = ("Exception", "Error")


def exception_of(fields: Mapping[str, JsonText]) -> JsonText | None:
    """The error that a frame tells, with its type; None for a frame that tells of none, or for something else."""
    name = next(iter(fields), "")
    if len(fields) != 1 or not name.endswith(_EXCEPTION):
        return None
    if not fields[name].lstrip().startswith("{"):
        return None
    told = split(fields[name])
    return join_fields({"type": dump(name)} | told) if "type" not in told else fields[name]


class FrameReader(Gathering):
    """Takes the bytes of an event stream, cut anywhere, and gives a payload for each whole frame."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._offset = 0
        self._frames = 0

    def feed(self, chunk: bytes) -> list[Payload]:
        """The payloads of the frames that end here.

        Raises `FormatError` for a checksum or a length that is wrong: behind it no frame can be found any more.
        """
        self._held += chunk
        return self._gather(self._whole_frames())

    def end(self) -> list[Payload]:
        """What is left of a stream that ends inside a frame: a payload that is torn. Raises `FormatError`."""
        self._gather(iter(()))
        held, self._held = bytes(self._held), bytearray()
        return [Payload(held.decode(errors="replace"), place=f"frame {self._frames + 1}", is_torn=True)] if held else []

    def _whole_frames(self) -> Iterator[Payload]:
        at = 0
        try:
            while len(self._held) - at >= _PRELUDE.size and len(self._held) - at >= (size := self._size(at)):
                yield self._read(bytes(self._held[at : at + size]))
                at += size
                self._offset += size
                self._frames += 1
        finally:
            del self._held[:at]

    def _size(self, at: int) -> int:
        size, headers, crc = _PRELUDE.unpack_from(self._held, at)
        if zlib.crc32(self._held[at : at + 8]) != crc:
            raise self._wrong("the checksum of its lengths is wrong")
        if not _LEAST_BYTES + headers <= size <= _MOST_BYTES:
            raise self._wrong(f"{size} bytes with {headers} of headers are no frame")
        return int(size)

    def _read(self, frame: bytes) -> Payload:
        if zlib.crc32(frame[:-4]) != _CRC.unpack_from(frame, len(frame) - 4)[0]:
            raise self._wrong("its checksum is wrong")
        _, size, _ = _PRELUDE.unpack_from(frame)
        behind = _PRELUDE.size + size
        try:
            headers = _headers(frame[_PRELUDE.size : behind])
            body = frame[behind:-4].decode()
        except (UnicodeDecodeError, IndexError, KeyError, struct.error) as error:
            raise self._wrong(f"its headers or its payload can't be read ({error})") from error
        kind = headers.get(":message-type", "event")
        name = headers.get({"exception": ":exception-type", "error": ":error-code"}.get(kind, ":event-type"))
        if name is None:
            raise self._wrong(f'its headers do not say what it is: ":event-type" was expected, not {sorted(headers)}')
        if kind == "error":
            body = dump({"message": headers.get(":error-message", "")})
        if not is_json(body):
            raise self._wrong(f"its payload is no JSON ({headers.get(':content-type', 'without a content type')})")
        if name == _CHUNK:
            return Payload(self._inner(body), place=f"frame {self._frames + 1}")
        return Payload(f"{{{dump(name)}:{body}}}", name, place=f"frame {self._frames + 1}")

    def _inner(self, body: str) -> str:
        """What a chunk holds."""
        try:
            inner = base64.b64decode(decode(split(body)["bytes"]), validate=True).decode()
        except (binascii.Error, InvalidJson, KeyError, TypeError, UnicodeDecodeError) as error:
            raise self._wrong(f'a chunk should have "bytes" in base64 ({type(error).__name__}: {error})') from error
        if not is_json(inner):
            raise self._wrong("what its chunk holds is no JSON")
        return inner

    def _wrong(self, why: str) -> FormatError:
        return FormatError(f"frame {self._frames + 1}, at byte {self._offset}: {why}")


def _headers(data: bytes) -> dict[str, str]:
    """The headers that are text; the others are passed over."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        name_size = data[at]
        name = data[at + 1 : at + 1 + name_size].decode()
        at += 1 + name_size
        kind = data[at]
        at += 1
        if kind in _SIZED:
            (size,) = struct.unpack_from(">H", data, at)
            if kind == _TEXT:
                found[name] = data[at + 2 : at + 2 + size].decode()
            at += 2 + size
        else:
            at += _FIXED[kind]
    return found
