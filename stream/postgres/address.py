"""What a `postgresql://` URL says: where the server is, and what is ours to know."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from stream.errors import StoreUnusable

SCHEMES: Final = ("postgresql", "postgres")
_OURS: Final = ("schema", "wake")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,53}\Z")  # it is part of a channel's name, which has 63 bytes
_WAKES: Final = ("listen", "poll")


class Address(NamedTuple):
    """`hosts` are what the driver is given for each of them, `name` is the URL without a password, `schema` our tables' place.

    `wake` says how others' commits are noticed: by `listen`, or by `poll` where nothing can be listened to (PgBouncer).
    """

    hosts: tuple[str, ...]
    name: str
    schema: str
    wake: str


def read_address(url: str) -> Address:
    """Reads the URL. Raises `StoreUnusable` for what can't be meant."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = dict(pair for pair in options if pair[0] in _OURS)
    name = _without_password(url)
    schema, wake = ours.get("schema", "tailfold"), ours.get("wake", "listen")
    if not _SCHEMA.match(schema) or schema.startswith("pg_"):
        raise StoreUnusable(name, f"schema={schema!r} is none: small letters, digits and _, at most 54, and no pg_ before them")
    if wake not in _WAKES:
        raise StoreUnusable(name, f"wake={wake!r} is unknown: say wake=listen, or wake=poll behind a pooler")
    theirs = "&".join(f"{quote(key)}={quote(value)}" for key, value in options if key not in _OURS)
    user, at, hosts = parts.netloc.rpartition("@")
    dsns = tuple(urlunsplit(parts._replace(netloc=user + at + host, query=theirs)) for host in hosts.split(","))
    return Address(dsns, name, schema, wake)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    shown = [(key, value) for key, value in parse_qsl(parts.query) if key != "password"]
    netloc = unquote(user.partition(":")[0]) + at + hosts
    return urlunsplit(parts._replace(netloc=netloc, query="&".join(f"{key}={value}" for key, value in shown)))
