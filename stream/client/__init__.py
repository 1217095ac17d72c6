"""Follows a stream that another process serves over HTTP: each event once, in order, whatever breaks in between.

Extra `client`. What lives here knows positions and bytes. What an event means must not: that is `projector`'s.
"""

from stream.extras import needs as _needs

with _needs("client", "stream.client"):
    from stream.client.errors import RemoteError, RemoteOutOfOrder, RemoteRefused, RemoteUnreadable
    from stream.client.follow import follow_remote
    from stream.client.records import RemoteEvent, RemoteSnapshot

__all__ = [
    "RemoteError",
    "RemoteEvent",
    "RemoteOutOfOrder",
    "RemoteRefused",
    "RemoteSnapshot",
    "RemoteUnreadable",
    "follow_remote",
]
