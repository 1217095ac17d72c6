"""What the servers must be like, looked at when a log is opened."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stream.errors import StoreUnusable
from stream.nats.errors import refusal

if TYPE_CHECKING:
    from stream.nats.address import Address
    from stream.nats.client import Client

_OLDEST: Final = (2, 12)
_LOOK_S: Final = 3.0
_WAY_OUT: Final = "set sync_interval: always in the server's jetstream block"


def check_version(version: object, name: str) -> None:
    """Raises `StoreUnusable` for a server that tells two writers they both were first."""
    found = re.search(r"(\d+)\.(\d+)", str(version))
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        raise StoreUnusable(name, f"the server is NATS {str(version).strip('<>')}: 2.12 or newer is needed")


async def check_jetstream(client: Client) -> None:
    """Raises `StoreUnusable` where there is none for this user."""
    if not client.has_jetstream:
        raise StoreUnusable(client.path, "JetStream is off there: put a jetstream block with store_dir into its configuration")
    answer = await client.ask("INFO")
    if error := answer.get("error"):
        raise refusal(error, client.path)


async def check_sync(address: Address) -> None:
    """Raises `StoreUnusable` unless each server's monitor says that it waits for its disk before it acknowledges."""
    for host, port in address.monitors:
        place = f"http://{host}:{port}/varz"
        try:
            said = msgspec.json.decode(await asyncio.to_thread(_fetch, place))
        except (OSError, ValueError, urllib.error.URLError) as error:
            why = f"whether {host} waits for its disk can't be seen, {place} does not answer ({error})"
            way_out = f"say monitor=PORT, or sync=trusted if you have {_WAY_OUT}"
            raise StoreUnusable(address.name, f"{why}: {way_out}") from error
        if not _is_always(said):
            why = f"{host} acknowledges what is not on its disk and loses it in a power cut"
            raise StoreUnusable(address.name, f"{why}: {_WAY_OUT}, or open it with durability='normal'")


def _is_always(said: Any) -> bool:
    config = said.get("jetstream", {}).get("config", {}) if isinstance(said, dict) else {}
    return isinstance(config, dict) and config.get("sync_always") is True


def _fetch(place: str) -> bytes:
    with urllib.request.urlopen(place, timeout=_LOOK_S) as answer:  # noqa: S310 - its scheme is written above
        return bytes(answer.read())
