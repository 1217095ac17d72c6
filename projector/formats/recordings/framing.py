"""How the events of a stream are framed: server-sent events, JSON lines, one JSON document.

The parser of server-sent events is our own, of 40 lines: the kept libraries (httpx-sse, sseclient-py) pull from an
HTTP client or an iterator of whole chunks, and the one that is fed (assel) shares its UTF-8 decoder between parsers.
Source: *Server-sent events*, WHATWG HTML §9.2. A last event without its blank line is given: recordings end so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from projector.formats.format import FormatError
from projector.formats.shared.fields import items_of, whole_items
from projector.formats.shared.frames import Gathering, Payload

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""A longer line, document or frame is refused: no log takes such an event."""
BOM: Final = b"\xef\xbb\xbf"
_CHARACTER_BYTES: Final = 4
_BEGINNINGS: Final = range(0xC2, 0xF5)


class Reader(Protocol):
    """Takes bytes as they come and gives the payloads that are whole."""

    def feed(self, chunk: bytes) -> list[Payload]:
        """The payloads that end in this chunk. Raises `FormatError` with the place."""
        ...

    def end(self) -> list[Payload]:
        """What is left when nothing follows. Raises `FormatError` if it breaks off."""
        ...


class SseReader(Gathering):
    """Server-sent events: comments, pings and padding give nothing, several `data` lines one payload.

    `[DONE]` is a payload: for some streams it is the only end they have.
    """

    def __init__(self) -> None:
        self._lines = _Lines(returns=True)
        self._data: list[str] = []
        self._size_bytes = 0
        self._event: str | None = None
        self._id: str | None = None
        self._place = ""

    def feed(self, chunk: bytes) -> list[Payload]:
        """The payloads that end in this chunk. Raises `FormatError` for a line that is no UTF-8 or too long."""
        return self._gather(payload for line in self._lines.feed(chunk) for payload in self._take(line))

    def end(self) -> list[Payload]:
        """The last event, where no blank line ends it."""
        last = self._gather(payload for line in self._lines.end() for payload in self._take(line))
        return last + self._dispatch()

    def _take(self, line: bytes) -> list[Payload]:
        if not line:
            return self._dispatch()
        name, _, value = self._lines.decode(line).partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._place = self._place or f"line {self._lines.number}"
            self._data.append(value)
            self._size_bytes += len(line)
            if self._size_bytes > MAX_EVENT_BYTES:
                raise FormatError(f"line {self._lines.number}: the event is longer than {MAX_EVENT_BYTES} bytes")
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return []  # a comment, `retry`, or a field that nobody knows

    def _dispatch(self) -> list[Payload]:
        data, event, place = "\n".join(self._data), self._event, self._place
        self._data, self._event, self._place, self._size_bytes = [], None, "", 0
        if not data.strip():
            return []
        return [Payload(data, event, self._id, place)]


class LineReader(Gathering):
    """One payload a line. Blank lines give nothing; whether a line is JSON is for its adapter to say."""

    def __init__(self) -> None:
        self._lines = _Lines(returns=False)

    def feed(self, chunk: bytes) -> list[Payload]:
        """The lines that end in this chunk. Raises `FormatError` for a line that is no UTF-8 or too long."""
        return self._gather(payload for line in self._lines.feed(chunk) for payload in self._take(line))

    def end(self) -> list[Payload]:
        """The last line, where nothing ends it."""
        return self._gather(payload for line in self._lines.end() for payload in self._take(line))

    def _take(self, line: bytes) -> list[Payload]:
        text = self._lines.decode(line).strip(" \t\r")
        return [Payload(text, place=f"line {self._lines.number}")] if text else []


class DocumentReader:
    """One JSON document, of a list each item: only its end tells that it is whole, so it is held till then."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> list[Payload]:
        """Nothing yet. Raises `FormatError` for a document that is too long."""
        self._pieces.append(chunk)
        self._size_bytes += len(chunk)
        if self._size_bytes > MAX_EVENT_BYTES:
            raise FormatError(f"the document is longer than {MAX_EVENT_BYTES} bytes: one event a line was expected")
        return []

    def end(self) -> list[Payload]:
        """The document, or the items of a list; the last of one that breaks off is torn. Raises `FormatError`."""
        try:
            text = without_half(b"".join(self._pieces)).decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"byte {error.start}: UTF-8 was expected ({error.reason})") from error
        if text.lstrip()[:1] != "[":
            return [Payload(text, place="the document")]
        try:
            items, rest = items_of(text, "the list"), None
        except FormatError:
            items, rest = whole_items(text)
            if not items or text.rstrip().endswith("]"):
                raise
        found = [Payload(item, place=f"item {number}") for number, item in enumerate(items, 1)]
        return found if rest is None else [*found, Payload(rest, place=f"item {len(items) + 1}", is_torn=True)]


def without_half(data: bytes) -> bytes:
    """The bytes without the beginning of a UTF-8 character at their end: a recording may be cut anywhere."""
    for count in range(1, min(len(data), _CHARACTER_BYTES - 1) + 1):
        first = data[-count]
        if first < 0x80:
            return data
        if first >= 0xC0:  # where a longer one begins
            wanted = 2 + (first >= 0xE0) + (first >= 0xF0)
            return data[:-count] if count < wanted and first in _BEGINNINGS else data
    return data


class _Lines:
    """Bytes cut into lines: at LF, and with `returns` at CR and CRLF too, wherever a chunk ends."""

    def __init__(self, *, returns: bool) -> None:
        self.number = 0
        self._returns = returns
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._after_return = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end here; `number` is that of the line at hand."""
        if self._returns and chunk:
            if self._after_return:
                chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF that was cut in two
            self._after_return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            self.number += 1
            pieces, self._pieces, self._size_bytes = [*self._pieces, line], [], 0
            yield b"".join(pieces)
        self._pieces.append(rest)
        self._size_bytes += len(rest)
        if self._size_bytes > MAX_EVENT_BYTES:
            raise FormatError(f"line {self.number + 1} is longer than {MAX_EVENT_BYTES} bytes")

    def end(self) -> Iterator[bytes]:
        """The last line, where nothing ends it; a character that is broken off is left out."""
        last, self._pieces = without_half(b"".join(self._pieces)), []
        if last:
            self.number += 1
            yield last

    def decode(self, line: bytes) -> str:
        """The text of the line at hand."""
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"line {self.number}: UTF-8 was expected ({error.reason} at byte {error.start})") from error
