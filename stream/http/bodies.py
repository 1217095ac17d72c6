"""Reads the body of a request, up to a limit, and never more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import msgspec
from starlette.requests import ClientDisconnect

from stream.http.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")
SILENT_S: Final = 30.0
WHOLE_S: Final = 600.0  # 16 MiB at 28 kB/s: no line is so slow, and what never ends would be held for ever


async def read_body(request: Request, max_bytes: int, *, silent_s: float = SILENT_S, whole_s: float = WHOLE_S) -> bytes:
    """The whole body.

    Raises `Problem` 413 for one that is larger, 400 for one that is only half sent, 408 where nothing comes for
    `silent_s` seconds or it is not there after `whole_s`, 415 for one that is compressed: it is kept as it was sent.
    """
    _check_encoding(request.headers.get("content-encoding", ""))
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    chunks = request.stream()
    ends_at = anyio.current_time() + whole_s
    try:
        while True:
            with anyio.fail_after(min(silent_s, ends_at - anyio.current_time())):
                chunk = await anext(chunks, None)
            if chunk is None:
                return bytes(body)
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect:
        raise Problem(400, "half_sent", "the connection ended before the body did: nothing was done") from None
    except TimeoutError:
        is_slow = anyio.current_time() >= ends_at
        why = f"the body is not there after {whole_s:g} s" if is_slow else f"nothing more of the body came for {silent_s:g} s"
        raise Problem(408, "half_sent", f"{why}: nothing was done", headers={"Connection": "close"}) from None


def check_json_type(request: Request) -> None:
    """Raises `Problem` (415) unless the body is said to be JSON."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "wrong_type", f"send `Content-Type: application/json`, not {given[:80]!r}")


async def read_json(request: Request, max_bytes: int, kind: type[T]) -> T:
    """A body of JSON as `kind`. Raises `Problem` as `read_body`, 415, 400 for what is no JSON, 422 for another form."""
    check_json_type(request)
    return read_json_text(await read_body(request, max_bytes), kind)


def read_json_text(body: bytes, kind: type[T]) -> T:
    """JSON as `kind`. Raises `Problem`: 400 for what is no JSON, 422 for another form."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid_body", str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "invalid_json", f"the body is no JSON: {error}") from error


def _check_encoding(given: str) -> None:
    if given.strip().lower() not in ("", "identity"):
        raise Problem(415, "encoded", f"send the body as it is, without Content-Encoding: {given[:40]!r} is not undone here")


def _too_large(max_bytes: int) -> Problem:
    # Without `Connection: close`: whoever still sends would lose the answer to a reset, and what comes is let go unread.
    return Problem(413, "too_large", f"a body may have {max_bytes} bytes here: send less at once")
