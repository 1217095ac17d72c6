"""Reads recorded provider streams: one chunk a line, plain or gzipped."""

from __future__ import annotations

import gzip
import itertools
import zlib
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from projector.events import to_event, validate
from projector.formats import STREAMS, FormatError
from projector.json import InvalidJson, split
from stream import InvalidEvent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from projector.formats import StreamFormat


class RecordingError(Exception):
    """The recording can't be played; the message names file, line and what was expected."""


class Recording(NamedTuple):
    """A recording that was looked through. `chunks` are whole; `is_torn` if the last line breaks off."""

    path: Path
    chunks: int
    is_torn: bool

    def read(self) -> Iterator[str]:
        """The whole chunks, in order, one at a time."""
        for _, line in itertools.islice(_lines(self.path), self.chunks):
            yield line


def look_through(path: Path, format_name: str) -> Recording:
    """Plays the file into nothing, so that a wrong one is refused before anything is stored.

    Raises `RecordingError`. A last line that breaks off is no error: the recording was cut.
    """
    if format_name not in STREAMS:
        raise RecordingError(f"{format_name!r} is no format that can be played: use one of {', '.join(STREAMS)}")
    numbers = itertools.count(1)
    stream = STREAMS[format_name]("r", lambda: f"r.{next(numbers)}")
    chunks = 0
    torn: tuple[int, FormatError] | None = None
    for number, line in _lines(path):
        if torn is not None:
            raise _wrong(path, format_name, *torn)
        try:
            _check(stream, line)
            chunks += 1
        except FormatError as error:
            if chunks == 0 or _is_json(line):
                raise _wrong(path, format_name, number, error) from error
            torn = number, error
    if chunks == 0:
        raise RecordingError(f"{path}: the file holds nothing to play")
    return Recording(path, chunks, is_torn=torn is not None)


def _check(stream: StreamFormat, line: str) -> None:
    """What `Run.feed` would refuse in the middle of the run is refused here, before it begins."""
    try:
        validate([to_event(body) for body in stream.feed(line)])
    except InvalidEvent as error:
        raise FormatError(error.why) from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield number, line.decode().strip()
                    except UnicodeDecodeError as error:
                        raise RecordingError(f"{path}, line {number}: this is no UTF-8 text ({error.reason})") from error
    except EOFError as error:
        raise RecordingError(f"{path}: the compressed file ends too early: fetch it again") from error
    except (OSError, ValueError, zlib.error) as error:
        raise RecordingError(f"{path}: the file can't be read ({getattr(error, 'strerror', None) or error})") from error


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if is_gzipped else path.open("rb")


def _is_json(line: str) -> bool:
    try:
        split(line)
    except InvalidJson:
        return False
    return True


def _wrong(path: Path, format_name: str, number: int, error: FormatError) -> RecordingError:
    return RecordingError(f"{path}, line {number}: this is no {format_name} stream: {error}")
