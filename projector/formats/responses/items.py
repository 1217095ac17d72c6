"""The items of a response that is being streamed, told apart by what names them: call ids, ids, and last their places.

Servers leave places out or use one twice, give an item another id with each event, and list at the end other items in
another order than they streamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from projector.formats.shared.fields import text_of_field
from projector.formats.shared.openai_items import item_blocks, item_type
from projector.formats.shared.response import CALLS, OpenBlock
from projector.json_text import JsonText, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from projector.message import Block

_CHANGES_CALL: Final = "tool_search_call"
"""A search for tools ends with another call id than it begins with."""
_KINDS: Final = {"text": "message", "refusal": "message", "reasoning": "reasoning"}
"""The type of an item by the block that is streamed of it; calls have many types."""


class Part(OpenBlock):
    """A block of an item, and how much of it was told so far."""

    def __init__(self, kind: str, ref: str | None) -> None:
        super().__init__(kind, ref)
        self.message_id = ""
        self.citations = 0
        self.part: object = None  # of reasoning, the part that came last


class Told(NamedTuple):
    """An item as an event tells it."""

    type: str
    ref: str | None
    call_id: str | None
    blocks: Sequence[Block]
    is_completed: bool


def told(source: JsonText) -> Told:
    """Raises `InvalidJson` or `FormatError` for what is no item."""
    fields = split(source)
    ref, call_id = (text_of_field(fields, name) or None for name in ("id", "call_id"))
    return Told(item_type(fields), ref, call_id, item_blocks(source), fields.get("status") == '"completed"')


class Item:
    """An item of the output: its blocks by part; 0 for all that is no message."""

    def __init__(self, kind: str, place: object, ref: str | None, call_id: str | None = None) -> None:
        self.type, self.place, self.ref, self.call_id = kind, place, ref, call_id
        self.open: dict[int, Part] = {}
        self.ended: dict[int, Part] = {}
        self.is_done = False
        self.is_named = False
        """Whether an event named its id after it began: then another id is another item."""

    def fits(self, kind: str) -> bool:
        """Whether a block of this kind can be of it."""
        return self.type not in _KINDS.values() if kind in CALLS else self.type == _KINDS.get(kind, kind)

    def may_be(self, item: Told) -> bool:
        """Whether nothing that is known of the two says that they are not the same."""
        if self.type != item.type:
            return False
        return item.type == _CHANGES_CALL or None in (self.call_id, item.call_id) or self.call_id == item.call_id

    def says(self, blocks: Sequence[Block]) -> bool:
        """Whether these blocks have the text that it has."""
        parts = self.open | self.ended
        return len(parts) == len(blocks) and all(
            number in parts and parts[number].beyond(block.text) == "" for number, block in enumerate(blocks)
        )


class Items:
    """Those of one response, in the order they began in."""

    def __init__(self) -> None:
        self._all: list[Item] = []

    def __iter__(self) -> Iterator[Item]:
        return iter(self._all)

    def add(self, item: Item) -> Item:
        """Another one."""
        self._all.append(item)
        return item

    def of_event(self, kind: str, place: object, ref: str | None) -> Item | None:
        """The item that an event inside it is about."""
        named = self._named(ref, lambda item: item.fits(kind), place)
        if named is not None:
            named.is_named = True
            return named
        if place is not None:
            return next((item for item in reversed(self._all) if item.place == place and item.fits(kind)), None)
        newest = next((item for item in reversed(self._all) if not item.is_done and item.fits(kind)), None)
        return None if newest is None or (ref is not None and newest.is_named) else newest

    def of_beginning(self, item: Told, place: object) -> Item | None:
        """The item that begins once more."""
        found = self._of_ids(item, place)
        if found is None or (found.is_done and found.call_id is None):
            return None
        return found if None in (found.place, place) or found.place == place else None

    def of_end(self, item: Told, place: object) -> Item | None:
        """The item that ends."""
        found = self._of_ids(item, place)
        if found is not None:
            return found
        same = [one for one in reversed(self._all) if one.may_be(item) and place in (None, one.place)]
        return next((one for one in same if not one.is_done or one.says(item.blocks)), None)

    def of_list(self, items: Sequence[Told]) -> list[Item | None]:
        """For each item of the final list the one that was streamed: by ids, then by text, and last by order."""
        found: list[Item | None] = [self._of_ids(item, None) for item in items]
        taken = {id(item) for item in found}
        for is_same in (lambda known, item: known.says(item.blocks), lambda *_: True):
            for at, item in enumerate(items):
                if found[at] is None and (item.call_id is None or item.type == _CHANGES_CALL):
                    left = (known for known in self._all if id(known) not in taken and known.may_be(item))
                    found[at] = next((known for known in left if is_same(known, item)), None)
                    taken.add(id(found[at]))
        return found

    def _of_ids(self, item: Told, place: object) -> Item | None:
        calls = [known for known in self._all if item.call_id is not None and known.call_id == item.call_id]
        found = next((known for known in calls if known.type == item.type), None)
        return found or self._named(item.ref, lambda known: known.may_be(item), place)

    def _named(self, ref: str | None, may_be: Callable[[Item], bool], place: object) -> Item | None:
        """The one with this id; where several have it, the one at that place, for such an id names nothing."""
        named = [item for item in self._all if ref is not None and item.ref == ref and may_be(item)]
        same = [item for item in named if item.place == place]
        found = same or named
        return found[-1] if found else None
