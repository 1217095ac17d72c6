"""Which format an export has that names none: the one that gives all that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ledger.admin.options import require
from ledger.admin.output import print_warning
from ledger.kinds import is_reserved
from ledger.transfer.formats import MESSAGES, TAILFOLD
from projector.foreign import count_unkept

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.ledger import Ledger
    from stream import Bounds, StreamInfo


class Chosen(NamedTuple):
    """A format; `is_short` where it has no place for something that is kept, which was told."""

    name: str
    is_short: bool = False


async def choose_format(ledger: Ledger, conversation: str | None) -> Chosen:
    """The events of the log, or where a part of them is gone what the ledger holds. Says on standard error which and why."""
    spans: Mapping[str, Bounds | StreamInfo]
    if conversation is not None:
        await require(ledger, conversation)
        await ledger.engine.read_up(conversation)
        spans = {conversation: await ledger.store.bounds(conversation)}
        known = spans.keys() if await ledger.tables.conversation(conversation) is not None else set[str]()
    else:
        known = {info.conversation async for info in ledger.conversations(archived=True)}
        spans = {info.stream_id: info async for info in ledger.store.streams() if not is_reserved(info.stream_id)}
    cut = [name for name, span in spans.items() if name in known and span.floor > span.origin]
    if not cut:
        return Chosen(TAILFOLD)
    span = spans[cut[0]]
    others = f", and some of {len(cut) - 1:,} others" if len(cut) > 1 else ""
    print_warning(
        f"events {span.origin + 1} to {span.floor} of conversation {cut[0]!r} are gone from its log{others}: this export is in "
        f"the format {MESSAGES}, which has all that the ledger keeps (--format {TAILFOLD} writes the events that are left)"
    )
    left_out = [name for name in spans if name not in known]
    if left_out:
        print_warning(f"it is without {len(left_out):,} streams that are no conversations, as {left_out[0]!r}")
    unkept = 0
    for name in spans.keys() & known:
        span = spans[name]
        unkept += await count_unkept(ledger.store, name, span.floor, span.head, frozenset())
    if unkept:
        print_warning(f"it is without {unkept:,} events of types that only the log keeps")
    return Chosen(MESSAGES, is_short=bool(left_out or unkept))
