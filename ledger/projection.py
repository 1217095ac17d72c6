"""What an event means to the ledger: a pure function of the open runs before it (DESIGN §4, *Commit = catch-up*)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from projector import State, open_runs
from projector import events as ev
from projector.folds import ending
from stream import InvalidId

if TYPE_CHECKING:
    from projector import End
    from projector.amendments import Amendment
    from projector.run_draft import RunDraft
    from stream import Event

Description = ev.ConversationCreated | ev.ConversationUpdated | ev.ConversationArchived
_OWN: Final = frozenset(
    body.TYPE
    for body in (
        ev.ConversationCreated, ev.ConversationUpdated, ev.ConversationArchived, ev.BranchSelected, ev.MediaAdded,
        ev.ContextCompacted, ev.ContextExpanded, ev.ProviderSessionChanged,
    )
)  # fmt: skip


class Begun(NamedTuple):
    """A run began."""

    run: RunDraft


class Ended(NamedTuple):
    """A run ended, as it was when it did."""

    run: RunDraft
    end: End


class Amended(NamedTuple):
    """An amendment of what no open run holds: of a committed message, or the usage of a run that ended."""

    seq: int
    body: Amendment | ev.RunUsage


class Selected(NamedTuple):
    """Another leaf is to be the active one."""

    seq: int
    message_id: str


class Described(NamedTuple):
    """Title, metadata, archived or not."""

    at: int
    body: Description


class Used(NamedTuple):
    """A conversation speaks of media."""

    media_id: str


class Chosen(NamedTuple):
    """Something about the model's view is to be remembered."""

    seq: int
    type: str
    data: bytes


Effect = Begun | Ended | Amended | Selected | Described | Used | Chosen


def project(state: State, event: Event) -> tuple[State, Effect | None]:
    """The open runs after `event`, and what the ledger has to do about it. An anomaly does nothing."""
    over = ending(state, event)
    after = open_runs.fold(state, event)
    if len(after.anomalies) > len(state.anomalies):
        return after, None
    if over is not None:
        return after, Ended(*over)
    if len(after.open) > len(state.open):
        [begun] = after.open.keys() - state.open.keys()
        return after, Begun(after.open[begun])
    is_handed_on = len(after.amendments) > len(state.amendments)
    return after, _read(event) if is_handed_on or event.type in _OWN else None


def _read(event: Event) -> Effect | None:
    body: Any = ev.read_body(event.type, event.data)
    try:
        ev.check_ids(body)
    except InvalidId:  # names nothing that could be here
        return None
    if isinstance(body, ev.BranchSelected):
        return Selected(event.seq, body.message_id)
    if isinstance(body, ev.MediaAdded):
        return Used(body.media_id)
    if isinstance(body, ev.Choice):
        return Chosen(event.seq, event.type, event.data)
    return Described(event.at, body) if isinstance(body, Description) else Amended(event.seq, body)
