"""A connection of the server: one whose client begins a request and does not go on is let go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from asyncio import TimerHandle

HEAD_S: Final = 20.0


class Connection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it; the head of a request is there 20 s after its first byte, or after the connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._giving_up: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._watch(is_waiting=True)

    def data_received(self, data: bytes) -> None:
        """Goes on waiting as long as the head is not whole."""
        super().data_received(data)
        self._watch(is_waiting=self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        super().connection_lost(exc)
        self._watch(is_waiting=False)

    def _watch(self, *, is_waiting: bool) -> None:
        if is_waiting and self._giving_up is None:
            self._giving_up = asyncio.get_running_loop().call_later(HEAD_S, self._give_up)
        elif not is_waiting and self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _give_up(self) -> None:
        self.transport.close()
