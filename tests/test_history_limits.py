"""The history chain under load, and where it leaves nothing: what holds up the loop, and what is never sent."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from structlog.testing import capture_logs

from ledger import NothingFits, open_ledger
from ledger.history.settings import parse_configuration
from projector.context.budget import Budget
from projector.context.chain import ChainSession, run_chain
from projector.context.delta import ProviderCapabilities, ProviderSession, fingerprint, fingerprint_of, plan
from projector.context.model_registry import ModelConfig
from projector.context.pipeline import Pipeline, Summaries
from projector.context.plugin_items import MOST_ADDED
from projector.context.plugins import BUNDLED, DEFAULT, Bundled, UserPlugin, keep_window
from projector.context.settings_file import SettingsError, read_object
from projector.context.similarity import find_duplicates
from projector.context.stage import Shaped
from projector.context.tool_groups import ids_of, pair
from projector.events import ContextCompacted
from tests.history_chains import FIRST, TALK, plugin, run, text, tool_group
from tests.test_commands import Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from projector import Message
    from projector.context.chain import Chained
    from projector.context.stage import Source

pytestmark = pytest.mark.anyio
NOTE: Final = {"role": "user", "content": "note"}


def ticking(path: Sequence[Message], own: UserPlugin, time_limit: float) -> tuple[Chained, float, float]:
    """What a chain makes of a path, how long it took, and how long other tasks had to wait at most, in seconds."""

    async def main() -> tuple[Chained, float, float]:
        longest, last = 0.0, time.perf_counter()

        async def tick() -> None:
            nonlocal longest, last
            while True:
                await asyncio.sleep(0)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now

        task = asyncio.create_task(tick())
        await asyncio.sleep(0)
        start = last = time.perf_counter()
        done = await run_chain(path, [FIRST, own], ChainSession(max_ctx=6), time_limit=time_limit)
        took = time.perf_counter() - start
        await asyncio.sleep(0)
        task.cancel()
        return done, took, longest

    with capture_logs() as logs:
        done, took, longest = asyncio.run(main())
    assert [log["plugin"] for log in logs] == [failure.plugin for failure in done.failures]
    return done, took, longest


def test_many_equal_items_cost_in_proportion() -> None:
    done, took, _ = ticking(TALK, plugin(lambda *_: [NOTE] * 50_000), 30.0)
    assert [message.text for message in done.messages] == ["note"] * 6
    assert len(set(ids_of(done.messages))) == 6
    assert not done.failures
    assert took < 15  # the square of them took minutes


def test_what_takes_too_long_to_look_through_is_over_time_and_holds_up_nothing() -> None:
    class Slow(dict[str, str]):
        def get(self, *arguments: Any) -> Any:
            time.sleep(0.01)
            return super().get(*arguments)

    done, took, longest = ticking(TALK, plugin(lambda *_: [Slow(NOTE) for _ in range(500)]), 0.2)
    assert done.messages == tuple(TALK)
    assert [failure.why for failure in done.failures] == ["it did not come back within 0.2 s"]
    assert took < 5
    assert longest < 2


class Endless(list[dict[str, str]]):
    def __iter__(self) -> Iterator[dict[str, str]]:
        return itertools.repeat(NOTE)


@pytest.mark.parametrize("kind", [list, Endless])
def test_far_too_many_items_are_refused_at_once(kind: Any) -> None:
    done, took, _ = ticking(TALK, plugin(lambda *_: kind([NOTE] * (MOST_ADDED + 7))), 5.0)
    assert done.messages == tuple(TALK)
    assert len(done.failures) == 1
    assert took < 5


def test_words_said_again_get_the_next_free_id() -> None:
    [first, second] = ids_of(run([], plugin(lambda *_: [NOTE, NOTE])).messages)
    taken = [NOTE, NOTE | {"id": f"{first}:3"}, NOTE, NOTE]
    assert ids_of(run([], plugin(lambda *_: taken)).messages) == [first, f"{first}:3", second, f"{first}:4"]


def best(job: Callable[[int], object], size: int) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        job(size)
        times.append(time.process_time() - start)
    return min(times)


def pair_many(calls: int) -> object:
    return pair(tool_group("a", calls))


def plan_many(messages: int) -> object:
    view = [text(f"m{number}", "user") for number in range(messages)]
    held = tuple(f"m{number}" for number in range(2, messages))
    session = ProviderSession("s", "m0", held, fingerprint(""), fingerprint_of(view[:1]))
    return plan(view, session, ProviderCapabilities(session_resumption=True, history_management="session-stateful"))


def compare_many(results: int) -> object:
    """Texts of one form: they share all their words but one."""
    found = [(f"r{number}", f"what the weather is like today in all of the north, page {number}") for number in range(results)]
    assert find_duplicates(found) == {}
    return found


def read_many(keys: int) -> object:
    with pytest.raises(SettingsError, match="given twice"):
        read_object("{" + ", ".join(f'"k{number}": 1' for number in range(keys)) + ', "last": 1, "last": 2}', "x.json")
    names = [f"plugin_history_{number}" for number in range(keys)]
    return parse_configuration(json.dumps({"plugin_config": {DEFAULT: {"chain": [DEFAULT, *names]}}}), "x", {DEFAULT, *names})


@pytest.mark.parametrize("job", [pair_many, plan_many, compare_many, read_many])
def test_ten_times_as_much_costs_no_hundred_times_as_much(job: Callable[[int], object]) -> None:
    job(100)
    assert best(job, 10_000) < 40 * best(job, 1_000)


async def test_decisions_of_thousands_of_results_are_recorded_in_no_time() -> None:
    """Each is looked up, not compared with each one that was recorded before."""

    class Records:
        name = "records"

        async def shape(self, messages: Sequence[Message], source: Source) -> Shaped:
            [one] = ids_of(source.path)
            made = (ContextCompacted(0, [one, str(number)], "x", "stub", 1, 0) for number in range(4_000))
            return Shaped(messages, records=tuple(made))

    async with open_ledger("memory:") as ledger:
        async with ledger.run("c") as run_:
            await run_.message("user", "one")
        pipeline = Pipeline(optional=(Records(),))
        assert len((await ledger.context("c", pipeline=pipeline)).view.records) == 4_000
        start = time.process_time()
        assert (await ledger.context("c", pipeline=pipeline)).view.records == ()
        assert time.process_time() - start < 2


def test_a_text_that_is_just_similar_enough_is_found_whatever_a_product_of_floating_point_says() -> None:
    words = [f"w{number}" for number in range(100)]
    whole, part = ("new", " ".join(words)), ("old", " ".join(words[:55]))
    assert find_duplicates([part, whole], threshold=0.55) == {"old": "new"}
    assert find_duplicates([part, whole], threshold=0.56) == {}


SYSTEM: Final = [text("s0", "system"), text("s1", "developer")]
SHAPES: Final[dict[str, Callable[..., object]]] = {
    "puts a note first": lambda history, *_: [NOTE, *history],
    "turns it around": lambda history, *_: history[::-1],
    "leaves notes alone": lambda *_: [NOTE, NOTE],
    "leaves nothing": lambda *_: [],
    "rewrites all of it": lambda history, *_: [item | {"content": "gist"} for item in history],
}


@pytest.mark.parametrize("how", SHAPES)
@pytest.mark.parametrize("max_ctx", [1, 2, 200])
def test_what_the_system_says_first_stays_first_whatever_a_plugin_does(how: str, max_ctx: int) -> None:
    later = text("s2", "system")
    done = run([*SYSTEM, *TALK, later, text("u3", "user")], plugin(SHAPES[how]), max_ctx=max_ctx)
    assert not done.failures
    assert ids_of(done.messages)[:2] == ["s0", "s1"]
    assert [message.id for message in done.messages if message.role not in ("user", "assistant", "tool")] == ["s0", "s1", "s2"]


async def test_what_the_system_says_stays_ahead_of_a_summary_and_of_a_note() -> None:
    async def shorten(messages: Sequence[Message]) -> str:
        return f"{len(messages)} messages"

    chain = (FIRST, plugin(SHAPES["puts a note first"]))
    summaries = Summaries(Budget(1), shorten, keep=1)
    async with open_ledger("memory:") as ledger:
        async with ledger.run("c") as run_:
            await run_.message("system", "be kind")
            for word in ("one", "two", "three"):
                await run_.message("user", f"{word} " * 20)
        context = await ledger.context("c", pipeline=Pipeline(summaries=summaries, chain=chain))
    assert [message.text[:10] for message in context.messages] == ["be kind", "note", "2 messages", "three thre"]


# Where nothing is left


def need(path: Sequence[Message], *plugins: Any, max_ctx: int = 200, config: ModelConfig | None = None) -> Any:
    session = ChainSession(max_ctx=max_ctx, config=config or ModelConfig())
    with capture_logs():
        done = asyncio.run(run_chain(path, [FIRST, *plugins], session))
    assert (done.need is None) == bool([message for message in done.messages if message.role != "system"])
    return None if done.need is None else tuple(done.need)


def test_the_window_that_a_group_does_not_fit_is_empty_and_says_what_it_takes() -> None:
    path = [text("s", "system"), text("u", "user"), *tool_group("a", 3)]
    assert keep_window(path[1:], 3, ModelConfig()) == []
    assert need(path, max_ctx=3) == (DEFAULT, 4, 3, "messages")
    assert need(path, max_ctx=4) is None


def test_each_limit_says_what_it_allows() -> None:
    budget, pairs = BUNDLED["plugin_history_token_budget"], BUNDLED["plugin_history_role_pair_enforcer"]
    long = [text("u", "user", "x" * 400)]
    assert need(long, budget, config=ModelConfig(token_budget=99)) == ("plugin_history_token_budget", 100, 99, "tokens")
    assert need(long, budget, config=ModelConfig(token_budget=100)) is None
    assert need([text("a", "assistant")], pairs) == ("plugin_history_role_pair_enforcer", 1, 0, "messages")
    assert need(TALK, plugin(lambda *_: [])) == ("plugin_history_mine", 1, 0, "messages")
    assert need(TALK, plugin(lambda *_: []), plugin(lambda *_: [NOTE], "plugin_history_note")) is None
    turned = plugin(lambda history, *_: history[::-1])  # the ceiling behind the chain
    assert need([*tool_group("a", 2), text("u", "user")], turned, max_ctx=4) is None
    early = plugin(lambda history, *_: [NOTE, *history[:1]])
    assert need([*tool_group("a", 1), text("u", "user")], early, max_ctx=3) is None
    wide = Bundled("plugin_history_wide", lambda *_: tool_group("b", 5))
    assert need(TALK, wide, max_ctx=5) == ("the ceiling behind the chain", 6, 5, "messages")


def test_of_no_history_nothing_is_missing() -> None:
    assert run([], plugin(lambda history, *_: list(history))).need is None
    assert run([text("s", "system")]).need is None


async def test_an_empty_prompt_is_never_sent_and_nothing_is_recorded() -> None:
    async with open_ledger("memory:") as ledger:
        async with ledger.run("c") as run_:
            await run_.message("system", "be kind")
        narrow = Pipeline(chain=(FIRST,), session=ChainSession(max_ctx=1))
        assert [message.text for message in (await ledger.context("c", pipeline=narrow)).messages] == ["be kind"]
        async with ledger.run("c", format="chat") as run_:
            call = {"index": 0, "id": "q", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            asked = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
            await run_.feed({"id": "q", "choices": [asked]})
            await run_.tool_result("q", "rain")
        with pytest.raises(NothingFits, match=r"is 2 messages, and plugin_history_default allows 1: raise") as caught:
            await ledger.context("c", pipeline=narrow)
        assert (caught.value.needed, caught.value.allowed, caught.value.unit) == (2, 1, "messages")
        tight = ChainSession(config=ModelConfig(token_budget=1))
        with pytest.raises(NothingFits, match="raise the token_budget") as caught:
            await ledger.context("c", pipeline=Pipeline(chain=(FIRST, BUNDLED["plugin_history_token_budget"]), session=tight))
        assert (caught.value.allowed, caught.value.unit) == (1, "tokens")
        with pytest.raises(NothingFits, match="plugin_history_mine leaves nothing"):
            await ledger.context("c", pipeline=Pipeline(chain=(FIRST, plugin(lambda *_: []))))
        assert await ledger.tables.choices("c") == []


def test_the_command_says_how_large_the_window_must_be(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    call = {"id": "q", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [{"role": "user", "content": "Rain?"}, asked, {"role": "tool", "tool_call_id": "q", "content": "Yes."}]
    (tmp_path / "talk.json").write_text(json.dumps({"model": "m", "messages": messages}))
    shell.run("import", str(tmp_path / "talk.json"), "--into", "c")
    told = shell.run("context", "c", "--max-ctx", "1", code=2)
    assert "is 2 messages, and plugin_history_default allows 1: raise --max-ctx" in told
    assert told.count("\n") == 1
    assert "look" in shell.run("context", "c", "--max-ctx", "2")
