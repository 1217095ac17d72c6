"""Overflow recovery: five steps that make a view shorter after a real context-length error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from projector.context.expiration import Choices, Decision, change, remember, removal
from projector.context.provenance import mark
from projector.context.shortening import first_n, text_of
from projector.context.tokens import Tokenizer, estimate, tokens_of, weight_of
from projector.events import ContextCompacted
from projector.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

_OLDEST: Final = 5
_OLDER: Final = 3
_OLD: Final = 2
_OLDER_LENGTH: Final = 500
_LARGE_TOKENS: Final = 200
_LARGE_LENGTH: Final = 200
_USER_LENGTH: Final = 1_000


class Recovery(msgspec.Struct, frozen=True):
    """The view after the last step that was taken, 1 to 5, and whether it fits.

    `records` are to be recorded, so that the view stays like this; all of it can still be expanded.
    """

    stopped_at: int
    fits: bool
    tokens: int
    messages: tuple[Message, ...]
    removed: tuple[str, ...]
    records: tuple[ContextCompacted, ...]


def recover(
    path: Sequence[Message],
    view: Sequence[Message],
    turn: int,
    choices: Choices,
    *,
    limit_tokens: int,
    tokenizer: Tokenizer = estimate,
    protected: Container[str] = (),
) -> Recovery:
    """Shortens the view of a path until it has at most `limit_tokens`, and stops at the first step that does it.

    Results of age 5 go, those of age 3 are cut to 500 characters, those of age 2 go, every result over 200 tokens is cut
    to 200 characters, and at last the last user message to 1,000. What is `protected` stays as it is. Raises `ValueError`
    for a negative limit.
    """
    if not limit_tokens >= 0:
        raise ValueError(f"limit_tokens is 0 or more, not {limit_tokens}")
    originals = {message.id: message for message in path}
    now, records, removed = list(view), dict[str, ContextCompacted](), list[str]()
    stopped_at = 0
    for step, decide in enumerate(_steps(turn, choices, tokenizer), 1):
        stopped_at, after = step, list[Message]()
        last = _last_user(now, choices)
        for place, message in enumerate(now):
            original = originals.get(message.id, message)
            decided = None if message.id in protected else decide(message, original, place == last)
            new = message if decided is None else change(original, decided)
            if decided is not None and new is not original and _is_less(new, message):
                records[message.id] = remember(original, decided, turn, tokenizer)
                after += [] if new is None else [new]
                removed += [message.id] if new is None else []
            else:
                after.append(message)
        now = after
        if tokens_of(now, tokenizer) <= limit_tokens:
            break
    tokens = tokens_of(now, tokenizer)
    return Recovery(stopped_at, tokens <= limit_tokens, tokens, tuple(now), tuple(removed), mark(records.values(), path))


def _steps(turn: int, choices: Choices, tokenizer: Tokenizer) -> Iterator[Callable[[Message, Message, bool], Decision | None]]:
    def age(message: Message) -> int:
        return turn - choices.dated(message.id, turn) if choices.is_result(message) else -1

    def remove(least: int, step: int) -> Callable[[Message, Message, bool], Decision | None]:
        why = f"context overflow, step {step}"
        return lambda message, original, _: removal(original, least, why) if age(message) >= least else None

    def cut(original: Message, length: int, step: int) -> Decision:
        return Decision("first_n_chars", first_n(text_of(original), length), f"context overflow, step {step}")

    def is_large(message: Message) -> bool:
        return choices.is_result(message) and weight_of(message, tokenizer) > _LARGE_TOKENS

    yield remove(_OLDEST, 1)
    yield lambda message, original, _: cut(original, _OLDER_LENGTH, 2) if age(message) >= _OLDER else None
    yield remove(_OLD, 3)
    yield lambda message, original, _: cut(original, _LARGE_LENGTH, 4) if is_large(message) else None
    yield lambda _, original, is_last: cut(original, _USER_LENGTH, 5) if is_last else None


def _last_user(view: Sequence[Message], choices: Choices) -> int:
    """Where the last thing stands that a user said; -1 if nowhere."""
    return max((place for place, one in enumerate(view) if one.role == "user" and not choices.is_result(one)), default=-1)


def _is_less(new: Message | None, shown: Message) -> bool:
    return new is None or len(text_of(new)) < len(text_of(shown))
