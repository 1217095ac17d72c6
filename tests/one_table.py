"""A database that holds one table of names, and a job that puts some there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stream.sqlite import Database, open_database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from stream.sqlite import Sql

TABLE: Final = "CREATE TABLE things (name TEXT) STRICT"
PUT: Final = "INSERT INTO things VALUES (?)"
ALL: Final = "SELECT name FROM things ORDER BY rowid"


async def open_table(path: Path | str) -> Database:
    database = await open_database(str(path), create=True)
    await database.write(lambda sql: sql(TABLE))
    return database


def put(*names: str) -> Callable[[Sql], Awaitable[list[Any]]]:
    async def job(sql: Sql) -> list[Any]:
        for name in names:
            await sql(PUT, (name,))
        return await sql(ALL)

    return job
