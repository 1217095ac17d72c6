"""Begins and finishes an erasure, whatever state the conversation is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.erasure import begin_erasure, finish_erasure
from ledger.errors import LedgerBehind, LedgerDiverged, UnknownConversation
from stream import CorruptEvent
from stream.limits import check_id

if TYPE_CHECKING:
    from ledger.engine import Engine
    from ledger.erasure import Erased


async def erase(engine: Engine, conversation: str) -> Erased:
    """See `Ledger.erase`."""
    check_id("conversation id", conversation)
    seen = (await engine.tables.position(conversation)).erased
    await engine.catch_up_all()  # so that media is known that others speak of
    try:
        await engine.require(conversation)
    except (LedgerBehind, LedgerDiverged, CorruptEvent):  # it goes anyway
        pass
    except UnknownConversation:
        if await engine.tables.conversation(conversation) is None:
            raise
    bounds = await engine.store.bounds(conversation)
    await begin_erasure(engine.tables, conversation, bounds, seen)
    engine.forget(conversation)
    return await finish_erasure(engine.store, engine.tables, conversation)
