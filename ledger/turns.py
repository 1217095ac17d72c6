"""One at a time, of those in this process who work on the same conversation."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Turns:
    """A lock for each conversation that somebody works on."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, conversation: str) -> asyncio.Lock:
        """`async with turns.of(conversation)` waits for its turn; it is forgotten when nobody has or wants one."""
        return self._locks.setdefault(conversation, asyncio.Lock())
