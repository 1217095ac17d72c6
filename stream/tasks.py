"""Finishes what was begun, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Coroutine

_UNDER_WAY: Final[set[asyncio.Task[None]]] = set()  # the loop itself holds tasks only weakly


async def finish_anyway(work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work` in a task of its own: whoever cancels the caller, how often ever, does not cut it."""
    task = asyncio.create_task(work)
    _UNDER_WAY.add(task)
    task.add_done_callback(_retire)
    with anyio.CancelScope(shield=True):
        await asyncio.shield(task)


def _retire(task: asyncio.Task[None]) -> None:
    _UNDER_WAY.discard(task)
    if not task.cancelled():
        task.exception()  # told to the caller, or to nobody if it is gone
