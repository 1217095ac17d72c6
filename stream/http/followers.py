"""Those who follow over HTTP right now: they are ended together, and the ones that never read are let go."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator

STALLED_S: Final = 60.0


class Follower:
    """One response that goes on. `sending_since` is set while it waits for its client to read."""

    __slots__ = ("scope", "sending_since")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.sending_since: float | None = None


class Followers:
    """All of them. `close` ends each at once: clients come back by themselves."""

    def __init__(self, *, stalled_s: float = STALLED_S) -> None:
        self._stalled_s = stalled_s
        self._followers: set[Follower] = set()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._followers)

    @contextlib.contextmanager
    def enter(self) -> Iterator[Follower]:
        """While the block lasts, it is one of them; the block is left without an error when it is ended."""
        follower = Follower()
        self._followers.add(follower)
        try:
            with follower.scope:
                if self.is_closed:
                    follower.scope.cancel()
                yield follower
        finally:
            self._followers.discard(follower)

    def close(self) -> None:
        """Ends all who are there, and all who come."""
        self.is_closed = True
        for follower in list(self._followers):
            follower.scope.cancel()

    async def watch(self) -> None:
        """Ends those that have not read for a minute, for as long as it runs."""
        while True:
            await anyio.sleep(self._stalled_s / 6)
            before = anyio.current_time() - self._stalled_s
            for follower in list(self._followers):
                if follower.sending_since is not None and follower.sending_since < before:
                    follower.scope.cancel()
