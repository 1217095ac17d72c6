"""Looks through a whole file for what should not be: damaged pages, lost references, a schema that is not ours."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.sqlite.driver import connect
from stream.sqlite.scripts import COMPONENTS, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MAX_PAGE_FAULTS: Final = 20
_OBJECTS: Final = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})  # the last: no such table


class Fault(NamedTuple):
    """`kind` is one word; `stream_id` is empty for what concerns the whole file."""

    stream_id: str
    kind: str
    what: str


def check_file(connection: sqlite3.Connection, known: Mapping[str, Sequence[str]]) -> Iterator[Fault]:
    """Damaged pages and indexes, references to nothing, and tables or triggers other than those we ship.

    `known` holds the scripts of every component; the file is held against those of the versions it has.
    """
    yield from telling(_check_file(connection, known), Fault("", "file", "the file is damaged"))


def telling(faults: Iterator[Fault], last: Fault) -> Iterator[Fault]:
    """The same faults, and `last` with the reason where damage keeps from looking further."""
    try:
        yield from faults
    except sqlite3.DatabaseError as error:
        if ((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF) not in _DAMAGE:
            raise
        yield last._replace(what=f"{last.what} ({error})")
    except (TypeError, ValueError) as error:  # a damaged row may hold anything
        yield last._replace(what=f"{last.what} ({error})")


def versions(connection: sqlite3.Connection) -> dict[str, int]:
    """The components of a file and the versions of their tables."""
    return dict(connection.execute("SELECT name, version FROM components").fetchall())


def _check_file(connection: sqlite3.Connection, known: Mapping[str, Sequence[str]]) -> Iterator[Fault]:
    for (what,) in connection.execute(f"PRAGMA integrity_check({_MAX_PAGE_FAULTS})"):
        if what != "ok":
            yield Fault("", "file", f"integrity check: {' '.join(what.split())}")
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield Fault("", "reference", f"row {row} of {table} belongs to a row of {parent} that is not there")
    yield from _check_schema(connection, known)
    if "stream" in versions(connection) and connection.execute("SELECT count(*) FROM store").fetchone() != (1,):
        yield Fault("", "schema", "the store does not say which incarnation it is")


def _check_schema(connection: sqlite3.Connection, known: Mapping[str, Sequence[str]]) -> Iterator[Fault]:
    """What the scripts make of an empty database is what the file must have."""
    connection.execute("BEGIN")  # a migration that another process makes is seen with its version, or not at all
    try:
        present_versions = versions(connection)
        present = {(kind, name): sql for kind, name, sql in connection.execute(_OBJECTS)}
    finally:
        if connection.in_transaction:  # an error of the disk has ended it
            connection.execute("COMMIT")
    with closing(connect(":memory:")) as model:
        model.execute(COMPONENTS)
        for component, version in present_versions.items():
            for script in known.get(component, ())[:version]:
                for statement in split(script):
                    model.execute(statement)
        expected = {(kind, name): sql for kind, name, sql in model.execute(_OBJECTS)}
    for kind, name in sorted(expected.keys() - present.keys()):
        yield Fault("", "schema", f"{kind} {name} is missing")
    for kind, name in sorted(present.keys() - expected.keys()):
        yield Fault("", "schema", f"{kind} {name} is none of ours")
    for kind, name in sorted(key for key in expected.keys() & present.keys() if expected[key] != present[key]):
        yield Fault("", "schema", f"{kind} {name} was changed")
