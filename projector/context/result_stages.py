"""The stages of single results in the pipeline: expiration, relevance, near-duplicates."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread
import msgspec

from projector.context.attribution import tell_results
from projector.context.expiration import DEFAULT_RULES, RESULT, Applied, Choices, ExpirationRules, apply
from projector.context.policies import DEFAULTS, Kind, PolicyRegistry
from projector.context.prompts import SYSTEM_PROMPT
from projector.context.similarity import THRESHOLD, drop_irrelevant, irrelevant, replace_duplicates, score_words
from projector.context.stage import Shaped
from projector.context.summaries import SummaryMaker, plan
from projector.context.tokens import Tokenizer, content_of, estimate
from projector.context.tool_groups import answers
from projector.events import ContextExpanded
from projector.json_text import InvalidJson, decode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from projector.context.expiration import ResultState
    from projector.context.lifecycle import Lifecycle
    from projector.context.policies import ExpirationPolicy, Override
    from projector.context.similarity import Scorer
    from projector.context.stage import Source
    from projector.events import Choice, ContextCompacted
    from projector.message import Message


@dataclass(frozen=True)
class Expiration:
    """Results whose turns are over leave the view, or become shorter; what was recorded of them stays as it is.

    The policy of a tool's result is that of its tool in `registry`, under `override`; one in `policies` (by message id)
    beats both. An `override` that disables expiration beats everything: all is shown, whatever was recorded of single
    messages. A message that is no tool's is a result if its metadata says so (`RESULT`). With a `maker` summaries are
    made of what has become due, which are recorded. `lifecycle` hears what came onto the path, and what a pass did that
    the one before had not.
    """

    registry: PolicyRegistry = field(default_factory=PolicyRegistry)
    policies: Mapping[str, ExpirationPolicy] = field(default_factory=dict)
    override: Override | None = None
    rules: ExpirationRules = DEFAULT_RULES
    maker: SummaryMaker | None = None
    lifecycle: Lifecycle | None = None
    tokenizer: Tokenizer = estimate
    name: str = "expiration"

    async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
        """The view at the turn of `source`."""
        tools = tools_of(messages) if self._has_policies else {}
        choices = self._choices(messages, source, tools)
        records: list[ContextCompacted] = []
        if self.maker is not None:
            records = await plan(messages, source.turn, choices, self.maker, rules=self.rules, tokenizer=self.tokenizer)
            choices = choices.record(records)
        applied = Applied(tuple(messages), {}, source.turn)
        if choices.policies or choices.compacted or choices.expanded:
            applied = apply(messages, source.turn, choices, rules=self.rules, tokenizer=self.tokenizer)
        if self.lifecycle is not None:
            self.lifecycle.add_new(source.path, source.turns, source.turn)
            self.lifecycle.tell(applied)
        return Shaped(
            applied.messages if applied.states else messages,
            reasons_of(applied.states),
            tuple(records),
            applied,
            choices,
            self.lifecycle,
            tell_results(applied.states, tools or tools_of(messages), choices.policies) if applied.states else {},
        )

    def choices(self, messages: Sequence[Message], source: Source) -> Choices:
        """What the view of these messages depends on beside the turn."""
        return self._choices(messages, source, tools_of(messages) if self._has_policies else {})

    @property
    def _has_policies(self) -> bool:
        return bool(self.registry.actions) or self.override is not None

    def _choices(self, messages: Sequence[Message], source: Source, tools: Mapping[str, str]) -> Choices:
        told = [one for one in messages if RESULT in one.metadata_text and one.role != "tool"]
        named = {one.id: kind for one in told if (kind := _kind(one)) is not None}
        made = Choices(turn_added=source.turns, results=frozenset(named), redacted=source.redacted)
        if self.override is not None and self.override.disable_expiration:
            return made
        policies = self._of_tools(tools)
        for message_id, kind in named.items():
            policy = self.registry.policy_for("", self.override, kind=kind)
            if policy is not None:
                policies[message_id] = policy
        made = msgspec.structs.replace(made, policies=policies | dict(self.policies))
        return made.record(filter(_is_sound, source.choices)) if source.choices else made

    def _of_tools(self, tools: Mapping[str, str]) -> dict[str, ExpirationPolicy]:
        """The policies of the results of tools, by message id."""
        policies: dict[str, ExpirationPolicy] = {}
        known: dict[str, ExpirationPolicy | None] = {}
        for message_id, name in tools.items():
            if name not in known:
                known[name] = self.registry.policy_for(name, self.override)
            policy = known[name]
            if policy is not None:
                policies[message_id] = policy
        return policies


@dataclass(frozen=True)
class Relevance:
    """Results that score below `threshold` for what was asked last leave the view; of a tool group a stub stays.

    One that a model has asked for again stays. Raises `ValueError` for a threshold that is no number from 0 to 1.
    """

    threshold: float
    scorer: Scorer = score_words
    tokenizer: Tokenizer = estimate
    name: str = "relevance"

    def __post_init__(self) -> None:
        irrelevant({}, self.threshold)

    async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
        """The view without them. They are recorded, so that they stay away when the next question is another one."""
        query = next((message.text for message in reversed(source.path) if message.role == "user" and message.text), "")
        choices = Expiration().choices(messages, source)
        open_to_it = _not_asked_for(messages, choices, source.turn)
        view, records = await drop_irrelevant(
            open_to_it, query, choices, source.turn, threshold=self.threshold, scorer=self.scorer, tokenizer=self.tokenizer
        )
        return _shaped(messages, _together(messages, open_to_it, view), records, self.name)


@dataclass(frozen=True)
class NearDuplicates:
    """A result that a newer one almost repeats becomes a reference to it.

    `similarity` and `tokenizer` are called in a thread.
    One that a model has asked for again stays. Raises `ValueError` for a threshold that is no number from 0 to 1.
    """

    threshold: float = THRESHOLD
    similarity: Callable[[str, str], float] | None = None
    tokenizer: Tokenizer = estimate
    name: str = "near-duplicates"

    def __post_init__(self) -> None:
        irrelevant({}, self.threshold)

    async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
        """The view with references. They are recorded: the older one stays away even if the newer one expires."""
        choices = Expiration().choices(messages, source)
        open_to_it = _not_asked_for(messages, choices, source.turn)
        compare = partial(
            replace_duplicates,
            open_to_it,
            choices,
            source.turn,
            threshold=self.threshold,
            similarity=self.similarity,
            tokenizer=self.tokenizer,
        )
        # Thousands of results take a second to compare: in a thread, so that the loop goes on and the time limit holds.
        view, records = await anyio.to_thread.run_sync(compare, abandon_on_cancel=True)
        return _shaped(messages, _together(messages, open_to_it, view), records, self.name)


def summarizer_of(
    maker: SummaryMaker, prompt: str = SYSTEM_PROMPT, *, length: int | None = None
) -> Callable[[Sequence[Message]], Awaitable[str]]:
    """What summarises an old part of a conversation, for `Summaries`; two who ask for the same share a call.

    Raises `ValueError` for a prompt that the maker does not know.
    """
    found = maker.prompts.find(prompt)
    if found is None:
        raise ValueError(f"there is no prompt {prompt!r}: add it to the prompts of the maker")

    async def summarize(messages: Sequence[Message]) -> str:
        return await maker.summarize("\n\n".join(f"{one.role}: {content_of(one)}" for one in messages), found[1], length)

    return summarize


def tools_of(messages: Sequence[Message]) -> dict[str, str]:
    """The tool that each result is of, by message id; an empty name where its call is not here."""
    names: dict[str, str] = {}
    found: dict[str, str] = {}
    for message in messages:
        role = message.role
        if role == "assistant":
            for block in message.blocks:
                if block.tool_call_id is not None:
                    names[block.tool_call_id] = block.name or ""
        elif role == "tool":
            found[message.id] = names.get(answers(message) or "", "")
    return found


def reasons_of(states: Mapping[str, ResultState]) -> dict[str, str]:
    """Why each message changed."""
    return {message_id: state.why for message_id, state in states.items()}


def _not_asked_for(messages: Sequence[Message], choices: Choices, turn: int) -> Sequence[Message]:
    """What a model has not asked to see in full: the rest is left alone, or its request would be undone at once."""
    if not choices.is_expanded:
        return messages
    return [message for message in messages if not choices.is_whole(message.id, turn)]


def _together(messages: Sequence[Message], some: Sequence[Message], shaped: Sequence[Message]) -> Sequence[Message]:
    """All the messages, with what became of some of them."""
    if some is messages:
        return shaped
    touched, left = {message.id for message in some}, {message.id: message for message in shaped}
    return [left.get(one.id, one) for one in messages if one.id in left or one.id not in touched]


def _is_sound(choice: Choice) -> bool:
    """Whether a recorded choice can be followed; one with a range that is none, written by hand, is passed over."""
    if not isinstance(choice, ContextExpanded) or choice.item_range is None:
        return True
    start, end = choice.item_range
    return 0 <= start <= end


def _shaped(before: Sequence[Message], after: Sequence[Message], records: Sequence[ContextCompacted], name: str) -> Shaped:
    """What a stage that records all it does has made of a view."""
    by = tell_results([record.covers[0] for record in records], tools_of(before), {}, name) if records else {}
    return Shaped(after, _told(records), tuple(records), by=by)


def _told(records: Sequence[ContextCompacted]) -> dict[str, str]:
    return {record.covers[0]: record.reason or "" for record in records}


def _kind(message: Message) -> Kind | None:
    if RESULT not in message.metadata_text:
        return None
    try:
        said = decode(message.metadata_text[RESULT])
    except InvalidJson:
        return None
    return next((kind for kind in DEFAULTS if kind == said), None)
