"""What an answer means before its first event: go on, try again, or never."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

import httpx
import msgspec

from stream.client.errors import RemoteRefused, RemoteUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

MEDIA_TYPE: Final = "text/event-stream"
_PASSING: Final = (408, 425, 429)  # and 5xx
_DETAIL_BYTES: Final = 64 * 1024
_DETAIL_SHOWN: Final = 300


class Passing(Exception):
    """This try has failed, another one may do: after `at_least_s` seconds, where the server says so."""

    def __init__(self, why: str, at_least_s: float = 0.0) -> None:
        super().__init__(why)
        self.at_least_s = at_least_s


async def check_answer(url: str, answer: httpx.Response) -> bool:
    """Whether events follow; not so where the server says that there are no more.

    Raises `Passing`, `RemoteRefused` and `RemoteUnreadable`.
    """
    status = answer.status_code
    if status == httpx.codes.NO_CONTENT:
        return False
    if status in _PASSING or status >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise Passing(f"the server answered {status}", _read_seconds(answer.headers.get("retry-after", "")))
    if status != httpx.codes.OK:
        raise RemoteRefused(url, status, _read_location(answer) or await _read_detail(answer))
    content_type = answer.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise RemoteUnreadable(
            url, f"it is of type {content_type[:80]!r}, not {MEDIA_TYPE}: is this the address of events, …/events?"
        )
    # Whatever case its letters have; and it is UTF-8 whatever is said of it: the standard knows no other.
    answer.headers["content-type"] = f"{MEDIA_TYPE}; charset=utf-8"
    return True


def explain(url: str, error: httpx.RequestError) -> str:
    """Why a connection failed, in a word. Raises `RemoteUnreadable` and `ValueError` for what will fail again."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise RemoteUnreadable(
                url, f"its certificate can't be trusted ({cause.verify_message}): mend it, or hand over a client that knows it"
            ) from error
    if isinstance(error, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)):  # it is our own request
        raise ValueError(f"{url}: this can't be asked: {error}") from error  # noqa: TRY004 - what it says, not what it is
    if isinstance(error, httpx.TimeoutException):
        return "nothing came for too long"
    return str(error) or type(error).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _read_seconds(text: str) -> float:
    """Of Retry-After; a date is none that is waited for."""
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0.0


def without_secrets(url: httpx.URL) -> str:
    """An address without its query, where tickets stand, and without a password."""
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))


def _read_location(answer: httpx.Response) -> str:
    """Where it is said to be instead, as far as that can be told."""
    try:
        return without_secrets(httpx.URL(answer.headers.get("location", "")))
    except httpx.InvalidURL:
        return ""


async def _read_detail(answer: httpx.Response) -> str:
    """What a problem body says (RFC 9457), as far as it is short."""
    body = b""
    try:
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > _DETAIL_BYTES:
                return ""
        said = msgspec.json.decode(body)
    except (httpx.HTTPError, msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    detail = said.get("detail") if isinstance(said, dict) else None
    return detail[:_DETAIL_SHOWN] if isinstance(detail, str) else ""
