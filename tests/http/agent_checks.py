"""What a client of AG-UI or of the AI SDK shows against what the log says: texts, reasoning and calls, exactly and once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ag_ui_validate.pytest_plugin import assert_valid_agui

from projector import open_runs
from tests.http.ui_clients import AguiClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector import Message, State
    from stream import Event
    from tests.http.ui_clients import ChatPage


def wanted(messages: list[Message], *kinds: str) -> tuple[str, str, list[tuple[str | None, str | None]]]:
    blocks = [block for message in messages if message.role == "assistant" for block in message.blocks]
    text = "".join(block.text for block in blocks if block.kind in ("text", "refusal"))
    thoughts = "".join(block.text for block in blocks if block.kind == "reasoning")
    return text, thoughts, [(block.tool_call_id, block.name) for block in blocks if block.kind in kinds]


def check_agui(client: AguiClient, messages: list[Message]) -> None:
    text, thoughts, calls = wanted(messages, "tool_call")
    assert client.text() == text
    assert client.text("reasoning") == thoughts
    assert sorted((ref, name) for ref, name, _ in client.calls()) == sorted(calls, key=str)
    arguments = {ref: arguments for ref, _, arguments in client.calls()}
    for message in messages:
        for block in message.blocks:
            if block.kind == "tool_call" and block.parse == "ok":
                assert json.loads(arguments[block.tool_call_id or ""]) == block.input


def check_page(page: ChatPage, messages: list[Message]) -> None:
    assert (page.text(), page.text("reasoning"), page.calls()) == wanted(messages, "tool_call", "server_tool_call")


def check_valid(events: list[dict[str, Any]], messages: Sequence[Message] = ()) -> None:
    """By the public validator; arguments that are no JSON in the log are none on the wire.

    It knows no id twice. The public client does: what is taken back comes again under the id that it will always have.
    """
    if sum(event["type"] == "MESSAGES_SNAPSHOT" for event in events) > 1:
        AguiClient().take(events)
        return
    calls = [block for message in messages for block in message.blocks if block.kind == "tool_call"]
    is_cut = any(not block.sealed or block.parse == "bad" for block in calls)
    assert_valid_agui(events, severity_overrides={"AGUI204": "off"} if is_cut else {})


def state_at(bodies: list[Event], cut: int) -> State:
    state = open_runs.initial
    for event in bodies[:cut]:
        state = open_runs.fold(state, event)
    return state
