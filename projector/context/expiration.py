"""Expiration: results whose turns are over are removed, stubbed or shortened, in the view only.

`apply` is pure. What must be remembered (a summary's text, an expansion) is a recorded choice, and is given in.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from projector.context.facts import facts_of
from projector.context.policies import ExpirationPolicy
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
from projector.context.tokens import Tokenizer, estimate, media_weight_of
from projector.context.turns import has_expired
from projector.events import ContextCompacted, ContextExpanded
from projector.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from projector.events import Choice

RESULT: Final = "result"
"""The field of a message's metadata that says what it is the result of: `action`, `loop` or `sub_agent`."""
Strategy = Literal["ai_summary", "first_n_chars", "stub", "remove", "reference"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("ai_summary", "first_n_chars", "stub", "remove", "reference")
"""The strategies of single messages; of many messages there is a summary, which is the budget's."""


class Choices(msgspec.Struct, frozen=True):
    """All that the view depends on beside path and turn, by message id.

    `results` are results that are no tool messages. `compacted` and `expanded` are the newest recorded choices; of the
    two of one message the later is in force (`is_expanded`). Of the `redacted` ones no summary is made again.
    """

    policies: Mapping[str, ExpirationPolicy] = {}
    turn_added: Mapping[str, int] = {}
    results: frozenset[str] = frozenset()
    compacted: Mapping[str, ContextCompacted] = {}
    expanded: Mapping[str, ContextExpanded] = {}
    is_expanded: frozenset[str] = frozenset()
    redacted: frozenset[str] = frozenset()

    def is_result(self, message: Message) -> bool:
        """Whether it is volatile: a tool's result, or one that was said to be a result."""
        return message.role == "tool" or message.id in self.results

    def dated(self, message_id: str, turn: int) -> int:
        """The turn it counts from: that of its expansion, once that has happened, else when it was added."""
        expansion = self.expanded.get(message_id)
        if expansion is not None and expansion.turn <= turn:
            return expansion.turn
        return self.turn_added.get(message_id, 0)

    def is_whole(self, message_id: str, turn: int) -> bool:
        """Whether an expansion of it is in force: no compaction was recorded after it, and its turn has come."""
        return message_id in self.is_expanded and self.expanded[message_id].turn <= turn

    def record(self, choices: Iterable[Choice]) -> Choices:
        """These, and what was recorded after them, in the order of the log."""
        compacted, expanded, whole = dict(self.compacted), dict(self.expanded), set(self.is_expanded)
        for choice in choices:
            if isinstance(choice, ContextExpanded):
                expanded[choice.message_id] = choice
                whole.add(choice.message_id)
            elif isinstance(choice, ContextCompacted) and choice.strategy in STRATEGIES and len(choice.covers) == 1:
                compacted[choice.covers[0]] = choice
                whole.discard(choice.covers[0])
        return msgspec.structs.replace(self, compacted=compacted, expanded=expanded, is_expanded=frozenset(whole))

    def resume(self) -> Choices:
        """As a stopped run begins again: all that is carried over counts from turn 0."""
        return msgspec.structs.replace(
            self,
            turn_added={},
            compacted={name: msgspec.structs.replace(one, turn=0) for name, one in self.compacted.items()},
            expanded={name: msgspec.structs.replace(one, turn=0) for name, one in self.expanded.items()},
        )


class ResultState(msgspec.Struct, frozen=True, gc=False):
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
    states: dict[str, ResultState]
    turn: int
    expanded: frozenset[str] = frozenset()


class ExpirationRules(msgspec.Struct, frozen=True):
    """How the stage works. With `protect_prefix` nothing changes ahead of the first result, so a provider's cache holds."""

    preserve_original_content: bool = True
    protect_prefix: bool = False


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What is to become of a message: another text, or None to leave it out."""

    strategy: Strategy
    text: str | None
    why: str
    is_partial: bool = False


DEFAULT_RULES: Final = ExpirationRules()


def apply(
    path: Sequence[Message],
    turn: int,
    choices: Choices,
    *,
    rules: ExpirationRules = DEFAULT_RULES,
    tokenizer: Tokenizer = estimate,
) -> Applied:
    """The view of a path at a turn. Never larger than the path; on its own outcome it changes nothing.

    A message of a tool group is never removed: it becomes a stub. A text that would not become shorter stays. Raises
    `ValueError` for a negative turn.
    """
    if not turn >= 0:
        raise ValueError(f"a turn is 0 or more, not {turn}")
    start = protected(path, choices) if rules.protect_prefix else 0
    states: dict[str, ResultState] = {}
    view: list[Message] = []
    touched = choices.policies.keys() | choices.compacted.keys() | choices.is_expanded
    for place, message in enumerate(path):
        if message.id not in touched:
            view.append(message)
            continue
        decided = None if place < start or isinstance(message, Shortened) else decide(message, turn, choices)
        if decided is None:
            view.append(message)
            continue
        new, state = _outcome(message, decided, rules, tokenizer)
        if new is not None:
            view.append(new)
        if state is not None:
            states[message.id] = state
    expanded = frozenset(name for name in choices.is_expanded if choices.is_whole(name, turn))
    return Applied(tuple(view), states, turn, expanded)


def _outcome(
    message: Message, decided: Decision, rules: ExpirationRules, tokenizer: Tokenizer
) -> tuple[Message | None, ResultState | None]:
    """The message after a decision, and what became of it; None if nothing did. It is worked out once for the same decision."""
    facts = facts_of(message)
    key = (decided, rules, tokenizer)
    if facts.outcome is None or facts.outcome[0] != key:
        new = change(message, decided)
        facts.outcome = key, new, None if new is message else _state(message, new, decided, rules, tokenizer)
    return facts.outcome[1:]


def _state(
    message: Message, new: Message | None, decided: Decision, rules: ExpirationRules, tokenizer: Tokenizer
) -> ResultState:
    before, after = text_of(message), decided.text or ""
    return ResultState(
        decided.strategy,
        decided.why,
        len(before),
        saved(before, after, tokenizer) + _media_saved(message, new, tokenizer),
        rules.preserve_original_content,
        decided.is_partial,
    )


def _media_saved(message: Message, new: Message | None, tokenizer: Tokenizer) -> int:
    """What the images and files weigh that went with the text."""
    return media_weight_of(message, tokenizer) - (0 if new is None else media_weight_of(new, tokenizer))


def protected(path: Sequence[Message], choices: Choices) -> int:
    """How many messages stand ahead of the first result; all, if there is none."""
    return next((place for place, message in enumerate(path) if choices.is_result(message)), len(path))


def decide(message: Message, turn: int, choices: Choices) -> Decision | None:
    """What is to become of a message at a turn; None if it stays as it is.

    Removal by its policy comes first, then what is recorded, then compaction by its policy.
    """
    policy = choices.policies.get(message.id)
    is_over = policy is not None and has_expired(policy, turn - choices.dated(message.id, turn))
    if policy is not None and is_over and policy.mode == "remove":
        return _expiry(policy.turns or 0, is_grouped=is_grouped(message))
    recorded, is_whole = choices.compacted.get(message.id), choices.is_whole(message.id, turn)
    if recorded is not None and recorded.turn <= turn and not is_whole:
        return _as_recorded(recorded)
    if policy is not None and is_over:
        if recorded is not None and recorded.turn <= turn and recorded.strategy in ("ai_summary", "first_n_chars"):
            return _as_recorded(recorded)
        text = first_n(text_of(message), policy.compact_length or FALLBACK_LENGTH)
        return Decision("first_n_chars", text, f"its {policy.turns} turns are over")
    expansion = choices.expanded[message.id] if is_whole else None
    if expansion is not None and expansion.item_range is not None:
        shown = show_range(text_of(message), expansion.item_range)
        return Decision("first_n_chars", shown, "a part of it was asked for", is_partial=True)
    return None


def removal(message: Message, turns: int, why: str) -> Decision:
    """How a message leaves the view that has expired at this age: not at all, if it is part of a tool group."""
    return _removal(turns, why, is_grouped=is_grouped(message))


@lru_cache(256)
def _expiry(turns: int, *, is_grouped: bool) -> Decision:
    """Thousands of results expire in the same way."""
    return _removal(turns + 1, f"its {turns} turns are over", is_grouped=is_grouped)


def _removal(turns: int, why: str, *, is_grouped: bool) -> Decision:
    return Decision("stub", stub_for(turns), why) if is_grouped else Decision("remove", None, why)


def change(message: Message, decided: Decision) -> Message | None:
    """The message after a decision: itself where the text would not be shorter, None where it is left out."""
    if decided.text is not None:
        return shorten(message, decided.text)
    return message if is_grouped(message) else None


def remember(message: Message, decided: Decision, turn: int, tokenizer: Tokenizer = estimate) -> ContextCompacted:
    """A decision as it is recorded, so that the view is made the same way again."""
    before, after = text_of(message), decided.text or ""
    return ContextCompacted(turn, [message.id], after, decided.strategy, tokenizer(before), tokenizer(after), decided.why)


def state_of(message: Message, record: ContextCompacted, tokenizer: Tokenizer = estimate) -> ResultState:
    """What became of a message of the path by a record of it alone."""
    before, decided = text_of(message), _as_recorded(record)
    return ResultState(decided.strategy, decided.why, len(before), saved(before, decided.text or "", tokenizer))


def _as_recorded(recorded: ContextCompacted) -> Decision:
    strategy = next(name for name in STRATEGIES if name == recorded.strategy)
    why = recorded.reason or "it was compacted before"
    return Decision(strategy, None if strategy == "remove" else recorded.summary, why)
