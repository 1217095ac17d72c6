"""What a place is called where others may read it: a URL without its password."""

from __future__ import annotations

import re
from typing import Final

_KNOWN: Final = (
    "schema|dialect|wake|stream|replicas|shards|sync|monitor|host|port|user|dbname|database|application_name|options|service"
    "|target_session_attrs|krbsrvname|gsslib|connect_timeout|channel_binding|ssl(?:mode|cert|key|rootcert|crl|negotiation)"
)
_SECRETS: Final = re.compile(
    rf"(?<=[?&])[^=&]*(?:pass|token|secret|system)[^=&]*=[^&]*(?:&(?!(?:{_KNOWN})=)[^&]*)*&?", re.IGNORECASE
)
"""A secret with what stands behind an & that was not written as %26, up to the next option that is known as one."""
_SERVER: Final = re.compile(r"(?:postgresql|postgres|nats):(?=.*[/@])/*", re.IGNORECASE)
_SCHEME: Final = re.compile(rf"{_SERVER.pattern}|.*?://", re.IGNORECASE | re.DOTALL)
_POSTGRES: Final = ("postgresql://", "postgres://")
_TOKENS: Final = ("nats:", "tls:")


def is_postgres(url: str) -> bool:
    """Whether it names a PostgreSQL server."""
    return url.startswith(_POSTGRES)


def is_nats(url: str) -> bool:
    """Whether it names NATS servers."""
    return url.startswith("nats://")


def is_server(url: str) -> bool:
    """Whether what it names is no file of this machine."""
    return is_postgres(url) or is_nats(url)


def is_meant_as_server(url: str) -> bool:
    """Whether somebody means a server, be it with a slash too few: that is no path, and may hold a password."""
    return _SERVER.match(url) is not None


def shown_url(url: str) -> str:
    """The URL as it may be printed; a path as it is.

    Whoever forgets to write the odd characters of a password as %40 has them cut out, too: all up to the last @ of it.
    `system=` of NATS is the name and password of another user. On NATS a name without a password is none, but a token.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        return url
    user, at, place = _SECRETS.sub(lambda found: "@" * ("@" in found[0]), url[scheme.end() :]).rpartition("@")
    name, colon, _ = user.partition(":")
    if scheme[0].lower().startswith(_TOKENS) and not colon:
        name = ""
    return scheme[0] + name + at + place.rstrip("?&")
