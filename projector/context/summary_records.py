"""Summaries of an old part as they are recorded, and how one is asked for, with a limit and a reason if none comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from projector.context.budget import Summary
from projector.events import ContextCompacted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from projector.events import Choice
    from projector.message import Message

SUMMARY: Final = "summary"
"""The strategy of a summary of many messages; those of single ones are the expiration's."""


class Asking:
    """A summarizer with a time limit, and why nothing came of it."""

    def __init__(self, summarizer: Callable[[Sequence[Message]], Awaitable[str]], time_limit: float) -> None:
        self._summarizer = summarizer
        self._time_limit = time_limit
        self.why: str | None = None

    async def __call__(self, messages: Sequence[Message]) -> str:
        """What it gives. Whatever it raises comes through."""
        try:
            async with asyncio.timeout(self._time_limit):
                text = await self._summarizer(messages)
        except Exception as error:
            self.why = why_of(error, self._time_limit)
            raise
        self.why = "what it gave is no text, is empty, or is no shorter than what it would stand for"
        return text


def why_of(error: Exception, time_limit: float) -> str:
    """In words that quote no content."""
    if isinstance(error, TimeoutError):
        return f"it did not come back within {time_limit:g} s"
    return f"it raised {type(error).__name__}"


def is_summary(choice: Choice) -> bool:
    """Whether it is the summary of many messages."""
    return isinstance(choice, ContextCompacted) and choice.strategy == SUMMARY


def compaction_of(choice: Choice) -> Summary:
    """A summary as it was recorded."""
    assert isinstance(choice, ContextCompacted)
    covers, role = tuple(choice.covers), choice.role or "assistant"
    return Summary(covers, choice.summary, role, choice.tokens_before, choice.tokens_after)
