"""Looks at a path before SQLite does, so that nothing of a wrong one is touched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from stream.errors import StoreUnusable

_WAY_OUT: Final = "name the database with --data, or make one with `tailfold play`"


def check_place(path: str, *, create: bool) -> None:
    """Raises `StoreUnusable` for a path that can't be, or without `create` is not, a database of ours."""
    if "\0" in path:
        raise StoreUnusable(repr(path), "a path holds no NUL: name another file")
    file = Path(path)
    try:
        file.stat()
    except FileNotFoundError:
        _check_missing(file, path, create=create)
    except OSError as error:
        why = f"the file can't be reached ({error.strerror}): give this user access to its folder"
        raise StoreUnusable(path, why) from error
    else:
        _check_present(file, path, create=create)


def _check_missing(file: Path, path: str, *, create: bool) -> None:
    if not create:
        raise StoreUnusable(path, f"there is no such file: {_WAY_OUT}")
    if not file.absolute().parent.is_dir():
        raise StoreUnusable(path, "its folder does not exist: make it first")


def _check_present(file: Path, path: str, *, create: bool) -> None:
    # Never opened here: closing a file drops all the locks that this process has on it, those of SQLite too. Another
    # process would then take itself for the last one, and delete the write-ahead log under us.
    if file.is_dir():
        raise StoreUnusable(path, "this is a folder: name a file in it")
    if not os.access(file, os.R_OK):
        raise StoreUnusable(path, "the file can't be read: give this user access to it")
    if not create and not file.stat().st_size:
        raise StoreUnusable(path, f"the file is empty: {_WAY_OUT}")
