"""Values that grow and yet never change for whoever holds them, whichever of them grows, in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from projector.persistent import GrowingTable

STEPS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["add", "replace", "without"]), st.integers(0, 8)), max_size=40)


@given(STEPS)
def test_a_table_is_what_was_done_to_it_and_to_no_other(steps: list[tuple[int, str, int]]) -> None:
    held: list[tuple[GrowingTable[int, int], dict[int, int]]] = [(GrowingTable(), {})]
    for value, (which, what, key) in enumerate(steps):
        table, model = held[which % len(held)]
        if what == "without":
            held.append((table.without([key]), {own: old for own, old in model.items() if own != key}))
        elif key in model:
            held.append((table.replace(key, value), model | {key: value}))
        else:
            held.append((table.add(key, value), model | {key: value}))
        for each, expected in held:
            assert list(each.items()) == list(expected.items())
            assert list(each.values()) == list(expected.values())
            assert len(each) == len(expected)
            assert [each.get(number) for number in range(9)] == [expected.get(number) for number in range(9)]
