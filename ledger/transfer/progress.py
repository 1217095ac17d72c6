"""How far long work has come, told to whoever wants to show it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class Progress(Protocol):
    """Called with what is done, and how many steps that takes if it is known; gives what is called with each few steps."""

    def __call__(self, what: str, total: int | None = None) -> AbstractContextManager[Callable[[int], object]]:
        """A context that lasts as long as the work."""


@contextmanager
def untold(what: str, total: int | None = None) -> Iterator[Callable[[int], object]]:
    """Nobody wants to know."""
    del what, total
    yield lambda _: None
