"""A look at a file with SQL of one's own: nothing can be changed by it, and what lies compressed is shown as it was."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Final

from stream.compression import inflate, is_deflated
from stream.errors import StoreUnusable
from stream.sqlite.errors import translate
from stream.sqlite.handles import open_handle
from stream.sqlite.place import find_place
from stream.sqlite.untouched import untouched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Value = str | bytes | int | float | None

MOST_BYTES: Final = 256 * 1024 * 1024
"""What is unpacked at most; more is taken for damaged."""
_WAIT_S: Final = 5.0
_MALFORMED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN})
_ONLY_READING: Final = "nothing but reading is done here, and of this file alone: ask with SELECT, EXPLAIN or PRAGMA table_info"
_READING: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_PRAGMAS: Final = frozenset(
    {"table_list", "table_info", "table_xinfo", "index_list", "index_info", "foreign_key_list", "page_count", "freelist_count"}
)
_COMPRESSED: Final = {
    "chunks": {"data": "unzip(data) AS data"},
    "snapshots": {"envelope": "unzip(envelope, 32) AS envelope"},  # behind its digest
}


@contextmanager
def open_inspection(
    path: str,
    log: str | None = None,
    *,
    prepare: Callable[[sqlite3.Connection], object] = lambda _: None,
    is_touched: bool = True,
) -> Iterator[sqlite3.Connection]:
    """A connection that only reads; `log` is a second file, whose tables are there, too.

    What is compressed is shown unpacked by views of the tables' own names; `main.chunks` is as it lies. SQL has `unzip(data)`
    for the rest. `prepare` adds what others keep in the file. Files of every version are read as they are, none is migrated.
    Unless it `is_touched`, nothing is written beside the file either. Raises `StoreUnusable`, also for a statement that SQLite
    does not take or that would change something, and `StoreBusy`.
    """
    places = [find_place(each, create=False, is_touched=is_touched) for each in (path, log) if each is not None]
    with ExitStack() as stack:
        addresses = places if is_touched else [stack.enter_context(untouched(place)) for place in places]
        connection = open_handle(places[0], address=addresses[0], timeout=_WAIT_S, uri=not is_touched)
        stack.enter_context(closing(connection))
        yield from _inspect(connection, path, addresses[1:], prepare)


def _inspect(
    connection: sqlite3.Connection, path: str, others: Sequence[str], prepare: Callable[[sqlite3.Connection], object]
) -> Iterator[sqlite3.Connection]:
    try:
        connection.text_factory = lambda data: data.decode(errors="backslashreplace")
        for log in others:
            connection.execute("ATTACH ?1 AS log", (log,))
        for arguments in (1, 2):
            connection.create_function("unzip", arguments, unzip, deterministic=True)
        for table, columns in _COMPRESSED.items():
            shadow(connection, table, columns)
        prepare(connection)
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(_only_reading)
        yield connection
    except (sqlite3.Error, sqlite3.Warning) as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in _MALFORMED:
            raise translate(error, path) from error
        why = _ONLY_READING if code == sqlite3.SQLITE_AUTH else f"SQLite does not take this: {error}"
        raise StoreUnusable(path, why) from error


def shadow(connection: sqlite3.Connection, table: str, columns: Mapping[str, str]) -> None:
    """Has a view take the place of a table that has these columns: each is shown as its expression says, if it has one."""
    for schema in [row[1] for row in connection.execute("PRAGMA database_list")]:
        names = [row[1] for row in connection.execute(f"PRAGMA {schema}.table_info({table})")]
        if schema != "temp" and names and set(columns) <= set(names):
            shown = ", ".join(text for name in names if (text := columns.get(name, f'"{name}"')))
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {shown} FROM {schema}.{table}")  # noqa: S608 - constants
            return


def unzip(data: Value, behind: Value = 0) -> Value:
    """What was compressed behind so many bytes, with those; what was not as it is, and None for what is damaged."""
    if not isinstance(data, bytes) or not isinstance(behind, int) or not is_deflated(data[behind:]):
        return data
    try:
        return data[:behind] + inflate(data[behind:], max_bytes=MOST_BYTES)
    except ValueError:
        return None


def _only_reading(action: int, name: str | None, *_: str | None) -> int:
    may = action in _READING or (action == sqlite3.SQLITE_PRAGMA and name in _PRAGMAS)
    return sqlite3.SQLITE_OK if may else sqlite3.SQLITE_DENY


def column_names(cursor: sqlite3.Cursor) -> Sequence[str]:
    """Of the rows of a statement; none where it gives no rows."""
    return [name for name, *_ in cursor.description or ()]
