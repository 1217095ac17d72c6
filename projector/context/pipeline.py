"""One view of a path: every stage in its order, and a report of what each did and why (CONTEXT; DESIGN).

retention → expiration → optional stages → summaries → chain and window → pairing. What is sent of it (all of it or a
delta) is decided by `delta.plan`. Nothing here edits a message of the path or remembers anything: what a stage newly
decides comes back as `records`, to be recorded before the view is used, so that it is made the same way again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import is_not
from typing import TYPE_CHECKING, Final, Literal

from projector.context.budget import Budget, Compaction, apply_summaries, summarize
from projector.context.chain import ChainSession, run_chain
from projector.context.delta import fingerprint_of
from projector.context.report import Change, compare
from projector.context.retention import prune
from projector.context.shaping import Shaped
from projector.context.stages import Expiration
from projector.context.tokens import Tokenizer, estimate, tokens_of
from projector.context.tools import pair
from projector.events import ContextCompacted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from projector.context.expiration import Applied, Choices
    from projector.context.plugins import Plugin
    from projector.context.shaping import Source, Stage
    from projector.events import Choice
    from projector.message import Message

_SESSION: Final = ChainSession()
_EXPIRATION: Final = Expiration()
_VIEW_ID: Final = 16
SUMMARY: Final = "summary"
"""The strategy of a summary of many messages; those of single ones are the expiration's."""


@dataclass(frozen=True)
class Summaries:
    """When and how an old part is summarised: beyond `budget`, all but the `keep` newest groups and pinned messages."""

    budget: Budget
    summarizer: Callable[[Sequence[Message]], Awaitable[str]] | None = None
    keep: int = 6
    pinned: frozenset[str] = frozenset()
    role: Literal["user", "assistant"] = "assistant"

    def __post_init__(self) -> None:
        if self.keep < 0:
            raise ValueError(f"keep must be 0 or more groups, not {self.keep}")


@dataclass(frozen=True)
class Pipeline:
    """Which stages a view goes through. A stage that is None is left out; pairing never is.

    The expiration stands here without policies, too: it applies what was recorded of single results.
    """

    retention: bool = True
    expiration: Stage | None = _EXPIRATION
    optional: tuple[Stage, ...] = ()
    summaries: Summaries | None = None
    chain: tuple[Plugin, ...] = ()
    session: ChainSession = _SESSION
    tokenizer: Tokenizer = estimate


@dataclass(frozen=True, repr=False)  # what was said belongs into no log
class View:
    """What the model is to see, and how it came about.

    `applied` and `choices` are the expiration's, for expansions and overflow recovery.
    """

    messages: tuple[Message, ...]
    source: Source
    changes: tuple[Change, ...]
    records: tuple[Choice, ...]
    tokenizer: Tokenizer = estimate
    applied: Applied | None = None
    choices: Choices | None = None

    @cached_property
    def view_id(self) -> str:
        """Names exactly this view: an index that a model gives is of it."""
        return fingerprint_of(self.messages)[:_VIEW_ID]

    @cached_property
    def tokens(self) -> int:
        """What it weighs."""
        if len(self.messages) == len(self.source.path) and not self.changes:
            return self.tokens_of_path
        return tokens_of(self.messages, self.tokenizer)

    @cached_property
    def tokens_of_path(self) -> int:
        """What the path weighs of which it is a view."""
        return tokens_of(self.source.path, self.tokenizer)


async def make_view(source: Source, pipeline: Pipeline) -> View:
    """The view of a path. A stage that fails changes nothing; what it costs is told in `View.changes`.

    The same path, policies, turn and recorded choices give the same view, byte for byte.
    """
    making = _Making(source, pipeline)
    if pipeline.retention:
        making.take("retention", Shaped(prune(making.view)), "its retention is over")
    for stage in (pipeline.expiration, *pipeline.optional):
        if stage is not None:
            making.take(stage.name, await stage.shape(making.view, source), f"by {stage.name}")
    if pipeline.summaries is not None:
        await making.summarize(pipeline.summaries)
    if pipeline.chain:
        await making.run_chain()
    making.take("pairing", Shaped(pair(making.view)), "a call and its results stand together")
    return making.finish()


class _Making:
    def __init__(self, source: Source, pipeline: Pipeline) -> None:
        self._source = source
        self._pipeline = pipeline
        self.view: Sequence[Message] = source.path
        self._changes: list[Change] = []
        self._records: list[Choice] = []
        self._applied: Applied | None = None
        self._choices: Choices | None = None

    def take(self, stage: str, shaped: Shaped, why: str) -> None:
        """The view after a stage, and what it changed."""
        after = shaped.messages
        if after is not self.view and (len(after) != len(self.view) or any(map(is_not, after, self.view))):
            self._changes += compare(stage, self.view, after, why, shaped.reasons, self._pipeline.tokenizer)
            self.view = after
        self._records += shaped.records
        self._applied = shaped.applied or self._applied
        self._choices = shaped.choices or self._choices

    async def summarize(self, summaries: Summaries) -> None:
        """What was recorded first; where the view is still too long, its old part once more."""
        path, before = self._source.path, self.view
        recorded = [compaction_of(choice) for choice in self._source.choices if is_summary(choice)]
        view, used = apply_summaries(before, recorded, path)
        if used is not None:
            self.take(SUMMARY, Shaped(view), "a summary stands for it")
        tokenizer = self._pipeline.tokenizer
        real = self._source.used
        if summaries.summarizer is None:
            return
        reason = summaries.budget.reason(tokens_of(self.view, tokenizer) if real is None else real.tokens)
        if reason is None:
            return
        made = await summarize(
            before,
            summaries.summarizer,
            keep=summaries.keep,
            pinned=summaries.pinned,
            role=summaries.role,
            tokenizer=tokenizer,
            recorded=recorded,
        )
        if made is None:
            return
        again, _ = apply_summaries(before, [made], path)
        record = ContextCompacted(
            self._source.turn,
            list(made.covers),
            made.summary,
            SUMMARY,
            made.tokens_before,
            made.tokens_after,
            reason,
            made.role,
        )
        self.take(SUMMARY, Shaped(again, records=(record,)), f"a summary stands for it: {reason}")

    async def run_chain(self) -> None:
        chained = await run_chain(pair(self.view), self._pipeline.chain, self._pipeline.session)
        why = f"outside the window of {self._pipeline.session.max_ctx} messages, or left out by the history chain"
        self.take("chain", Shaped(chained.messages), why)

    def finish(self) -> View:
        return View(
            tuple(self.view),
            self._source,
            tuple(self._changes),
            tuple(self._records),
            self._pipeline.tokenizer,
            self._applied,
            self._choices,
        )


def is_summary(choice: Choice) -> bool:
    """Whether it is the summary of many messages."""
    return isinstance(choice, ContextCompacted) and choice.strategy == SUMMARY


def compaction_of(choice: Choice) -> Compaction:
    """A summary as it was recorded."""
    assert isinstance(choice, ContextCompacted)
    covers, role = tuple(choice.covers), choice.role or "assistant"
    return Compaction(covers, choice.summary, role, choice.tokens_before, choice.tokens_after)
