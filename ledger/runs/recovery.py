"""How a run ends from outside: recovered where its writer is lost, or asked to stop."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ledger.amendments import select as select_message
from ledger.errors import UnknownRun
from projector import events as ev
from stream import Producer, ProducerFenced, ProducerGap
from stream.checks import check_flag, check_text, shown
from stream.limits import MAX_RUN_ID_BYTES, check_id

if TYPE_CHECKING:
    from ledger.engine import Engine
    from ledger.records import RunInfo
    from projector.events import Action


async def recover(engine: Engine, conversation: str, run_id: str, action: Action, *, select: bool) -> RunInfo:
    """See `Ledger.recover`."""
    check_id("run_id", run_id, max_bytes=MAX_RUN_ID_BYTES)
    if action not in ("commit", "fail", "cancel"):
        raise ValueError(f"action {shown(action)} is no way to recover a run: use commit, fail or cancel")
    check_flag("select", select)
    state = (await engine.require(conversation)).state
    if run_id in state.open:
        watermark = await engine.store.producer(conversation, run_id)
        epoch = 0 if watermark is None else watermark.epoch + 1
        state = (await engine.catch_up(conversation)).state
    ended_at = None
    if run_id in state.open:  # still, and so nobody else has recovered it before the epoch was read
        recovered = ev.to_event(ev.RunRecovered(run_id, action, state.last_seq))
        with suppress(ProducerFenced, ProducerGap):  # somebody else recovers it too: the first end counts
            result = await engine.store.append(conversation, [recovered], producer=Producer(run_id, epoch, 0))
            ended_at = None if result.duplicate else result.last_seq
        await engine.catch_up(conversation)
    run = await engine.tables.run(conversation, run_id)
    if run is None:
        raise UnknownRun(run_id)
    if select and run.end_seq is not None and run.end_seq == ended_at:  # of a run that has ended otherwise nothing is changed
        left = [message.id for message, on_path in await engine.tables.messages_of(conversation, run_id) if on_path]
        if left:
            await select_message(engine, conversation, left[-1])
    return run


async def cancel(engine: Engine, conversation: str, run_id: str, *, by: str | None) -> bool:
    """See `Ledger.cancel`."""
    check_id("run_id", run_id, max_bytes=MAX_RUN_ID_BYTES)
    if by is not None:
        check_text("by", by)
    if run_id not in (await engine.require(conversation)).state.open:
        if await engine.tables.run(conversation, run_id) is None:
            raise UnknownRun(run_id)
        return False
    return await engine.note(conversation, ev.RunCancelRequested(run_id, by))
