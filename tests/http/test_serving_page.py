"""The page on serving conversations: its agent endpoint runs as it stands there."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.http.asgi_streams import ask
from tests.http.ui_clients import AguiClient, ChatPage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

pytestmark = pytest.mark.anyio
PAGE: Final = (Path(__file__).parents[2] / "ledger" / "README.md").read_text(encoding="utf-8")
[BLOCK] = re.findall(r"^```python\n(\"\"\"An agent.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
JSON: Final = {"content-type": "application/json"}


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FastAPI]:
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("page")
    exec(compile(BLOCK, "ledger/README.md", "exec"), module.__dict__)
    made: FastAPI = module.__dict__["app"]
    async with made.router.lifespan_context(made):
        yield made


def test_the_agent_endpoint_has_forty_lines() -> None:
    assert len([line for line in BLOCK.splitlines() if line.strip()]) <= 40


async def test_a_page_asks_and_another_one_comes_later(app: FastAPI) -> None:
    parts = [{"type": "text", "text": "hello there"}]
    asked = {"id": "c", "messages": [{"id": "m", "role": "user", "parts": parts}], "trigger": "submit-message"}
    async with ask(app, "POST", "/api/chat", asked, JSON) as answer:
        await answer.end()
    page = ChatPage()
    page.take(answer.data())
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.is_whole
    assert (page.text(), page.ended) == ("You said: hello there ", "finish")
    async with ask(app, "GET", "/v1/chat/c/stream") as answer:
        await answer.end()
    assert answer.status == 204


async def test_an_agent_runs_and_another_one_connects(app: FastAPI) -> None:
    message = {"id": "m", "role": "user", "content": "hello there"}
    asked: dict[str, Any] = {"threadId": "c", "runId": "r", "messages": [message], "tools": [], "context": []}
    client, later = AguiClient(), AguiClient()
    async with ask(app, "POST", "/api/agui", asked, JSON) as answer:
        await answer.end()
    client.take(answer.data())
    assert {event.get("runId", "r") for event in answer.data()} == {"r"}
    async with ask(app, "POST", "/v1/agui/connect", asked) as answer:
        await answer.end()
    later.take(answer.data())
    for one in (client, later):
        assert (one.text("user"), one.text(), one.ended) == ("hello there", "You said: hello there ", "RUN_FINISHED")
