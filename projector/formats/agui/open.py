"""The messages of an AG-UI stream that are not finished: which one an event belongs to, and when one is done.

What AG-UI calls a message is a part of one of ours: reasoning and the answer behind it are one, and so are calls that
name it as their parent. A result ends it: what is said after that, under whatever id, is the next response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from projector import events as ev
from projector.formats.agui.growing import Answer
from projector.formats.shared.history import message_bodies

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector.formats.shared.history import HistoryMessage


_PHASES: Final[tuple[Literal["started", "finished"], ...]] = ("started", "finished")


class Opened:
    """What was begun and is not finished. Several messages may grow at once."""

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        self._run_id, self._mint = run_id, mint
        self._steps = 0
        self._answers: list[Answer] = []
        self._places: dict[str, Answer] = {}
        self._calls: dict[str, Answer] = {}
        self.current: Answer | None = None

    def place(
        self, ref: str | None, group: object, *, role: Any = "assistant", name: str | None = None, joins: bool = False
    ) -> tuple[list[ev.Body], Answer]:
        """The message for a message of AG-UI, begun if need be. `joins`: it goes on with whatever the assistant says."""
        found = self._places.get(ref) if ref is not None else None
        bodies: list[ev.Body] = []
        if found is None:
            found = self.current if role == "assistant" and self._may_join(group, joins=joins) else None
        if found is None:
            bodies, found = self._begin(role, name, group)
        if ref is not None:
            self._places[ref] = found
        if found.role == "assistant":
            self.current = found
        return bodies, found

    def at(self, ref: str | None) -> Answer | None:
        """The message that a message of AG-UI is part of, if it is not finished."""
        return self._places.get(ref) if ref is not None else None

    def calling(self, tool_call_id: str | None) -> Answer | None:
        """The message with this call, if it is not finished."""
        return self._calls.get(tool_call_id) if tool_call_id is not None else None

    def call(self, tool_call_id: str, answer: Answer) -> None:
        """A call belongs to this message."""
        self._calls[tool_call_id] = answer

    @property
    def waiting(self) -> list[str]:
        """The calls that have ended without arguments."""
        return [name for answer in self._answers for name, call in answer.calls.items() if call.has_ended]

    def answered(self, tool_call_id: str) -> list[ev.Body]:
        """A call has its result: its message says nothing more."""
        answer = self._calls.get(tool_call_id)
        if answer is None:
            return []
        if tool_call_id in answer.calls:
            answer.calls[tool_call_id].has_ended = True
        answer.answered = True
        answer.open_refs = set()
        self._places = {ref: other for ref, other in self._places.items() if other is not answer}
        self.current = None if self.current is answer else self.current
        return answer.hush() + self.settle()

    def settle(self) -> list[ev.Body]:
        """What has ended is sealed, now that something else comes; what is done is finished."""
        bodies: list[ev.Body] = []
        for answer in list(self._answers):
            bodies += answer.seal_calls()
            if answer is not self.current:
                bodies += self._finish(answer)
        return bodies

    @property
    def growing(self) -> set[tuple[str, int]]:
        """The blocks of text that are not whole, by message."""
        return {(each.message_id, each.growing.number) for each in self._answers if each.growing is not None}

    def finish_all(self) -> list[ev.Body]:
        """The run is over: what was not closed is whole, but for arguments that break off."""
        bodies: list[ev.Body] = []
        for answer in list(self._answers):
            answer.open_refs = set()
            bodies += answer.seal_what_parses() + self._leave(answer)
        self._forget()
        return bodies

    def leave(self) -> list[ev.Body]:
        """The run broke off: what is whole is finished, the rest stays partial."""
        bodies: list[ev.Body] = []
        for answer in list(self._answers):
            bodies += answer.seal_calls() + self._finish(answer)
        self._forget()
        return bodies

    def take_in(self, draft: HistoryMessage) -> list[ev.Body]:
        """A message that comes whole."""
        bodies = self._finish_idle()
        message = list(message_bodies(self._run_id, self._mint(), draft))
        if draft.role != "assistant":
            return bodies + message
        self._steps += 1
        began, ended = (ev.RunStep(self._run_id, self._steps, phase) for phase in _PHASES)
        return [*bodies, began, *message, ended]

    def mint(self) -> str:
        """The id of the next message."""
        return self._mint()

    def _may_join(self, group: object, *, joins: bool) -> bool:
        if self.current is None or self.current.answered:
            return False
        if group is not None or self.current.group is not None:
            return group == self.current.group
        return joins or self.current.only_reasoning

    def _begin(self, role: Any, name: str | None, group: object) -> tuple[list[ev.Body], Answer]:
        bodies = self._finish_idle()
        self._steps += role == "assistant"
        answer = Answer(self._run_id, self._mint(), role, self._steps if role == "assistant" else None, group)
        self._answers.append(answer)
        return bodies + answer.start(role, name), answer

    def _finish_idle(self) -> list[ev.Body]:
        self.current = None
        return [body for answer in list(self._answers) for body in self._finish(answer)]

    def _finish(self, answer: Answer) -> list[ev.Body]:
        """Finishes a message in which nothing is open."""
        if answer.calls or answer.open_refs:
            return []
        self._answers.remove(answer)
        self._places = {ref: other for ref, other in self._places.items() if other is not answer}
        self._calls = {name: other for name, other in self._calls.items() if other is not answer}
        return self._leave(answer)

    def _leave(self, answer: Answer) -> list[ev.Body]:
        """Of messages that grow at once only the newest has a step that can end."""
        answer.step = answer.step if answer.step == self._steps else None
        return answer.leave()

    def _forget(self) -> None:
        self._answers, self._places, self._calls, self.current = [], {}, {}, None
