"""Looks at a path before SQLite does, and whether what was opened there is still there."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
import zlib
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from stream.errors import StoreUnusable
from stream.sqlite.handles import check_fork, identity_of, open_at_rest

_WAY_OUT: Final = "name the database with --data, or make one with `tailfold play`"
_LOOK_EVERY_S: Final = 0.1
_WAL_HEADER_BYTES: Final = 32
_WAL_MAGIC: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")


def find_place(path: str, *, create: bool, is_touched: bool = True) -> str:
    """The whole path of a database of ours, without symbolic links: one file has one name, wherever the program goes.

    What a killed program left at its making is cleaned away, unless nothing `is_touched`.

    Raises `StoreUnusable` for a path that can't be, or without `create` is not, a database of ours: also for a file of
    several names, and for one beside the write-ahead log of another.
    """
    check_path(path)
    try:
        place = os.path.realpath(absolute(path))
        check_path(place)
        found = Path(place).stat()
    except FileNotFoundError:
        _check_missing(Path(place), path, create=create)
    except OSError as error:
        why = f"the file can't be reached ({error.strerror}): give this user access to its folder"
        raise StoreUnusable(path, why) from error
    else:
        _check_present(place, path, found, create=create, is_touched=is_touched)
    check_fork(place)
    _check_log_beside(place, path)
    return place


def can_be_written(path: str) -> bool:
    """Whether this user may write the file, what lies beside it, and into their folder, as a database needs it."""
    try:
        place = os.path.realpath(path)
        present = [name for name in (place, f"{place}-wal", f"{place}-journal", f"{place}-shm") if os.path.lexists(name)]
        return os.access(Path(place).parent, os.W_OK | os.X_OK) and all(os.access(name, os.W_OK) for name in present)
    except (OSError, ValueError):  # this is no path: opening it says so
        return True


def stamp_of(place: str) -> int:
    """What a file keeps of its whole path, so that of several names one can be told as its own. Never 0, which is none."""
    return zlib.crc32(place.encode()) // 2 + 1


def check_path(path: str) -> None:
    """Raises `StoreUnusable` for a path that no file can have, or that says something else than a file's name."""
    if not path:
        raise StoreUnusable("''", "an empty path names no file: name one")
    if "\0" in path:
        raise StoreUnusable(repr(path), "a path holds no NUL: name another file")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise StoreUnusable(ascii(path), "this is no path in UTF-8: name another file") from error
    if path.startswith("file:"):
        raise StoreUnusable(path, f"a URI of SQLite is not taken: give the path alone, or ./{path} for a file of this name")


def absolute(path: str) -> str:
    """The path from the root on, whatever folder the program goes to later; what is no path stays as it is, to be refused."""
    if not path or os.path.isabs(path):  # noqa: PTH117 - what is no path, too
        return path
    try:
        return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - nothing is folded: `..` may lead through a link
    except FileNotFoundError as error:
        raise StoreUnusable(path, "the folder of this program is gone: name the whole path") from error


class Presence:
    """The file of an open database and those that SQLite keeps beside it, by what they are and not by their names."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names = [path, f"{path}-wal", f"{path}-shm"]
        self._known = [identity_of(name) for name in self._names]
        self._missed: str | None = None
        self._next_look = 0.0

    def check(self) -> None:
        """Raises `StoreUnusable` where one of them is not what it was: nobody would find what is written there.

        What was missed once stays missed: somebody else may have opened it under its other name meanwhile.
        """
        if self._missed is None:
            for number, (name, known) in enumerate(zip(self._names, self._known, strict=True)):
                found = identity_of(name, known)
                if known is None:
                    self._known[number] = found  # the log comes into being with the first commit
                elif found != known:
                    self._missed = name
                    break
            else:
                return
        raise StoreUnusable(
            self._path,
            f"{Path(self._missed).name} was moved, deleted or replaced while it was open, so what is written now would be "
            "lost: close this, put the file back if it was moved, and open it again",
        )

    def look(self) -> None:
        """As `check`, now and then: often enough for who only reads."""
        now = time.monotonic()
        if now >= self._next_look or self._missed is not None:
            self._next_look = now + _LOOK_EVERY_S
            self.check()


def _check_missing(file: Path, path: str, *, create: bool) -> None:
    if not create:
        raise StoreUnusable(path, f"there is no such file: {_WAY_OUT}")
    if not file.parent.is_dir():
        raise StoreUnusable(path, "its folder does not exist: make it first")


def _check_present(place: str, path: str, found: os.stat_result, *, create: bool, is_touched: bool) -> None:
    # Never opened here: closing a file drops all the locks that this process has on it, those of SQLite too. Another
    # process would then take itself for the last one, and delete the write-ahead log under us.
    if stat.S_ISDIR(found.st_mode):
        raise StoreUnusable(path, "this is a folder: name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnusable(path, "this is no regular file: name another one")
    if not os.access(place, os.R_OK):
        raise StoreUnusable(path, "the file can't be read: give this user access to it")
    if not create and not found.st_size:
        raise StoreUnusable(path, f"the file is empty: {_WAY_OUT}")
    is_own = found.st_nlink <= 1 or _read(place, "PRAGMA user_version") == stamp_of(place)
    if not is_own and not _lets_go_of_draft(place, found, is_touched=is_touched):
        raise StoreUnusable(
            path,
            f"the file has {found.st_nlink} names (hard links), and under each it would have a write-ahead log of its own: "
            "open it under the name that it had first, or copy it and use the copy; a symbolic link is fine",
        )


def _lets_go_of_draft(place: str, found: os.stat_result, *, is_touched: bool) -> bool:
    """Whether the second name was that of its making, by one that was killed right after it had made the file."""
    draft = Path(f"{place}.partial")
    if found.st_nlink != 2 or identity_of(str(draft)) != (found.st_dev, found.st_ino):
        return False
    if not is_touched:
        return True
    with suppress(OSError):
        draft.unlink(missing_ok=True)
    return Path(place).stat().st_nlink == 1


def _check_log_beside(place: str, path: str) -> None:
    """SQLite deletes the log beside an empty database, and writes that of another one into this."""
    log = Path(f"{place}-wal")
    header = b""
    with suppress(OSError):
        if log.is_file():
            with log.open("rb") as file:  # no lock of SQLite's lies on it
                header = file.read(_WAL_HEADER_BYTES)
    if not header:
        return
    if not Path(place).exists() or not Path(place).stat().st_size:  # after the log: it comes into being before that does
        raise StoreUnusable(
            path,
            f"there is no database, but {log.name} beside it holds what was written to one: "
            "put the database back that it belongs to, or move the log away",
        )
    page_bytes, held = int.from_bytes(header[8:12], "big"), _read(place, "PRAGMA page_size")
    if header[:4] in _WAL_MAGIC and held and page_bytes != held:
        raise StoreUnusable(
            path,
            f"{log.name} beside it is of another database (its pages have {page_bytes} bytes, here {held}): "
            "put the database back that it belongs to, or move the log away",
        )


def _read(place: str, pragma: str) -> int:
    """As the file itself says, without the log beside it; 0 where it does not tell, and SQLite will say why."""
    try:
        with closing(open_at_rest(place)) as connection:
            connection.execute("PRAGMA schema_version")  # before the first look at the file the next one guesses
            return int(connection.execute(pragma).fetchone()[0])
    except sqlite3.Error:
        return 0
