"""Recorded HTTP unwrapped: what a provider streamed, as the JSON texts its adapter takes, however the bytes were cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector.formats.format import FormatError
from projector.formats.recordings.cassettes import Cassette, Exchange, Frame, read_cassette
from projector.formats.recordings.framing import BOM, MAX_EVENT_BYTES, DocumentReader, LineReader, Reader, SseReader
from projector.formats.shared.aws_frames import FrameReader
from projector.formats.shared.fields import shown
from projector.formats.shared.frames import Payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "Cassette",
    "DocumentReader",
    "Exchange",
    "Frame",
    "FrameReader",
    "LineReader",
    "Payload",
    "Reader",
    "SseReader",
    "Unwrap",
    "read_all",
    "read_cassette",
]

_SSE: Final = (b"data", b"event", b"id", b"retry", b"")
_BINARY: Final = (b"\0", b"\1")  # a frame begins with its length, which is below 24 MiB
_ENOUGH_BYTES: Final = 16  # to tell what it is, but for JSON: there the first line tells


class Unwrap:
    """Finds out how a stream is framed by its first bytes, and reads it; memory holds what is not whole yet.

    Server-sent events, JSON lines, one JSON document (of a list, its items) and AWS event streams; cassettes are read
    by `read_cassette`.
    """

    def __init__(self) -> None:
        self._head: list[bytes] = []
        self._size_bytes = 0
        self._reader: Reader | None = None

    def feed(self, chunk: bytes) -> list[Payload]:
        """The payloads that end in this chunk. Raises `FormatError` with the place and what was expected."""
        if self._reader is not None:
            return self._reader.feed(chunk)
        self._head.append(chunk)
        self._size_bytes += len(chunk)
        if self._size_bytes < _ENOUGH_BYTES:
            return []
        if self._size_bytes > MAX_EVENT_BYTES:
            raise FormatError(f"line 1 is longer than {MAX_EVENT_BYTES} bytes")
        if b"\n" not in chunk and len(self._head) > _ENOUGH_BYTES:
            return []  # a first line that is still growing
        return self._begin(is_all=False)

    def end(self) -> list[Payload]:
        """What is left when nothing follows. Raises `FormatError` if it breaks off."""
        begun = self._begin(is_all=True) if self._reader is None else []
        return begun + (self._reader.end() if self._reader is not None else [])

    def _begin(self, *, is_all: bool) -> list[Payload]:
        head = b"".join(self._head).removeprefix(BOM)
        body = head.lstrip(b" \t\r\n")
        is_first_line_whole = is_all or b"\n" in body
        if not body or (body[:1] == b"{" and not is_first_line_whole):
            return []
        if not (is_first_line_whole or body.startswith(_BINARY) or len(body) >= _ENOUGH_BYTES):
            return []
        self._reader = _reader_for(body)
        self._head = []
        return self._reader.feed(head)


def read_all(chunks: Iterable[bytes], reader: Reader | None = None) -> Iterator[Payload]:
    """Everything that these bytes give, by `reader` or by what the bytes tell. Raises `FormatError` behind what is whole."""
    reader = reader or Unwrap()
    for chunk in chunks:
        yield from reader.feed(chunk)
    yield from reader.end()


def _reader_for(body: bytes) -> Reader:
    first = body.split(b"\n", 1)[0]
    if body.startswith(_BINARY):
        return FrameReader()
    if body[:1] == b"[":
        return DocumentReader()
    if body[:1] == b"{":
        return LineReader() if first.rstrip().endswith(b"}") else DocumentReader()
    if first.split(b":", 1)[0].strip() in _SSE and b":" in first:
        return SseReader()
    shows = shown(first.decode(errors="replace"))
    raise FormatError(f'server-sent events ("data: …"), JSON lines or an AWS event stream were expected, not {shows}')
