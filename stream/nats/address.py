"""What a `nats://` URL says: where the servers are, and what is ours to know."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from stream.errors import StoreUnusable
from stream.urls import shown_url

SCHEMES: Final = ("nats", "tls")
OPTIONS: Final = ("stream", "replicas", "shards", "sync", "monitor", "system")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_REPLICAS: Final = (1, 3, 5)
_MAX_SHARDS: Final = 64
_MONITOR_PORT: Final = 8222
_UNREADABLE: Final = (
    "this can't be read: nats://user:password@host:port,host2:port?stream=NAME is meant, odd characters of a password as %40 "
    "for @"
)


class Address(NamedTuple):
    """`servers` are what the driver is given, `name` is the URL without a password, `stream` begins the names in JetStream.

    `replicas` and `shards` are None where the URL leaves them to what is there, or to a default. With `is_sync_trusted`
    nobody looks whether the servers wait for their disks; else all are asked by `system`, a user of the system account and
    his password, or, without one, the monitors of those that are named, `(host, port)` each.
    """

    servers: list[str]
    name: str
    stream: str
    replicas: int | None
    shards: int | None
    is_sync_trusted: bool
    monitors: list[tuple[str, int]]
    system: tuple[str, str] | None

    def __repr__(self) -> str:
        return f"Address({self.name!r})"

    @property
    def credentials(self) -> dict[str, str]:
        """As the driver takes them, which reads no %40 itself. A name alone is a token."""
        parts = urlsplit(self.servers[0])
        if not parts.username:
            return {}
        if parts.password is None:
            return {"token": unquote(parts.username)}
        return {"user": unquote(parts.username), "password": unquote(parts.password)}

    def of(self, user: str, password: str) -> Address:
        """The same servers, for another user."""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        places = [(server.partition("://")[0], server.rpartition("@")[2].rpartition("/")[2]) for server in self.servers]
        return self._replace(servers=[f"{scheme}://{login}@{host}" for scheme, host in places])


def read_address(url: str) -> Address:
    """Reads the URL. Raises `StoreUnusable` for what can't be meant."""
    name = shown_url(url)
    try:
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        places = [urlsplit(f"//{host}") for host in hosts.split(",")]
        _ = [each.port for each in places]
    except ValueError:  # what it says may be a piece of a password
        raise StoreUnusable(name, _UNREADABLE) from None
    if "@" in user and "," in user:
        raise StoreUnusable(name, "the user is one for all servers: nats://user:password@host:port,host2:port is meant")
    if "@" in url.partition("://")[2][len(parts.netloc) :]:  # all of it is a password's, or nobody knows what
        raise StoreUnusable(name, _UNREADABLE)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(OPTIONS))
    if unknown:
        said = "what has no value is"  # it may be a piece of a password, as what is not shown
        if options[unknown[0]]:
            said = f"{unknown[0]}= is" if f"{unknown[0]}=" in name else "what is not shown is"
        raise StoreUnusable(name, f"{said} no option: there are {', '.join(OPTIONS)}; write & as %26 in a password")
    if not hosts or parts.path.strip("/"):
        raise StoreUnusable(name, "nats://host:port,host2:port?stream=NAME is meant")
    stream = options.get("stream", "tailfold")
    if not _NAME.match(stream):
        raise StoreUnusable(name, f"stream={stream!r} is none: letters, digits, _ and -, at most 64")
    if options.get("sync", "trusted") != "trusted":
        raise StoreUnusable(name, "sync= can only say trusted: that the servers run with sync_interval: always")
    replicas = _number(name, options, "replicas", _REPLICAS)
    shards = _number(name, options, "shards", range(1, _MAX_SHARDS + 1))
    ports = [_monitor(name, port) for port in options.get("monitor", str(_MONITOR_PORT)).split(",")]
    monitors = [(place.hostname or "127.0.0.1", ports[min(number, len(ports) - 1)]) for number, place in enumerate(places)]
    servers = [f"{parts.scheme}://{user}{at}{host}" for host in hosts.split(",")]
    return Address(servers, name, stream, replicas, shards, "sync" in options, monitors, _system(name, parts.query))


def _number(name: str, options: dict[str, str], option: str, allowed: tuple[int, ...] | range) -> int | None:
    said = options.get(option)
    if said is None:
        return None
    if not said.isascii() or not said.isdigit() or int(said) not in allowed:
        known = f"1 to {allowed[-1]}" if isinstance(allowed, range) else ", ".join(map(str, allowed))
        raise StoreUnusable(name, f"{option}={said!r} is not possible: it may be {known}")
    return int(said)


def _monitor(name: str, port: str) -> int:
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise StoreUnusable(name, f"monitor={port!r} is no port: it is that of the server's http, 8222 as a rule")
    return int(port)


def _system(name: str, query: str) -> tuple[str, str] | None:
    """As it is written: a + of a password is one."""
    for option in query.split("&"):
        key, _, said = option.partition("=")
        if key == "system":
            user, _, password = said.partition(":")
            if not user or not password:
                raise StoreUnusable(name, "system=user:password is meant, of a user of the servers' system account")
            return unquote(user), unquote(password)
    return None
