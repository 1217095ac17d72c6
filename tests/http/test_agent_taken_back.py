"""AG-UI and AI SDK over HTTP where something is taken back that has gone out: who was there shows what counts, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from ledger.http.watched import Watched, look_at
from projector import events as ev
from projector.events import to_event
from projector.json_text import raw
from tests.http.agent_checks import check_agui, check_page, check_valid
from tests.http.agent_talk import ended, started, texts
from tests.http.asgi_streams import INPUT, ask, connect
from tests.http.ui_clients import AguiClient, ChatPage

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ledger import Ledger

pytestmark = pytest.mark.anyio


def step(number: int, phase: Literal["started", "finished", "reset"]) -> ev.Body:
    return ev.RunStep("r", number, phase)


def begins(name: str) -> ev.Body:
    return ev.MessageStarted("r", name, "assistant")


def says(name: str, text: str, block: int = 0) -> list[ev.Body]:
    return [ev.BlockStarted(name, block, "text"), ev.BlockDelta(name, block, text)]


def seals(name: str, block: int = 0) -> list[ev.Body]:
    return [ev.BlockSealed(name, block), ev.MessageFinished(name, "complete")]


def thinks_and_calls(name: str) -> list[ev.Body]:
    return [
        ev.BlockStarted(name, 0, "reasoning"), ev.BlockDelta(name, 0, "hm"), ev.BlockSealed(name, 0),
        ev.BlockStarted(name, 1, "tool_call", "look", "k"), ev.BlockDelta(name, 1, "{}"),
        ev.BlockSealed(name, 1, parse="ok"),
    ]  # fmt: skip


KEPT = [
    step(1, "started"), begins("r.1"), *thinks_and_calls("r.1"), *says("r.1", "kept ", 2), *seals("r.1", 2),
    ev.ToolResult("r", "r.1r", "k", "ok", raw('[{"kind":"text","text":"seen"}]')), step(1, "finished"), step(2, "started"),
]  # fmt: skip
AGAIN = {
    "open": (begins("r.2"), *says("r.2", "wrong"), step(2, "reset"), *says("r.2", "right")),
    "sealed": (begins("r.2"), *says("r.2", "wrong"), ev.BlockSealed("r.2", 0), step(2, "reset"), *says("r.2", "right")),
    "a call": (
        begins("r.2"), *thinks_and_calls("r.2"), ev.BlockStarted("r.2", 3, "tool_call", "look", "l"), step(2, "reset"),
        *says("r.2", "right"),
    ),
    "twice": (
        begins("r.2"), *says("r.2", "wrong"), step(2, "reset"), *says("r.2", "no"), step(2, "reset"), *says("r.2", "right"),
    ),
    "it had begun": (begins("r.2"), step(2, "reset"), *says("r.2", "right")),
    "nothing yet": (step(2, "reset"), begins("r.2"), *says("r.2", "right")),
    "it was over": (
        begins("r.2"), *says("r.2", "wrong"), *seals("r.2"), step(2, "finished"), step(2, "reset"), begins("r.3"),
        *says("r.3", "right"), *seals("r.3"), begins("r.2"), ev.BlockStarted("r.2", 0, "text"),
    ),
    "two messages": (
        begins("r.1b"), *says("r.1b", "wrong"), *seals("r.1b"), begins("r.2"), *says("r.2", "wrong"), step(2, "reset"),
        *says("r.2", "right"),
    ),
}  # fmt: skip
"""What goes on behind `KEPT`, so that at the end it says `kept right`."""
IS_TOLD = ("open", "sealed", "a call", "twice", "it had begun", "nothing yet", "it was over")
"""Where a client that knows `reset-step` needs not come back."""


async def follow_page(
    ledger: Ledger, app: Starlette, rest: list[ev.Body], query: str, begins_with: str = "kept "
) -> tuple[ChatPage, int]:
    """A page that is there before these events, each of which comes by itself, and how often it had to come back."""
    page, count, left = ChatPage(), 0, list(rest)
    while not page.ended:
        page.resume()
        async with ask(app, "GET", f"/v1/chat/c/stream{query}") as answer:
            await answer.until(begins_with.encode())
            while left and not answer.is_over.is_set():
                pieces = answer.pieces
                await ledger.record("c", [to_event(left.pop(0))])
                await answer.more_than(pieces)  # who has to come back comes back before the next one
                await answer.settle()
            if not left:
                await answer.end()
        assert answer.failure is None
        page.take(answer.data())
        count += 1
    return page, count - 1


@pytest.mark.parametrize("how", AGAIN)
@pytest.mark.parametrize("query", ["", "?ai=6", "?ai=7"])
async def test_a_page_shows_the_step_that_counts_once(ledger: Ledger, app: Starlette, how: str, query: str) -> None:
    await ledger.record("c", [started(), *(to_event(body) for body in KEPT)])
    page, count = await follow_page(ledger, app, [*AGAIN[how], *seals("r.2"), ev.RunFinished("r", "completed")], query)
    assert page.text() == "kept right"
    check_page(page, await ledger.transcript("c"))
    if query == "?ai=7":
        assert (count == 0) == (how in IS_TOLD)
    else:
        assert count == sum(body == step(2, "reset") for body in AGAIN[how]) * (
            how not in ("it had begun", "nothing yet", "a result")
        )


@pytest.mark.parametrize(("query", "known"), [("", False), ("?ai=6", False), ("?ai=7", True)])
async def test_a_page_is_told_what_its_version_knows(ledger: Ledger, app: Starlette, query: str, *, known: bool) -> None:
    asked = [
        begins("r.1"), ev.BlockStarted("r.1", 0, "tool_call", "look", "k"), ev.BlockDelta("r.1", 0, "{}"),
        ev.BlockSealed("r.1", 0, parse="ok"), ev.ToolApproval("k", "a"), ev.ToolApproval("k", "a", approved=True),
    ]  # fmt: skip
    await ledger.record("c", [started(), *(to_event(body) for body in asked)])
    async with ask(app, "GET", f"/v1/chat/c/stream{query}") as answer:
        await answer.until(b"tool-approval-request")
        await ledger.recover("c", "r", "commit")
        await answer.end()
    assert (b"tool-approval-response" in answer.body) == known
    assert answer.data()[-1] == {"type": "finish", "finishReason": "interrupted" if known else "other"}
    async with ask(app, "GET", "/v1/chat/c/stream?ai=8") as refused:
        await refused.end()
    assert refused.status == 400


@pytest.mark.parametrize("how", AGAIN)
async def test_an_agent_shows_the_step_that_counts_once(ledger: Ledger, app: Starlette, how: str) -> None:
    await ledger.record("c", [started(), *(to_event(body) for body in KEPT)])
    async with connect(app) as early:
        await early.until(b"STEP_STARTED")
        for body in AGAIN[how]:
            await ledger.record("c", [to_event(body)])
            await early.settle()
        async with connect(app) as late:
            await late.until(b"SNAPSHOT")
            await ledger.record("c", [*(to_event(body) for body in seals("r.2")), ended()])
            await early.end()
            await late.end()
    for answer in (early, late):
        assert (answer.failure, answer.is_whole) == (None, True)
        client = AguiClient()
        client.take(answer.data())
        assert (client.text(), client.ended) == ("kept right", "RUN_FINISHED")
        check_agui(client, await ledger.transcript("c"))
        check_valid(answer.data())


@pytest.mark.parametrize("query", ["?ai=6", "?ai=7"])
async def test_a_page_keeps_nothing_of_a_step_that_was_over_and_all_that_its_run_had_said(
    ledger: Ledger, app: Starlette, query: str
) -> None:
    said = [step(1, "started"), begins("r.1"), *says("r.1", "kept "), *seals("r.1"), step(1, "finished")]
    await ledger.record("c", [started(), *(to_event(body) for body in said)])
    async with connect(app) as agent:
        rest = [step(1, "reset"), ev.RunFinished("r", "completed")]
        page, count = await follow_page(ledger, app, rest, query, "start")
        await agent.end()
    assert (page.message["id"], page.text(), count) == ("r", "", int(query == "?ai=6"))
    client = AguiClient()
    client.take(agent.data())
    assert client.text() == ""


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_thought_that_was_taken_back_is_not_kept(ledger: Ledger, app: Starlette, *, comes_back: bool) -> None:
    """A client keeps the reasoning that it has where it is told of none."""
    client = AguiClient()
    await ledger.record("c", [started(), to_event(step(1, "started")), to_event(begins("r.1"))])
    await ledger.record("c", [to_event(body) for body in thinks_and_calls("r.1")])
    async with connect(app) as first:
        await first.until(b"hm")
        if not comes_back:
            await ledger.record("c", [to_event(step(1, "reset")), *(to_event(body) for body in says("r.1", "right"))])
            await first.until(b"right")
    client.take(first.data())
    if comes_back:
        assert client.text("reasoning") == "hm"
        await ledger.record("c", [to_event(step(1, "reset")), *(to_event(body) for body in says("r.1", "right"))])
        async with ask(app, "POST", "/v1/agui/connect", INPUT | {"messages": client.messages}) as again:
            await again.until(b"right")
        client.connect()
        client.take(again.data())
    assert (client.text("reasoning"), client.text(), client.calls()) == ("", "right", [])


@pytest.mark.parametrize("messages", [None, [], [1, None, {}], [{"role": "reasoning"}], [{"role": "reasoning", "id": 1}]])
async def test_what_a_client_says_of_its_messages_is_taken_as_it_is(app: Starlette, messages: object) -> None:
    async with ask(app, "POST", "/v1/agui/connect", INPUT | {"messages": messages}) as answer:
        await answer.end()
    assert (answer.status, answer.is_whole) == (200, True)
    check_valid(answer.data())


@pytest.mark.parametrize("then", ["completed", "failed", "another"])
async def test_what_was_taken_back_is_gone_where_its_run_ended_before_it_could_be_shown_anew(
    ledger: Ledger, app: Starlette, monkeypatch: pytest.MonkeyPatch, then: Literal["completed", "failed", "another"]
) -> None:
    looks = 0

    async def look(*words: Any) -> Watched:
        nonlocal looks
        looks += 1
        if looks == 2:
            more = [started("s", "r.1"), *texts("more", run_id="s")] if then == "another" else []
            end = ended(outcome="failed" if then == "failed" else "completed")
            await ledger.record("c", [*(to_event(body) for body in seals("r.1", 2)), end, *more])
        return await look_at(*words)

    monkeypatch.setattr("ledger.http.agui.look_at", look)
    await ledger.record("c", [started(), *(to_event(body) for body in KEPT)])
    async with connect(app) as agent:
        await agent.until(b"SNAPSHOT")
        await ledger.record("c", [to_event(ev.MessageRedacted("r.1r", raw("[]")))])
        await agent.end()
    assert (agent.failure, looks) == (None, 2)
    check_valid(agent.data())
    client = AguiClient()
    client.take(agent.data())
    assert "seen" not in str(client.messages)
    assert (client.text(), client.ended) == ("kept ", "RUN_FINISHED" if then == "completed" else "RUN_ERROR")
    if then == "completed":
        check_agui(client, await ledger.transcript("c"))
