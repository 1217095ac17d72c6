"""What the servers must be like, looked at when a log is opened."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stream.errors import StoreUnusable
from stream.nats.client import Client
from stream.nats.errors import FAILURES, refusal
from stream.tasks import finish_anyway

if TYPE_CHECKING:
    from stream.nats.address import Address


class _Server(msgspec.Struct):
    name: str
    id: str


class _Said(msgspec.Struct):
    server: _Server
    data: dict[str, Any]


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


async def check_sync(client: Client, address: Address) -> None:
    """Raises `StoreUnusable` unless each server says that it waits for its disk before it acknowledges."""
    if address.system is not None:
        answers = await _ask_as(address.of(*address.system), client)
    else:
        answers = await _ask_monitors(client, address)
    for name, said in answers.items():
        if not _is_always(said):
            why = f"{name} acknowledges what is not on its disk and loses it in a power cut"
            raise StoreUnusable(address.name, f"{why}: {_WAY_OUT}, or open it with durability='normal'")


async def _ask_as(system: Address, client: Client) -> dict[str, Any]:
    """What each server says to the user of the URL's `system=`."""
    asker = Client(system)
    try:
        await asker.connect()
        answers = await _ask_all(asker, client)
    except StoreUnusable as error:
        why = "the servers refuse the user of system=: look at the name and password, with odd characters as %40 for @"
        raise StoreUnusable(system.name, why) from error
    finally:
        await finish_anyway(asker.close())
    if isinstance(answers, str):
        why = f"whether all servers wait for their disks can't be seen: {answers}"
        way_out = f"name a user of the system account in system=, start all servers, or say sync=trusted if you have {_WAY_OUT}"
        raise StoreUnusable(system.name, f"{why}: {way_out}")
    return answers


async def _ask_monitors(client: Client, address: Address) -> dict[str, Any]:
    """What the monitors of the named servers say; where one is silent, all servers are asked by whoever opens the log."""
    answers: dict[str, Any] = {}
    for host, port in address.monitors:
        place = f"http://{host}:{port}/varz"
        try:
            answers[f"{host}:{port}"] = msgspec.json.decode(await asyncio.to_thread(_fetch, place))
        except (OSError, ValueError, urllib.error.URLError) as error:
            told = await _ask_all(client, client)
            if not isinstance(told, str):
                return told
            why = f"whether {host} waits for its disk can't be seen, {place} does not answer ({error})"
            way_out = f"say monitor=PORT, system=user:password of the system account, or sync=trusted if you have {_WAY_OUT}"
            raise StoreUnusable(address.name, f"{why}: {way_out}") from error
    return answers


async def _ask_all(asker: Client, client: Client) -> dict[str, Any] | str:
    """What each server with JetStream says of itself to who may ask the system account; why, where not all have said it.

    They know of each other: the one that `client` is connected to names them.
    """
    own = client.server_id
    answers: dict[str, Any] = {}
    wanted: set[str] = set()
    size = 1
    inbox = asker.driver.new_inbox()
    deadline = time.monotonic() + _LOOK_S
    try:
        heard = await asker.driver.subscribe(inbox)
    except FAILURES as error:
        return str(error)
    try:
        await asker.driver.publish("$SYS.REQ.SERVER.PING.VARZ", b"", reply=inbox)
        while len(wanted) < size or not wanted <= answers.keys():
            message = await heard.next_msg(timeout=max(deadline - time.monotonic(), 0.001))
            if not message.data:
                return "this user may not ask the system account"
            said = msgspec.json.decode(message.data, type=_Said)
            answers[said.server.name] = said.data
            meta = _meta(said.data)
            if said.server.id == own:
                size = max(meta.get("cluster_size", 1), 1)
                wanted.add(said.server.name)
            if meta or said.server.id == own:  # some versions have only the leader name the others
                wanted |= {said.server.name, *(each["name"] for each in meta.get("replicas") or [])}
    except (*FAILURES, msgspec.MsgspecError):
        missing = sorted(wanted - answers.keys())
        if missing:
            return f"{', '.join(missing)} did not answer"
        return f"{len(answers)} of {size} answered" if answers else "nobody answers this user in the system account"
    finally:
        with contextlib.suppress(*FAILURES):
            await heard.unsubscribe()
    return {name: answers[name] for name in wanted}


def _meta(said: dict[str, Any]) -> dict[str, Any]:
    """What a server says of all those with JetStream of its cluster, whether they are there or not; nothing, if it is alone."""
    meta = said.get("jetstream", {}).get("meta")
    return meta if isinstance(meta, dict) else {}


def _is_always(said: Any) -> bool:
    config = said.get("jetstream", {}).get("config", {}) if isinstance(said, dict) else {}
    return isinstance(config, dict) and config.get("sync_always") is True


def _fetch(place: str) -> bytes:
    with urllib.request.urlopen(place, timeout=_LOOK_S) as answer:  # noqa: S310 - its scheme is written above
        return bytes(answer.read())
