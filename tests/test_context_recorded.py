"""Views over what was recorded by others, by hand, or too early: none breaks, and nothing is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector.context.budget import Budget
from projector.context.pipeline import Pipeline, Summaries
from projector.context.result_stages import NearDuplicates
from projector.context.tool_groups import ids_of, pair
from tests.talk import new
from tests.test_context_broken import CUT as SHORT
from tests.test_context_broken import LONG, expiring, ledger, results_of, summing
from tests.test_context_properties import facts, shorten

if TYPE_CHECKING:
    from ledger import Ledger

__all__ = ["ledger"]
pytestmark = pytest.mark.anyio


async def test_a_result_that_comes_after_its_call_was_summarised_is_not_lost(ledger: Ledger) -> None:
    async with ledger.run("c", format="chat") as run:
        call = {"index": 0, "id": "slow", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        await run.feed({"id": "q", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        await run.message("user", "go on")
    await ledger.context("c", pipeline=summing(shorten))
    async with ledger.run("c") as run:
        await run.tool_result("slow", "the answer at last")
    later = await ledger.context("c", pipeline=Pipeline(summaries=Summaries(Budget(10_000))))
    assert results_of(later) == ["the answer at last"]
    assert later.messages[0].text == "9 messages"


async def test_a_summary_that_stands_for_more_than_is_old_now_is_not_made_anew_for_less(ledger: Ledger) -> None:
    first = await ledger.context("c", pipeline=summing(shorten))
    later = await ledger.context("c", pipeline=Pipeline(summaries=Summaries(Budget(1), shorten, keep=3)))
    assert (facts(later.view), later.view.records) == (facts(first.view), ())


async def test_a_message_that_is_pinned_after_it_was_summarised_is_shown_again(ledger: Ledger) -> None:
    first = await ledger.context("c", pipeline=summing(shorten))
    pinned = first.view.source.path[0].id
    assert pinned not in ids_of(first.messages)
    later = await ledger.context("c", pipeline=Pipeline(summaries=Summaries(Budget(10_000), pinned=frozenset({pinned}))))
    assert ids_of(later.messages)[1] == pinned


def compacted(covers: list[str], summary: str = "short", strategy: str = "summary", turn: int = 0) -> dict[str, Any]:
    return {
        "covers": covers, "summary": summary, "strategy": strategy, "turn": turn, "tokens_before": -5, "tokens_after": 10**9,
    }  # fmt: skip


NONSENSE: Final[list[tuple[str, dict[str, Any]]]] = [
    ("context.compacted", compacted(["nobody"])),
    ("context.compacted", compacted([])),
    ("context.compacted", compacted(["CALL"])),
    ("context.compacted", compacted(["RESULT"])),
    ("context.compacted", compacted(["RESULT", "RESULT", "CALL"], "")),
    ("context.compacted", compacted(["RESULT"], "x", "no such strategy")),
    ("context.compacted", compacted(["RESULT"], LONG * 9, "first_n_chars")),
    ("context.compacted", compacted(["RESULT"], "", "remove", -(2**62))),
    ("context.compacted", compacted(["CALL"], "", "remove")),
    ("context.compacted", compacted(["CALL", "nobody"], "x", "stub", 2**62)),
    ("context.expanded", {"turn": -7, "message_id": "RESULT", "item_range": [5, 1]}),
    ("context.expanded", {"turn": 0, "message_id": "RESULT", "item_range": [-3, 2**62]}),
    ("context.expanded", {"turn": 0, "message_id": "RESULT", "item_range": [0, 2**62]}),
    ("context.expanded", {"turn": 2**62, "message_id": "nobody"}),
    ("provider.session", {"provider": "", "state": "acked", "session_id": None, "held": ["nobody"], "expires_at": -1}),
]


@pytest.mark.parametrize("number", [*range(len(NONSENSE)), -1], ids=str)
async def test_nonsense_that_was_recorded_by_hand_breaks_no_view(ledger: Ledger, number: int) -> None:
    path = await ledger.transcript("c")
    names = {"CALL": path[1].id, "RESULT": path[2].id}
    for kind, body in NONSENSE if number < 0 else [NONSENSE[number]]:
        text = json.dumps(body)
        for name, message_id in names.items():
            text = text.replace(name, message_id)
        await ledger.record("c", [new(kind, **json.loads(text))])
    for pipeline in (Pipeline(summaries=Summaries(Budget(10_000))), expiring(SHORT), Pipeline(optional=(NearDuplicates(),))):
        for turn in (0, 9):
            view = (await ledger.context("c", pipeline=pipeline, turn=turn)).view
            assert list(view.messages) == pair(view.messages)
            assert len([one for one in view.messages if one.role == "tool"]) == 2
            assert not [one for one in view.messages if one.id.startswith("synthetic:")]
            assert not view.failures
    assert await ledger.transcript("c") == path
