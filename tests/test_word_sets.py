"""Near-duplicates by the words that are kept of messages: what comparing each with each finds, however often it is asked."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector import Block, Message
from projector.context import word_sets
from projector.context.expiration import Choices
from projector.context.facts import FactTable, using
from projector.context.shortening import text_of
from projector.context.similarity import drop_irrelevant, find_duplicates, replace_duplicates, score_words
from projector.context.word_sets import words_of
from tests.faults.sizes import size

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio
THRESHOLDS = st.sampled_from([0.05, 0.3, 0.5, 2 / 3, 0.9, 1.0])


def result(name: str, text: str) -> Message:
    parts = json.dumps([{"kind": "text", "text": text}])
    block = Block("tool_result", sealed=True, tool_call_id=name, parts=parts)
    return Message(name, None, "r", "tool", "complete", (block,), 0, 1)


def alike(one: str, other: str) -> float:
    first, second = words_of(one), words_of(other)
    return len(first & second) / len(first | second) if first and second else 0.0


def by_hand(messages: Sequence[Message], threshold: float) -> dict[str, str]:
    """Each compared with each, the newest first: a result stays itself unless one that does is almost the same."""
    kept: list[Message] = []
    replaced: dict[str, str] = {}
    for message in reversed(messages):
        match = next((one.id for one in kept if alike(text_of(message), text_of(one)) >= threshold), None)
        if match is None:
            kept.append(message)
        else:
            replaced[message.id] = match
    return replaced


def found(messages: Sequence[Message], threshold: float) -> dict[str, str]:
    _, records = replace_duplicates(messages, Choices(), 0, threshold=threshold)
    return {record.covers[0]: record.summary.rpartition(" ")[2][:-1] for record in records}


def texts(random_: random.Random, count: int) -> list[str]:
    """Families of texts that differ in a few words, texts of one form, short ones and empty ones."""
    words = [f"w{number}" for number in range(random_.choice([3, 30, 300]))]
    base = random_.choices(words, k=random_.choice([2, 12, 60]))
    made = []
    for number in range(count):
        kind = random_.randrange(5)
        said = list(base)
        if kind < 3:
            for _ in range(random_.choice([0, 1, 2, 6])):
                said[random_.randrange(len(said))] = random_.choice([*words, f"new{number}"])
        elif kind == 3:
            said = random_.choices(words, k=random_.randrange(40))
        # Long enough that a reference is shorter than it, whatever its words.
        made.append(" ".join(said) + " " + "-" * 200)
    return made


@settings(max_examples=size(smoke=50, full=120), deadline=None)
@given(seed=st.integers(0, 2**32), threshold=THRESHOLDS)
def test_near_duplicates_are_those_that_comparing_each_with_each_finds(seed: int, threshold: float) -> None:
    random_ = random.Random(seed)
    messages = [result(f"m{number}", text) for number, text in enumerate(texts(random_, random_.choice([1, 10, 40])))]
    expected = by_hand(messages, threshold)
    assert found(messages, threshold) == expected
    said = [(message.id, text_of(message)) for message in messages]
    assert find_duplicates(said, threshold=threshold) == expected
    assert find_duplicates(said, threshold=threshold, similarity=alike) == expected


@settings(max_examples=size(smoke=12, full=25), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_was_compared_before_changes_no_answer(seed: int) -> None:
    """Views of a conversation that grows, forks and is cut; some results are left out of one view and come back in another."""
    random_ = random.Random(seed)
    every = [result(f"m{number}", text) for number, text in enumerate(texts(random_, 60))]
    table, end = FactTable(), 5
    for _ in range(12):
        end = min(len(every), end + random_.choice([0, 1, 1, 20]))
        if random_.random() < 0.2:
            end = random_.randrange(1, end + 1)
            table = table.only(every[:end])
        covered = every[: random_.choice([end, max(1, end - 3)])]  # what is being said is covered by nothing
        table.cover(covered)
        threshold = random_.choice([0.5, 0.9, 0.9, 0.9])
        view = [message for message in every[:end] if random_.random() < 0.95]
        gone = by_hand(view, threshold)
        with using(table):
            assert found(view, threshold) == gone
            rest = [message for message in view if message.id not in gone or random_.random() < 0.2]
            assert found(rest, threshold) == by_hand(rest, threshold)


def test_what_is_known_to_be_unlike_is_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(0)
    words = [f"w{number}" for number in range(50)]
    every = [result(f"m{number}", " ".join(random_.sample(words, 30)) + f" u{number}" + "-" * 200) for number in range(80)]
    table = FactTable()
    table.cover(every)
    added: list[int] = []
    real = word_sets.Candidates.add

    def watched(candidates: word_sets.Candidates, place: int) -> None:
        added.append(place)
        real(candidates, place)

    monkeypatch.setattr(word_sets.Candidates, "add", watched)
    with using(table):
        assert not found(every[:79], 0.9)
        assert len(added) == 79
        assert not found(every, 0.9)
    assert added[79:] == [79]


async def test_the_relevance_of_messages_is_that_of_their_texts() -> None:
    random_ = random.Random(1)
    every = [result(f"m{number}", text) for number, text in enumerate(texts(random_, 40))]
    table = FactTable()
    table.cover(every[:30])
    for query in ("", "w1 w2 nobody says this", "W0 w1", "..."):
        expected = await score_words(query, [text_of(message) for message in every])

        async def scorer(query: str, texts: Sequence[str]) -> Sequence[float]:
            return await score_words(query, texts)

        for _ in range(2):
            with using(table):
                ours = await drop_irrelevant(every, query, Choices(), 0, threshold=0.6)
            assert ours == await drop_irrelevant(every, query, Choices(), 0, threshold=0.6, scorer=scorer)
            assert len(ours[1]) == sum(score < 0.6 for score in expected)
