"""The words of texts as numbers, the rarest first, and which texts share so many of them that they are almost the same."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, defaultdict
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

_TINY: Final = 1e-9  # what a product of floating point may be off by
_WORDS: Final = re.compile(r"\w+")
WordSet: TypeAlias = "array[int]"
"""The numbers of the words of a text, each once, in order."""


def words_of(text: str) -> frozenset[str]:
    """The words of a text, in small letters."""
    return frozenset(_WORDS.findall(text.lower()))


class Vocabulary:
    """A number for each word, the lower the rarer it is in the texts that it was made of.

    The numbers are one order of all words, and never change: a word that is new is in no text that was numbered before,
    so it comes first. How rare a word is now does not matter for what is found, but for how fast.
    """

    def __init__(self, sets: Sequence[frozenset[str]]) -> None:
        counts = Counter(word for words in sets for word in words)
        self._numbers = {word: number for number, word in enumerate(sorted(counts, key=lambda word: (counts[word], word)))}
        self._newest = 0
        self._lock = Lock()  # views are made in threads
        self.made_of = len(sets)
        """How many texts it was made of."""

    def __len__(self) -> int:
        """How many words it knows."""
        return len(self._numbers)

    def number(self, words: frozenset[str]) -> WordSet:
        """The words of a text."""
        known = self._numbers
        if not words <= known.keys():
            with self._lock:
                for word in sorted(words - known.keys()):
                    self._newest -= 1
                    known[word] = self._newest
        return array("i", sorted([known[word] for word in words]))

    def known(self, words: frozenset[str]) -> frozenset[int]:
        """Of these words those that are in any text that was numbered."""
        return frozenset(self._numbers[word] for word in words & self._numbers.keys())


class Candidates:
    """Which of the texts that were added can be so similar at all: those that share one of the rarest words of both.

    Where a word stands among the words of a text, the rarest first, says how many more two texts can share: whole groups
    of texts that have a common word far behind are passed over, or texts of one form would cost their square.
    """

    def __init__(self, sets: Sequence[WordSet], threshold: float) -> None:
        self._sets = sets
        self._threshold = threshold
        self._known: defaultdict[int, defaultdict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
        self._whole: dict[int, frozenset[int]] = {}

    def add(self, place: int) -> None:
        """From here on this text may be found."""
        words = self._sets[place]
        size = len(words)
        for behind, word in enumerate(self._prefix(words), 1):
            self._known[word][size, size - behind].append(place)

    def match(self, place: int) -> int | None:
        """The last of those that were added that is similar enough."""
        found = self._similar(place)
        if not found:
            return None
        own = self._all_of(place)
        for at in sorted(found, reverse=True):
            other = self._all_of(at)
            shared = len(own & other)
            if shared / (len(own) + len(other) - shared) >= self._threshold:
                return at
        return None

    def _similar(self, place: int) -> set[int]:
        found: set[int] = set()
        words, known = self._sets[place], self._known
        size = len(words)
        threshold = self._threshold
        least, most = math.ceil(threshold * size - _TINY), math.floor((size + _TINY) / threshold)
        for behind, word in enumerate(self._prefix(words), 1):
            groups = known.get(word)
            if groups is None:
                continue
            rest = size - behind
            for (other, left), places in groups.items():
                # At best the smaller one lies within the larger one, from the word on where they begin to be the same.
                shared = (min(left, rest)) + 1
                if least <= other <= most and shared >= threshold * (size + other - shared) - _TINY:
                    found.update(places)
        return found

    def _prefix(self, words: WordSet) -> Iterable[int]:
        size = len(words)
        return words[: max(0, size - math.ceil(self._threshold * size - _TINY) + 1)]

    def _all_of(self, place: int) -> frozenset[int]:
        found = self._whole.get(place)
        if found is None:
            found = self._whole[place] = frozenset(self._sets[place])
        return found


def find_alike(sets: Sequence[WordSet], threshold: float, unlike: Container[int] = ()) -> dict[int, int]:
    """Which texts, the last one first, are almost the same as a later one that is the same as none: both by their places.

    Those in `unlike` are known to be unlike each other, and are held against the others only. `threshold` is above 0.
    """
    found: dict[int, int] = {}
    candidates = Candidates(sets, threshold)
    left = sum(place not in unlike for place in range(len(sets)))
    for place in reversed(range(len(sets))):
        is_known = place in unlike
        left -= not is_known
        match = candidates.match(place)
        if match is not None:
            found[place] = match
        elif left or not is_known:
            candidates.add(place)
    return found
