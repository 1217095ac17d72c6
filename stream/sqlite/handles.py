"""The one place where a file is opened as a database: what was open before a fork is not opened again behind it.

A forked child has none of its parent's locks, and a copy of SQLite's own list by which it has them all. So a connection
that it opens to the same file is guarded by nothing: its parent deletes the write-ahead log under it. The child is
told so before anything is written.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from stream.errors import StoreUnusable
from stream.home import FORK_WAY_OUT
from stream.sqlite.driver import ByName, connect, connect_as

Identity = tuple[int, int]
MEMORY: Final = ":memory:"
NAMELESS: Final = ""
"""By this SQLite opens a file that has no name in any folder, and is gone with its connection, also after a kill."""
_GONE: Final = (FileNotFoundError, NotADirectoryError)
_WAIT_FOR_TRIPS_S: Final = 1.0


class Handle(sqlite3.Connection):
    """A connection to a file or to memory that is known here until it is closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.busy = threading.Lock()
        """Held by whoever uses the connection, as far as that is short: a fork waits for it."""

    def close(self) -> None:
        """Closes it; what is closed binds no child."""
        with self.busy:
            super().close()
        _OPEN.pop(self, None)


class _HandleByName(Handle, ByName):
    """The same, on a Python that needs it."""


def open_handle(path: str, *, address: str | None = None, **options: Any) -> Handle:
    """A connection in autocommit, by the `address` of the file if it has another one than its path.

    Raises `StoreUnusable` for what this process must not open, since it was forked.
    """
    with _FORKING:
        check_fork(path)
        handle = connect_as(Handle, _HandleByName, address or path, **options)
        _OPEN[handle] = None if path in (MEMORY, NAMELESS) else identity_of(path)
    return handle


def is_open_here(path: str) -> bool:
    """Whether a connection of this process to the file is open."""
    identity = identity_of(path)
    return identity is not None and identity in _OPEN.values()


def open_at_rest(path: str) -> sqlite3.Connection:
    """Reads a file as it lies there, by itself: no lock is asked for, and nothing that lies beside it is looked at."""
    check_fork(path)
    return connect(f"file://{quote(str(Path(path).absolute()))}?mode=ro&immutable=1", uri=True)


def identity_of(path: str, unknown: Identity | None = None) -> Identity | None:
    """What a file is, whatever its name: None for one that is not there, `unknown` where that can't be told."""
    try:
        found = os.stat(path)  # noqa: PTH116 - it is asked at each commit
    except _GONE:
        return None
    except OSError:
        return unknown
    return found.st_dev, found.st_ino


def check_fork(path: str) -> None:
    """Raises `StoreUnusable` for a file that was open in the process that this one was forked from."""
    if _TORN:
        raise StoreUnusable(path, f"a statement of SQLite was running when this process was forked: {FORK_WAY_OUT}")
    if _INHERITED and identity_of(path) in _INHERITED:
        raise StoreUnusable(path, f"it was open in the process that this one was forked from: {FORK_WAY_OUT}")


_OPEN: Final[dict[Handle, Identity | None]] = {}
_INHERITED: Final[set[Identity]] = set()
_KEPT: Final[list[object]] = []
_FORKING: Final = threading.RLock()
_HELD: Final[list[Handle]] = []
_TORN: Final[list[str]] = []


def _before_fork() -> None:
    """A child in which a statement of another thread was cut off could wait for SQLite's own locks for ever."""
    _FORKING.acquire()
    deadline = time.monotonic() + _WAIT_FOR_TRIPS_S
    for handle in list(_OPEN):
        if handle.busy.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _HELD.append(handle)


def _after_in_parent() -> None:
    for handle in _HELD:
        handle.busy.release()
    _HELD.clear()
    _FORKING.release()


def _after_in_child() -> None:
    if len(_HELD) < len(_OPEN):
        _TORN.append("torn")
    _INHERITED.update(identity for identity in _OPEN.values() if identity is not None)
    for handle in _OPEN:
        _keep(handle)
    _OPEN.clear()
    _HELD.clear()
    _FORKING.release()


def _keep(handle: Handle) -> None:
    """For ever, beyond the end of the interpreter: closing it would fold back and delete a log that others write."""
    _KEPT.append(handle)
    try:
        import ctypes  # noqa: PLC0415 - only in a child that needs it

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
    except ImportError:
        pass  # SQLite is held back by its parent's locks, as long as that lives


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
