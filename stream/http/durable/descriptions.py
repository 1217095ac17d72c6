"""What each method of a stream's path says of itself in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from stream.http.openapi import TEXT, Content, Description, Parameter

_TAG: Final = "streams"
_ANY: Final = "*/*"
_WHOLE: Final[dict[str, Any]] = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,11})$"}
_NUMBER: Final[dict[str, Any]] = {"type": "string", "pattern": "^[0-9]{1,15}$"}
_OFFSET: Final[dict[str, Any]] = {"type": "string", "pattern": "^(-1|[0-9]{16}_[0-9]{16})$"}
_PLACE: Final[dict[str, Any]] = {"type": "string", "pattern": "^(-1|now|[0-9]{16}_[0-9]{16})$"}
_NEXT: Final = {
    "Stream-Next-Offset": "The place behind the last message.",
    "Stream-Closed": "`true` where it has ended for ever.",
}


def _header(name: str, what: str, schema: dict[str, Any] = TEXT) -> Parameter:
    return Parameter(name, what, schema, is_header=True)


CREATE: Final = Description(
    _TAG, "Creates a stream, or finds that it is there as it is asked for",
    "The body, if there is one, is its first content. A fork begins with what its source held, and shares it.",
    (
        _header("Stream-TTL", "Seconds that it lasts after it was last read or written.", _WHOLE),
        _header("Stream-Expires-At", "When it ends, like 2030-01-31T12:00:00Z."),
        _header("Stream-Closed", "`true` for one that is complete."),
        _header("Stream-Forked-From", "The path of the source of a fork."),
        _header("Stream-Fork-Offset", "The place in the source up to which the fork reads it; else its end.", _OFFSET),
        _header("Stream-Fork-Sub-Offset", "How many messages (of JSON) or bytes behind that place, too.", _WHOLE),
    ),
    Content("Its first content, of the stream's type.", {}, _ANY), False,
    {
        200: Content("It is there.", headers=_NEXT),
        201: Content("It is created.", headers={**_NEXT, "Location": "Its address."}),
    },
    (404, 408, 409, 413, 415, 507), False,
)  # fmt: skip
APPEND: Final = Description(
    _TAG, "Appends to a stream, closes it, or both in one step",
    "With the three headers of a producer it may be sent again: what was stored once is answered 204.",
    (
        _header("Stream-Closed", "`true` if nothing shall follow."),
        _header("Stream-Seq", "A text that is greater than that of every append before."),
        _header("Producer-Id", "Who appends."),
        _header("Producer-Epoch", "Fences all that the same producer has sent in an earlier one.", _NUMBER),
        _header("Producer-Seq", "The number of the append, from 0 in each epoch.", _NUMBER),
    ),
    Content("A message, or an array of them for a stream of JSON.", {}, _ANY), False,
    {200: Content("A producer's append is durable.", headers=_NEXT), 204: Content("It is durable.", headers=_NEXT)},
    (404, 408, 409, 410, 413, 415, 507), False,
)  # fmt: skip
READ: Final = Description(
    _TAG, "What lies behind an offset: a page at once, or as it comes",
    "`live=long-poll` waits for something to come (204 where nothing does), `live=sse` goes on as server-sent events.",
    (
        Parameter("offset", "A place that was given as Stream-Next-Offset, -1 for the beginning, now for the end.", _PLACE),
        Parameter("cursor", "The last Stream-Cursor.", TEXT),
        _header("If-None-Match", "The ETag of the page that is known."),
    ),
    None, False,
    {
        200: Content("Messages.", {}, _ANY, {**_NEXT, "Stream-Up-To-Date": "`true` at the end.", "ETag": "Of this page."}),
        204: Content("Nothing has come in time.", headers=_NEXT), 304: Content("The page is known."),
    },
    (404, 410), False,
)  # fmt: skip
LOOK: Final = Description(
    _TAG, "What a stream is and where it ends", "", (), None, False,
    {200: Content("It is there.", {}, _ANY, _NEXT)}, (404, 410), False,
)  # fmt: skip
DELETE: Final = Description(
    _TAG, "Deletes a stream; what forks read of it is kept for them", "", (), None, False,
    {204: Content("It is gone.")}, (404, 409, 410, 507), False,
)  # fmt: skip
