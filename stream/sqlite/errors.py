"""Turns what SQLite reports into what this package promises, in one place."""

from __future__ import annotations

import sqlite3
from typing import Final

from stream.errors import StoreBusy, StoreFull, StoreUnusable, StreamError

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNUSABLE: Final = {
    sqlite3.SQLITE_READONLY: "the file can't be written: give this user write access to it and to its folder",
    sqlite3.SQLITE_PERM: "the file can't be written: give this user write access to it and to its folder",
    sqlite3.SQLITE_CANTOPEN: "the file can't be opened: check that its folder exists and may be written",
    sqlite3.SQLITE_NOTADB: "this is no Tailfold database: name another file",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
}


FAILURES: Final = (sqlite3.Error, UnicodeDecodeError)
"""What a statement raises; the second where a damaged file has SQLite speak of what is no text."""


def is_busy(error: BaseException) -> bool:
    """Another connection holds the lock; nothing was written, so trying again is safe."""
    return _primary_code(error) in _BUSY


def translate(error: Exception, place: str) -> StreamError:
    """The error a caller gets for what a statement raised."""
    code = _primary_code(error)
    if code in _BUSY:
        return StoreBusy(f"{place}: another process held the lock too long, nothing was stored: try again")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{place}: there is no room left, nothing was stored: make room and try again")
    if code in _UNUSABLE:
        return StoreUnusable(place, _UNUSABLE[code])
    if code == sqlite3.SQLITE_IOERR:
        return StoreFull(f"{place}: the disk refused to write or read ({error}), nothing was stored: mend it and try again")
    # Our statements are right for our tables, so these are not what they were.
    return StoreUnusable(place, f"the file is damaged, or its tables are not ours ({error}): run `tailfold verify`")


def _primary_code(error: BaseException) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
