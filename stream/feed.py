"""The tokens of the change feed: how far somebody has seen a whole store, sealed so that nobody mistakes one for another."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any, Final

import msgspec

from stream.checks import check_text
from stream.errors import Diverged
from stream.limits import check_position

_CHECK_BYTES: Final = 4


class FeedPlace(msgspec.Struct, frozen=True, array_like=True):
    """All changes up to number `since` are known; of those up to `through`, if there is one, the streams up to `key` are.

    Streams are gone through by their keys, which never change, and up to a `through` that stays: what changes meanwhile
    comes after it. `known` and `known_through` are the heads, by key, of those streams whose place then is marked nowhere.
    """

    since: int = 0
    known: dict[int, int] = {}
    through: int = 0
    known_through: dict[int, int] = {}
    key: int = 0


_PLACE: Final = msgspec.msgpack.Decoder(tuple[str, FeedPlace])


def seal_place(incarnation: str, place: FeedPlace) -> str:
    """The place as a token of this store."""
    return seal((incarnation, place))


def open_place(token: str, incarnation: str) -> FeedPlace:
    """The place that a token tells; "" is before everything.

    Raises `Diverged` for a token of another incarnation, `ValueError` for what is no token.
    """
    check_text("after", token)
    if not token:
        return FeedPlace()
    minted_by: str
    place: FeedPlace
    minted_by, place = unseal(token, _PLACE)
    if minted_by != incarnation:
        raise Diverged("", 0, 0, incarnation=minted_by)
    return place


def check_reached(place: FeedPlace, last: int) -> None:
    """Raises `Diverged` for a place behind the number of the last change: others will have the numbers up to there."""
    if max(place.since, place.through) > last:
        raise Diverged("", max(place.since, place.through), last)


def check_page(limit: int) -> int:
    """Returns `limit`, or raises `ValueError` unless it is a whole number from 1."""
    if check_position("limit", limit) == 0:
        raise ValueError("limit must be at least 1: a page of nothing leads nowhere")
    return limit


def seal(said: Any) -> str:
    """Plain values as text that goes anywhere, with a checksum."""
    data = msgspec.msgpack.encode(said)
    return base64.urlsafe_b64encode(zlib.crc32(data).to_bytes(_CHECK_BYTES, "big") + data).decode().rstrip("=")


def unseal(token: str, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    """What was sealed. Raises `ValueError` for anything else."""
    try:
        sealed = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        said = decoder.decode(sealed[_CHECK_BYTES:])
        is_whole = zlib.crc32(sealed[_CHECK_BYTES:]).to_bytes(_CHECK_BYTES, "big") == sealed[:_CHECK_BYTES]
    except (UnicodeEncodeError, binascii.Error, msgspec.MsgspecError) as error:
        raise _refusal(token) from error
    if not is_whole:
        raise _refusal(token)
    return said


def _refusal(token: str) -> ValueError:
    return ValueError(f'after is no token of a change feed: {token[:40]!r}; give one that came with it, or "" to begin')
