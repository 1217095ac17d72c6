"""Who may do what: a hook that is asked for each request, bearer tokens out of a file, and tickets for one stream."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from stream.http.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

Action = Literal["list", "read", "append", "create", "delete", "cancel", "compact"]
MAX_TICKET_S: Final = 3600
_SIGNATURE_BYTES: Final = 16
_MIN_TOKEN_CHARACTERS: Final = 16


class Access(msgspec.Struct, frozen=True):
    """What a request is about to do. `stream` is the id of a conversation, the path of a protocol stream, or None for all."""

    action: Action
    kind: Literal["conversation", "stream"]
    stream: str | None
    request: Any
    """The `starlette.requests.HTTPConnection`: its headers, its client, its `state`."""


Authorize: TypeAlias = Callable[[Access], Awaitable[tuple[str, ...] | None]]
"""Returns where it may be done, and raises `Problem` (401, 403, or 404 for what he shall not know of) where not.

To `list` it may return prefixes of ids: then only those are listed that begin with one of them.
"""


async def allow_all(access: Access) -> None:
    """For a server that only this machine reaches."""
    del access


class _Right(msgspec.Struct, frozen=True):
    digest: bytes
    is_reading: bool
    prefix: str


class BearerTokens:
    """Tokens out of a file: one a line, then if wanted `read` or `write` (which reads, too), and a prefix of ids.

    Empty lines and lines that begin with `#` say nothing. The file is read once; restart to change it.
    """

    def __init__(self, path: str | Path) -> None:
        """Raises `ValueError` for a file, or with a line of it, that can't be read."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: the file of tokens can't be read: {error.strerror}") from error
        self._rights = [
            _read_right(path, number, line)
            for number, line in enumerate(content.decode("utf-8-sig", "replace").splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not self._rights:
            raise ValueError(f"{path} holds no token: write one a line, at least {_MIN_TOKEN_CHARACTERS} characters long")
        self.secret = hashlib.sha256(b"tailfold tickets\0" + content).digest()
        """For tickets: the same in every process that reads this file."""

    async def __call__(self, access: Access) -> tuple[str, ...] | None:
        """See `Authorize`. Whose token has a prefix is shown a list of what begins with it."""
        kind, _, token = access.request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Problem(401, "unauthorized", "send `Authorization: Bearer TOKEN`", headers={"WWW-Authenticate": "Bearer"})
        digest = hashlib.sha256(token.strip().encode()).digest()
        rights = [right for right in self._rights if hmac.compare_digest(right.digest, digest)]
        if not rights:
            wrong = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            raise Problem(401, "unauthorized", "this token is not known here", headers=wrong)
        if access.action == "list":
            return None if any(not right.prefix for right in rights) else tuple(right.prefix for right in rights)
        if not any(_covers(right, access) for right in rights):
            raise Problem(403, "forbidden", f"this token does not cover {access.action} here")
        return None


def _covers(right: _Right, access: Access) -> bool:
    is_named = access.stream is not None and access.stream.startswith(right.prefix)
    return (is_named or not right.prefix) and (access.action == "read" or not right.is_reading)


def _read_right(path: str | Path, number: int, line: str) -> _Right:
    token, *rest = line.split(maxsplit=2)
    rights, prefix = (*rest, "", "")[:2] if rest else ("write", "")
    if rights not in ("read", "write"):
        raise ValueError(f"{path}, line {number}: behind the token stands `read` or `write`, then if wanted a prefix of ids")
    if len(token) < _MIN_TOKEN_CHARACTERS:
        raise ValueError(f"{path}, line {number}: a token has at least {_MIN_TOKEN_CHARACTERS} characters")
    if not token.isascii() or not token.isprintable():  # no header carries it as it is
        raise ValueError(f"{path}, line {number}: a token is made of letters, digits and signs of ASCII")
    return _Right(hashlib.sha256(token.encode()).digest(), rights == "read", prefix.strip())


class Tickets:
    """Signed leave to read one stream for a short time, for those who can't send a header: `?ticket=`.

    Whoever knows the `secret` (bytes, the same in all processes that serve) can make and check them; nothing is kept.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def mint(self, kind: str, stream: str, *, lasts_s: int, now: float | None = None) -> tuple[str, int]:
        """A ticket, and when it ends (s since 1970). `lasts_s` is at most an hour."""
        ends_at = int((time.time() if now is None else now) + min(max(lasts_s, 1), MAX_TICKET_S))
        signed = ends_at.to_bytes(8, "big") + self._sign(ends_at, kind, stream)
        return base64.urlsafe_b64encode(signed).decode().rstrip("="), ends_at

    def is_good(self, ticket: str, access: Access, *, now: float | None = None) -> bool:
        """Whether the ticket gives leave for this."""
        try:
            signed = base64.b64decode(ticket.encode("ascii") + b"=" * (-len(ticket) % 4), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            return False
        ends_at = int.from_bytes(signed[:8], "big")
        expected = self._sign(ends_at, access.kind, access.stream or "")
        is_signed = len(signed) == 8 + _SIGNATURE_BYTES and hmac.compare_digest(signed[8:], expected)
        is_in_time = (time.time() if now is None else now) < ends_at
        return is_signed and is_in_time and access.action == "read" and access.stream is not None

    def _sign(self, ends_at: int, kind: str, stream: str) -> bytes:
        said = msgspec.msgpack.encode((ends_at, kind, stream))
        return hmac.new(self._secret, said, hashlib.sha256).digest()[:_SIGNATURE_BYTES]


async def check_access(authorize: Authorize, tickets: Tickets, access: Access) -> tuple[str, ...] | None:
    """What the hook says to it, or None where a ticket gives leave. Raises `Problem` unless the request may do this."""
    connection: HTTPConnection = access.request
    ticket = connection.query_params.get("ticket")
    if ticket is not None and "authorization" not in connection.headers:
        if tickets.is_good(ticket, access):
            return None
        if authorize is not allow_all:  # where nobody is asked, one of another process or of before a restart does no harm
            raise Problem(401, "unauthorized", "the ticket has ended, or is of another stream: ask for a new one")
    return await authorize(access)
