"""How many messages of a history a model is shown, and which: the two-variable window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Message

DEFAULT_MAX_CTX: Final = 200
"""The ceiling where none is configured, in messages."""
MOST: Final = 1_000_000_000
"""The largest number that a limit may be; whoever means none leaves it out."""


def effective(agent_max_ctx: int = DEFAULT_MAX_CTX, model_max_context: int | None = None) -> int:
    """The smaller of the ceiling and of what the model prefers, in messages; None is no preference.

    Raises `ValueError` unless both are whole numbers of at least 1.
    """
    ceiling = check_limit("agent_max_ctx", agent_max_ctx)
    return ceiling if model_max_context is None else min(ceiling, check_limit("max_context", model_max_context))


def window(history: Sequence[Message], n: int) -> list[Message]:
    """The last messages of a paired history, at most `n`: never begun by a tool's result, no tool group cut.

    A group that does not fit is left out with all that stands before it, so there may be fewer than `n`, or none.
    Raises `ValueError` unless `n` is at least 1.
    """
    start = max(0, len(history) - check_limit("a window", n))
    while start < len(history) and history[start].role == "tool":
        start += 1
    return list(history[start:])


def check_limit(what: str, value: object, *, least: int = 1) -> int:
    """Returns `value`, or raises `ValueError` unless it is a whole number from `least` to `MOST`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise ValueError(f"{what} must be a whole number from {least} to {MOST:,}, not {_short(value)}")
    return value


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**30:
        return "a number of more than thirty digits"  # Python refuses to print the longest ones
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:39] + "…"
