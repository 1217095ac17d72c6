"""What a server sends: events, and in place of those that are gone a snapshot."""

from __future__ import annotations

import msgspec


class RemoteEvent(msgspec.Struct, frozen=True, gc=False):
    """One event. `data` is its body as one line of JSON, or `{"base64": …}` where the body is no JSON."""

    seq: int
    type: str
    data: bytes


class RemoteSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Begin anew from here: all that was after events up to `seq`, in place of the events that can't be had.

    `data` is JSON, and the server's page says what stands in it. Whoever keeps `seq` keeps `incarnation` with it, where
    there is one.
    """

    seq: int
    incarnation: str | None
    data: bytes
