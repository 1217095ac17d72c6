"""Brings the tables of one component of a file to their newest form, after a backup of the old one."""

from __future__ import annotations

import itertools
import sqlite3
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import structlog

from stream.errors import StoreUnusable
from stream.sqlite.files import discard, free_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import aiosqlite

APPLICATION_ID: Final = 0x5461696C  # "Tail", in the header of every Tailfold file
COMPONENTS: Final = "CREATE TABLE IF NOT EXISTS components (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"

_LOG: Final = structlog.get_logger("tailfold.stream")
_DATA_TABLES: Final = """
SELECT name FROM sqlite_schema
WHERE type = 'table' AND name NOT IN ('components', 'store') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"""


async def migrate(sql: Callable[..., Awaitable[list[Any]]], path: str, component: str, scripts: Sequence[str]) -> None:
    """Applies `scripts[version:]`, where `version` is what the file holds of `component`; 0 for a new one.

    To be run in one transaction: of many processes that open an old file one migrates it and the others wait. Before
    tables with data are changed the file is copied to `PATH.COMPONENT-vN-backup`; a copy that is there stays. Raises
    `StoreUnusable` for a version that is newer than this program or if the copy can't be made, `StoreFull`.
    """
    if await sql("PRAGMA application_id") != [(APPLICATION_ID,)]:  # opening a file that is up to date writes nothing
        await sql(f"PRAGMA application_id = {APPLICATION_ID}")
    await sql(COMPONENTS)
    rows = await sql("SELECT version FROM components WHERE name = ?", (component,))
    version = rows[0][0] if rows else 0
    if version > len(scripts):
        raise StoreUnusable(
            path,
            f"its {component} tables have version {version}, this Tailfold knows {len(scripts)}: upgrade Tailfold",
        )
    if version == len(scripts):
        return
    kept = await _keep_old(sql, path, f"{component}-v{version}-backup") if version else None
    try:
        for script in scripts[version:]:
            for statement in split(script):
                await sql(statement)
        await sql("DELETE FROM components WHERE name = ?", (component,))
        await sql("INSERT INTO components VALUES (?, ?)", (component, len(scripts)))
    except BaseException:
        if kept is not None:  # the file stays as it was: a copy at each attempt would fill the disk
            discard(kept)
        raise
    if version:
        _LOG.info("stream.migrated", path=path, component=component, before=version, now=len(scripts), backup=kept)


async def check_owner(connection: aiosqlite.Connection, path: str) -> None:
    """Raises `StoreUnusable` for a database of another program, which stays as it is."""
    look = "SELECT application_id, EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_application_id"
    [(owner, has_tables)] = await connection.execute_fetchall(look)
    if owner != APPLICATION_ID and (owner or has_tables):
        raise StoreUnusable(path, "this is a database of another program: name another file")


def read_script(package: str, name: str) -> str:
    """The text of an SQL file that is shipped with a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def read_scripts(package: str) -> tuple[str, ...]:
    """The scripts of a package in order: `schema.sql` makes version 1, `schema_2.sql` version 2 of it, and so on.

    A script that was shipped never changes: files that it made are out there.
    """
    names = itertools.chain(["schema.sql"], (f"schema_{version}.sql" for version in itertools.count(2)))
    there = itertools.takewhile(lambda name: files(package).joinpath(name).is_file(), names)
    return tuple(read_script(package, name) for name in there)


def split(script: str) -> list[str]:
    """The statements of a script."""
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    return statements


async def _keep_old(sql: Callable[..., Awaitable[list[Any]]], path: str, suffix: str) -> str | None:
    """Copies the file while the transaction keeps everybody else from writing; None where there is nothing to keep."""
    from stream.sqlite.backup import back_up  # noqa: PLC0415 - it looks for what this module calls ours

    [(_, _, file)] = await sql("PRAGMA database_list")
    tables = [name for (name,) in await sql(_DATA_TABLES)]
    if not file or not any([await sql(f'SELECT 1 FROM "{name}" LIMIT 1') for name in tables]):  # noqa: S608 - of our schema
        return None
    target = free_name(f"{path}.{suffix}")
    await back_up(path, target)
    return target
