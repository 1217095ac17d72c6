"""Sweeps rows that lie below the floor, in small slices between the appends."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from stream.sqlite.batch_packing import pack_batches
from stream.sqlite.batches import OF_KEYS, OF_STREAM, heads_of
from stream.tables.sweeper import TableSweeper

if TYPE_CHECKING:
    from stream.database import Sql
    from stream.sqlite.database import Database

_FIRST_SLICE_ROWS: Final = 32
_MIN_SLICE_ROWS: Final = 8
_MAX_SLICE_ROWS: Final = 512
_SLICE_S: Final = 0.002  # an append that meets a slice waits so long for it
_MIN_PAUSE_S: Final = 0.001
_TABLES: Final = ("appends", "chunks")
_SLICE_BYTES: Final = 1024 * 1024
_SLICE: Final = """
DELETE FROM {table} WHERE pos IN (
  SELECT pos FROM (
    SELECT t.pos, sum(length(t.data)) OVER (ORDER BY t.last) - length(t.data) AS before
    FROM streams AS s JOIN {table} AS t ON t.stream = s.id AND t.last <= s.floor
    WHERE s.name = ?1 AND s.guard = 3 * (s.head % 1000003) + 5 * (s.floor % 1000003) + 7 * (s.origin % 1000003)
    ORDER BY t.last LIMIT ?2)
  WHERE before < ?3)
RETURNING 1"""
_IN_BATCHES: Final = f"""
SELECT count(*) FROM ({OF_STREAM}) AS b JOIN streams AS s ON s.id = b.stream
WHERE b.pos > ?2 AND b.head >> 16 <= s.floor"""  # noqa: S608 - a constant
_LEFT: Final = """
SELECT name FROM streams AS s WHERE name > ?1 AND floor > 0 AND (
  EXISTS (SELECT 1 FROM chunks AS t WHERE t.stream = s.id AND t.last <= s.floor)
  OR EXISTS (SELECT 1 FROM appends AS t WHERE t.stream = s.id AND t.last <= s.floor)) ORDER BY name LIMIT 500"""


class Sweeper(TableSweeper):
    """Deletes appends and chunks, and packs the batches that hold such rows."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.path)
        self._database = database
        self._slice_rows = _FIRST_SLICE_ROWS

    async def _sweep(self, stream_id: str) -> None:
        await self._empty_batches(stream_id)
        for table in _TABLES:
            while await self._sweep_slice(table, stream_id):
                pass

    async def _empty_batches(self, stream_id: str) -> None:
        """Packs the batches up to the last one in which a stream has something below its floor: that goes with them.

        What is appended meanwhile lies above it, so this comes to an end however much that is.
        """
        after = 0
        while True:
            began = time.monotonic()
            [(found,)] = await self._database.read(_IN_BATCHES, (stream_id, after))
            if not found:
                return
            _, after = await self._database.transact(partial(pack_batches, after=after))
            await asyncio.sleep(max(time.monotonic() - began, _MIN_PAUSE_S))

    async def _sweep_slice(self, table: str, stream_id: str) -> bool:
        """Sweeps as many rows as go in some two milliseconds and rests four times as long; whether there may be more."""
        text, rows = _SLICE.format(table=table), self._slice_rows

        async def job(sql: Sql) -> tuple[int, float]:
            began = time.monotonic()
            return len(await sql(text, (stream_id, rows, _SLICE_BYTES))), time.monotonic() - began

        swept, took_s = await self._database.write(job)
        if took_s > _SLICE_S:
            self._slice_rows = max(rows // 2, _MIN_SLICE_ROWS)
        elif swept == rows and took_s < _SLICE_S / 2:
            self._slice_rows = min(rows * 2, _MAX_SLICE_ROWS)
        await asyncio.sleep(max(4 * took_s, _MIN_PAUSE_S))
        return swept > 0

    async def _find_left(self) -> list[str]:
        heads = [heads_of(row[0]) for row in await self._database.read("SELECT heads FROM batches")]
        keys = json.dumps(list({key for each in heads for key in each}))
        streams = await self._database.read(OF_KEYS, (keys,)) if heads else []
        left = [name for key, name, floor in streams if any(each.get(key, floor + 1) <= floor for each in heads)]
        last = ""
        while rows := await self._database.read(_LEFT, (last,)):
            if not isinstance(rows[-1][0], str) or rows[-1][0] <= last:  # a damaged index would lead round in circles
                break
            left += [name for (name,) in rows]
            last = rows[-1][0]
        return left
