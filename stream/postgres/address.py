"""What a `postgresql://` URL says: where the server is, and what is ours to know."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from stream.errors import StoreUnusable
from stream.urls import shown_url

UNREADABLE: Final = (
    "this can't be read: postgresql://user:password@host:port/database is meant, odd characters of a password as %40 for @"
)
_OURS: Final = ("schema", "wake", "dialect")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,53}\Z")  # it is part of a channel's name, which has 63 bytes
_WAKES: Final = ("listen", "poll")
_DIALECTS: Final = ("postgres", "portable")


class Address(NamedTuple):
    """`hosts` are what the driver is given for each of them, `name` is the URL without a password, `schema` our tables' place.

    `wake` says how others' commits are noticed: by `listen`, or by `poll` where nothing can be listened to (PgBouncer).
    `dialect` is empty where the server tells what it is by its version.
    """

    hosts: tuple[str, ...]
    name: str
    schema: str
    wake: str
    dialect: str

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


def read_address(url: str) -> Address:
    """Reads the URL. Raises `StoreUnusable` for what can't be meant."""
    name = shown_url(url)
    try:
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        dsns = [parts._replace(netloc=user + at + host) for host in hosts.split(",")]
        _ = [each.port for each in dsns]
    except ValueError:  # what it says may be a piece of a password
        raise StoreUnusable(name, UNREADABLE) from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = dict(pair for pair in options if pair[0] in _OURS)
    schema, wake = ours.get("schema", "tailfold"), ours.get("wake", "listen")
    if not _SCHEMA.match(schema) or schema.startswith("pg_"):
        raise StoreUnusable(name, f"schema={schema!r} is none: small letters, digits and _, at most 54, and no pg_ before them")
    if wake not in _WAKES:
        raise StoreUnusable(name, f"wake={wake!r} is unknown: say wake=listen, or wake=poll behind a pooler")
    dialect = ours.get("dialect", "")
    if dialect not in ("", *_DIALECTS):
        raise StoreUnusable(name, f"dialect={dialect!r} is unknown: say dialect=postgres or dialect=portable, or nothing")
    if dialect == "portable" and ours.get("wake") == "listen":
        raise StoreUnusable(name, "wake=listen is nothing that dialect=portable has: leave it out")
    theirs = "&".join(f"{quote(key)}={quote(value)}" for key, value in options if key not in _OURS)
    return Address(tuple(urlunsplit(each._replace(query=theirs)) for each in dsns), name, schema, wake, dialect)
