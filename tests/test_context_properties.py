"""What holds of every view, whatever was said and whichever stages it went through: laws over random conversations."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from ledger import NothingFits, RunLost, UnknownToolCall, open_ledger
from projector.context.budget import SUMMARY, Budget
from projector.context.chain import ChainSession
from projector.context.expiration import ExpirationRules
from projector.context.model_registry import ModelConfig
from projector.context.pipeline import Pipeline, Summaries, View, make_view
from projector.context.plugins import BUNDLED, DEFAULT
from projector.context.policies import Action, ExpirationPolicy, PolicyRegistry
from projector.context.result_stages import Expiration, NearDuplicates, Relevance
from projector.context.summaries import SummaryMaker
from projector.context.tokens import weight_of
from projector.context.tool_groups import SYNTHETIC, answers, calls_of, group, ids_of, pair
from projector.json_text import encode
from tests.faults.sizes import size
from tests.talk import give_unasked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger import Ledger
    from projector import Message
    from projector.context.report import Change
    from projector.context.stage import Stage
    from projector.events import ToolStatus

pytestmark = pytest.mark.anyio
WORDS: Final = ("rain in Rome", "prices of pianos", "\U0001f600 é " * 40, "", "line of a report\n" * 30, "x")
texts = st.sampled_from(WORDS)


@dataclass(frozen=True)
class Turn:
    """A run: where it begins, what is said in it, and how it ends."""

    parent: int | None
    says: tuple[tuple[str, str, int], ...]
    ends: str
    keeps: int | None


turns = st.builds(
    Turn,
    st.none() | st.none() | st.integers(0, 20),
    st.lists(
        st.tuples(
            st.sampled_from(["user", "text", "call", "call", "result", "result", "failed", "system", "step"]),
            texts,
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=6,
    ).map(tuple),
    st.sampled_from(["completed", "completed", "completed", "cancelled", "commit", "failed"]),
    st.sampled_from([None, None, 0, 1, 2]),
)
talks = st.lists(turns, min_size=1, max_size=6)


async def take(ledger: Ledger, turn: Turn, number: int) -> None:
    """The turn, in the conversation as it is by then."""
    path = await ledger.transcript("c") if (await ledger.store.bounds("c")).head else []
    where: dict[str, Any] = {} if turn.parent is None or not path else {"parent": path[turn.parent % len(path)].id}
    run = await ledger.begin_run("c", run_id=f"r{number}", format="chat", **where)
    users = []
    for place, (how, text, ref) in enumerate(turn.says):
        if how in ("user", "system"):
            users.append(await run.message("user" if how == "user" else "system", text))
        elif how == "text":
            await run.text(text)
        elif how == "step":
            await run.step()
        elif how == "call":
            calls = [{"index": at, "id": f"t{ref + at}", "type": "function"} for at in range(1 + len(text) % 2)]
            asked = [call | {"function": {"name": "look", "arguments": json.dumps({"q": text})}} for call in calls]
            choice = {"index": 0, "delta": {"content": text or None, "tool_calls": asked}, "finish_reason": "tool_calls"}
            await run.feed({"id": f"q{number}-{place}", "choices": [choice]})
        else:
            status: ToolStatus = "ok" if how == "result" else "error"
            try:
                await run.tool_result(f"t{ref}", text, status=status)
            except UnknownToolCall:
                await give_unasked(run, f"t{ref}", text, status)
    if turn.ends == "commit":
        await run.close()
        await ledger.recover("c", f"r{number}", "commit")
    else:
        with suppress(RunLost):
            await run.finish(turn.ends)  # type: ignore[arg-type]
    known = set(ids_of(await ledger.transcript("c")))
    for message_id in users[:1]:
        if turn.keeps is not None and message_id in known:
            await ledger.annotate("c", message_id, {"retention": [turn.keeps], "result": "loop"})


async def sum_up(instructions: str, text: str) -> str:
    del instructions
    return f"in short {len(text)}"


async def shorten(messages: Sequence[Message]) -> str:
    return f"{len(messages)} messages"


CUT: Final = ExpirationPolicy(0, "compact", "first_n_chars", 20)
policies = st.sampled_from(
    [
        ExpirationPolicy(),
        ExpirationPolicy(0, "remove"),
        ExpirationPolicy(2, "remove"),
        CUT,
        ExpirationPolicy(1, "compact", "ai_summary", 20),
        ExpirationPolicy(0, "compact", "ai_summary"),
    ]
)


@st.composite
def expirations(draw: st.DrawFn, *, is_protected: bool | None = None) -> Expiration:
    guard = draw(st.booleans()) if is_protected is None else is_protected
    maker = draw(st.sampled_from([None, SummaryMaker(sum_up)]))
    return Expiration(
        PolicyRegistry({"look": Action(draw(policies))}), rules=ExpirationRules(protect_prefix=guard), maker=maker
    )


OPTIONAL: Final[list[Stage]] = [Relevance(0.3), Relevance(1.0), NearDuplicates(), NearDuplicates(0.2)]
optionals = st.lists(st.sampled_from(OPTIONAL), max_size=2)
chains = st.lists(st.sampled_from([name for name in BUNDLED if name != DEFAULT]), max_size=2, unique=True)


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Any stages together."""
    budget = st.builds(Budget, st.integers(0, 200))
    roles = st.sampled_from(["user", "assistant"])
    summaries = st.builds(Summaries, budget, st.sampled_from([shorten, None]), st.integers(0, 3), role=roles)
    session = ChainSession(config=ModelConfig(token_budget=draw(st.integers(1, 300))), max_ctx=draw(st.integers(1, 8)))
    plugins = [BUNDLED[name] for name in (DEFAULT, *draw(chains))] if draw(st.booleans()) else []
    return Pipeline(
        retention=draw(st.booleans()),
        expiration=draw(st.none() | expirations() | expirations()),
        optional=tuple(draw(optionals)),
        summaries=draw(st.none() | summaries),
        chain=tuple(plugins),
        session=session,
    )


def facts(view: View) -> tuple[bytes, str]:
    return encode(list(view.messages)), view.view_id


def check_groups(view: View) -> None:
    """Every call has one result, right behind it, and what stood together on the path does so still."""
    messages = list(view.messages)
    assert pair(messages) == messages
    assert len(set(ids_of(messages))) == len(messages)
    whole = {one[0].id: [answers(each) for each in one[1:]] for one in group(pair(view.source.path))}
    for one in group(messages):
        assert one[0].role != "tool"
        assert sorted(map(str, map(answers, one[1:]))) == sorted(dict.fromkeys(calls_of(one[0])))
        assert one[0].id not in whole or [answers(each) for each in one[1:]] == whole[one[0].id]


def check_weight(view: View) -> None:
    """It is no heavier than the path but for results that are synthetic, and summaries."""
    extra = sum(weight_of(one) for one in view.messages if one.id.startswith((SYNTHETIC, SUMMARY)))
    assert view.tokens <= view.tokens_of_path + extra
    assert view.tokens == sum(map(weight_of, view.messages))


def check_changes(view: View) -> None:
    """With what the report names the path can be told from the view, and it names nothing else."""
    path, shown = {one.id: one for one in view.source.path}, {one.id: one for one in view.messages}
    by_what: dict[str, list[Change]] = {}
    for change in view.changes:
        assert change.why
        by_what.setdefault(change.what if change.block is None else "block", []).append(change)
    names = {what: {change.message_id for change in changes} for what, changes in by_what.items()}
    gone, added, moved = (names.get(what, set()) for what in ("left_out", "added", "moved"))
    assert gone & path.keys() == path.keys() - shown.keys()
    assert added - path.keys() - gone == shown.keys() - path.keys()
    assert not added & path.keys()
    assert not names.get("changed")
    for message_id in path.keys() & shown.keys():
        one, other = ({block.number: block for block in of[message_id].blocks} for of in (path, shown))
        differ = {number for number in one.keys() | other.keys() if one.get(number) != other.get(number)}
        assert differ == {change.block for change in by_what.get("block", ()) if change.message_id == message_id}
    left = [[one for one in of if one in path and one in shown and one not in moved] for of in (path, shown)]
    assert left[0] == left[1]
    assert all(change.saved >= 0 for change in by_what.get("left_out", ()))


def ahead_of_results(messages: Sequence[Message]) -> list[Message]:
    return list(itertools.takewhile(lambda one: one.role != "tool" and "result" not in one.metadata_text, messages))


async def build(ledger: Ledger, talk: list[Turn]) -> None:
    for number, turn in enumerate(talk):
        await take(ledger, turn, number)


async def fitting(ledger: Ledger, pipeline: Pipeline, turn: int | None = None) -> Pipeline:
    """The pipeline, without its chain where that leaves nothing, which must be true."""
    try:
        await ledger.context("c", pipeline=pipeline, turn=turn)
    except NothingFits:
        view = await make_view((await ledger.context("c", turn=turn)).view.source, pipeline)
        assert view.need is not None
        assert view.need.needed > view.need.allowed
        assert not [one for one in view.messages if one.role not in ("system", "developer")]
        return replace(pipeline, chain=())
    return pipeline


@settings(max_examples=size(smoke=50, full=150), deadline=None)
@given(talks, pipelines(), st.none() | st.integers(0, 6))
@pytest.mark.heavy
def test_every_view_is_whole_no_heavier_told_in_full_and_stays_as_it_is(
    talk: list[Turn], pipeline: Pipeline, turn: int | None
) -> None:
    async def run() -> None:
        async with open_ledger("memory:") as ledger:
            await build(ledger, talk)
            before = encode(await ledger.transcript("c"))
            async with open_ledger("memory:") as other:  # it records, and this one is to begin
                await build(other, talk)
                fits = await fitting(other, pipeline, turn)
            first = (await ledger.context("c", pipeline=fits, turn=turn)).view
            note(f"{first.changes} {first.records}")
            assert encode(await ledger.transcript("c")) == before == encode(list(first.source.path))
            may_fail = {"summary", "chain"} if pipeline.keeps_prefix else {"summary"}  # no shorter, or no room
            assert {one.plugin for one in first.failures} <= may_fail
            check_groups(first)
            check_weight(first)
            check_changes(first)
            choices = await ledger.tables.choices("c")
            assert [choice for _, choice in choices] == list(first.records)
            assert facts(await make_view(first.source, fits)) == facts(first)
            again = (await ledger.context("c", pipeline=fits, turn=turn)).view
            note(f"{again.changes} {again.records}")
            assert (again.records, facts(again)) == ((), facts(first))
            check_changes(again)
            assert await ledger.tables.choices("c") == choices

    asyncio.run(run())


@settings(max_examples=size(smoke=25, full=60), deadline=None)
@given(talks, st.lists(pipelines(), min_size=2, max_size=3), talks)
@pytest.mark.heavy
def test_what_other_pipelines_and_earlier_turns_have_recorded_breaks_no_view(
    talk: list[Turn], several: list[Pipeline], more: list[Turn]
) -> None:
    async def run() -> None:
        async with open_ledger("memory:") as ledger:
            await build(ledger, talk)
            for turn, pipeline in enumerate(several):
                context = await ledger.context("c", pipeline=await fitting(ledger, pipeline, turn), turn=turn)
                await ledger.recover_overflow(context, context.tokens // 2)
                for message in context.view.source.path[::2]:
                    await ledger.expand(context, message.id)
            for number, turn_more in enumerate(more, len(talk)):
                await take(ledger, turn_more, number)
            before = encode(await ledger.transcript("c"))
            for pipeline in several:
                view = (await ledger.context("c", pipeline=await fitting(ledger, pipeline))).view
                check_groups(view)
                check_weight(view)
                check_changes(view)
            assert encode(await ledger.transcript("c")) == before

    asyncio.run(run())


@settings(max_examples=size(smoke=12, full=25), deadline=None)
@given(talks, pipelines(), st.integers(0, 6))
@pytest.mark.heavy
def test_a_view_is_the_same_after_a_restart_and_a_compaction(talk: list[Turn], pipeline: Pipeline, turn: int) -> None:
    async def run(path: str) -> None:
        async with open_ledger(path, durability="normal") as ledger:
            await build(ledger, talk)
            fits = await fitting(ledger, pipeline, turn)
            first = (await ledger.context("c", pipeline=fits, turn=turn)).view
            clock = (await ledger.context("c")).view.source
        async with open_ledger(path, durability="normal") as ledger:
            assert facts((await ledger.context("c", pipeline=fits, turn=turn)).view) == facts(first)
            await ledger.compact("c")
        async with open_ledger(path, durability="normal") as ledger:
            again = (await ledger.context("c", pipeline=fits, turn=turn)).view
            assert (facts(again), again.records) == (facts(first), ())
            assert (await ledger.context("c")).view.source == clock

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(str(Path(folder) / "c.db")))


@settings(max_examples=size(smoke=30, full=80), deadline=None)
@given(talks, pipelines())
def test_what_stands_ahead_of_the_first_result_is_the_same_in_each_turn(talk: list[Turn], pipeline: Pipeline) -> None:
    pipeline = replace(pipeline, protect_prefix=True)

    async def run() -> None:
        async with open_ledger("memory:") as ledger:
            prefix: list[Message] = []
            for number, turn in enumerate(talk):
                await take(ledger, replace(turn, parent=None), number)
                for now in (number, number + 5):
                    try:
                        view = (await ledger.context("c", pipeline=pipeline, turn=now)).view
                    except NothingFits:
                        continue  # a group that is larger than the window
                    ahead = ahead_of_results(pair(view.source.path))
                    assert encode(list(view.messages[: len(ahead)])) == encode(ahead)
                    assert encode(ahead[: len(prefix)]) == encode(prefix)
                    prefix = ahead

    asyncio.run(run())
