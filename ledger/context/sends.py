"""What goes out to a provider that keeps the history itself, and what of it has arrived, each recorded in time."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from ledger.checks import check_ids
from ledger.context.context import Context, check_run
from ledger.context.provider_sessions import session_of, to_body
from ledger.context.source import read_source, remember
from ledger.errors import NoSend, SendOvertaken, UnknownRun
from projector.context import delta
from projector.context.delta import Full
from stream.checks import check_kind, check_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ledger.engine import Engine
    from ledger.runs.run import Run
    from projector.context.delta import ProviderSession
    from projector.context.stage import Source
    from projector.events import Choice


async def begin_send(engine: Engine, context: Context, *, session_id: str | None, expires_at: int | None) -> ProviderSession:
    """See `Ledger.begin_send`."""
    check_kind("context", context, Context, "a Context")
    if session_id is not None:
        check_name("session_id", session_id)
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

    await remember(engine, context.conversation, context.life, check)
    context.begun[:] = [] if session.session_id is None else [session.session_id]
    return session


async def arrive(
    engine: Engine,
    context: Context,
    sent: Collection[str] | None,
    replies: Collection[str],
    *,
    run: Run | str | None,
    session_id: str | None,
) -> ProviderSession:
    """Records that these messages of a send, or all, have arrived; see `Ledger.acknowledge` and `Ledger.received`."""
    check_kind("context", context, Context, "a Context")
    arrived = [message.id for message in context.send.messages] if sent is None else check_ids("ids", sent)
    answers = check_ids("reply_ids", replies)
    check_run("run", run)
    if session_id is not None:
        check_name("session_id", session_id)
    source = await _read_source_behind(engine, context, run)
    new = [message for message in source.path if message.id not in context.path_ids]
    held: list[ProviderSession] = []

    def check(known: Sequence[Choice]) -> Sequence[Choice]:
        session = session_of(known, context.provider)
        if session is None or not session.sending or not _is_of(session, context):
            raise NoSend(context.conversation, context.provider)
        now = delta.acknowledge(session, [*context.view.messages, *new], arrived, answers)
        held[:] = [now if session_id is None else delta.renamed(now, session_id)]
        return [to_body(context.provider, held[0], "acked")]

    await remember(engine, context.conversation, context.life, check)
    return held[0]


async def _read_source_behind(engine: Engine, context: Context, run: Run | str | None) -> Source:
    """The path of a context as it is now; where its run has ended meanwhile, that of the conversation."""
    if run is None and context.run_id is not None:
        with suppress(UnknownRun):
            return (await read_source(engine, context.conversation, context.run_id, context.selections)).source
    return (await read_source(engine, context.conversation, run, context.selections)).source


def _is_of(session: ProviderSession, context: Context) -> bool:
    """Whether a stored session is the one that a context was sent into, or that it has seen."""
    if context.begun:
        return session.session_id in context.begun
    return context.session is not None and context.session.session_id == session.session_id
