"""Lifecycle events: what happened to messages of the view, told once, phase by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from projector.context.expiration import Applied
    from projector.message import Message

_LOG: Final = Logger("tailfold.expiration")
Phase = Literal["message-added", "message-expired", "message-compacted", "message-removed", "message-expanded"]


class LifecycleEvent(msgspec.Struct, frozen=True):
    """What happened to a message at a turn, and why."""

    type: Phase
    turn: int
    message_id: str
    reason: str
    tokens_saved: int = 0


class Lifecycle:
    """Tells a callback what is new since the pass before.

    A callback that raises is logged, without the payload; it changes neither the turn nor what is told next. What was
    told is remembered in this object only; `told` names the messages of which all was told before it was made, that they
    were added, too.
    """

    def __init__(self, callback: Callable[[LifecycleEvent], object] | None = None, told: Iterable[str] = ()) -> None:
        self._callback = callback
        self._told: dict[str, str | None] = dict.fromkeys(told)
        self._added = set(self._told)

    def add(self, message_ids: Iterable[str], turn: int) -> list[LifecycleEvent]:
        """Messages came onto the path."""
        return self._emit([self._addition(name, turn, "it was added") for name in message_ids])

    def add_new(self, path: Iterable[Message], turns: Mapping[str, int], turn: int) -> list[LifecycleEvent]:
        """The messages of a path that were not there before, each with the turn in which it was added."""
        new = [message for message in path if message.id not in self._added]
        return self._emit(
            [self._addition(one.id, turns.get(one.id, turn), f"a message of the role {one.role} was added") for one in new]
        )

    def _addition(self, message_id: str, turn: int, reason: str) -> LifecycleEvent:
        self._added.add(message_id)
        return LifecycleEvent("message-added", turn, message_id, reason)

    def tell(self, applied: Applied) -> list[LifecycleEvent]:
        """What a pass did that the one before had not done: expired, compacted, removed, each in path order."""
        phases: dict[str, list[LifecycleEvent]] = {"message-expired": [], "message-compacted": [], "message-removed": []}
        for name in [name for name in self._told if name in applied.expanded and name not in applied.states]:
            del self._told[name]
        for name, state in applied.states.items():
            if state.is_partial or (name in self._told and self._told[name] in (None, state.strategy)):
                continue
            self._told[name] = state.strategy
            told: tuple[Phase, ...] = ("message-compacted",) if state.was_compacted else ("message-expired",)
            if state.strategy == "remove":
                told = ("message-expired", "message-removed")
            for phase in told:
                phases[phase].append(LifecycleEvent(phase, applied.turn, name, state.why, state.tokens_saved))
        return self._emit([event for events in phases.values() for event in events])

    def expand(self, message_id: str, turn: int, reason: str) -> list[LifecycleEvent]:
        """A message was expanded; when it is shortened again, that is told again."""
        self._told.pop(message_id, None)
        return self._emit([LifecycleEvent("message-expanded", turn, message_id, reason)])

    def _emit(self, events: list[LifecycleEvent]) -> list[LifecycleEvent]:
        for event in events:
            if self._callback is None:
                break
            try:
                self._callback(event)
            except Exception as error:  # noqa: BLE001 - a callback never breaks the turn
                _LOG.warning(
                    "lifecycle.callback_failed", type=event.type, message_id=event.message_id, error=type(error).__name__
                )
        return events
