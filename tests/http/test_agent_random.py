"""AG-UI and AI SDK over HTTP: random runs with steps that are taken back, and clients that come and go, show what counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from projector import events as ev
from projector.events import to_event
from projector.json_text import raw
from tests.http.agent_checks import check_valid, wanted
from tests.http.asgi_streams import INPUT, Answer, ask
from tests.http.ui_clients import AguiClient, ChatPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

    from ledger import Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
LEDGERS = ["memory"]
PAGES = ("?ai=6", "?ai=7", "?ai=7")
SEEDS = 20


def a_run(rnd: random.Random) -> Iterator[ev.Body]:
    """Steps that are tried up to three times; some calls have one id, some no result; a step may go as a whole."""
    for step in range(1, rnd.randint(2, 5)):
        yield ev.RunStep("r", step, "started")
        name: str | None = None
        calls: list[str] = []
        for tries_left in reversed(range(rnd.choice([1, 1, 2, 3]))):
            if name is None and rnd.random() < 0.85:
                name = f"r.{step}.{tries_left}"
                yield ev.MessageStarted("r", name, "assistant")
            calls = [] if name is None else (yield from blocks(rnd, name))
            if tries_left:
                if name is not None and rnd.random() < 0.2:
                    yield ev.MessageFinished(name, "complete")
                    name = None
                yield ev.RunStep("r", step, "reset")
        if name is not None:
            yield ev.MessageFinished(name, "complete")
        for number, call in enumerate(calls):
            if rnd.random() < 0.8:
                yield ev.ToolResult("r", f"{name}/{number}", call, "ok", raw('[{"kind":"text","text":"seen"}]'))
        if rnd.random() < 0.8:
            yield ev.RunStep("r", step, "finished")
            if rnd.random() < 0.2:
                yield ev.RunStep("r", step, "reset")
    yield ev.RunFinished("r", rnd.choice(["completed", "incomplete"]))


def blocks(rnd: random.Random, name: str) -> Any:
    calls = []
    for number in range(rnd.randint(0, 4)):
        kind: ev.Kind = rnd.choice(["text", "text", "reasoning", "tool_call"])
        if kind == "tool_call":
            calls.append(rnd.choice(["k", f"{name}-{number}"]))
            yield ev.BlockStarted(name, number, kind, "look", calls[-1])
            yield ev.BlockDelta(name, number, json.dumps({"n": rnd.randint(0, 99)}))
        else:
            yield ev.BlockStarted(name, number, kind)
            for _ in range(rnd.randint(0, 3)):
                yield ev.BlockDelta(name, number, f"{rnd.choice('aü')}{rnd.randint(0, 99)} ")
        if kind != "text" or rnd.random() < 0.8:
            yield ev.BlockSealed(name, number, parse="ok" if kind == "tool_call" else None)
    return calls


class Watching:
    """A client that is connected; `query` is that of a page, or None for an agent."""

    def __init__(self, app: Starlette, query: str | None) -> None:
        self._app, self._query = app, query
        self.agent, self.page = AguiClient(), ChatPage()
        self.answer = Answer()
        self._stack = contextlib.AsyncExitStack()

    async def connect(self) -> None:
        """For the first time, or anew."""
        await self.leave()
        if self._query is None:
            asked = ask(self._app, "POST", "/v1/agui/connect", INPUT | {"messages": self.agent.messages})
            self.agent.connect()
        else:
            asked = ask(self._app, "GET", f"/v1/chat/c/stream{self._query}")
            self.page.resume()
        self.answer = await self._stack.enter_async_context(asked)

    async def leave(self) -> None:
        """Takes what has come."""
        if self._query is None:
            self.agent.take(self.answer.data())
        else:
            self.page.take(self.answer.data())
        assert self.answer.failure is None
        await self._stack.aclose()

    async def end(self) -> None:
        """Follows until the run is over."""
        while True:
            await self.answer.end()
            is_whole = self.answer.is_whole and b'"taken_back"' not in self.answer.body
            await (self.leave() if is_whole else self.connect())
            if is_whole:
                return


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whoever_watches_a_run_shows_what_counts_once(ledger: Ledger, app: Starlette, seed: int) -> None:
    rnd = random.Random(seed)
    async with ledger.run("c", run_id="u") as run:
        asked = await run.message("user", "ask")
    await ledger.record("c", [to_event(ev.RunStarted("r", asked, "submit", "r"))])
    agents, pages = [Watching(app, None) for _ in range(2)], [Watching(app, query) for query in PAGES]
    for one in (*agents, *pages):
        await one.connect()
    for body in a_run(rnd):
        await ledger.record("c", [to_event(body)])
        await asyncio.sleep(rnd.choice([0, 0.001]))
        for one in (*agents, *pages):
            is_cut = one.answer.is_over.is_set() and not one.answer.is_whole
            if not isinstance(body, ev.RunFinished) and (is_cut or rnd.random() < 0.1):
                await one.connect()
    for one in (*agents, *pages):
        await one.end()
    assert await ledger.anomalies("c") == []
    messages = [message for message in await ledger.transcript("c") if message.run_id == "r"]
    text, thoughts, calls = wanted(messages, "tool_call")
    inputs = sorted(block.text for message in messages for block in message.blocks if block.kind == "tool_call")
    for agent in agents:
        assert (agent.agent.text(), agent.agent.text("reasoning")) == (text, thoughts)
        assert sorted(said for _, _, said in agent.agent.calls()) == inputs
        check_valid(agent.answer.data(), messages)
    for page in pages:
        if page.page.ended:  # one that came back behind the end is told that nothing is under way
            assert (page.page.text(), page.page.text("reasoning")) == (text, thoughts)
            assert len(page.page.calls()) == len(calls)
