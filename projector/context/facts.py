"""What is worked out of a message for views of it, once: its weight, its text, its shorter forms.

A message never changes, so this holds as long as the very same message is there. Whoever keeps messages from view to view
keeps their facts beside them, and gives them with a `Source`; a view has a table of its own otherwise.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec

from projector.context.word_sets import Vocabulary, WordSet, find_alike, words_of
from projector.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_MOST_FORMS: Final = 4
_FACTS_BYTES: Final = 700  # what is known of a message, beside its text
_WORD_BYTES: Final = 120  # a word and its number


class Facts(msgspec.Struct, gc=False):
    """What is known of one message so far; None is not worked out yet. It holds the message, so that its `id` stays its."""

    message: Message | None = None
    weight: int | None = None
    text: str | None = None
    digest: str | None = None
    calls: tuple[str, ...] | None = None
    policy: tuple[int | None, ...] | None = None
    pruned: tuple[int, Message | None] | None = None
    words: tuple[Vocabulary, WordSet] | None = None
    forms: dict[object, Message] | None = None
    outcome: tuple[object, Any, Any] | None = None
    changes: tuple[object, Any] | None = None
    left_out: tuple[object, Any] | None = None
    additions: tuple[object, str] | None = None
    """What was told of it last, each with all that it was worked out of."""
    size: int = _FACTS_BYTES


class FactTable:
    """The facts of messages, by the identity of each, and of many of them together."""

    __slots__ = ("_lock", "_size", "_unlike", "_vocabulary", "known", "paired")

    def __init__(self) -> None:
        self.known: dict[int, Facts] = {}
        self.paired: tuple[Message, ...] = ()
        """The longest view that was seen to be paired: one that begins with it goes on from there."""
        self._vocabulary: Vocabulary | None = None
        self._unlike: dict[float, dict[int, Message]] = {}
        self._lock = Lock()  # views are made in threads
        self._size = 0

    @property
    def size(self) -> int:
        """How many bytes it takes beside the messages that it covers, roughly."""
        return self._size + (0 if self._vocabulary is None else _WORD_BYTES * len(self._vocabulary))

    def cover(self, messages: Iterable[Message]) -> None:
        """Keeps these messages, and what is worked out of them."""
        new = {id(message): Facts(message) for message in messages if id(message) not in self.known}
        self.known |= new
        self._size += _FACTS_BYTES * len(new)

    def only(self, messages: Iterable[Message]) -> FactTable:
        """Another table, of these messages alone: with what was worked out of each by itself, and without its forms.

        Nothing that a view changes is in both, for views of both are made at once, and this is called in another thread.
        """
        table = FactTable()
        for message in messages:
            facts = self.known.get(id(message))
            if facts is not None:
                table.known[id(message)] = msgspec.structs.replace(
                    facts, pruned=None, forms=None, outcome=None, changes=None, left_out=None, additions=None
                )
                table._size += facts.size
        table._vocabulary = self._vocabulary
        return table

    def keep_form(self, facts: Facts, key: object, form: Message) -> Message:
        """A form that was just made of a message, or the one that another view has made meanwhile."""
        with self._lock:
            forms = facts.forms or {}
            if key in forms:
                return forms[key]
            if len(forms) >= _MOST_FORMS:
                self._drop(forms)
                forms = {}
            self.known[id(form)] = about = Facts(form)
            facts.forms = {**forms, key: form}
            self._size += about.size
            self._grow(about, sum([len(block.text) + len(block.parts or "") for block in form.blocks]))
        return form

    def _drop(self, forms: Mapping[object, Message]) -> None:
        """Forms, and the forms of these."""
        for form in forms.values():
            facts = self.known.pop(id(form), None)
            if facts is not None:
                self._size -= facts.size
                self._drop(facts.forms or {})

    def keep_text(self, facts: Facts, text: str) -> str:
        """The text of a message, which was just worked out."""
        facts.text = text
        self._grow(facts, len(text))
        return text

    def _keep_words(self, message: Message, vocabulary: Vocabulary, words: frozenset[str]) -> WordSet:
        numbers = vocabulary.number(words)
        facts = self.known.get(id(message))
        if facts is not None:
            before = 0 if facts.words is None else len(facts.words[1])
            facts.words = vocabulary, numbers
            self._grow(facts, numbers.itemsize * (len(numbers) - before))
        return numbers

    def _grow(self, facts: Facts, size: int) -> None:
        facts.size += size
        self._size += size

    def word_sets(self, messages: Sequence[Message], text_of: Callable[[Message], str]) -> tuple[Vocabulary, list[WordSet]]:
        """The words of the texts of messages."""
        vocabulary = self._vocabulary
        if vocabulary is None or len(messages) > 2 * vocabulary.made_of:
            words = [words_of(text_of(message)) for message in messages]
            vocabulary = self._vocabulary = Vocabulary(words)
            made = vocabulary
            return made, [self._keep_words(message, made, one) for message, one in zip(messages, words, strict=True)]
        sets = []
        for message in messages:
            facts = self.known.get(id(message))
            known = None if facts is None else facts.words
            if known is None or known[0] is not vocabulary:
                sets.append(self._keep_words(message, vocabulary, words_of(text_of(message))))
            else:
                sets.append(known[1])
        return vocabulary, sets

    def find_alike(self, messages: Sequence[Message], threshold: float, text_of: Callable[[Message], str]) -> dict[int, int]:
        """See `word_sets.find_alike`. Those that were unlike each other before are not compared again."""
        _, sets = self.word_sets(messages, text_of)
        known = self._unlike.get(threshold, {})
        unlike = {place for place, message in enumerate(messages) if known.get(id(message)) is message}
        found = find_alike(sets, threshold, unlike)
        kept = (message for place, message in enumerate(messages) if place not in found)
        self._unlike = {threshold: {id(message): message for message in kept if id(message) in self.known}}
        return found


class _Use:
    """Emptied at its end: timers and tasks that were begun meanwhile have it in their context, and may stay for long."""

    __slots__ = ("table",)

    def __init__(self, table: FactTable | None = None) -> None:
        self.table = table


_NOTHING: Final = _Use()
_USE: Final = ContextVar("facts", default=_NOTHING)


@contextmanager
def using(table: FactTable) -> Iterator[None]:
    """Within this `facts_of` looks there, in threads that are begun within it, too."""
    use = _Use(table)
    token = _USE.set(use)
    try:
        yield
    finally:
        _USE.reset(token)
        use.table = None


def table_in_use() -> FactTable:
    """The one that `facts_of` looks into; one of its own where there is none."""
    return _USE.get().table or FactTable()


def facts_of(message: Message) -> Facts:
    """What is known of a message, to be read and filled in; what is filled in is lost for one that no table covers."""
    table = _USE.get().table
    return Facts() if table is None else table.known.get(id(message)) or Facts()


def known_text(message: Message, make: Callable[[Message], str]) -> str:
    """The text of a message, which is worked out once, if a table covers the message."""
    table = _USE.get().table
    facts = None if table is None else table.known.get(id(message))
    if table is None or facts is None:
        return make(message)
    return table.keep_text(facts, make(message)) if facts.text is None else facts.text


def form_of(message: Message, key: object, make: Callable[..., Message], *given: object) -> Message:
    """Another form of a message, which `key` tells from others: the same one each time, if a table covers the message."""
    table = _USE.get().table
    facts = None if table is None else table.known.get(id(message))
    if table is None or facts is None:
        return make(message, *given)
    found = None if facts.forms is None else facts.forms.get(key)
    return table.keep_form(facts, key, make(message, *given)) if found is None else found
