"""Values that grow in constant time and yet never change for whoever holds them.

A fold is pure: the state before an event stays what it was. Copying a long text for every delta
would be quadratic, so these values share one growing list and each remembers how much of it is its own. Growing the
newest value appends to the shared list; growing an older one copies first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

T = TypeVar("T")
K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class GrowingList(Generic[T]):
    """An immutable list with `add` in O(1)."""

    __slots__ = ("_shared", "_size")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._shared = list(items)
        self._size = len(self._shared)

    def add(self, item: T) -> GrowingList[T]:
        """A sequence with one more item."""
        grown: GrowingList[T] = GrowingList.__new__(GrowingList)
        grown._shared = self._shared if len(self._shared) == self._size else self._shared[: self._size]
        grown._shared.append(item)
        grown._size = self._size + 1
        return grown

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for index in range(self._size):  # by index: the list may grow meanwhile
            yield self._shared[index]


class GrowingText:
    """An immutable text that is put together from pieces, each in O(1)."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str = "", pieces: GrowingList[str] | None = None) -> None:
        self._pieces = pieces if pieces is not None else GrowingList([text] if text else [])

    def add(self, piece: str) -> GrowingText:
        """The text with a piece behind it."""
        return GrowingText(pieces=self._pieces.add(piece)) if piece else self

    def __str__(self) -> str:
        text = "".join(self._pieces)
        try:
            text.encode()
        except UnicodeEncodeError:  # halves of a pair from two pieces are one character, as in JSON
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return text


class GrowingTable(Generic[K, V]):
    """An immutable mapping in order of insertion, with `add` in O(1); `replace` copies references only, `without` copies."""

    __slots__ = ("_index", "_owns_index", "_size", "_values")

    def __init__(self, items: Iterable[tuple[K, V]] = ()) -> None:
        pairs = list(items)
        self._index: dict[K, int] = {key: place for place, (key, _) in enumerate(pairs)}
        self._values: list[V] = [value for _, value in pairs]
        self._size = len(pairs)
        self._owns_index = True

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        place = self._index.get(key, self._size)
        return self._values[place] if place < self._size else None

    def add(self, key: K, value: V) -> GrowingTable[K, V]:
        """The table with a new key behind the others."""
        if self._owns_index and len(self._values) == self._size:
            grown = self._share(self._values, self._index)
        elif len(self._values) == len(self._index) == self._size:
            grown = self._share(self._values, self._index.copy())
        else:
            grown = GrowingTable(self.items())
        grown._size = self._size + 1
        grown._index[key] = self._size
        grown._values.append(value)
        return grown

    def replace(self, key: K, value: V) -> GrowingTable[K, V]:
        """The table with another value at a key it has."""
        values = self._values[: self._size]
        values[self._index[key]] = value
        return self._share(values, self._index, owns_index=False)

    def _share(self, values: list[V], index: dict[K, int], *, owns_index: bool = True) -> GrowingTable[K, V]:
        """A table with these values. Who does not own the index puts nothing into it: others would find that in theirs."""
        made: GrowingTable[K, V] = GrowingTable.__new__(GrowingTable)
        made._index, made._values, made._size, made._owns_index = index, values, self._size, owns_index
        return made

    def without(self, keys: Iterable[K]) -> GrowingTable[K, V]:
        """The table without some keys."""
        gone = set(keys)
        return GrowingTable((key, value) for key, value in self.items() if key not in gone) if gone else self

    def items(self) -> Iterator[tuple[K, V]]:
        """Keys and values in order of insertion."""
        for key, place in list(self._index.items()):
            if place < self._size:
                yield key, self._values[place]

    def values(self) -> Iterator[V]:
        """Values in order of insertion."""
        for place in range(self._size):
            yield self._values[place]

    def __len__(self) -> int:
        return self._size
