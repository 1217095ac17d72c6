"""One view of a path: every stage in its order, and a report of what each did and why.

retention → expiration → optional stages → summaries → chain and window → pairing. What is sent of it (all of it or a
delta) is decided by `delta.plan`. Nothing here edits a message of the path or remembers anything: what a stage newly
decides comes back as `records`, to be recorded before the view is used, so that it is made the same way again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_not
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgspec

from projector.context.attribution import Witness, tell_additions
from projector.context.budget import Budget, Summary, apply_summaries, old_part, summarize
from projector.context.chain import ChainSession, Failure, run_chain
from projector.context.delta import fingerprint_of
from projector.context.expansion import Hint, Refusal, hint
from projector.context.expiration import STRATEGIES, Applied, protected, state_of
from projector.context.facts import using
from projector.context.prefix import NO_ROOM, NOTHING_TO_SUM_UP, Prefix, counted, session_behind
from projector.context.provenance import mark, names_of, standing
from projector.context.report import Change, compare
from projector.context.result_stages import Expiration
from projector.context.retention import prune, show_additions
from projector.context.stage import Shaped
from projector.context.summary_records import SUMMARY, Asking, compaction_of, is_summary, why_of
from projector.context.tokens import Tokenizer, estimate, tokens_of
from projector.context.tool_groups import ids_of, pair
from projector.context.windows import check_limit
from projector.events import ContextCompacted, ContextExpanded
from projector.message import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from projector.context.expiration import Choices
    from projector.context.lifecycle import Lifecycle
    from projector.context.plugins import Need, Plugin
    from projector.context.stage import Source, Stage
    from projector.events import Choice

_SESSION: Final = ChainSession()
_EXPIRATION: Final = Expiration()
_VIEW_ID: Final = 16
TIME_LIMIT_S: Final = 30.0
Role = Literal["user", "assistant"]
CHAIN: Final = "chain"


@dataclass(frozen=True)
class Summaries:
    """When and how an old part is summarised: beyond `budget`, all but the `keep` newest groups and pinned messages.

    Two views that want the same at once ask once with a summarizer of `summarizer_of`, else each for itself; a ledger
    records one of the two, and both show it. Raises `ValueError` for a `keep` that is no whole number from 0, and for an
    unknown role.
    """

    budget: Budget
    summarizer: Callable[[Sequence[Message]], Awaitable[str]] | None = None
    keep: int = 6
    pinned: frozenset[str] = frozenset()
    role: Role = "assistant"

    def __post_init__(self) -> None:
        check_limit("keep", self.keep, least=0)
        if self.role not in get_args(Role):
            raise ValueError(f"role must be one of {', '.join(get_args(Role))}, not {self.role!r}")


@dataclass(frozen=True)
class Pipeline:
    """Which stages a view goes through. A stage that is None is left out; pairing never is.

    The expiration stands here without policies, too: it applies what was recorded of single results. With
    `protect_prefix`, or that of the expiration's rules, no stage changes anything ahead of the first result, so that a
    provider's cache holds; a summary or a window that can't do its work so is passed over, and `View.failures` says it.
    `time_limit`, in seconds, is that of each optional stage and of a summary. Raises `ValueError` unless it is above 0.
    """

    retention: bool = True
    expiration: Stage | None = _EXPIRATION
    optional: tuple[Stage, ...] = ()
    summaries: Summaries | None = None
    chain: tuple[Plugin, ...] = ()
    session: ChainSession = _SESSION
    tokenizer: Tokenizer = estimate
    time_limit: float = TIME_LIMIT_S
    protect_prefix: bool = False

    def __post_init__(self) -> None:
        if not self.time_limit > 0:
            raise ValueError(f"time_limit is above 0 seconds, not {self.time_limit}")

    @property
    def keeps_prefix(self) -> bool:
        """Whether what stands ahead of the first result stays as it is."""
        return self.protect_prefix or (isinstance(self.expiration, Expiration) and self.expiration.rules.protect_prefix)

    def guarded_expiration(self) -> Stage | None:
        """The expiration, which knows of a prefix that is protected."""
        stage = self.expiration
        if not self.protect_prefix or not isinstance(stage, Expiration):
            return stage
        return replace(stage, rules=msgspec.structs.replace(stage.rules, protect_prefix=True))


@dataclass(frozen=True, repr=False)  # what was said belongs into no log
class View:
    """What the model is to see, and how it came about.

    `applied` and `choices` are the expiration's, for expansions and overflow recovery. `failures` are the optional stages,
    plugins and summaries that were passed over, and why; `protected` are the messages that had to stay as they are.
    `lifecycle` hears of an expansion from this view. `need` says what it would
    have taken, where the chain left nothing.
    """

    messages: tuple[Message, ...]
    source: Source
    changes: tuple[Change, ...]
    records: tuple[Choice, ...]
    tokenizer: Tokenizer = estimate
    applied: Applied | None = None
    choices: Choices | None = None
    failures: tuple[Failure, ...] = ()
    need: Need | None = None
    protected: frozenset[str] = frozenset()
    lifecycle: Lifecycle | None = None

    def hint(self, message_id: str) -> Hint | Refusal:
        """What a shortened message holds, without showing it: its short form and how many items it has; or why not."""
        applied = self.applied or Applied(self.messages, {}, self.source.turn)
        found = hint(self.source.path, msgspec.structs.replace(applied, messages=self.messages), message_id)
        is_gone = found == Refusal("not compacted") and all(message.id != message_id for message in self.messages)
        return Refusal("left out") if is_gone else found

    @cached_property
    def view_id(self) -> str:
        """Names exactly this view: an index that a model gives is of it."""
        return fingerprint_of(self.messages)[:_VIEW_ID]

    @cached_property
    def tokens(self) -> int:
        """What it weighs."""
        if len(self.messages) == len(self.source.path) and not self.changes:
            return self.tokens_of_path
        with using(self.source.facts):
            return tokens_of(self.messages, self.tokenizer)

    @cached_property
    def tokens_of_path(self) -> int:
        """What the path weighs of which it is a view."""
        with using(self.source.facts):
            return tokens_of(self.source.path, self.tokenizer)


async def make_view(source: Source, pipeline: Pipeline) -> View:
    """The view of a path. An optional stage, plugin or summary that fails changes nothing; `View.failures` says why.

    The same path, policies, turn and recorded choices give the same view, byte for byte. Raises `ValueError` for a
    retention policy that does not fit its message, and for settings that make no policy.
    """
    if not source.facts.known:
        source.facts.cover(source.path)
    with using(source.facts):
        return await _make_view(source, pipeline)


async def _make_view(source: Source, pipeline: Pipeline) -> View:
    given = source
    choices, redacted = standing(source.choices, source.path)
    source = replace(source, choices=choices, redacted=redacted)
    making = _Making(source, pipeline)
    if pipeline.retention:
        pruned = prune(making.view, source.sending | source.display.keys())
        by = tell_additions(making.view, pruned)
        making.take("retention", Shaped(pruned, by=by), "its retention is over")
    if source.display:
        making.display()
    expiration = pipeline.guarded_expiration()
    if expiration is not None:
        making.take(expiration.name, await expiration.shape(making.view, source), "its time is over")
    for stage in pipeline.optional:
        await making.shape(stage)
    if pipeline.summaries is not None:
        await making.summarize(pipeline.summaries)
    if pipeline.chain:
        await making.run_chain()
    making.pair()
    return making.finish(given)


class _Making:
    def __init__(self, source: Source, pipeline: Pipeline) -> None:
        self._source = source
        self._pipeline = pipeline
        self.view: Sequence[Message] = source.path
        self._paired: Sequence[Message] | None = None
        self._changes: list[Change] = []
        self._records: list[Choice] = []
        self._applied: Applied | None = None
        self._choices: Choices | None = None
        self._lifecycle: Lifecycle | None = None
        self._failures: list[Failure] = []
        self._need: Need | None = None
        self._prefix = Prefix()
        if pipeline.keeps_prefix:
            paired = pair(source.path)
            self._prefix = Prefix(paired[: protected(paired, Expiration().choices(paired, source))])

    def display(self) -> None:
        """What is being sent, with all that it is to be shown with now; the caller's own word goes before a prefix."""
        shown = show_additions(self.view, self._source.display)
        self._prefix = Prefix([one for one in shown if one.id in self._prefix.ids])
        self._put("display", Shaped(shown), "it is being sent: shown with what is added to it now")

    async def shape(self, stage: Stage) -> None:
        """What an optional stage makes of the view, all of it or nothing."""
        try:
            async with asyncio.timeout(self._pipeline.time_limit):
                before = tuple(self.view)
                shaped = _checked(await stage.shape(before, self._source), before)
        except Exception as error:  # noqa: BLE001 - a stage that fails changes nothing
            self._failures.append(Failure(stage.name, why_of(error, self._pipeline.time_limit)))
        else:
            self.take(stage.name, shaped, f"by {stage.name}")

    def take(self, stage: str, shaped: Shaped, why: str) -> None:
        """The view after a stage of single messages; what is protected stays as it is, whatever the stage has done to it."""
        if self._prefix.messages:
            records = tuple(one for one in shaped.records if self._prefix.ids.isdisjoint(names_of(one)))
            shaped = replace(shaped, messages=self._prefix.keep(shaped.messages), records=records)
        self._put(stage, shaped, why)

    def _put(self, stage: str, shaped: Shaped, why: str) -> None:
        """The view after a stage, and what it changed."""
        after = shaped.messages
        if after is not self.view and (len(after) != len(self.view) or any(map(is_not, after, self.view))):
            self._changes += compare(stage, self.view, after, why, shaped.reasons, self._pipeline.tokenizer, shaped.by)
            self.view = after
        self._records += mark((one for one in shaped.records if not self._is_known(one)), self._source.path)
        self._applied = shaped.applied or self._applied
        self._choices = shaped.choices or self._choices
        self._lifecycle = shaped.lifecycle or self._lifecycle

    async def summarize(self, summaries: Summaries) -> None:
        """What was recorded; where the view is still too long and more has become old, its old part once more."""
        head, before = self._prefix.split(self.view)
        path = Prefix(head).without(self._source.path)
        # No model is asked again about what was redacted since one had summed it up: it is shown as the redaction says.
        summaries = replace(summaries, pinned=summaries.pinned | self._source.redacted)
        recorded = [compaction_of(choice) for choice in self._source.choices if is_summary(choice)]
        view, used = apply_summaries(before, recorded, path, pinned=summaries.pinned)
        made = await self._make_summary(summaries, recorded, head, before, view, used)
        if made is not None:
            again, _ = apply_summaries(before, [compaction_of(made)], path, pinned=summaries.pinned)
            self._put(SUMMARY, Shaped([*head, *again], records=(made,)), f"a summary stands for it: {made.reason}")
        elif used is not None:
            self._put(SUMMARY, Shaped([*head, *view]), "a summary stands for it")

    async def _make_summary(
        self,
        summaries: Summaries,
        recorded: Sequence[Summary],
        head: Sequence[Message],
        before: Sequence[Message],
        view: Sequence[Message],
        used: Summary | None,
    ) -> ContextCompacted | None:
        """A summary of what `used` does not stand for yet, where the view with it is too long."""
        tokenizer, real = self._pipeline.tokenizer, self._source.used
        if summaries.summarizer is None:
            return None
        reason = summaries.budget.reason(tokens_of([*head, *view], tokenizer) if real is None else real.tokens)
        if reason is None:
            return None
        old = old_part(before, keep=summaries.keep, pinned=summaries.pinned)
        if not old or (used is not None and set(used.covers).issuperset(ids_of(old))):
            self._failures += [Failure(SUMMARY, NOTHING_TO_SUM_UP)] if head else []
            return None
        asking = Asking(summaries.summarizer, self._pipeline.time_limit)
        made = await summarize(
            before,
            asking,
            keep=summaries.keep,
            pinned=summaries.pinned,
            role=summaries.role,
            tokenizer=tokenizer,
            recorded=recorded,
        )
        if made is None:
            self._failures += [] if asking.why is None else [Failure(SUMMARY, asking.why)]
            return None
        covers, before_tokens, after = list(made.covers), made.tokens_before, made.tokens_after
        return ContextCompacted(self._source.turn, covers, made.summary, SUMMARY, before_tokens, after, reason, made.role)

    async def run_chain(self) -> None:
        self.pair()
        head, rest = self._prefix.split(self.view)
        session = session_behind(head, self._pipeline.session, self._pipeline.tokenizer)
        if head and (session is None or not rest):
            is_too_long = bool(rest) or counted(head) > self._pipeline.session.max_ctx
            self._failures += [Failure(CHAIN, NO_ROOM)] if is_too_long else []
            return
        witness = Witness(self._pipeline.chain)
        origin = Prefix(head).without(self._source.path)
        chained = await run_chain(rest, witness.chain, session or self._pipeline.session, origin=origin)
        self._failures += chained.failures
        self._need = None if head else chained.need  # a prefix that is protected is always left
        why = f"outside the window of {self._pipeline.session.max_ctx} messages, or left out by the history chain"
        after = [*head, *chained.messages] if head else chained.messages
        self._put(CHAIN, Shaped(after, by=witness.tell(rest)), why)

    def pair(self) -> None:
        """A call and its results stand together."""
        if self.view is not self._paired:
            self._put("pairing", Shaped(pair(self.view)), "a call and its results stand together")
            self._paired = self.view

    def _is_known(self, record: Choice) -> bool:
        """Whether the same was recorded in an earlier turn, which holds."""
        return isinstance(record, ContextCompacted) and _key_of(record) in self._known

    @cached_property
    def _known(self) -> set[tuple[tuple[str, ...], str, str]]:
        return {_key_of(choice) for choice in self._source.choices if isinstance(choice, ContextCompacted)}

    def finish(self, given: Source) -> View:
        return View(
            tuple(self.view),
            given,
            tuple(self._changes),
            tuple(self._records),
            self._pipeline.tokenizer,
            self._with_later_stages(),
            self._choices,
            tuple(self._failures),
            self._need,
            self._prefix.ids,
            self._lifecycle,
        )

    def _with_later_stages(self) -> Applied | None:
        """What became of single messages, by the stages behind the expiration, too: they can be expanded as well."""
        before = {message.id: message for message in self._source.path}
        states = {
            one.covers[0]: state_of(before[one.covers[0]], one, self._pipeline.tokenizer)
            for one in self._records
            if isinstance(one, ContextCompacted) and one.strategy in STRATEGIES and one.covers[0] in before
        }
        if not states:
            return self._applied
        applied = self._applied or Applied(tuple(self.view), {}, self._source.turn)
        return msgspec.structs.replace(applied, states=states | applied.states)


def _checked(shaped: object, before: tuple[Message, ...]) -> Shaped:
    """What a stage gave, or `TypeError` for what is no view."""
    if not isinstance(shaped, Shaped):
        raise TypeError("a stage gives a Shaped, with messages")
    is_untouched = len(shaped.messages) == len(before) and not any(map(is_not, shaped.messages, before))
    if not is_untouched and not all(issubclass(kind, Message) for kind in set(map(type, shaped.messages))):
        raise TypeError("a stage gives a Shaped, with messages")
    if not all(isinstance(record, ContextCompacted | ContextExpanded) for record in shaped.records):
        raise TypeError("a stage records compactions and expansions")
    if not is_untouched and len(set(ids_of(shaped.messages))) != len(shaped.messages):
        raise TypeError("a message comes twice")
    return shaped


def _key_of(record: ContextCompacted) -> tuple[tuple[str, ...], str, str]:
    return tuple(record.covers), record.summary, record.strategy
