"""Events of a run that speaks, as a log has them, and the kinds of what a client of it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector import events as ev
from projector.events import to_event

if TYPE_CHECKING:
    from stream import NewEvent
    from tests.http.asgi_streams import Answer


def started(run_id: str = "r", parent: str | None = None) -> NewEvent:
    return to_event(ev.RunStarted(run_id, parent, "submit", run_id))


def texts(*pieces: str, run_id: str = "r") -> list[NewEvent]:
    """A run that speaks, and is not over."""
    name = f"{run_id}.1"
    head = [ev.MessageStarted(run_id, name, "assistant"), ev.BlockStarted(name, 0, "text")]
    return [to_event(body) for body in (*head, *(ev.BlockDelta(name, 0, piece) for piece in pieces))]


def ended(run_id: str = "r", outcome: ev.Outcome = "completed") -> NewEvent:
    return to_event(ev.RunFinished(run_id, outcome))


def finished(run_id: str = "r") -> list[NewEvent]:
    name = f"{run_id}.1"
    return [to_event(ev.BlockSealed(name, 0)), to_event(ev.MessageFinished(name, "complete")), ended(run_id)]


def kinds(answer: Answer) -> list[str]:
    return [event["type"] for event in answer.data()]
