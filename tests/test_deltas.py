"""Deltas that are joined say what they said one by one: in a fold, in the log, and whatever is wrong with some."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import catchup, open_ledger
from ledger.catchup import _project_all
from ledger.runs import outbox
from ledger.runs.outbox import Outbox
from ledger.transfer.encoded import encode_bodies
from projector import State, open_runs
from projector.deltas import join_events
from projector.events import BlockDelta, BlockSealed, Body, MessageStarted, to_event
from projector.folds import project
from projector.json_text import raw
from projector.run_draft import RunDraft
from projector.validation import validate
from stream import Event, InvalidEvent, MemoryStore, NewEvent, Producer
from stream.limits import MAX_APPEND_EVENTS, check_events
from tests.faults.sizes import size
from tests.talk import finished, new, said, started
from tests.test_folds import any_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.effects import Effect

pytestmark = pytest.mark.anyio

pieces = st.text(max_size=3) | st.sampled_from(["\ud83d", "\ude00", "a\0", "é\u2028"])
deltas = st.builds(
    lambda message_id, block, text, field, strange, spaces: (
        "block.delta",
        json.dumps(
            {"message_id": message_id, "block": block, "text": text} | field | strange, separators=(",", spaces)
        ).encode(),
    ),
    st.sampled_from(["m1", "m1", "m1", "m2"]),
    st.sampled_from([0, 0, 0, 1, True, "0", 2**70]),
    pieces,
    st.sampled_from([{}, {}, {}, {"field": "summary"}, {"field": None}, {"field": 3}]),
    st.sampled_from([{}, {}, {}, {}, {"strange": 1.50}, {"text": None}]),
    st.sampled_from([":", ":", ": "]),
)
steps = st.sampled_from(
    [
        ("run.started", b'{"run_id":"r1","parent_message_id":null,"trigger":"submit","producer":"r1"}'),
        ("message.started", b'{"run_id":"r1","message_id":"m1","role":"assistant"}'),
        ("message.started", b'{"run_id":"r1","message_id":"m2","role":"assistant"}'),
        ("block.started", b'{"message_id":"m1","block":0,"kind":"text"}'),
        ("block.started", b'{"message_id":"m1","block":1,"kind":"reasoning"}'),
        ("block.started", b'{"message_id":"m2","block":0,"kind":"tool_call"}'),
        ("block.sealed", b'{"message_id":"m1","block":0}'),
        ("message.finished", b'{"message_id":"m1","status":"complete"}'),
        ("run.step", b'{"run_id":"r1","n":1,"phase":"started"}'),
        ("run.step", b'{"run_id":"r1","n":1,"phase":"reset"}'),
        ("run.finished", b'{"run_id":"r1","outcome":"completed"}'),
        ("block.delta", b'{"message_id":"m1","block":0,"text":"\xff"}'),
        ("block.delta", b'{"message_id":"m1","block":0,"text":"x"} '),
        ("block.delta", b'{"message_id":"m1","block":0,"text":"x","text":"y"}'),
        ("block.delta", b'{"message_id":"m1","block":0,"text":"'),
        ("block.delta", b'{"message_id":"m1","block":0,"text":"z","n":1e400}'),
    ]
)
opening = [("run.started", b'{"run_id":"r1","parent_message_id":null,"trigger":"submit","producer":"r1"}'),
           ("message.started", b'{"run_id":"r1","message_id":"m1","role":"assistant"}'),
           ("block.started", b'{"message_id":"m1","block":0,"kind":"text"}')]  # fmt: skip
talks = st.lists(st.lists(deltas, max_size=6) | st.lists(steps | any_event, max_size=2), max_size=12).map(
    lambda parts: opening + [event for part in parts for event in part]
)


def one_by_one(state: State, events: Sequence[Event], *, after: int) -> tuple[State, list[Effect]]:
    effects = []
    for event in events:
        state, effect = project(state, event)
        if effect is not None and event.seq > after:
            effects.append(effect)
    return state, effects


@pytest.mark.heavy
@given(talks, st.integers(0, 40), st.integers(0, 60))
@settings(max_examples=size(smoke=150, full=400), deadline=None)
def test_what_is_joined_folds_as_one_by_one(kinds: list[tuple[str, bytes]], after: int, cut: int) -> None:
    events = [Event("c", seq, kind, data, seq * 7) for seq, (kind, data) in enumerate(kinds, 1)]
    state, effects = one_by_one(State(), events, after=after)
    joined: State = State()
    found: list[Effect] = []
    for page in (events[:cut], events[cut:]):
        joined, more = _project_all(joined, page, after=after)
        found += more
    assert open_runs.encode(joined) == open_runs.encode(state)
    assert list(joined.anomalies) == list(state.anomalies)
    assert joined.last_seq == state.last_seq == len(events)
    assert [comparable(effect) for effect in found] == [comparable(effect) for effect in effects]


def comparable(effect: Effect) -> tuple[Any, ...]:
    """A run as it is kept: growing texts are alike when their text is."""
    return type(effect), *(open_runs.encode(State(open={"": part})) if isinstance(part, RunDraft) else part for part in effect)


@given(talks)
@settings(max_examples=size(smoke=50, full=100), deadline=None)
@pytest.mark.heavy
def test_every_event_is_a_part_once_and_in_order(kinds: list[tuple[str, bytes]]) -> None:
    events = [Event("c", seq, kind, data, 0) for seq, (kind, data) in enumerate(kinds, 1)]
    joined = list(join_events(events))
    assert [part for one in joined for part in one.parts] == events
    assert all(one.event.seq == one.parts[-1].seq for one in joined)
    assert all(one.event is one.parts[0] for one in joined if len(one.parts) == 1)


async def test_a_page_of_deltas_is_a_handful_of_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    folded: list[str] = []

    def counted(state: State, event: Event, body: Body | None = None) -> tuple[State, Effect | None]:
        folded.append(event.type)
        return project(state, event, body)

    monkeypatch.setattr(catchup, "project", counted)
    pieces = [f"{n}," for n in range(900)]
    async with open_ledger("memory:") as ledger:
        await ledger.store.append("c", [started("r"), *said("r", "r.1", *pieces), finished("r")])
        [message] = await ledger.transcript("c")
    assert message.text == "".join(pieces)
    assert folded == [
        "run.started", "message.started", "block.started", "block.delta", "block.sealed", "message.finished", "run.finished",
    ]  # fmt: skip


async def test_deltas_of_a_block_that_takes_none_are_anomalies_each_with_its_number() -> None:
    deltas = [new("block.delta", message_id="r.1", block=0, text="late") for _ in range(3)]
    async with open_ledger("memory:") as ledger:
        await ledger.store.append("c", [started("r"), *said("r", "r.1", "x"), *deltas])
        caught = await catchup.CatchUp(ledger.store, ledger.tables).run("c")
    assert [(anomaly.seq, anomaly.why) for anomaly in caught.state.anomalies] == [
        (seq, "message r.1 is finished") for seq in (7, 8, 9)
    ]


def test_deltas_of_an_import_are_joined_up_to_a_size() -> None:
    bodies = [BlockDelta("m", 0, piece * 256) for piece in ("ab", "", "cd", "ef", "g")]
    seal = BlockSealed("m", 0)
    other = [BlockDelta("m", 0, "x", "summary"), BlockDelta("m", 1, "y"), BlockDelta("n", 1, "z")]
    joined = [made.event for made in encode_bodies([*bodies, seal, *other])]
    whole = [BlockDelta("m", 0, "ab" * 256 + "cd" * 256), BlockDelta("m", 0, "ef" * 256 + "g" * 256), seal, *other]
    assert joined == [to_event(body) for body in whole]


odd_bodies: st.SearchStrategy[Body] = st.one_of(
    st.builds(
        BlockDelta,
        st.sampled_from(["m", "m", "n", "é" * 128, "x" * 257, "", "a\0", "\ud83d", 5, None]),
        st.sampled_from([0, 0, 1, -1, True, "0", 1.5, 2**64]),
        pieces | st.sampled_from([None, 7]),
        st.sampled_from([None, None, "summary", "\ud83d", 3]),
    ),
    st.builds(BlockDelta, st.just("m"), st.just(0), pieces),
    st.sampled_from(
        [MessageStarted("r", "m", "user"), MessageStarted("r" * 201, "m", "user"), BlockSealed("m", 0, input=raw("[1e400]"))]
    ),
)


@given(st.lists(st.lists(odd_bodies, max_size=4), max_size=5), st.sampled_from([0, 60_000]))
@settings(max_examples=size(smoke=80, full=200), deadline=None)
def test_what_is_put_is_refused_or_written_as_if_each_body_were_an_event_first(puts: list[list[Body]], flush_ms: int) -> None:
    async def write() -> tuple[list[NewEvent], list[NewEvent]]:
        store, wanted = MemoryStore(), list[Body]()
        box = Outbox(store, "c", Producer("r", 0, 0), 0, flush_ms=flush_ms)
        for bodies in puts:
            refusal = why_refused(bodies)
            if refusal is None:
                box.put(bodies)
                wanted += [body for body in bodies if not (flush_ms and isinstance(body, BlockDelta) and not body.text)]
            else:
                with pytest.raises(InvalidEvent) as refused:
                    box.put(bodies)
                assert (refused.value.index, str(refused.value)) == (refusal.index, str(refusal))
        await box.flush()
        await box.close()
        written = [NewEvent(event.type, event.data) for event in await store.read("c")]
        return written, [to_event(body) for body in (joined(wanted) if flush_ms else wanted)]

    written, wanted = asyncio.run(write())
    assert written == wanted


def joined(bodies: list[Body]) -> list[Body]:
    """Adjacent deltas of one block as one."""
    made: list[Body] = []
    for body in bodies:
        last = made[-1] if made else None
        if isinstance(body, BlockDelta) and isinstance(last, BlockDelta) and same_block(body, last):
            made[-1] = BlockDelta(last.message_id, last.block, last.text + body.text, last.field)
        else:
            made.append(body)
    return made


def same_block(one: BlockDelta, other: BlockDelta) -> bool:
    return (one.message_id, one.block, one.field) == (other.message_id, other.block, other.field)


def why_refused(bodies: list[Body]) -> InvalidEvent | None:
    events = [to_event(body) for body in bodies]
    try:
        validate(events)
        check_events(events)
    except InvalidEvent as error:
        return error
    return None


@pytest.mark.parametrize("flush_ms", [0, 60_000])
async def test_a_delta_of_bytes_is_refused_with_all_that_came_with_it(flush_ms: int) -> None:
    store = MemoryStore()
    box = Outbox(store, "c", Producer("r", 0, 0), 0, flush_ms=flush_ms)
    box.put([BlockDelta("m", 0, "taken")])
    with pytest.raises(InvalidEvent, match="the text of a delta is b'odd', not text") as refused:
        box.put([BlockDelta("m", 0, ", "), BlockDelta("m", 0, b"odd")])  # type: ignore[arg-type]
    assert refused.value.index == 1
    await box.flush()
    await box.close()
    assert [event.data for event in await store.read("c")] == [to_event(BlockDelta("m", 0, "taken")).data]


async def test_no_delta_is_encoded_before_it_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Body] = []

    def counted(body: Body) -> NewEvent:
        encoded.append(body)
        return to_event(body)

    monkeypatch.setattr(outbox, "to_event", counted)
    box = Outbox(MemoryStore(), "c", Producer("r", 0, 0), 0, flush_ms=60_000)
    box.put([MessageStarted("r", "m", "user"), BlockDelta("m", 0, "a")])
    box.put([BlockDelta("m", 0, "b"), BlockDelta("m", 0, "c")])
    await box.flush()
    await box.close()
    assert [body for body in encoded if isinstance(body, BlockDelta)] == [BlockDelta("m", 0, "abc")]


async def test_a_put_that_is_too_large_is_refused_though_its_deltas_would_be_joined() -> None:
    box = Outbox(MemoryStore(), "c", Producer("r", 0, 0), 0, flush_ms=60_000)
    with pytest.raises(InvalidEvent, match="events, not"):
        box.put([BlockDelta("m", 0, "a")] * (MAX_APPEND_EVENTS + 1))
    with pytest.raises(InvalidEvent, match="split it"):
        box.put([BlockDelta("m", 0, "a" * 2**20)] * 65)
    await box.close()
