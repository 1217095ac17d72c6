"""On which engines a case is run: on those of this process, or on all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.backends import BACKENDS, SERVERS

if TYPE_CHECKING:
    from collections.abc import Iterator


class Engines:
    """`are_all` where there is time for servers."""

    are_all = False

    @classmethod
    def names(cls) -> list[str]:
        """Those of `BACKENDS` that are asked."""
        return [name for name in BACKENDS if cls.are_all or name not in SERVERS]

    @classmethod
    @contextmanager
    def all(cls) -> Iterator[None]:
        """While the block lasts servers are asked, too."""
        cls.are_all = True
        try:
            yield
        finally:
            cls.are_all = False
