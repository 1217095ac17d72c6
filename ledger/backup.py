"""Backups of a ledger and its log in one file, and what every part of such a file should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream import StoreUnusable
from stream.opening import MEMORY, sqlite_path
from stream.sqlite import SqliteStore
from stream.sqlite import backup as files
from stream.sqlite.migrations import read_scripts

if TYPE_CHECKING:
    from ledger.ledger import Ledger


def known_scripts() -> dict[str, tuple[str, ...]]:
    """The scripts of all components a file may hold."""
    return {"stream": read_scripts("stream.sqlite"), "ledger": read_scripts("ledger")}


async def back_up(ledger: Ledger, target: str) -> int:
    """Copies log and ledger as one moment held them; see `stream.sqlite.backup.back_up`."""
    return await files.back_up(file_of(ledger).database.path, target)


async def restore(backup: str, url: str) -> str:
    """Makes a store at `url` of a backup and returns its incarnation; see `stream.sqlite.backup.restore`."""
    if url == MEMORY:
        raise _no_file()
    return await files.restore(backup, sqlite_path(url), known_scripts())


def file_of(ledger: Ledger) -> SqliteStore:
    """The log of a ledger that lies with it in one file. Raises `StoreUnusable` for any other."""
    store = ledger.store
    if not isinstance(store, SqliteStore):
        raise _no_file()
    if store.database is not ledger.tables.database:
        raise StoreUnusable(store.database.path, "the log has a file of its own: this is for a log and a ledger in one file")
    return store


def _no_file() -> StoreUnusable:
    return StoreUnusable("memory", "what is kept in memory has no file: name a database with --data")
