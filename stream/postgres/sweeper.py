"""Sweeps the appends that lie below the floor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from stream.tables.sweeper import TableSweeper

if TYPE_CHECKING:
    from stream.database import Sql
    from stream.postgres.database import PostgresDatabase

_SLICE_ROWS: Final = 500
_PAUSE_S: Final = 0.005
_SLICE: Final = """
DELETE FROM appends AS a USING streams AS s
WHERE s.name = ?1 AND a.stream = s.id AND a.last <= s.floor AND a.last IN (
  SELECT b.last FROM appends AS b WHERE b.stream = s.id AND b.last <= s.floor ORDER BY b.last LIMIT ?2)
RETURNING 1"""
_LEFT: Final = """
SELECT name FROM streams AS s WHERE name > ?1 AND floor > 0 AND EXISTS (
  SELECT 1 FROM appends AS t WHERE t.stream = s.id AND t.last <= s.floor) ORDER BY name LIMIT 500"""


class Sweeper(TableSweeper):
    """Deletes appends."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database.path)
        self._database = database

    async def _sweep(self, stream_id: str) -> None:
        async def job(sql: Sql) -> int:
            return len(await sql(_SLICE, (stream_id, _SLICE_ROWS)))

        while await self._database.write(job) == _SLICE_ROWS:  # noqa: ASYNC110 - it rests between slices
            await asyncio.sleep(_PAUSE_S)

    async def _find_left(self) -> list[str]:
        left = [""]
        while rows := await self._database.read(_LEFT, (left[-1],)):
            left += [name for (name,) in rows]
        return left[1:]
