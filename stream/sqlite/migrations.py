"""Brings the tables of one component of a file to their newest form, after a backup of the old one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import StoreUnusable
from stream.sqlite.backup import write_copy
from stream.sqlite.files import discard, free_name
from stream.sqlite.scripts import APPLICATION_ID, COMPONENTS, split

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from stream.database import Sql
    from stream.sqlite.blocking import Connect

_DATA_TABLES: Final = """
SELECT name FROM sqlite_schema
WHERE type = 'table' AND name NOT IN ('components', 'store') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"""


class Migrated(NamedTuple):
    """From which version to which, and the copy that was made of the old file; None where it held nothing."""

    before: int
    now: int
    backup: str | None


async def migrate(
    sql: Sql,
    path: str,
    component: str,
    scripts: Sequence[str],
    connect: Connect,
    fill: Mapping[int, Callable[[Sql], Awaitable[None]]] | None = None,
) -> Migrated | None:
    """Applies `scripts[version:]`, where `version` is what the file holds of `component`; None where there are none.

    Behind the script of a version its job of `fill` runs, if there is one.

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
        return None
    kept = await _keep_old(sql, path, f"{component}-v{version}-backup", connect) if version else None
    try:
        for number, script in enumerate(scripts[version:], version + 1):
            for statement in split(script):
                await sql(statement)
            if fill is not None and number in fill:
                await fill[number](sql)
        await sql("DELETE FROM components WHERE name = ?", (component,))
        await sql("INSERT INTO components VALUES (?, ?)", (component, len(scripts)))
    except BaseException:
        if kept is not None:  # the file stays as it was: a copy at each attempt would fill the disk
            discard(kept)
        raise
    return Migrated(version, len(scripts), kept)


async def check_owner(sql: Sql, path: str) -> None:
    """Raises `StoreUnusable` for a database of another program, which stays as it is."""
    look = "SELECT application_id, EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_application_id"
    [(owner, has_tables)] = await sql(look)
    if owner != APPLICATION_ID and (owner or has_tables):
        raise StoreUnusable(path, "this is a database of another program: name another file")


async def _keep_old(sql: Sql, path: str, suffix: str, connect: Connect) -> str | None:
    """Copies the file while the transaction keeps everybody else from writing; None where there is nothing to keep.

    In the writer's thread: nobody of this process has anything to do there before the tables are in their newest form.
    """
    [(file,)] = await sql("SELECT file FROM pragma_database_list WHERE name = 'main'")  # a script may have opened "temp"
    tables = [name for (name,) in await sql(_DATA_TABLES)]
    if not file or not any([await sql(f'SELECT 1 FROM "{name}" LIMIT 1') for name in tables]):  # noqa: S608 - of our schema
        return None
    target = free_name(f"{path}.{suffix}")
    write_copy(connect, path, target)
    return target
