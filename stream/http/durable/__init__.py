"""The Durable Streams protocol over an event store: `make_app(store)`, or `make_route(service)` for an application of yours.

A path's stream is a stream of the store under the prefix `ds:`, one for each life of the path. What happens to it are its
events, so it is what they tell: `state` folds them, `streams` finds and changes it, and each method of the protocol has a
file of its own. Sections in docstrings are those of the protocol's specification.
"""

from stream.http.durable.app import DurableStreams, make_app, make_route
from stream.http.durable.truncating import truncate

__all__ = ["DurableStreams", "make_app", "make_route", "truncate"]
