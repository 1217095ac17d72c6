"""The run that a client of a chat watches: which one it is, how far it has come at one position, and what comes behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ledger.errors import LedgerBehind, LedgerDiverged
from ledger.kinds import is_reserved
from projector import events as ev
from projector.formats.shared.live import body_of
from stream.http import Problem
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ledger.catchup import Caught
    from ledger.engine import Engine
    from projector.run_draft import RunDraft
    from stream import Event
    from stream.http import Service


class Watched(NamedTuple):
    """A conversation after all its events up to `last_seq`: `run` is under way behind `leaf`, or none is."""

    conversation: str
    last_seq: int
    leaf: str | None
    run: RunDraft | None


async def look_at(engine: Engine, conversation: str) -> Watched:
    """Where a conversation stands; one that nobody knows has nothing in it. Raises `InvalidId`, and `Problem` (500)."""
    if is_reserved(check_id("conversation id", conversation)):
        return Watched(conversation, 0, None, None)
    try:
        caught = await engine.catch_up(conversation)
    except (LedgerBehind, LedgerDiverged) as error:
        raise Problem(500, "ledger_behind", str(error)) from error
    run = await _active_run(engine, conversation, caught)
    return Watched(conversation, caught.state.last_seq, caught.leaf if run is None else run.parent_message_id, run)


async def events_behind(service: Service, watched: Watched) -> AsyncGenerator[tuple[Event, ...], None]:
    """What comes behind `last_seq`, each once and in order; `()` now and then while nothing comes.

    Raises what `follow` raises, where it can't be continued.
    """
    incarnation = service.store.incarnation
    with service.tails.join(watched.conversation, after=watched.last_seq, incarnation=incarnation) as follower:
        while True:
            yield await follower.next()


async def redacted_behind(service: Service, conversation: str, end: Event) -> list[str]:
    """The messages that were redacted behind the end of a run, until now: who reads slowly comes to it later than they.

    None behind a run of which nothing is kept: an erase ends it so. Raises `Truncated` where nobody can say it any more.
    """
    found: list[str] = []
    seq, body = end.seq, body_of(end)
    if isinstance(body, ev.RunRecovered) and body.action == "cancel":
        return found
    while events := await service.store.read(conversation, after=seq):
        bodies = [body_of(event) for event in events if event.type == ev.MessageRedacted.TYPE]
        found += [body.message_id for body in bodies if isinstance(body, ev.MessageRedacted)]
        seq = events[-1].seq
    return found


async def _active_run(engine: Engine, conversation: str, caught: Caught) -> RunDraft | None:
    """The newest open run that would be on the active path if it ended now: a newer turn than the one that is active.

    So a run that nobody ends, and that a later one has superseded, is not waited for.
    """
    newest_first = sorted(caught.state.open.values(), key=lambda run: run.seq, reverse=True)
    if not newest_first or caught.leaf is None:
        return next(iter(newest_first), None)
    standing = await engine.tables.message(conversation, caught.leaf)
    active = None if standing is None else await engine.tables.run(conversation, standing.run_id)
    since = 0 if active is None else active.seq
    return next((run for run in newest_first if run.parent_message_id == caught.leaf or run.seq > since), None)
