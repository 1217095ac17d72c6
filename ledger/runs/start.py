"""How a run begins: behind which message, under which id, and only where no other run is under way."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ledger.errors import LedgerDiverged, LedgerError, RunExists, RunOpen, UnknownMessage
from projector import events as ev
from projector.events import validate
from stream import Producer, ProducerFenced, ProducerGap, SeqConflict, StreamError

if TYPE_CHECKING:
    import asyncio

    from ledger.catchup import CatchUp, Caught
    from ledger.runs.run import Run
    from ledger.tables.tables import LedgerTables
    from stream import EventStore


class Parent(Enum):
    """What stands for a parent that is not named."""

    ACTIVE_LEAF = "the active leaf"


ACTIVE_LEAF: Final = Parent.ACTIVE_LEAF


async def append_start(
    store: EventStore,
    tables: LedgerTables,
    catch_up: CatchUp,
    conversation: str,
    start: ev.RunStarted,
    parent: str | Parent | None,
) -> int:
    """Appends `run.started` behind its parent; returns its seq. Raises what `Ledger.begin_run` says."""
    first = Producer(start.run_id, 0, 0)
    while True:
        caught = await catch_up.run(conversation)
        await _require_unused(store, tables, conversation, start.run_id, caught)
        started = ev.to_event(replace(start, parent_message_id=await _find_parent(tables, conversation, parent, caught)))
        validate([started])
        try:
            result = await store.append(conversation, [started], expected_seq=caught.state.last_seq, producer=first)
        except SeqConflict as conflict:
            if conflict.head < conflict.expected:
                raise LedgerDiverged(conversation, conflict.expected, conflict.head) from conflict
            continue  # somebody wrote meanwhile: look again
        except (ProducerFenced, ProducerGap) as error:
            raise RunExists(conversation, start.run_id) from error
        if result.duplicate:
            raise RunExists(conversation, start.run_id)
        return result.last_seq


async def abandon(beginning: asyncio.Task[Run]) -> None:
    """Ends a run that nobody holds, or it would bar the conversation."""
    with suppress(StreamError, LedgerError):  # what can't be ended stays open, to be recovered
        run = await beginning
        await run.finish("cancelled")


async def _find_parent(tables: LedgerTables, conversation: str, parent: str | Parent | None, caught: Caught) -> str | None:
    if isinstance(parent, Parent):
        for run in caught.state.open.values():
            if run.parent_message_id == caught.leaf:
                raise RunOpen(conversation, run.run_id)
        return caught.leaf
    if parent is not None and await tables.message(conversation, parent, on_path=True) is None:
        raise UnknownMessage(conversation, parent)
    return parent


async def _require_unused(store: EventStore, tables: LedgerTables, conversation: str, run_id: str, caught: Caught) -> None:
    is_used = run_id in caught.state.open or await tables.run(conversation, run_id)
    if is_used or await store.producer(conversation, run_id):
        raise RunExists(conversation, run_id)
