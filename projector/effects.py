"""What an event asks of whoever keeps what runs leave: the effects that the fold of the open runs hands on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from projector import events as ev
    from projector.amendments import Amendment
    from projector.run_draft import RunDraft
    from projector.settle import End

    Description = ev.ConversationCreated | ev.ConversationUpdated | ev.ConversationArchived


class RunBegun(NamedTuple):
    """A run began."""

    run: RunDraft


class RunClosed(NamedTuple):
    """A run ended, as it was when it did."""

    run: RunDraft
    end: End


class MessageAmended(NamedTuple):
    """An amendment of a message that no open run holds."""

    seq: int
    body: Amendment


class UsageAdded(NamedTuple):
    """Usage of a run that is not open."""

    seq: int
    body: ev.RunUsage


class LeafSelected(NamedTuple):
    """Another leaf is to be the active one."""

    seq: int
    message_id: str


class ConversationDescribed(NamedTuple):
    """Title, metadata, archived or not."""

    at: int
    body: Description


class MediaNamed(NamedTuple):
    """A conversation speaks of media."""

    media_id: str


class ViewChosen(NamedTuple):
    """Something about the model's view is to be remembered: the body of an event of `type`."""

    seq: int
    type: str
    data: bytes


Effect = RunBegun | RunClosed | MessageAmended | UsageAdded | LeafSelected | ConversationDescribed | MediaNamed | ViewChosen
