"""Reads the body of a request, up to a limit, and never more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from stream.http.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises `Problem` 413 for one that is larger, 400 for one that is only half sent."""
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect:
        raise Problem(400, "half_sent", "the connection ended before the body did: nothing was done") from None
    return bytes(body)


def _too_large(max_bytes: int) -> Problem:
    return Problem(
        413, "too_large", f"a body may have {max_bytes} bytes here: send less at once", headers={"Connection": "close"}
    )
