"""AG-UI and AI SDK over HTTP: however a run ends, who watches it is told, and never takes a part for the whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from projector import events as ev
from projector.events import to_event
from projector.json_text import raw
from stream.tail import IDLE_S
from tests.http.agent_checks import check_valid
from tests.http.agent_talk import ended, finished, kinds, started, texts
from tests.http.asgi_streams import connect, resume
from tests.http.ui_clients import AguiClient

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ledger import Ledger

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("action", "told"), [
    ("commit", ("RUN_FINISHED", "finish")), ("fail", ("RUN_ERROR", "error")), ("cancel", ("RUN_FINISHED", "abort")),
])  # fmt: skip
async def test_a_run_that_is_recovered_ends_for_who_watches(
    ledger: Ledger, app: Starlette, action: ev.Action, told: tuple[str, str]
) -> None:
    await ledger.record("c", [started(), *texts("some")])
    async with connect(app) as agui, resume(app) as chat:
        await agui.until(b"TEXT_MESSAGE_START")
        await chat.until(b"text-delta")
        await ledger.recover("c", "r", action)
        await agui.end()
        await chat.end()
    assert (kinds(agui)[-1], kinds(chat)[-1]) == told
    assert (agui.is_whole, chat.is_whole) == (True, True)
    check_valid(agui.data())


@pytest.mark.parametrize("outcome", ["completed", "cancelled", "failed"])
async def test_a_run_that_says_nothing_ends_all_the_same(ledger: Ledger, app: Starlette, outcome: ev.Outcome) -> None:
    await ledger.record("c", [started()])
    async with connect(app) as agui, resume(app) as chat:
        await agui.until(b"SNAPSHOT")
        await ledger.record("c", [ended(outcome=outcome)])
        await agui.end()
        await chat.end()
    assert kinds(agui)[-1] == ("RUN_ERROR" if outcome == "failed" else "RUN_FINISHED")
    assert kinds(chat) == [{"completed": "finish", "cancelled": "abort", "failed": "error"}[outcome]]
    check_valid(agui.data())


@pytest.mark.parametrize("is_slow", [False, True])
async def test_an_erase_ends_a_run_for_who_watches(ledger: Ledger, app: Starlette, *, is_slow: bool) -> None:
    await ledger.record("c", [started(), *texts("secret")])
    async with connect(app) as agui, resume(app) as chat:
        await agui.until(b"TEXT_MESSAGE_START")
        await chat.until(b"text-delta")
        if is_slow:
            agui.reads.clear()
            chat.reads.clear()
            await ledger.record("c", texts("more")[2:])
            await asyncio.sleep(0.05)
        await ledger.erase("c")
        await ledger.record("c", [started("next"), *texts("of another life", run_id="next")])
        agui.reads.set()
        chat.reads.set()
        await agui.end()
        await chat.end()
    end = agui.data()[-1]
    assert end["code"] == "overtaken" if is_slow else end["outcome"] == {"type": "cancelled"}
    assert agui.is_whole
    assert chat.is_whole != is_slow
    assert (kinds(chat)[-1] == "abort") != is_slow
    assert b"another life" not in agui.body + chat.body
    check_valid(agui.data())


async def test_who_is_overtaken_by_the_floor_is_told_or_broken_off(ledger: Ledger, app: Starlette) -> None:
    await ledger.record("c", [started(), *texts("one ")])
    async with connect(app) as agui, resume(app) as chat:
        await agui.until(b"TEXT_MESSAGE_START")
        await chat.until(b"text-delta")
        agui.reads.clear()
        chat.reads.clear()
        for text in ("on its way ", "lost"):
            head = (await ledger.record("c", [to_event(ev.BlockDelta("r.1", 0, text))])).last_seq
            await asyncio.sleep(0.05)
        await ledger.catch_up("c")
        await ledger.store.truncate("c", through=head)
        await ledger.record("c", finished())
        for tail in app.state.service.tails._tails.values():
            tail._forget()
            tail.start = tail.head
        agui.reads.set()
        chat.reads.set()
        await agui.end()
        await chat.end()
    assert agui.data()[-1]["code"] == "overtaken"
    assert agui.is_whole
    assert kinds(chat)[-1] == "text-delta"
    assert not chat.is_whole
    assert (agui.failure, chat.failure) == (None, None)
    assert b"lost" not in agui.body + chat.body
    check_valid(agui.data())


async def test_a_run_that_waits_for_a_person_is_over_on_the_wire(ledger: Ledger, app: Starlette) -> None:
    asked = to_event(ev.RunPaused("r", raw('[{"id":"i","reason":"tool_call","tool_call_id":"k"}]')))
    await ledger.record("c", [started(), *texts("may I?")])
    async with connect(app) as live, resume(app) as chat:
        await live.until(b"SNAPSHOT")
        await chat.until(b"text-delta")
        await ledger.record("c", [asked])
        await live.end()
        await chat.end()
    async with connect(app) as later, resume(app) as again:
        await later.end()
        await again.end()
    for answer in (live, later):
        assert kinds(answer)[-1] == "RUN_FINISHED"
        assert answer.data()[-1]["outcome"]["interrupts"] == [{"id": "i", "reason": "tool_call", "toolCallId": "k"}]
        check_valid(answer.data())
        client = AguiClient()
        client.take(answer.data())
        assert client.text() == "may I?"
    for answer in (chat, again):
        assert kinds(answer)[-1] == "finish"


async def test_a_server_that_closes_breaks_off_what_goes_on(ledger: Ledger, app: Starlette) -> None:
    await ledger.record("c", [started(), *texts("some")])
    async with connect(app) as agui, resume(app) as chat:
        await agui.until(b"TEXT_MESSAGE_START")
        await chat.until(b"text-delta")
        app.state.service.followers.close()
        await agui.end()
        await chat.end()
    assert (agui.is_whole, chat.is_whole) == (False, False)


async def test_a_run_that_says_nothing_while_others_do_is_kept_alive(ledger: Ledger, app: Starlette) -> None:
    """A connection on which nothing moves is cut by whoever stands in between."""
    await ledger.record("c", [started("other"), started(), *texts("thinking")])
    async with connect(app) as agui, resume(app) as chat:
        await agui.until(b"TEXT_MESSAGE_START")
        await chat.until(b"text-delta")
        await ledger.record("c", texts("of another run", run_id="other"))
        async with asyncio.timeout(IDLE_S / 2):  # sooner than where nothing moves at all
            await agui.until(b"\n\n:\n\n")
            await chat.until(b"\n\n:\n\n")
    assert b"of another" not in agui.body + chat.body
