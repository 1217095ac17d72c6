"""Copies of a whole file at rest, and stores made of them again."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stream.errors import StoreFull, StoreUnusable, StreamError
from stream.sqlite.blocking import Connect, run_blocking
from stream.sqlite.errors import FAILURES, translate
from stream.sqlite.files import SIDES, create_whole, refusal
from stream.sqlite.handles import open_at_rest
from stream.sqlite.integrity import check_file
from stream.sqlite.log_integrity import check_snapshots, check_streams
from stream.sqlite.place import absolute, check_path
from stream.sqlite.scripts import APPLICATION_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from stream.database import Row

_TOTALS: Final = "SELECT count(*), coalesce(sum(head), 0), coalesce(sum(floor), 0) FROM streams"
_MAX_TOLD: Final = 3
_SYNC_BYTES: Final = 1024 * 1024
_SYNC_STEPS: Final = 100
_NO_ROOM: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})


async def back_up(path: str, target: str, *, is_touched: bool = True) -> int:
    """Writes a consistent copy of the file at `path` to `target` while others write; returns its size in bytes.

    The copy holds what one moment held, without freed pages, in one file and under the same incarnation. It is
    synced and read back before it gets its name, so `target` is whole or absent. Raises `StoreUnusable` for a
    target that exists or can't be written and for a damaged store, `StoreFull`, and `StoreBusy`. Unless it `is_touched`, the
    file is read without a trace.
    """
    path, target = absolute(path), absolute(target)
    # VACUUM INTO reads one snapshot and can be interrupted. SQLite's online backup begins again whenever somebody
    # else has written, unless it copies in one step that nothing can stop.
    return await run_blocking(lambda connect: write_copy(connect, path, target, is_touched=is_touched))


async def restore(
    backup: str, target: str, known: Mapping[str, Sequence[str]], *, finish: Callable[[sqlite3.Connection], None] | None = None
) -> str:
    """Makes a store at `target` of a backup, which stays untouched; returns the incarnation minted for it.

    `known` holds the scripts of every component; an older backup is restored as it is and migrated when it is
    opened. All of the copy is checked, and `finish` is called with it, before it gets its name. Raises `StoreUnusable`
    for a backup that is damaged, newer or none, and for a target that is taken; `StoreFull`, `StoreBusy`.
    """
    backup, target = absolute(backup), absolute(target)
    return await run_blocking(lambda connect: _restore(connect, backup, target, known, finish))


def holds(path: str, table: str) -> bool:
    """Whether a file at rest has a table of this name."""
    return read_value(path, "SELECT 1 FROM sqlite_schema WHERE name = ?1", (table,)) is not None


def incarnation_of(path: str) -> object:
    """The incarnation of the store in a file at rest; None for a file without one."""
    return read_value(path, "SELECT incarnation FROM store")


def read_value(path: str, text: str, parameters: Sequence[object] = ()) -> object:
    """One value of a file at rest; None for a file that does not tell, which its own check names."""
    path = absolute(path)
    if not Path(path).is_file():
        return None
    try:
        with closing(open_at_rest(path)) as connection:
            row = connection.execute(text, parameters).fetchone()
    except FAILURES as error:
        if "no such table" in str(error):
            return None
        raise translate(error, path) from error
    return None if row is None else row[0]


def write_copy(connect: Connect, path: str, target: str, *, is_touched: bool = True) -> int:
    """As `back_up`, in this thread."""
    with create_whole(target, mode=Path(path).stat().st_mode & 0o777) as partial:
        try:
            with (connect if is_touched else connect.untouched)(path) as source, _syncing(source, partial):
                before = _totals(source)
                source.execute("VACUUM INTO ?", (partial,))
                after = _totals(source)
            with connect(partial) as copy:
                _check_copy(copy, path, before, after)
        except sqlite3.Error as error:
            raise _told(error, path, target) from error
        return Path(partial).stat().st_size


@contextmanager
def _syncing(source: sqlite3.Connection, partial: str) -> Iterator[None]:
    """Syncs the copy piece by piece: all of it at once would hold up the commits of others on the same disk."""
    descriptor = os.open(partial, os.O_RDWR)
    synced_bytes = 0

    def sync() -> None:
        nonlocal synced_bytes
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes > synced_bytes + _SYNC_BYTES:
            os.fdatasync(descriptor)
            synced_bytes = size_bytes

    source.set_progress_handler(sync, _SYNC_STEPS)
    try:
        yield
    finally:
        source.set_progress_handler(None, 0)
        os.close(descriptor)


def _totals(connection: sqlite3.Connection) -> Row:
    has_log = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'streams'").fetchone()
    return tuple(connection.execute(_TOTALS).fetchone()) if has_log else ()


def _check_copy(copy: sqlite3.Connection, path: str, before: Row, after: Row) -> None:
    """Heads and floors only rise, so those of the copy lie between what was there before and after."""
    problems = [what for (what,) in copy.execute("PRAGMA quick_check(1)") if what != "ok"]
    held = _totals(copy)
    if problems or not all(low <= here <= high for low, here, high in zip(before, held, after, strict=True)):
        why = problems[0] if problems else f"it holds {held}, the store {before} to {after}"
        raise StoreUnusable(path, f"its copy does not read back ({why}): run `tailfold verify`")


def _told(error: sqlite3.Error, path: str, target: str) -> StreamError:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code in _NO_ROOM:
        return StoreFull(f"{target}: there is no room left for it, nothing was made: make room or name another place")
    return translate(error, path)


def _restore(
    connect: Connect,
    backup: str,
    target: str,
    known: Mapping[str, Sequence[str]],
    finish: Callable[[sqlite3.Connection], None] | None,
) -> str:
    _check_backup(backup)
    incarnation = secrets.token_hex(16)
    with create_whole(target, mode=Path(backup).stat().st_mode & 0o777) as partial:
        _copy(backup, partial)
        try:
            with connect(partial) as copy:
                _check_restored(copy, backup, known)
                copy.execute("PRAGMA journal_mode = DELETE")  # all in this file when the statement below returns
                copy.execute("PRAGMA synchronous = FULL")
                if copy.execute("SELECT 1 FROM sqlite_schema WHERE name = 'store'").fetchone():  # it holds a log
                    copy.execute("UPDATE store SET incarnation = ?", (incarnation,))
                if finish is not None:
                    finish(copy)
        except sqlite3.Error as error:
            raise _told(error, backup, target) from error
    return incarnation


def _check_backup(backup: str) -> None:
    """A store that is open, or was not closed, has a part of its events beside the file."""
    check_path(backup)
    path = Path(backup)
    try:
        if not path.exists():
            raise StoreUnusable(backup, "there is no such file: name a backup")
        if not path.is_file():
            raise StoreUnusable(backup, "this is no file: name a backup")
        if not path.stat().st_size:
            raise StoreUnusable(backup, "the file is empty: name a backup")
        if any(Path(f"{backup}{side}").exists() for side in SIDES):
            raise StoreUnusable(
                backup, f"this store is in use or was not closed: copy it with `tailfold --data {backup} backup TARGET`"
            )
    except OSError as error:
        raise _unreadable(error, backup) from error


def _copy(backup: str, partial: str) -> None:
    try:
        source = Path(backup).open("rb")  # noqa: SIM115 - closed below; a failure to read is not one to write
    except OSError as error:
        raise _unreadable(error, backup) from error
    with source, Path(partial).open("r+b") as copy:
        try:
            shutil.copyfileobj(source, copy, 1024 * 1024)
        except OSError as error:
            raise refusal(error, partial.removesuffix(".partial")) from error


def _check_restored(copy: sqlite3.Connection, backup: str, known: Mapping[str, Sequence[str]]) -> None:
    if copy.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise StoreUnusable(backup, "this is no backup of a Tailfold database: name another file")
    for component, version in copy.execute("SELECT name, version FROM components").fetchall():
        if version > len(known.get(component, ())):
            raise StoreUnusable(
                backup, f"its {component} tables have version {version}, which this Tailfold does not know: upgrade Tailfold"
            )
    faults = [*check_file(copy, known)]
    if not faults:  # rows of a broken file tell nothing new
        faults = [*islice(check_streams(copy), _MAX_TOLD + 1), *islice(check_snapshots(copy), _MAX_TOLD + 1)]
    if faults:
        told = "; ".join(fault.what for fault in faults[:_MAX_TOLD]) + ("; and more" if len(faults) > _MAX_TOLD else "")
        raise StoreUnusable(backup, f"it is damaged ({told}): nothing was made, restore another backup")


def _unreadable(error: OSError, backup: str) -> StoreUnusable:
    return StoreUnusable(backup, f"the file can't be read ({error.strerror}): give this user access to it")
