"""The part of a view that no stage may change, so that a provider's cache of it holds: what stands ahead of the results."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.context.tokens import Tokenizer, tokens_of
from projector.context.tool_groups import group, ids_of, pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.context.chain import ChainSession
    from projector.message import Message

NOTHING_TO_SUM_UP: Final = "it is too long, but what could be summed up stands in the protected prefix, which stays as it is"
NO_ROOM: Final = "with the protected prefix, which stays as it is, there is no room left in its window or budget"
_UNCOUNTED: Final = ("system", "developer")


class Prefix:
    """Messages that stay as they are, each where it stands. None of them: nothing is protected."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages = messages
        self.ids = frozenset(ids_of(messages))

    def keep(self, view: Sequence[Message]) -> Sequence[Message]:
        """A view with these messages as they were, whatever a stage has done to them."""
        if not self.messages:
            return view
        mine = {message.id: message for message in self.messages}
        if [one.id for one in view if one.id in mine] == list(mine):
            return [mine.get(one.id, one) for one in view]
        return [*self.messages, *(one for one in view if one.id not in mine)]

    def without(self, path: Sequence[Message]) -> Sequence[Message]:
        """A path but for these messages."""
        return [one for one in path if one.id not in self.ids] if self.ids else path

    def split(self, view: Sequence[Message]) -> tuple[list[Message], Sequence[Message]]:
        """Of a view what is protected, with the results that belong to it, and what stands behind that."""
        if not self.messages:
            return [], view
        known = set(ids_of(view))
        whole = takewhile(lambda one: one[0].id in self.ids, group(pair(view)))
        head = [message for one in whole for message in one if message.id in known]
        names = set(ids_of(head))
        return head, [message for message in view if message.id not in names]


def session_behind(head: Sequence[Message], session: ChainSession, tokenizer: Tokenizer) -> ChainSession | None:
    """The session for what stands behind a protected prefix, its window and budget that much smaller; None without room."""
    if not head:
        return session
    window, budget = session.max_ctx - counted(head), session.config.token_budget
    left = 1 if budget is None else budget - tokens_of(head, tokenizer)
    if window < 1 or left < 1:
        return None
    config = session.config if budget is None else replace(session.config, token_budget=left)
    return replace(session, max_ctx=window, config=config)


def counted(messages: Sequence[Message]) -> int:
    """How many of these a window counts; what the system says is not of the history."""
    return sum(message.role not in _UNCOUNTED for message in messages)
