"""Ctrl-C in long work: what is done stays done, and whoever has stopped it is told how to go on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.admin.output import print_warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def stoppable(where_it_stands: Callable[[], str]) -> Iterator[None]:
    """Says on standard error where the work of the block stands when Ctrl-C has ended it; the exit code is 130."""
    try:
        yield
    except KeyboardInterrupt:
        print_warning(f"stopped: {where_it_stands()}")
        raise
