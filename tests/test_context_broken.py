"""Bad input to `Ledger.context`: a stated answer, a reason in words, and a history that is as it was (issue 6, "Bad input")."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from ledger import UnknownConversation, open_ledger
from projector.context.budget import Budget, old_part
from projector.context.chain import ChainSession
from projector.context.expansion import Refusal, Request
from projector.context.model_registry import ModelConfig
from projector.context.pipeline import Pipeline, Summaries
from projector.context.plugins import BUNDLED, DEFAULT, UserPlugin
from projector.context.policies import Action, ExpirationPolicy, Override, PolicyRegistry
from projector.context.result_stages import Expiration, NearDuplicates, Relevance, summarizer_of
from projector.context.retention import AdditionalContent
from projector.context.stage import Shaped, Source
from projector.context.summaries import SummaryMaker
from projector.context.tokens import result_text
from projector.context.tool_groups import pair
from projector.context.windows import effective, window
from projector.events import ContextExpanded
from projector.json_text import encode
from tests.raw_bytes import readable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from ledger import Ledger
    from ledger.context.context import Context
    from projector import Message

pytestmark = pytest.mark.anyio
LONG: Final = "".join(f"line {number} of the weather report\n" for number in range(60))
CUT: Final = ExpirationPolicy(0, "compact", "first_n_chars", 50)
IN_SHORT: Final = ExpirationPolicy(0, "compact", "ai_summary", 50)


@pytest.fixture
async def ledger(anyio_backend: object) -> AsyncIterator[Ledger]:
    del anyio_backend
    async with open_ledger("memory:") as made:
        await fill(made)
        yield made


async def fill(ledger: Ledger) -> None:
    for ref in ("t1", "t2"):
        call = {"index": 0, "id": ref, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        async with ledger.run("c", format="chat") as run:
            await run.message("user", f"look at {ref}")
            asked = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
            await run.feed({"id": f"q{ref}", "choices": [asked]})
            await run.tool_result(ref, f"{ref}: {LONG}")
            said = {"index": 0, "delta": {"role": "assistant", "content": f"seen {ref}"}, "finish_reason": "stop"}
            await run.feed({"id": f"a{ref}", "choices": [said]})


def expiring(policy: ExpirationPolicy, **more: Any) -> Pipeline:
    return Pipeline(expiration=Expiration(PolicyRegistry({"look": Action(policy)}), **more))


def summing(summarizer: Callable[[Sequence[Message]], Any], **more: Any) -> Pipeline:
    return Pipeline(summaries=Summaries(Budget(10), summarizer, keep=1), **more)


def results_of(context: Context) -> list[str]:
    return ["".join(map(result_text, one.blocks)) for one in context.messages if one.role == "tool"]


# Limits and modes

NAN: Final = float("nan")
LIMITS: Final[dict[str, Callable[[Any], Any]]] = {
    "Budget.max_tokens": Budget,
    "Budget.threshold": lambda bad: Budget(1, threshold=bad),
    "Budget.hard_cap": lambda bad: Budget(1, hard_cap=bad),
    "Summaries.keep": lambda bad: Summaries(Budget(1), keep=bad),
    "old_part.keep": lambda bad: old_part([], keep=bad),
    "Pipeline.time_limit": lambda bad: Pipeline(time_limit=bad),
    "Source.turn": lambda bad: Source((), bad),
    "ChainSession.max_ctx": lambda bad: ChainSession(max_ctx=bad),
    "ModelConfig.token_budget": lambda bad: ModelConfig(token_budget=bad),
    "ModelConfig.max_context": lambda bad: ModelConfig(max_context=bad),
    "effective": effective,
    "window": lambda bad: window([], bad),
    "ExpirationPolicy.turns": lambda bad: ExpirationPolicy(bad, "remove"),
    "ExpirationPolicy.compact_length": lambda bad: ExpirationPolicy(1, "compact", "first_n_chars", bad),
    "Override.turns": Override,
    "Override.compact_length": lambda bad: Override(compact_length=bad),
    "Relevance.threshold": Relevance,
    "NearDuplicates.threshold": NearDuplicates,
    "SummaryMaker.time_limit": lambda bad: SummaryMaker(cast("Any", None), time_limit=bad),
    "AdditionalContent": lambda bad: AdditionalContent(True, bad, ()),
}


@pytest.mark.parametrize("bad", [-1, NAN, float("-inf")])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_that_is_negative_or_no_number_is_refused_where_it_is_given(limit: str, bad: float) -> None:
    with pytest.raises(ValueError, match=r"must be|is above|from 0 to 1|or more"):
        LIMITS[limit](bad)


@pytest.mark.parametrize("bad", [-1, NAN, 1.5])
async def test_a_turn_or_limit_that_is_none_is_refused_by_the_ledger(ledger: Ledger, bad: Any) -> None:
    with pytest.raises(ValueError, match="turn must be"):
        await ledger.context("c", turn=bad)
    if bad != 1.5:
        with pytest.raises(ValueError, match="limit_tokens"):
            await ledger.recover_overflow(await ledger.context("c"), bad)


def test_unknown_modes_are_refused() -> None:
    for make in (
        lambda: ExpirationPolicy(1, cast("Any", "hide")),
        lambda: ExpirationPolicy(1, "compact", cast("Any", "shrink")),
        lambda: Override(mode=cast("Any", "")),
        lambda: Summaries(Budget(1), role=cast("Any", "system")),
    ):
        with pytest.raises(ValueError, match="must be one of"):
            make()


# Stages, plugins and scorers that misbehave


@dataclass(frozen=True)
class Bad:
    """A stage that does what it is told to."""

    what: str
    name: str = "mine"

    async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
        del source
        match self.what:
            case "raises":
                raise KeyError("secret")
            case "hangs":
                await asyncio.sleep(60)
            case "nothing":
                return cast("Shaped", None)
            case "junk":
                return Shaped(cast("Any", [*messages, "junk"]))
            case "twice":
                return Shaped([*messages, messages[0]])
            case "records":
                return Shaped(messages[1:], records=(cast("Any", "junk"),))
            case "edits":
                cast("Any", messages).clear()
        return Shaped(messages)


@pytest.mark.parametrize("what", ["raises", "hangs", "nothing", "junk", "twice", "records", "edits"])
async def test_a_stage_that_misbehaves_is_passed_over_with_a_reason(ledger: Ledger, what: str) -> None:
    path = encode(await ledger.transcript("c"))
    context = await ledger.context("c", pipeline=Pipeline(optional=(Bad(what), NearDuplicates()), time_limit=0.1))
    [failure] = context.view.failures
    assert failure.plugin == "mine"
    assert failure.why
    assert "secret" not in failure.why
    assert ("0.1 s" in failure.why) == (what == "hangs")
    assert len(context.view.records) == 1  # the next stage did its work
    assert encode(await ledger.transcript("c")) == path


async def test_a_stage_that_takes_a_group_apart_is_put_right_and_told(ledger: Ledger) -> None:
    class Splits:
        name = "splits"

        async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
            del source
            return Shaped([one for one in messages if one.role != "assistant"])

    view = (await ledger.context("c", pipeline=Pipeline(optional=(Splits(),)))).view
    assert list(view.messages) == pair(view.messages)
    assert {change.stage for change in view.changes} == {"splits", "pairing"}


async def scores_badly(query: str, texts: Sequence[str]) -> list[float]:
    del query
    return [NAN] * len(texts)


async def scores_too_few(query: str, texts: Sequence[str]) -> list[float]:
    del query, texts
    return []


async def scores_nothing(query: str, texts: Sequence[str]) -> list[float]:
    raise OSError(query, texts)


@pytest.mark.parametrize("scorer", [scores_badly, scores_too_few, scores_nothing])
async def test_a_scorer_that_misbehaves_drops_nothing(ledger: Ledger, scorer: Any) -> None:
    context = await ledger.context("c", pipeline=Pipeline(optional=(Relevance(0.5, scorer),)))
    assert list(context.messages) == await ledger.transcript("c")
    assert [failure.plugin for failure in context.view.failures] == ["relevance"]


def mutates(history: list[dict[str, str]], *_: object) -> list[dict[str, str]]:
    history[0]["content"] = "changed"
    return history


def raises(*_: object) -> list[dict[str, str]]:
    raise RuntimeError("secret")


def hangs(*_: object) -> list[dict[str, str]]:
    time.sleep(3)
    return []


@pytest.mark.parametrize("process", [mutates, raises, hangs, lambda *_: None, lambda *_: [1], lambda *_: [{"role": "system"}]])
@pytest.mark.heavy
async def test_a_history_plugin_that_misbehaves_is_passed_over_with_a_reason(
    ledger: Ledger, process: Callable[..., object]
) -> None:
    before = encode(await ledger.transcript("c"))
    chain = (BUNDLED[DEFAULT], UserPlugin("mine", process))
    context = await ledger.context("c", pipeline=Pipeline(chain=chain))
    assert encode(list(context.messages)) == encode(await ledger.transcript("c")) == before
    [failure] = context.view.failures
    assert failure.plugin == "mine"
    assert failure.why
    assert "secret" not in failure.why


async def test_what_pairing_does_ahead_of_the_chain_is_not_told_as_the_window_s_doing(ledger: Ledger) -> None:
    async with ledger.run("c", format="chat") as run:
        call = {"index": 0, "id": "open", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        await run.feed({"id": "q", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    view = (await ledger.context("c", pipeline=Pipeline(chain=(BUNDLED[DEFAULT],)))).view
    assert [(change.stage, change.message_id) for change in view.changes] == [("pairing", "synthetic:open")]


# Expansions


async def test_an_index_is_of_the_view_that_the_model_was_shown_however_old(ledger: Ledger) -> None:
    shown = await ledger.context("c", pipeline=expiring(CUT), turn=9)
    place = next(at for at, one in enumerate(shown.messages) if one.role == "tool")
    async with ledger.run("c") as run:
        await run.message("user", "meanwhile")
    windowed = replace(expiring(CUT), chain=(BUNDLED[DEFAULT],), session=ChainSession(max_ctx=2))
    newer = await ledger.context("c", pipeline=windowed, turn=9)
    assert newer.view.view_id != shown.view.view_id
    found = await ledger.expand(shown, Request(place))
    assert isinstance(found, ContextExpanded)
    assert found.message_id == shown.messages[place].id


@pytest.mark.parametrize("index", [-1, 8, 10**30, None])
async def test_an_index_beyond_the_view_is_refused_with_a_reason_and_nothing_is_recorded(
    ledger: Ledger, index: int | None
) -> None:
    context = await ledger.context("c", pipeline=expiring(CUT), turn=9)
    assert len(context.messages) == 8
    refused = await ledger.expand(context, Request(index))
    assert refused == Refusal("no such index")
    assert refused.reason
    for bad in ((3, 1), (-1, 2), (0.5, 1), (True, 2)):
        told = await ledger.expand(context, Request(2, item_range=cast("Any", bad)))
        assert told == Refusal("bad range")
    assert await ledger.tables.choices("c") == []


@pytest.mark.parametrize("stage", [Relevance(1.0), NearDuplicates()])
async def test_what_a_model_asked_for_is_not_taken_away_by_the_same_stage_again(ledger: Ledger, stage: Any) -> None:
    pipeline = Pipeline(optional=(stage,))
    first = await ledger.context("c", pipeline=pipeline)
    asked = next(change.message_id for change in first.view.changes)
    assert isinstance(await ledger.expand(await ledger.context("c", pipeline=pipeline), asked), ContextExpanded)
    again = await ledger.context("c", pipeline=pipeline)
    assert LONG in next("".join(map(result_text, one.blocks)) for one in again.messages if one.id == asked)
    assert again.view.records == ()


# Summaries


async def test_two_who_want_the_same_summary_at_once_ask_once(ledger: Ledger) -> None:
    asked: list[str] = []

    async def summarizer(instructions: str, text: str) -> str:
        del instructions
        asked.append(text)
        await asyncio.sleep(0.05)
        return f"short {len(asked)}"

    maker = SummaryMaker(summarizer)
    for pipeline, calls in ((summing(summarizer_of(maker)), 1), (expiring(IN_SHORT, maker=maker), 2)):
        asked.clear()
        contexts = await asyncio.gather(*(ledger.context("c", pipeline=pipeline, turn=9) for _ in range(3)))
        assert len(asked) == calls
        assert len({encode(list(context.messages)) for context in contexts}) == 1
    recorded = [choice for _, choice in await ledger.tables.choices("c")]
    assert len(recorded) == 3  # the old part, and two results: each once


SUMMARIES: Final[dict[str, Any]] = {"empty": "", "blank": " \n", "longer": LONG * 5, "none": None, "number": 7, "list": ["x"]}


@pytest.mark.parametrize("how", [*SUMMARIES, "raises", "slow", "times out"])
async def test_a_summary_of_an_old_part_that_fails_changes_nothing_and_says_why(ledger: Ledger, how: str) -> None:
    async def summarizer(messages: Sequence[Message]) -> Any:
        del messages
        if how == "raises":
            raise RuntimeError("secret")
        if how == "times out":
            raise TimeoutError
        if how == "slow":
            await asyncio.sleep(60)
        return SUMMARIES[how]

    began = time.monotonic()
    context = await ledger.context("c", pipeline=summing(summarizer, time_limit=0.1))
    assert time.monotonic() - began < 10
    assert list(context.messages) == await ledger.transcript("c")
    [failure] = context.view.failures
    assert failure.plugin == "summary"
    assert failure.why
    assert "secret" not in failure.why
    assert await ledger.tables.choices("c") == []


@pytest.mark.parametrize("how", [*SUMMARIES, "raises", "slow"])
async def test_a_summary_of_a_result_that_fails_shows_its_beginning(ledger: Ledger, how: str) -> None:
    async def summarizer(instructions: str, text: str) -> Any:
        del instructions, text
        if how == "raises":
            raise RuntimeError("secret")
        if how == "slow":
            await asyncio.sleep(60)
        return SUMMARIES[how]

    context = await ledger.context("c", pipeline=expiring(IN_SHORT, maker=SummaryMaker(summarizer, time_limit=0.1)), turn=9)
    for text in results_of(context):
        assert "[Compacted: showing first 50" in text
    assert all("summary" in change.why and "secret" not in change.why for change in context.view.changes)


# Overflow, erasure


async def test_recovery_to_nothing_takes_every_step_and_says_that_it_does_not_fit(ledger: Ledger) -> None:
    before = encode(await ledger.transcript("c"))
    context = await ledger.context("c", turn=9)
    recovery = await ledger.recover_overflow(context, 0)
    assert (recovery.stopped_at, recovery.fits) == (5, False)
    assert 0 < recovery.tokens < context.tokens
    assert encode(list((await ledger.context("c", turn=9)).messages)) == encode(list(recovery.messages))
    assert encode(await ledger.transcript("c")) == before


async def test_what_is_erased_while_a_context_is_made_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await fill(ledger)

        async def summarizer(messages: Sequence[Message]) -> str:
            await ledger.erase("c")
            return f"needle-{len(messages)}"

        old = await ledger.context("c")
        with pytest.raises(UnknownConversation):
            await ledger.context("c", pipeline=summing(summarizer))
        for late in (ledger.recover_overflow(old, 10), ledger.begin_send(old), ledger.acknowledge(old)):
            with pytest.raises(UnknownConversation):
                await late
        assert await ledger.tables.choices("c") == []
        assert await ledger.transcript("c") == []
    held = readable(path)
    assert b"needle-" not in held
    assert b"weather" not in held
