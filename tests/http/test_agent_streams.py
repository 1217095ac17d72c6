"""AG-UI and AI SDK over HTTP: whoever connects in the middle shows exactly what was said, once, however the run ends."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger.http import make_app
from ledger.http.agui import MAX_SHOWN
from projector import events as ev
from projector.events import to_event
from projector.json_text import raw
from stream.http import Access, Problem
from tests.http.agent_checks import check_valid
from tests.http.agent_talk import ended, finished, kinds, started, texts
from tests.http.asgi_streams import ask, connect, resume
from tests.http.ui_clients import AguiClient, ChatPage

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ledger import Ledger

pytestmark = pytest.mark.anyio


async def test_a_thread_that_is_idle_or_unknown_is_told_and_over(ledger: Ledger, app: Starlette) -> None:
    async with ledger.run("c") as run:
        await run.message("user", "ask")
        await run.message("assistant", "answer")
    await ledger.store.append("ds:c", [started(), *texts("of no conversation")])
    for thread, shown in (("c", ["ask", "answer"]), ("nobody", []), ("ds:c", [])):
        async with connect(app, thread) as answer:
            await answer.end()
        first, snapshot, last = answer.data()
        assert first == {"type": "RUN_STARTED", "threadId": thread, "runId": "mine"}
        assert [message["content"] for message in snapshot["messages"]] == shown
        assert last == first | {"type": "RUN_FINISHED"}
        assert answer.is_whole
        check_valid(answer.data())
        async with resume(app, thread) as answer:
            await answer.end()
        assert (answer.status, answer.body) == (204, b"")
    assert (await ledger.store.bounds("nobody")).head == 0


async def test_what_is_open_is_opened_again_and_a_call_comes_once_more(ledger: Ledger, app: Starlette) -> None:
    name = "r.1"
    bodies = [
        ev.RunStarted("r", None, "submit", "r"), ev.MessageStarted("r", "r.0", "user"), ev.BlockStarted("r.0", 0, "text"),
        ev.BlockDelta("r.0", 0, "ask"), ev.BlockSealed("r.0", 0), ev.MessageFinished("r.0", "complete"),
        ev.RunStep("r", 1, "started"), ev.MessageStarted("r", name, "assistant"),
        ev.BlockStarted(name, 0, "reasoning"), ev.BlockDelta(name, 0, "hm"),
        ev.BlockStarted(name, 1, "text"), ev.BlockDelta(name, 1, "well"),
        ev.BlockStarted(name, 2, "tool_call", "look", "k"), ev.BlockDelta(name, 2, '{"a":'),
    ]  # fmt: skip
    await ledger.record("c", [to_event(body) for body in bodies])
    async with connect(app) as answer:
        await answer.until(b"TOOL_CALL_ARGS")
        rest = [
            ev.BlockDelta(name, 2, "1}"), ev.BlockSealed(name, 2, parse="ok"), ev.BlockDelta(name, 0, "m"),
            ev.BlockSealed(name, 0), ev.BlockDelta(name, 1, "!"), ev.BlockSealed(name, 1),
            ev.MessageFinished(name, "complete"), ev.RunStep("r", 1, "finished"), ev.RunFinished("r", "completed"),
        ]  # fmt: skip
        await ledger.record("c", [to_event(body) for body in rest])
        await answer.end()
    assert kinds(answer)[:7] == [
        "RUN_STARTED", "MESSAGES_SNAPSHOT", "STEP_STARTED", "TEXT_MESSAGE_START", "REASONING_START", "REASONING_MESSAGE_START",
        "TOOL_CALL_START",
    ]  # fmt: skip
    snapshot = answer.data()[1]["messages"]
    assert [(message["id"], message["content"]) for message in snapshot] == [("r.0", "ask"), ("r.1/0", "hm"), ("r.1", "well")]
    assert not any("toolCalls" in message for message in snapshot)
    client = AguiClient()
    client.take(answer.data())
    assert client.calls() == [("k", "look", '{"a":1}')]
    assert (client.text(), client.text("reasoning")) == ("well!", "hmm")
    check_valid(answer.data())


@pytest.mark.parametrize("count", [3, 5, 6, 7])
async def test_a_call_with_the_id_of_an_earlier_one_is_another_call(ledger: Ledger, app: Starlette, count: int) -> None:
    parent = None
    for number in (1, 2):
        run_id = f"run{number}"
        name = f"{run_id}.1"
        bodies = [
            ev.RunStarted(run_id, parent, "submit", run_id), ev.MessageStarted(run_id, name, "assistant"),
            ev.BlockStarted(name, 0, "tool_call", "look", "k"), ev.BlockDelta(name, 0, f'{{"n":{number}}}'),
            ev.BlockSealed(name, 0, parse="ok"), ev.MessageFinished(name, "complete"),
            ev.ToolResult(run_id, f"{run_id}.2", "k", "ok", raw(f'[{{"kind":"text","text":"{number}"}}]')),
            ev.RunFinished(run_id, "completed"),
        ]  # fmt: skip
        events = [to_event(body) for body in bodies]
        parent = f"{run_id}.2"
        if number == 1:
            await ledger.record("c", events)
    await ledger.record("c", events[:count])
    async with connect(app) as answer:
        await answer.until(b"SNAPSHOT")
        await ledger.record("c", events[count:])
        await answer.end()
    client = AguiClient()
    client.take(answer.data())
    assert [arguments for _, _, arguments in client.calls()] == ['{"n":1}', '{"n":2}']
    results = {message["toolCallId"]: message["content"] for message in client.messages if message["role"] == "tool"}
    assert [results[ref] for ref, _, _ in client.calls()] == ["1", "2"]
    check_valid(answer.data())


async def test_text_behind_a_call_goes_on_in_the_message_that_it_has_for_who_followed(ledger: Ledger, app: Starlette) -> None:
    name = "r.1"
    head = [
        *texts("before"), to_event(ev.BlockSealed(name, 0)),
        to_event(ev.BlockStarted(name, 1, "tool_call", "look", "k")), to_event(ev.BlockDelta(name, 1, "{}")),
        to_event(ev.BlockSealed(name, 1, parse="ok")), to_event(ev.BlockStarted(name, 2, "text")),
        to_event(ev.BlockDelta(name, 2, "beh")),
    ]  # fmt: skip
    rest = [to_event(ev.BlockDelta(name, 2, "ind")), to_event(ev.BlockSealed(name, 2)), *finished()[1:]]
    await ledger.record("c", [started()])
    async with connect(app) as early:
        await early.until(b"RUN_STARTED")
        await ledger.record("c", head)
        async with connect(app) as late:
            await late.until(b"MESSAGES_SNAPSHOT")
            await ledger.record("c", rest)
            await early.end()
            await late.end()
    shown = []
    for answer in (early, late):
        client = AguiClient()
        client.take(answer.data())
        shown.append([(message["id"], message.get("content")) for message in client.messages])
    assert shown[0] == shown[1] == [("r.1", "before"), ("r.1/2", "behind")]


async def test_who_comes_back_gets_the_same_message_from_its_start(ledger: Ledger, app: Starlette) -> None:
    await ledger.record("c", [started(), *texts("one ", "two ")])
    page = ChatPage()
    for more in ("three ", "four "):
        async with resume(app) as answer:
            await answer.until(b"text-delta")
            await ledger.record("c", [to_event(ev.BlockDelta("r.1", 0, more))])
            await answer.until(more.encode())
        page.resume()
        page.take(answer.data())
        assert answer.data()[0] == {"type": "start", "messageId": "r"}
        assert not answer.is_whole
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.headers["content-type"] == "text/event-stream"
    async with resume(app) as answer:
        await answer.until(b"text-delta")
        await ledger.record("c", finished())
        await answer.end()
    page.resume()
    page.take(answer.data())
    assert (page.message["id"], page.text(), page.ended) == ("r", "one two three four ", "finish")
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert answer.is_whole


async def test_an_answer_that_a_page_lets_its_last_message_grow_by_has_that_id(ledger: Ledger, app: Starlette) -> None:
    async def post(scope: Any, receive: Any, send: Any) -> None:
        await (await app.state.chat.answer("c", continues="r1"))(scope, receive, send)

    for run_id, before in (("r1", [started("r1"), *texts("one ", run_id="r1")[:-1]]), ("r2", [started("r2")])):
        paused = to_event(ev.RunPaused("r1", raw("[]")))
        await ledger.record("c", [*before, *([paused] if run_id == "r1" else [])])
        async with ask(post, "POST", "/") as answer:
            if run_id == "r1":  # it goes on itself, and the page has what it said before
                await answer.until(b"start")
                rest = [ev.RunResumed("r1", raw("[]")), ev.BlockSealed("r1.1", 0), ev.MessageFinished("r1.1", "complete")]
                await ledger.record("c", [to_event(body) for body in rest])
                more = [ev.MessageStarted("r1", "r1.2", "assistant"), ev.BlockStarted("r1.2", 0, "text")]
                await ledger.record("c", [*(to_event(body) for body in more), to_event(ev.BlockDelta("r1.2", 0, "two"))])
                await ledger.record("c", [ended("r1")])
            else:
                await ledger.record("c", [*texts("two", run_id="r2"), *finished("r2")])
            await answer.end()
        chunks = answer.data()
        assert [chunk["messageId"] for chunk in chunks if chunk["type"] == "start"] == ["r1"]
        assert "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta") == "two"
        assert chunks[-1]["type"] == "finish"


async def test_a_run_whose_events_are_gone_is_told_from_its_state(ledger: Ledger, app: Starlette) -> None:
    head = (await ledger.record("c", [started(), *texts("one ", "two ")])).last_seq
    await ledger.catch_up("c")
    await ledger.store.truncate("c", through=head)
    async with connect(app) as agui, resume(app) as chat:
        await agui.until(b"TEXT_MESSAGE_START")
        await chat.until(b"text-delta")
        await ledger.record("c", [to_event(ev.BlockDelta("r.1", 0, "three")), *finished()])
        await agui.end()
        await chat.end()
    client, page = AguiClient(), ChatPage()
    client.take(agui.data())
    page.take(chat.data())
    assert client.text() == page.text() == "one two three"


async def test_of_several_open_runs_the_one_on_the_active_path_is_watched(ledger: Ledger, app: Starlette) -> None:
    async with ledger.run("c", run_id="root") as run:
        root = await run.message("user", "ask")
    await ledger.record("c", [started("lost", root), *texts("lost", run_id="lost")])
    async with resume(app) as answer:
        await answer.until(b"text-delta")
    assert answer.data()[0]["messageId"] == "lost"
    await ledger.record("c", [started("newer", root), *texts("newer", run_id="newer")])
    async with connect(app) as answer:
        await answer.until(b"TEXT_MESSAGE_START")
    client = AguiClient()
    client.take(answer.data())
    assert (client.text("user"), client.text()) == ("ask", "newer")
    await ledger.record("c", finished("newer"))
    async with resume(app) as answer:  # nobody ends the other one, and a later turn has taken its place
        await answer.end()
    assert answer.status == 204
    async with connect(app) as answer:
        await answer.end()
    assert answer.data()[-1]["type"] == "RUN_FINISHED"


async def test_a_run_behind_an_earlier_message_is_shown_behind_that(ledger: Ledger, app: Starlette) -> None:
    async with ledger.run("c") as run:
        asked = await run.message("user", "ask")
        await run.message("assistant", "first answer")
    await ledger.record("c", [started(parent=asked), *texts("another ")])
    async with connect(app) as answer:
        await answer.until(b"TEXT_MESSAGE_START")
        await ledger.record("c", [to_event(ev.BlockDelta("r.1", 0, "answer")), *finished()])
        await answer.end()
    client = AguiClient()
    client.take(answer.data())
    assert (client.text("user"), client.text()) == ("ask", "another answer")


async def test_a_step_that_is_over_is_not_opened_again(ledger: Ledger, app: Starlette) -> None:
    await ledger.record("c", [started(), to_event(ev.RunStep("r", 1, "started")), to_event(ev.RunStep("r", 1, "finished"))])
    async with connect(app) as answer:
        await answer.until(b"SNAPSHOT")
        await ledger.record("c", [to_event(ev.RunStep("r", 2, "started")), ended()])
        await answer.end()
    steps = [event["stepName"] for event in answer.data() if event["type"] == "STEP_STARTED"]
    assert steps == ["step 2"]
    check_valid(answer.data())


async def test_an_image_of_the_user_is_shown_while_the_run_goes_on(ledger: Ledger, app: Starlette) -> None:
    media = await ledger.add_media("c", b"\x89PNG", "image/png")
    bodies = [
        ev.RunStarted("r", None, "submit", "r"), ev.MessageStarted("r", "r.1", "user"),
        ev.BlockStarted("r.1", 0, "media", media_type="image/png"),
        ev.BlockDelta("r.1", 0, f"tailfold:media/{media}", "data"), ev.BlockSealed("r.1", 0),
        ev.BlockStarted("r.1", 1, "text"), ev.BlockDelta("r.1", 1, "see"), ev.BlockSealed("r.1", 1),
        ev.MessageFinished("r.1", "complete"),
    ]  # fmt: skip
    await ledger.record("c", [to_event(body) for body in bodies])
    async with connect(app) as answer:
        await answer.until(b"SNAPSHOT")
    [message] = answer.data()[1]["messages"]
    image, text = message["content"]
    assert image["source"]["value"] == base64.b64encode(b"\x89PNG").decode()
    assert text == {"type": "text", "text": "see"}


async def test_of_a_long_thread_the_newest_messages_are_shown(ledger: Ledger, app: Starlette) -> None:
    names = [f"r.{number}" for number in range(MAX_SHOWN + 5)]
    bodies = [
        [ev.MessageStarted("r", name, "user"), ev.BlockStarted(name, 0, "text"), ev.BlockDelta(name, 0, name),
         ev.BlockSealed(name, 0), ev.MessageFinished(name, "complete")]
        for name in names
    ]  # fmt: skip
    await ledger.record("c", [started(), *(to_event(body) for message in bodies for body in message), ended()])
    async with connect(app) as answer:
        await answer.end()
    assert [message["id"] for message in answer.data()[1]["messages"]] == names[-MAX_SHOWN:]


async def test_a_snapshot_is_not_larger_than_the_client_takes(ledger: Ledger, app: Starlette) -> None:
    async with ledger.run("c") as run:
        for number in range(12):
            await run.message("user", f"{number} " + "x" * 1024 * 1024)
    async with connect(app) as answer:
        await answer.end()
    assert len(answer.body) < 9 * 1024 * 1024
    assert answer.data()[1]["messages"][-1]["content"].startswith("11 ")


async def test_a_run_behind_a_message_that_is_not_there_is_shown_by_itself(ledger: Ledger, app: Starlette) -> None:
    await ledger.record("c", [started(parent="nobody's"), *texts("some")])
    async with connect(app) as agui, resume(app) as chat:
        await agui.until(b"TEXT_MESSAGE_START")
        await chat.until(b"text-delta")
        await ledger.record("c", finished())
        await agui.end()
        await chat.end()
    client = AguiClient()
    client.take(agui.data())
    assert (client.text(), client.ended) == ("some", "RUN_FINISHED")


async def test_head_says_what_a_stream_is_and_is_over(ledger: Ledger, app: Starlette) -> None:
    await ledger.record("c", [started(), *texts("some")])
    async with ask(app, "HEAD", "/v1/chat/c/stream") as answer:
        await answer.end()
    assert (answer.status, answer.body, answer.failure) == (200, b"", None)
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"


async def test_nobody_reads_what_he_may_not(ledger: Ledger) -> None:
    asked: list[tuple[str, str, str | None]] = []

    async def refuse(access: Access) -> None:
        asked.append((access.action, access.kind, access.stream))
        raise Problem(403, "forbidden", "not yours")

    await ledger.record("c", [started(), *texts("secret"), ended()])
    await ledger.record("c", [started("r2"), *texts("secret", run_id="r2")])
    app = make_app(ledger, authorize=refuse)
    async with connect(app) as agui, resume(app) as chat:
        while not (agui.status and chat.status):
            await asyncio.sleep(0)
    assert (agui.status, chat.status) == (403, 403)
    assert b"secret" not in agui.body + chat.body
    assert asked == [("read", "conversation", "c")] * 2


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"threadId":1,"runId":"r"}', b'{"runId":"r"}', b'{"threadId":"","runId":"r"}']
)
async def test_what_is_no_input_is_refused(app: Starlette, body: bytes) -> None:
    async with ask(app, "POST", "/v1/agui/connect", body) as answer:
        await answer.end()
    assert answer.status in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(answer.body)["detail"]
