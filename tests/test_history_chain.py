"""The history chain: what a plugin may do to a history, what it can't, and what a model is shown."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ledger.history.discovery import discover, load_chain
from projector.context.chain import ChainSession, open_session, run_chain, switch_model
from projector.context.model_registry import ModelConfig, UnknownModel, read_models
from projector.context.plugin_items import fold_items
from projector.context.plugins import DEFAULT, UserPlugin
from projector.context.tool_groups import calls_of, group, ids_of, pair
from projector.context.windows import effective, window
from projector.json_text import encode
from tests.history_chains import FIRST, MODELS, TALK, paths, plugin, run, shapes, text, tool_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projector import Message
    from projector.context.chain import Chained
    from projector.context.plugins import Plugin

SEED: Final = Path(__file__).parent / "fixtures" / "history"


def whole(shown: Sequence[Message], path: Sequence[Message]) -> bool:
    """Every call has its results right behind it, every result its call; what is of the path is as it was there."""
    known = {message.id: message for message in path}
    told = [message for message in shown if message.role != "system"]
    results = {block.tool_call_id for message in told if message.role == "tool" for block in message.blocks}
    calls = {call for message in told for call in calls_of(message)}
    return (
        results == calls
        and all(len(one) - 1 == len(calls_of(one[0])) for one in group(told))
        and all(known[message.id] == message for message in shown if message.id in known)
        and len(set(ids_of(shown))) == len(shown)
    )


@given(paths(), st.lists(shapes(), max_size=3), st.integers(1, 14))
def test_no_chain_splits_a_group_or_shows_more_than_it_may(path: list[Message], own: list[UserPlugin], max_ctx: int) -> None:
    before = encode(path)
    own = list({one.name: one for one in own}.values())
    with capture_logs():
        done, again = run(path, *own, max_ctx=max_ctx), run(path, *own, max_ctx=max_ctx)
    assert done == again
    assert encode(path) == before
    told = [message for message in done.messages if message.role != "system"]
    assert len(told) <= max_ctx
    assert not told or told[0].role != "tool"
    assert whole(done.messages, path)
    system = [message for message in path if message.role == "system"]
    assert [message for message in done.messages if message.role == "system"] == system
    assert done.kept + done.removed == len(path) - len(system)


@given(paths(), st.integers(1, 14))
def test_a_window_is_the_longest_end_that_begins_with_a_group(path: list[Message], n: int) -> None:
    told = [message for message in path if message.role != "system"]
    groups = group(told)
    ends = [[message for one in groups[start:] for message in one] for start in range(len(groups) + 1)]
    assert window(told, n) == max((end for end in ends if len(end) <= n), key=len)


@pytest.mark.parametrize("n", [0, -5, True, 1.5, float("nan"), None, "3", pytest.param(10**5000, id="huge")])
def test_a_window_of_another_size_is_refused(n: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        window(TALK, n)
    with pytest.raises(ValueError, match="whole number"):
        effective(n)
    with pytest.raises(ValueError, match="whole number"):
        ChainSession(max_ctx=n)


def test_what_the_system_says_is_not_of_the_history_and_keeps_its_place() -> None:
    path = [text("s0", "system"), text("u1", "user"), text("s1", "developer"), text("a1", "assistant"), text("u2", "user")]
    seen: list[list[str]] = []

    def process(history: list[dict[str, str]], *_: Any) -> list[dict[str, str]]:
        seen.append([item["id"] for item in history])
        return list(history)

    assert ids_of(run(path, plugin(process), max_ctx=2).messages) == ["s0", "s1", "a1", "u2"]
    assert seen == [["a1", "u2"]]


BAD: Final[dict[str, Callable[[Any, Any, Any], object]]] = {
    "raises": lambda *_: 1 // 0,
    "exits": lambda *_: sys.exit(3),
    "returns nothing": lambda *_: None,
    "returns a dict": lambda *_: {"messages": []},
    "returns a tuple": lambda history, *_: tuple(history),
    "returns texts": lambda *_: ["hello"],
    "returns another role": lambda *_: [{"role": "tool", "content": "x"}],
    "returns no content": lambda *_: [{"role": "user"}],
    "returns parts": lambda *_: [{"role": "user", "content": [{"text": "x"}]}],
    "returns a number as id": lambda *_: [{"id": 3, "role": "user", "content": "x"}],
    "returns one twice": lambda history, *_: [history[0], history[0]],
    "empties its input": lambda history, *_: list(history) if history.clear() is None else None,
    "edits an item": lambda history, *_: list(history) if history[0].update(content="x") is None else None,
    "adds a field to an item": lambda history, *_: list(history) if history[0].update(score="1") is None else None,
    "edits the session's history": lambda history, session, _: history if session["history"].pop() else None,
    "replaces the session's history": lambda history, session, _: history if session.update(history=[]) is None else None,
}


@pytest.mark.parametrize("how", BAD)
def test_a_plugin_that_misbehaves_is_logged_and_changes_nothing(how: str) -> None:
    drop = plugin(lambda history, *_: history[1:], "plugin_history_drop")
    with capture_logs() as logs:
        done = run(TALK, plugin(BAD[how]), drop)
    assert done.messages == tuple(TALK[1:])  # the next plugin got the history as it was
    assert [failure.plugin for failure in done.failures] == ["plugin_history_mine"]
    assert [(log["event"], log["plugin"]) for log in logs] == [("history.plugin_failed", "plugin_history_mine")]
    assert "thanks" not in json.dumps(logs)


def test_an_async_plugin_is_told_that_it_must_be_a_plain_one() -> None:
    async def process(history: list[Any], *_: Any) -> list[Any]:
        return history

    with capture_logs():
        done = run(TALK, plugin(process))
    assert done.messages == tuple(TALK)
    assert "async" in done.failures[0].why


def test_objects_that_raise_when_they_are_looked_at_do_no_harm() -> None:
    class Trap(dict[str, str]):
        def get(self, *_: Any) -> Any:
            raise KeyError

    with capture_logs():
        done = run(TALK, plugin(lambda *_: [Trap()]))
    assert done.messages == tuple(TALK)
    assert len(done.failures) == 1


def test_a_plugin_that_hangs_holds_up_neither_the_loop_nor_the_chain() -> None:
    release, calls = threading.Event(), list[int]()

    def process(history: list[Any], *_: Any) -> list[Any]:
        calls.append(1)
        release.wait(30)
        history.clear()  # far too late: these are copies
        return []

    hanging, ticks = plugin(process), 0

    async def main() -> tuple[Chained, Chained, Chained]:
        nonlocal ticks
        session = ChainSession()
        task = asyncio.create_task(run_chain(TALK, [FIRST, hanging], session, time_limit=0.3))
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        second = await run_chain(TALK, [FIRST, hanging], session, time_limit=0.3)
        release.set()
        while any(thread.is_alive() for thread, _ in hanging._left):
            await asyncio.sleep(0.01)
        return task.result(), second, await run_chain(TALK, [FIRST, hanging], session, time_limit=5)

    with capture_logs():
        first, second, third = asyncio.run(main())
    assert ticks > 5
    assert first.messages == second.messages == third.messages == tuple(TALK)
    assert [done.failures[0].why for done in (first, second)] == [
        "it did not come back within 0.3 s", "an earlier call of it has not come back yet",
    ]  # fmt: skip
    assert third.failures[0].why == "it changed its input"
    assert len(calls) == 2  # it was not called while the first call hung, and was called again behind it


def test_a_chain_that_is_given_up_leaves_no_second_thread_behind() -> None:
    release = threading.Event()
    hanging = plugin(lambda *_: release.wait(30))

    async def main() -> None:
        for _ in range(3):
            with suppress(TimeoutError):
                await asyncio.wait_for(run_chain(TALK, [FIRST, hanging], ChainSession(), time_limit=0.05), 0.02)
            await asyncio.sleep(0.05)
        assert len(hanging._left) == 1

    with capture_logs():
        try:
            asyncio.run(main())
        finally:
            release.set()


def test_what_a_plugin_adds_has_the_same_id_in_each_turn() -> None:
    note = plugin(lambda history, *_: [{"role": "user", "content": "note"}, {"role": "user", "content": "note"}, *history])
    ids = [ids_of(run(path, note).messages)[:2] for path in (TALK, [*TALK, text("a3", "assistant")])]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_an_item_with_another_content_is_plain_text_under_another_id() -> None:
    edit = plugin(lambda history, *_: [item | {"content": "gist"} for item in history])
    shown = run(TALK, edit).messages
    assert [(message.role, message.text) for message in shown] == [
        ("user", "gist"), ("assistant", "gist"), ("assistant", "gist"), ("user", "gist"),
    ]  # fmt: skip
    assert not set(ids_of(shown)) & set(ids_of(TALK))


def test_an_id_that_is_taken_on_the_path_is_not_given_to_other_words() -> None:
    note = plugin(lambda history, *_: [{"id": "u1", "role": "user", "content": "not u1"}, *history])
    shown = run(TALK, note, max_ctx=2).messages  # u1 is outside the window, a delta still names it
    assert "u1" not in ids_of(shown)


def test_a_plugin_sees_the_session_and_the_model_as_copies() -> None:
    seen: list[Any] = []

    def process(history: list[Any], session: dict[str, Any], model_cfg: dict[str, Any]) -> list[Any]:
        seen.append((session["model"], session["history_max_ctx"], session["history"] == history, dict(model_cfg)))
        session["model"] = "other"
        model_cfg["nested"]["price"] = 0
        return list(history)

    config = read_models('{"models": {"m": {"max_context": 3, "nested": {"price": 1}}}}')
    session = open_session("m", config)
    for _ in range(2):
        asyncio.run(run_chain(TALK, [FIRST, plugin(process)], session))
    assert [one[:3] for one in seen] == [("m", 3, True)] * 2
    assert config["m"].for_plugin() == {"max_context": 3, "nested": {"price": 1}}


def switch(path: Sequence[Message], to: str, *plugins: Plugin, ceiling: int = 200) -> Chained:
    old = open_session("big", MODELS, agent_max_ctx=ceiling)
    return asyncio.run(switch_model(path, [FIRST, *plugins], old, MODELS, to, agent_max_ctx=ceiling))


def test_a_switch_hands_the_history_from_hook_to_hook() -> None:
    seen: list[Any] = []

    def on_model_switch(session: dict[str, Any], *models: Any) -> list[Any]:
        seen.append(([item["id"] for item in session["history"]], session["model"], session["history_max_ctx"], models))
        return list(session["history"][1:])

    first, second = (UserPlugin(name, lambda *_: [], on_model_switch) for name in ("plugin_history_a", "plugin_history_b"))
    done = switch(TALK, "small", first, second)
    cfg = ("big", "small", {"max_context": 128}, {"max_context": 2})
    assert seen == [(["a2", "u2"], "small", 2, cfg), (["u2"], "small", 2, cfg)]
    assert (done.messages, done.removed, done.kept, done.session.model) == ((), len(TALK), 0, "small")


def test_a_hook_that_edits_what_it_was_given_changes_nothing() -> None:
    def on_model_switch(session: dict[str, Any], *_: Any) -> list[Any]:
        session["history_max_ctx"] = 1
        session["history"][0]["content"] = "edited"
        return []

    with capture_logs():
        done = switch(TALK, "free", UserPlugin("plugin_history_a", lambda *_: [], on_model_switch))
    assert (done.messages, done.session.max_ctx) == (tuple(TALK), 200)
    assert [failure.why for failure in done.failures] == ["it changed its input"]


@pytest.mark.parametrize(("wish", "shown", "failed"), [(1, 1, 0), (4, 2, 0), (500, 3, 0), (0, 2, 1), ("x", 2, 1)])
def test_a_hook_may_set_the_window_below_the_ceiling(wish: Any, shown: int, failed: int) -> None:
    def on_model_switch(session: dict[str, Any], *_: Any) -> list[Any]:
        session["history_max_ctx"] = wish
        return list(session["history"])

    path = [text(f"m{number}", "user") for number in range(9)]
    with capture_logs():
        done = switch(path, "small", UserPlugin("plugin_history_a", lambda *_: [], on_model_switch), ceiling=3)
    assert done.session.max_ctx == min(3, wish if not failed else 2)
    assert len(done.failures) == failed
    assert len(done.messages) == min(2, shown)  # the default had trimmed it before
    again = asyncio.run(run_chain(path, [FIRST], done.session))
    assert len(again.messages) == done.session.max_ctx


def test_an_unknown_model_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UnknownModel, match="no model 'nope': there are big, free, small"):
        switch(TALK, "nope")


@pytest.mark.parametrize("chain", [[], [plugin(lambda history, *_: history)]])
def test_a_chain_that_does_not_begin_with_the_default_is_refused(chain: list[Plugin]) -> None:
    with pytest.raises(ValueError, match="begins with plugin_history_default"):
        asyncio.run(run_chain(TALK, chain, ChainSession()))


def test_the_examples_of_the_seed_run_unchanged_from_a_folder(tmp_path: Path) -> None:
    for file in SEED.glob("*.py.txt"):
        (tmp_path / file.name.removesuffix(".txt")).write_bytes(file.read_bytes())
    names = [DEFAULT, "plugin_history_token_budget", "plugin_history_role_pair_enforcer"]
    chain = load_chain(names, discover(tmp_path))
    assert [(one.name, one.strategy) for one in chain if isinstance(one, UserPlugin)] == [
        (names[1], "token_budget"), (names[2], "role_pair_enforcer"),
    ]  # fmt: skip
    path = [text("u0", "user", "x" * 400), *TALK, text("u3", "user"), *tool_group("a3", 1)]
    session = ChainSession(config=ModelConfig(token_budget=60))
    done = asyncio.run(run_chain(path, chain, session))
    assert done.failures == ()
    assert ids_of(done.messages) == ["u1", "a1", "t.a1.0", "t.a1.1", "u2", "a3", "t.a3.0"]  # of equals it keeps the oldest
    switched = asyncio.run(switch_model(path, chain, session, MODELS, "free"))
    assert (switched.failures, switched.messages) == ((), tuple(path))


def test_the_default_chain_costs_far_less_than_one_encoding() -> None:
    path = [message for n in range(2500) for message in (text(f"u{n}", "user", "x" * 100), *tool_group(f"a{n}", 2, "y" * 200))]

    def best(job: Callable[[], object]) -> float:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            job()
            times.append(time.perf_counter() - start)
        return min(times)

    async def main() -> float:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            await run_chain(path, [FIRST], ChainSession())
            times.append(time.perf_counter() - start)
        return min(times)

    assert len(path) == 10_000
    assert asyncio.run(main()) < best(lambda: encode(path))


def test_items_are_flat_and_say_what_a_group_did() -> None:
    [_, item, *_] = fold_items(TALK)
    assert item == {"id": "a1", "role": "assistant", "content": "look()\nlook()\nresult\nresult"}
    assert msgspec.json.decode(msgspec.json.encode(item)) == item


def test_pairing_comes_first_and_changes_nothing_of_what_is_paired() -> None:
    assert pair(TALK) == TALK
