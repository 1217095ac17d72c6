"""Sweeps rows that lie below the floor, in slices, best effort: every reader looks at the floor."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from stream.errors import StoreClosed, StreamError
from stream.logger import Logger

if TYPE_CHECKING:
    from stream.database import Sql
    from stream.postgres.database import PostgresDatabase

_LOG: Final = Logger("tailfold.stream")
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


class Sweeper:
    """One sweep at a time; streams wait for their turn."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._resumed = False

    def sweep(self, stream_id: str) -> None:
        """Begins to sweep a stream, without waiting for it."""
        self._waiting[stream_id] = None
        self._start()

    def resume(self) -> None:
        """Sweeps what an earlier process has left."""
        self._resumed = True
        self._start()

    async def settled(self) -> None:
        """Waits until nothing is left to sweep."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Stops after the slice that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"tailfold sweeper of {self._database.path}")

    async def _run(self) -> None:
        try:
            if self._resumed:
                self._resumed = False
                await self._find_left()
            while self._waiting:
                stream_id, _ = self._waiting.popitem(last=False)
                try:
                    await self._sweep(stream_id)
                except StreamError:  # the next that is swept goes on with it
                    self._waiting[stream_id] = None
                    raise
        except StoreClosed:
            pass  # the next opening goes on
        except StreamError as error:
            _LOG.warning("stream.sweep_stopped", path=self._database.path, error=type(error).__name__)

    async def _sweep(self, stream_id: str) -> None:
        async def job(sql: Sql) -> int:
            return len(await sql(_SLICE, (stream_id, _SLICE_ROWS)))

        while await self._database.write(job) == _SLICE_ROWS:  # noqa: ASYNC110 - it rests between slices
            await asyncio.sleep(_PAUSE_S)

    async def _find_left(self) -> None:
        last = ""
        while rows := await self._database.read(_LEFT, (last,)):
            self._waiting.update((name, None) for (name,) in rows)
            last = rows[-1][0]
