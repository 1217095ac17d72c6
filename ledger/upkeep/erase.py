"""Begins and finishes erasures, whatever state the conversations are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.erasure import begin_erasure, finish_erasures
from ledger.errors import LedgerBehind, LedgerDiverged, UnknownConversation
from ledger.kinds import require_conversation
from projector.foreign import is_foreign
from stream import CorruptEvent
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.engine import Engine
    from ledger.erasure import Erased


async def erase(engine: Engine, conversations: Sequence[str]) -> list[Erased]:
    """See `Ledger.erase`; of each once, in the order in which they were named first."""
    names = list(dict.fromkeys(check_id("conversation id", name) for name in conversations))
    seen = {name: (await engine.tables.position(name)).erased for name in names}
    await engine.catch_up_all()  # so that media is known that others speak of
    for name in names:
        await _require(engine, name)
    for name in names:
        await begin_erasure(engine.tables, name, await engine.store.bounds(name), seen[name])
        engine.forget(name)
    erased = await finish_erasures(engine.store, engine.tables, names)
    for name in names:  # again: who was reading meanwhile may have kept what there was
        engine.forget(name)
    return erased


async def _require(engine: Engine, conversation: str) -> None:
    try:
        await _require_no_other(engine, conversation)
        await engine.require(conversation)
    except (LedgerBehind, LedgerDiverged, CorruptEvent):  # it goes anyway
        pass
    except UnknownConversation:
        if await engine.tables.conversation(conversation) is None:
            raise


async def _require_no_other(engine: Engine, conversation: str) -> None:
    """Raises `NoConversation` for a stream of another program: that one lets it go, what a protocol serves its server."""
    position, bounds = await engine.tables.position(conversation), await engine.store.bounds(conversation)
    is_empty = bounds.head == bounds.floor
    if not (position.is_conversation or is_empty) and await is_foreign(engine.store, conversation, after=bounds.floor):
        await require_conversation(engine.store, conversation, position, bounds)
