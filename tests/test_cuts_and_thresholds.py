"""Where a text is cut and a limit is reached: at the edges of what is seen as a sign, and of numbers as they are written."""

from __future__ import annotations

import pytest

from projector.context.budget import Budget
from projector.context.expiration import Choices, apply
from projector.context.shortening import first_n
from projector.context.similarity import find_duplicates
from projector.events import ContextCompacted
from tests.vectors.delta import message

MARKER = "...\n\n[Compacted"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
WAVE = "\U0001f44b\U0001f3fd"
HEART = "\u2764\ufe0f"
FLAG = "\U0001f1e9\U0001f1ea"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
KEYCAP = "1\ufe0f\u20e3"
LETTER = "e\u0301\u0327"
HEALER = "\U0001f469\U0001f3fd\u200d\u2695\ufe0f"


def as_surrogates(text: str) -> str:
    """As a text is there that came in pieces: each half by itself."""
    return "".join(
        one if ord(one) < 0x10000 else chr(0xD800 + ((ord(one) - 0x10000) >> 10)) + chr(0xDC00 + ((ord(one) - 0x10000) & 0x3FF))
        for one in text
    )


@pytest.mark.parametrize("sign", [FAMILY, WAVE, HEART, FLAG, ENGLAND, KEYCAP, LETTER, HEALER])
@pytest.mark.parametrize("in_halves", [False, True])
def test_a_cut_never_falls_inside_a_sign(sign: str, *, in_halves: bool) -> None:
    sign = as_surrogates(sign) if in_halves else sign
    text = f"ab{sign}{sign}{sign}" + "cd" * 400
    edges = [2 + len(sign) * number for number in range(4)]
    for n in range(1, 2 + 3 * len(sign)):
        cut = first_n(text, n)
        shown = cut[: cut.index(MARKER)]
        assert shown == text[: max(edge for edge in [1, *edges] if edge <= n)]
        assert f"showing first {len(shown)} of {len(text)} characters" in cut


def test_flags_in_a_row_are_pairs_from_the_first() -> None:
    letters = "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1ee"  # two flags, and half of one
    for n, shown in ((1, 0), (2, 2), (3, 2), (4, 4), (5, 4)):
        assert first_n(letters * 100, n).startswith(letters[:shown] + MARKER)


def test_a_cut_that_was_recorded_stays_where_it_was() -> None:
    text = FAMILY * 300
    shown = f"{text[:2]}...\n\n[Compacted: showing first 2 of {len(text)} characters. Agent can request expansion if needed.]"
    choices = Choices().record([ContextCompacted(0, ["m"], shown, "first_n_chars", 9, 1)])
    assert apply([message({"id": "m", "role": "user", "text": text})], 1, choices).messages[0].text == shown


@pytest.mark.parametrize(
    ("threshold", "used"), [(0.55, 55), (0.07, 7), (0.14, 14), (0.28, 28), (0.29, 29), (0.56, 56), (0.57, 57), (0.58, 58)]
)
def test_a_part_of_a_hundred_is_reached_by_as_many(threshold: float, used: int) -> None:
    budget = Budget(100, threshold, 1.0)
    assert (budget.reason(used), budget.reason(used - 1)) == ("token_threshold", None)
    capped = Budget(100, 0.0, threshold)
    assert (capped.reason(used), capped.reason(used - 1)) == ("hard_cap", "token_threshold")


def test_every_part_of_a_thousand_is_reached_by_as_many() -> None:
    for part in range(1, 1001):
        budget = Budget(1000, float(f"0.{part:03d}") if part < 1000 else 1.0, 2.0)
        assert (budget.reason(part), budget.reason(part - 1)) == ("token_threshold", None)


@pytest.mark.parametrize("part", range(1, 101))
def test_results_that_share_just_that_part_of_their_words_are_near_duplicates(part: int) -> None:
    shared, own = [f"s{number}" for number in range(part)], [f"o{number}" for number in range(100 - part)]
    results = [("old", " ".join(shared)), ("new", " ".join(shared + own))]
    assert find_duplicates(results, threshold=part / 100) == {"old": "new"}
    if part < 100:
        assert find_duplicates(results, threshold=(part + 1) / 100) == {}
