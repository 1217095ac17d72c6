"""The headers of the protocol: read and checked before anything else is looked at, and written."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.checks import shown
from stream.errors import InvalidId
from stream.http.problems import Problem
from stream.limits import check_id
from stream.records import Producer

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from stream.http.durable.state import State

NEXT_OFFSET: Final = "Stream-Next-Offset"
UP_TO_DATE: Final = "Stream-Up-To-Date"
CLOSED: Final = "Stream-Closed"
CURSOR: Final = "Stream-Cursor"
_WHOLE: Final = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]{1,16}", re.ASCII)
_MEDIA: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+ *(;[ -~]*)?", re.ASCII)
_MAX_INTEGER: Final = 2**53 - 1
_MAX_WHOLE_DIGITS: Final = 12
DEFAULT_MEDIA: Final = "application/octet-stream"


class Lifetime(NamedTuple):
    """How long a stream lasts: a time to live that reading renews, or an end."""

    ttl_s: int | None
    expires_at: str | None
    ends_at_ms: int | None


def is_closing(headers: Headers) -> bool:
    """Whether `Stream-Closed` says `true`; anything else says nothing (2.1)."""
    return headers.get(CLOSED, "").strip().lower() == "true"


def read_media(headers: Headers) -> str | None:
    """The media type; None where there is none that can be one."""
    media = headers.get("Content-Type", "").strip()
    return media if _MEDIA.fullmatch(media) else None


def read_whole(headers: Headers, name: str) -> int | None:
    """A whole number in its shortest form, or None where the header is absent. Raises `Problem` 400."""
    given = headers.get(name)
    if given is None:
        return None
    if not _WHOLE.fullmatch(given) or len(given) > _MAX_WHOLE_DIGITS:
        raise _refusal(name, given, f"a whole number of at most {_MAX_WHOLE_DIGITS} digits, without a sign or leading zeros")
    return int(given)


def read_lifetime(headers: Headers) -> Lifetime:
    """How long the stream shall last (2.3). Raises `Problem` 400."""
    ttl_s, given = read_whole(headers, "Stream-TTL"), headers.get("Stream-Expires-At")
    if given is None:
        return Lifetime(ttl_s, None, None)
    if ttl_s is not None:
        raise Problem(400, "invalid_header", "name Stream-TTL or Stream-Expires-At, not both")
    try:
        ends_at = dt.datetime.fromisoformat(given.upper())  # its letters may be small ones
        if ends_at.tzinfo is None or "T" not in given.upper() or not given.isascii():
            raise ValueError
        return Lifetime(None, given, int(ends_at.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise _refusal("Stream-Expires-At", given, "a time like 2030-01-31T12:00:00Z") from None


def read_producer(headers: Headers) -> Producer | None:
    """Who appends, and which of his appends it is (2.5). Raises `Problem` 400."""
    names = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
    given = [headers.get(name) for name in names]
    if given == [None] * len(names):
        return None
    id, epoch, seq = given  # noqa: A001 - the field's name
    if id is None or epoch is None or seq is None:
        raise Problem(400, "invalid_header", "send all of Producer-Id, Producer-Epoch and Producer-Seq, or none")
    numbers = []
    for name, text in zip(names[1:], (epoch, seq), strict=True):
        if not _DIGITS.fullmatch(text) or int(text) > _MAX_INTEGER:
            raise _refusal(name, text, f"a whole number from 0 to {_MAX_INTEGER}")
        numbers.append(int(text))
    try:
        return Producer(check_id("Producer-Id", id.strip()), *numbers)
    except InvalidId as error:
        raise Problem(400, "invalid_header", str(error)) from error


def about(state: State) -> dict[str, str]:
    """What an answer says of a stream itself: where it ends, and whether for ever."""
    return {NEXT_OFFSET: str(state.end)} | ({CLOSED: "true"} if state.is_closed else {})


def _refusal(name: str, given: str, what: str) -> Problem:
    return Problem(400, "invalid_header", f"{name} is {what}, not {shown(given)}")
