"""The ops of `compaction`: what binds the floor, and what a load begins with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from ledger.pins import pins_of
from projector import Projector, load
from projector.compaction import floor_after
from stream import Bounds, Event, Snapshot, SnapshotInfo

if TYPE_CHECKING:
    from collections.abc import Callable


def run_floor(given: dict[str, Any]) -> dict[str, Any]:
    stored = [
        SnapshotInfo(projector, entry if isinstance(entry, int) else entry["last_seq"], _is_readable(entry))
        for projector, entries in given["snapshots"].items()
        for entry in entries
    ]
    pins = pins_of(
        given["head"],
        projected_seq=given.get("projected_seq"),
        open_runs=given.get("open_runs", {}),
        replay_window=given.get("replay_window", 0),
        holds={str(number): through for number, through in enumerate(given.get("holds", ()))},
    )
    floor, binds = floor_after(given["head"], given.get("floor", 0), stored, pins, {})
    if binds is None:
        return {"floor": floor}
    reason, _, which = binds.partition(":")
    return {"floor": floor, "binds": reason, "which": which}


def run_load(given: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(_load(given))


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {"floor": run_floor, "load": run_load}
_SEEN: Final = Projector[dict[str, Any]](
    "seen",
    1,
    {"from": "initial", "tail": []},
    lambda state, event: state | {"tail": [state["tail"][0] if state["tail"] else event.seq, event.seq]},
    lambda _: b"",
    lambda data: {"from": int(data), "tail": []},
)


def _is_readable(entry: int | dict[str, Any]) -> bool:
    return isinstance(entry, int) or bool(entry.get("readable", True))


class _Log:
    """A log and its snapshots, as a case says they are."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    async def bounds(self, stream_id: str) -> Bounds:
        del stream_id
        return Bounds(self._given["floor"], self._given["head"], self._given["origin"])

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        assert after >= self._given["floor"], "the bare tail was folded, or what is gone was asked for"
        last = min(after + limit, self._given["head"])
        return [Event(stream_id, seq, "t", b"", 0) for seq in range(after + 1, last + 1)]

    async def load(self, stream_id: str, projector: str) -> Snapshot | None:
        readable = [entry["last_seq"] for entry in self._given["snapshots"] if entry.get("readable", True)]
        newest = max(readable, default=None)
        return None if newest is None else Snapshot(stream_id, projector, 1, newest, 0, str(newest).encode())


async def _load(given: dict[str, Any]) -> dict[str, Any]:
    log = cast("Any", _Log(given))
    return (await load(_SEEN, log, log, "s")).state
