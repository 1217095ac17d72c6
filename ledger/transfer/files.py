"""Reads files line by line, plain or gzipped, from any place in them and as often as needed."""

from __future__ import annotations

import gzip
import shutil
import zlib
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, NamedTuple

from ledger.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GZIP = b"\x1f\x8b"


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

    Raises `FileError`.
    """
    with telling(path):
        file = path.open("rb")
        try:
            is_gzipped = file.peek(2)[:2] == _GZIP
            if not is_gzipped and file.seekable():
                return file
            copy = TemporaryFile()  # noqa: SIM115 - the caller closes it
            try:
                shutil.copyfileobj(gzip.GzipFile(fileobj=file) if is_gzipped else file, copy, 1024 * 1024)
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
        for number, raw in enumerate(file, number + 1):  # noqa: B020 - it goes on counting
            at += len(raw)
            try:
                text = raw.decode().strip()
            except UnicodeDecodeError as error:
                raise FileError.at(path, number, f"this is no UTF-8 text ({error.reason})") from error
            if text:
                yield Line(number, text, at)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Says of whatever fails while a file is read which file it is."""
    try:
        yield
    except EOFError as error:
        raise FileError(f"{path}: the compressed file ends too early: fetch it again") from error
    except (OSError, ValueError, zlib.error) as error:
        raise FileError(f"{path}: the file can't be read ({getattr(error, 'strerror', None) or error})") from error
