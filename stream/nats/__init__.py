"""The log on NATS JetStream, by nats-py: a message an append, which says all that is to be known of its stream.

What lives here knows one server; a ledger keeps its tables elsewhere, and only its log here.
"""

from stream.extras import needs as _needs

with _needs("nats", "stream.nats"):
    from stream.nats.opening import open_nats
    from stream.nats.store import NatsStore

__all__ = ["NatsStore", "open_nats"]
