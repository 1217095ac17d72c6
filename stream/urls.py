"""What a place is called where others may read it: a URL without its password."""

from __future__ import annotations

import re
from typing import Final

_SECRETS: Final = re.compile(r"(?<=[?&])[^=&]*(?:pass|token|secret)[^=&]*=[^&]*&?", re.IGNORECASE)
_POSTGRES: Final = ("postgresql://", "postgres://")
_TOKENS: Final = ("nats", "tls")


def is_postgres(url: str) -> bool:
    """Whether it names a PostgreSQL server."""
    return url.startswith(_POSTGRES)


def is_nats(url: str) -> bool:
    """Whether it names NATS servers."""
    return url.startswith("nats://")


def is_server(url: str) -> bool:
    """Whether what it names is no file of this machine."""
    return is_postgres(url) or is_nats(url)


def shown_url(url: str) -> str:
    """The URL as it may be printed; a path as it is.

    Whoever forgets to write the odd characters of a password as %40 has them cut out, too: all up to the last @ of it.
    On NATS a name without a password is none, but a token.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    if scheme.lower() in _TOKENS and not colon:
        name = ""
    return scheme + separator + name + at + _SECRETS.sub("", place).rstrip("?&")
