"""What is worked out of a message for views of it, once: its weight, its text, its shorter forms.

A message never changes, so this holds as long as the very same message is there. Whoever keeps messages from view to view
keeps their facts beside them, and gives them with a `Source`; a view has a table of its own otherwise.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec

from projector.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MOST_FORMS: Final = 4


class Facts(msgspec.Struct, gc=False):
    """What is known of one message so far; None is not worked out yet. It holds the message, so that its `id` stays its."""

    message: Message | None = None
    weight: int | None = None
    text: str | None = None
    digest: str | None = None
    calls: tuple[str, ...] | None = None
    policy: tuple[int | None, ...] | None = None
    words: frozenset[str] | None = None
    forms: dict[object, Message] | None = None
    state: tuple[object, Any] | None = None
    changes: tuple[object, Any] | None = None
    left_out: tuple[object, Any] | None = None
    additions: tuple[object, str] | None = None
    """What was told of it last, each with all that it was worked out of."""


class FactTable:
    """The facts of messages, by the identity of each."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[int, Facts] = {}

    def cover(self, messages: Iterable[Message]) -> None:
        """Keeps these messages, and what is worked out of them."""
        known = self.known
        known |= {id(message): Facts(message) for message in messages if id(message) not in known}

    def only(self, messages: Iterable[Message]) -> FactTable:
        """Another table, of these messages alone."""
        table = FactTable()
        for message in messages:
            facts = self.known.get(id(message))
            if facts is not None:
                table.known[id(message)] = facts
                table.known |= {id(form): self.known[id(form)] for form in (facts.forms or {}).values()}
        return table


_NOTHING: Final[dict[int, Facts]] = {}
_KNOWN: Final[ContextVar[dict[int, Facts]]] = ContextVar("facts", default=_NOTHING)


@contextmanager
def using(table: FactTable) -> Iterator[None]:
    """Within this `facts_of` looks there, in threads that are begun within it, too."""
    token = _KNOWN.set(table.known)
    try:
        yield
    finally:
        _KNOWN.reset(token)


def facts_of(message: Message) -> Facts:
    """What is known of a message, to be read and filled in; what is filled in is lost for one that no table covers."""
    return _KNOWN.get().get(id(message)) or Facts()


def form_of(message: Message, key: object, make: Callable[[], Message]) -> Message:
    """Another form of a message, made by what `key` says: the same one each time, for one that a table covers."""
    known = _KNOWN.get()
    facts = known.get(id(message))
    if facts is None:
        return make()
    forms = facts.forms = facts.forms or {}
    found = forms.get(key)
    if found is None:
        found = make()
        if len(forms) >= _MOST_FORMS:
            for old in forms.values():
                known.pop(id(old), None)
            forms.clear()
        forms[key] = found
        known[id(found)] = Facts(found)
    return found
