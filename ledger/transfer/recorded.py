"""What a file holds of a conversation, and the events that it becomes: histories, streams, what was kept of one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from projector import events as ev
from projector.deltas import join_bodies
from projector.formats import STREAMS
from projector.json_text import join_fields, raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ledger.transfer.archive import Kept
    from projector.formats.recordings.framing import Payload
    from projector.formats.shared.history import History

_JOINED: Final = 1024
"""Characters of deltas that are joined: by size only, so that a repeated import repeats its events."""


class Stream(NamedTuple):
    """What a provider streamed: `read` again each time, of which `chunk_count` are whole.

    `key` tells it from others of its conversation.
    """

    format: str
    read: Callable[[], Iterator[Payload]]
    chunk_count: int
    is_torn: bool = False
    key: str = ""

    def chunks(self) -> Iterator[str]:
        """The whole chunks, in order, one at a time."""
        return (payload.data for payload in itertools.islice(self.read(), self.chunk_count))


class Recorded(NamedTuple):
    """A conversation of a file: a history, and what was answered to it; of several answers each is a branch.

    Or what `ledger.transfer.archive` has kept of one.
    """

    history: History | None = None
    answers: tuple[Stream, ...] = ()
    kept: Kept | None = None

    @property
    def name(self) -> str | None:
        """What it is called in its file."""
        return None if self.history is None else self.history.name


def created(recorded: Recorded) -> ev.ConversationCreated:
    """How a conversation begins that is new."""
    history = recorded.history
    if recorded.kept is not None:
        return recorded.kept.created
    if history is None:
        return ev.ConversationCreated()
    return ev.ConversationCreated(history.title, raw(join_fields(history.metadata) if history.metadata else None))


def streamed(run_id: str, parent: str | None, stream: Stream) -> Iterator[ev.Body]:
    """A stream as a run; of one that breaks off, or has no end, an incomplete one."""
    numbers = itertools.count(1)
    adapter = STREAMS[stream.format](run_id, lambda: f"{run_id}.{next(numbers)}")
    yield ev.RunStarted(run_id, parent, "submit", run_id, provider=stream.format)
    for chunk in stream.chunks():
        yield from adapter.feed(chunk)
    end = adapter.end()
    outcome = "incomplete" if stream.is_torn else end.outcome
    yield ev.RunFinished(run_id, outcome, end.finish_reason, raw(end.error))  # type: ignore[arg-type] # one of the outcomes


def joined(bodies: Iterable[ev.Body]) -> Iterator[ev.Body]:
    """Adjacent deltas of one block as one, up to a size."""
    return join_bodies(bodies, size=_JOINED)
