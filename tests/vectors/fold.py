"""The ops `fold` and `fold_open`: events to canonical messages, and the snapshot law for every case."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from projector import State, open_runs, transcript
from projector.effects import MessageAmended, UsageAdded
from projector.folds import project
from projector.message import present
from stream import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projector import Projector


def run_fold(given: dict[str, Any]) -> dict[str, Any]:
    state = _fold(transcript, given)
    runs: dict[str, Any] = {run_id: {"outcome": "open"} | _usage(run.usage) for run_id, run in state.open.items()}
    runs |= {run_id: {"outcome": run.end.outcome} | _usage(run.usage) for run_id, run in state.ended.items()}
    return {"messages": _messages(state), "runs": runs, "anomalies": [anomaly.seq for anomaly in state.anomalies]}


def run_fold_open(given: dict[str, Any]) -> dict[str, Any]:
    state = _fold(open_runs, given)
    return {
        "open": [[run.run_id, run.seq] for run in state.open.values()],
        "messages": _messages(state),
        "amendments": _handed_on(given),
        "anomalies": [anomaly.seq for anomaly in state.anomalies],
    }


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {"fold": run_fold, "fold_open": run_fold_open}


def _handed_on(given: dict[str, Any]) -> list[int]:
    """The seqs of the amendments that the fold of the open runs hands on."""
    state, seqs = open_runs.initial, []
    for entry in given["events"]:
        state, effect = project(state, _event(entry))
        if isinstance(effect, MessageAmended | UsageAdded):
            seqs.append(effect.seq)
    return seqs


def _fold(projector: Projector[State], given: dict[str, Any]) -> State:
    events = [_event(entry) for entry in given["events"]]
    states = [projector.initial]
    for event in events:
        states.append(projector.fold(states[-1], event))
    whole = projector.encode(states[-1])
    for cut, state in enumerate(states):  # the snapshot law, at every position
        tail = events if "tail_from" in given else events[cut:]
        assert projector.encode(_fold_all(projector, projector.decode(projector.encode(state)), tail)) == whole
        assert projector.encode(_fold_all(projector, state, tail)) == whole  # a state is not changed by folding on
    return states[-1]


def _fold_all(projector: Projector[State], state: State, events: Sequence[Event]) -> State:
    for event in events:
        state = projector.fold(state, event)
    return state


def _event(entry: dict[str, Any]) -> Event:
    data = entry["json"] if "json" in entry else json.dumps(entry["data"])
    return Event("s", entry["seq"], entry["type"], data.encode(), at=0)


def _messages(state: State) -> list[dict[str, Any]]:
    return [present(message) for message in state.all_messages()]


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    return {"usage": msgspec.to_builtins(usage)} if usage else {}
