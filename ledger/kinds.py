"""Which streams are conversations: others lie in the same log, are not listed, and are left to their own programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.errors import NoConversation, UnknownConversation
from projector.foreign import is_foreign, is_of_vocabulary
from stream import InvalidId
from stream.checks import shown
from stream.limits import PROTOCOL_PREFIX, check_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.tables.conversations import Position
    from stream import Bounds, Event, EventStore, Snapshot


def is_reserved(stream_id: str) -> bool:
    """Whether the id says that the stream is no conversation, whatever it holds."""
    return stream_id.startswith(PROTOCOL_PREFIX)


def check_conversation_id(conversation: str) -> str:
    """Returns an id that something may be written under, or raises `InvalidId`."""
    if is_reserved(check_id("conversation id", conversation)):
        raise InvalidId(
            f"conversation id {shown(conversation)} begins with {PROTOCOL_PREFIX!r}, "
            "as only streams do that are no conversations: use another id"
        )
    return conversation


async def require_conversation(store: EventStore, stream_id: str, position: Position, bounds: Bounds) -> None:
    """Raises `NoConversation` for a stream of another kind, `UnknownConversation` for none.

    One that the ledger has once taken something of a conversation from stays one, also when its log is empty.
    """
    if not bounds.head:
        raise UnknownConversation(stream_id)
    if is_reserved(stream_id):
        raise NoConversation(stream_id, f"its id begins with {PROTOCOL_PREFIX!r}")
    if not position.is_conversation and await is_foreign(store, stream_id, after=bounds.floor):
        raise NoConversation(stream_id, "it holds no event that a conversation is made of")


def is_let_go_by_others(position: Position, snapshot: Snapshot | None, left: Iterable[Event]) -> bool:
    """Whether events that are gone before they were taken in were no conversation's, but another program's to let go.

    So it is where the stream was known and no conversation, where no compaction has left a `snapshot` of open runs, and
    where what is `left` behind the floor is not of the vocabulary.
    """
    is_other = position.projected_seq > 0 and not position.is_conversation
    return is_other and snapshot is None and not any(map(is_of_vocabulary, left))
