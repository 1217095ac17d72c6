"""AG-UI and AI SDK over HTTP where a log holds what is legal and odd: a client is told what it can take, and never nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from projector import events as ev
from projector.events import to_event
from projector.json_text import raw
from tests.http.agent_checks import check_valid
from tests.http.asgi_streams import connect, resume
from tests.http.ui_clients import AguiClient

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ledger import Ledger

pytestmark = pytest.mark.anyio


BEGUN = [ev.RunStarted("r", None, "submit", "r"), ev.MessageStarted("r", "r.1", "assistant"), ev.BlockStarted("r.1", 0, "text"),
         ev.BlockDelta("r.1", 0, "well")]  # fmt: skip
ENDED = [ev.BlockSealed("r.1", 0), ev.MessageFinished("r.1", "complete"), ev.RunFinished("r", "completed")]


async def follow_all(ledger: Ledger, app: Starlette, odd: list[ev.Body], *, is_withdrawn: bool = False) -> list[AguiClient]:
    """One who was there before something odd came, and one who comes after it: both are told all, to the end.

    A page that was there has to come back where something that it shows `is_withdrawn`.
    """
    await ledger.record("c", [to_event(body) for body in BEGUN])
    clients = []
    async with connect(app) as before, resume(app) as page:
        await before.until(b"TEXT_MESSAGE_START")
        await page.until(b"text-delta")
        await ledger.record("c", [to_event(body) for body in odd])
        async with connect(app) as after, resume(app) as late:
            await after.until(b"MESSAGES_SNAPSHOT")
            await ledger.record("c", [to_event(body) for body in ENDED])
            for answer in (before, page, after, late):
                await answer.end()
    for answer in (before, page, after, late):
        assert (answer.failure, answer.is_whole) == (None, not (is_withdrawn and answer is page))
    for answer in (before, after):
        check_valid(answer.data())
        client = AguiClient()
        client.take(answer.data())
        clients.append(client)
    return clients


@pytest.mark.parametrize("interrupts", ["null", "5", "true", '"ask"', "{}", "[1]", None])
async def test_a_pause_that_asks_in_another_form_ends_the_run_on_the_wire(
    ledger: Ledger, app: Starlette, interrupts: str | None
) -> None:
    await follow_all(ledger, app, [ev.RunPaused("r", raw(interrupts))])


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("kind", ["text", "tool_result"])
async def test_a_result_that_is_redacted_while_its_run_goes_on(ledger: Ledger, app: Starlette, count: int, kind: str) -> None:
    more = {"tool_call_id": "k", "parts": "[]"} if kind == "tool_result" else {}
    blocks = [{"kind": kind, "text": "[gone]"} | more] * count
    odd = [
        ev.BlockStarted("r.1", 1, "tool_call", "look", "k"), ev.BlockDelta("r.1", 1, "{}"),
        ev.BlockSealed("r.1", 1, parse="ok"),
        ev.ToolResult("r", "r.2", "k", "ok", raw('[{"kind":"text","text":"secret"}]')),
        ev.MessageRedacted("r.2", raw(json.dumps(blocks))),
    ]  # fmt: skip
    for client in await follow_all(ledger, app, odd, is_withdrawn=True):
        assert client.text() == "well"
        assert "secret" not in json.dumps(client.messages)
        assert all("toolCallId" in message for message in client.messages if message["role"] == "tool")


async def test_a_page_that_reads_slowly_comes_back_for_what_was_redacted_although_its_run_has_ended_since(
    ledger: Ledger, app: Starlette
) -> None:
    secret = [ev.ToolResult("r", "r.2", "k", "ok", raw('[{"kind":"text","text":"secret"}]'))]
    await ledger.record("c", [to_event(body) for body in BEGUN])
    async with resume(app) as page:
        await page.until(b"text-delta")
        page.reads.clear()
        await ledger.record("c", [to_event(body) for body in secret])
        gone = raw('[{"kind":"text","text":"[gone]"}]')
        await ledger.record("c", [to_event(body) for body in [ev.MessageRedacted("r.2", gone), *ENDED]])
        assert "r.2" in [message.id for message in await ledger.transcript("c")]
        page.reads.set()
        await page.end()
    assert (page.failure, page.is_whole) == (None, False)


SECRET = [ev.BlockStarted("r.2", 0, "text"), ev.BlockDelta("r.2", 0, "secret"), ev.BlockSealed("r.2", 0)]
LAST = {
    "completed": ev.RunFinished("r", "completed"), "failed": ev.RunFinished("r", "failed"),
    "paused": ev.RunPaused("r", raw("[]")),
}  # fmt: skip


@pytest.mark.parametrize("last", LAST)
async def test_who_reads_slowly_is_told_of_what_was_redacted_behind_the_end_that_comes_to_him_later(
    ledger: Ledger, app: Starlette, last: str
) -> None:
    await ledger.record("c", [to_event(body) for body in BEGUN])
    async with connect(app) as agent, resume(app) as page:
        await agent.until(b"TEXT_MESSAGE_START")
        await page.until(b"text-delta")
        agent.reads.clear()
        page.reads.clear()
        said: list[ev.Body] = [
            ev.MessageStarted("r", "r.2", "assistant"),
            *SECRET,
            ev.MessageFinished("r.2", "complete"),
            LAST[last],
        ]
        await ledger.record("c", [to_event(body) for body in said])
        await ledger.redact("c", "r.2")
        agent.reads.set()
        page.reads.set()
        await agent.end()
        await page.end()
    assert (page.failure, page.is_whole, agent.failure, agent.is_whole) == (None, False, None, True)
    check_valid(agent.data())
    client = AguiClient()
    client.take(agent.data())
    assert "secret" not in json.dumps(client.messages)


async def test_a_page_is_told_of_what_was_redacted_under_an_id_that_another_run_had_used(
    ledger: Ledger, app: Starlette
) -> None:
    """What has gone out says what is shown. The ledger keeps the message of the first."""
    said = [ev.MessageStarted("r0", "r.2", "assistant"), *SECRET, ev.MessageFinished("r.2", "complete")]
    bodies = [ev.RunStarted("r0", None, "submit", "r0"), *said, ev.RunFinished("r0", "completed"), *BEGUN[:1]]
    await ledger.record("c", [to_event(body) for body in bodies])
    await ledger.transcript("c")
    await ledger.record("c", [to_event(body) for body in [ev.MessageStarted("r", "r.2", "assistant"), *SECRET]])
    async with resume(app) as page:
        await page.until(b"secret")
        gone = ev.MessageRedacted("r.2", raw('[{"kind":"text","text":"[gone]"}]'))
        await ledger.record("c", [to_event(body) for body in [gone, ev.RunFinished("r", "completed")]])
        await page.end()
    assert (page.failure, page.is_whole) == (None, False)


async def test_who_can_not_be_told_anew_what_stands_is_broken_off(ledger: Ledger, app: Starlette) -> None:
    """A message before is damaged: the next request is told so, and no traceback is."""
    async with ledger.run("c", run_id="before") as run:
        ref = await run.message("user", "hi")
    await ledger.transcript("c")
    await ledger.record("c", [to_event(body) for body in [ev.RunStarted("r", ref, "submit", "r"), *BEGUN[1:]]])
    async with connect(app) as agent:
        await agent.until(b"TEXT_MESSAGE_START")
        await ledger.tables.database.write(lambda sql: sql("UPDATE messages SET crc = crc + 1"))
        await ledger.record("c", [to_event(ev.MessageRedacted("r.1", raw("[]")))])
        await agent.end()
    assert (agent.failure, agent.is_whole) == (None, False)
    async with connect(app) as agent:
        await agent.end()
    assert (agent.failure, agent.status) == (None, 500)


async def test_a_message_of_a_tool_that_speaks_is_not_shown(ledger: Ledger, app: Starlette) -> None:
    odd = [
        ev.MessageStarted("r", "r.2", "tool"), ev.BlockStarted("r.2", 0, "text"), ev.BlockDelta("r.2", 0, "odd"),
    ]  # fmt: skip
    for client in await follow_all(ledger, app, odd):
        assert client.text() == "well"


async def test_texts_that_are_whole_in_another_order_than_they_began_end_once(ledger: Ledger, app: Starlette) -> None:
    begun = [*BEGUN, ev.BlockStarted("r.1", 1, "text"), ev.BlockDelta("r.1", 1, " done")]
    await ledger.record("c", [to_event(body) for body in begun])
    async with connect(app) as answer:
        await answer.until(b"TEXT_MESSAGE_START")
        last = [ev.BlockSealed("r.1", 1), *ENDED]
        await ledger.record("c", [to_event(body) for body in last])
        await answer.end()
    check_valid(answer.data())
    client = AguiClient()
    client.take(answer.data())
    assert client.text() == "well done"


@pytest.mark.parametrize("cut", [1, 9, 17, 25])
async def test_each_step_may_call_under_the_same_id(ledger: Ledger, app: Starlette, cut: int) -> None:
    """Some models count their calls from 0 in each answer."""
    bodies: list[ev.Body] = [ev.RunStarted("r", None, "submit", "r")]
    for step in range(4):
        name = f"r.{step}"
        bodies += [
            ev.RunStep("r", step, "started"), ev.MessageStarted("r", name, "assistant"),
            ev.BlockStarted(name, 0, "tool_call", "look", "k"), ev.BlockDelta(name, 0, f'{{"n":{step}}}'),
            ev.BlockSealed(name, 0, parse="ok"), ev.MessageFinished(name, "complete"),
            ev.ToolResult("r", f"{name}r", "k", "ok", raw(f'[{{"kind":"text","text":"{step}"}}]')),
            ev.RunStep("r", step, "finished"),
        ]  # fmt: skip
    bodies.append(ev.RunFinished("r", "completed"))
    await ledger.record("c", [to_event(body) for body in bodies[:cut]])
    async with connect(app) as agent, resume(app) as page:
        await agent.until(b"MESSAGES_SNAPSHOT")
        await ledger.record("c", [to_event(body) for body in bodies[cut:]])
        await agent.end()
        await page.end()
    check_valid(agent.data())
    client = AguiClient()
    client.take(agent.data())
    results = {message["toolCallId"]: message["content"] for message in client.messages if message["role"] == "tool"}
    assert [(json.loads(said)["n"], results[ref]) for ref, _, said in client.calls()] == [(n, str(n)) for n in range(4)]
    given = {chunk["toolCallId"]: chunk["input"]["n"] for chunk in page.data() if chunk["type"] == "tool-input-available"}
    told = {chunk["toolCallId"]: chunk["output"] for chunk in page.data() if chunk["type"] == "tool-output-available"}
    assert sorted(given.values()) == [0, 1, 2, 3]
    assert {ref: str(n) for ref, n in given.items()} == told


@pytest.mark.parametrize("cut", [3, 5, 8, 9, 10])
async def test_calls_that_are_open_at_once_under_one_id_have_each_its_result(ledger: Ledger, app: Starlette, cut: int) -> None:
    bodies = [ev.RunStarted("r", None, "submit", "r"), ev.MessageStarted("r", "r.1", "assistant")]
    for number in range(2):
        bodies += [ev.BlockStarted("r.1", number, "tool_call", "look", "k")]
    for number in range(2):
        bodies += [ev.BlockDelta("r.1", number, f'{{"n":{number}}}'), ev.BlockSealed("r.1", number, parse="ok")]
    bodies.append(ev.MessageFinished("r.1", "complete"))
    bodies += [ev.ToolResult("r", f"r.1/{n}", "k", "ok", raw(f'[{{"kind":"text","text":"{n}"}}]')) for n in range(2)]
    bodies.append(ev.RunFinished("r", "completed"))
    await ledger.record("c", [to_event(body) for body in bodies[:cut]])
    async with connect(app) as agent, resume(app) as page:
        await agent.until(b"MESSAGES_SNAPSHOT")
        await ledger.record("c", [to_event(body) for body in bodies[cut:]])
        await agent.end()
        await page.end()
    async with connect(app) as later:
        await later.end()
    for answer in (agent, later):
        check_valid(answer.data())
        client = AguiClient()
        client.take(answer.data())
        results = {message["toolCallId"]: message["content"] for message in client.messages if message["role"] == "tool"}
        assert [(json.loads(said)["n"], results[ref]) for ref, _, said in client.calls()] == [(0, "0"), (1, "1")]
    given = {chunk["toolCallId"]: chunk["input"]["n"] for chunk in page.data() if chunk["type"] == "tool-input-available"}
    told = {chunk["toolCallId"]: chunk["output"] for chunk in page.data() if chunk["type"] == "tool-output-available"}
    assert {ref: str(n) for ref, n in given.items()} == told
    assert len(told) == 2
