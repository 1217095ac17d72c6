"""What the model sees of a conversation: the view of a path, what to send of it, and what is shown in full again.

A view changes neither ledger nor log. What must be remembered (summaries, expansions, what a provider holds) is recorded
as an event before the view is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ledger.context.provider_sessions import session_of
from ledger.context.source import read_source, remember
from ledger.runs.run import Run
from projector.context import delta, overflow
from projector.context.delta import Delta, Full, ProviderCapabilities, plan
from projector.context.expansion import Refusal, Request, find_message
from projector.context.expansion import expand as expand_message
from projector.context.expiration import Applied, Choices
from projector.context.pipeline import Pipeline, make_view
from projector.context.tokens import tokens_of
from projector.events import ContextExpanded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.engine import Engine
    from projector import Message
    from projector.context.budget import Used
    from projector.context.delta import ProviderSession
    from projector.context.overflow import Recovery
    from projector.context.pipeline import View
    from projector.context.tokens import Tokenizer


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
    pipeline: Pipeline,
    turn: int | None,
    run: Run | str | None,
    selections: Mapping[str, str],
    capabilities: ProviderCapabilities,
    system_prompt: str,
    working_directory: str | None,
    mode: Literal["full", "delta"] | None,
    now: int | None,
    used: Used | None,
) -> Context:
    """See `Ledger.context`."""
    if mode not in (None, "full", "delta"):  # said before anything is recorded
        raise ValueError(f"mode must be full or delta, not {mode!r}")
    delta.check_time("now", now)
    life = (await engine.store.bounds(conversation)).origin
    source = replace(await read_source(engine, conversation, run, selections, turn), used=used)
    view = await make_view(source, pipeline)
    if view.records:
        records = view.records
        await remember(engine, conversation, life, lambda known: [one for one in records if one not in known])
    session = session_of(source.choices, provider)
    send = plan(
        view.messages,
        session,
        capabilities,
        system_prompt=system_prompt,
        working_directory=working_directory,
        now=now,
        mode=mode,
    )
    weight = tokens_of(send.messages, pipeline.tokenizer)
    ids = frozenset(message.id for message in source.path)
    run_id = run.run_id if isinstance(run, Run) else run
    about = ids, run_id, selections, system_prompt, working_directory, life
    return Context(conversation, provider, send, weight, view, session, *about)


async def expand(
    engine: Engine, context: Context, request: Request | str, *, item_range: tuple[int, int] | None, reason: str
) -> ContextExpanded | Refusal:
    """See `Ledger.expand`."""
    if isinstance(request, str):
        request = Request(message_id=request, item_range=item_range, reason=reason)
    view = context.view
    found = find_message(request, context.view.messages, view_id=view.view_id, current_view_id=view.view_id)
    if isinstance(found, Refusal):
        return found
    source = await read_source(engine, context.conversation, context.run_id, context.selections, view.source.turn)
    newer = view.choices.record(source.choices) if view.choices is not None else None
    applied = view.applied or Applied(view.messages, {}, view.source.turn)
    if newer is not None and newer.is_whole(found, view.source.turn):
        return Refusal("already expanded")
    expanded = expand_message(view.source.path, applied, found, item_range=request.item_range, reason=request.reason)
    if isinstance(expanded, ContextExpanded):
        await remember(engine, context.conversation, context.life, lambda _: [expanded])
    elif expanded.label == "not compacted" and all(message.id != found for message in view.messages):
        return Refusal("left out")
    return expanded


async def recover_overflow(engine: Engine, context: Context, limit_tokens: int, *, tokenizer: Tokenizer) -> Recovery:
    """See `Ledger.recover_overflow`."""
    view = context.view
    choices = view.choices or Choices(turn_added=view.source.turns)
    recovery = overflow.recover(
        view.source.path, view.messages, view.source.turn, choices, limit_tokens=limit_tokens, tokenizer=tokenizer
    )
    if recovery.records:
        await remember(engine, context.conversation, context.life, lambda _: recovery.records)
    return recovery
