"""Reads files line by line, plain or gzipped, from any place in them and as often as needed."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tempfile
import zlib
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final, NamedTuple, cast

from ledger.errors import LedgerError
from projector.formats.recordings.framing import MAX_EVENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE_BYTES: Final = 3 * MAX_EVENT_BYTES
"""A line of an export: an event as JSON text in JSON text takes no more."""
MAX_UNPACKED_DOCUMENT_BYTES: Final = 4 * MAX_EVENT_BYTES
"""What is read whole and was packed: its size told nothing of what it takes."""
_GZIP: Final = b"\x1f\x8b"
_MAX_RATIO: Final = 200
"""What people wrote is packed to a tenth, and what machines repeated to a hundredth."""
_PIECE_BYTES: Final = 1024 * 1024
_ROOM_LEFT_BYTES: Final = 256 * 1024 * 1024


class FileError(LedgerError):
    """A file can't be taken in; the message names file, line and what was expected."""

    @classmethod
    def at(cls, path: Path, number: int, why: str) -> FileError:
        """What is wrong with a line."""
        return cls(f"{path}, line {number}: {why}")


class Line(NamedTuple):
    """A line that is not blank, counted from 1; `end` is the place in the file behind it."""

    number: int
    text: str
    end: int


def open_lines(path: Path) -> IO[bytes]:
    """The file; of one that is gzipped, or can be read only once, a copy that is gone when it is closed.

    Raises `FileError`, for what unpacks to far more than it is, or to a line that no format has, as soon as that shows.
    """
    with telling(path):
        file = path.open("rb")
        try:
            is_gzipped = file.peek(2)[:2] == _GZIP
            if not is_gzipped and file.seekable():
                return file
            copy = TemporaryFile()  # noqa: SIM115 - the caller closes it
            try:
                _copy(_Unpacked(file, path) if is_gzipped else file, copy, path)
            except BaseException:
                copy.close()
                raise
        except BaseException:
            file.close()
            raise
        file.close()
        return copy


def lines_of(file: IO[bytes], path: Path, *, behind: Line | None = None) -> Iterator[Line]:
    """The lines of a file, or those behind one of them. Raises `FileError` for what is no UTF-8 text."""
    number, at = (0, 0) if behind is None else (behind.number, behind.end)
    with telling(path):
        file.seek(at)
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise too_long(path, number, MAX_LINE_BYTES)
            at += len(raw)
            try:
                text = raw.decode().strip()
            except UnicodeDecodeError as error:
                raise FileError.at(path, number, f"this is no UTF-8 text ({error.reason})") from error
            if text:
                yield Line(number, text, at)


def read_whole(file: IO[bytes], path: Path) -> bytes:
    """The rest of a file that is one document, no line of which is too long for an event.

    Raises `FileError` for one that was packed and is larger than is good for whoever reads it whole.
    """
    at = file.tell()
    if isinstance(file.name, int) and file.seek(0, os.SEEK_END) > MAX_UNPACKED_DOCUMENT_BYTES:  # a copy has no name
        raise FileError(
            f"{path}: it unpacks to a document of more than {MAX_UNPACKED_DOCUMENT_BYTES:,} bytes: "
            "if that is right, unpack it and import what comes out"
        )
    file.seek(at)
    pieces: list[bytes] = []
    lines = _Lines(path, MAX_EVENT_BYTES, at)
    while piece := file.read(_PIECE_BYTES):
        lines.check(piece)
        pieces.append(piece)
    return b"".join(pieces)


def too_long(path: Path, number: int, limit: int) -> FileError:
    """What is said of a line that no event can have."""
    return FileError(f"{path}: line {number} is longer than {limit:,} bytes: no event is so long, split it")


class _Lines:
    """Counts lines and their lengths while pieces of a file go by."""

    def __init__(self, path: Path, limit: int, length: int = 0) -> None:
        self._path = path
        self._limit = limit
        self._number = 1
        self._length = length

    def check(self, piece: bytes) -> None:
        """Raises `FileError` for a line that is too long already; no piece is."""
        first = piece.find(b"\n")
        self._length += len(piece) if first < 0 else first
        if self._length > self._limit:
            raise too_long(self._path, self._number, self._limit)
        if first >= 0:
            self._number += piece.count(b"\n")
            self._length = len(piece) - piece.rfind(b"\n") - 1


class _Counted:
    """A packed file, and how much of it was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self.count += len(piece)
        return piece


class _Unpacked:
    """What a packed file holds, as long as that is no more than packing explains."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._packed = _Counted(file)
        self._file = gzip.GzipFile(fileobj=cast("IO[bytes]", self._packed), mode="rb")
        self._path = path
        self._count = 0

    def read(self, size: int) -> bytes:
        piece: bytes = self._file.read(size)
        if not self._count and piece[:2] == _GZIP:
            raise FileError(f"{self._path}: it was compressed twice: unpack it once, and import what comes out")
        self._count += len(piece)
        if self._count > MAX_EVENT_BYTES + _MAX_RATIO * self._packed.count:
            raise FileError(
                f"{self._path}: it unpacks to more than {_MAX_RATIO} times its size, which nothing does that was said: "
                "if it is right, unpack it and import what comes out"
            )
        return piece


def _copy(source: IO[bytes] | _Unpacked, copy: IO[bytes], path: Path) -> None:
    lines: _Lines | None = None
    copied = 0
    while piece := source.read(_PIECE_BYTES):
        if lines is None:
            is_export = re.match(rb'(\xef\xbb\xbf)?\s*\{\s*"tailfold', piece) is not None
            lines = _Lines(path, MAX_LINE_BYTES if is_export else MAX_EVENT_BYTES)
        lines.check(piece)
        copied += 1
        if copied % 16 == 0 and shutil.disk_usage(tempfile.gettempdir()).free < _ROOM_LEFT_BYTES:
            raise FileError(
                f"{path}: there is no room for a copy of it in {tempfile.gettempdir()}: name another place in TMPDIR"
            )
        copy.write(piece)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Says of whatever fails while a file is read which file it is."""
    try:
        yield
    except EOFError as error:
        raise FileError(f"{path}: the compressed file ends too early: fetch it again") from error
    except (OSError, ValueError, zlib.error) as error:
        raise FileError(f"{path}: the file can't be read ({getattr(error, 'strerror', None) or error})") from error
