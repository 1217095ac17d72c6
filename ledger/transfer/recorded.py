"""What a file holds of a conversation: a history, streams, or what was kept of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from projector import events as ev
from projector.formats.shared.history import Loss, is_empty
from projector.json_text import join_fields, raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ledger.transfer.adapted import Stream
    from ledger.transfer.archive import Kept
    from projector.formats.shared.history import History


class Recorded(NamedTuple):
    """A conversation of a file: a history, with answers in it that are kept as they came, by their places; or streams.

    Of several streams each is a branch. Or what `ledger.transfer.archive` has kept of one.
    """

    history: History | None = None
    answers: tuple[Stream, ...] = ()
    kept: Kept | None = None
    kept_answers: Mapping[int, Stream] = {}
    losses: tuple[Loss, ...] = ()
    """What has no place, beside that of the history."""

    @property
    def told(self) -> Iterator[Loss]:
        """All that has no place; a message without content is no message when its run ends."""
        yield from self.losses
        if self.history is None:
            return
        yield from self.history.losses
        for at, draft in enumerate(self.history.drafts):
            if at not in self.kept_answers and is_empty(draft):
                yield Loss(f"message {at + 1}, of the role {draft.role}, has no content: nothing is kept of it")

    @property
    def name(self) -> str | None:
        """What it is called in its file."""
        return None if self.history is None else self.history.name

    @property
    def created(self) -> ev.ConversationCreated:
        """How the conversation begins where it is new."""
        if self.kept is not None:
            return self.kept.created
        if self.history is None:
            return ev.ConversationCreated()
        metadata = self.history.metadata
        return ev.ConversationCreated(self.history.title, raw(join_fields(metadata) if metadata else None))
