"""Expiration: results whose turns are over are removed, stubbed or shortened, in the view only (seed 001; CONTEXT B).

`apply` is pure. What must be remembered (a summary's text, an expansion) is a recorded choice, and is given in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from projector.context.ranges import show_range
from projector.context.shortening import (
    FALLBACK_LENGTH,
    Shortened,
    first_n,
    is_grouped,
    saved,
    shorten,
    stub_for,
    text_of,
)
from projector.context.tokens import Tokenizer, estimate
from projector.context.turns import has_expired
from projector.events import ContextCompacted, ContextExpanded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from projector.context.policies import ExpirationPolicy
    from projector.events import Choice
    from projector.message import Message

Strategy = Literal["ai_summary", "first_n_chars", "stub", "remove", "reference"]
STRATEGIES: Final = ("ai_summary", "first_n_chars", "stub", "remove", "reference")
"""The strategies of single messages; of many messages there is a summary, which is the budget's."""


class Choices(msgspec.Struct, frozen=True):
    """All that the view depends on beside path and turn, by message id.

    `results` are results that are no tool messages. `compacted` and `expanded` are the newest recorded choices; of the
    two of one message the later is in force (`is_expanded`).
    """

    policies: Mapping[str, ExpirationPolicy] = {}
    turn_added: Mapping[str, int] = {}
    results: frozenset[str] = frozenset()
    compacted: Mapping[str, ContextCompacted] = {}
    expanded: Mapping[str, ContextExpanded] = {}
    is_expanded: frozenset[str] = frozenset()

    def is_result(self, message: Message) -> bool:
        """Whether it is volatile: a tool's result, or one that was said to be a result."""
        return message.role == "tool" or message.id in self.results

    def dated(self, message_id: str, turn: int) -> int:
        """The turn it counts from: that of its expansion, once that has happened, else when it was added."""
        expansion = self.expanded.get(message_id)
        if expansion is not None and expansion.turn <= turn:
            return expansion.turn
        return self.turn_added.get(message_id, 0)

    def record(self, choices: Iterable[Choice]) -> Choices:
        """These, and what was recorded after them, in the order of the log."""
        compacted, expanded, whole = dict(self.compacted), dict(self.expanded), set(self.is_expanded)
        for choice in choices:
            if isinstance(choice, ContextExpanded):
                expanded[choice.message_id] = choice
                whole.add(choice.message_id)
            elif isinstance(choice, ContextCompacted) and choice.strategy in STRATEGIES:
                compacted |= dict.fromkeys(choice.covers, choice)
                whole -= set(choice.covers)
        return msgspec.structs.replace(self, compacted=compacted, expanded=expanded, is_expanded=frozenset(whole))

    def resume(self) -> Choices:
        """As a stopped run begins again: all that is carried over counts from turn 0."""
        return msgspec.structs.replace(
            self,
            turn_added={},
            compacted={name: msgspec.structs.replace(one, turn=0) for name, one in self.compacted.items()},
            expanded={name: msgspec.structs.replace(one, turn=0) for name, one in self.expanded.items()},
        )


class State(msgspec.Struct, frozen=True):
    """What became of a message in the view. `original_length` in characters; `why` can be shown to a model."""

    strategy: Strategy
    why: str
    original_length: int
    tokens_saved: int
    can_expand: bool = True
    is_partial: bool = False

    @property
    def was_compacted(self) -> bool:
        """Whether its text was made shorter, and still says something of its own."""
        return self.strategy in ("ai_summary", "first_n_chars", "reference")


class Applied(msgspec.Struct, frozen=True):
    """The view at a turn, what became of the messages that are not as on the path, and which were expanded."""

    messages: tuple[Message, ...]
    states: dict[str, State]
    turn: int
    expanded: frozenset[str] = frozenset()


class Rules(msgspec.Struct, frozen=True):
    """How the stage works. With `protect_prefix` nothing changes ahead of the first result, so a provider's cache holds."""

    preserve_original_content: bool = True
    protect_prefix: bool = False


DEFAULT_RULES: Final = Rules()


def apply(
    path: Sequence[Message],
    turn: int,
    choices: Choices,
    *,
    rules: Rules = DEFAULT_RULES,
    tokenizer: Tokenizer = estimate,
) -> Applied:
    """The view of a path at a turn. Never larger than the path; on its own outcome it changes nothing.

    A message of a tool group is never removed: it becomes a stub. A text that would not become shorter stays. Raises
    `ValueError` for a negative turn.
    """
    if not turn >= 0:
        raise ValueError(f"a turn is 0 or more, not {turn}")
    states: dict[str, State] = {}
    view: list[Message] = []
    for place, message in enumerate(path):
        if place < _protected(path, choices, rules) if rules.protect_prefix else False:
            view.append(message)
            continue
        decided = decide(message, turn, choices)
        if decided is None or isinstance(message, Shortened):
            view.append(message)
            continue
        view += change(message, decided, states, rules, tokenizer)
    shown = frozenset(choices.is_expanded)
    return Applied(tuple(view), states, turn, shown)
