"""Long work: how far it has come on a terminal, a total at its end, and what is said to who ends it by Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.admin.output import print_total, print_warning, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class LongWork:
    """Shows what it is called with as `progress` does, and counts the steps of what is done last."""

    def __init__(self) -> None:
        self.what = ""
        self.done = 0
        self.total: int | None = None
        self._began_at = time.monotonic()

    @contextmanager
    def __call__(self, what: str, total: int | None = None, *, is_shown: bool = True) -> Iterator[Callable[[int], None]]:
        """See `ledger.transfer.progress.Progress`."""
        self.what, self.done, self.total = what, 0, total
        with progress(what, total, is_shown=is_shown) as advance:

            def step(steps: int) -> None:
                self.done += steps
                advance(steps)

            yield step

    def tell_total(self, what: str) -> None:
        """Says on a terminal what was done in all, and how long that took."""
        print_total(f"{what} in {time.monotonic() - self._began_at:,.1f} s")

    @property
    def so_far(self) -> str:
        """How many steps are done, of how many."""
        return f"{self.done:,}" if self.total is None else f"{self.done:,} of {self.total:,}"


@contextmanager
def stoppable(where_it_stands: Callable[[], str]) -> Iterator[None]:
    """Says on standard error where the work of the block stands when Ctrl-C or SIGTERM has ended it.

    The exit code is 130, or 143.
    """
    terminated: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        interrupt = signal.getsignal(signal.SIGINT)  # as it stands now: the event loop's, which leaves nothing half closed
        (interrupt if callable(interrupt) else signal.default_int_handler)(number, frame)

    hears = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if hears:
        signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt:
        print_warning(f"stopped: {where_it_stands()}")
        if terminated:
            raise SystemExit(128 + terminated[0]) from None
        raise
    finally:
        if hears:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
