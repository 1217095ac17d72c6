"""Which numbers of the change feed were drawn here: who waits here was told of these changes when they were acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEPT: Final = 1000  # of more than these some are taken for others': who waits looks once for nothing
_LANDS_S: Final = 0.05


class OwnChanges:
    """Those of late."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque(maxlen=_KEPT)
        self._landed = asyncio.Event()
        self._landed.set()

    @contextlib.contextmanager
    def drawing(self) -> Iterator[Callable[[int], None]]:
        """While a number is drawn; gives what notes it."""
        self._landed.clear()
        try:
            yield self._numbers.append
        finally:
            self._landed.set()

    async def are_all(self, seen: int, number: int) -> bool:
        """Whether all behind `seen` are, up to `number`; what is seen before its answer has come is waited for, a little."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LANDS_S):
                await self._landed.wait()
        if number < seen:  # another server has taken over, which draws some of them once more
            self._numbers.clear()
        return number - seen == sum(seen < each <= number for each in self._numbers)
