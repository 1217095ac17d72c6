"""Connections that notice when the other end has gone without a word."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Final

Connection = Any
"""One of asyncpg's, which has no types."""

_OPTIONS: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000))


def notice_silence(connection: Connection) -> None:
    """Has the system ask whether the server's machine is still there: else who waits for an answer would wait for hours."""
    found = connection._transport.get_extra_info("socket")  # noqa: SLF001 - the driver has no other way
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS:
            if hasattr(socket, name):  # as far as the system knows it
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
