"""Reads a database and leaves no trace: neither in its file, nor in what SQLite keeps beside it, nor in their folder.

SQLite would make files beside the one it reads, and mark in them that it reads. So a file that stands alone is read as it
lies; where a write-ahead log is in use it is read through the marks of whoever writes; and where neither will do, the file
and its log are copied to a folder of this user alone, which is gone at the end.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from stream.errors import StoreBusy, StoreFull, StoreUnusable, StreamError
from stream.sqlite.errors import FAILURES
from stream.sqlite.files import refusal
from stream.sqlite.handles import is_open_here, open_handle

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from stream.database import Row

_WAL_HEADER_BYTES: Final = 32
_LOOKS: Final = "SELECT count(*) FROM sqlite_schema"
_PIECE_BYTES: Final = 1024 * 1024


class Seen(NamedTuple):
    """What a file and those beside it are right now; where nothing differs later, nobody has written meanwhile."""

    file: tuple[int, ...]
    wal: tuple[int, ...]
    journal: tuple[int, ...]

    def is_younger_than(self, age_ns: int) -> bool:
        """Whether one of them was changed so lately that what comes right behind that could not be told from it."""
        latest_ns = max(found[3] for found in self if found)
        return abs(time.time_ns() - latest_ns) < age_ns


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
    if ask_shared(place, _LOOKS) is not None:
        yield _shared(place)
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


def ask_shared(place: str, text: str) -> list[Row] | None:
    """Asks through the marks of whoever writes. None where there is no index of the log, or none that SQLite may read."""
    if not Path(f"{place}-shm").exists():
        return None
    try:
        with closing(open_handle(place, address=_shared(place), uri=True, timeout=1.0)) as connection:
            return connection.execute(text).fetchall()
    except FAILURES:
        return None


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


@contextmanager
def _private_copy(place: str) -> Iterator[str]:
    """A copy of the file and of what lies beside it, as they were at one moment."""
    from stream.sqlite.private_folder import COPY, private_folder  # noqa: PLC0415 - the one way of three that is seldom gone

    with ExitStack() as stack:
        try:
            copy = str(stack.enter_context(private_folder()) / COPY)
        except OSError as error:
            raise _no_place(place, error) from error
        before = see(place), _header(place)
        for side in ("", "-wal", "-journal"):  # the log last: it holds whatever was moved into the file meanwhile
            _copy(place, side, f"{copy}{side}")
        after = see(place), _header(place)
        is_same = before == after if before[0].journal or after[0].journal else before[1] == after[1]
        if not is_same:
            raise StoreBusy(f"{place}: another process has written while it was read: try again")
        yield copy


def _copy(place: str, side: str, target: str) -> None:
    """Nothing where there is nothing. What is wrong is said of the place where it is."""
    try:
        bytes_in = Path(f"{place}{side}").open("rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unread(place, side, error) from error
    with bytes_in:
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise _no_place(place, error) from error
        with open(descriptor, "wb", buffering=0) as bytes_out:  # noqa: PTH123 - of a descriptor
            while piece := _read(place, side, bytes_in):
                try:
                    while piece:
                        piece = piece[bytes_out.write(piece) :]
                except OSError as error:
                    raise _no_place(place, error) from error


def _read(place: str, side: str, file: IO[bytes]) -> bytes:
    try:
        return file.read(_PIECE_BYTES)
    except OSError as error:
        raise _unread(place, side, error) from error


def _unread(place: str, side: str, error: OSError) -> StoreUnusable:
    return StoreUnusable(place, f"{Path(place).name}{side} can't be read ({error.strerror}): mend that, or look at a copy")


def _no_place(place: str, error: OSError) -> StreamError:
    """It is not the file that is wrong, but where its copy is to lie."""
    way_out = "it is read by a copy, which lies in the folder for temporary files: name another one by TMPDIR"
    if isinstance(refusal(error, place), StoreFull):
        return StoreFull(f"{place}: there is no room left for a copy: {way_out}")
    return StoreUnusable(place, f"no copy of it can be made ({error.strerror}): {way_out}")


def _header(place: str) -> bytes:
    """Of the log: another one each time that it begins again, and only then does what it held leave it."""
    try:
        with Path(f"{place}-wal").open("rb") as log:
            return log.read(_WAL_HEADER_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unread(place, "-wal", error) from error


def _shared(place: str) -> str:
    return f"{_uri(place)}?mode=ro&readonly_shm=1"


def _uri(place: str) -> str:
    return f"file://{quote(str(Path(place).absolute()))}"
