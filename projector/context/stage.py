"""What a stage of the pipeline gets and gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from projector.context.facts import FactTable
from projector.context.windows import check_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from projector.context.budget import Used
    from projector.context.expiration import Applied, Choices
    from projector.context.lifecycle import Lifecycle
    from projector.events import Choice
    from projector.message import Block, Message


@dataclass(frozen=True, repr=False)  # what was said belongs into no log
class Source:
    """A path and what is known of it: how many prompts went out before each message and in all, what was recorded.

    `used` is what the last response said of its tokens, where a program keeps that. `redacted` are messages that were
    redacted since something was recorded of them, `sending` those that no prompt has held yet, `display` the blocks that
    stand for one of these in this prompt alone. `facts` are those of the messages, by whoever keeps both.
    Raises `ValueError` for a turn that is no whole number from 0.
    """

    path: tuple[Message, ...]
    turn: int = 0
    turns: Mapping[str, int] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    used: Used | None = None
    redacted: frozenset[str] = frozenset()
    sending: frozenset[str] = frozenset()
    display: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    facts: FactTable = field(default_factory=FactTable, compare=False)

    def __post_init__(self) -> None:
        check_limit("turn", self.turn, least=0)


@dataclass(frozen=True, repr=False)
class Shaped:
    """What a stage made of a view: why single messages changed, and what must be remembered of it.

    `applied` and `choices` are what expansions and overflow recovery are worked out from, `lifecycle` is who hears of an
    expansion; the expiration gives them. `by` names the plugin, or tool and policy, that changed single messages.
    """

    messages: Sequence[Message]
    reasons: Mapping[str, str] = field(default_factory=dict)
    records: tuple[Choice, ...] = ()
    applied: Applied | None = None
    choices: Choices | None = None
    lifecycle: Lifecycle | None = None
    by: Mapping[str, str] = field(default_factory=dict)


class Stage(Protocol):
    """An optional stage. Its name stands in the report."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
        """The view after it. It must not edit a message, and must not take a tool group apart."""
        ...
