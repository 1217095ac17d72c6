"""Lets something happen between two trips of an operation to its database, wherever that may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from stream.sqlite import Database


class Meanwhile:
    """Runs `act` when one of these databases is about to be asked for the nth time; `is_over` once it has run."""

    def __init__(self, databases: Collection[Database], at: int, act: Callable[[], Awaitable[object]]) -> None:
        self.is_over = False
        self._left, self._act = at, act
        for database in databases:
            for name in ("read", "look", "transact"):
                setattr(database, name, self._watched(getattr(database, name)))

    def _watched(self, plain: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(*words: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self.is_over:
                self.is_over = True
                await self._act()
            return await plain(*words)

        return watched
