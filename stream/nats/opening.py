"""Opens the log of a URL: looks whether the servers are as they must be, and finds the JetStream streams or makes them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from stream.clock import now_ms
from stream.errors import StoreUnusable
from stream.nats.address import read_address
from stream.nats.client import Client
from stream.nats.errors import NAME_IN_USE, STREAM_UNKNOWN, Unclear, refusal
from stream.nats.layout import Layout
from stream.nats.log import Log
from stream.nats.server import check_jetstream, check_sync, check_version
from stream.nats.store import NatsStore, limits_of
from stream.tasks import finish_anyway

if TYPE_CHECKING:
    from collections.abc import Callable

    from stream.nats.address import Address

_FORM: Final = "1"
_VERSION: Final = "tailfold"
_INCARNATION: Final = "tailfold-incarnation"
_SHARDS: Final = "tailfold-shards"
_MIN_PAYLOAD: Final = 64 * 1024


async def open_nats(
    url: str, *, create: bool = True, durability: str = "full", clock_ms: Callable[[], int] = now_ms
) -> NatsStore:
    """A store over the JetStream streams that the URL names. See `stream.open_store`."""
    address = read_address(url)
    client = Client(address)
    try:
        await client.connect()
        check_version(client.driver.connected_server_version, address.name)
        if client.max_payload < _MIN_PAYLOAD:
            raise StoreUnusable(address.name, f"max_payload is {client.max_payload} bytes: {_MIN_PAYLOAD} are needed")
        await check_jetstream(client)
        if durability == "full" and not address.is_sync_trusted:
            await check_sync(client, address)
        layout, incarnation = await _find_or_make(client, address, create=create)
    except BaseException:
        await finish_anyway(client.close())
        raise
    return NatsStore(Log(client, layout), incarnation, limits_of(client.max_payload), clock_ms)


async def _find_or_make(client: Client, address: Address, *, create: bool) -> tuple[Layout, str]:
    """The first stream decides: who makes it mints the incarnation; the others follow, whoever makes them."""
    first = Layout(address.stream, 1)
    info = await _look(client, first.stream(0))
    if info is None:
        if not create:
            raise StoreUnusable(address.name, f"there is no JetStream stream {first.stream(0)!r}: open it with create")
        shards = address.shards or 1
        metadata = {_VERSION: _FORM, _INCARNATION: secrets.token_hex(16), _SHARDS: str(shards)}
        info = await _make(client, Layout(address.stream, shards), 0, address.replicas or 1, metadata)
    metadata = info["config"].get("metadata") or {}
    if metadata.get(_VERSION) != _FORM or not metadata.get(_SHARDS, "").isdigit() or not metadata.get(_INCARNATION):
        why = f"JetStream stream {first.stream(0)!r} is not one of this Tailfold's: say another stream=, or upgrade Tailfold"
        raise StoreUnusable(address.name, why)
    layout = Layout(address.stream, int(metadata[_SHARDS]))
    if address.shards not in (None, layout.shards):
        why = f"it was made with shards={layout.shards}, and that is for ever: say so, or leave it out"
        raise StoreUnusable(address.name, why)
    ours = {key: metadata[key] for key in (_VERSION, _INCARNATION, _SHARDS)}
    replicas = int(info["config"]["num_replicas"])
    for shard in range(layout.shards):
        if shard:
            info = await _look(client, layout.stream(shard)) or await _make(client, layout, shard, replicas, ours)
        _check_config(address, layout, shard, info["config"], ours)
    return layout, metadata[_INCARNATION]


async def _look(client: Client, stream: str) -> dict[str, Any] | None:
    answer = await client.ask(f"STREAM.INFO.{stream}")
    error = answer.get("error")
    if error is None:
        return answer
    if error.get("err_code") == STREAM_UNKNOWN:
        return None
    raise refusal(error, client.path)


async def _make(client: Client, layout: Layout, shard: int, replicas: int, metadata: dict[str, str]) -> dict[str, Any]:
    """The stream, also where another opener was faster."""
    stream = layout.stream(shard)

    async def once() -> dict[str, Any]:
        answer = await client.ask(f"STREAM.CREATE.{stream}", _config(layout, shard, replicas) | {"metadata": metadata})
        error = answer.get("error")
        if error is not None and error.get("err_code") != NAME_IN_USE:
            raise refusal(error, client.path)
        found = await _look(client, stream)
        if found is None:
            raise Unclear("the stream is made, and not there yet")
        return found

    return await client.again(once)


def _config(layout: Layout, shard: int, replicas: int) -> dict[str, Any]:
    """Nothing goes because time passed, or because there is much of it; what is there is let go of by us alone."""
    return {
        "name": layout.stream(shard),
        "description": "A log of Tailfold: its last message of each subject says all, never purge one whole",
        "subjects": layout.subjects(shard),
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": replicas,
        "allow_direct": True,
        "allow_atomic": True,
        "allow_rollup_hdrs": True,
        "republish": layout.republish(shard),
    }


def _check_config(address: Address, layout: Layout, shard: int, config: dict[str, Any], ours: dict[str, str]) -> None:
    """Raises `StoreUnusable` for one with which a promise could not be kept. Its limits of bytes are its owner's to set."""
    wanted = _config(layout, shard, address.replicas or config.get("num_replicas", 1))
    for key in ("description", "discard" if config.get("max_bytes", -1) < 0 else ""):
        wanted.pop(key, None)
    wanted |= {"max_age": 0, "max_msgs": -1, "max_msgs_per_subject": -1, "max_msg_size": -1, "persist_mode": "default"}
    wanted |= {"deny_purge": False, "sealed": False, "no_ack": False, "subject_transform": None}
    for key, value in wanted.items():
        found = config.get(key, value if key.startswith(("max_", "deny_", "sealed", "no_", "persist_")) else None)
        if key == "republish" and isinstance(found, dict):
            found = {name: found.get(name) for name in layout.republish(shard)}
        if found != value:
            why = f"JetStream stream {layout.stream(shard)!r} has {key}={found!r}, and {value!r} is needed"
            raise StoreUnusable(address.name, f"{why}: say another stream=, or have it so")
    metadata = config.get("metadata") or {}
    if {key: metadata.get(key) for key in ours} != ours:
        why = f"JetStream stream {layout.stream(shard)!r} is of another life of this store"
        raise StoreUnusable(address.name, f"{why}: delete it, or say another stream=")
