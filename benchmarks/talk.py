"""What is said in the workloads: events of real bodies, their texts as long as recorded text deltas are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from projector import events as ev
from projector.events import to_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stream import NewEvent

SEED: Final = 20_26
DELTA_BYTES: Final = (1, 3, 4, 5, 6, 7, 8, 10, 11, 13, 16, 19, 22, 25, 29, 33, 38, 46, 54, 66)
"""Lengths of 668 recorded text deltas of Anthropic's streams: the middle of every twentieth of them, 21 on average."""
_LETTERS: Final = "it goes on and on, from here to there and back again, as long as somebody listens to what is said "
_RUN_FRAME: Final = 6


def texts(count: int, *, seed: int = SEED) -> list[str]:
    """So many text deltas; the same for the same seed."""
    chance = random.Random(seed)
    return [_LETTERS[: chance.choice(DELTA_BYTES)] for _ in range(count)]


def deltas(count: int, *, message_id: str = "5f0c2a9e7b13d846.1") -> list[NewEvent]:
    """Text deltas as a run writes them."""
    return [to_event(ev.BlockDelta(message_id, 0, text)) for text in texts(count)]


def run_of(number: int, size: int, parent: str | None) -> list[NewEvent]:
    """A whole run of exactly `size` events (at least 6), with one message of deltas."""
    run_id = f"{number:016x}"
    message_id = f"{run_id}.1"
    bodies: list[ev.Body] = [
        ev.RunStarted(run_id, parent, "submit", run_id),
        ev.MessageStarted(run_id, message_id, "assistant"),
        ev.BlockStarted(message_id, 0, "text"),
        *(ev.BlockDelta(message_id, 0, text) for text in texts(size - _RUN_FRAME, seed=number)),
        ev.BlockSealed(message_id, 0),
        ev.MessageFinished(message_id, "complete"),
        ev.RunFinished(run_id, "completed"),
    ]
    return [to_event(body) for body in bodies]


def conversation(runs: int, *, size: int = 1000) -> Iterator[list[NewEvent]]:
    """So many runs of `size` events, one behind the other."""
    parent = None
    for number in range(runs):
        yield run_of(number, size, parent)
        parent = f"{number:016x}.1"
