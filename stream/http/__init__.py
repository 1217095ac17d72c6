"""Serves a log over HTTP: what is common to all of it, and the Durable Streams protocol (`durable`). Extra `server`.

What lives here speaks HTTP about opaque events. What an event means must not: conversations are served by `ledger.http`.
"""

from stream.extras import needs as _needs

with _needs("server", "stream.http"):
    from stream.http.access import Access, Action, Authorize, BearerTokens, Tickets, allow_all
    from stream.http.followers import Followers
    from stream.http.problems import Problem
    from stream.http.service import Service, Wrapped, running, wrap
    from stream.http.sse import EventStream, Once

__all__ = [
    "Access",
    "Action",
    "Authorize",
    "BearerTokens",
    "EventStream",
    "Followers",
    "Once",
    "Problem",
    "Service",
    "Tickets",
    "Wrapped",
    "allow_all",
    "running",
    "wrap",
]
