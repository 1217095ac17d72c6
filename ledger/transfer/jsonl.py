"""Tailfold JSONL: conversations as text, one JSON object a line, that gives the same log again, byte for byte.

A header opens each conversation: `{"tailfold": 1, "conversation", "floor", "origin", "head"}`. Its events follow in
order: `{"seq", "at", "type", "data"}`, where `data` is the JSON text of the body as it is stored, or `data_base64` its
bytes where they are no body that fits the type. Media come ahead of the event that adds them:
`{"media", "media_type", "data_base64"}`, the id being the SHA-256 of the bytes. `at` is in ms.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from ledger.tables.media import MAX_MEDIA_BYTES, Media
from ledger.transfer.files import FileError, Line, lines_of
from projector.json_text import dump, learn
from projector.validation import validate
from stream import Event, InvalidEvent, NewEvent
from stream.limits import MAX_INTEGER, check_events, check_id, check_position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stream import Bounds

T = TypeVar("T")
VERSION: Final = 1
_HEADER: Final = '{"tailfold": 1, "conversation": …, "floor": …, "origin": …, "head": …}'


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a conversation: events `floor + 1` to `head` follow. `origin` is as in `stream.Bounds`."""

    tailfold: int
    conversation: str
    floor: int
    origin: int
    head: int


class _EventLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seq: int
    at: int
    type: str
    data: str | None = None
    data_base64: str | None = None


class _MediaLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    media: str
    media_type: str
    data_base64: str


class _Kind(msgspec.Struct, frozen=True):
    """Which of the three a line is."""

    tailfold: Any = None
    media: Any = None


class Section(NamedTuple):
    """A conversation in a file that was looked through; `line` is its header's."""

    file: IO[bytes]
    path: Path
    line: Line
    header: Header
    media: int

    def read(self) -> Iterator[tuple[int, Event | Media]]:
        """Its events and media, each with the number of its line. Raises `FileError` if the file has changed since."""
        seq = self.header.floor
        for line, item in _items(self.file, self.path, behind=self.line):
            if isinstance(item, Header):
                break
            seq += isinstance(item, Event)
            if isinstance(item, Event) and item.seq != seq:
                raise self._changed()
            yield line.number, item
            if isinstance(item, Event) and seq == self.header.head:
                break  # what stands behind it belongs to another one
        if seq != self.header.head:
            raise self._changed()

    def _changed(self) -> FileError:
        return FileError(f"{self.path}: the file changed while it was read: let it be at rest")


def header_line(conversation: str, bounds: Bounds) -> str:
    """How a conversation begins."""
    return dump(
        {
            "tailfold": VERSION,
            "conversation": conversation,
            "floor": bounds.floor,
            "origin": bounds.origin,
            "head": bounds.head,
        }
    )


def event_line(event: Event) -> str:
    """An event; what is read of it again are the same bytes."""
    record: dict[str, Any] = {"seq": event.seq, "at": event.at, "type": event.type}
    try:
        validate([NewEvent(event.type, event.data)])
        return dump(record | {"data": event.data.decode()})
    except (InvalidEvent, UnicodeDecodeError):
        return dump(record | {"data_base64": _encode(event.data)})


def media_line(media: Media) -> str:
    """The bytes of an image or a file."""
    return dump({"media": media.media_id, "media_type": media.media_type, "data_base64": _encode(media.data)})


def look_through(file: IO[bytes], path: Path, skip: Callable[[Exception], object] | None = None) -> list[Section]:
    """The conversations of a file, all of whose lines are right.

    Raises `FileError`; what is wrong with one goes to `skip`, if that is given, and the other conversations are taken.
    """
    look = _Look(file, path, skip)
    for line in lines_of(file, path):
        look.take(line)
    look.end()
    if not look.sections:
        raise FileError(f"{path}: the file holds no conversation" + (f": {_HEADER} was expected" if skip is None else ""))
    return look.sections


class _Look:
    """The lines of a file, one by one; a conversation with a wrong one is left out."""

    def __init__(self, file: IO[bytes], path: Path, skip: Callable[[Exception], object] | None) -> None:
        self._file, self._path, self._skip = file, path, skip
        self._number = self._seq = 0
        self._is_first, self._is_open = True, False
        self.sections: list[Section] = []

    def take(self, line: Line) -> None:
        self._number = line.number
        try:
            item = _read(line.text, is_first=self._is_first)
            self._is_first = False
            if isinstance(item, Header):
                self._begin(line, item)
            elif self._is_open:
                self._add(item)
        except ValueError as error:
            self._refuse(FileError.at(self._path, line.number, str(error)), error)
        except FileError as error:
            self._refuse(error, error)

    def end(self, what: str = "the file ends") -> None:
        """Nothing more belongs to the conversation at hand."""
        try:
            if self._is_open and self._seq < self.sections[-1].header.head:
                why = f"{_wanted(self.sections[-1].header, self._seq + 1)}, but {what}"
                raise FileError.at(self._path, self._number, why)
        except FileError as error:
            self._refuse(error, error)

    def _begin(self, line: Line, header: Header) -> None:
        self.end("the next conversation begins")
        self._is_open = False
        if any(section.header.conversation == header.conversation for section in self.sections):
            raise FileError.at(self._path, line.number, f"conversation {header.conversation!r} is in this file twice")
        self.sections.append(Section(self._file, self._path, line, header, 0))
        self._seq, self._is_open = header.floor, True

    def _add(self, item: Event | Media) -> None:
        section = self.sections[-1]
        if isinstance(item, Media):
            self.sections[-1] = section._replace(media=section.media + 1)
            return
        self._seq += 1
        if item.seq != self._seq or self._seq > section.header.head:
            raise FileError.at(self._path, self._number, f"{_wanted(section.header, self._seq)}, this is event {item.seq}")

    def _refuse(self, error: FileError, cause: Exception) -> None:
        if self._skip is None:
            raise error from (None if error is cause else cause)
        self._skip(error)
        if self._is_open:
            self.sections.pop()
        self._is_open = False


def _items(file: IO[bytes], path: Path, *, behind: Line | None = None) -> Iterator[tuple[Line, Header | Event | Media]]:
    is_first = behind is None
    for line in lines_of(file, path, behind=behind):
        try:
            yield line, _read(line.text, is_first=is_first)
        except ValueError as error:
            raise FileError.at(path, line.number, str(error)) from error
        is_first = False


def _read(text: str, *, is_first: bool) -> Header | Event | Media:
    kind = _decode(text, _Kind)
    if kind.tailfold is not None:
        return _check_header(kind.tailfold, text)
    if is_first:
        raise ValueError(f"{_HEADER} was expected first ")
    if kind.media is not None:
        return _to_media(_decode(text, _MediaLine))
    return _to_event(_decode(text, _EventLine))


def _check_header(version: object, text: str) -> Header:
    if version != VERSION:
        raise ValueError(f"its format is {version!r}, this one knows {VERSION}: upgrade Tailfold")
    header = _decode(text, Header)
    check_id("conversation id", header.conversation)
    for name in ("floor", "origin", "head"):
        check_position(name, getattr(header, name))
    if not header.origin <= header.floor <= header.head <= MAX_INTEGER // 2 or not header.head:
        raise ValueError(
            f"origin {header.origin}, floor {header.floor} and head {header.head} are no bounds of a log: "
            "each is at most the next, and the head above 0"
        )
    return header


def _to_event(line: _EventLine) -> Event:
    check_position("seq", line.seq)
    check_position("at", line.at)
    if (line.data is None) == (line.data_base64 is None):
        raise ValueError("one of data and data_base64 was expected")
    data = line.data.encode() if line.data is not None else _decode_base64(line.data_base64 or "")
    new = [NewEvent(line.type, data)]
    try:
        check_events(new)
        if line.data is not None:
            validate(new)
    except InvalidEvent as error:
        raise ValueError(f"the event can't be stored: {error.why}") from error
    return Event("", line.seq, line.type, data, line.at)


def _to_media(line: _MediaLine) -> Media:
    data = _decode_base64(line.data_base64)
    if len(data) > MAX_MEDIA_BYTES:
        raise ValueError(f"media of {len(data):,} bytes is too large: at most {MAX_MEDIA_BYTES:,}")
    if hashlib.sha256(data).hexdigest() != line.media:
        raise ValueError(f"the bytes are not those of media {line.media!r}: its SHA-256 is another one")
    return Media(line.media, line.media_type, data)


def _wanted(header: Header, seq: int) -> str:
    if seq > header.head:
        return f"nothing was expected behind event {header.head} of {header.conversation!r}"
    return f"event {seq} of {header.conversation!r} was expected"


def _decode(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"this is no line of a Tailfold export: {why}") from error


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"data_base64 is no base64 ({error})") from error


learn(Header, _EventLine, _MediaLine, _Kind)
