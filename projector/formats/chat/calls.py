"""The tool calls of a Chat Completions response while they are streamed: which one a fragment belongs to.

By the protocol fragments join by index, and id and name come with the first one. Servers use one index for all calls or
none, send an id late or with every fragment, and a name in pieces or once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector.formats.shared.response import OpenBlock
from projector.json_text import JsonText, dump, is_json

if TYPE_CHECKING:
    from collections.abc import Iterator

CUSTOM: Final = '"custom"'
_NO_INDEX: Final = "null"


class Call(OpenBlock):
    """A tool call whose arguments still come. It begins with its name."""

    def __init__(self, index: JsonText) -> None:
        super().__init__("tool_call")
        self.index = index
        self.call_id: str | None = None
        self.called = ""
        """Its name, as far as it came."""
        self.begun: tuple[str, str] = "", ""
        """The name and the id that it began under."""
        self.waiting: list[str] = []
        self.rest: dict[str, JsonText] = {}

    def begin(self, name: str, tool_call_id: str) -> None:
        """Its block begins under this name and this id."""
        self.begun = name, tool_call_id

    def end(self) -> None:
        """Nothing more comes. The input of a custom tool is no JSON but a text."""
        self.pieces += self.waiting
        if self.rest.get("type") == CUSTOM:
            self.whole, self.takes_text = dump({"input": "".join(self.pieces)}), True
        name, tool_call_id = self.begun
        self.final_name = self.called if self.called != name else None
        self.final_call_id = self.call_id if self.call_id not in (None, tool_call_id) else None

    @property
    def has_input(self) -> bool:
        """Whether any of its arguments are there."""
        return any(self.pieces) or any(self.waiting)

    @property
    def is_whole(self) -> bool:
        """Whether its arguments could be all there are."""
        return is_json("".join((*self.pieces, *self.waiting)))

    def name_on(self, name: str) -> None:
        """Its name once more, or more of it."""
        self.called = name if name.startswith(self.called) else self.called + name


class Calls:
    """Those of one response, in the order they began in."""

    def __init__(self) -> None:
        self._all: list[Call] = []

    def __iter__(self) -> Iterator[Call]:
        return iter(self._all)

    def find(self, index: JsonText, call_id: str | None, name: str | None, said: str) -> Call:
        """The call that a fragment belongs to, or another one that begins with it."""
        newest = next((call for call in reversed(self._all) if call.index == index), None)
        if newest is None and index == _NO_INDEX and name is None and call_id is None:
            newest = self._all[-1] if self._all else None
        same = [call for call in self._all if call_id is not None and call.call_id == call_id]
        if same and (name is None or newest is not None):
            found = next((call for call in same if call is newest), same[-1])
        elif newest is None or _begins(newest, call_id, name, said):
            found = Call(index)
            self._all.append(found)
        else:
            found = newest
        found.call_id = found.call_id or call_id
        if name is not None and not (found.has_input and found.called):
            found.name_on(name)
        return found


def _begins(newest: Call, call_id: str | None, name: str | None, said: str) -> bool:
    """Whether a fragment with no id that is known is of another call than the newest under its index."""
    if call_id is not None and newest.call_id is not None:
        return True
    if name is None or not newest.called:
        return False
    if name == newest.called:  # some say it with every fragment
        return bool(said) and newest.has_input and newest.is_whole
    is_more = call_id is None or name.startswith(newest.called)
    return newest.has_input or not is_more
