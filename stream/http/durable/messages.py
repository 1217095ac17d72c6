"""Messages as bodies and back: JSON is cut into its messages, each with its own bytes, and joined to one array again."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stream.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE: Final = msgspec.json.Decoder(msgspec.Raw)
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_BLANK_BYTES: Final = b" \t\r\n"
MANY_COMMAS: Final = 500_000
"""So many messages at once would take tens of MB, and a body has room for millions: where there are more, one by one."""


def is_json(media: str) -> bool:
    """Whether a stream of this media type is one of JSON messages (protocol 2.10)."""
    return base_of(media) == "application/json"


def is_text(media: str) -> bool:
    """Whether server-sent events show its bytes as they are."""
    return base_of(media).startswith("text/") or is_json(media)


def base_of(media: str) -> str:
    """The media type without its parameters, by which media types are compared."""
    return media.partition(";")[0].strip().lower()


def split(body: bytes, media: str, *, most: int) -> list[bytes]:
    """The messages of a body: an array of JSON is flattened once, anything else is one message.

    Raises `Problem` 400 for what is no JSON, 413 for more than `most` messages.
    """
    if not is_json(media):
        return [body] if body else []
    try:
        text = body.decode()
        messages = _split_anything(text, most) if body.count(b",") > MANY_COMMAS else _split_fast(body)
    except UnicodeDecodeError as error:
        raise Problem(400, "invalid_json", f"the body is no UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise Problem(400, "invalid_json", "the body is nested too deep") from error
    except msgspec.DecodeError:  # it refuses some legal JSON
        messages = _split_anything(text, most)
    if len(messages) > most:
        raise _too_many(most)
    return messages


def join(messages: Sequence[bytes], media: str) -> bytes:
    """The body that shows these messages."""
    return b"[" + b",".join(messages) + b"]" if is_json(media) else b"".join(messages)


def _split_fast(body: bytes) -> list[bytes]:
    if body.lstrip(_BLANK_BYTES)[:1] == b"[":
        return [bytes(message) for message in _ARRAY.decode(body)]
    return [bytes(_VALUE.decode(body))]


def _split_anything(text: str, most: int) -> list[bytes]:
    """The same, slowly, of all that JSON allows: half a surrogate too. It stops where there are too many."""
    try:
        at = _skip(text, 0)
        if text[at : at + 1] != "[":
            message, at = _take(text, at)
            messages = [message]
        else:
            messages, at = _take_all(text, at, most)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "invalid_json", f"the body is no JSON: {error}") from error
    if at != len(text):
        raise Problem(400, "invalid_json", f"the body goes on behind its end, at character {at}")
    return messages


def _take_all(text: str, at: int, most: int) -> tuple[list[bytes], int]:
    messages: list[bytes] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return messages, _skip(text, at + 1)
    while True:
        message, at = _take(text, at)
        messages.append(message)
        if len(messages) > most:
            raise _too_many(most)
        sign = text[at : at + 1]
        if sign not in (",", "]"):
            raise ValueError(f"a comma or ] is missing at character {at}")
        at = _skip(text, at + 1)
        if sign == "]":
            return messages, at


def _take(text: str, at: int) -> tuple[bytes, int]:
    _, end = _DECODER.raw_decode(text, at)
    return text[at:end].encode(), _skip(text, end)


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _too_many(most: int) -> Problem:
    return Problem(413, "too_many", f"send at most {most} messages at once")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_refuse)  # values are not looked at
