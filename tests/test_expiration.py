"""Expiration: what the view loses, what it never loses, and how it comes back."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector import Block, Message
from projector.context.expansion import (
    REASONS,
    TEACHING,
    Hint,
    Refusal,
    Request,
    expand,
    find_message,
    hint,
    notice,
    read_request,
)
from projector.context.expiration import Choices, ExpirationRules, apply
from projector.context.lifecycle import Lifecycle, LifecycleEvent
from projector.context.overflow import recover
from projector.context.policies import Action, ExpirationPolicy, Override, PolicyRegistry, read_registry, resolve
from projector.context.ranges import take_range
from projector.context.settings_file import SettingsError
from projector.context.shortening import first_n, text_of
from projector.context.similarity import drop_irrelevant, find_duplicates, irrelevant, replace_duplicates
from projector.context.tool_groups import group, pair
from projector.events import ContextCompacted, ContextExpanded
from projector.json_text import encode as encode_json
from tests.vectors.delta import message

CUT = ExpirationPolicy(1, "compact", "first_n_chars", 10)
GONE = ExpirationPolicy(1, "remove")
LONG = "0123456789" * 30


def encode(value: object) -> bytes:
    return encode_json(msgspec.to_builtins(value))


def said(name: str, text: str = LONG, role: str = "user") -> Message:
    return message({"id": name, "role": role, "text": text})


def group_of(name: str, *results: str) -> list[Message]:
    calls = [f"{name}c{number}" for number in range(len(results))]
    asking = message({"id": name, "role": "assistant", "text": LONG, "calls": calls})
    answers = [
        message({"id": f"{call}r", "role": "tool", "call": call, "text": text})
        for call, text in zip(calls, results, strict=True)
    ]
    return [asking, *answers]


def choices_for(policies: dict[str, ExpirationPolicy]) -> Choices:
    return Choices(policies, {}, frozenset(policies))


# Random paths: groups of one message or of a call with its results, each with a policy or none.
POLICIES = st.sampled_from([None, CUT, GONE, ExpirationPolicy(0, "remove"), ExpirationPolicy(5, "compact", "first_n_chars", 1)])
TEXTS = st.sampled_from(["", "x", "e\u0301" * 200, "\ud83d\ude00" * 200, "\U0001f600" * 100, LONG, "word " * 80])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Message], Choices, int]:
    path: list[Message] = []
    for number in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            path += group_of(f"a{number}", *draw(st.lists(TEXTS, min_size=1, max_size=3)))
        else:
            path.append(said(f"m{number}", draw(TEXTS), draw(st.sampled_from(["user", "assistant"]))))
    policies = {one.id: policy for one in path if (policy := draw(POLICIES)) is not None}
    dates = {one.id: draw(st.integers(0, 6)) for one in path}
    turn = draw(st.integers(0, 10))
    results = frozenset(one.id for one in path if draw(st.booleans()))
    asked = [ContextExpanded(draw(st.integers(0, turn)), one.id) for one in path if draw(st.integers(0, 4)) == 0]
    return path, Choices(policies, dates, results).record(asked), turn


@given(cases(), st.booleans())
def test_whatever_expires_groups_stay_whole_and_nothing_grows(case: tuple[list[Message], Choices, int], guard: bool) -> None:  # noqa: FBT001
    path, choices, turn = case
    before, rules = encode(path), ExpirationRules(protect_prefix=guard)
    found = apply(path, turn, choices, rules=rules)
    view = list(found.messages)
    assert encode(path) == before
    assert encode(apply(path, turn, choices, rules=rules).messages) == encode(view)
    assert pair(view) == view
    by_id = {one.id: one for one in path}
    assert [len(one) for one in group(view) if len(one) > 1] == [len(one) for one in group(path) if len(one) > 1]
    assert all(len(text_of(one)) <= len(text_of(by_id[one.id])) for one in view)
    assert apply(view, turn, choices, rules=rules).messages == found.messages


@given(cases())
def test_a_protected_prefix_stays_byte_for_byte(case: tuple[list[Message], Choices, int]) -> None:
    path, choices, turn = case
    first = next((place for place, one in enumerate(path) if choices.is_result(one)), len(path))
    view = apply(path, turn, choices, rules=ExpirationRules(protect_prefix=True)).messages
    assert encode(view[:first]) == encode(path[:first])


@given(cases(), st.integers(0, 500))
def test_what_recovery_records_makes_the_same_view_again(case: tuple[list[Message], Choices, int], limit: int) -> None:
    path, choices, turn = case
    view = apply(path, turn, choices)
    found = recover(path, view.messages, turn, choices, limit_tokens=limit)
    again = apply(path, turn, choices.record(found.records))
    assert encode(list(again.messages)) == encode(list(found.messages))
    assert pair(found.messages) == list(found.messages)
    for record in found.records:
        assert isinstance(expand(path, again, record.covers[0]), ContextExpanded)


@given(TEXTS, st.integers(1, 400))
def test_a_cut_parts_neither_pairs_nor_marks(text: str, n: int) -> None:
    cut = first_n(text, n)
    assert len(cut) <= len(text)
    if cut != text:
        shown = cut[: cut.rindex("...\n\n[Compacted")]
        rest = text[len(shown) :]
        assert text.startswith(shown)
        assert not rest.startswith("\u0301")
        assert not (shown.endswith("\ud83d") and rest.startswith("\ude00"))


@pytest.mark.heavy
def test_ten_thousand_messages_take_less_than_their_json() -> None:
    path = [said(f"m{number}") for number in range(10_000)]
    choices = choices_for({one.id: ExpirationPolicy(5, "remove") for one in path})

    def timed(work: Any) -> float:
        best = 1e9
        for _ in range(5):
            start = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - start)
        return best

    assert timed(lambda: apply(path, 1, choices)) < timed(lambda: json.dumps([json.loads(encode(one)) for one in path]))


def test_an_expansion_lives_its_turns_again_and_is_told_once_more() -> None:
    path, choices, life = [said("r")], choices_for({"r": CUT}), Lifecycle()
    assert [event.type for event in life.tell(apply(path, 2, choices))] == ["message-compacted"]
    assert life.tell(apply(path, 3, choices)) == []
    found = expand(path, apply(path, 3, choices), "r")
    assert isinstance(found, ContextExpanded)
    choices = choices.record([found])
    life.expand("r", 3, "asked")
    assert [text_of(apply(path, turn, choices).messages[0]) == LONG for turn in (3, 4, 5)] == [True, True, False]
    assert expand(path, apply(path, 4, choices), "r") == Refusal("already expanded")
    assert [event.type for event in life.tell(apply(path, 5, choices))] == ["message-compacted"]
    assert isinstance(expand(path, apply(path, 5, choices), "r"), ContextExpanded)


def test_a_view_of_the_past_does_not_know_what_came_later() -> None:
    path, choices = [said("r")], choices_for({"r": CUT}).record([ContextExpanded(9, "r")])
    assert text_of(apply(path, 4, choices).messages[0]) != LONG


def test_of_what_was_recorded_the_later_holds_from_its_turn_on() -> None:
    cut, whole = ContextCompacted(2, ["r"], "short", "ai_summary", 75, 2), ContextExpanded(4, "r")
    choices = Choices().record([cut, whole])
    seen = [text_of(apply([said("r")], turn, choices).messages[0]) for turn in (1, 2, 3, 4)]
    assert seen == [LONG, "short", "short", LONG]


def test_a_part_is_shown_under_a_line_that_says_so() -> None:
    path = [said("r", json.dumps([f"item number {number}" for number in range(50)]))]
    choices = choices_for({"r": CUT})
    found = expand(path, apply(path, 2, choices), "r", item_range=(48, 60))
    assert isinstance(found, ContextExpanded)
    again = apply(path, 2, choices.record([found]))
    assert text_of(again.messages[0]) == (
        "[Items 48 up to 50 of 50; the range went beyond the end. Agent can request the rest.]\n\n"
        '["item number 48", "item number 49"]'
    )
    assert isinstance(expand(path, again, "r"), ContextExpanded)  # the rest can be asked for
    assert hint(path, again, "r") == Hint(text_of(again.messages[0]), 50)


@pytest.mark.parametrize("item_range", [(-1, 2), (2, 1), (0,), ("0", 1), (True, 2), None])
def test_a_range_that_is_none_is_refused(item_range: Any) -> None:
    with pytest.raises(ValueError, match="item range"):
        take_range("a\nb", item_range)


def test_an_index_of_a_view_that_has_changed_is_refused() -> None:
    shown = [said("a"), said("b")]
    assert find_message(Request(1), shown, view_id="v", current_view_id="v") == "b"
    assert find_message(Request(1), shown, view_id="old", current_view_id="v") == Refusal("stale view")
    assert find_message(Request(-1), shown, view_id="v", current_view_id="v") == Refusal("no such index")
    assert find_message(Request(2), shown, view_id="v", current_view_id="v") == Refusal("no such index")


def test_a_model_that_does_as_it_was_taught_is_understood() -> None:
    request = read_request(TEACHING[TEACHING.index("```json") :])
    assert request == Request(5, None, (40, 50), "The user asks about item 47 of the search results")
    assert read_request('{"nextStep": {"type": "Chat"}}') is None
    assert read_request('{"nextStep": {"type": "expand-message", "messageIndex": true}}') == Refusal("no such index")
    assert read_request('{"type": "expand-message", "messageIndex": 1, "itemRange": [3, 1]}') == Refusal("bad range")


@pytest.mark.parametrize("answer", ["", "{", "[]", "{}", "}{", '{"nextStep": 1}', "{" * 5_000, "\ud800{"])
def test_junk_asks_for_nothing(answer: str) -> None:
    assert read_request(answer) is None


def test_each_refusal_has_a_text_of_its_own() -> None:
    assert len(set(REASONS.values())) == len(REASONS)
    assert all(Refusal(label).reason in notice(Refusal(label), "m") for label in REASONS)


def test_a_callback_that_raises_hears_of_all_the_same() -> None:
    heard: list[LifecycleEvent] = []

    def callback(event: LifecycleEvent) -> None:
        heard.append(event)
        raise RuntimeError("no")

    path, choices = [said("a"), said("b")], choices_for({"a": GONE, "b": CUT})
    told = Lifecycle(callback).tell(apply(path, 5, choices))
    assert heard == told
    assert [event.type for event in told] == ["message-expired", "message-compacted", "message-removed"]


@pytest.mark.parametrize(
    "fields",
    [
        {"turns": -1}, {"turns": float("nan")}, {"turns": True}, {"turns": 1.5}, {"mode": "x"}, {"mode": None},
        {"mode": "compact", "compact_mode": "x"}, {"mode": "compact", "compact_mode": "ai_summary", "compact_length": 0},
        {"mode": "compact", "compact_mode": "ai_summary", "compact_prompt": 3}, {"mode": "none", "compact_length": 5},
    ],
)  # fmt: skip
def test_a_policy_that_is_none_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"mode|turns|compact"):
        ExpirationPolicy(**fields)


def test_bad_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="turns"):
        Override(turns=-1)
    with pytest.raises(ValueError, match="compact_mode"):
        resolve("loop", Override(mode="compact"))
    with pytest.raises(ValueError, match="turn"):
        apply([], -1, Choices())
    with pytest.raises(ValueError, match="limit_tokens"):
        recover([], [], 0, Choices(), limit_tokens=-1)
    for value in (float("nan"), -0.1, 1.1):
        with pytest.raises(ValueError, match="0 to 1"):
            irrelevant({}, value)
        with pytest.raises(ValueError, match="0 to 1"):
            find_duplicates([], threshold=value)
    for n in (0, -1):
        with pytest.raises(ValueError, match="above 0"):
            first_n("abc", n)


def test_a_registry_gives_each_action_its_policy() -> None:
    text = '{"actions": {"search": {"turns": 2, "mode": "compact", "compact_mode": "ai_summary", "default_prompt": "p"}}}'
    registry = read_registry(text, "f.json")
    found = registry.policy_for("search", Override(turns=1))
    assert found == ExpirationPolicy(1, "compact", "ai_summary", None, "p")
    assert registry.policy_for("other") is None
    assert registry.policy_for("other", kind="loop") == ExpirationPolicy(3, "remove")
    assert PolicyRegistry({"a": Action(GONE)}).policy_for("a") == GONE


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"action": {}}', "action"), ('{"actions": []}', "actions"), ('{"actions": {"a": 1}}', "actions.a"),
        ('{"actions": {"a": {"turn": 1}}}', "actions.a.turn"), ('{"actions": {"a": {"turns": -1}}}', "actions.a"),
        ('{"actions": {"a": {"mode": []}}}', "actions.a"), ('{"actions": {"a": {"kind": "x"}}}', "actions.a.kind"),
        ('{"actions": {"a": {"default_prompt": 1}}}', "actions.a.default_prompt"),
    ],
)  # fmt: skip
def test_an_error_in_a_registry_names_file_and_key(text: str, key: str) -> None:
    with pytest.raises(SettingsError, match=r"f\.json") as caught:
        read_registry(text, "f.json")
    assert caught.value.key == key


def test_a_shortened_message_keeps_its_call_and_loses_what_was_said_of_the_old_text() -> None:
    text = Block("text", 1, LONG, sealed=True, signature="s", opaque="{}")
    call = Block("tool_call", 2, "{}", sealed=True, tool_call_id="c")
    asking = Message("a", None, "r", "assistant", "complete", (text, call), 0, 0)
    shown = apply([asking], 9, choices_for({"a": GONE})).messages[0]
    assert shown.blocks[0].text == "[result expired after 2 turns]"
    assert (shown.blocks[0].signature, shown.blocks[0].opaque, shown.blocks[1]) == (None, None, call)


async def _relevant(path: list[Message], choices: Choices) -> tuple[list[Message], list[Any]]:
    return await drop_irrelevant(path, "weather in Rome", choices, 3, threshold=0.5)


def test_what_has_nothing_to_do_with_the_question_goes_but_for_a_stub() -> None:
    import asyncio  # noqa: PLC0415 - only here

    path = [*group_of("a", "prices " * 20), said("r", "prices"), said("w", "the weather in Rome is fine"), said("u", "hello")]
    choices = Choices(results=frozenset({"r", "w"}))
    view, records = asyncio.run(_relevant(path, choices))
    assert [one.id for one in view] == ["a", "ac0r", "w", "u"]
    assert text_of(view[1]).startswith("[result expired after 3")
    assert apply(path, 3, choices.record(records)).messages == tuple(view)


def test_a_repeated_result_refers_to_the_newest_that_stays() -> None:
    path = [*group_of("a", LONG + " one two"), *group_of("b", LONG + " one two"), *group_of("c", LONG + " one two")]
    view, records = replace_duplicates(path, Choices(), 1)
    assert [record.covers for record in records] == [["ac0r"], ["bc0r"]]
    assert "cc0r" in text_of(view[1])
    assert "cc0r" in text_of(view[3])
    assert apply(path, 1, Choices().record(records)).messages == tuple(view)
    assert replace_duplicates(view, Choices(), 1) == (view, [])


@given(st.lists(st.text("abcd ", max_size=20), max_size=10), st.sampled_from([0.3, 0.5, 0.9, 1.0]))
def test_the_filter_misses_no_duplicate(texts: list[str], threshold: float) -> None:
    from projector.context.similarity import _alike  # noqa: PLC0415 - the measure that the filter stands for

    results = [(str(place), text) for place, text in enumerate(texts)]
    each = find_duplicates(results, threshold=threshold, similarity=_alike)
    assert find_duplicates(results, threshold=threshold) == each
