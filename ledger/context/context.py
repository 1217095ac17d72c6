"""What the model sees of a conversation: the view of a path, what to send of it, and what is shown in full again.

A view changes neither ledger nor log. What must be remembered (summaries, expansions, what a provider holds) is recorded
as an event before the view is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ledger.checks import check_blocks, check_selections
from ledger.context.provider_sessions import session_of
from ledger.context.source import read_source, remember
from ledger.errors import NothingFits
from ledger.runs.run import Run
from projector.context import delta, overflow
from projector.context.budget import Used
from projector.context.delta import Delta, Full, ProviderCapabilities, plan_view
from projector.context.expiration import Choices
from projector.context.facts import using
from projector.context.pipeline import Pipeline, make_view
from projector.context.tokens import tokens_of
from projector.context.tool_groups import ids_of
from projector.events import ContextCompacted, ContextExpanded
from stream.checks import check_kind, check_mapping, check_name, check_text, refusal, shown
from stream.clock import now_ms
from stream.limits import MAX_RUN_ID_BYTES, check_id, check_position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.engine import Engine
    from projector import Block, Message
    from projector.context.delta import ProviderSession
    from projector.context.overflow import Recovery
    from projector.context.pipeline import View
    from projector.context.stage import Source
    from projector.context.tokens import Tokenizer
    from projector.events import Choice


@dataclass(frozen=True, repr=False)  # what was said belongs into no log
class Context:
    """What to send, and how it came about.

    `send` is the whole view or what the provider lacks of it, `tokens` what that weighs. `view` tells all that was left
    out, shortened or added, and why; its `view_id` names it. `path_ids` are the messages that it is a view of. `life` is
    where the log of the conversation began, for nothing is remembered of one that was erased since; `begun` names the
    session that it was sent into, once `begin_send` was called.
    """

    conversation: str
    provider: str
    send: Full | Delta
    tokens: int
    view: View
    session: ProviderSession | None
    path_ids: frozenset[str]
    run_id: str | None = None
    selections: Mapping[str, str] = field(default_factory=dict)
    system_prompt: str = ""
    working_directory: str | None = None
    life: int = 0
    begun: list[str] = field(default_factory=list, compare=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What to send."""
        return self.send.messages


async def make_context(
    engine: Engine,
    conversation: str,
    *,
    provider: str,
    pipeline: Pipeline | None,
    turn: int | None,
    run: Run | str | None,
    selections: Mapping[str, str] | None,
    capabilities: ProviderCapabilities,
    system_prompt: str,
    working_directory: str | None,
    mode: Literal["full", "delta"] | None,
    now: int | None,
    used: Used | None,
    display: Mapping[str, Sequence[Block]] | None,
) -> Context:
    """See `Ledger.context`."""
    if mode not in (None, "full", "delta"):  # said before anything is recorded
        raise ValueError(f"mode must be full or delta, not {shown(mode)}")
    delta.check_time("now", now)
    check_name("provider", provider)
    pipeline = Pipeline() if pipeline is None else check_kind("pipeline", pipeline, Pipeline, "a Pipeline")
    check_run("run", run)
    check_selections("selections", selections)
    selections = selections or {}
    check_kind("capabilities", capabilities, ProviderCapabilities, "ProviderCapabilities")
    check_text("system_prompt", system_prompt)
    if working_directory is not None:
        check_text("working_directory", working_directory)
    if used is not None:
        check_kind("used", used, Used, "Used")
    variants = _check_display(display)
    found, life = await read_source(engine, conversation, run, selections, turn)
    try:
        view = await _make_view(engine, conversation, life, replace(found, used=used, display=variants), pipeline)
    finally:
        engine.tables.kept.weigh(conversation)
    source = view.source
    session = session_of(source.choices, provider)
    with using(source.facts):
        send = plan_view(
            view.messages,
            session,
            capabilities,
            system_prompt=system_prompt,
            working_directory=working_directory,
            now=now_ms() if now is None else now,
            mode=mode,
        )
        weight = tokens_of(send.messages, pipeline.tokenizer)
    ids = frozenset(ids_of(source.path))
    run_id = run.run_id if isinstance(run, Run) else run
    about = ids, run_id, selections, system_prompt, working_directory, life
    return Context(conversation, provider, send, weight, view, session, *about)


def _check_display(display: object) -> dict[str, tuple[Block, ...]]:
    """Blocks by message id, such as `enrich` gives for what is sent right now. Raises `ValueError`."""
    if display is None:
        return {}
    given = check_mapping("display", display, "message ids and Blocks")
    for name, blocks in given.items():
        check_blocks(f"display[{shown(name)}]", blocks)
    return {name: tuple(blocks) for name, blocks in given.items()}


async def _make_view(engine: Engine, conversation: str, life: int, source: Source, pipeline: Pipeline) -> View:
    """The view, once all that it decided is recorded.

    Where another one, of this process or not, has recorded something of this path meanwhile, the view is made again with
    that: who comes second uses the summary of who came first, so that both are the same.
    """
    while True:
        view = await make_view(source, pipeline)
        need = view.need
        if need is not None:  # an empty prompt is never sent
            raise NothingFits(need.needed, need.allowed, unit=need.unit, by=need.plugin)
        if not view.records:
            return view
        known = await _record(engine, conversation, life, source, view)
        if known is None:
            return view
        source = replace(source, choices=known)


async def _record(engine: Engine, conversation: str, life: int, source: Source, view: View) -> tuple[Choice, ...] | None:
    """Records what a view decided; or nothing where others have recorded something of its path: returns all there is then."""
    path, before = frozenset(ids_of(source.path)), len(source.choices)
    newer: list[tuple[Choice, ...]] = []

    def choose(known: Sequence[Choice]) -> Sequence[Choice]:
        newer[:] = [tuple(known)] if any(_is_about(one, path) for one in known[before:]) else []  # they are only ever added
        return () if newer else view.records

    await remember(engine, conversation, life, choose)
    return newer[0] if newer else None


def _is_about(choice: Choice, path: frozenset[str]) -> bool:
    """Whether a choice may change the view of a path."""
    if isinstance(choice, ContextCompacted):
        return path.issuperset(choice.covers)
    return isinstance(choice, ContextExpanded) and choice.message_id in path


def check_run(what: str, run: object) -> None:
    """Raises `ValueError` unless it is None, a `Run`, or the id of one."""
    if run is not None and not isinstance(run, Run):
        check_id(what, run, max_bytes=MAX_RUN_ID_BYTES)


async def recover_overflow(engine: Engine, context: Context, limit_tokens: int, *, tokenizer: Tokenizer) -> Recovery:
    """See `Ledger.recover_overflow`."""
    check_kind("context", context, Context, "a Context")
    check_position("limit_tokens", limit_tokens)
    if not callable(tokenizer):
        raise refusal("tokenizer", "a function of a text", tokenizer)
    view = context.view
    choices = view.choices or Choices(turn_added=view.source.turns)
    recovery = overflow.recover(
        view.source.path,
        view.messages,
        view.source.turn,
        choices,
        limit_tokens=limit_tokens,
        tokenizer=tokenizer,
        protected=view.protected,
    )
    if recovery.records:
        before = set(map(_key_of, view.source.choices))

        def choose(known: Sequence[Choice]) -> Sequence[Choice]:
            new = set(map(_key_of, known)) - before  # two may do it at once
            return [one for one in recovery.records if _key_of(one) not in new]

        await remember(engine, context.conversation, context.life, choose)
    return recovery


def _key_of(choice: Choice) -> object:
    if not isinstance(choice, ContextCompacted):
        return None
    return choice.turn, tuple(choice.covers), choice.strategy, choice.summary
