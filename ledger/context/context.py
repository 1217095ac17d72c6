"""What the model sees of a conversation: the view of a path, what to send of it, and what is remembered for it (CONTEXT).

A view changes neither ledger nor log. What must be remembered (summaries, expansions, what a provider holds) is recorded
as an event before the view is used.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger.context.provider_sessions import session_of, to_body
from ledger.errors import NoSend, SendOvertaken, UnknownConversation, UnknownRun
from ledger.runs.run import Run
from ledger.transcript import Reader
from projector import settle
from projector.context import delta
from projector.context.delta import Delta, Full, ProviderCapabilities, plan
from projector.context.expansion import Refusal, Request, expand, find_message
from projector.context.expiration import Applied, Choices
from projector.context.overflow import Recovery, recover
from projector.context.pipeline import Pipeline, make_view
from projector.context.stage import Source
from projector.context.tokens import Tokenizer, estimate, tokens_of
from projector.events import ContextExpanded, to_event, validate
from stream import SeqConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from projector import Message
    from projector.context.budget import Used
    from projector.context.delta import ProviderSession
    from projector.context.pipeline import View
    from projector.events import Choice

_DEFAULT: Final = Pipeline()
_STATELESS: Final = ProviderCapabilities()


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


class Contexts(Reader):
    """The part of a `Ledger` that makes what a model is sent."""

    async def context(
        self,
        conversation: str,
        *,
        provider: str = "",
        pipeline: Pipeline = _DEFAULT,
        turn: int | None = None,
        run: Run | str | None = None,
        selections: Mapping[str, str] | None = None,
        capabilities: ProviderCapabilities = _STATELESS,
        system_prompt: str = "",
        working_directory: str | None = None,
        mode: Literal["full", "delta"] | None = None,
        now: int | None = None,
        used: Used | None = None,
    ) -> Context:
        """What to send of the active path, or with `run` of the path of an open run with all that it has said so far.

        `turn` is how many prompts went out before; the steps of the runs on the path, if it is not given. Of a provider
        that keeps the session (`capabilities`) only what it lacks is sent, as far as that is certain; `mode` overrides
        that. `now` and times of sessions in ms. New summaries are recorded before this returns. Raises `UnknownRun` for
        a run that is not open, `ValueError` for a turn, time or mode that is none and for a retention policy that does
        not fit its message, and `UnknownConversation` where it was erased meanwhile.
        """
        if mode not in (None, "full", "delta"):  # said before anything is recorded
            raise ValueError(f"mode must be full or delta, not {mode!r}")
        delta.check_time("now", now)
        life = (await self.store.bounds(conversation)).origin
        source = await self._source(conversation, run, selections or {}, turn)
        source = replace(source, used=used)
        view = await make_view(source, pipeline)
        if view.records:
            records = view.records
            await self._record(conversation, life, lambda known: [one for one in records if one not in known])
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
        about = ids, run_id, selections or {}, system_prompt, working_directory, life
        return Context(conversation, provider, send, weight, view, session, *about)

    async def expand(
        self, context: Context, request: Request | str, *, item_range: tuple[int, int] | None = None, reason: str = ""
    ) -> ContextExpanded | Refusal:
        """Shows a shortened or left out message in full again, from the next context on, or says why not.

        `request` is a message id, or what `read_request` found in a model's answer to this very context: an index in it
        is of this view. `notice` tells the model what came of it. Nothing is recorded for a refusal.
        """
        if isinstance(request, str):
            request = Request(message_id=request, item_range=item_range, reason=reason)
        view = context.view
        found = find_message(request, context.view.messages, view_id=view.view_id, current_view_id=view.view_id)
        if isinstance(found, Refusal):
            return found
        source = await self._source(context.conversation, context.run_id, context.selections, view.source.turn)
        newer = view.choices.record(source.choices) if view.choices is not None else None
        applied = view.applied or Applied(view.messages, {}, view.source.turn)
        if newer is not None and newer.is_whole(found, view.source.turn):
            return Refusal("already expanded")
        expanded = expand(view.source.path, applied, found, item_range=request.item_range, reason=request.reason)
        if isinstance(expanded, ContextExpanded):
            await self._record(context.conversation, context.life, lambda _: [expanded])
        elif expanded.label == "not compacted" and all(message.id != found for message in view.messages):
            return Refusal("left out")
        return expanded

    async def recover_overflow(self, context: Context, limit_tokens: int, *, tokenizer: Tokenizer = estimate) -> Recovery:
        """Shortens a context that a provider refused as too long, step by step until it fits, and records that.

        `messages` of the answer are to be sent instead; later contexts stay as short. All of it can be expanded.
        """
        view = context.view
        choices = view.choices or Choices(turn_added=view.source.turns)
        recovery = recover(
            view.source.path, view.messages, view.source.turn, choices, limit_tokens=limit_tokens, tokenizer=tokenizer
        )
        if recovery.records:
            await self._record(context.conversation, context.life, lambda _: recovery.records)
        return recovery

    async def begin_send(
        self, context: Context, *, session_id: str | None = None, expires_at: int | None = None
    ) -> ProviderSession:
        """Says that this context goes out now, so that a crash before `acknowledge` is noticed; returns the session.

        A full one begins a new session, whose id is `session_id`, or made up. Call it before anything is sent. Raises
        `SendOvertaken` for a delta where another send has begun or arrived since the context was made.
        """
        is_new = isinstance(context.send, Full) or context.session is None
        session = delta.begin_send(
            context.session,
            context.send,
            session_id or secrets.token_hex(8),
            system_prompt=context.system_prompt,
            working_directory=context.working_directory,
            expires_at=expires_at,
        )
        reason = context.send.reason if isinstance(context.send, Full) else None
        state: Literal["opened", "sending"] = "opened" if is_new else "sending"
        body = to_body(context.provider, session, state, reason)

        def check(known: Sequence[Choice]) -> Sequence[Choice]:
            if not is_new and session_of(known, context.provider) != context.session:
                raise SendOvertaken(context.conversation, context.provider)
            return [body]

        await self._record(context.conversation, context.life, check)
        context.begun[:] = [] if session.session_id is None else [session.session_id]
        return session

    async def acknowledge(
        self,
        context: Context,
        reply_ids: Collection[str] = (),
        *,
        run: Run | str | None = None,
        session_id: str | None = None,
    ) -> ProviderSession:
        """Says that what was sent has arrived and was answered with these messages; `session_id` as the provider named it.

        The answer is looked for on the path that the context is of, or with `run` on that of another open run. Raises
        `NoSend` where this send is not under way: it was acknowledged before, or another one was begun instead.
        """
        sent = [message.id for message in context.send.messages]
        return await self._arrived(context, sent, reply_ids, run, session_id)

    async def received(self, context: Context, ids: Collection[str], *, run: Run | str | None = None) -> ProviderSession:
        """Says after a crash what of a send has arrived, where a program can prove it; that may be nothing."""
        return await self._arrived(context, ids, (), run, None)

    async def _arrived(
        self,
        context: Context,
        sent: Collection[str],
        replies: Collection[str],
        run: Run | str | None,
        session_id: str | None,
    ) -> ProviderSession:
        source = await self._source_behind(context, run)
        new = [message for message in source.path if message.id not in context.path_ids]
        held: list[ProviderSession] = []

        def check(known: Sequence[Choice]) -> Sequence[Choice]:
            session = session_of(known, context.provider)
            if session is None or not session.sending or not _is_of(session, context):
                raise NoSend(context.conversation, context.provider)
            now = delta.acknowledge(session, [*context.view.messages, *new], sent, replies)
            held[:] = [now if session_id is None else delta.renamed(now, session_id)]
            return [to_body(context.provider, held[0], "acked")]

        await self._record(context.conversation, context.life, check)
        return held[0]

    async def _source_behind(self, context: Context, run: Run | str | None) -> Source:
        """The path of a context as it is now; where its run has ended meanwhile, that of the conversation."""
        if run is None and context.run_id is not None:
            with suppress(UnknownRun):
                return await self._source(context.conversation, context.run_id, context.selections, None)
        return await self._source(context.conversation, run, context.selections, None)

    async def _record(self, conversation: str, life: int, choose: Callable[[Sequence[Choice]], Sequence[Choice]]) -> None:
        """Appends what `choose` makes of all that is recorded: again, where somebody has appended in between.

        Raises `UnknownConversation` where it was erased since, for what is remembered must not outlive that.
        """
        while True:
            bounds = await self.store.bounds(conversation)
            if bounds.origin != life:
                raise UnknownConversation(conversation)
            await self.catch_up(conversation)
            events = [to_event(one) for one in choose([known for _, known in await self.tables.choices(conversation)])]
            if not events:
                return
            validate(events)
            with suppress(SeqConflict):
                await self.store.append(conversation, events, expected_seq=bounds.head)
                break
        await self.catch_up(conversation)

    async def _source(
        self, conversation: str, run: Run | str | None, selections: Mapping[str, str], turn: int | None
    ) -> Source:
        """The path, when prompts went out along it, and what was recorded."""
        if isinstance(run, Run):
            await run.flush()
            run = run.run_id
        path: list[Message]
        drafts: dict[str, tuple[int, ...]] = {}
        if run is None:
            path = await self.transcript(conversation, selections=selections)
        else:
            draft = (await self._known(conversation)).state.open.get(run)
            if draft is None:
                raise UnknownRun(run)
            parent = draft.parent_message_id
            path = [] if parent is None else await self.tables.path(conversation, parent, None)
            path += settle(draft, None).path
            drafts[run] = draft.prompts
        own = dict.fromkeys(message.run_id for message in path) | dict.fromkeys(drafts)
        prompts = await self.tables.prompts(conversation, path) | drafts
        before = dict(zip(own, accumulate((len(prompts.get(name, ())) for name in own), initial=0), strict=False))
        turns = {
            message.id: before[message.run_id] + bisect_left(prompts.get(message.run_id, ()), message.seq) for message in path
        }
        total = sum(len(prompts.get(name, ())) for name in own)
        choices: list[Any] = [choice for _, choice in await self.tables.choices(conversation)]
        return Source(tuple(path), total if turn is None else turn, turns, tuple(choices))


def _is_of(session: ProviderSession, context: Context) -> bool:
    """Whether a stored session is the one that a context was sent into, or that it has seen."""
    if context.begun:
        return session.session_id in context.begun
    return context.session is not None and context.session.session_id == session.session_id
