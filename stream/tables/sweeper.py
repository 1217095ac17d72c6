"""Sweeps rows that lie below the floor, behind everybody's back, best effort.

Nothing depends on how far this has come: every reader looks at the floor. What a crash leaves is swept after the next opening.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from stream.errors import StoreClosed, StreamError
from stream.logger import Logger

_LOG: Final = Logger("tailfold.stream")


class TableSweeper:
    """One sweep at a time; streams wait for their turn. How rows are found and go is said by who derives from it."""

    def __init__(self, path: str) -> None:
        self._path = path
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

    async def _sweep(self, stream_id: str) -> None:
        """Lets go of all rows of a stream below its floor, in slices, with a rest behind each."""
        raise NotImplementedError

    async def _find_left(self) -> list[str]:
        """The streams that have such rows."""
        raise NotImplementedError

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"tailfold sweeper of {self._path}")

    async def _run(self) -> None:
        try:
            if self._resumed:
                self._resumed = False
                self._waiting.update(dict.fromkeys(await self._find_left()))
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
            _LOG.warning("stream.sweep_stopped", path=self._path, error=type(error).__name__)
