"""What plugins make of a history when the model is switched: it holds until the next switch, and the ledger keeps all."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from ledger import NothingFits, open_ledger
from ledger.history import HistoryRuntime, SessionRegistry
from projector.context.chain import open_session, run_chain, switch_model
from projector.context.pipeline import Pipeline
from projector.context.plugins import UserPlugin
from projector.context.switches import Switched, record_switch
from projector.context.tool_groups import group, ids_of, pair
from tests.history_chains import FIRST, MODELS, TALK, paths, plugin, shapes, text, tool_group
from tests.test_history_sessions import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ledger.history import UserSession
    from projector import Message
    from projector.context.chain import Chained
    from projector.context.plugins import Plugin

pytestmark = pytest.mark.anyio
NEXT: Final = [text("u3", "user", "and?"), text("a3", "assistant", "so")]
GIST: Final = {"role": "user", "content": "gist of it"}


def hook(change: Callable[[list[dict[str, str]]], list[dict[str, str]]], name: str = "plugin_history_mine") -> UserPlugin:
    """A plugin that does something when the model is switched, and nothing else."""
    return UserPlugin(name, lambda history, *_: list(history), lambda session, *_: change(session["history"]))


def switch(path: Sequence[Message], *plugins: Plugin, to: str = "free", session: Any = None) -> Chained:
    before = session or open_session("big", MODELS)
    return asyncio.run(switch_model(path, [FIRST, *plugins], before, MODELS, to))


def show(path: Sequence[Message], done: Chained, *plugins: Plugin, origin: Sequence[Message] | None = None) -> Chained:
    return asyncio.run(run_chain(path, [FIRST, *plugins], done.session, origin=origin))


def widened(done: Chained) -> Chained:
    """As it was left, with a larger window."""
    return replace(done, session=replace(done.session, max_ctx=200))


def test_what_hooks_leave_is_what_is_shown_next_with_what_has_come_since() -> None:
    last = hook(lambda history: history[-2:])
    done = switch(TALK, last)
    assert (ids_of(done.messages), done.removed, done.kept) == (["a2", "u2"], 4, 2)
    again = show(TALK, done, last)
    assert (again.messages, again.removed, again.kept) == (done.messages, 4, 2)
    assert ids_of(show([*TALK, *NEXT], done, last).messages) == ["a2", "u2", "u3", "a3"]


def test_each_hook_gets_what_the_one_before_it_left_and_the_last_one_is_recorded() -> None:
    chain = hook(lambda history: [GIST, *history[1:]]), hook(lambda history: history[:-1], "plugin_history_other")
    done = switch(TALK, *chain)
    assert done.messages[0].text == "gist of it"
    assert ids_of(done.messages)[1:] == ["a1", "t.a1.0", "t.a1.1", "a2"]
    assert ids_of(show([*TALK, *NEXT], done, *chain).messages) == [*ids_of(done.messages), "u3", "a3"]


def test_the_next_switch_begins_with_all_of_it() -> None:
    last = hook(lambda history: history[-1:])
    first = switch(TALK, last)
    keep = hook(list)
    second = switch(TALK, keep, to="big", session=first.session)
    assert second.messages == tuple(TALK)
    assert second.session.switched is None
    assert show(TALK, second, keep).messages == tuple(TALK)


def test_hooks_that_change_nothing_or_fail_leave_nothing_to_hold() -> None:
    def fail(_: object) -> list[dict[str, str]]:
        raise RuntimeError

    with capture_logs():
        done = switch(TALK, hook(list), hook(fail, "plugin_history_other"), to="small")
    assert (ids_of(done.messages), done.session.switched) == (["a2", "u2"], None)
    assert show(TALK, widened(done)).messages == tuple(TALK)


def test_it_holds_beyond_the_window_that_there_was() -> None:
    last = hook(lambda history: history[-1:])
    done = switch(TALK, last, to="small")  # the hook saw two messages, and left one
    assert ids_of(show([*TALK, *NEXT], widened(done), last).messages) == ["u2", "u3", "a3"]


def test_an_order_and_words_of_their_own_come_back_the_same() -> None:
    turned = hook(lambda history: [*history[::-1], GIST])
    done = switch(TALK, turned)
    assert show(TALK, done, turned).messages == done.messages
    stored = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(done.session.switched))), Switched)
    assert stored == done.session.switched
    assert ids_of(show([*TALK, *NEXT], done).messages)[-2:] == ["u3", "a3"]


def test_on_another_branch_it_says_nothing_but_of_what_both_share() -> None:
    late = hook(lambda history: [GIST, *history[2:]])  # u1 and the group of a1 are left out
    done = switch(TALK, late)
    other = [*TALK[:-1], text("u2b", "user", "or")]  # the last message was sent anew
    assert [message.text for message in show(other, done).messages] == ["gist of it", "done", "or"]
    elsewhere = [TALK[0], text("a1b", "assistant", "no"), text("u2c", "user", "why")]
    assert show(elsewhere, done).messages == tuple(elsewhere)  # a1 is not there, for which the gist stands
    adds = switch(TALK, hook(lambda history: [GIST, *history]))
    assert show(elsewhere[1:], adds).messages == tuple(elsewhere[1:])


def test_a_result_that_comes_late_follows_its_call() -> None:
    path = [text("u1", "user"), *tool_group("a1", 2)[:2], text("u2", "user")]
    done = switch(pair(path), hook(lambda history: history[1:]))
    assert ids_of(done.messages) == ["a1", "t.a1.0", "synthetic:a1.1", "u2"]
    late = [*path, tool_group("a1", 2)[2]]
    assert ids_of(show(pair(late), done).messages) == ["a1", "t.a1.0", "t.a1.1", "u2"]


def test_words_that_stand_for_what_was_redacted_are_not_shown_again() -> None:
    gist = hook(lambda history: [GIST, *history[-1:]])
    done = switch(TALK, gist)
    assert [message.text for message in show(TALK, done).messages] == ["gist of it", "thanks"]
    redacted = [replace(TALK[0], blocks=()), *TALK[1:]]
    assert [message.text for message in show(redacted, done).messages] == ["thanks"]
    shorter = [TALK[0], *(replace(one, blocks=()) if one.role == "tool" else one for one in TALK[1:])]  # by a stage ahead of it
    assert len(show(shorter, done, origin=TALK).messages) == 2


def test_what_was_left_out_stays_away_where_a_stage_ahead_has_changed_the_path() -> None:
    done = switch(TALK, hook(lambda history: [history[0], *history[3:]]))  # the group of a1 and a2 are left out
    assert ids_of(show([*TALK, *NEXT], done).messages) == ["u1", "u2", "u3", "a3"]
    gone = [one for one in [*TALK, *NEXT] if one.id != "a2"]  # the last one that was left out has expired
    assert ids_of(show(gone, done, origin=[*TALK, *NEXT]).messages) == ["u1", "u2", "u3", "a3"]
    gist = text("summary:u1", "assistant", "what there was")
    assert ids_of(show([gist, *TALK[5:], *NEXT], done, origin=[*TALK, *NEXT]).messages) == ["summary:u1", "u2", "u3", "a3"]


def test_a_plugin_that_says_the_same_before_each_prompt_is_not_in_its_own_way() -> None:
    both = UserPlugin(
        "plugin_history_mine", lambda history, *_: [GIST, *history], lambda session, *_: [GIST, *session["history"]]
    )
    done = switch(TALK, both)
    shown = show(TALK, done, both)
    assert not shown.failures
    assert [message.text for message in shown.messages[:3]] == ["gist of it", "gist of it", "said"]


def test_a_history_that_hooks_left_nothing_of_has_what_comes_next() -> None:
    done = switch(TALK, hook(lambda _: []))
    shown = show(TALK, done)
    assert (shown.messages, shown.kept) == ((), 0)
    assert shown.need is not None
    assert shown.need.plugin == "on_model_switch"
    assert ids_of(show([*TALK, *NEXT], done).messages) == ["u3", "a3"]


@given(paths(), st.lists(shapes(), min_size=1, max_size=3), st.integers(1, 14))
def test_what_is_shown_next_is_what_the_switch_showed(path: list[Message], own: list[UserPlugin], ceiling: int) -> None:
    hooks = [hook(lambda history, one=one: one.process(history, {}, {}), one.name) for one in own]  # type: ignore[misc]
    hooks = list({one.name: one for one in hooks}.values())
    before = open_session("free", MODELS, agent_max_ctx=ceiling)
    with capture_logs():
        done = asyncio.run(switch_model(path, [FIRST, *hooks], before, MODELS, "free", agent_max_ctx=ceiling))
        again = show(path, done, *hooks)
        later = show([*path, *NEXT], widened(done), *hooks)
    if done.session.switched is not None:
        assert (again.messages, again.kept, again.removed) == (done.messages, done.kept, done.removed)
        told = [message.id for message in done.messages if message.role != "system"]
        assert [message.id for message in later.messages if message.role != "system"] == [*told, "u3", "a3"]
    system = [message for message in path if message.role == "system"]
    assert [message for message in again.messages if message.role == "system"] == system


def test_what_is_recorded_does_not_grow_with_what_was_left_out() -> None:
    path = [text(f"m{number}", "user") for number in range(5_000)]
    stored = msgspec.json.encode(record_switch(path, path[-3:]))
    assert len(stored) < 300
    assert len(group(path)) == 5_000


# The runtime


PLUGIN: Final = (
    "NAME = 'trim'\n"
    "def process(history, session, model_cfg):\n    return list(history)\n"
    "def on_model_switch(session, old_model, new_model, old_cfg, new_cfg):\n"
    "    return session['history'][-1:] if new_model == 'free' else list(session['history'])\n"
)


def open_runtime(folder: Path, sessions: SessionRegistry) -> HistoryRuntime:
    (folder / "plugin_history_trim.py").write_text(PLUGIN)
    chain = ["plugin_history_default", "plugin_history_trim"]
    settings = folder / "plugins-enabled.json"
    settings.write_text(json.dumps({"plugin_config": {"plugin_history_default": {"chain": chain}}}))
    return HistoryRuntime.open(settings, models=MODELS, sessions=sessions, default_model="big", folder=folder)


async def shown(history: HistoryRuntime, session: UserSession, path: Sequence[Message]) -> list[str]:
    return ids_of((await history.show(session, path)).messages)


async def test_the_next_show_is_what_the_answer_said_and_it_outlives_the_session(tmp_path: Path) -> None:
    disk = Disk()
    sessions = SessionRegistry(save=disk.save, restore=disk.restore)
    history = open_runtime(tmp_path, sessions)
    session = await sessions.open("a")
    assert await history.obey("!model free", session, TALK) == "the model is free: 5 removed, 1 kept"
    assert await shown(history, session, TALK) == ["u2"]
    assert await history.obey("!model nope", session, TALK)
    assert await history.obey("!maxctx 100 temp", session, TALK)
    assert await shown(history, session, [*TALK, *NEXT]) == ["u2", "u3", "a3"]
    await sessions.close("a")
    history = open_runtime(tmp_path, sessions)
    session = await sessions.open("a")
    assert await shown(history, session, [*TALK, *NEXT]) == ["u2", "u3", "a3"]
    assert await history.obey("!model big", session, [*TALK, *NEXT]) == "the model is big: 0 removed, 8 kept"
    assert session.state == {"model": "big"}
    assert await shown(history, session, TALK) == ids_of(TALK)


@pytest.mark.parametrize("bad", [-3, {}, {"items": "x"}, {"items": [{"id": 3}]}, []])
async def test_a_state_that_can_not_be_read_is_told_and_holds_nothing(tmp_path: Path, bad: Any) -> None:
    history = open_runtime(tmp_path, SessionRegistry())
    session = await history.sessions.open("a")
    session.state |= {"model": "free", "switched": bad, "max_ctx": bad or "x"}
    with capture_logs() as logs:
        assert await shown(history, session, TALK) == ids_of(TALK)
    assert [log["event"] for log in logs] == ["history.switch_not_read"]


async def test_the_choice_of_a_model_that_is_gone_is_gone_with_it(tmp_path: Path) -> None:
    history = open_runtime(tmp_path, SessionRegistry())
    session = await history.sessions.open("a")
    await history.obey("!model free", session, TALK)
    session.state["model"] = "retired"
    assert await shown(history, session, TALK) == ids_of(TALK)


async def test_a_context_of_a_switched_session_shows_it_and_the_ledger_keeps_all(tmp_path: Path) -> None:
    history = open_runtime(tmp_path, SessionRegistry())
    session = await history.sessions.open("a")
    async with open_ledger("memory:") as ledger:
        async with ledger.run("c") as run:
            for word in ("one", "two", "three"):
                await run.message("user", word)
        path = await ledger.transcript("c")
        await history.obey("!model free", session, path)
        pipeline = Pipeline(chain=tuple(history.chain), session=history.chain_session(session))
        assert [message.text for message in (await ledger.context("c", pipeline=pipeline)).messages] == ["three"]
        assert await ledger.transcript("c") == path
        nothing = switch_to_nothing(path)
        with pytest.raises(NothingFits, match="on_model_switch leaves nothing"):
            await ledger.context("c", pipeline=Pipeline(chain=(FIRST,), session=await nothing))


async def switch_to_nothing(path: Sequence[Message]) -> Any:
    done = await switch_model(path, [FIRST, hook(lambda _: [])], open_session("big", MODELS), MODELS, "free")
    return done.session


def test_a_plugin_sees_the_switched_history_as_its_own() -> None:
    seen: list[list[str]] = []

    def process(history: list[dict[str, str]], *_: Any) -> list[dict[str, str]]:
        seen.append([item["content"] for item in history])
        return list(history)

    done = switch(TALK, hook(lambda history: [GIST, *history[-1:]]))
    show([*TALK, *NEXT], done, plugin(process))
    assert seen == [["gist of it", "thanks", "and?", "so"]]
