"""What a client is told when something can't be done: a problem body that says why, and never a traceback."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from stream.errors import (
    CorruptEvent,
    InvalidEvent,
    InvalidId,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreUnusable,
    StreamError,
)
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

MEDIA_TYPE: Final = "application/problem+json"  # RFC 9457
_LOG: Final = Logger("tailfold.http")
_RETRY_S: Final = "1"
_STATUS: Final[dict[type[Exception], tuple[int, str]]] = {
    InvalidId: (400, "invalid_id"),
    InvalidEvent: (422, "invalid_event"),
    StoreBusy: (503, "busy"),
    StoreClosed: (503, "closing"),
    StoreFull: (507, "full"),
    StoreUnusable: (500, "unusable"),
    CorruptEvent: (500, "damaged"),
}


class Problem(Exception):
    """An answer that says why not. `error` is a word for programs, `detail` a sentence for people."""

    def __init__(self, status: int, error: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error
        self.headers = dict(headers or {})
        self.more = more

    def answer(self) -> Response:
        """The response: a body of type `application/problem+json`."""
        body = {
            "status": self.status,
            "title": HTTPStatus(self.status).phrase,
            "error": self.error,
            "detail": str(self),
            **self.more,
        }
        return Response(_encode(body), self.status, self.headers, MEDIA_TYPE)


def _encode(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # it repeats something of the request, with a lone surrogate in it
        return json.dumps(body).encode()


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to whatever a handler raised. What is nobody's mistake but ours is logged, and told without a word of it."""
    if isinstance(error, Problem):
        return error.answer()
    if isinstance(error, HTTPException):  # of the routes: no such path, no such method
        what = f"{request.method} {request.url.path}"
        return Problem(error.status_code, HTTPStatus(error.status_code).name.lower(), f"{what}: {error.detail}",
                       headers=error.headers).answer()  # fmt: skip
    for kind, (status, word) in _STATUS.items():
        if isinstance(error, kind):
            headers = {"Retry-After": _RETRY_S} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
            if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                _LOG.error("http.store_failed", error=type(error).__name__)
                return Problem(status, word, "the store can't read what it keeps: `tailfold verify` names it").answer()
            return Problem(status, word, str(error), headers=headers).answer()
    if isinstance(error, StreamError):
        return Problem(409, "conflict", str(error)).answer()
    _LOG.exception("http.failed", method=request.method, error=type(error).__name__)
    return Problem(500, "internal_error", "the server has failed here; its log tells more").answer()
