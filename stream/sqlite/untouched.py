"""Reads a database and leaves no trace: neither in its file, nor in what SQLite keeps beside it, nor in their folder.

SQLite would make files beside the one it reads, and mark in them that it reads. So a file that stands alone is read as it
lies; where a write-ahead log is in use it is read through the marks of whoever writes; and where neither will do, the file
and its log are copied to a folder of this user alone, which is gone at the end.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from stream.errors import StoreBusy, StoreUnusable
from stream.sqlite.errors import FAILURES
from stream.sqlite.files import refusal
from stream.sqlite.handles import is_open_here, open_handle

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

_WAL_HEADER_BYTES: Final = 32
_LOOKS: Final = "SELECT count(*) FROM sqlite_schema"
_PIECE_BYTES: Final = 1024 * 1024


class Seen(NamedTuple):
    """What a file and those beside it are right now; where nothing differs later, nobody has written meanwhile."""

    file: tuple[int, ...]
    wal: tuple[int, ...]
    journal: tuple[int, ...]


def see(place: str) -> Seen:
    """Looks at a file and at what lies beside it, without opening any. Raises `StoreUnusable` where that can't be."""
    try:
        found = _told(place)
        if found:
            return Seen(found, _told(f"{place}-wal"), _told(f"{place}-journal"))
    except OSError as error:
        raise StoreUnusable(place, f"the file can't be reached ({error.strerror}): give this user access to it") from error
    raise StoreUnusable(place, "the file is gone: it was moved or deleted")


@contextmanager
def untouched(place: str) -> Iterator[str]:
    """Gives the URI by which SQLite reads the file at `place` as it is at one moment, with all that was committed.

    Raises `StoreBusy` at the end where somebody has written meanwhile what may have been read half: read it again.
    Raises `StoreUnusable` for a file, or a log beside it, that can't be read.
    """
    before = see(place)
    _check_readable(place)
    if not _is_kept_beside(before):
        yield f"{_uri(place)}?mode=ro&immutable=1"
        if see(place).file != before.file:  # what came beside it only makes what was read older
            raise StoreBusy(f"{place}: another process has written while it was read: try again")
        return
    shared = f"{_uri(place)}?mode=ro&readonly_shm=1"
    if _is_readable_by(place, shared):
        yield shared
        return
    if is_open_here(place):  # its bytes must not be read past SQLite: closing them would drop all locks on it
        raise StoreBusy(f"{place}: it is opened by this process right now: try again")
    with _private_copy(place) as copy:
        yield f"{_uri(copy)}?mode=rw"


@contextmanager
def open_untouched(place: str, *, timeout_s: float = 5.0) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit to what `untouched` gives. To attach others, their URIs are taken, too."""
    with untouched(place) as uri:
        connection = open_handle(place, address=uri, uri=True, timeout=timeout_s, check_same_thread=False)
        with closing(connection):
            yield connection


def _told(name: str) -> tuple[int, ...]:
    """Nothing for what is not there."""
    try:
        found = os.stat(name)  # noqa: PTH116 - several times a look
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_kept_beside(seen: Seen) -> bool:
    """Whether what was committed, or what undoes what was not, may lie beside the file."""
    return (bool(seen.wal) and seen.wal[2] > _WAL_HEADER_BYTES) or (bool(seen.journal) and seen.journal[2] > 0)


def _check_readable(place: str) -> None:
    for name in (place, f"{place}-wal", f"{place}-journal"):
        if os.path.lexists(name) and not os.access(name, os.R_OK):
            raise StoreUnusable(place, f"{Path(name).name} can't be read: give this user access to it")


def _is_readable_by(place: str, uri: str) -> bool:
    """SQLite tells where there is no index of the log, or none that it may read."""
    if not Path(f"{place}-shm").exists():
        return False
    try:
        with closing(open_handle(place, address=uri, uri=True, timeout=1.0)) as connection:
            connection.execute(_LOOKS).fetchone()
    except FAILURES:
        return False
    return True


@contextmanager
def _private_copy(place: str) -> Iterator[str]:
    """A copy of the file and of what lies beside it, as they were at one moment."""
    import shutil  # noqa: PLC0415 - the one way of three that is seldom gone
    import tempfile  # noqa: PLC0415 - the same

    folder = tempfile.mkdtemp(prefix="tailfold-")
    try:
        copy = str(Path(folder) / "copy.db")
        try:
            before = see(place), _header(place)
            for side in ("", "-wal", "-journal"):  # the log last: it holds whatever was moved into the file meanwhile
                with suppress(FileNotFoundError):
                    _copy(f"{place}{side}", f"{copy}{side}")
            after = see(place), _header(place)
        except OSError as error:
            raise refusal(error, copy) from error
        is_same = before == after if before[0].journal or after[0].journal else before[1] == after[1]
        if not is_same:
            raise StoreBusy(f"{place}: another process has written while it was read: try again")
        yield copy
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(source: str, target: str) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with Path(source).open("rb") as bytes_in, open(descriptor, "wb") as bytes_out:  # noqa: PTH123 - of a descriptor
        while piece := bytes_in.read(_PIECE_BYTES):
            bytes_out.write(piece)


def _header(place: str) -> bytes:
    """Of the log: another one each time that it begins again, and only then does what it held leave it."""
    try:
        with Path(f"{place}-wal").open("rb") as log:
            return log.read(_WAL_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def _uri(place: str) -> str:
    return f"file://{quote(str(Path(place).absolute()))}"
