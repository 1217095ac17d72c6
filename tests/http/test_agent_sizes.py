"""AG-UI over HTTP where much is said: what is open stays whole, and no event is larger than its client takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ledger.http import agui_pieces as pieces
from projector import events as ev
from projector.events import to_event
from projector.json_text import raw
from tests.http.agent_checks import check_valid
from tests.http.agent_talk import ended, started
from tests.http.asgi_streams import connect
from tests.http.ui_clients import AguiClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.applications import Starlette

    from ledger import Ledger

pytestmark = pytest.mark.anyio
MOST, PIECE = 4000, 300


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_SNAPSHOT_BYTES", MOST)
    monkeypatch.setattr(pieces, "MAX_PIECE", PIECE)


def result(name: str, text: str, call: str = "k") -> ev.Body:
    return ev.ToolResult("r", name, call, "ok", raw(json.dumps([{"kind": "text", "text": text}])))


def opened(kind: ev.Kind, text: str, block: int = 0) -> list[ev.Body]:
    return [ev.BlockStarted("r.1", block, kind), ev.BlockDelta("r.1", block, text)]


BEGINS = ev.MessageStarted("r", "r.1", "assistant")
CALL = [
    ev.BlockStarted("r.1", 8, "tool_call", "look", "k"), ev.BlockDelta("r.1", 8, "{}"), ev.BlockSealed("r.1", 8, parse="ok"),
]  # fmt: skip
TALKS = {
    "a large result behind it": [BEGINS, *opened("text", "a" * 1500), *CALL, result("r.2", "b" * 3000)],
    "it is large itself": [BEGINS, *opened("text", "ü😀" * 1000), *CALL],
    "a large thought and a large text": [BEGINS, *opened("reasoning", "a" * 3000), *opened("text", "b" * 3000, 1)],
    "a large call": [
        BEGINS, *opened("text", "a" * 3000), ev.BlockStarted("r.1", 8, "tool_call", "look", "k"),
        ev.BlockDelta("r.1", 8, '{"a":"' + "b" * 5000),
    ],
}  # fmt: skip


def largest(body: bytes) -> int:
    return max(len(line) for line in body.split(b"\n"))


@pytest.mark.parametrize("how", TALKS)
async def test_what_is_open_is_shown_whole_however_much_there_is(ledger: Ledger, app: Starlette, how: str) -> None:
    async with ledger.run("c") as run:
        await run.message("user", "asked before")
        before = await run.message("assistant", "c" * 3000)
    bodies: Sequence[ev.Body] = TALKS[how]
    await ledger.record("c", [started(parent=before), *(to_event(body) for body in bodies)])
    async with connect(app) as answer:
        await answer.until(b"_START")
        more = [ev.BlockDelta("r.1", body.block, "!" * 1000) for body in bodies if isinstance(body, ev.BlockStarted)]
        await ledger.record("c", [*(to_event(body) for body in more if how != "a large call" or body.block != 8)])
        await ledger.record("c", [ended(outcome="incomplete")])
        await answer.end()
    client = AguiClient()
    client.take(answer.data())
    [message] = [each for each in await ledger.transcript("c") if each.id == "r.1"]
    shown = "".join(each["content"] for each in client.messages if each["id"] == "r.1")
    assert shown == "".join(block.text for block in message.blocks if block.kind == "text")
    assert client.text("reasoning") == "".join(block.text for block in message.blocks if block.kind == "reasoning")
    assert [said for _, _, said in client.calls()] == [block.text for block in message.blocks if block.kind == "tool_call"]
    assert largest(answer.body) <= MOST + 200
    check_valid(answer.data(), [message])


async def test_a_message_that_no_client_takes_hides_no_other(ledger: Ledger, app: Starlette) -> None:
    async with ledger.run("c") as run:
        await run.message("user", "asked")
        await run.message("assistant", "a" * 2 * MOST)
        await run.message("user", "and then?")
    async with connect(app) as answer:
        await answer.end()
    client = AguiClient()
    client.take(answer.data())
    assert [message["content"] for message in client.messages] == ["asked", "and then?"]
    assert largest(answer.body) < MOST
