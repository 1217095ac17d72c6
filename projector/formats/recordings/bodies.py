"""Bodies of recorded HTTP as they were before they travelled: taken out of what a recorder wrapped them in, and unpacked."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from projector.formats.recordings.framing import MAX_EVENT_BYTES
from projector.json_text import InvalidJson, dump

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_GZIP: Final = b"\x1f\x8b"
_GZIP_TEXT: Final = "H4sI"
"""How base64 of anything gzipped begins."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=\s]{16,}")
_FRAMES: Final = "amazon.eventstream"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_TEXTS: Final = ("string", "text")
_WRAPPED: Final = frozenset(_TEXTS)
_READABLE: Final = (b"{", b"[", b'"', b"data:", b"event:", b"id:", b":")
_GZIP_BITS: Final = 31
_ZLIB_BITS: Final = 15
_RAW_BITS: Final = -15


class Body(NamedTuple):
    """Bytes that were unpacked; `is_torn` where they end before what packed them said so, `why` where they stay packed."""

    data: bytes
    is_torn: bool = False
    why: str = ""


def read_body(given: Any, headers: Mapping[str, str]) -> Body:
    """A body as a recorder wrote it: text, bytes, base64, pieces of these, or the JSON value that it was."""
    try:
        data = _bytes_of(given, headers)
    except (binascii.Error, InvalidJson, TypeError) as error:
        return Body(b"", why=f"its body can't be read ({error})")
    return _unpack(data, headers.get("content-encoding", ""))


def headers_of(given: Any) -> dict[str, str]:
    """Headers by their names in lower case; of several values the first. Raises `TypeError` for what are none."""
    pairs = given.items() if isinstance(given, dict) else map(_pair, given or ())
    return {str(name).lower(): _first(value) for name, value in pairs}


def _pair(header: Any) -> tuple[Any, Any]:
    if isinstance(header, dict):
        return header.get("name", ""), header.get("value", "")
    name, value = header
    return name, value


def _first(value: Any) -> str:
    found = value[0] if isinstance(value, list) and value else value
    return found.decode(errors="replace") if isinstance(found, bytes) else "" if found is None else str(found)


def _bytes_of(given: Any, headers: Mapping[str, str]) -> bytes:
    if isinstance(given, str):
        return _bytes_of_text(given, headers)
    if isinstance(given, dict) and given.keys() <= _WRAPPED:
        given = next((given[name] for name in _TEXTS if given.get(name)), None)
        return _bytes_of(given, headers)
    if isinstance(given, dict) and given.keys() <= _WRAPPED | {"base64_string", "encoding"}:
        inner = next((given[name] for name in ("base64_string", *_TEXTS) if given.get(name)), None)
        is_base64 = "base64_string" in given or str(given.get("encoding")).lower() == "base64"
        return base64.b64decode(inner) if is_base64 and inner else _bytes_of(inner, headers)
    if isinstance(given, list) and given and all(isinstance(piece, str | bytes) for piece in given):
        return b"".join(_bytes_of(piece, headers) for piece in given)
    return given if isinstance(given, bytes) else b"" if given is None else dump(given).encode()


def _bytes_of_text(given: str, headers: Mapping[str, str]) -> bytes:
    """Some recorders write bytes as text: in base64, or a letter for each."""
    is_frames = _FRAMES in headers.get("content-type", "")
    if ("content-encoding" in headers and given.lstrip().startswith(_GZIP_TEXT)) or (is_frames and _BASE64.fullmatch(given)):
        return base64.b64decode(given)
    is_letters = given.startswith(_GZIP.decode("latin-1")) or is_frames
    try:
        return given.encode("latin-1" if is_letters else "utf-8", "surrogatepass")
    except UnicodeEncodeError:
        return given.encode("utf-8", "surrogatepass")


def _unpack(data: bytes, encodings: str) -> Body:
    """What was packed last is unpacked first; a body that can be read is not packed, whatever its header says."""
    body = Body(data)
    for encoding in reversed([name.strip().lower() for name in encodings.split(",")]):
        if body.data.lstrip().startswith(_READABLE) or not body.data:
            return body
        unpack = _UNPACK.get(encoding)
        if unpack is not None and body.data[:2] != _GZIP:
            made = unpack(body.data)
            body = made._replace(is_torn=made.is_torn or body.is_torn)
    if body.data.startswith(_GZIP):
        made = _inflate(body.data, _GZIP_BITS)
        body = made._replace(is_torn=made.is_torn or body.is_torn)
    elif body.data.startswith(_ZSTD):
        body = _by_library(body.data, "zstd", "compression.zstd", "zstandard")
    return body


def _inflate(data: bytes, bits: int) -> Body:
    """As far as it goes: of what breaks off all that came is kept."""
    found = bytearray()
    while data:
        stream = zlib.decompressobj(bits)
        try:
            found += stream.decompress(data, MAX_EVENT_BYTES + 1 - len(found))
        except zlib.error as error:
            return Body(bytes(found), is_torn=True) if found else Body(b"", why=f"its body can't be unpacked ({error})")
        if len(found) > MAX_EVENT_BYTES:
            return Body(b"", why=f"its body unpacks to more than {MAX_EVENT_BYTES} bytes")
        if not stream.eof:
            return Body(bytes(found), is_torn=True)
        data = stream.unused_data if bits == _GZIP_BITS and stream.unused_data.startswith(_GZIP) else b""
    return Body(bytes(found))


def _deflate(data: bytes) -> Body:
    body = _inflate(data, _ZLIB_BITS)
    return _inflate(data, _RAW_BITS) if body.why else body


def _brotli(data: bytes) -> Body:
    return _by_library(data, "br", "brotli", "brotlicffi")


def _zstd(data: bytes) -> Body:
    return _by_library(data, "zstd", "compression.zstd", "zstandard")


def _by_library(data: bytes, encoding: str, *libraries: str) -> Body:
    for name in libraries:
        try:
            found: Any = import_module(name)
        except ImportError:
            continue
        try:
            return Body(found.decompress(data))
        except Exception as error:  # noqa: BLE001 - each of these libraries has errors of its own
            return Body(b"", why=f"its body can't be unpacked ({encoding}: {error})")
    wanted = libraries[-1] if encoding == "zstd" else libraries[0]
    return Body(b"", why=f'its body is packed with "{encoding}": pip install {wanted}')


_UNPACK: Final[dict[str, Callable[[bytes], Body]]] = {
    "gzip": Body,
    "x-gzip": Body,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
