"""Delta history: a provider that keeps the session is sent what it lacks, all of it, and never less (seed 002; CONTEXT C)."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import NoSend, UnknownRun, open_ledger
from ledger.errors import SendOvertaken
from projector.context import delta
from projector.context.delta import Delta, Full, ProviderCapabilities, ProviderSession
from projector.context.pipeline import Pipeline
from projector.context.policies import ExpirationPolicy
from projector.context.result_stages import Expiration
from projector.context.tool_groups import ids_of, pair
from tests.faults.children import Child, Parent
from tests.vectors.delta import message

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from ledger.context.context import Context
    from projector import Message

pytestmark = pytest.mark.anyio
STATEFUL: Final = ProviderCapabilities(session_resumption=True, history_management="session-stateful")
LONG: Final = "the weather report of today, line by line. " * 10


async def say(ledger: Ledger, text: str, role: Literal["user", "assistant", "system"] = "user", **options: Any) -> str:
    async with ledger.run("c", **options) as run:
        if role == "user":
            await run.step()
        return await run.message(role, text)


async def look(ledger: Ledger, **options: Any) -> Context:
    return await ledger.context("c", provider=options.pop("provider", "p"), capabilities=STATEFUL, **options)


async def answer(ledger: Ledger, context: Context, text: str = "answer") -> str:
    """The context goes out and is answered."""
    await ledger.begin_send(context)
    reply = await say(ledger, text, "assistant")
    await ledger.acknowledge(context, [reply])
    return reply


def sent(context: Context) -> list[str]:
    return [one.text for one in context.messages]


def why(context: Context) -> str | None:
    assert isinstance(context.send, Full), "a delta was planned"
    return context.send.reason


def call(ref: str) -> dict[str, Any]:
    made = {"index": 0, "id": ref, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return {"id": f"q{ref}", "choices": [{"index": 0, "delta": {"tool_calls": [made]}, "finish_reason": "tool_calls"}]}


async def test_a_conversation_is_sent_once_in_full_and_in_parts_from_then_on(ledger: Ledger) -> None:
    for number in range(4):
        await say(ledger, f"question {number}")
        context = await look(ledger)
        if number == 0:
            assert why(context) == "first_use"
        assert sent(context) == [f"question {number}"]
        await answer(ledger, context, f"answer {number}")
    assert sent(await look(ledger)) == []


async def test_nothing_new_is_an_empty_delta_and_never_everything(ledger: Ledger) -> None:
    await say(ledger, "one")
    await answer(ledger, await look(ledger))
    context = await look(ledger)
    assert (context.send, context.tokens) == (Delta(()), 0)
    await ledger.begin_send(context)
    await ledger.acknowledge(context)
    assert (await look(ledger)).send == Delta(())


async def test_a_correction_that_is_put_in_while_the_model_answers_is_in_the_next_delta(ledger: Ledger) -> None:
    await say(ledger, "question")
    context = await look(ledger)
    await ledger.begin_send(context)
    await say(ledger, "supervisor: be brief", "system")
    reply = await say(ledger, "a long answer", "assistant")
    session = await ledger.acknowledge(context, [reply])
    assert session.held == (reply,)
    later = await look(ledger)
    assert sent(later) == ["supervisor: be brief"]
    await answer(ledger, later, "brief")
    await say(ledger, "thanks")
    assert sent(await look(ledger)) == ["thanks"]


async def test_the_loop_of_an_agent_sends_each_result_once(ledger: Ledger) -> None:
    async with ledger.run("c", format="chat") as run:
        await run.message("user", "look it up")
        first = await look(ledger, run=run)
        await ledger.begin_send(first)
        await run.feed(call("t1"))
        asked = ids_of((await look(ledger, run=run)).view.messages)[1]
        await ledger.acknowledge(first, [asked])  # of the run that the context is of
        await run.tool_result("t1", "rain")
        second = await look(ledger, run=run)
        assert [one.role for one in second.messages] == ["tool"]
        await ledger.begin_send(second)
    reply = await say(ledger, "it rains", "assistant")
    await ledger.acknowledge(second, [reply])  # the run has ended meanwhile
    await say(ledger, "and tomorrow?")
    assert sent(await look(ledger)) == ["and tomorrow?"]


async def test_an_answer_of_a_run_that_is_still_open_is_known_to_be_held(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        await run.message("user", "question")
        context = await look(ledger, run=run)
        await ledger.begin_send(context)
        await run.text("answer")
        said = (await look(ledger, run=run)).view.messages[-1]
        session = await ledger.acknowledge(context, [said.id])
        assert said.id in (session.sent_through, *session.held)
        with pytest.raises(UnknownRun):
            await ledger.acknowledge(context, [said.id], run="nobody")


async def test_a_branch_that_was_switched_is_sent_in_full_and_the_way_back_is_known(ledger: Ledger) -> None:
    root = await say(ledger, "root")
    await answer(ledger, await look(ledger))
    other = await say(ledger, "other branch", parent=root)
    switched = await look(ledger)
    assert (why(switched), sent(switched)) == ("checkpoint_not_on_path", ["root", "other branch"])
    await answer(ledger, switched, "other answer")
    assert sent(await look(ledger)) == []
    first = (await ledger.transcript("c", branch="all"))[1].id
    assert why(await look(ledger, selections={root: first})) == "checkpoint_not_on_path"
    assert isinstance((await look(ledger, selections={root: other})).send, Delta)


async def test_what_is_acknowledged_counts_on_the_branch_that_was_sent(ledger: Ledger) -> None:
    root = await say(ledger, "root")
    left = await say(ledger, "left", parent=root)
    right = await say(ledger, "right", parent=root)
    context = await look(ledger, selections={root: left})
    assert sent(context) == ["root", "left"]
    await ledger.begin_send(context)
    reply = await say(ledger, "answer", "assistant", parent=left)
    await ledger.select("c", right)
    session = await ledger.acknowledge(context, [reply])
    assert (session.sent_through, session.held) == (reply, ())
    assert (await look(ledger, selections={root: left})).send == Delta(())
    assert why(await look(ledger)) == "checkpoint_not_on_path"


async def test_a_result_that_expires_in_what_was_sent_makes_everything_go_out_again(ledger: Ledger) -> None:
    async with ledger.run("c", format="chat") as run:
        await run.message("user", "look it up")
        await run.feed(call("t1"))
        result = await run.tool_result("t1", LONG)
    gone = Pipeline(expiration=Expiration(policies={result: ExpirationPolicy(turns=1, mode="remove")}))
    context = await look(ledger, pipeline=gone, turn=1)
    assert why(context) == "first_use"
    await ledger.begin_send(context)
    await ledger.acknowledge(context)
    assert (await look(ledger, pipeline=gone, turn=2)).send == Delta(())
    expired = await look(ledger, pipeline=gone, turn=3)
    assert why(expired) == "prefix_changed"
    assert len(expired.messages) == len(context.messages)
    await ledger.begin_send(expired)
    await ledger.acknowledge(expired)
    assert (await look(ledger, pipeline=gone, turn=4)).send == Delta(())


async def test_a_late_result_takes_the_place_of_a_synthetic_one_and_everything_goes_out(ledger: Ledger) -> None:
    async with ledger.run("c", format="chat") as run:
        await run.message("user", "look it up")
        await run.feed(call("t1"))
    first = await look(ledger)
    assert ids_of(first.messages)[-1] == "synthetic:t1"
    await answer(ledger, first)
    async with ledger.run("c") as run:
        await run.tool_result("t1", "rain")
    later = await look(ledger)
    assert why(later) == "prefix_changed"
    assert [one.role for one in later.messages] == ["user", "assistant", "tool", "assistant"]


OTHERWISE: Final[list[tuple[dict[str, Any], str | None]]] = [
    ({"system_prompt": "other"}, "system_prompt_changed"),
    ({"working_directory": "elsewhere"}, "working_directory_changed"),
    ({"now": 1_000}, "expired"),
    ({"now": 999}, None),
    ({"now": 1_000, "working_directory": "elsewhere"}, "working_directory_changed"),
    ({"system_prompt": "other", "working_directory": "elsewhere"}, "system_prompt_changed"),
]


@pytest.mark.parametrize(("changed", "reason"), OTHERWISE)
async def test_a_session_that_does_not_fit_any_more_is_left_with_the_first_reason(
    ledger: Ledger, changed: dict[str, Any], reason: str | None
) -> None:
    usual = {"system_prompt": "S", "working_directory": "w", "now": 0}
    await say(ledger, "one")
    context = await look(ledger, **usual)
    await ledger.begin_send(context, expires_at=1_000)
    await ledger.acknowledge(context)
    later = await look(ledger, **{**usual, **changed})
    assert (later.send == Delta(())) if reason is None else (why(later) == reason)


async def test_a_session_is_kept_longer_or_ended_by_each_send(ledger: Ledger) -> None:
    await say(ledger, "one")
    for expires_at in (1_000, 5_000, None, 0):
        context = await look(ledger, now=500)
        await ledger.begin_send(context, expires_at=expires_at)
        await ledger.acknowledge(context)
    assert why(await look(ledger, now=500)) == "expired"


@pytest.mark.parametrize(("mode", "reason"), [("full", None), ("delta", "first_use"), (None, "first_use")])
async def test_the_mode_overrides_the_plan_but_never_what_is_certain(
    ledger: Ledger, mode: Literal["full", "delta"] | None, reason: str | None
) -> None:
    await say(ledger, "one")
    assert why(await look(ledger, mode=mode)) == reason
    await answer(ledger, await look(ledger))
    await say(ledger, "two")
    later = await look(ledger, mode=mode)
    assert sent(later) == (["one", "answer", "two"] if mode == "full" else ["two"])
    stateless = await ledger.context("c", provider="p", mode=mode)
    assert (why(stateless), len(stateless.messages)) == (None, 3)


async def test_each_provider_of_a_conversation_has_a_session_of_its_own(ledger: Ledger) -> None:
    await say(ledger, "one")
    await answer(ledger, await look(ledger, provider="p"), "from p")
    assert sent(await look(ledger, provider="q")) == ["one", "from p"]
    await answer(ledger, await look(ledger, provider="q"), "from q")
    assert sent(await look(ledger, provider="p")) == ["from q"]
    assert sent(await look(ledger, provider="q")) == []


# Crashes and others


async def test_what_is_held_is_known_after_a_restart_and_a_compaction(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as ledger:
        await say(ledger, "one")
        await answer(ledger, await look(ledger))
        await ledger.compact("c")
    async with open_ledger(path) as ledger:
        await say(ledger, "two")
        assert sent(await look(ledger)) == ["two"]


async def begin_and_wait(parent: Parent, path: str) -> None:
    async with open_ledger(path) as ledger:
        await say(ledger, "two")
        context = await look(ledger)
        await ledger.begin_send(context)
        parent.say(sent(context))
        await parent.hear()


@pytest.mark.parametrize("proof", ["none", "nothing", "all"])
async def test_a_process_that_is_killed_while_it_sends_leaves_word_of_it(tmp_path: Path, proof: str) -> None:
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as ledger:
        await say(ledger, "one")
        await answer(ledger, await look(ledger))
    child = Child(begin_and_wait, path)
    child.say("go")
    assert await asyncio.to_thread(child.hear) == ["two"]
    os.kill(child.pid, signal.SIGKILL)
    child.end()
    async with open_ledger(path) as ledger:
        context = await look(ledger)
        assert (why(context), sent(context)) == ("unacknowledged_send", ["one", "answer", "two"])
        if proof == "none":
            await answer(ledger, context)
            assert (await look(ledger)).send == Delta(())
            return
        await ledger.received(context, [context.messages[-1].id] if proof == "all" else [])
        proven = await look(ledger)
        assert isinstance(proven.send, Delta)
        assert sent(proven) == ([] if proof == "all" else ["two"])


async def test_a_second_acknowledgement_is_refused_and_changes_nothing(ledger: Ledger) -> None:
    await say(ledger, "one")
    context = await look(ledger)
    reply = await answer(ledger, context)
    before = await ledger.tables.choices("c")
    for again in (ledger.acknowledge(context, [reply]), ledger.received(context, [])):
        with pytest.raises(NoSend):
            await again
    assert await ledger.tables.choices("c") == before
    assert (await look(ledger)).send == Delta(())


async def test_of_two_full_sends_at_once_only_the_newer_session_can_be_acknowledged(ledger: Ledger) -> None:
    await say(ledger, "one")
    first = await look(ledger)
    await ledger.begin_send(first, session_id="s1")
    await say(ledger, "two")
    second = await look(ledger)
    assert why(second) == "unacknowledged_send"
    await ledger.begin_send(second, session_id="s2")
    with pytest.raises(NoSend):  # or s2 would be said to hold what s1 got
        await ledger.acknowledge(first)
    assert (await ledger.acknowledge(second)).session_id == "s2"


async def test_a_delta_that_another_run_has_overtaken_is_refused_before_it_goes_out(ledger: Ledger) -> None:
    await say(ledger, "one")
    await answer(ledger, await look(ledger))
    await say(ledger, "two")
    mine, theirs = await look(ledger), await look(ledger)
    await ledger.begin_send(theirs)
    with pytest.raises(SendOvertaken, match="make the context again"):
        await ledger.begin_send(mine)
    await ledger.acknowledge(theirs)
    with pytest.raises(SendOvertaken):  # it would send again what has arrived
        await ledger.begin_send(mine)


async def test_many_who_begin_the_same_delta_at_once_send_it_once(ledger: Ledger) -> None:
    await say(ledger, "one")
    await answer(ledger, await look(ledger))
    await say(ledger, "two")
    contexts = [await look(ledger) for _ in range(8)]
    told = await asyncio.gather(*map(ledger.begin_send, contexts), return_exceptions=True)
    assert sorted(type(one).__name__ for one in told) == ["ProviderSession", *["SendOvertaken"] * 7]
    assert all(isinstance(one, ProviderSession | SendOvertaken) for one in told)


# Pure plans

paths = st.lists(st.sampled_from(["user", "assistant", "system", "call", "result"]), min_size=1, max_size=10)


def path_of(roles: list[str]) -> list[Message]:
    made: list[Message] = []
    for number, role in enumerate(roles):
        given: dict[str, Any] = {"id": f"m{number}", "role": role, "text": f"text {number}"}
        if role == "call":
            given |= {"role": "assistant", "calls": ["c", f"c{number}"]}  # "c" is used again and again
        elif role == "result":
            given |= {"role": "tool", "call": "c"}
        made.append(message(given))
    return made


@given(paths, st.data())
def test_whatever_arrives_in_whatever_order_the_provider_ends_up_with_the_view_or_a_new_session(
    roles: list[str], data: st.DataObject
) -> None:
    path = path_of(roles)
    holds: list[Message] = []
    session: ProviderSession | None = None
    reach = 0
    while reach < len(path):
        reach += data.draw(st.integers(1, 3))
        view = pair(path[:reach])
        assert len(set(ids_of(view))) == len(view)
        planned = delta.plan(path[:reach], session, STATEFUL)
        holds = list(planned.messages) if isinstance(planned, Full) else [*holds, *planned.messages]
        assert sorted(ids_of(holds)) == sorted(ids_of(view))
        assert {one.id: one.blocks for one in holds} == {one.id: one.blocks for one in view}
        session = delta.begin_send(session, planned, f"s{reach}")
        session = delta.acknowledge(session, path[:reach], ids_of(planned.messages), ())


@pytest.mark.parametrize("bad", [{"mode": "deltas"}, {"mode": ""}, {"now": -1}, {"now": float("nan")}])
async def test_modes_and_times_that_are_none_are_refused(ledger: Ledger, bad: dict[str, Any]) -> None:
    await say(ledger, "one")
    with pytest.raises(ValueError, match="must be"):
        await look(ledger, **bad)
    with pytest.raises(ValueError, match="expires_at"):
        await ledger.begin_send(await look(ledger), expires_at=-1)
    assert await ledger.tables.choices("c") == []
