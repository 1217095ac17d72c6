"""The SQL files of a component, in order, and what marks a file as one of ours."""

from __future__ import annotations

import itertools
import sqlite3
from importlib.resources import files
from typing import Final

APPLICATION_ID: Final = 0x5461696C  # "Tail", in the header of every Tailfold file
COMPONENTS: Final = "CREATE TABLE IF NOT EXISTS components (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"


def read_scripts(package: str) -> tuple[str, ...]:
    """The scripts of a package in order: `schema.sql` makes version 1, `schema_2.sql` version 2 of it, and so on.

    A script that was shipped never changes: files that it made are out there.
    """
    names = itertools.chain(["schema.sql"], (f"schema_{version}.sql" for version in itertools.count(2)))
    there = itertools.takewhile(lambda name: files(package).joinpath(name).is_file(), names)
    return tuple(read_script(package, name) for name in there)


def read_script(package: str, name: str) -> str:
    """The text of an SQL file that is shipped with a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def split(script: str) -> list[str]:
    """The statements of a script."""
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    return statements
