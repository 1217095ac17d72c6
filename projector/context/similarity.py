"""Optional stages: results that have nothing to do with the question, and results that say almost the same."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, Protocol

from projector.context.expiration import Choices, Decision, change, remember, removal
from projector.context.shortening import Shortened, text_of
from projector.context.tokens import Tokenizer, estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from projector.events import ContextCompacted
    from projector.message import Message

THRESHOLD: Final = 0.9
"""From this similarity on two results are near-duplicates."""
_TINY: Final = 1e-9  # what a product of floating point may be off by
_WORDS: Final = re.compile(r"\w+")
Outcome = tuple[list["Message"], list["ContextCompacted"]]


class Scorer(Protocol):
    """Says how much texts have to do with a question, each from 0 to 1; it may ask an embedder."""

    async def __call__(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """A score for each text, in their order."""
        ...


async def score_words(query: str, texts: Sequence[str]) -> list[float]:
    """The default: what part of the question's words a text holds."""
    asked = words_of(query)
    return [len(asked & words_of(text)) / len(asked) if asked else 1.0 for text in texts]


def irrelevant(scores: Mapping[str, float], threshold: float) -> list[str]:
    """The ids that score below a threshold. Raises `ValueError` for a threshold or score that is no number from 0 to 1."""
    for value in (threshold, *scores.values()):
        _check(value)
    return [name for name, score in scores.items() if score < threshold]


async def drop_irrelevant(
    view: Sequence[Message],
    query: str,
    choices: Choices,
    turn: int,
    *,
    threshold: float,
    scorer: Scorer = score_words,
    tokenizer: Tokenizer = estimate,
) -> Outcome:
    """The view without results that score below the threshold, and the records of it; of a tool group a stub stays.

    Raises `ValueError` where a score is missing or is none; what the scorer raises comes through.
    """
    _check(threshold)
    asked = [message for message in view if choices.is_result(message) and not isinstance(message, Shortened)]
    given = await scorer(query, [text_of(message) for message in asked])
    scores = {message.id: score for message, score in zip(asked, given, strict=True)}
    gone = set(irrelevant(scores, threshold))

    def decide(message: Message) -> Decision | None:
        if message.id not in gone:
            return None
        why = f"its relevance {scores[message.id]:.2f} is below {threshold}"
        return removal(message, max(0, turn - choices.dated(message.id, turn)), why)

    return _change(view, decide, turn, tokenizer)


def find_duplicates(
    results: Sequence[tuple[str, str]],
    *,
    threshold: float = THRESHOLD,
    similarity: Callable[[str, str], float] | None = None,
) -> dict[str, str]:
    """Which of (id, text), oldest first, is to be replaced by which newer one that stays itself.

    Without `similarity` (of an older and a newer text) it is that of their words, and only results that can be similar
    are compared; with one, each is compared with each. Raises `ValueError` for a threshold that is not from 0 to 1.
    """
    _check(threshold)
    candidates = _Candidates(results, threshold) if similarity is None and threshold > 0 else None
    kept: list[tuple[int, str]] = []
    replaced: dict[str, str] = {}
    for place in reversed(range(len(results))):
        name, text = results[place]
        if candidates is not None:
            match = candidates.match(place)
        else:
            alike = similarity or _alike
            match = next((newer for at, newer in kept if alike(text, results[at][1]) >= threshold), None)
        if match is not None:
            replaced[name] = match
            continue
        kept.append((place, name))
        if candidates is not None:
            candidates.add(place)
    return {name: replaced[name] for name, _ in results if name in replaced}


def replace_duplicates(
    view: Sequence[Message],
    choices: Choices,
    turn: int,
    *,
    threshold: float = THRESHOLD,
    similarity: Callable[[str, str], float] | None = None,
    tokenizer: Tokenizer = estimate,
) -> Outcome:
    """The view with a reference in the place of each result that a newer one almost repeats, and the records of it."""
    results = [(one.id, text_of(one)) for one in view if choices.is_result(one) and not isinstance(one, Shortened)]
    newer = find_duplicates(results, threshold=threshold, similarity=similarity)

    def decide(message: Message) -> Decision | None:
        if message.id not in newer:
            return None
        text = f"[almost the same as the newer result {newer[message.id]}]"
        return Decision("reference", text, f"{newer[message.id]} says almost the same")

    return _change(view, decide, turn, tokenizer)


def words_of(text: str) -> frozenset[str]:
    """The words of a text, in small letters."""
    return frozenset(_WORDS.findall(text.lower()))


class _Candidates:
    """Which newer texts can be so similar at all: those that share one of the rarest words of both (prefix filter).

    Where a word stands among the words of a text, the rarest first, says how many more two texts can share: whole groups
    of texts that have a common word far behind are passed over, or texts of one form would cost their square.
    """

    def __init__(self, results: Sequence[tuple[str, str]], threshold: float) -> None:
        self._results = results
        self._threshold = threshold
        self._sets = [words_of(text) for _, text in results]
        rarity = Counter(word for words in self._sets for word in words)
        self._prefixes = [_prefix(words, rarity, threshold) for words in self._sets]
        self._known: defaultdict[str, defaultdict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))

    def add(self, place: int) -> None:
        size = len(self._sets[place])
        for behind, word in enumerate(self._prefixes[place], 1):
            self._known[word][size, size - behind].append(place)

    def match(self, place: int) -> str | None:
        """The first of those that were added that is similar enough."""
        own = self._sets[place]
        for at in sorted(self._similar(place), reverse=True):
            shared = len(own & self._sets[at])
            if shared / (len(own) + len(self._sets[at]) - shared) >= self._threshold:
                return self._results[at][0]
        return None

    def _similar(self, place: int) -> set[int]:
        found: set[int] = set()
        size = len(self._sets[place])
        for behind, word in enumerate(self._prefixes[place], 1):
            for (other, left), places in self._known.get(word, {}).items():
                # At best the smaller one lies within the larger one, from the word on where they begin to be the same.
                shared = min(size - behind, left) + 1
                if min(size, other) >= self._threshold * max(size, other) - _TINY and (
                    shared >= self._threshold * (size + other - shared) - _TINY
                ):
                    found.update(places)
        return found


def _prefix(words: Iterable[str], rarity: Mapping[str, int], threshold: float) -> list[str]:
    ordered = sorted(words, key=lambda word: (rarity[word], word))
    return ordered[: max(0, len(ordered) - math.ceil(threshold * len(ordered) - _TINY) + 1)]


def _alike(older: str, newer: str) -> float:
    one, other = words_of(older), words_of(newer)
    return len(one & other) / len(one | other) if one and other else 0.0


def _change(view: Sequence[Message], decide: Callable[[Message], Decision | None], turn: int, tokenizer: Tokenizer) -> Outcome:
    changed: list[Message] = []
    records: list[ContextCompacted] = []
    for message in view:
        decided = decide(message)
        new = message if decided is None else change(message, decided)
        if new is not None:
            changed.append(new)
        if decided is not None and new is not message:
            records.append(remember(message, decided, turn, tokenizer))
    return changed, records


def _check(value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"a score or threshold is a number from 0 to 1, not {value}")
