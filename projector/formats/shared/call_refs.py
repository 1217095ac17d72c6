"""Under which ids calls go out live: some models use an id again, or tell it only in the end; and whose a result is."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class _Begun:
    message_id: str
    ref: str
    is_answered: bool = False


@dataclasses.dataclass
class CallRefs:
    """The ids under which calls went out, by those that the log has of them."""

    _begun: dict[str, list[_Begun]] = dataclasses.field(default_factory=dict)

    def begin(self, tool_call_id: str, message_id: str, ref: str) -> None:
        """A call of a message went out as `ref`."""
        begun = self._begun.setdefault(tool_call_id, [])
        if all(one.ref != ref for one in begun):
            begun.append(_Begun(message_id, ref))

    def find(self, tool_call_id: str) -> str:
        """What is meant by an id: of calls without a result the first one in the newest message, as when a provider is asked.

        Where all have theirs the newest; an id of which nothing is known stays what it is.
        """
        found = self._find(tool_call_id)
        return tool_call_id if found is None else found.ref

    def answer(self, tool_call_id: str) -> str:
        """The same for a result, which that call has from now on."""
        found = self._find(tool_call_id)
        if found is None:
            return tool_call_id
        found.is_answered = True
        return found.ref

    def forget(self, message_id: str) -> None:
        """The calls of a message were taken back: no result is theirs."""
        left = {name: [one for one in begun if one.message_id != message_id] for name, begun in self._begun.items()}
        self._begun = {name: begun for name, begun in left.items() if begun}

    def _find(self, tool_call_id: str) -> _Begun | None:
        begun = self._begun.get(tool_call_id, [])
        waiting = [one for one in begun if not one.is_answered]
        if waiting:
            return next(one for one in waiting if one.message_id == waiting[-1].message_id)
        return begun[-1] if begun else None
