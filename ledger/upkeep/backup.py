"""Backups of a ledger and its log, in one file or in two, and what every part of such a file should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.errors import LogReplaced
from ledger.tables import logs
from ledger.tables.holds import hold
from stream import StoreUnusable
from stream.checks import check_name
from stream.opening import MEMORY, sqlite_path
from stream.sqlite import MEMORY as IN_MEMORY
from stream.sqlite import Database, SqliteStore
from stream.sqlite import backup as files
from stream.sqlite.files import discard
from stream.sqlite.place import absolute
from stream.sqlite.scripts import read_scripts
from stream.urls import is_meant_as_server, is_nats, is_server, shown_url

if TYPE_CHECKING:
    import sqlite3

    from ledger.engine import Engine


_TOOLS: Final = {
    "pg_dump": "pg_dump --format=custom --schema=NAME --file=FILE URL",
    "pg_restore": "pg_restore --dbname=URL FILE, into a database where the schema is not",
    "vacuumdb": "vacuumdb --dbname=URL; what is truncated is swept here all the time, and autovacuum gives its room back",
    "psql": "psql URL, then SET search_path = NAME; bodies are compressed there",
}


def known_scripts() -> dict[str, tuple[str, ...]]:
    """The scripts of all components a file may hold."""
    return {"stream": read_scripts("stream.sqlite"), "ledger": read_scripts("ledger.tables")}


async def back_up(engine: Engine, target: str, log_target: str | None) -> int:
    """See `Ledger.backup`."""
    check_name("target", target)
    if log_target is not None:
        check_name("log_target", log_target)
    for place in (target, log_target or ""):
        if is_meant_as_server(place):
            raise StoreUnusable(shown_url(place), "this is a server: name a file, or use `tailfold copy`")
    store, own = engine.store, engine.tables.database
    if not isinstance(store, SqliteStore) or not isinstance(own, Database) or own.path == IN_MEMORY:
        raise _no_file(engine, "pg_dump")
    target, log_target = absolute(target), None if log_target is None else absolute(log_target)
    own.check()
    store.database.check()
    if store.database is own:
        if log_target is not None:
            raise StoreUnusable(log_target, "log and ledger lie in one file: one copy holds both")
        return await _copy(own, target)
    if log_target is None:
        raise StoreUnusable(store.database.path, "the log has a file of its own: name a second copy for it")
    # The ledger first: what the log has beyond it is only to be taken in. So long nothing may leave the log.
    async with hold(engine.tables, None, 0):
        size_bytes = await _copy(own, target)
        try:
            return size_bytes + await _copy(store.database, log_target)
        except BaseException:
            discard(target)
            raise


async def _copy(database: Database, target: str) -> int:
    return await files.back_up(database.path, target, is_touched=not database.is_private_copy)


async def restore(backup: str, url: str, *, log_backup: str | None = None, log: str | None = None) -> str:
    """Makes a store at `url` of a backup and returns its incarnation; see `stream.sqlite.backup.restore`.

    With `log_backup` and `log` a ledger and its log in two files, both or none. Raises `LogReplaced` for two that do
    not belong together, `StoreUnusable` where one is missing.
    """
    if MEMORY in (url, log):
        raise _no_memory()
    for place in (url, log or ""):
        if is_server(place):
            raise _not_for_servers(shown_url(place), "pg_restore")
    target = sqlite_path(url)
    if log_backup is None or log is None:
        holds_log, holds_ledger = (files.holds(backup, name) for name in ("streams", "conversations"))
        if log_backup or log or (holds_ledger and not holds_log):
            raise StoreUnusable(backup, "a ledger and its log in two files are restored together: name both, and both places")
        return await files.restore(backup, target, known_scripts())
    known, found = files.read_value(backup, logs.KNOWN), files.incarnation_of(log_backup)
    if known != found:
        raise LogReplaced(str(known), str(found))
    log_path = sqlite_path(log)
    incarnation = await files.restore(log_backup, log_path, known_scripts())

    def know_log(copy: sqlite3.Connection) -> None:
        copy.execute(logs.REPLACE, (incarnation,))

    try:
        await files.restore(backup, target, known_scripts(), finish=know_log)
    except BaseException:
        discard(log_path)
        raise
    return incarnation


def file_of(engine: Engine, tool: str = "") -> SqliteStore:
    """The log of a ledger that lies with it in one file. Raises `StoreUnusable` for any other.

    `tool` is the one that does on a server what is to be done with the file.
    """
    store = engine.store
    if not isinstance(store, SqliteStore):
        raise _no_file(engine, tool)
    if store.database is not engine.tables.database:
        raise StoreUnusable(store.database.path, "the log has a file of its own: this is for a log and a ledger in one file")
    return store


def place_of(url: str, tool: str) -> str:
    """The path of the file at a URL. Raises `StoreUnusable` for other URLs; `tool` as for `file_of`."""
    if url == MEMORY:
        raise _no_memory()
    if is_server(url):
        raise _not_for_servers(shown_url(url), tool)
    return sqlite_path(url)


def _no_file(engine: Engine, tool: str) -> StoreUnusable:
    databases = [engine.tables.database, getattr(engine.store, "database", engine.tables.database)]
    on_server = [each.path for each in databases if each.dialect == "postgres"]
    on_server += [path] if (path := getattr(engine.store, "path", None)) else []
    return _not_for_servers(on_server[0], tool) if on_server else _no_memory()


def _not_for_servers(place: str, tool: str) -> StoreUnusable:
    if not tool:
        return StoreUnusable(place, "log and ledger lie apart, one of them on a server: this is for those that lie together")
    if is_nats(place):
        return StoreUnusable(place, "this is for files; on NATS its own tool does it: nats stream backup, restore, view")
    return StoreUnusable(place, f"this is for files; on a server {tool} does it: {_TOOLS[tool]}")


def _no_memory() -> StoreUnusable:
    return StoreUnusable("memory", "what is kept in memory has no file: name a database with --data")
