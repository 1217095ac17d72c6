"""The paths that were read last, kept in the process: whoever reads one again reads only what has come since.

A kept path is good as long as the mark of its conversation has not moved, which is read with whatever is read next. Each
change of a committed message or an ended run moves it, whichever process makes it. What was erased
elsewhere stays in the memory of this process until it reads that conversation again, needs the room, or closes the ledger.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Final

from ledger.tables import walks
from ledger.tables.timeline import Timeline
from projector.context.facts import FactTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.tables.conversations import Position
    from ledger.tables.runs import Steps
    from projector import Message
    from stream.database import Sql

MOST_KEPT_BYTES: Final = 32 * 2**20
"""How much a process keeps of all conversations together, as it is stored; a path that is longer is read each time."""
MOST_FACTS_BYTES: Final = 64 * 2**20
"""How much of what was worked out beside these paths, roughly; beyond that it is worked out again each time."""
_OBJECT_BYTES: Final = 500  # what a message takes beside its text


@dataclass(frozen=True)
class KeptPath:
    """The messages from the root to a leaf, where each stands, and what is known of them, as of a `mark`."""

    mark: tuple[int, int] = (-1, -1)
    messages: tuple[Message, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)
    bytes_to: tuple[int, ...] = ()
    """How large the path is up to each message."""
    steps: Mapping[str, Steps] = field(default_factory=dict)
    facts: FactTable = field(default_factory=FactTable, compare=False)
    timeline: Timeline = field(default_factory=Timeline)

    @property
    def size(self) -> int:
        """What it counts for, in bytes."""
        return self.bytes_to[-1] if self.bytes_to else 0

    def extend(self, place: int, way: walks.Walk, conversation: str) -> KeptPath:
        """The path that goes on along a way behind its first `place` messages. Raises `LedgerDamaged`."""
        size = self.bytes_to[place - 1] if place else 0
        new = way.messages(conversation)
        bytes_to: list[int] = []
        for body in reversed(way.bodies):
            size += len(body) + _OBJECT_BYTES
            bytes_to.append(size)
        is_whole = place == len(self.messages)
        if is_whole and not new:
            return self
        first = self.places if is_whole else {message.id: at for at, message in enumerate(self.messages[:place])}
        places = {**first}
        places.update(zip([message.id for message in new], count(place), strict=False))
        messages, sizes = (*self.messages[:place], *new), (*self.bytes_to[:place], *bytes_to)
        if is_whole:
            return replace(self, messages=messages, places=places, bytes_to=sizes)
        return KeptPath(self.mark, messages, places, sizes, facts=self.facts.only(messages))

    def goes_beyond(self, other: KeptPath) -> bool:
        """Whether the other one is its beginning, and it has more."""
        place = len(other.messages)
        return self.mark == other.mark and 0 < place < len(self.messages) and self.messages[place - 1] is other.messages[-1]


_NOTHING: Final = KeptPath()


class KeptPaths:
    """One path of each conversation, of those that were read last as many as may be kept together."""

    def __init__(self) -> None:
        self._paths: OrderedDict[str, KeptPath] = OrderedDict()
        self._size = 0
        self._facts: OrderedDict[str, int] = OrderedDict()
        self._facts_size = 0

    def find(self, conversation: str) -> KeptPath:
        """The one of a conversation; an empty one where none is kept."""
        return self._paths.get(conversation, _NOTHING)

    def put(self, conversation: str, path: KeptPath) -> None:
        """Keeps a path in the place of the one that was kept."""
        if self.find(conversation).goes_beyond(path):
            return
        self.forget(conversation)
        if path.size > MOST_KEPT_BYTES or len(path.places) != len(path.messages):  # or a circle that was made by hand
            return
        self._paths[conversation] = path
        self._size += path.size
        while self._size > MOST_KEPT_BYTES:
            self.forget(next(iter(self._paths)))
        self.weigh(conversation)

    def weigh(self, conversation: str) -> None:
        """Counts what was worked out beside a path by now. Where it is too much, that of the paths read longest ago goes."""
        path = self._paths.get(conversation)
        if path is None:
            return
        self._facts_size += path.facts.size - self._facts.pop(conversation, 0)
        self._facts[conversation] = path.facts.size
        while self._facts_size > MOST_FACTS_BYTES:
            oldest, size = self._facts.popitem(last=False)
            self._facts_size -= size
            self._paths[oldest] = replace(self._paths[oldest], facts=FactTable())

    def forget(self, conversation: str) -> None:
        """Drops the one of a conversation."""
        self._size -= self._paths.pop(conversation, _NOTHING).size
        self._facts_size -= self._facts.pop(conversation, 0)


async def read_kept(sql: Sql, conversation: str, position: Position, leaf: str, kept: KeptPath) -> KeptPath:
    """The whole path to a leaf, as much as can be of the one that is kept. Raises `LedgerDamaged`."""
    base = _as_of(position, kept)
    way = await walks.walk(sql, conversation, leaf, None, base.places)
    return base.extend(_place(base, way), way, conversation)


async def read_last(sql: Sql, conversation: str, position: Position, leaf: str, limit: int, kept: KeptPath) -> list[Message]:
    """The last `limit` messages of the path to a leaf, as much as can be of the one that is kept. Raises `LedgerDamaged`."""
    base = _as_of(position, kept)
    way = await walks.walk(sql, conversation, leaf, limit, base.places)
    place, left = _place(base, way), limit - len(way.rows)
    return [*base.messages[max(0, place - left) : place], *way.messages(conversation)]


def _as_of(position: Position, kept: KeptPath) -> KeptPath:
    mark = (position.amended, position.rewound)
    return kept if kept.mark == mark else replace(_NOTHING, mark=mark, facts=FactTable())


def _place(base: KeptPath, way: walks.Walk) -> int:
    """How many messages of the kept path stand ahead of a way."""
    return 0 if way.wanted is None else base.places.get(way.wanted, -1) + 1
