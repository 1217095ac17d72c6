"""What catch-up writes: the effects of a page of events, in the order of the log, as part of one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from ledger.records import RunInfo
from ledger.tables import choices, messages, runs, uses
from ledger.tables.branches import choose, join
from ledger.tables.calls import find_calling
from ledger.tables.conversations import describe, grow
from ledger.tables.messages import Placed
from projector import events as ev
from projector import settle
from projector.amendments import amend_message
from projector.effects import (
    ConversationDescribed,
    LeafSelected,
    MediaNamed,
    MessageAmended,
    RunBegun,
    RunClosed,
    UsageAdded,
    ViewChosen,
)
from projector.run_draft import Refused
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from projector import Message, Settled
    from projector.amendments import Amendment
    from projector.effects import Effect
    from projector.run_draft import RunDraft
    from stream.database import Sql


_LOG: Final = Logger("tailfold.ledger")


class Note(NamedTuple):
    """What an effect could not change any more, for the program's log once all of it is stored."""

    event: str
    fields: dict[str, object]


async def apply(sql: Sql, key: int, conversation: str, effects: Sequence[Effect]) -> list[Note]:
    """Takes effects in, and tells of those that change nothing any more."""
    notes: list[Note] = []
    closed = {effect.run.seq for effect in effects if isinstance(effect, RunClosed)}
    for effect in effects:
        if isinstance(effect, RunBegun) and effect.run.seq in closed:  # it is listed with its end
            continue
        note = await _STEPS[type(effect)](sql, key, conversation, effect)
        if note is not None:
            notes.append(note)
    return notes


def tell(conversation: str, notes: Sequence[Note]) -> None:
    """Tells it in the program's log."""
    for note in notes:
        _LOG.warning(note.event, conversation=conversation, **note.fields)


async def begin(sql: Sql, key: int, conversation: str, begun: RunBegun) -> None:
    """Lists a run as open, unless its id was used before."""
    run = begun.run
    if await runs.put(sql, key, RunInfo.of(conversation, run, None, 0)):
        await grow(sql, key, run.started_at, runs=1)


async def commit(sql: Sql, key: int, conversation: str, closed: RunClosed) -> Note | None:
    """Writes what a run leaves. Ids that an earlier run has taken stay its: the later ones are anomalies."""
    run, end = closed
    taken = await messages.known(sql, key, [*run.live, *(message_id for message_id, _ in run.done.items())])
    settled = settled_for_ledger(run.without(taken), closed)
    path = settled.path
    info = RunInfo.of(conversation, run, end, len(path))
    first = path[0].id if path else None
    is_new = await runs.put(sql, key, info, first)
    if not is_new and not await runs.end(sql, key, info, first):
        return Note("ledger.run_id_taken", {"run_id": run.run_id, "seq": run.seq})
    await messages.add(sql, key, placed(settled, closed))
    newest = max((message.created_at for message in path), default=run.started_at)
    standing = await grow(sql, key, max(newest, run.started_at), runs=int(is_new), messages=len(path))
    if first is not None:
        joining = (first, path[-1].id, run.seq)
        await join(sql, key, path[0].parent_id, joining, standing, is_committed=end.status != "failed")
    return Note("ledger.message_ids_taken", {"run_id": run.run_id, "message_ids": taken}) if taken else None


def placed(settled: Settled, closed: RunClosed) -> list[Placed]:
    """What a run leaves, as it lies in the tables."""
    is_committed = closed.end.status != "failed"
    sides = ((True, settled.path), (False, settled.off))
    return [Placed(message, on_path, closed.run.seq, is_committed) for on_path, some in sides for message in some]


def settled_for_ledger(run: RunDraft, closed: RunClosed) -> Settled:
    """What the ledger keeps of a run: of one recovered by cancel nothing, it stays readable in the log."""
    settled = settle(run, closed.end)
    return replace(settled, off=()) if closed.end.recovered == "cancel" else settled


async def amend(sql: Sql, key: int, conversation: str, amended: MessageAmended) -> Note | None:  # noqa: ARG001 - as the others
    """Changes a committed message."""
    message = await _amended(sql, key, amended.seq, amended.body)
    if message is None:
        return Note("ledger.amendment_of_nothing", {"seq": amended.seq, "type": amended.body.TYPE})
    try:
        changed = amend_message(message, amended.body)
    except Refused as why:
        return Note("ledger.amendment_refused", {"seq": amended.seq, "why": str(why)})
    await messages.put(sql, key, message, changed)
    return None


async def _amended(sql: Sql, key: int, seq: int, body: Amendment) -> Message | None:
    if isinstance(body, ev.ToolApproval):
        return await find_calling(sql, key, body.tool_call_id, seq)
    return await messages.message_at(sql, key, body.message_id)


async def _add_usage(sql: Sql, key: int, conversation: str, added: UsageAdded) -> Note | None:  # noqa: ARG001 - as the others
    if await runs.add_usage(sql, key, added.body):
        return None
    return Note("ledger.amendment_of_nothing", {"seq": added.seq, "type": added.body.TYPE})


async def _select(sql: Sql, key: int, conversation: str, selected: LeafSelected) -> Note | None:  # noqa: ARG001 - as the others
    if await choose(sql, key, selected.message_id, selected.seq):
        return None
    return Note("ledger.selection_of_nothing", {"message_id": selected.message_id})


async def _use(sql: Sql, key: int, conversation: str, named: MediaNamed) -> None:  # noqa: ARG001 - as the others
    await uses.use(sql, key, named.media_id)


async def _remember(sql: Sql, key: int, conversation: str, chosen: ViewChosen) -> None:  # noqa: ARG001 - as the others
    await choices.put(sql, key, chosen)


async def _describe(sql: Sql, key: int, conversation: str, said: ConversationDescribed) -> None:  # noqa: ARG001 - as the others
    await describe(sql, key, said)


_STEPS: Final[dict[type[Effect], Callable[[Sql, int, str, Any], Awaitable[Note | None]]]] = {
    RunBegun: begin,
    RunClosed: commit,
    MessageAmended: amend,
    UsageAdded: _add_usage,
    LeafSelected: _select,
    MediaNamed: _use,
    ViewChosen: _remember,
    ConversationDescribed: _describe,
}
