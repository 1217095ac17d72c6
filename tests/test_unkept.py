"""What nothing but the log keeps: it stays when a conversation is compacted, or it is let go on purpose and counted."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from ledger import open_ledger
from projector import Compaction, Projector, compact, load, open_runs
from projector.events import BODIES
from projector.foreign import is_of_vocabulary
from stream import CorruptEvent, Event, EventStore, NewEvent, SnapshotUnreadable
from tests.ledger_commands import turns
from tests.talk import new, number

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backends import Store

pytestmark = pytest.mark.anyio

KEPT: Final = frozenset({"state.patch", "custom"})
KINDS: Final = ("state.patch", "custom", "another.type", "raw", "run.usage")
State = tuple[tuple[int, str], ...]


def collect(state: State, event: Event) -> State:
    return (*state, (event.seq, event.type)) if event.type in KEPT else state


def decode(data: bytes) -> State:
    return tuple((seq, kind) for seq, kind in json.loads(data))


COLLECTOR: Final = Projector("collector", 1, cast("State", ()), collect, lambda state: json.dumps(state).encode(), decode)
KEEPER: Final = COLLECTOR._replace(keeps=KEPT)


def some(chance: random.Random, count: int) -> list[NewEvent]:
    bodies: dict[str, dict[str, Any]] = {"raw": {"provider": "p", "event": {}}, "run.usage": {"run_id": "r", "request_id": "q"}}
    kinds = [chance.choice(KINDS) for _ in range(count)]
    return [new(kind, **bodies.get(kind, {"value": chance.random()})) for kind in kinds]


def lost(events: list[Event], after: int, through: int, keeps: frozenset[str]) -> list[Event]:
    """By the rule, and not by the program: what nobody keeps of the events that go."""
    return [event for event in events[after:through] if event.type not in BODIES and event.type not in keeps]


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("seed", range(12))
async def test_what_goes_is_kept_elsewhere_or_counted(store: Store, seed: int, *, is_kept: bool) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    projectors: list[Projector[Any]] = [open_runs, KEEPER if is_kept else COLLECTOR]
    keeps = KEPT if is_kept else frozenset()
    events: list[Event] = []
    for _ in range(12):
        given = some(chance, chance.randint(0, 7)) or turns(1, f"r{len(events)}.")
        await store.append("s", given)
        events += number(given, first=len(events) + 1)
        pins = {"ledger": chance.randint(0, len(events))} if chance.random() < 0.5 else {}
        how: dict[str, Any] = {"pins": pins, "drop_unkept": chance.random() < 0.2}
        told = await compact(projectors, store, store.snapshots, "s", **how, dry_run=True)
        done = await compact(projectors, store, store.snapshots, "s", **how)
        assert done == told
        gone = lost(events, done.floor_before, done.floor, keeps)
        assert done.unkept == len(gone)
        assert how["drop_unkept"] or not gone
        if done.binds == "unkept":
            assert lost(events, done.floor, done.floor + 1, keeps)
            more = await compact(projectors, store, store.snapshots, "s", **how | {"drop_unkept": True}, dry_run=True)
            assert more.floor > done.floor
        elif not pins:
            assert done.floor == done.head
        state = (await load(COLLECTOR, store, store.snapshots, "s")).state
        assert list(state) == [(event.seq, event.type) for event in events if event.type in KEPT]


@pytest.mark.parametrize("url", ["memory:", "file", "log elsewhere"])
@pytest.mark.parametrize("seed", range(3))
async def test_a_ledger_lets_go_what_it_or_its_projectors_hold(tmp_path: Path, seed: int, url: str) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    path = "memory:" if url == "memory:" else str(tmp_path / "ledger.db")
    log = str(tmp_path / "log.db") if url == "log elsewhere" else None
    async with open_ledger(path, log=log, projectors=[KEEPER]) as ledger:
        events: list[Event] = []
        for _ in range(8):
            given = some(chance, chance.randint(0, 7)) + turns(1, f"r{len(events)}.")
            await ledger.record("c", given)
            events += number(given, first=len(events) + 1)
            before = await ledger.transcript("c", branch="all")
            how: dict[str, Any] = {"drop_unkept": chance.random() < 0.2, "replay_window": chance.choice((0, 0, 5))}
            told = await ledger.compact("c", **how, dry_run=True)
            done = await ledger.compact("c", **how)
            assert done == told
            gone = lost(events, done.floor_before, done.floor, KEPT)
            assert (done.unkept, not gone or how["drop_unkept"]) == (len(gone), True)
            assert await ledger.transcript("c", branch="all") == before
            state = await ledger.project(KEEPER, "c")
            assert list(state) == [(event.seq, event.type) for event in events if event.type in KEPT]


async def test_the_first_event_that_nothing_else_keeps_binds(store: Store) -> None:
    await store.append("s", [*turns(1), new("another.type"), *turns(1, "z")])
    done = await compact([open_runs], store, store.snapshots, "s")
    assert done == Compaction(0, 7, 15, "unkept")
    assert await compact([open_runs], store, store.snapshots, "s") == Compaction(7, 7, 15, "unkept")
    assert [event.type for event in await store.read("s", after=7, limit=1)] == ["another.type"]
    done = await compact([open_runs], store, store.snapshots, "s", pins={"ledger": 7})
    assert done == Compaction(7, 7, 15, "ledger")  # which keeps it for its own reason
    done = await compact([open_runs], store, store.snapshots, "s", drop_unkept=True)
    assert done == Compaction(7, 15, 15, None, 1)


async def test_what_a_projector_keeps_goes_only_once_its_snapshot_was_read_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("s", [new("custom", name="n", value=1)])

    async def nothing(stream_id: str, projector: str) -> None:
        del stream_id, projector

    with monkeypatch.context() as patched:
        patched.setattr(type(store.snapshots), "load", lambda _, *place: nothing(*place))
        with pytest.raises(SnapshotUnreadable, match="can't be read back"):
            await compact([KEEPER], store, store.snapshots, "s")
    assert (await store.bounds("s")).floor == 0
    assert await compact([KEEPER], store, store.snapshots, "s") == Compaction(0, 1, 1, None)
    await store.append("s", [new("custom", name="n", value=2)])
    assert (await compact([COLLECTOR], store, store.snapshots, "s")).binds == "unkept"  # it keeps them no longer


class Odd:
    """A store some of whose events can't be read; it counts what was."""

    def __init__(self, store: EventStore, damaged: set[int]) -> None:
        self._store = store
        self._damaged = damaged
        self.read_events = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        events = await self._store.read(stream_id, after=after, limit=limit)
        for event in events:
            if event.seq in self._damaged:
                raise CorruptEvent(stream_id, event.seq, "for a test")
        self.read_events += len(events)
        return events


async def test_an_event_that_cant_be_read_stays_for_nobody_can_tell_what_it_was(store: Store) -> None:
    head = (await store.append("s", turns(40))).last_seq
    loaded = await load(open_runs, store, store.snapshots, "s")
    odd = cast("EventStore", Odd(store, {100, 101, 200}))
    known: dict[str, Any] = {"known": {"open_runs": loaded}}
    done = await compact([open_runs], odd, store.snapshots, "s", **known)
    assert done == Compaction(0, 99, head, "unkept")
    assert await compact([open_runs], odd, store.snapshots, "s", **known, dry_run=True) == done._replace(floor_before=99)
    done = await compact([open_runs], odd, store.snapshots, "s", **known, drop_unkept=True)
    assert done == Compaction(99, head, head, None, 3)


async def test_what_is_bound_is_not_looked_through_again(store: Store) -> None:
    events = [new("custom", name="n", value=1), *turns(700)]
    for at in range(0, len(events), 1000):
        await store.append("s", events[at : at + 1000])
    loaded = await load(open_runs, store, store.snapshots, "s")
    odd = Odd(store, set())
    known = {"open_runs": loaded}
    done = await compact([open_runs], cast("EventStore", odd), store.snapshots, "s", known=known)
    assert (done.floor, done.binds) == (0, "unkept")
    assert odd.read_events <= 1000


async def test_what_stays_after_all_is_not_counted(store: Store) -> None:
    await store.append("s", [new("another.type")] * 9)

    async def held(floor: int, binds: str | None) -> tuple[int, str | None]:
        assert (floor, binds) == (9, None)
        return (await store.truncate("s", through=4)).floor, "hold:taken meanwhile"

    done = await compact([open_runs], store, store.snapshots, "s", drop_unkept=True, truncate=held)
    assert done == Compaction(0, 4, 9, "hold:taken meanwhile", 4)


async def test_a_log_that_is_let_go_meanwhile_is_no_error(store: Store) -> None:
    head = (await store.append("s", turns(4))).last_seq
    bounds = await store.bounds("s")
    await compact([open_runs], store, store.snapshots, "s", pins={"ledger": 10})
    done = await compact([open_runs], store, store.snapshots, "s", bounds=bounds)
    assert (done.floor_before, done.floor) == (0, head)


def test_of_the_vocabulary_is_what_has_a_type_and_a_body_of_it() -> None:
    events = [
        *turns(1), new("raw", provider="p", event={}), new("raw", event={}), NewEvent("raw", b"\xff"), new("custom", value=1),
    ]  # fmt: skip
    assert [is_of_vocabulary(event) for event in number(events)] == [True] * 8 + [False] * 3
