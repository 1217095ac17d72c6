"""Follows a conversation: its events, or where they can't be continued what a client would show, and then what comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from projector.settle import settle
from stream import Diverged, Truncated, follow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.engine import Engine
    from projector import Message, State
    from stream import Event

MAX_REPLAYED: Final = 200


class OpenRun(NamedTuple):
    """A run without an end, and what it has said so far."""

    run_id: str
    seq: int
    last_seq: int
    messages: list[Message]


class Replay(NamedTuple):
    """Begin anew from here: what a client would show after all events up to `last_seq`.

    `messages` are the last ones of the active path; with `has_more` the earlier ones are pages of `Ledger.transcript`.
    Whoever keeps `last_seq` keeps `incarnation` with it.
    """

    conversation: str
    last_seq: int
    incarnation: str
    messages: list[Message]
    has_more: bool
    open_runs: list[OpenRun]


async def follow_conversation(
    engine: Engine, conversation: str, *, after: int, incarnation: str | None
) -> AsyncIterator[Event | Replay]:
    """See `Ledger.follow`."""
    while True:
        try:
            async for event in follow(engine.store, conversation, after=after, incarnation=incarnation):
                yield event
                after = event.seq
        except (Truncated, Diverged):
            replay = await take_replay(engine, conversation)
            yield replay
            after, incarnation = replay.last_seq, None


async def take_replay(engine: Engine, conversation: str) -> Replay:
    """The conversation as it is now, at one position of its log."""
    caught = await engine.catch_up(conversation)
    messages = [] if caught.leaf is None else await engine.tables.path(conversation, caught.leaf, MAX_REPLAYED + 1)
    return Replay(
        conversation,
        caught.state.last_seq,
        engine.store.incarnation,
        messages[-MAX_REPLAYED:],
        len(messages) > MAX_REPLAYED,
        open_runs_of(caught.state),
    )


def open_runs_of(state: State) -> list[OpenRun]:
    """The runs that have no end, with what they have said so far."""
    return [OpenRun(run.run_id, run.seq, state.last_seq, list(settle(run, None).messages)) for run in state.open.values()]
