"""The server's errors in the words of a log, each with the way out."""

from __future__ import annotations

from typing import Any, Final

import nats.errors

from stream.errors import StoreFull, StoreUnusable, StreamError

FAILURES: Final = (nats.errors.Error, OSError, TimeoutError)
"""What the driver raises where nobody answers; anything else is a fault of our own."""

MOVED: Final = frozenset({10071, 10164})
"""Both say that the subject is not where it was expected."""

NONE: Final = 10037
STREAM_UNKNOWN: Final = 10059
NAME_IN_USE: Final = 10058
_FULL: Final = frozenset({10002, 10023, 10028, 10047, 10077})
_NOT_NOW: Final = frozenset({10008, 10009, 10158})
_WAYS_OUT: Final = {
    10039: "JetStream is not enabled for this account: give it limits in the server's accounts",
    10076: "JetStream is off on this server: put a jetstream block with store_dir into its configuration",
    10026: "the account may have no more streams: raise max_streams, or delete what was made of it and say fewer shards=",
    10027: "the account may have no more streams: raise max_streams, or delete what was made of it and say fewer shards=",
    10005: "there are fewer servers than replicas=: start more, or say replicas=1",
    10074: "one server alone holds one replica: say replicas=1, or name a cluster",
}


class Moved(Exception):
    """The subject is not where it was expected: nothing was stored."""


class Unclear(Exception):
    """Nobody has answered: whether something was stored is not known."""


def refusal(error: dict[str, Any], place: str) -> Exception:
    """What is raised for the error of an answer."""
    code, said = error.get("err_code", 0), error.get("description", "")
    if code in MOVED:
        return Moved(said)
    if code in _FULL:
        return StoreFull(f"{place}: {said}: make room, or raise the limits of the account or stream")
    if code in _NOT_NOW or error.get("code") == 503:
        return Unclear(said)
    return unusable(error, place)


def unusable(error: dict[str, Any], place: str) -> StreamError:
    """As `refusal`, where trying again is of no use."""
    code, said = error.get("err_code", 0), error.get("description", "")
    return StoreUnusable(place, _WAYS_OUT.get(code, f"the server refuses: {said} ({code})"))
