"""The op `steps` of the log: every case on every backend, which must answer alike."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from stream import Event, EventStore, NewEvent, Producer, Snapshot, StreamError, follow, retain
from tests.backends import BACKENDS, Backend, Store
from tests.vectors.engines import Engines
from tests.vectors.values import ErrorNames, NotThereError

if TYPE_CHECKING:
    from collections.abc import Callable


def run_steps(given: dict[str, Any]) -> dict[str, Any]:
    answers = {}
    for name in Engines.names():
        with tempfile.TemporaryDirectory() as folder:
            answers[name] = asyncio.run(_run(BACKENDS[name](Path(folder)), given["steps"]))
    first = answers["memory"]
    for name, answer in answers.items():
        if answer != first:
            raise AssertionError(f"the backends differ: memory gives {first}, {name} gives {answer}")
    return {"results": first}


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {"steps": run_steps}


async def _run(backend: Backend, steps: list[dict[str, Any]]) -> list[Any]:
    store = await backend.open()
    results: list[Any] = []
    try:
        for step in steps:
            if step["do"] == "reopen":
                store = await backend.reopen(store)
                results.append("ok")
                continue
            before = await store.bounds(step.get("stream", "s"))
            try:
                result = await _do(backend, store, step)
            except (StreamError, ValueError) as error:
                result = {"error": ErrorNames.of(error)} | vars(error)
                if await store.bounds(step.get("stream", "s")) != before:
                    raise AssertionError(f"{step} was refused and has changed the stream") from error
            results.append("any" if step.get("any") else result)
    finally:
        await backend.close()
    return results


async def _do(backend: Backend, store: Store, step: dict[str, Any]) -> Any:
    stream, projector = step.get("stream", "s"), step.get("projector", "p")
    match step["do"]:
        case "append":
            return await _append(store, stream, step)
        case "producer":
            known = await store.producer(stream, step["id"])
            return known and {"epoch": known.epoch, "seq": known.seq}
        case "read":
            events = await store.read(stream, **{key: step[key] for key in ("after", "limit") if key in step})
            return _events(events, step)
        case "follow":
            return _events(await _follow_to_the_head(store, stream, step["after"]), step)
        case "bounds":
            bounds = await store.bounds(stream)
            return {"floor": bounds.floor, "head": bounds.head}
        case "truncate":
            bounds = await store.truncate(stream, through=step["through"])
            return {"floor": bounds.floor, "head": bounds.head}
        case "delete":
            await store.delete(stream)
            return "ok"
        case "adopt":
            return await _adopt(store, stream, step)
        case "save_snapshot":
            snapshot = Snapshot(stream, projector, 1, step["last_seq"], 0, step["state"].encode())
            return "ok" if await store.snapshots.save(snapshot) else "kept the older one"
        case "corrupt_snapshot":
            await backend.damage_snapshot(stream, projector, step["last_seq"])
            return "ok"
        case "load_snapshot":
            loaded = await store.snapshots.load(stream, projector)
            return loaded and {"last_seq": loaded.last_seq, "state": loaded.state.decode()}
        case "list_snapshots":
            return [info.last_seq for info in await store.snapshots.list(stream) if info.projector == projector]
        case "delete_snapshot":
            await store.snapshots.delete(stream, projector, step["last_seq"])
            return "ok"
        case "retain_snapshots":
            await retain(store.snapshots, stream, projector, keep=step["keep"])
            return "ok"
    raise NotThereError(f"no adapter for step {step['do']!r}")


async def _append(store: Store, stream: str, step: dict[str, Any]) -> dict[str, Any]:
    result = await store.append(
        stream,
        [NewEvent("t", _bytes(data)) for data in step["events"]],
        expected_seq=step.get("expected_seq"),
        append_id=step.get("append_id"),
        producer=Producer(**step["producer"]) if "producer" in step else None,
    )
    return {"first": result.first_seq, "last": result.last_seq} | ({"duplicate": True} if result.duplicate else {})


async def _adopt(store: Store, stream: str, step: dict[str, Any]) -> str:
    events = [Event(stream, seq, "t", _bytes(data), at) for seq, data, at in step["events"]]
    producers = [Producer(**producer) for producer in step.get("producers", ())]
    await store.adopt(stream, events, floor=step.get("floor", 0), producers=producers)
    return "ok"


async def _follow_to_the_head(store: Store, stream: str, after: int) -> list[Event]:
    followed: list[Event] = []
    try:
        async for event in follow(cast("EventStore", _StopsAtTheHead(store)), stream, after=after):
            followed.append(event)  # noqa: PERF401 - what came before the end counts
    except _WaitingError:
        return followed
    raise AssertionError("a follower ended by itself")


class _WaitingError(Exception):
    """The follower has come to where it waits."""


class _StopsAtTheHead:
    def __init__(self, store: Store) -> None:
        self.bounds, self.read, self.incarnation = store.bounds, store.read, store.incarnation

    async def wait(self, stream_id: str, *, after: int) -> None:
        raise _WaitingError(stream_id, after)


def _events(events: list[Event], step: dict[str, Any]) -> dict[str, Any]:
    if step.get("brief"):
        seqs = [event.seq for event in events]
        return {"count": len(seqs), "first": min(seqs, default=None), "last": max(seqs, default=None)}
    return {"events": [[event.seq, _value(event.data)] + ([event.at] if step.get("with_at") else []) for event in events]}


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


def _value(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
