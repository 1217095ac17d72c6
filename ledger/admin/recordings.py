"""Reads recorded provider streams: one chunk a line, plain or gzipped."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from ledger.admin.lines import FileError, lines_of, open_lines
from projector.events import to_event, validate
from projector.formats import STREAMS, FormatError
from projector.json import InvalidJson, split
from stream import InvalidEvent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from projector.formats import StreamFormat


class Recording(NamedTuple):
    """A recording that was looked through. `chunks` are whole; `is_torn` if the last line breaks off."""

    path: Path
    chunks: int
    is_torn: bool

    def read(self) -> Iterator[str]:
        """The whole chunks, in order, one at a time."""
        with open_lines(self.path) as file:
            for line in itertools.islice(lines_of(file, self.path), self.chunks):
                yield line.text


def look_through(path: Path, format_name: str) -> Recording:
    """Plays the file into nothing, so that a wrong one is refused before anything is stored.

    Raises `FileError`. A last line that breaks off is no error: the recording was cut.
    """
    if format_name not in STREAMS:
        raise FileError(f"{format_name!r} is no format that can be played: use one of {', '.join(STREAMS)}")
    numbers = itertools.count(1)
    stream = STREAMS[format_name]("r", lambda: f"r.{next(numbers)}")
    chunks = 0
    torn: tuple[int, FormatError] | None = None
    with open_lines(path) as file:
        for line in lines_of(file, path):
            if torn is not None:
                raise _wrong(path, format_name, *torn)
            try:
                _check(stream, line.text)
                chunks += 1
            except FormatError as error:
                if chunks == 0 or _is_json(line.text):
                    raise _wrong(path, format_name, line.number, error) from error
                torn = line.number, error
    if chunks == 0:
        raise FileError(f"{path}: the file holds nothing to play")
    return Recording(path, chunks, is_torn=torn is not None)


def _check(stream: StreamFormat, line: str) -> None:
    """What `Run.feed` would refuse in the middle of the run is refused here, before it begins."""
    try:
        validate([to_event(body) for body in stream.feed(line)])
    except InvalidEvent as error:
        raise FormatError(error.why) from error


def _is_json(line: str) -> bool:
    try:
        split(line)
    except InvalidJson:
        return False
    return True


def _wrong(path: Path, format_name: str, number: int, error: FormatError) -> FileError:
    return FileError.at(path, number, f"this is no {format_name} stream: {error}")
