"""The folds are pure, never raise, and a snapshot at any place changes nothing (DESIGN, laws 4 and 14)."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector import State, open_runs, settle, transcript
from projector.effects import RunClosed
from projector.events import BODIES
from projector.folds import project
from stream import Event
from tests.faults.sizes import size
from tests.talk import conversation, finished, new, number, said, started

if TYPE_CHECKING:
    from projector import Message, Projector

BOTH = pytest.mark.parametrize("projector", [transcript, open_runs], ids=lambda projector: projector.name)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=4)
    | st.sampled_from(["r1", "r2", "m1", "m2", "text", "ok"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "text", "block"]), inner, max_size=2),
    max_leaves=4,
)
ids = st.sampled_from(["m1", "m2"])
bodies = st.fixed_dictionaries(
    {},
    optional={
        "run_id": st.sampled_from(["r1", "r2"]) | json_values,
        "message_id": ids | json_values,
        "block": st.integers(0, 2) | json_values,
        "parent_message_id": st.none() | ids,
        "trigger": st.just("submit"),
        "producer": st.just("r1"),
        "role": st.sampled_from(["user", "assistant"]),
        "kind": st.sampled_from(["text", "reasoning", "tool_call"]),
        "text": st.text(max_size=3) | json_values,
        "status": st.sampled_from(["complete", "partial", "ok"]),
        "outcome": st.sampled_from(["completed", "failed", "cancelled", "incomplete"]),
        "action": st.sampled_from(["commit", "fail", "cancel"]),
        "phase": st.sampled_from(["started", "finished", "reset"]),
        "n": st.integers(1, 2),
        "last_seq": st.just(1),
        "request_id": st.just("q"),
        "patch": json_values,
        "blocks": json_values,
        "citation": json_values,
        "parts": json_values,
        "tool_call_id": st.just("c"),
        "strange": json_values,
    },
)
any_event = st.tuples(
    st.sampled_from([*BODIES, "weather"]), bodies.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=8)
)


def fold_all(projector: Projector[State], state: State, events: list[Event]) -> State:
    for event in events:
        state = projector.fold(state, event)
    return state


@BOTH
def test_a_snapshot_at_every_position_and_the_tail_are_the_whole_fold(projector: Projector[State]) -> None:
    events = number(conversation())
    whole = projector.encode(fold_all(projector, projector.initial, events))
    for cut in range(len(events) + 1):
        kept = projector.encode(fold_all(projector, projector.initial, events[:cut]))
        assert projector.encode(fold_all(projector, projector.decode(kept), events[cut:])) == whole


@BOTH
def test_a_state_stays_what_it_was_when_it_is_folded_on_in_two_ways(projector: Projector[State]) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    choose = random.Random(seed)
    events = number(conversation())
    for _ in range(40):
        cut = choose.randrange(len(events))
        state = fold_all(projector, projector.initial, events[:cut])
        before = projector.encode(state)
        other = number([started("zz"), *said("zz", "zz.1", "other")], first=cut + 1)
        branches = [fold_all(projector, state, branch) for branch in (events[cut:], other, events[cut:])]
        assert projector.encode(state) == before
        assert projector.encode(branches[0]) == projector.encode(branches[2])
        assert projector.encode(branches[0]) != projector.encode(branches[1])
    assert projector.encode(projector.initial) == projector.encode(State())


@BOTH
@settings(max_examples=size(smoke=60, full=150), deadline=None)
@given(st.lists(any_event, max_size=25), st.integers(0, 25))
@pytest.mark.heavy
def test_no_event_makes_a_fold_raise_and_the_snapshot_law_holds(
    projector: Projector[State], drawn: list[tuple[str, bytes]], cut: int
) -> None:
    first = number([started("r1"), *said("r1", "m1", "x")])
    events = first + [Event("s", seq, kind, data, 0) for seq, (kind, data) in enumerate(drawn, len(first) + 1)]
    half = fold_all(projector, projector.initial, events[:cut])
    whole = fold_all(projector, half, events[cut:])
    again = fold_all(projector, projector.decode(projector.encode(half)), events[cut:])
    assert projector.encode(again) == projector.encode(whole)
    assert whole.last_seq == len(events)
    whole.all_messages()


def test_both_folds_leave_the_same_of_a_run_that_ends() -> None:
    events = number(conversation())
    state = open_runs.initial
    settled: list[Message] = []
    for event in events:
        state, effect = project(state, event)
        settled += settle(*effect).messages if isinstance(effect, RunClosed) else ()
    whole = fold_all(transcript, transcript.initial, events[:-3])  # without the amendment behind the end
    assert [message for message in whole.all_messages() if message.run_id == "r1"] == settled
    assert [message.text for message in settled] == ["What is it?", "", "", "right"]
    assert [message.parent_id for message in settled] == [None, "r1.1", "r1.2", "r1.3"]


def test_of_a_failed_run_unfinished_messages_stay_off_the_path_and_are_no_parents() -> None:
    events = [started("r"), *said("r", "r.1", "q", role="user")]
    events += [
        new("message.started", run_id="r", message_id="r.2", role="assistant"),
        new("block.started", message_id="r.2", block=0, kind="text"),
    ]
    events += [new("block.delta", message_id="r.2", block=0, text="ha"), *said("r", "r.3", "whole"), finished("r", "failed")]
    state = open_runs.initial
    for event in number(events):
        state, effect = project(state, event)
    assert isinstance(effect, RunClosed)
    settled = settle(*effect)
    assert [(message.id, message.parent_id) for message in settled.path] == [("r.1", None), ("r.3", "r.1")]
    assert [(message.id, message.status, message.parent_id) for message in settled.off] == [("r.2", "partial", "r.1")]


def test_what_is_said_about_messages_of_runs_that_ended_leaves_no_trace_in_a_snapshot_of_the_open_runs() -> None:
    events = [started("r"), *said("r", "r.1", "x"), finished("r")]
    events += [new("message.annotated", message_id="r.1", patch={"n": n}) for n in range(2000)]
    state = fold_all(open_runs, open_runs.initial, number(events))
    assert len(open_runs.encode(state)) <= 80
    old = b'{"last_seq":9,"open":{},"ended":[],"messages":[],"amendments":[7,8,9],"anomalies":[]}'
    assert open_runs.version == 1
    assert open_runs.encode(open_runs.decode(old)) == old.replace(b'"amendments":[7,8,9],', b"")


def test_unknown_fields_stay_with_their_message_as_they_came() -> None:
    data = b'{"message_id": "r.1", "block": 0, "text": "a", "score": 1e400, "big": %d, "odd": "\\ud83d"}' % 2**200
    events = number([started("r"), *said("r", "r.1", "x")[:2]])
    events.append(Event("s", 4, "block.delta", data, 0))
    state = transcript.decode(transcript.encode(fold_all(transcript, transcript.initial, events)))
    [unknown] = state.all_messages()[0].unknown
    assert unknown.fields == {"score": "1e400", "big": str(2**200), "odd": '"\\ud83d"'}
    assert not list(state.anomalies)


def test_a_long_text_is_folded_in_linear_time() -> None:
    """Ten times the deltas take about ten times as long, not a hundred times."""
    import time  # noqa: PLC0415

    def fold_deltas(count: int) -> float:
        head = number([started("r"), *said("r", "r.1")[:2]])
        state = fold_all(open_runs, open_runs.initial, head)
        events = [
            Event("s", seq, "block.delta", b'{"message_id":"r.1","block":0,"text":"abc "}', 0) for seq in range(4, 4 + count)
        ]
        begin = time.process_time()
        state = fold_all(open_runs, state, events)
        assert len(state.all_messages()[0].text) == 4 * count
        return time.process_time() - begin

    small = min(fold_deltas(1000) for _ in range(3))
    assert min(fold_deltas(10_000) for _ in range(2)) < 40 * small


def test_a_second_end_changes_what_it_says_and_keeps_the_rest() -> None:
    own = {"provider": "p", "payload": {"x": 1}}
    sealed = new("block.sealed", message_id="r.1", block=0, signature="s", opaque=own)
    again = new("block.sealed", message_id="r.1", block=0, text="b")
    begun = [
        started("r"),
        new("message.started", run_id="r", message_id="r.1", role="assistant"),
        new("block.started", message_id="r.1", block=0, kind="text"),
        new("block.delta", message_id="r.1", block=0, text="a"),
    ]
    [once], [twice] = (
        fold_all(transcript, transcript.initial, number([*begun, *ends, finished("r")])).all_messages()
        for ends in ([sealed], [sealed, again])
    )
    assert (once.text, twice.text) == ("a", "b")
    assert [block.signature for block in twice.blocks] == ["s"]
    assert [block.opaque for block in twice.blocks] == [block.opaque for block in once.blocks]
