"""Keeps pages of others away from a server that asks nobody who he is: it is for programs of this machine alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stream.http.problems import Problem

if TYPE_CHECKING:
    from starlette.types import Scope

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SAFE: Final = ("GET", "HEAD", "OPTIONS")


def check_host(scope: Scope, hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
    """Raises `Problem` for a request that a browser was made to send here; without `hosts` it takes every one.

    A page whose name was given the address of this machine says its own name as `Host` (421); so it would be of the same
    origin and could read everything. A page that sends a form or a simple request says whose it is in `Origin` (403, as
    far as something would be changed; what it only reads the browser does not show it).
    """
    if not hosts:
        return
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1")
    if _name(host) not in hosts:
        raise Problem(
            421, "unknown_host", f"this server is {hosts[0]}, not {host[:80]!r}: start it with --tokens to be another"
        )
    origin = headers.get(b"origin", b"").decode("latin-1")
    is_own = not origin or "*" in origins or origin in origins or origin == f"{scope['scheme']}://{host}"
    if scope["method"] not in _SAFE and not is_own:
        raise Problem(403, "foreign_origin", f"pages of {origin[:80]!r} may not write here: name it with --cors to let them")


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""
