"""What recorded choices were made of: one counts only as long as its messages still say that.

A redaction takes a text away. A summary, a cut or an expansion that was recorded before it was made of the old text, so
it counts no longer, whoever recorded it and whatever has been compacted or restarted since.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from projector.context.facts import facts_of, table_in_use
from projector.context.shortening import text_of
from projector.events import Choice, ContextCompacted, ContextExpanded
from projector.json_text import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from projector.message import Message

C = TypeVar("C", bound=Choice)
_LENGTH: Final = 12
"""How many signs the digest of a message has; those of several follow each other."""
_CUT: Final = re.compile(
    r"\.\.\.\n\n\[Compacted: showing first \d+ of \d+ characters\. Agent can request expansion if needed\.\]\Z"
)
_SAYS_NOTHING: Final = {
    "remove": re.compile(""),  # its text is never shown
    "stub": re.compile(r"\[result expired after \d+ turns\]\Z"),
    "reference": re.compile(r"\[almost the same as the newer result \S{1,256}\]\Z"),
}


class Standing(NamedTuple):
    """The choices that still count, and the messages that were redacted since something was made of them."""

    choices: tuple[Choice, ...]
    redacted: frozenset[str]


def mark(records: Iterable[C], path: Sequence[Message]) -> tuple[C, ...]:
    """Records, each with a digest of what it was made of on this path; one that has it stays as it is."""
    records = tuple(records)
    if not records:
        return ()
    digests = _Digests(path)
    return tuple(
        replace(one, made_of=digests.of(names_of(one)))
        if isinstance(one, ContextCompacted | ContextExpanded) and one.made_of is None
        else one
        for one in records
    )


def standing(choices: Sequence[Choice], path: Sequence[Message]) -> Standing:
    """The choices that still count on this path: whose messages say what they said, as far as they are on it.

    One without a digest, of an earlier version or of another program, counts only where its text is none but the
    message's own.
    """
    if not choices:
        return Standing((), frozenset())
    digests = _Digests(path)
    counting, redacted = list[Choice](), set[str]()
    for one in choices:
        if not isinstance(one, ContextCompacted | ContextExpanded):
            counting.append(one)
        elif one.made_of is None:
            counting += [one] if _shows_nothing_else(one, digests) else []
        else:
            changed = digests.changed(names_of(one), one.made_of)
            redacted |= {name for name, is_final in changed.items() if is_final}
            counting += [] if changed else [one]
    return Standing(tuple(counting), frozenset(redacted))


def without_redacted(choices: Sequence[C], messages: Sequence[Message]) -> list[C]:
    """The choices, without the texts of those that were made of what was redacted since.

    What is left of them says that it was so, and of which messages.
    """
    digests = _Digests(messages)
    return [_emptied(one) if _is_voided(one, digests) else one for one in choices]


def _is_voided(choice: Choice, digests: _Digests) -> bool:
    if not isinstance(choice, ContextCompacted | ContextExpanded) or choice.made_of is None:
        return False
    return any(digests.changed(names_of(choice), choice.made_of).values())


def _emptied(choice: C) -> C:
    if isinstance(choice, ContextCompacted):
        return replace(choice, summary="", reason=None)
    return replace(choice, reason=None) if isinstance(choice, ContextExpanded) else choice


class _Digests:
    """Of what the messages of a path say."""

    def __init__(self, path: Sequence[Message]) -> None:
        self.messages = {message.id: message for message in path}

    def of(self, names: Sequence[str]) -> str | None:
        """The digests of messages, in capitals for one that goes on; None where one of them is not here."""
        if not all(name in self.messages for name in names):
            return None
        digests = ((name, self._of(name)) for name in names)
        return "".join(one if self.messages[name].status == "complete" else one.upper() for name, one in digests)

    def changed(self, names: Sequence[str], made_of: str) -> dict[str, bool]:
        """Which of these messages say something else than when this was made of them, and whether they were whole then."""
        if len(made_of) != _LENGTH * len(names):
            return dict.fromkeys(names, False)
        found = [self.messages.get(name) for name in names]
        if None not in found and made_of.lower() == "".join(_digests_of(found)):
            return {}
        before = {name: made_of[_LENGTH * place :][:_LENGTH] for place, name in enumerate(names)}
        return {
            name: one == one.lower() for name, one in before.items() if name in self.messages and one.lower() != self._of(name)
        }

    def _of(self, name: str) -> str:
        return _digest(self.messages[name])


def _digests_of(messages: Iterable[Message | None]) -> list[str]:
    known = table_in_use().known
    facts = ((one, known.get(id(one))) for one in messages if one is not None)
    return [_digest(one) if about is None or about.digest is None else about.digest for one, about in facts]


def _digest(message: Message) -> str:
    """Of what is said; not of its ids, approvals and citations, which come later without a change of the text."""
    facts = facts_of(message)
    if facts.digest is None:
        facts.digest = _work_out(message)
    return facts.digest


def _work_out(message: Message) -> str:
    said = [[one.kind, one.name, one.text, one.fields, one.input_text, one.parts, one.opaque] for one in message.blocks]
    digest = hashlib.sha256(encode(said)).hexdigest()[:_LENGTH]
    return f"f{digest[1:]}" if digest.isdecimal() else digest  # without a letter it would have no capitals


def names_of(choice: Choice) -> list[str]:
    """The messages that a choice is of."""
    if isinstance(choice, ContextCompacted):
        return choice.covers
    return [choice.message_id] if isinstance(choice, ContextExpanded) else []


def _shows_nothing_else(choice: ContextCompacted | ContextExpanded, digests: _Digests) -> bool:
    """Whether a record without a digest shows nothing that its message does not say now, or nothing on this path at all."""
    if isinstance(choice, ContextExpanded) or not all(name in digests.messages for name in choice.covers):
        return True
    if choice.strategy in _SAYS_NOTHING:
        return _SAYS_NOTHING[choice.strategy].match(choice.summary) is not None
    if choice.strategy != "first_n_chars" or len(choice.covers) != 1:
        return False
    cut, text = _CUT.search(choice.summary), text_of(digests.messages[choice.covers[0]])
    return cut is not None and text.startswith(choice.summary[: cut.start()])
