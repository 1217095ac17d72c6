"""Brings the tables of one component of a file to their newest form."""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from stream.errors import StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import aiosqlite

APPLICATION_ID: Final = 0x5461696C  # "Tail", in the header of every Tailfold file

_COMPONENTS: Final = "CREATE TABLE IF NOT EXISTS components (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"


async def migrate(sql: Callable[..., Awaitable[list[Any]]], path: str, component: str, scripts: Sequence[str]) -> None:
    """Applies `scripts[version:]`, where `version` is what the file holds of `component`; 0 for a new one.

    To be run in one transaction: many processes may do so at once. Raises `StoreUnusable` for a version that is
    newer than this program.
    """
    if await sql("PRAGMA application_id") != [(APPLICATION_ID,)]:  # opening a file that is up to date writes nothing
        await sql(f"PRAGMA application_id = {APPLICATION_ID}")
    await sql(_COMPONENTS)
    rows = await sql("SELECT version FROM components WHERE name = ?", (component,))
    version = rows[0][0] if rows else 0
    if version > len(scripts):
        raise StoreUnusable(
            path,
            f"its {component} tables have version {version}, this Tailfold knows {len(scripts)}: upgrade Tailfold",
        )
    for script in scripts[version:]:
        for statement in _split(script):
            await sql(statement)
    if version < len(scripts):
        await sql("DELETE FROM components WHERE name = ?", (component,))
        await sql("INSERT INTO components VALUES (?, ?)", (component, len(scripts)))


async def check_owner(connection: aiosqlite.Connection, path: str) -> None:
    """Raises `StoreUnusable` for a database of another program, which stays as it is."""
    look = "SELECT application_id, EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_application_id"
    [(owner, has_tables)] = await connection.execute_fetchall(look)
    if owner != APPLICATION_ID and (owner or has_tables):
        raise StoreUnusable(path, "this is a database of another program: name another file")


def read_script(package: str, name: str) -> str:
    """The text of an SQL file that is shipped with a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _split(script: str) -> list[str]:
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    return statements
