"""The two folds of a conversation: `transcript` keeps everything, `open_runs` only what has no end yet.

They share every rule and differ in two things: what becomes of a run that ends, and of an event about a message
that is not there: `transcript` keeps them in its state, `open_runs` hands them on as effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from projector import events as ev
from projector import run_draft as drafts
from projector.amendments import Amendment, amend_message, asks_for
from projector.effects import (
    ConversationDescribed,
    LeafSelected,
    MediaNamed,
    MessageAmended,
    RunBegun,
    RunClosed,
    UsageAdded,
    ViewChosen,
)
from projector.events import read_body, unknown_fields
from projector.json_text import InvalidJson, text_of
from projector.projector import Projector
from projector.run_draft import Anomaly, Refused, RunDraft
from projector.settle import End, recovered_outcome, settle
from projector.state import EndedRun, State, decode_state, encode_state
from stream import InvalidId

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector.effects import Description, Effect
    from stream import Event

    Folded = tuple[State, Effect | None]


def project(state: State, event: Event, body: ev.Body | None = None) -> tuple[State, Effect | None]:
    """The open runs after `event`, and what it asks of whoever keeps what runs leave.

    `body` is what the event says, where that was read already and is all of it. Pure, and never raises. An anomaly asks
    for nothing. Of the ends of a run the first counts.
    """
    return _fold(state, event, _OPEN_RUNS, body)


def fold_open_runs(state: State, event: Event) -> State:
    """Only runs without an end; see `project` for what leaves them."""
    return _fold(state, event, _OPEN_RUNS)[0]


def fold_transcript(state: State, event: Event) -> State:
    """All messages of a conversation. Never raises: what can't be applied is an anomaly."""
    return _fold(state, event, _TRANSCRIPT)[0]


transcript: Final = Projector("transcript", 1, State(), fold_transcript, encode_state, decode_state)
open_runs: Final = Projector("open_runs", 1, State(), fold_open_runs, encode_state, decode_state)


class _Rules(NamedTuple):
    """Where the two folds differ."""

    leave: Callable[[State, RunDraft, End], Folded]
    amend_elsewhere: Callable[[State, Amendment | ev.RunUsage, int], Folded]


class _Change(msgspec.Struct, frozen=True, gc=False):
    """What a handler is told beside the body."""

    seq: int
    at: int
    data: bytes
    unknown: dict[str, str]
    rules: _Rules


def _fold(state: State, event: Event, rules: _Rules, known: ev.Body | None = None) -> Folded:
    if event.seq <= state.last_seq:
        return state, None
    effect: Effect | None = None
    try:
        body = known or read_body(event.type, event.data)
        if body is not None:
            unknown = unknown_fields(body, event.data) if known is None else {}
            change = _Change(event.seq, event.at, event.data, unknown, rules)
            state, effect = _HANDLERS[type(body)](state, body, change)
    except (Refused, InvalidJson, InvalidId) as why:
        state, effect = replace(state, anomalies=state.anomalies.add(Anomaly(event.seq, str(why)))), None
    return replace(state, last_seq=event.seq), effect


def _start_run(state: State, body: ev.RunStarted, change: _Change) -> Folded:
    ev.check_ids(body)
    if body.run_id in state.open or state.ended.get(body.run_id):
        raise Refused(f"run {body.run_id} began before")
    started_at = change.at if body.created_at is None else body.created_at
    run = RunDraft(
        run_id=body.run_id,
        parent_message_id=body.parent_message_id,
        trigger=body.trigger,
        seq=change.seq,
        started_at=started_at,
        model=body.model,
        provider=body.provider,
    )
    return _put(state, run)[0], RunBegun(run)


def _start_message(state: State, body: ev.MessageStarted | ev.ToolResult, change: _Change) -> Folded:
    ev.check_ids(body)
    run = _require_run(state, body.run_id)
    if _owner(state, body.message_id) or state.messages.get(body.message_id):
        raise Refused(f"message {body.message_id} began before")
    if isinstance(body, ev.MessageStarted):
        message = drafts.start_message(body, change.seq, change.at)
    else:
        message = drafts.add_result(body, change.seq, change.at)
    return _put(state, drafts.put(run, drafts.note(message, change.seq, body.TYPE, change.unknown)))


def _change_message(
    state: State, body: ev.BlockStarted | ev.BlockDelta | ev.BlockSealed | ev.MessageFinished, change: _Change
) -> Folded:
    run, message = _require_message(state, body.message_id)
    if isinstance(body, ev.BlockDelta):
        message = drafts.grow_block(message, body)
    elif isinstance(body, ev.BlockStarted):
        message = drafts.start_block(message, body, change.seq)
    elif isinstance(body, ev.BlockSealed):
        if drafts.differs(message, body):
            why = f"the end of block {body.block} of {body.message_id} has another text than was streamed: it counts"
            state = replace(state, anomalies=state.anomalies.add(Anomaly(change.seq, why, is_applied=True)))
        message = drafts.seal_block(message, body)
    else:
        message = drafts.finish_message(message, body)
    return _put(state, drafts.put(run, drafts.note(message, change.seq, body.TYPE, change.unknown)))


def _amend(state: State, body: ev.MessageAnnotated | ev.MessageRedacted | ev.BlockAnnotated, change: _Change) -> Folded:
    owner = _owner(state, body.message_id)
    if owner is None:
        return change.rules.amend_elsewhere(state, body, change.seq)
    run, message = owner
    return _put(state, drafts.put(run, drafts.amend(message, body)))


def _approve(state: State, body: ev.ToolApproval, change: _Change) -> Folded:
    for run in reversed(state.open.values()):
        message = run.find_call(body.tool_call_id)
        if message is not None:
            return _put(state, drafts.put(run, drafts.approve(message, body)))
    return change.rules.amend_elsewhere(state, body, change.seq)


def _use(state: State, body: ev.RunUsage, change: _Change) -> Folded:
    run = state.open.get(body.run_id)
    if run is None:
        return change.rules.amend_elsewhere(state, body, change.seq)
    return _put(state, replace(run, usage=run.usage | {body.request_id: drafts.read_usage(body)}))


def _step(state: State, body: ev.RunStep, change: _Change) -> Folded:
    return _put(state, drafts.take_step(_require_run(state, body.run_id), body, change.seq))


def _pause(state: State, body: ev.RunPaused | ev.RunResumed, change: _Change) -> Folded:  # noqa: ARG001 - as above
    asked = text_of(body.interrupts) if isinstance(body, ev.RunPaused) else None
    run = replace(_require_run(state, body.run_id), paused=isinstance(body, ev.RunPaused), interrupts=asked)
    return _put(state, run)


def _ask_to_stop(state: State, body: ev.RunCancelRequested, change: _Change) -> Folded:  # noqa: ARG001 - as above
    run = state.open.get(body.run_id)  # too late is no anomaly
    return (state, None) if run is None else _put(state, replace(run, cancel_requested=True))


def _finish(state: State, body: ev.RunFinished | ev.RunRecovered, change: _Change) -> Folded:
    run = _require_run(state, body.run_id)
    remaining = {run_id: other for run_id, other in state.open.items() if run_id != body.run_id}
    return change.rules.leave(replace(state, open=remaining), run, _end(body, change.seq, change.at))


def _describe(state: State, body: Description, change: _Change) -> Folded:
    ev.check_objects(body)
    return state, ConversationDescribed(change.at, body)


def _select(state: State, body: ev.BranchSelected, change: _Change) -> Folded:
    return state, LeafSelected(change.seq, body.message_id) if _could_be_here(body) else None


def _name_media(state: State, body: ev.MediaAdded, change: _Change) -> Folded:  # noqa: ARG001 - as above
    return state, MediaNamed(body.media_id) if _could_be_here(body) else None


def _choose(state: State, body: ev.Choice, change: _Change) -> Folded:
    return state, ViewChosen(change.seq, body.TYPE, change.data) if _could_be_here(body) else None


def _pass(state: State, body: ev.Body, change: _Change) -> Folded:  # noqa: ARG001 - as above
    return state, None  # for those who follow; no message changes


_HANDLERS: Final[dict[type[ev.Body], Callable[[State, Any, _Change], Folded]]] = {
    ev.RunStarted: _start_run,
    ev.RunCancelRequested: _ask_to_stop,
    ev.RunStep: _step,
    ev.RunPaused: _pause,
    ev.RunResumed: _pause,
    ev.RunUsage: _use,
    ev.RunFinished: _finish,
    ev.RunRecovered: _finish,
    ev.MessageStarted: _start_message,
    ev.ToolResult: _start_message,
    ev.MessageFinished: _change_message,
    ev.BlockStarted: _change_message,
    ev.BlockDelta: _change_message,
    ev.BlockSealed: _change_message,
    ev.MessageAnnotated: _amend,
    ev.MessageRedacted: _amend,
    ev.BlockAnnotated: _amend,
    ev.ToolApproval: _approve,
    ev.RawEvent: _pass,
    ev.ConversationCreated: _describe,
    ev.ConversationUpdated: _describe,
    ev.ConversationArchived: _describe,
    ev.ConversationErased: _pass,
    ev.BranchSelected: _select,
    ev.MediaAdded: _name_media,
    ev.ContextCompacted: _choose,
    ev.ContextExpanded: _choose,
    ev.ProviderSessionChanged: _choose,
}


def _keep(state: State, run: RunDraft, end: End) -> Folded:
    messages = state.messages
    for message in settle(run, end).messages:
        messages = messages.add(message.id, message)
    return replace(state, ended=state.ended.add(run.run_id, EndedRun.of(run, end)), messages=messages), None


def _hand_over(state: State, run: RunDraft, end: End) -> Folded:
    return state, RunClosed(run, end)


def _amend_ended(state: State, body: Amendment | ev.RunUsage, seq: int) -> Folded:  # noqa: ARG001 - same shape as _hand_on
    if isinstance(body, ev.RunUsage):
        run = state.ended.get(body.run_id)
        if run is None:
            raise Refused(f"run {body.run_id} is unknown")
        used = replace(run, usage=run.usage | {body.request_id: drafts.read_usage(body)})
        return replace(state, ended=state.ended.replace(run.run_id, used)), None
    if isinstance(body, ev.ToolApproval):
        calling = [message for message in state.messages.values() if asks_for(message, body.tool_call_id)]
        message = max(calling, key=lambda message: message.seq, default=None)
        if message is None:
            raise Refused(f"tool call {body.tool_call_id} is unknown")
    else:
        message = state.messages.get(body.message_id)
        if message is None:
            raise Refused(f"message {body.message_id} is unknown")
    return replace(state, messages=state.messages.replace(message.id, amend_message(message, body))), None


def _hand_on(state: State, body: Amendment | ev.RunUsage, seq: int) -> Folded:
    if not _could_be_here(body):
        return state, None
    return state, UsageAdded(seq, body) if isinstance(body, ev.RunUsage) else MessageAmended(seq, body)


_TRANSCRIPT: Final = _Rules(_keep, _amend_ended)
_OPEN_RUNS: Final = _Rules(_hand_over, _hand_on)


def _end(body: ev.RunFinished | ev.RunRecovered, seq: int, at: int) -> End:
    if isinstance(body, ev.RunRecovered):
        return End(recovered_outcome(body.action), seq, at, recovered=body.action)
    return End(body.outcome, seq, at, None, body.finish_reason, text_of(body.error))


def _could_be_here(body: ev.Body) -> bool:
    """False for a body with an id that no store takes: it names nothing that could be here."""
    try:
        ev.check_ids(body)
    except InvalidId:
        return False
    return True


def _put(state: State, run: RunDraft) -> Folded:
    return replace(state, open=state.open | {run.run_id: run}), None


def _owner(state: State, message_id: str) -> tuple[RunDraft, drafts.MessageDraft] | None:
    for run in state.open.values():
        message = run.find(message_id)
        if message is not None:
            return run, message
    return None


def _require_message(state: State, message_id: str) -> tuple[RunDraft, drafts.MessageDraft]:
    owner = _owner(state, message_id)
    if owner is None:
        raise Refused(f"message {message_id} is {'of a run that ended' if state.messages.get(message_id) else 'unknown'}")
    return owner


def _require_run(state: State, run_id: str) -> RunDraft:
    run = state.open.get(run_id)
    if run is None:
        raise Refused(f"run {run_id} {'has ended' if state.ended.get(run_id) else 'is unknown'}")
    return run
