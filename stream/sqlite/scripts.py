"""The SQL files of a component, in order, and what marks a file as one of ours."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pkgutil import get_data
from typing import Final

APPLICATION_ID: Final = 0x5461696C  # "Tail", in the header of every Tailfold file
COMPONENTS: Final = "CREATE TABLE IF NOT EXISTS components (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"


def read_scripts(package: str) -> tuple[str, ...]:
    """The scripts of a package in order: `schema.sql` makes version 1, `schema_2.sql` version 2 of it, and so on.

    A script that was shipped never changes: files that it made are out there.
    """
    scripts: list[str] = []
    with suppress(FileNotFoundError):
        while True:
            version = len(scripts) + 1
            scripts.append(read_script(package, "schema.sql" if version == 1 else f"schema_{version}.sql"))
    return tuple(scripts)


def read_script(package: str, name: str) -> str:
    """The text of an SQL file that is shipped with a package. Raises `FileNotFoundError`."""
    data = get_data(package, name)  # not `importlib.resources`, which takes as long to import as all of this room
    if data is None:
        raise FileNotFoundError(f"{package} was installed without {name}")
    return data.decode()


def split(script: str) -> list[str]:
    """The statements of a script."""
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    return statements
