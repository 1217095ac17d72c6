"""Optional stages: results that have nothing to do with the question, and results that say almost the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from projector.context.expiration import Choices, Decision, change, remember, removal
from projector.context.facts import table_in_use
from projector.context.shortening import Shortened, text_of
from projector.context.tokens import Tokenizer, estimate
from projector.context.word_sets import Vocabulary, find_alike, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from projector.events import ContextCompacted
    from projector.message import Message

THRESHOLD: Final = 0.9
"""From this similarity on two results are near-duplicates."""
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


def _score_words(query: str, messages: Sequence[Message]) -> list[float]:
    """What `score_words` says of their texts."""
    words = words_of(query)
    vocabulary, sets = table_in_use().word_sets(messages, text_of)
    asked = vocabulary.known(words)
    return [len(asked.intersection(one)) / len(words) if words else 1.0 for one in sets]


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
    asked = _results(view, choices)
    if scorer is score_words:
        given: Sequence[float] = _score_words(query, asked)
    else:
        given = await scorer(query, [text_of(message) for message in asked])
    scores = {message.id: score for message, score in zip(asked, given, strict=True)}
    gone = set(irrelevant(scores, threshold))
    if not gone:
        return list(view), []

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
    if similarity is None and threshold > 0:
        words = [words_of(text) for _, text in results]
        vocabulary = Vocabulary(words)
        alike = find_alike([vocabulary.number(one) for one in words], threshold)
    else:
        alike = _compare_all([text for _, text in results], threshold, similarity or _alike)
    return {results[place][0]: results[alike[place]][0] for place in sorted(alike)}


def _compare_all(texts: Sequence[str], threshold: float, similarity: Callable[[str, str], float]) -> dict[int, int]:
    kept: list[int] = []
    alike: dict[int, int] = {}
    for place in reversed(range(len(texts))):
        match = next((newer for newer in kept if similarity(texts[place], texts[newer]) >= threshold), None)
        if match is None:
            kept.append(place)
        else:
            alike[place] = match
    return alike


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
    _check(threshold)
    results = _results(view, choices)
    if similarity is None and threshold > 0:
        alike = table_in_use().find_alike(results, threshold, text_of)
    else:
        alike = _compare_all([text_of(one) for one in results], threshold, similarity or _alike)
    newer = {results[place].id: results[alike[place]].id for place in alike}
    if not newer:
        return list(view), []

    def decide(message: Message) -> Decision | None:
        if message.id not in newer:
            return None
        text = f"[almost the same as the newer result {newer[message.id]}]"
        return Decision("reference", text, f"{newer[message.id]} says almost the same")

    return _change(view, decide, turn, tokenizer)


def _alike(older: str, newer: str) -> float:
    one, other = words_of(older), words_of(newer)
    return len(one & other) / len(one | other) if one and other else 0.0


def _results(view: Sequence[Message], choices: Choices) -> list[Message]:
    """What `Choices.is_result` says is one, as it was said."""
    also = choices.results
    return [one for one in view if (one.role == "tool" or one.id in also) and not isinstance(one, Shortened)]


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
